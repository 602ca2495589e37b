"""What was loaded last, and with which settings each model was: kept in the settings table for the next `up`.

It loads nothing, and does not know whether a model still exists.
"""

import logging
from typing import Annotated, Any, Final, Literal, Protocol, TypeVar

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from control.lifecycle import Wanted
from control.load_settings import LEAST_GAP_MS, MOST_GAP_MS, MOST_SHARE
from control.metrics.database import cause_of

logger = logging.getLogger(__name__)

LAST_MODEL: Final = "last_model"
LOADS: Final = "loads"
DEMO: Final = "demo"

Kind = TypeVar("Kind")
Positive = Annotated[int, msgspec.Meta(ge=1)]


class _Load(msgspec.Struct, omit_defaults=True):
    """What one model was loaded with. None: as if it had never been set."""

    context: Positive | None = None
    budget_bytes: Positive | None = None
    kv_bits: Literal[8, 4] | None = None
    max_gap_ms: Annotated[float, msgspec.Meta(ge=LEAST_GAP_MS, le=MOST_GAP_MS)] | None = None
    decode_share: Annotated[float, msgspec.Meta(ge=0, le=MOST_SHARE)] | None = None


class LiveSettings(Protocol):
    """The part of `control.metrics.settings.Settings` that is needed here."""

    def get(self, name: str, kind: type[Kind]) -> Kind | None: ...

    async def put(self, name: str, value: Any) -> None: ...


class RememberedLoads:
    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings

    @property
    def last_model(self) -> str:
        """The model that was ready last; the demo before the first."""
        last = self._settings.get(LAST_MODEL, str)
        if last == "":
            logger.warning("setting ignored name=%s reason=empty", LAST_MODEL)
        return last or DEMO

    def last(self, model: str) -> Wanted:
        """The model with the settings that it had last; with the defaults when it was never loaded."""
        had = self._loads().get(model, _Load())
        return Wanted(model, **msgspec.to_builtins(had))

    async def remember(self, wanted: Wanted) -> None:
        """Known at once. What the disk does not take is logged, and forgotten at the next start."""
        loads = self._loads() | {wanted.model: _as_load(wanted)}
        for name, value in ((LOADS, msgspec.to_builtins(loads)), (LAST_MODEL, wanted.model)):
            try:
                await self._settings.put(name, value)
            except SQLAlchemyError as error:
                logger.warning("load not remembered setting=%s model=%r reason=%s", name, wanted.model, cause_of(error))

    def _loads(self) -> dict[str, _Load]:
        return self._settings.get(LOADS, dict[str, _Load]) or {}


def _as_load(wanted: Wanted) -> _Load:
    """Only what is not the default, so that a better default reaches the models that never asked for another."""
    plain = Wanted(wanted.model)
    names = (name for name in _Load.__struct_fields__ if getattr(wanted, name) != getattr(plain, name))
    return _Load(**{name: getattr(wanted, name) for name in names})
