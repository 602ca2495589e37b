"""Another user puts a library where MLX looks for its compiled kernels: it looks in a folder of this user alone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine import kernel_cache
from engine.errors import Refused
from engine.kernel_cache import keep_kernels_private
from tests.story.conftest import real_stack as real_stack

# Compiles one small kernel, the way that each engine does.
PROGRAM = """
import sys, tempfile
from pathlib import Path
from engine.kernel_cache import keep_kernels_private
keep_kernels_private(Path(sys.argv[1]))
import mlx.core as mx
mx.set_default_device(mx.cpu)
mx.eval(mx.compile(lambda a, b: mx.exp(a * b) + a)(mx.ones(3), mx.ones(3)))
print(tempfile.gettempdir())
"""
ANOTHER_USER = 12_345


@pytest.fixture(autouse=True)
def told(monkeypatch):
    """What C++ is told in this process: nothing, it has its folder."""
    told = {}
    monkeypatch.setattr(kernel_cache, "putenv", told.__setitem__)
    return told


def test_kernels_are_compiled_into_the_private_folder_and_none_are_looked_for_in_everybodys(tmp_path):
    everybodys, own = tmp_path / "everybodys", tmp_path / "deep" / "own"
    everybodys.mkdir(mode=0o777)

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, own],
        env=os.environ | {"TMPDIR": str(everybodys)},
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert (done.returncode, done.stdout.strip()) == (0, str(everybodys)), done.stderr
    assert own.stat().st_mode & 0o777 == 0o700
    if sys.platform == "linux":
        assert list(own.rglob("*.so"))
    assert list(everybodys.rglob("*.so")) == []


def test_a_folder_that_is_there_is_made_private_and_what_it_holds_stays(tmp_path, told):
    tmp_path.chmod(0o755)
    (tmp_path / "kernel").touch()

    keep_kernels_private(tmp_path)

    assert (tmp_path.stat().st_mode & 0o777, told) == (0o700, {"TMPDIR": str(tmp_path)})
    assert (tmp_path / "kernel").exists()


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o722, 0o1777])
def test_a_folder_in_which_others_could_write_is_not_used(tmp_path, told, mode):
    tmp_path.chmod(mode)

    with pytest.raises(Refused, match="can't be trusted"):
        keep_kernels_private(tmp_path)

    assert told == {}


def test_a_folder_of_another_user_is_not_used_nor_a_link_of_theirs_to_one_of_ours(tmp_path, told, monkeypatch):
    with monkeypatch.context() as patch, pytest.raises(Refused, match="can't be trusted"):
        patch.setattr(kernel_cache.os, "geteuid", lambda: ANOTHER_USER)
        keep_kernels_private(tmp_path)
    if os.getuid() == 0:
        (tmp_path / "own").mkdir(mode=0o700)
        link = tmp_path / "link"
        link.symlink_to(tmp_path / "own")
        os.chown(link, ANOTHER_USER, -1, follow_symlinks=False)
        with pytest.raises(Refused, match="can't be trusted"):
            keep_kernels_private(link)

    assert told == {}


def test_a_folder_that_cannot_be_made_is_a_sentence(tmp_path):
    (tmp_path / "file").touch()

    with pytest.raises(Refused, match="can't be used: "):
        keep_kernels_private(tmp_path / "file" / "kernels")


def test_an_engine_that_runs_uses_it(real_stack):
    """MLX maps the kernels that it has loaded."""
    real_stack.up()
    with real_stack.api() as client:
        client.post("/chat/completions", json={"messages": [{"role": "user", "content": "hi"}], "max_tokens": 2})

    if sys.platform == "linux":
        maps = Path("/proc", str(real_stack.record("engine").pid), "maps").read_text().splitlines()
        loaded = {line.split()[-1] for line in maps if "/mlx/" in line and "/cpu/" in line}
        assert loaded
        assert {each for each in loaded if not each.startswith(str(kernel_cache.usual_folder()))} == set()
