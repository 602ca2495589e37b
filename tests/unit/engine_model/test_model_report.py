import json

import msgspec
import psutil
import pytest

from control.wire import ModelList
from engine.errors import ModelNotFound
from engine.memory import GIB
from engine.report import list_models, plan_model
from engine.wire import ProcessRecord


@pytest.fixture(autouse=True)
def no_other_models(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def test_a_new_home_lists_the_demo(tmp_path):
    report = list_models(tmp_path / "splash", limit_bytes=4 * GIB)

    assert [(entry.name, entry.is_demo, entry.fits) for entry in report.models] == [("splash-demo", True, True)]
    assert "splash-demo" in report.as_text()
    assert "random weights" in report.as_text()


def test_control_reads_the_json_as_its_own_list(demo_home):
    report = list_models(demo_home, limit_bytes=4 * GIB)

    read = msgspec.json.decode(report.as_json(), type=ModelList)

    assert list(msgspec.to_builtins(read)["models"]) == json.loads(report.as_json())["models"]


def test_a_model_elsewhere_is_listed_under_the_path_that_load_takes(demo_home, make_folder):
    folder = make_folder("mine")

    report = list_models(demo_home, [folder.parent], limit_bytes=4 * GIB)

    assert report.models[1].name == str(folder)


def test_what_cannot_be_served_is_listed_apart_with_its_reason(demo_home, make_folder):
    folder = make_folder("broken", tokenizer=None)

    report = list_models(demo_home, [folder.parent], limit_bytes=4 * GIB)

    assert [entry.name for entry in report.models] == ["splash-demo"]
    assert [entry.path for entry in report.refused] == [str(folder)]
    assert "has no tokenizer" in report.as_text()


def test_what_does_not_fit_is_listed_and_marked(demo_home):
    report = list_models(demo_home, limit_bytes=0)

    assert not report.models[0].fits
    assert "does not fit" in report.as_text()


def test_a_plan_is_told_to_programs_and_to_people(demo_home):
    report = plan_model("demo", demo_home, context=4096, limit_bytes=4 * GIB)

    assert json.loads(report.as_json())["plan"]["maximum_context_tokens"] == 4096
    assert json.loads(report.as_json())["model"]["is_demo"] is True
    assert report.as_text().startswith("splash-demo fits, with ")
    assert "4,096 of 262,144 tokens" in report.as_text()


def test_planning_a_hub_id_that_is_not_here_downloads_nothing_and_says_so(demo_home):
    report = plan_model("org/name", demo_home)

    assert report.plan is None
    assert report.as_text() == "org/name is not on this machine; it is downloaded when it is loaded"


def test_planning_a_name_that_is_nothing_is_an_error(demo_home):
    with pytest.raises(ModelNotFound, match="there is no model called nothing"):
        plan_model("nothing", demo_home)


@pytest.mark.parametrize(("seconds_off", "counts"), [(0.0, True), (60.0, False)])
def test_what_a_running_engine_holds_counts_as_available_for_the_next(tmp_path, monkeypatch, seconds_off, counts):
    ourselves = psutil.Process()
    monkeypatch.setattr("engine.report.device_limit_bytes", lambda: 4 * GIB)
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

    assert (report.plan.limit_bytes > 4 * GIB) == counts
