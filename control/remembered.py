"""What was loaded last, and with which context and budget each model was: kept in the settings table for the next `up`.

It loads nothing, and does not know whether a model still exists.
"""

from typing import Any, Final, Protocol

from control.lifecycle import Wanted

LAST_MODEL: Final = "last_model"
LOADS: Final = "loads"
DEMO: Final = "demo"


class LiveSettings(Protocol):
    """The part of `control.metrics.settings.Settings` that is needed here."""

    def get(self, name: str) -> Any: ...

    async def put(self, name: str, value: Any) -> None: ...


class RememberedLoads:
    def __init__(self, settings: LiveSettings) -> None:
        self._settings = settings

    @property
    def last_model(self) -> str:
        """The model that was ready last; the demo before the first."""
        return self._settings.get(LAST_MODEL) or DEMO

    def complete(self, model: str, context: int | None, budget_bytes: int | None) -> Wanted:
        """Fill in what was left out with what that model had last."""
        had = (self._settings.get(LOADS) or {}).get(model, {})
        return Wanted(
            model=model,
            context=context if context is not None else had.get("context"),
            budget_bytes=budget_bytes if budget_bytes is not None else had.get("budget_bytes"),
        )

    async def remember(self, wanted: Wanted) -> None:
        loads = dict(self._settings.get(LOADS) or {})
        loads[wanted.model] = {"context": wanted.context, "budget_bytes": wanted.budget_bytes}
        await self._settings.put(LOADS, loads)
        await self._settings.put(LAST_MODEL, wanted.model)
