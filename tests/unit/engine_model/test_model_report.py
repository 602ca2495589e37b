import json
import re
import subprocess
import sys

import msgspec
import psutil
import pytest

from control.wire import ModelList
from engine.errors import ModelNotFound
from engine.memory import Limit
from engine.memory_text import GIB
from engine.report import list_models, plan_model
from engine.wire import ProcessRecord
from tests.unit.engine_model.folders import TINY_CONFIG

SMALL = Limit(4 * GIB, GIB)


@pytest.fixture(autouse=True)
def no_other_models(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_a_new_home_lists_the_demo(tmp_path):
    report = list_models(tmp_path / "splash", limit=SMALL)

    assert [(entry.name, entry.is_demo, entry.fits) for entry in report.models] == [("splash-demo", True, True)]
    assert "splash-demo" in report.as_text()
    assert "random weights" in report.as_text()


def test_control_reads_from_the_json_every_field_of_its_own_list(demo_home):
    report = list_models(demo_home, limit=SMALL)

    read = msgspec.to_builtins(msgspec.json.decode(report.as_json(), type=ModelList))

    said = json.loads(report.as_json())["models"]
    assert [{name: entry[name] for name in known} for known, entry in zip(read["models"], said, strict=True)] == list(
        read["models"]
    )


def test_a_model_is_listed_with_what_it_can_do_here(make_folder, demo_home):
    config = {**TINY_CONFIG, "vision_config": {}}
    folder = make_folder("seeing", config=config)

    entry = list_models(demo_home, [folder.parent], limit=SMALL).models[1]

    assert (entry.has_vision, entry.fits, entry.longest_context_tokens) == (True, True, 8192)
    assert entry.warm_sessions >= 6
    assert entry.warm_session_tokens == 8192


def test_people_read_what_a_model_can_do_here(make_folder, demo_home):
    config = {**TINY_CONFIG, "vision_config": {}, "max_position_embeddings": 10**8}
    folder = make_folder("seeing", config=config)

    text = list_models(demo_home, [folder.parent], limit=SMALL).as_text()

    assert re.search(r"\d+ warm, up to [\d,]+ tokens here, has vision\)", text)


def test_a_model_elsewhere_is_listed_under_the_path_that_load_takes(demo_home, make_folder):
    folder = make_folder("mine")

    report = list_models(demo_home, [folder.parent], limit=SMALL)

    assert report.models[1].name == str(folder)


def test_what_cannot_be_served_is_listed_apart_with_its_reason(demo_home, make_folder):
    folder = make_folder("broken", tokenizer=None)

    report = list_models(demo_home, [folder.parent], limit=SMALL)

    assert [entry.name for entry in report.models] == ["splash-demo"]
    assert [entry.path for entry in report.refused] == [str(folder)]
    assert "has no tokenizer" in report.as_text()


def test_whatever_a_person_put_among_the_models_of_the_home_is_listed(tmp_path):
    models = tmp_path / "splash" / "models"
    (models / "mine").mkdir(parents=True)
    (models / "broken").mkdir()
    (models / "broken" / "config.json").write_text("{")
    (models / ".hidden").mkdir()
    (models / "gone").symlink_to(tmp_path / "unplugged")
    (models / "notes.txt").write_text("no folder")

    refused = {entry.path: entry.message for entry in list_models(tmp_path / "splash", limit=SMALL).refused}

    assert [path.removeprefix(f"{models}/") for path in refused] == ["broken", "gone", "mine"]
    assert refused[str(models / "mine")] == f"{models}/mine has no config.json, so it is not a model folder."
    assert "is not valid JSON" in refused[str(models / "broken")]


def test_what_does_not_fit_is_listed_and_marked(demo_home):
    report = list_models(demo_home, limit=Limit(0))

    assert not report.models[0].fits
    assert "does not fit" in report.as_text()


def test_a_plan_is_told_to_programs_and_to_people(demo_home):
    report = plan_model("demo", demo_home, context=4096, kv_bits=8, limit=SMALL)

    said = json.loads(report.as_json())
    assert (said["plan"]["maximum_context_tokens"], said["plan"]["kv_bits"]) == (4096, 8)
    assert said["model"]["is_demo"] is True
    assert report.as_text().startswith("splash-demo fits, with ")
    assert "4,096  of 262,144 tokens" in report.as_text()
    assert "576 bytes  of keys and values, 8-bit" in report.as_text()


def test_another_plan_can_be_computed_from_a_plan_without_asking_again(demo_home):
    said = json.loads(plan_model("demo", demo_home, limit=SMALL).as_json())
    plan, bytes_per_token = said["plan"], {c["kv_bits"]: c["kv_bytes_per_token"] for c in said["kv_choices"]}

    asked = plan_model("demo", demo_home, context=100_000, budget_bytes=GIB, kv_bits=4, limit=SMALL).plan

    warm = 23_000 * bytes_per_token[4] + plan["snapshots_per_session"] * plan["state_bytes_per_sequence"]
    running = 23_000 * bytes_per_token[4] + 2 * plan["state_bytes_per_sequence"]
    assert asked.warm_sessions == (GIB - 4 * running) // warm
    assert asked.kv_bytes_per_token == bytes_per_token[4]


def test_a_mac_shows_the_limit_of_its_kernel(demo_home, monkeypatch):
    monkeypatch.setattr("engine.report.wired_limit_mb", lambda: 65_536)

    report = plan_model("demo", demo_home, limit=SMALL)

    assert json.loads(report.as_json())["wired_limit_mb"] == 65_536
    assert "iogpu.wired_limit_mb" in report.as_text()
    assert "65,536 MB" in report.as_text()


def test_planning_a_hub_id_that_is_not_here_downloads_nothing_and_says_so(demo_home):
    report = plan_model("org/name", demo_home)

    assert report.plan is None
    assert report.as_text() == "org/name is not on this machine; it is downloaded when it is loaded."


def test_planning_a_name_that_is_nothing_is_an_error(demo_home):
    with pytest.raises(ModelNotFound, match="there is no model called nothing"):
        plan_model("nothing", demo_home)


@pytest.mark.parametrize(("seconds_off", "counts"), [(0.0, True), (60.0, False)])
def test_what_a_running_engine_holds_counts_as_available_for_the_next(tmp_path, monkeypatch, seconds_off, counts):
    ourselves = psutil.Process()
    monkeypatch.setattr("engine.report.available_bytes", lambda: 4 * GIB)
    record = ProcessRecord(
        name="engine",
        pid=ourselves.pid,
        created_at_s=ourselves.create_time() + seconds_off,
        nonce="n",
        port=1,
        manager="control",
        started_at_s=0.0,
        version="0",
    )
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "engine.json").write_bytes(msgspec.json.encode(record))

    report = plan_model("demo", tmp_path)

    planned_for = report.plan.limit_bytes + report.plan.reserve_bytes
    assert (planned_for > 4 * GIB) == counts


def test_the_command_line_takes_sizes_as_people_write_them_and_needs_no_mlx(demo_home):
    program = (
        "import sys; from engine.__main__ import main; code = main(sys.argv[1:]); "
        "print(sorted(name for name in sys.modules if name.partition('.')[0] in ('mlx', 'mlx_lm'))); sys.exit(code)"
    )
    arguments = ["plan", "--model", "demo", "--home", str(demo_home), "--budget", "1.5GiB", "--kv-bits", "8", "--json"]

    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)

    answer, modules = done.stdout.splitlines()
    assert json.loads(answer)["plan"]["pool_bytes"] == 3 * GIB // 2
    assert modules == "[]"


def test_the_command_line_looks_into_the_folders_it_is_given(demo_home, make_folder, tmp_path):
    folder = make_folder("disk/mine")
    arguments = ["models", "--home", str(demo_home), "--folder", str(folder.parent), "--json"]

    done = subprocess.run([sys.executable, "-m", "engine", *arguments], capture_output=True, text=True, check=True)

    assert str(folder) in [entry["name"] for entry in json.loads(done.stdout)["models"]]


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["--model", "nothing"], "not_found", "There is no model called nothing"),
        (["--model", "demo", "--context", "999999999"], "invalid_request", "A context of 999,999,999 tokens"),
    ],
)
def test_a_refusal_is_told_to_programs_with_its_code(demo_home, arguments, code, sentence):
    command = [sys.executable, "-m", "engine", "plan", "--home", str(demo_home), *arguments]

    told = subprocess.run([*command, "--json"], capture_output=True, text=True)
    read = subprocess.run(command, capture_output=True, text=True)

    answer = json.loads(told.stdout)
    assert answer["code"] == code
    assert answer["message"].startswith(sentence)
    assert told.stderr.splitlines()[-1] == read.stderr.splitlines()[-1] == answer["message"]
    assert (told.returncode, read.returncode, read.stdout) == (4, 4, "")


def test_the_smallest_pool_of_a_plan_is_the_smallest_that_fits(demo_home):
    smallest = plan_model("demo", demo_home, limit=SMALL).plan.smallest_pool_bytes

    assert plan_model("demo", demo_home, budget_bytes=smallest, limit=SMALL).plan.fits
    assert not plan_model("demo", demo_home, budget_bytes=smallest - 1, limit=SMALL).plan.fits


def test_a_budget_that_is_no_size_is_wrong_usage(demo_home):
    arguments = ["plan", "--model", "demo", "--home", str(demo_home), "--budget", "lots"]

    done = subprocess.run([sys.executable, "-m", "engine", *arguments], capture_output=True, text=True)

    assert done.returncode == 2
    assert "lots is not a size" in done.stderr
