"""The file that is open as splash.db, and whether it is still the one at its path.

A file that was renamed or deleted stays open, and takes what nobody will ever read. It opens and makes nothing.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

# SQLite finds them by name, whichever file has the name now.
LOG: Final = "-wal"
COMPANIONS: Final = (LOG, "-shm")


@dataclass(frozen=True, slots=True)
class FileId:
    device: int
    inode: int


@dataclass(frozen=True, slots=True)
class OpenedFile:
    """Made by `opened_at`. `companions`: those that SQLite made beside it, by their paths."""

    path: Path
    id: FileId | None
    companions: dict[Path, FileId]

    def is_in_place(self) -> bool:
        """False: another file is at the path, or none. True, too, when nobody can say."""
        try:
            return file_id(self.path) == self.id
        except OSError:
            return True

    def remove_companions(self) -> None:
        """Once nobody writes to it: left behind, they would be taken for those of the file that comes. Raises OSError.

        Those that came with another file stay.
        """
        for path, made in self.companions.items():
            if file_id(path) == made:
                path.unlink(missing_ok=True)


def opened_at(path: Path) -> OpenedFile:
    """Right after it was opened: what is at the path is taken for it. Raises OSError."""
    found = {each: file_id(each) for each in companions_of(path)}
    return OpenedFile(path, file_id(path), {each: made for each, made in found.items() if made is not None})


def companions_of(path: Path) -> tuple[Path, ...]:
    return tuple(Path(f"{path}{suffix}") for suffix in COMPANIONS)


def has_log(path: Path) -> bool:
    """Whether something is beside the file that may not be in it yet. Raises OSError."""
    log = Path(f"{path}{LOG}")
    return log.exists() and log.stat().st_size > 0


def file_id(path: Path) -> FileId | None:
    """None when there is none. Raises OSError when that can't be said."""
    try:
        found = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    return FileId(found.st_dev, found.st_ino)
