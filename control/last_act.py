"""What control does at the very end of a quit that nobody watches: the console is ended, and launchd's jobs removed.

Whoever quits by the page or the command line does both himself.
"""

import logging
import os
import signal
import subprocess
import sys

from control.home import Home
from control.identity import send_signal, verify
from engine.wire import ProcessRecord

logger = logging.getLogger(__name__)


def end_the_rest(home: Home, own: ProcessRecord) -> None:
    """The engine is gone; the console follows. Blocks for as long as it takes to see that it is ours."""
    console = home.read_record("webui")
    if console is not None and verify(console).is_ours:
        send_signal(console, signal.SIGTERM)
    if own.manager == "launchd":
        _remove_services_afterwards(home)


def _remove_services_afterwards(home: Home) -> None:
    """A process can't wait for its own bootout: another one outlives it for that."""
    command = [sys.executable, "-m", "control.services.removal", "--home", str(home.root), "--after", str(os.getpid())]
    try:
        subprocess.Popen(command, cwd=home.root, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        logger.warning("launchd's jobs are not removed reason=%s", error)
