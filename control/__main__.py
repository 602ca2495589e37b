"""`python -m control`: the gateway's process. Its arguments, what it consists of, its start and its end.

Exit codes: 0 ended as asked, 1 failed, 2 bad settings or usage, 5 a port is taken or Splash already runs.
It decides nothing: it builds everything, passes it on, and waits for a signal, a quit, or the order to leave.
"""

import argparse
import asyncio
import logging
import os
import secrets
import shlex
import signal
import socket
import sys
import time
from importlib.metadata import version
from typing import Final, get_args

from control.command_errors import AlreadyRuns, CommandFailed
from control.config import Settings
from control.errors import ControlError
from control.home import Home, Manager
from control.identity import start_of
from control.last_act import end_the_rest
from control.loopback import LOOPBACK
from control.open_files import ADMIN_CLIENT_LIMIT, client_limit, raise_limit
from control.ports import bind, require_free
from engine.wire import ProcessRecord

logger = logging.getLogger(__name__)

NONCE_BYTES: Final = 32
# For a client that does not even read its end.
CLOSE_LIMIT_S: Final = 6


def main() -> int:
    arguments = _arguments()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    logging.getLogger("alembic").setLevel(logging.WARNING)
    # Of the start and end of its two servers we say ourselves what there is to say.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    try:
        settings = Settings.from_env(os.environ)
        home = Home(settings.home)
        home.create()
        with home.only_one("control", wait=False) as is_only_one:
            if not is_only_one:
                raise AlreadyRuns(home=str(home.root), holder=str(home.holder_of("control") or "another process"))
            return _serve(settings, home, arguments)
    except CommandFailed as failure:
        sys.stderr.write(f"{failure}\n")
        return failure.exit_code
    except ControlError as error:
        sys.stderr.write(f"{error}\n")
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m control", description="Serves the API and supervises the engine.")
    parser.add_argument("--manager", choices=get_args(Manager), default="foreground", help="who started this process")
    parser.add_argument("--engine-command", help="run this instead of `python -m engine`; for tests")
    parser.add_argument("--caffeinate-command", help="run this to keep the machine awake; for tests")
    return parser.parse_args()


def _serve(settings: Settings, home: Home, arguments: argparse.Namespace) -> int:
    home.renew_admin_secret()
    # The ports first: a person who started a second Splash is told at once, and nothing was touched.
    if settings.api_host != settings.host:
        # A BSD kernel gives a port at every address although another program has it at this one.
        require_free(settings.host, settings.api_port, key="SPLASH_API_PORT")
    api = bind(settings.api_host, settings.api_port, key="SPLASH_API_PORT")
    admin = bind(LOOPBACK, settings.admin_port, key="SPLASH_ADMIN_PORT")
    start = start_of(os.getpid())
    record = ProcessRecord(
        name="control",
        pid=os.getpid(),
        created_at_s=start.at_s,
        nonce=secrets.token_urlsafe(NONCE_BYTES),
        port=settings.admin_port,
        manager=arguments.manager,
        started_at_s=time.time(),
        version=version("splash-server"),
        ports={"api": settings.api_port, "admin": settings.admin_port},
        created_after_boot_s=start.after_boot_s,
    )
    command = shlex.split(arguments.engine_command) if arguments.engine_command else [sys.executable, "-m", "engine"]
    caffeinate = shlex.split(arguments.caffeinate_command) if arguments.caffeinate_command else None
    import uvloop

    home.write_record(record)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_live(settings, home, record, command, caffeinate, api, admin))
    finally:
        home.remove_record(record)


async def _live(
    settings: Settings,
    home: Home,
    record: ProcessRecord,
    command: list[str],
    caffeinate: list[str] | None,
    api: socket.socket,
    admin: socket.socket,
) -> int:
    from control.assembly import assemble
    from control.serving import Servers

    control = await assemble(settings, home, record, engine_command=command, caffeinate_command=caffeinate)
    told_to_end = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, told_to_end.set)
    await control.supervisor.adopt()
    watching = asyncio.create_task(control.watch())
    servers = Servers(close_limit_s=CLOSE_LIMIT_S)
    servers.start(control.public_app, api, connection_limit=client_limit(raise_limit()))
    servers.start(control.admin_app, admin, connection_limit=ADMIN_CLIENT_LIMIT)
    logger.info("control started pid=%d api=%d admin=%d", record.pid, settings.api_port, settings.admin_port)
    ordered = (told_to_end, control.supervisor.finished, control.departure.left)
    ends = {watching, *(asyncio.create_task(each.wait()) for each in ordered)}
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    exit_code = _exit_code(watching)
    if told_to_end.is_set() and exit_code == 0 and not control.supervisor.finished.is_set():
        logger.info("a signal ends Splash")
        exit_code = 0 if await control.departure.quit_by_signal() else 1
        await asyncio.to_thread(end_the_rest, home, record)
    logger.info("control ends quit=%s", control.supervisor.finished.is_set())
    servers.stop_listening()
    await control.departure.say_goodbye()
    await servers.closed()
    for task in ends:
        task.cancel()
    await asyncio.gather(*ends, return_exceptions=True)
    await control.close()
    return exit_code


def _exit_code(watching: "asyncio.Task[None]") -> int:
    """1, and the fault in the log, when control ends because nobody watches any more."""
    if not watching.done():
        return 0
    logger.error("watching ended by itself", exc_info=None if watching.cancelled() else watching.exception())
    return 1


if __name__ == "__main__":
    sys.exit(main())
