"""What was loaded last, and with which context and budget each model was: kept in the settings table for the next `up`.

It loads nothing, and does not know whether a model still exists.
"""

import logging
from typing import Annotated, Any, Final, Protocol, TypeVar

import msgspec
from sqlalchemy.exc import SQLAlchemyError

from control.lifecycle import Wanted

logger = logging.getLogger(__name__)

LAST_MODEL: Final = "last_model"
LOADS: Final = "loads"
DEMO: Final = "demo"

Kind = TypeVar("Kind")
Positive = Annotated[int, msgspec.Meta(ge=1)]


class _Load(msgspec.Struct):
    """What one model was loaded with."""

    context: Positive | None = None
    budget_bytes: Positive | None = None


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
        return self._settings.get(LAST_MODEL, str) or DEMO

    def complete(self, model: str, context: int | None, budget_bytes: int | None) -> Wanted:
        """Fill in what was left out with what that model had last."""
        had = self._loads().get(model, _Load())
        return Wanted(
            model=model,
            context=context if context is not None else had.context,
            budget_bytes=budget_bytes if budget_bytes is not None else had.budget_bytes,
        )

    async def remember(self, wanted: Wanted) -> None:
        """Known at once. What the disk does not take is logged, and forgotten at the next start."""
        loads = self._loads() | {wanted.model: _Load(wanted.context, wanted.budget_bytes)}
        for name, value in ((LOADS, msgspec.to_builtins(loads)), (LAST_MODEL, wanted.model)):
            try:
                await self._settings.put(name, value)
            except SQLAlchemyError as error:
                logger.warning("load not remembered setting=%s model=%s reason=%s", name, wanted.model, error)

    def _loads(self) -> dict[str, _Load]:
        return self._settings.get(LOADS, dict[str, _Load]) or {}
