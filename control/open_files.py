"""The number of files and connections that this process may hold open: raised at its start, and shared out.

It opens nothing. macOS starts a process with 256, of which a line of 256 clients leaves none for anything else.
"""

import resource
from typing import Final

# Enough for every client that there can be; a program that walks through all of them is not slowed down.
WANTED: Final = 65_536
# macOS refuses more, whatever it says the hard limit is. Source: OPEN_MAX in its sys/syslimits.h.
MACOS_LIMIT: Final = 10_240
# For the admin API, the engine's process and status, the database, logs, and clients that are told there is no room.
RESERVED: Final = 128
# Of the reserved ones: the console and some commands need a few of them.
ADMIN_CLIENT_LIMIT: Final = 64
# A client, and the engine's connection that works for it.
FILES_PER_CLIENT: Final = 2


def raise_limit() -> int:
    """Raise the soft limit as far as it goes; return what it is now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (WANTED, MACOS_LIMIT):
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        if soft == resource.RLIM_INFINITY or soft >= limit:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (OSError, ValueError):
            continue
        return limit
    return WANTED if soft == resource.RLIM_INFINITY else soft


def client_limit(open_files: int) -> int:
    """So many clients of the public API leave enough for everything else."""
    return max(1, (open_files - RESERVED) // FILES_PER_CLIENT)
