"""The overview: what the console's first page shows once a second, put together from those who know it.

It measures nothing and keeps nothing but today's totals, for a moment.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from control.fifo import Line
from control.metrics.database import cause_of
from control.relay import Relay
from control.supervisor import Supervisor
from control.wire import DatabaseHealth, Overview, Power, Today

logger = logging.getLogger(__name__)

# Many pages ask once a second each; the database is asked this often.
TOTALS_LAST_S: Final = 2.0


class TodayTotals:
    """Asks again when the last answer is old, one question at a time; meanwhile the last answer stands."""

    def __init__(self, ask: Callable[[], Awaitable[Today]], *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._now = monotonic
        self._totals = Today()
        self._asked_at: float | None = None

    async def totals(self) -> Today:
        if self._asked_at is None or self._now() - self._asked_at >= TOTALS_LAST_S:
            self._asked_at = self._now()
            try:
                self._totals = await self._ask()
            except (SQLAlchemyError, TimeoutError) as error:
                logger.warning("today's totals not answered reason=%s", cause_of(error))
        return self._totals


class OverviewSource:
    def __init__(
        self,
        *,
        supervisor: Supervisor,
        relay: Relay,
        line: Line,
        totals: TodayTotals,
        database: Callable[[], DatabaseHealth],
        api_base: str,
        version: str,
        power: Callable[[], Power] = Power,
    ) -> None:
        self._supervisor = supervisor
        self._relay = relay
        self._line = line
        self._totals = totals
        self._database = database
        self._api_base = api_base
        self._version = version
        self._power = power

    async def overview(self) -> Overview:
        today = await self._totals.totals()
        # From here on nothing waits, so that the parts are of one moment.
        return Overview(
            sampled_at_s=time.time(),
            engine=self._supervisor.view(),
            concurrency=self._line.concurrency,
            slots=self._relay.slots(),
            waiting=self._relay.waiting(),
            decode_tokens_per_second=self._relay.decode_tokens_per_second(),
            decoding=self._relay.num_decoding(),
            today=today,
            database=self._database(),
            power=self._power(),
            quitting=self._supervisor.is_quitting,
            leaving=self._supervisor.is_leaving and not self._supervisor.is_quitting,
            api_base=self._api_base,
            version=self._version,
        )
