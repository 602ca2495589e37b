"""The console's last act after a quit: launchd forgets this home's jobs. A process can't wait for its own bootout."""

import logging
import os
import subprocess
import sys

from webui.home import Home

logger = logging.getLogger(__name__)

REMOVAL = "control.services.removal"


def remove_services_afterwards(home: Home) -> None:
    """Start the program that waits for this process's end, and outlives it in a session of its own."""
    command = [sys.executable, "-m", REMOVAL, "--home", str(home.root), "--after", str(os.getpid())]
    try:
        subprocess.Popen(command, cwd=home.root, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as error:
        logger.warning("launchd's jobs are not removed reason=%s", error)
