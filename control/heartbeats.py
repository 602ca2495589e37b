"""How the streams of each dialect are kept alive: a setting that a person changes while Splash runs.

It writes no heartbeat, and does not know what a mode does: each dialect's encoder does.
"""

import logging
from collections.abc import Mapping
from typing import Final

from control.admin.errors import OrderInvalid
from control.dialects.exchange import HEARTBEAT_MODES, HeartbeatMode, default_heartbeat
from control.metrics.settings import Settings
from control.wire import HeartbeatSettings

logger = logging.getLogger(__name__)

HEARTBEATS_SETTING: Final = "heartbeats"


class Heartbeats:
    """Reads what was stored once, at start; a stored mode that a dialect does not have (any more) is its default."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._modes = {dialect: default_heartbeat(dialect) for dialect in HEARTBEAT_MODES}
        for dialect, name in (settings.get(HEARTBEATS_SETTING, dict[str, str]) or {}).items():
            mode = _mode(dialect, name)
            if mode is None:
                logger.warning("heartbeat ignored dialect=%r mode=%r", dialect, name)
            else:
                self._modes[dialect] = mode

    def mode_of(self, dialect: str) -> HeartbeatMode:
        """For the next stream: one that has begun goes on as it began."""
        return self._modes[dialect]

    def view(self) -> HeartbeatSettings:
        return HeartbeatSettings(modes=dict(self._modes), choices=dict(HEARTBEAT_MODES))

    async def change(self, modes: Mapping[str, str]) -> None:
        """The dialects named, on disk before they are in force. Raises OrderInvalid, and changes nothing then."""
        changed = {dialect: _required_mode(dialect, name) for dialect, name in modes.items()}
        await self._settings.change(HEARTBEATS_SETTING, lambda: {**self._modes, **changed}, in_force=self._modes.update)


def _mode(dialect: str, name: str) -> HeartbeatMode | None:
    return next((mode for mode in HEARTBEAT_MODES.get(dialect, ()) if mode == name), None)


def _required_mode(dialect: str, name: str) -> HeartbeatMode:
    if dialect not in HEARTBEAT_MODES:
        raise OrderInvalid(f"modes: there is no dialect {dialect!r}; there are {', '.join(HEARTBEAT_MODES)}.")
    mode = _mode(dialect, name)
    if mode is None:
        raise OrderInvalid(f"modes.{dialect}: {name!r} is not one of {', '.join(HEARTBEAT_MODES[dialect])}.")
    return mode
