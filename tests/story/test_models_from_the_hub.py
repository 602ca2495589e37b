"""Loading a model that is not on this machine while another one serves: nothing stops for what can't be had.

With the real engine, and a hub of one repository on this machine.
"""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.story.stack import wait_until
from tests.story.test_independence import ask
from tests.unit.engine_model.hub import serving

pytestmark = pytest.mark.story

NAME = "org/tiny"
PATIENCE_S = 90


class SlowFiles(dict):
    """The files of the repository; the weights come when the test lets them."""

    def __init__(self) -> None:
        super().__init__()
        self.weights_come = threading.Event()

    def __getitem__(self, file):
        if file == "model.safetensors":
            assert self.weights_come.wait(PATIENCE_S)
        return super().__getitem__(file)


@pytest.fixture
def files():
    return SlowFiles()


@pytest.fixture
def hub_stack(real_stack, files, tmp_path):
    """The demo runs, and the hub has the same files as another model."""
    with serving(NAME, files) as hub:
        done = real_stack.splash(
            "up", "--json", "--no-open", HF_ENDPOINT=hub.url, HF_HOME=str(tmp_path / "hf"), HOME=str(tmp_path)
        )
        assert done.returncode == 0, done.stderr
        real_stack.key = json.loads(done.stdout)["key"]
        for file in (real_stack.home.root / "models" / "demo").iterdir():
            if not file.name.startswith(".") and "splash" not in file.name:
                files[file.name] = file.read_bytes()
        yield real_stack
        files.weights_come.set()


def test_a_model_that_the_hub_does_not_have_is_refused_and_the_running_one_serves_on(hub_stack):
    engine = hub_stack.record("engine")

    done = hub_stack.splash("load", "org/other")

    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "org/other is not on this machine" in done.stderr and "no public model of that name" in done.stderr
    assert hub_stack.record("engine") == engine
    assert hub_stack.overview().engine.error is None
    assert ask(hub_stack)["model"] == "splash-demo"


def test_the_running_model_serves_until_the_next_one_is_here(hub_stack, files):
    with ThreadPoolExecutor(1) as beside:
        loading = beside.submit(hub_stack.splash, "load", NAME)
        wait_until(lambda: hub_stack.overview().engine.wanted_model == NAME, "the download to begin", PATIENCE_S)
        meanwhile = (hub_stack.engine_state(), ask(hub_stack)["model"], loading.done())
        files.weights_come.set()
        done = loading.result()

    assert meanwhile == ("ready", "splash-demo", False)
    assert done.returncode == 0, done.stderr
    assert ask(hub_stack)["model"] == NAME


def test_a_download_that_is_called_off_leaves_the_running_model_and_no_process(hub_stack):
    with ThreadPoolExecutor(1) as beside:
        loading = beside.submit(hub_stack.splash, "load", NAME)
        wait_until(lambda: hub_stack.overview().engine.wanted_model == NAME, "the download to begin", PATIENCE_S)
        again = hub_stack.splash("load", "demo")
        done = loading.result()

    assert again.returncode == 0, again.stderr
    assert done.returncode in (0, 1)
    assert hub_stack.overview().engine.wanted_model == "demo"
    assert ask(hub_stack)["model"] == "splash-demo"
