"""Checks of what lies on the disk: the home, its secrets and their permissions, and the room that is left.

Pure: facts in, findings out.
"""

import shlex
from collections.abc import Iterator
from typing import Final

from control.doctor.facts import Facts, HomeFacts
from control.doctor.finding import Finding

FOR_OTHERS: Final = 0o077
# Logs turn over (three processes, 10 MB each, the old one beside the new), and a launch needs room for its files.
LEAST_FREE_BYTES: Final = 256 * 2**20
# The weights of a model of 30 billion parameters in 4 bits.
MODEL_BYTES: Final = 20 * 2**30
GIB: Final = 2**30
MIB: Final = 2**20


def home_findings(facts: Facts) -> Iterator[Finding]:
    home = facts.home
    yield from _room_for_models(home)
    if not home.is_there:
        return
    yield from _unusable(home)
    yield from _permissions(home)
    yield from _damaged(home)
    yield from _room(home)


def needed_bytes(home: HomeFacts) -> int:
    """A backup, and the first start of a new version, write the database a second time."""
    return LEAST_FREE_BYTES + home.database_bytes


def _unusable(home: HomeFacts) -> Iterator[Finding]:
    foreign = [each.path for each in home.paths if each.owner != home.user]
    if foreign:
        beside = "" if len(foreign) == 1 else f" and {len(foreign) - 1:,} more"
        yield Finding(
            "foreign_owner",
            "wrong",
            f"{foreign[0]}{beside} in the home of Splash is another user's.",
            "Splash was once started as that user (by sudo, perhaps), and can't write there now.",
            f'`sudo chown -R "$(id -un)" {shlex.quote(str(home.root))}`',
        )
    for path in home.unreadable:
        yield Finding(
            "unreadable",
            "wrong",
            f"{path} can't be read.",
            "Splash needs it to start, and doctor could not look into it.",
            f"`ls -ld {shlex.quote(str(path))}` shows whose it is and who may read it.",
        )
    if not home.is_writable:
        yield Finding(
            "read_only_home",
            "wrong",
            f"The home of Splash, {home.root}, can't be written.",
            "No process can start: each leaves a record there, and control its database.",
            f"`chmod u+rwx {shlex.quote(str(home.root))}`, or a home on a disk that can be written (SPLASH_HOME).",
        )


def _permissions(home: HomeFacts) -> Iterator[Finding]:
    for each in home.paths:
        if not each.mode & FOR_OTHERS:
            continue
        mode = "700" if each.is_folder else "600"
        is_wrong = each.is_secret or each.path == home.root
        yield Finding(
            "open_permissions",
            "wrong" if is_wrong else "warning",
            f"{each.path} has the permissions {each.mode:o} instead of {mode}.",
            "Other users of this machine may read what only Splash may: with a secret they could order everything."
            if is_wrong
            else "Other users of this machine could read it, if the folder above did not keep them out.",
            f"`chmod {mode} {shlex.quote(str(each.path))}`",
        )


def _damaged(home: HomeFacts) -> Iterator[Finding]:
    for path in home.damaged:
        yield Finding(
            "damaged_secret",
            "wrong",
            f"{path} is not what Splash wrote.",
            "It was cut, emptied or written by hand; commands and processes that need it are refused.",
            "`splash quit --force`, then `splash up`, which makes a new one.",
        )
    if home.engine_secret_is_lost:
        yield Finding(
            "lost_secret",
            "wrong",
            "The secret of the engine that runs is lost.",
            "It can be asked nothing, only ended.",
            "`splash load MODEL` ends it and starts another.",
        )


def _room(home: HomeFacts) -> Iterator[Finding]:
    needed = needed_bytes(home)
    if home.free_bytes is not None and home.free_bytes < needed:
        yield Finding(
            "low_disk",
            "wrong",
            f"The disk of {home.root} has {home.free_bytes / MIB:,.0f} MiB free; Splash wants {needed / MIB:,.0f} MiB.",
            "Logs, rows of requests and a backup of the database would find no room, and a model would not start.",
            "Make room on that disk.",
        )


def _room_for_models(home: HomeFacts) -> Iterator[Finding]:
    if home.models_free_bytes is not None and home.models_free_bytes < MODEL_BYTES:
        yield Finding(
            "low_disk_for_models",
            "warning",
            f"The disk of {home.models_folder} has {home.models_free_bytes / GIB:,.1f} GiB free.",
            "Models of the hub are kept there; one of 30 billion parameters in 4 bits is 17 GiB.",
            "Make room, or set HF_HOME to a folder on a larger disk.",
        )
