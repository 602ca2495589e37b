import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from engine.errors import ModelNotFound, NotDownloaded
from engine.model.library import model_folders, model_name, resolve
from tests.unit.engine_model.hub import COMMIT, serving

# huggingface_hub reads its environment when it is imported, so each of these asks in a process of its own.
RESOLVE = """
import json, sys
from pathlib import Path
from engine.errors import ModelNotFound
from engine.model.library import resolve
progress = []
try:
    path = resolve(sys.argv[1], Path(sys.argv[2]), on_progress=lambda done, total: progress.append((done, total)))
    print(json.dumps({"path": str(path), "progress": progress}))
except ModelNotFound as error:
    print(json.dumps({"message": error.message}))
"""


def ask(name: str, home: Path, **environment: str):
    inherited = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
    done = subprocess.run(
        [sys.executable, "-c", RESOLVE, name, str(home)],
        env={
            **inherited,
            "HOME": str(home),
            "HF_HOME": str(home / "hf"),
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def snapshot(cache: Path, name: str) -> Path:
    repository = cache / f"models--{name.replace('/', '--')}"
    folder = repository / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(COMMIT)
    (folder / "config.json").write_text("{}")
    return folder


@pytest.fixture
def empty_machine(tmp_path, monkeypatch):
    """A machine without any model: another home folder, another hub cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path


@pytest.mark.parametrize("name", ["demo", "splash-demo"])
def test_the_demo_is_there_by_either_name(demo_home, name):
    folder = resolve(name, demo_home)

    assert folder == demo_home / "models" / "demo"
    assert model_name(folder) == "splash-demo"


def test_a_folder_is_itself(tmp_path):
    assert resolve(str(tmp_path), tmp_path) == tmp_path


def test_a_tilde_is_the_home_folder(empty_machine):
    (empty_machine / "my-model").mkdir()

    assert resolve("~/my-model", empty_machine) == empty_machine / "my-model"


def test_a_folder_that_is_not_there_is_said_to_be_absent(tmp_path):
    with pytest.raises(ModelNotFound, match="does not exist"):
        resolve(str(tmp_path / "absent"), tmp_path)


def test_a_file_is_not_a_model(tmp_path):
    (tmp_path / "model.gguf").touch()

    with pytest.raises(ModelNotFound, match="is a file; give the folder that it is in"):
        resolve(str(tmp_path / "model.gguf"), tmp_path)


@pytest.mark.parametrize("name", ["llama", "", "a/b/c", "org/", "-x/y", "org/na me", "http://127.0.0.1/x"])
def test_a_name_that_can_be_nothing_is_answered_with_what_can(empty_machine, name):
    with pytest.raises(ModelNotFound, match="give demo, a folder, or a hub id"):
        resolve(name, empty_machine)


def test_models_are_found_wherever_they_usually_are_and_by_the_name_shown(empty_machine):
    home, extra = empty_machine / "splash", empty_machine / "disk"
    in_home = home / "models" / "mine"
    in_lm_studio = empty_machine / ".lmstudio" / "models" / "publisher" / "theirs"
    in_extra = extra / "another"
    for folder in (in_home, in_lm_studio, in_extra):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
    (home / "models" / "empty").mkdir()
    in_cache = snapshot(empty_machine / "hub", "organisation/cached-4bit")

    names = {model_name(folder): folder for folder in model_folders(home, [extra])}

    assert names == {
        "mine": in_home,
        "organisation/cached-4bit": in_cache,
        "publisher/theirs": in_lm_studio,
        "another": in_extra,
        # It can't be used, and whoever lists it says why.
        "empty": home / "models" / "empty",
    }
    for name in ("mine", "organisation/cached-4bit", "publisher/theirs"):
        assert resolve(name, home) == names[name]


def test_without_leave_to_download_a_hub_id_is_only_looked_for(empty_machine):
    with pytest.raises(NotDownloaded, match="org/name is not on this machine; it is downloaded when it is loaded"):
        resolve("org/name", empty_machine, may_download=False)


def test_a_hub_id_is_downloaded_with_progress_and_then_found_without_the_hub(tmp_path):
    files = {
        "config.json": b"{}",
        "model.safetensors": bytes(300_000),
        "modeling.py": b"exit()",
        "a.gguf": b"x",
    }

    with serving("org/tiny", files) as hub:
        first = ask("org/tiny", tmp_path, HF_ENDPOINT=hub.url)
    second = ask("org/tiny", tmp_path, HF_HUB_OFFLINE="1")

    assert sorted(hub.downloaded) == ["config.json", "model.safetensors"]
    assert (Path(first["path"]) / "model.safetensors").stat().st_size == 300_000
    assert first["progress"][-1] == [300_002, 300_002]
    assert second == {"path": first["path"], "progress": []}
    assert model_name(Path(first["path"])) == "org/tiny"


def test_a_download_that_broke_off_is_no_model_and_goes_on_when_the_hub_is_back(tmp_path):
    files = {"config.json": b"{}", "model.safetensors": bytes(300_000)}
    with serving("org/tiny", files) as hub:
        whole = ask("org/tiny", tmp_path, HF_ENDPOINT=hub.url)
    (Path(whole["path"]) / "model.safetensors").unlink()

    offline = ask("org/tiny", tmp_path, HF_HUB_OFFLINE="1")
    with serving("org/tiny", files) as hub:
        again = ask("org/tiny", tmp_path, HF_ENDPOINT=hub.url)

    assert offline == {"message": "org/tiny is only partly on this machine, and HF_HUB_OFFLINE forbids to download it."}
    assert again["path"] == whole["path"]
    assert (Path(again["path"]) / "model.safetensors").is_file()


def test_an_unknown_repository_is_one_sentence(tmp_path):
    with serving("org/tiny", {}) as hub:
        answer = ask("org/other", tmp_path, HF_ENDPOINT=hub.url)

    assert answer == {"message": f"org/other is not on this machine, and {hub.url} has no public model of that name."}


def test_no_network_is_one_sentence(tmp_path):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))  # bound and not listening: nobody else gets the port, and nobody answers
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        answer = ask("org/tiny", tmp_path, HF_ENDPOINT=url)

    assert answer == {"message": f"org/tiny is not on this machine, and {url} cannot be reached."}


def test_an_offline_setting_is_respected_and_named(tmp_path):
    answer = ask("org/tiny", tmp_path, HF_HUB_OFFLINE="1")

    assert answer == {"message": "org/tiny is not on this machine, and HF_HUB_OFFLINE forbids to download it."}
