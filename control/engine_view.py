"""The newest /status of the engine with its age, and the view of the engine that the console and the CLI get.

It asks nobody, and decides nothing: `supervisor` does.
"""

from typing import Final

import msgspec

from control.lifecycle import Lifecycle
from control.load_orders import LoadOrders
from control.wire import CacheStatus, EngineView
from engine.wire import ProcessRecord, Status

# A step of the device never takes this long, and /status does not even wait for one.
SILENCE_LIMIT_S: Final = 30.0


class NewestStatus:
    """Times are monotonic seconds. Forgotten when the process ends: an old figure is worse than none."""

    def __init__(self) -> None:
        self.status: Status | None = None
        self._answered_at: float | None = None

    def answered(self, status: Status, *, now: float) -> None:
        self.status = status
        self._answered_at = now

    def forget(self) -> None:
        self.status = None
        self._answered_at = None

    def age_s(self, *, now: float) -> float | None:
        """None when it never answered."""
        return None if self._answered_at is None else now - self._answered_at


def engine_view(
    lifecycle: Lifecycle,
    record: ProcessRecord | None,
    newest: NewestStatus,
    orders: LoadOrders,
    *,
    wanted_model: str | None,
    since_s: float,
    now: float,
) -> EngineView:
    """`since_s` is Unix time. A process that lives and is silent is shown as an error, whatever the state is.

    While a model is downloaded beside a running one, `wanted_model` and `load` are about the download.
    """
    status, age_s = newest.status, newest.age_s(now=now)
    load = None if status is None else status.load
    return EngineView(
        state=lifecycle.state,
        pid=None if record is None else record.pid,
        port=None if record is None else record.port,
        model_name=None if lifecycle.wanted is None else lifecycle.wanted.model,
        wanted_model=wanted_model if orders.fetched is None else orders.fetched.model,
        since_s=since_s,
        restarts=lifecycle.restarts,
        error=_silence(record, age_s) or lifecycle.error or orders.error,
        load=load if orders.progress is None else orders.progress,
        model=None if status is None else status.model,
        layout=None if status is None else status.layout,
        self_tests=() if status is None else status.self_tests,
        memory_plan=None if status is None else status.memory_plan,
        memory_actual=None if status is None else status.memory_actual,
        cache=None if status is None else _without_misses(status.cache),
        promises=None if status is None else status.promises,
        governor=None if status is None else status.governor,
        status_age_s=age_s,
        holds=lifecycle.gate == "held",
        is_downloading=orders.fetched is not None,
        last_model=orders.last_model,
    )


def _without_misses(cache: CacheStatus | None) -> CacheStatus | None:
    """A hundred explanations are not for a page that asks every second."""
    return None if cache is None else msgspec.structs.replace(cache, misses=())


def _silence(record: ProcessRecord | None, age_s: float | None) -> str | None:
    if record is None or age_s is None or age_s < SILENCE_LIMIT_S:
        return None
    return f"The engine (pid {record.pid}) has not answered for {age_s:.0f} s, though it lives."
