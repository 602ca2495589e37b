"""The settings of one Splash: ports, host and home, from defaults, then `splash.toml`, then the environment.

It holds nothing that a person changes while Splash runs: that is in the database. `__main__` and the CLI read it.
"""

import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import platformdirs

from control.command_errors import SettingsInvalid
from control.loopback import EVERY_ADDRESS

PREFIX: Final = "SPLASH_"
HOME_KEY: Final = "SPLASH_HOME"
HOST_KEY: Final = "SPLASH_HOST"
LAN_KEY: Final = "SPLASH_LAN"
FILE_NAME: Final = "splash.toml"
PORT_FIELDS: Final = {
    "SPLASH_API_PORT": "api_port",
    "SPLASH_ADMIN_PORT": "admin_port",
    "SPLASH_CONSOLE_PORT": "console_port",
    "SPLASH_ENGINE_PORT": "engine_port",
}
KNOWN_KEYS: Final = (HOME_KEY, HOST_KEY, LAN_KEY, *PORT_FIELDS)
LARGEST_PORT: Final = 65535
PORT_DIGITS: Final = re.compile("[0-9]{1,9}")
SHOWN_LENGTH: Final = 80
LOOPBACK_HOSTS: Final = tuple(EVERY_ADDRESS)
SWITCH_WORDS: Final = {"on": True, "true": True, "1": True, "off": False, "false": False, "0": False}


@dataclass(frozen=True, slots=True)
class Settings:
    """`host` is where this machine finds the API and the console; the admin API and the engine are on 127.0.0.1 always.

    `is_lan_on`: other machines may use the API, and the console when it has a password.
    """

    home: Path
    host: str = "127.0.0.1"
    api_port: int = 8888
    admin_port: int = 18084
    console_port: int = 18082
    engine_port: int = 18081
    is_lan_on: bool = False

    @property
    def api_base(self) -> str:
        """Of this machine, in LAN mode, too."""
        return f"http://{bracketed(self.host)}:{self.api_port}/v1"

    @property
    def api_host(self) -> str:
        """Where the API listens."""
        return EVERY_ADDRESS[self.host] if self.is_lan_on else self.host

    def console_host(self, *, has_password: bool) -> str:
        """Where the console listens: without a password only this machine may see it."""
        return EVERY_ADDRESS[self.host] if self.is_lan_on and has_password else self.host

    @classmethod
    def from_env(cls, environment: Mapping[str, str]) -> "Settings":
        """Read `splash.toml` of the home that the environment names, then the environment. Raises SettingsInvalid."""
        home = _home(environment)
        file = home / FILE_NAME
        fields: dict[str, Any] = {}
        for key, value in _read_toml(file).items():
            if key == HOME_KEY:
                raise SettingsInvalid(
                    f"{file}: SPLASH_HOME says where this file is, so it can only be set in the environment."
                )
            fields |= _field(key, value, source=str(file))
        for key, text in environment.items():
            if key.startswith(PREFIX) and key != HOME_KEY:
                fields |= _field(key, text, source="environment")
        settings = cls(home=home, **fields)
        _require_different_ports(settings)
        return settings


def bracketed(host: str) -> str:
    """The address as it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def default_home() -> Path:
    """Where Splash keeps everything unless SPLASH_HOME says otherwise."""
    return Path(platformdirs.user_data_dir("Splash", appauthor=False))


def _home(environment: Mapping[str, str]) -> Path:
    text = environment.get(HOME_KEY)
    if text is None:
        return default_home()
    if not text.strip():
        raise SettingsInvalid("environment: SPLASH_HOME is empty; name a folder or leave it out.")
    try:
        home = Path(text).expanduser().resolve()
        if _is_something_else(home):
            raise SettingsInvalid(f"environment: SPLASH_HOME={home} is not a folder.")
    except OSError as error:
        raise SettingsInvalid(
            f"environment: SPLASH_HOME={_shown(text)} can't be a folder: {error.strerror}."
        ) from error
    except (RuntimeError, ValueError) as error:
        raise SettingsInvalid(
            f"environment: SPLASH_HOME={_shown(text)} can't be a folder: {str(error).rstrip('.')}."
        ) from error
    return home


def _is_something_else(home: Path) -> bool:
    """Raises OSError when there can be nothing at such a path: `Path.exists` answers that differently by version."""
    try:
        return not stat.S_ISDIR(home.stat().st_mode)
    except FileNotFoundError:
        return False


def _read_toml(file: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (ValueError, RecursionError) as error:
        raise SettingsInvalid(f"{file} is not valid TOML: {error}.") from error
    except OSError as error:
        raise SettingsInvalid(f"{file} can't be read: {error.strerror}.") from error


def _field(key: str, value: object, *, source: str) -> dict[str, Any]:
    """One setting as {field: checked value}. Raises SettingsInvalid that names the key and where it stands."""
    if key in PORT_FIELDS:
        return {PORT_FIELDS[key]: _port(key, value, source)}
    if key == HOST_KEY:
        return {"host": _host(value, source)}
    if key == LAN_KEY:
        return {"is_lan_on": switch(key, value, source)}
    raise SettingsInvalid(f"{source}: {key} is not a setting of Splash; known are {', '.join(KNOWN_KEYS)}.")


def _port(key: str, value: object, source: str) -> int:
    number = int(value) if isinstance(value, str) and PORT_DIGITS.fullmatch(value.strip()) else value
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= LARGEST_PORT:
        raise SettingsInvalid(
            f"{source}: {key}={_shown(value)} is not a port; it must be a number from 1 to {LARGEST_PORT}."
        )
    return number


def switch(key: str, value: object, source: str) -> bool:
    """Raises SettingsInvalid."""
    chosen = SWITCH_WORDS.get(value.strip().lower()) if isinstance(value, str) else value
    if not isinstance(chosen, bool):
        raise SettingsInvalid(f"{source}: {key}={_shown(value)} is neither on nor off.")
    return chosen


def _host(value: object, source: str) -> str:
    if value not in LOOPBACK_HOSTS:
        raise SettingsInvalid(
            f"{source}: {HOST_KEY}={_shown(value)} is neither {' nor '.join(LOOPBACK_HOSTS)}; "
            f"{LAN_KEY} is what lets other machines in."
        )
    return str(value)


def _shown(value: object) -> str:
    """The value on one line, and not much of it."""
    try:
        text = " ".join(str(value).split())
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= SHOWN_LENGTH else f"{text[:SHOWN_LENGTH]}…"


def _require_different_ports(settings: Settings) -> None:
    taken: dict[int, str] = {}
    for key, field in PORT_FIELDS.items():
        port: int = getattr(settings, field)
        if port in taken:
            raise SettingsInvalid(f"{taken[port]} and {key} are both {port}; each needs a port of its own.")
        taken[port] = key
