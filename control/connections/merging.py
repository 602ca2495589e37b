"""Reads a client's config file, and replaces it by a merged one: whole or not at all, the file before kept beside it.

It knows no client.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from control.command_errors import CommandFailed
from control.connections.connection import ConfigInvalid

# What holds a key is its owner's alone.
PRIVATE_FILE: Final = 0o600
PRIVATE_FOLDER: Final = 0o700


class ConfigUnusable(CommandFailed):
    """A client's config file can't be read, understood or written; it is as it was."""


@dataclass(frozen=True, slots=True)
class Written:
    """`backup` None: there was no file before, or it had everything already (`is_changed` False)."""

    path: Path
    is_changed: bool
    backup: Path | None = None


def json_object(text: str) -> dict[str, Any]:
    """An empty text is an empty object. Raises ConfigInvalid."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigInvalid("is not valid JSON") from error
    if not isinstance(found, dict):
        raise ConfigInvalid("does not hold a JSON object")
    return found


def json_text(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def read_config(path: Path) -> str:
    """Empty when there is no file. Raises ConfigUnusable."""
    try:
        return path.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as error:
        raise ConfigUnusable(f"{path} is not text in UTF-8; nothing was changed.") from error
    except OSError as error:
        raise ConfigUnusable(f"{path} can't be read ({error.strerror}); nothing was changed.") from error


def write_config(path: Path, text: str, *, before: str, wall: Callable[[], float] = time.time) -> Written:
    """Replace the file whose text was `before`. Raises ConfigUnusable, and leaves the file as it was."""
    # A link, as people who keep their dotfiles elsewhere have, stays one.
    target = path.resolve()
    try:
        target.parent.mkdir(parents=True, exist_ok=True, mode=PRIVATE_FOLDER)
        if text == before and target.exists():
            target.chmod(PRIVATE_FILE)
            return Written(path, is_changed=False)
        backup = _backup(target, wall()) if target.exists() else None
        _replace(target, text)
    except OSError as error:
        raise ConfigUnusable(f"{path} can't be written ({error.strerror}); it is as it was.") from error
    return Written(path, is_changed=True, backup=backup)


def _backup(target: Path, now_s: float) -> Path:
    """A copy beside the file, under a name that nobody has yet: it holds what the file held, keys too."""
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(now_s))
    number = 1
    while True:
        ending = stamp if number == 1 else f"{stamp}-{number}"
        backup = target.with_name(f"{target.name}.before-splash-{ending}")
        try:
            handle = os.open(backup, os.O_WRONLY | os.O_CREAT | os.O_EXCL, PRIVATE_FILE)
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(handle, "wb") as file:
            file.write(target.read_bytes())
        return backup


def _replace(target: Path, text: str) -> None:
    """Written beside it, then renamed: a reader sees the old file or the new one. `mkstemp` makes it 0600."""
    handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
