"""What only macOS knows: Rosetta, the GPU's wired limit, quarantine; asked of its own programs, each with a timeout.

Never run on a Mac. Elsewhere each answers as if there were nothing to tell, and no program is started.
"""

import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

SYSCTL: Final = "/usr/sbin/sysctl"
XATTR: Final = "/usr/bin/xattr"
QUARANTINE: Final = "com.apple.quarantine"
TIMEOUT_S: Final = 5.0
"""Either answers within milliseconds."""


def is_translated(*, platform: str = sys.platform, program: str = SYSCTL) -> bool | None:
    """Whether this Python is one for Intel, run by Rosetta. None off macOS, and on a Mac that has no Rosetta."""
    told = _sysctl("sysctl.proc_translated", platform, program)
    return None if told is None else told == 1


def wired_limit_mib(*, platform: str = sys.platform, program: str = SYSCTL) -> int | None:
    """`iogpu.wired_limit_mb`; 0 is the system's own choice. None where there is no such limit."""
    return _sysctl("iogpu.wired_limit_mb", platform, program)


def quarantined(paths: Iterable[Path], *, platform: str = sys.platform, program: str = XATTR) -> tuple[Path, ...]:
    """Those that Gatekeeper would refuse."""
    if platform != "darwin":
        return ()
    return tuple(path for path in paths if _answer((program, "-p", QUARANTINE, str(path))) is not None)


def _sysctl(name: str, platform: str, program: str) -> int | None:
    if platform != "darwin":
        return None
    told = _answer((program, "-n", name))
    try:
        return None if told is None else int(told)
    except ValueError:
        return None


def _answer(command: Sequence[str]) -> str | None:
    """None when it fails, is not there, or says nothing in time."""
    try:
        return subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True, timeout=TIMEOUT_S
        ).stdout
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
