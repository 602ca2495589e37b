"""The disk of the home fills, or can't be written any more, and is mended: serving goes on, what is lost is counted.

On a disk of its own, which only root can mount. Root may write everything but what is mounted read-only.
"""

import os
import subprocess
from contextlib import contextmanager, suppress

import pytest

from control.home import PROCESS_NAMES
from tests.story.fault_run import Asking, Page
from tests.story.stack import Stack, fake_engine, is_free, wait_until

pytestmark = [pytest.mark.story, pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk")]

DISK = "12m"


@contextmanager
def mounted(folder, *words):
    done = subprocess.run(["mount", *words, str(folder)], capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"this machine mounts no disk: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def read_only(folder):
    """For whoever opens a file from now; who has one open goes on writing to it."""
    with mounted(folder, "--bind", str(folder)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(folder)], check=True)
        yield


@pytest.fixture
def small(tmp_path, slow_script):
    """A stack whose home is a disk of twelve megabytes."""
    folder = tmp_path / "home"
    folder.mkdir()
    with mounted(folder, "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs"):
        stack = Stack(folder, engine_command=fake_engine(slow_script))
        yield stack
        stack.clean_up()


def fill(folder):
    """Until nothing more fits; the file that takes all room."""
    file = folder / "filler"
    with suppress(OSError), file.open("wb", buffering=0) as stream:
        while True:
            stream.write(bytes(4096))
    return file


def answered(stack, content="hello") -> str:
    request = Asking(stack, content, max_tokens=4)
    wait_until(lambda: request.end, "the request's end")
    return request.end


def test_on_a_full_disk_everybody_is_served_the_loss_is_counted_and_room_ends_it(small):
    page = Page(small.up()["login"])
    assert answered(small) == "done"
    before = [small.record(name) for name in PROCESS_NAMES]

    filler = fill(small.home.root)
    outcomes = [answered(small, f"turn {number}") for number in range(3)]
    database = wait_until(
        lambda: (health := small.overview().database).problem and health, "the trouble with the database to be said"
    )
    shown, doctor = page.state(), small.splash("doctor", "--json")
    filler.unlink()
    wait_until(
        lambda: not (h := small.overview().database).waiting_rows and not h.problem, "the rows to be written", 60
    )

    assert outcomes == ["done"] * 3
    assert database.waiting_rows + database.lost_rows >= 1
    assert (shown, "low_disk" in doctor.stdout) == ("ready", True)
    assert [small.record(name) for name in PROCESS_NAMES] == before
    assert small.overview().database.lost_rows == 0
    assert answered(small) == "done"
    assert small.quit().returncode == 0


def test_on_a_full_disk_a_quit_ends_everything(small):
    small.up()
    fill(small.home.root)

    done = small.quit()

    assert done.returncode == 0, done.stderr
    assert not any(small.is_alive(name) for name in PROCESS_NAMES)
    assert all(is_free(port) for port in small.ports.values())


def test_a_home_that_can_not_be_written_any_more_goes_on_serving_and_quits(small):
    page = Page(small.up()["login"])
    with read_only(small.home.root):
        outcome, shown = answered(small), page.state()
        doctor = small.splash("doctor", "--json")
        restarted = small.splash("restart", "engine")
        still = answered(small)
        done = small.quit("--force")

    assert (outcome, shown, still) == ("done", "ready", "done")
    assert "read_only_home" in doctor.stdout
    assert restarted.returncode == 1 and "Read-only file system" in restarted.stderr
    assert done.returncode == 0, done.stderr
    assert all(is_free(port) for port in small.ports.values())


def test_a_start_in_a_home_that_can_not_be_written_is_one_sentence_and_nothing_is_left(small):
    with read_only(small.home.root):
        done = small.splash("up", "--no-open", "--engine-command", small.engine_command)

    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1 and "Read-only file system" in done.stderr
    assert all(is_free(port) for port in small.ports.values())
    assert list(small.home.root.iterdir()) == []
