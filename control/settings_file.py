"""`splash.toml` of a home, changed in one setting: everything else of the file stays as it is, comments, too.

It knows no setting: what one may be is `control.config`'s business.
"""

import os
import tomllib
from pathlib import Path

from control.command_errors import SettingsInvalid
from control.config import FILE_NAME
from control.home import Home, write_whole


def keep_setting(home: Home, key: str, value: bool) -> None:
    """The file appears whole, 0600, and is left alone when it says so already. Raises SettingsInvalid, HomeUnusable."""
    # Whoever keeps such files elsewhere has put a link here.
    file = Path(os.path.realpath(home.root / FILE_NAME))
    text = _read(file)
    before = tomllib.loads(text)
    if before.get(key) is value:
        return
    changed = _changed(text, key, value)
    if _loaded(changed) != before | {key: value}:
        line = f"{key} = {str(value).lower()}"
        raise SettingsInvalid(f"{file} is laid out in a way that can't be changed by a command; write `{line}` there.")
    write_whole(file, changed.encode())


def _read(file: Path) -> str:
    """Raises SettingsInvalid; a missing file is an empty one."""
    try:
        # As bytes: reading text would change its line ends.
        return file.read_bytes().decode()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsInvalid(f"{file} can't be read: {error}.") from error


def _changed(text: str, key: str, value: bool) -> str:
    # A tenth of a second, for one command alone.
    import tomlkit

    document = tomlkit.parse(text)
    document[key] = value
    return tomlkit.dumps(document)


def _loaded(text: str) -> dict[str, object] | None:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return None
