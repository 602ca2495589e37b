"""The real engine's start: what it refuses, with which exit code and sentence, and that nothing stays half-started."""

import json
import shutil
import signal
import subprocess

import httpx
import pytest

from engine.model.demo import build_demo
from tests.story.engines import REAL, Engine, wait_for

pytestmark = pytest.mark.story


@pytest.fixture(scope="module")
def demo_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "demo"
    folder.mkdir()
    build_demo(folder)
    return folder


def ended(engine):
    """The exit code and the last line of the log of an engine that ends by itself."""
    code = engine.process.wait(timeout=60)
    engine.http.close()
    return code, engine.log.read_text().strip().splitlines()[-1]


def test_an_unknown_model_is_refused_and_leaves_no_record(tmp_path):
    engine = Engine(REAL, tmp_path, model="no-such-model")

    code, said = ended(engine)

    assert code == 4
    assert "no-such-model" in said
    assert engine.is_gone()
    assert not engine.record_file.exists()


def test_a_folder_without_config_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    engine = Engine(REAL, tmp_path / "home", model=str(tmp_path / "empty"))

    code, said = ended(engine)

    assert code == 4
    assert "config.json" in said


def test_a_context_longer_than_the_models_own_is_refused(tmp_path, demo_folder):
    engine = Engine(REAL, tmp_path, model=str(demo_folder), context=10**7)

    code, said = ended(engine)

    assert code == 4
    assert "262,144" in said


def test_a_tokenizer_that_cannot_be_loaded_is_refused_like_the_model(tmp_path, demo_folder):
    broken = tmp_path / "broken"
    shutil.copytree(demo_folder, broken)
    (broken / "tokenizer.json").write_text(json.dumps({"version": "1.0", "model": {"type": "Nonsense", "vocab": {}}}))
    engine = Engine(REAL, tmp_path / "home", model=str(broken))

    code, said = ended(engine)

    assert code == 4
    assert "tokenizer" in said
    assert not engine.record_file.exists()


def test_an_engine_that_is_told_to_end_while_it_starts_ends_well(tmp_path, demo_folder):
    engine = Engine(REAL, tmp_path, model=str(demo_folder))

    def answers():
        try:
            return engine.http.get("/healthz").is_success
        except httpx.TransportError:
            return False

    wait_for(answers, timeout_s=30, what="an answer of the engine that starts")
    engine.process.send_signal(signal.SIGTERM)
    engine.http.close()

    assert engine.process.wait(timeout=15) == 0
    assert not engine.record_file.exists()


@pytest.mark.parametrize("arguments", [["--nonsense"], ["plan", "--home", "."], ["serve"]])
def test_wrong_usage_is_exit_code_2(tmp_path, arguments):
    assert subprocess.run([*REAL, *arguments], capture_output=True, cwd=tmp_path, timeout=30).returncode == 2


def test_the_plan_needs_no_mlx_and_a_refused_one_says_why(tmp_path, demo_folder):
    question = ["plan", "--home", str(tmp_path), "--json", "--model"]

    plan = subprocess.run([*REAL, *question, str(demo_folder)], capture_output=True, check=True, timeout=30)
    refused = subprocess.run([*REAL, *question, "nothing"], capture_output=True, text=True, timeout=30)
    too_long = subprocess.run(
        [*REAL, *question, str(demo_folder), "--context", "9999999"], capture_output=True, timeout=30
    )
    imports = subprocess.run(
        [REAL[0], "-X", "importtime", *REAL[1:], *question, str(demo_folder)],
        capture_output=True,
        text=True,
        timeout=30,
    )

    assert json.loads(plan.stdout)["plan"]["fits"]
    assert refused.returncode == 4
    assert len(refused.stderr.strip().splitlines()) == 1
    assert json.loads(too_long.stdout)["reason"] == "context_above_native"
    assert json.loads(too_long.stdout)["maximum_context_tokens"] == 262_144
    assert "mlx" not in imports.stderr
