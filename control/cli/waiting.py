"""What a command says while the requests that run come to their end.

It gives no order: that was done before.
"""

import time
from collections.abc import Callable
from typing import Final

from control.cli.admin_client import AdminClient
from control.cli.words import requests
from control.command_errors import CommandFailed
from control.identity import live_process
from control.wire import Overview
from engine.wire import ProcessRecord

LOOK_EVERY_S: Final = 0.25
# How often a person who waits is told that it still goes on.
REMIND_EVERY_S: Final = 30.0
# Control answers this from memory; one that does not for so long hangs.
ANSWER_LIMIT_S: Final = 10.0


def wait_for_requests(
    client: AdminClient,
    control: ProcessRecord,
    show: Callable[[str], None],
    *,
    goes_on: Callable[[Overview], bool] = lambda overview: True,
) -> None:
    """Until none runs any more, or nothing can be asked about them: control has ended, ends soon, or hangs.

    `goes_on`: whether control, by its overview, still waits for them.
    """
    shown_at, num_shown = time.monotonic(), None
    while live_process(control) is not None:
        try:
            overview = client.overview(timeout_s=ANSWER_LIMIT_S)
        except CommandFailed:
            return
        running = [slot for slot in overview.slots if slot is not None]
        if not goes_on(overview) or not running:
            return
        is_told = num_shown in (None, len(running)) and time.monotonic() - shown_at < REMIND_EVERY_S
        if not is_told:
            num_tokens = sum(slot.output_tokens for slot in running)
            show(f"Still waiting for {requests(len(running))}, with {num_tokens:,} tokens written so far.")
            shown_at = time.monotonic()
        num_shown = len(running)
        time.sleep(LOOK_EVERY_S)
