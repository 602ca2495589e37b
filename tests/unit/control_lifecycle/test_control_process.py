"""How the control process ends, as far as it is decided in `__main__`."""

import asyncio
import os
import signal
import subprocess
import sys
import time

from control.__main__ import _exit_code
from tests.story.stack import free_ports


async def test_an_end_that_somebody_ordered_is_no_failure():
    watching = asyncio.create_task(asyncio.sleep(60))

    code = _exit_code(watching)
    watching.cancel()

    assert code == 0


async def test_when_nobody_watches_any_more_the_fault_is_logged_and_control_fails(caplog):
    async def breaks():
        raise ValueError("the reason")

    watching = asyncio.create_task(breaks())
    await asyncio.wait({watching})

    assert _exit_code(watching) == 1
    assert "watching ended by itself" in caplog.text and "the reason" in caplog.text


def test_its_log_says_its_start_and_end_in_our_words_alone_and_once(tmp_path):
    names = ("SPLASH_API_PORT", "SPLASH_ADMIN_PORT", "SPLASH_CONSOLE_PORT", "SPLASH_ENGINE_PORT")
    ports = dict(zip(names, map(str, free_ports(4)), strict=True))
    log = tmp_path / "log"
    with log.open("w") as written:
        process = subprocess.Popen(
            [sys.executable, "-m", "control"],
            env={**os.environ, "SPLASH_HOME": str(tmp_path / "home"), **ports},
            stderr=written,
        )
    try:
        deadline = time.monotonic() + 60
        while "control started" not in log.read_text():
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()
            time.sleep(0.05)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    finally:
        process.kill()
        process.wait()

    said = log.read_text()
    assert "uvicorn" not in said
    assert said.count("control started") == said.count("control ends") == 1
