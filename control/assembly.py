"""What control consists of, built once and connected: database, keys, line, engine, supervisor, relay and two apps.

It runs nothing; `__main__` does.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

from starlette.types import ASGIApp

from control.admin.api import AdminApi
from control.admin.connections import ConnectionsApi
from control.admin.cost import CostApi
from control.admin.database import DatabaseApi
from control.admin.installation import InstallationApi
from control.admin.keys import KeysApi
from control.admin.logs import LogsApi
from control.admin.machine import MachineApi
from control.admin.password import PasswordApi
from control.admin.performance import PerformanceApi
from control.admin.plan import PlanApi
from control.admin.playground import PlaygroundApi
from control.admin.power import PowerApi
from control.admin.requests import RequestsApi
from control.admin.settings import CONCURRENCY_SETTING, SettingsApi
from control.aliases import Aliases, stored_aliases
from control.config import Settings
from control.console_password import ConsolePassword
from control.departure import Departure
from control.engine_process import EngineProcess
from control.engine_questions import EngineQuestions
from control.fifo import MAXIMUM_CONCURRENCY, Line
from control.gate import loopback_hosts
from control.heartbeats import Heartbeats
from control.home import Home
from control.keys import load_keys
from control.lan import LanHosts
from control.login_links import LoginLinks
from control.machine.sampler import MachineSampler
from control.metrics.cost_questions import CostQuestions
from control.metrics.database import open_for_reading
from control.metrics.performance_questions import PerformanceQuestions
from control.metrics.place import open_or_begin_anew
from control.metrics.pruning import Pruning
from control.metrics.questions import Questions
from control.metrics.request_questions import RequestQuestions
from control.metrics.settings import Settings as LiveSettings
from control.metrics.settings import load_settings
from control.metrics.throughput import Throughput
from control.metrics.writer import Writer
from control.overview import OverviewSource, TodayTotals
from control.password_attempts import PasswordAttempts
from control.plans import Plans
from control.power.awake import LINGER_S, AwakePolicy
from control.power.awakening import Awakening
from control.power.caffeinate import installed_caffeinate
from control.power.keeper import AwakeKeeper
from control.power.sleep_watch import SleepWatch
from control.prices import Prices, stored_prices
from control.prometheus import Prometheus
from control.public_api import public_api
from control.quotas import Quotas
from control.reception import Reception
from control.record_keeper import RecordKeeper
from control.relay import Relay
from control.remembered import RememberedLoads
from control.supervisor import Supervisor
from control.wedge import USUAL_LIMITS, WedgeLimits
from control.wire import Health, RequestRow
from engine.wire import ProcessRecord, Status

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Control:
    supervisor: Supervisor
    keeper: RecordKeeper
    pruning: Pruning
    sleep_watch: SleepWatch
    awake: AwakeKeeper
    departure: Departure
    writer: Writer
    questions: Questions
    throughput: Throughput
    public_app: ASGIApp
    admin_app: ASGIApp

    async def watch(self) -> None:
        """For as long as control lives: it ends only by a fault."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.supervisor.run())
            tasks.create_task(self.keeper.run())
            tasks.create_task(self.pruning.run())
            tasks.create_task(self.sleep_watch.run())
            tasks.create_task(self.awake.run())

    async def close(self) -> None:
        """Let the engine go on by itself, and put everything on disk."""
        await self.awake.close()
        await self.supervisor.release()
        self.throughput.close()
        await asyncio.to_thread(self.writer.close)
        await asyncio.to_thread(self.questions.close)


async def assemble(
    settings: Settings,
    home: Home,
    record: ProcessRecord,
    *,
    engine_command: Sequence[str],
    caffeinate_command: Sequence[str] | None = None,
    linger_s: float = LINGER_S,
    wedge_limits: WedgeLimits = USUAL_LIMITS,
) -> Control:
    """`caffeinate_command` None: the one of this machine, if it is a Mac. Raises DatabaseUnusable, HomeUnusable."""
    database = open_or_begin_anew(home.database)
    writer = Writer(database.engine, database.set_aside, from_copy=database.from_copy)
    live_settings = load_settings(database.engine, writer)
    keys = load_keys(database.engine, writer)
    questions = Questions(open_for_reading(home.database), begin_anew=writer.begin_anew)
    line = Line(concurrency_of(live_settings))
    engine_questions = EngineQuestions(home, engine_command)
    engine_process = EngineProcess(home, port=settings.engine_port, command=engine_command)
    supervisor = Supervisor(
        engine_process,
        line,
        remembered=RememberedLoads(live_settings),
        questions=engine_questions,
        wedge_limits=wedge_limits,
    )
    awakening = Awakening(supervisor, engine_process)
    sleep_watch = SleepWatch(woke=awakening.woke, recheck=awakening.recheck)
    supervisor.look_at_clocks = sleep_watch.look
    awake = AwakeKeeper(
        settings=live_settings,
        command=installed_caffeinate() if caffeinate_command is None else tuple(caffeinate_command),
        line=line,
        has_engine=lambda: engine_process.is_running,
        sleep_watch=sleep_watch,
        policy=AwakePolicy(linger_s=linger_s),
    )
    prometheus = Prometheus(line=line, engine=supervisor.view, losses=lambda: writer.losses, power=awake.view)

    def ended(row: RequestRow) -> None:
        writer.record(row)
        prometheus.observe(row)

    quotas = Quotas(await questions.usage_by_day())
    heartbeats = Heartbeats(live_settings)
    aliases = Aliases(stored_aliases(live_settings))
    prices = Prices(stored_prices(live_settings))
    costs = CostQuestions(questions, prices)
    reception = Reception()
    departure = Departure(supervisor, line, reception)
    relay = Relay(
        line=line,
        source=supervisor,
        record=ended,
        first_number=await questions.last_number() + 1,
        quotas=quotas,
        heartbeat_of=heartbeats.mode_of,
    )
    throughput = Throughput(writer.record)

    def sampled(status: Status) -> None:
        relay.sampled(status)
        throughput.observe(status, wall_s=time.time(), monotonic_s=time.monotonic())

    supervisor.on_status = sampled
    overviews = OverviewSource(
        supervisor=supervisor,
        relay=relay,
        line=line,
        totals=TodayTotals(costs.today),
        database=lambda: writer.health,
        api_base=settings.api_base,
        version=record.version,
        power=awake.view,
    )
    admin = AdminApi(
        supervisor=supervisor,
        departure=departure,
        links=LoginLinks(),
        rooms=(
            SettingsApi(settings=live_settings, line=line, aliases=aliases, heartbeats=heartbeats),
            RequestsApi(requests=RequestQuestions(questions, prices), relay=relay),
            KeysApi(keys=keys, quotas=quotas, questions=questions),
            ConnectionsApi(supervisor=supervisor, api_base=settings.api_base),
            LogsApi(home=home),
            DatabaseApi(home=home),
            InstallationApi(settings=settings, home=home, questions=questions, version=record.version),
            PerformanceApi(
                questions=PerformanceQuestions(questions, discarded=lambda: throughput.discarded), supervisor=supervisor
            ),
            CostApi(settings=live_settings, prices=prices, questions=costs),
            PlanApi(plans=Plans(engine_questions.plan), supervisor=supervisor),
            PlaygroundApi(relay=relay, source=supervisor, reception=reception),
            MachineApi(sampler=MachineSampler(home.read_records)),
            PowerApi(keeper=awake),
            PasswordApi(password=ConsolePassword(home), attempts=PasswordAttempts()),
        ),
        prometheus=prometheus,
        engine_questions=engine_questions,
        overviews=overviews,
        health=Health(name="control", pid=record.pid, nonce=record.nonce),
    )
    secret = home.made_admin_secret()
    return Control(
        supervisor=supervisor,
        keeper=RecordKeeper(home, secret=secret, records=lambda: (record, engine_process.record)),
        pruning=Pruning(writer),
        sleep_watch=sleep_watch,
        awake=awake,
        departure=departure,
        writer=writer,
        questions=questions,
        throughput=throughput,
        public_app=public_api(
            keys=keys,
            relay=relay,
            source=supervisor,
            hosts=loopback_hosts(settings.api_port),
            lan=LanHosts(settings.api_port) if settings.is_lan_on else None,
            aliases=aliases,
            reception=reception,
        ),
        admin_app=admin.app(secret=secret, port=settings.admin_port),
    )


def concurrency_of(live_settings: LiveSettings) -> int:
    """As it was chosen; the default when it never was, and, with a warning, when what is there is impossible."""
    chosen = live_settings.get(CONCURRENCY_SETTING, int)
    if chosen is None or 1 <= chosen <= MAXIMUM_CONCURRENCY:
        return chosen or MAXIMUM_CONCURRENCY
    logger.warning("setting ignored name=%s reason=not 1 to %d", CONCURRENCY_SETTING, MAXIMUM_CONCURRENCY)
    return MAXIMUM_CONCURRENCY
