"""Looks at a home on the disk: permissions, secrets, room. It reads, and makes nothing, not even the home.

What it finds is judged in `home_checks`.
"""

import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from control.command_errors import HomeUnusable
from control.doctor.facts import HomeFacts, PathFacts
from control.doctor.process_table import expanded
from control.home import Home
from engine.wire import ProcessRecord

PRIVATE_FOLDERS: Final = ("run", "secrets", "logs", "backups")
# A person writes it, and it holds no secret.
PUBLIC: Final = ("splash.toml",)
DATABASE_PARTS: Final = ("", "-wal", "-shm")
# The console's session key as it writes it: 32 bytes in hexadecimal.
CONSOLE_KEY_LENGTH: Final = 64


def home_facts(home: Home, engine: ProcessRecord | None, environment: Mapping[str, str]) -> HomeFacts:
    """`engine` is the record of an engine that is alive, if there is one."""
    root, models = home.root, models_folder(environment)
    unreadable: list[Path] = []
    paths = tuple(_private_paths(root, unreadable)) if root.is_dir() else ()
    launch = home.read_launch()
    return HomeFacts(
        root=root,
        is_there=root.is_dir(),
        is_writable=all(_is_writable(each) for each in (root, *(root / name for name in PRIVATE_FOLDERS))),
        user=os.getuid(),
        paths=paths,
        unreadable=tuple(unreadable),
        damaged=tuple(path for path in _damaged(home) if path not in unreadable),
        engine_secret_is_lost=engine is not None and (launch is None or launch.nonce != engine.nonce),
        free_bytes=free_bytes(root),
        database_bytes=sum(
            _size_bytes(home.database.with_name(f"{home.database.name}{end}")) for end in DATABASE_PARTS
        ),
        models_folder=models,
        models_free_bytes=free_bytes(models),
    )


def models_folder(environment: Mapping[str, str]) -> Path:
    """Where models of the hub are kept. Source: huggingface_hub 2.4, `constants.HF_HUB_CACHE`."""
    if named := environment.get("HF_HUB_CACHE") or environment.get("HUGGINGFACE_HUB_CACHE"):
        return expanded(named)
    if named := environment.get("HF_HOME"):
        return expanded(named) / "hub"
    return expanded(environment.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def free_bytes(path: Path) -> int | None:
    """On the disk of that path, or of the nearest folder above it that is there; None when the system does not say."""
    for each in (path, *path.parents):
        try:
            return shutil.disk_usage(each).free
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None


def _private_paths(root: Path, unreadable: list[Path]) -> Iterator[PathFacts]:
    """The home, its files, and its private folders with all that is in them; models are no secret."""
    yield from _looked_at((root,), unreadable)
    files = (each for each in _entries(root, unreadable) if each.is_file() and each.name not in PUBLIC)
    yield from _looked_at(files, unreadable)
    for name in PRIVATE_FOLDERS:
        folder = root / name
        if folder.is_dir():
            is_secret = name == "secrets"
            yield from _looked_at((folder,), unreadable, is_secret=is_secret)
            yield from _looked_at(_entries(folder, unreadable), unreadable, is_secret=is_secret)


def _looked_at(paths: Iterable[Path], unreadable: list[Path], *, is_secret: bool = False) -> Iterator[PathFacts]:
    for path in paths:
        try:
            about = path.lstat()
        except FileNotFoundError:
            continue  # it has just gone: a record, a file that was renamed
        except OSError:
            unreadable.append(path)
            continue
        if stat.S_ISLNK(about.st_mode):
            continue
        is_folder = stat.S_ISDIR(about.st_mode)
        if not os.access(path, os.R_OK | (os.X_OK if is_folder else 0)):
            unreadable.append(path)
        yield PathFacts(path, stat.S_IMODE(about.st_mode), about.st_uid, is_folder, is_secret)


def _entries(folder: Path, unreadable: list[Path]) -> tuple[Path, ...]:
    try:
        return tuple(sorted(folder.iterdir()))
    except OSError:
        # The folder itself is in the list already, by its own look.
        return ()


def _damaged(home: Home) -> Iterator[Path]:
    try:
        if home.admin_secret_file.exists():
            home.admin_secret()
    except (HomeUnusable, OSError):
        yield home.admin_secret_file
    console = home.root / "secrets" / "console"
    try:
        if console.exists() and len(console.read_bytes().strip()) < CONSOLE_KEY_LENGTH:
            yield console
    except OSError:
        yield console
    try:
        if home.launch_file.exists() and home.read_launch() is None:
            yield home.launch_file
    except OSError:
        yield home.launch_file


def _is_writable(folder: Path) -> bool:
    """True for one that is not there: whoever may write above it may make it."""
    return not folder.is_dir() or os.access(folder, os.W_OK | os.X_OK)


def _size_bytes(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError:
        return 0
