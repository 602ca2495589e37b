"""What control consists of, built once and connected: database, keys, line, engine, supervisor, relay and two apps.

It runs nothing; `__main__` does.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.types import ASGIApp

from control.admin_api import AdminApi
from control.admin_settings import CONCURRENCY_SETTING, SettingsApi
from control.aliases import Aliases, stored_aliases
from control.config import Settings
from control.engine_process import EngineProcess
from control.engine_questions import EngineQuestions
from control.errors import GatewayRestarts
from control.fifo import MAXIMUM_CONCURRENCY, Line
from control.gate import loopback_hosts
from control.heartbeats import Heartbeats
from control.home import Home
from control.keys import load_keys
from control.login_links import LoginLinks
from control.metrics.database import open_database, open_for_reading
from control.metrics.questions import Questions
from control.metrics.settings import Settings as LiveSettings
from control.metrics.settings import load_settings
from control.metrics.writer import Writer
from control.overview import OverviewSource, TodayTotals
from control.prometheus import Prometheus
from control.public_api import public_api
from control.quotas import Quotas
from control.reception import Reception
from control.record_keeper import RecordKeeper
from control.relay import Relay
from control.remembered import RememberedLoads
from control.supervisor import Supervisor
from control.wire import Health, RequestRow
from engine.wire import ProcessRecord

POLL_S: Final = 0.05


@dataclass(frozen=True, slots=True)
class Control:
    supervisor: Supervisor
    keeper: RecordKeeper
    line: Line
    reception: Reception
    writer: Writer
    questions: Questions
    public_app: ASGIApp
    admin_app: ASGIApp

    async def watch(self) -> None:
        """For as long as control lives: it ends only by a fault."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.supervisor.run())
            tasks.create_task(self.keeper.run())

    async def say_goodbye(self, *, grace_s: float, farewell_s: float) -> None:
        """Tell those that wait, let those that run go on for a moment, and then tell them, too."""
        self.supervisor.leave()
        self.reception.close(self.line.refusal or GatewayRestarts())
        await self._wait_for_line(grace_s)
        self.line.cut_running(GatewayRestarts())
        await self._wait_for_line(farewell_s)

    async def close(self) -> None:
        """Let the engine go on by itself, and put everything on disk."""
        await self.supervisor.release()
        await asyncio.to_thread(self.writer.close)
        await asyncio.to_thread(self.questions.close)

    async def _wait_for_line(self, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while (self.line.running or self.line.waiting) and time.monotonic() < deadline:  # noqa: ASYNC110  # no such event
            await asyncio.sleep(POLL_S)


async def assemble(settings: Settings, home: Home, record: ProcessRecord, *, engine_command: Sequence[str]) -> Control:
    """Raises DatabaseUnusable, HomeUnusable."""
    database = open_database(home.database)
    writer = Writer(database)
    live_settings = load_settings(database, writer)
    keys = load_keys(database, writer)
    questions = Questions(open_for_reading(home.database))
    line = Line(concurrency_of(live_settings))
    engine_questions = EngineQuestions(home, engine_command)
    engine_process = EngineProcess(home, port=settings.engine_port, command=engine_command)
    supervisor = Supervisor(
        engine_process,
        line,
        remembered=RememberedLoads(live_settings),
        questions=engine_questions,
    )
    prometheus = Prometheus(line=line, engine=supervisor.view, losses=lambda: writer.losses)

    def ended(row: RequestRow) -> None:
        writer.record(row)
        prometheus.observe(row)

    quotas = Quotas(await questions.usage_by_key())
    heartbeats = Heartbeats(live_settings)
    aliases = Aliases(stored_aliases(live_settings))
    reception = Reception()
    relay = Relay(
        line=line,
        source=supervisor,
        record=ended,
        first_number=await questions.last_number() + 1,
        quotas=quotas,
        heartbeat_of=heartbeats.mode_of,
    )
    supervisor.on_status = relay.sampled
    overviews = OverviewSource(
        supervisor=supervisor,
        relay=relay,
        line=line,
        totals=TodayTotals(questions.today),
        api_base=settings.api_base,
        version=record.version,
    )
    admin = AdminApi(
        supervisor=supervisor,
        relay=relay,
        keys=keys,
        quotas=quotas,
        links=LoginLinks(),
        questions=questions,
        rooms=(SettingsApi(settings=live_settings, line=line, aliases=aliases, heartbeats=heartbeats),),
        prometheus=prometheus,
        engine_questions=engine_questions,
        overviews=overviews,
        health=Health(name="control", pid=record.pid, nonce=record.nonce),
    )
    secret = home.made_admin_secret()
    return Control(
        supervisor=supervisor,
        keeper=RecordKeeper(home, secret=secret, records=lambda: (record, engine_process.record)),
        line=line,
        reception=reception,
        writer=writer,
        questions=questions,
        public_app=public_api(
            keys=keys,
            relay=relay,
            source=supervisor,
            hosts=loopback_hosts(settings.api_port),
            aliases=aliases,
            reception=reception,
        ),
        admin_app=admin.app(secret=secret, port=settings.admin_port),
    )


def concurrency_of(live_settings: LiveSettings) -> int:
    """As it was chosen; the default when what is there is impossible."""
    chosen = live_settings.get(CONCURRENCY_SETTING, int)
    return chosen if chosen is not None and 1 <= chosen <= MAXIMUM_CONCURRENCY else MAXIMUM_CONCURRENCY
