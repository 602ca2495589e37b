"""Where MLX keeps the CPU kernels that it compiles with the C++ compiler, and loads again: a folder of this user alone.

It compiles nothing, and knows no kernel. All homes of a user share it: compiling takes up to half a minute.

MLX itself would take the temporary folder, which on Linux is everybody's: whoever puts a library there first, under a
name that can be foreseen, has it loaded by us.
"""

import os
import stat
from os import putenv
from pathlib import Path

import platformdirs

from engine.errors import Refused

_PRIVATE_MODE = 0o700
_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


def usual_folder() -> Path:
    return Path(platformdirs.user_cache_dir("Splash", appauthor=False))


def keep_kernels_private(folder: Path) -> None:
    """Call it before MLX compiles anything. Raises Refused when others could have put something into the folder."""
    try:
        folder.mkdir(mode=_PRIVATE_MODE, parents=True, exist_ok=True)
        # Of a link, the link itself, too: whoever owns it can lead it elsewhere.
        owners = {folder.lstat().st_uid, folder.stat().st_uid}
        mode = stat.S_IMODE(folder.stat().st_mode)
        if owners != {os.geteuid()} or mode & _OTHERS_MAY_WRITE:
            raise Refused(f"what is in {folder} can't be trusted: another user may write there; remove that folder")
        if mode != _PRIVATE_MODE:
            folder.chmod(_PRIVATE_MODE)
    except OSError as error:
        raise Refused(f"the folder of MLX's kernels, {folder}, can't be used: {error.strerror}") from error
    # For C++, which is MLX: temporary files of Python stay where they were.
    putenv("TMPDIR", str(folder))
