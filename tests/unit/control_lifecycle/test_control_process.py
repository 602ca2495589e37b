"""How the control process ends, as far as it is decided in `__main__`."""

import asyncio

from control.__main__ import _exit_code


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
