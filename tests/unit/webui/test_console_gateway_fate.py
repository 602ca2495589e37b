"""What the console says of a gateway that does not answer: whether it hangs, was killed, or ended in order."""

import os

import psutil
import pytest

from control.wire import ProcessRecord


@pytest.mark.parametrize(
    ("pid", "said", "hint"),
    [
        (os.getpid(), "gateway not answering", "is there and does not answer"),
        (2**22 + 1, "gateway crashed or was killed", "the command splash up starts the gateway again"),
        (None, "gateway not answering", "has ended in order"),
    ],
    ids=["hangs", "killed", "ended"],
)
async def test_a_silent_gateway_that_was_killed_is_told_from_one_that_hangs_and_one_that_ended_in_order(
    console, pid, said, hint
):
    if pid is None:
        console.forget_control()
    else:
        console.home.write_record(control_record(pid))
    console.control.is_silent = True
    console.watch.forget()

    shown = (await console.browser.get("/state")).text

    assert f">{said}<" in shown and hint in shown


def control_record(pid: int) -> ProcessRecord:
    return ProcessRecord(
        name="control",
        pid=pid,
        created_at_s=psutil.Process(os.getpid()).create_time(),
        nonce="n",
        port=1,
        manager="detached",
        started_at_s=1.0,
        version="0",
    )
