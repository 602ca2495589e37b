"""`python -m webui`: the console's process, its arguments and exit codes.

Exit codes: 0 stopped as asked, 2 wrong usage, 5 the port is taken. It detaches nothing: that is for who starts it.
"""

import argparse
import logging
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, get_args

from webui.errors import PortTaken
from webui.home import Home
from webui.process import Manager, Place, listen, run

EXIT_PORT_TAKEN = 5
# macOS starts a process with 256 open files, which a few browsers use up, and refuses more than this.
OPEN_FILES: Final = 10_240


def main() -> int:
    arguments = _arguments()
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    # One line per question to control, twice a second, would drown everything else.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Of its start and end we say ourselves what there is to say.
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    _raise_open_files()
    try:
        listener = listen(arguments.host, arguments.port)
    except PortTaken as error:
        sys.stderr.write(f"The console cannot start: {error}.\n")
        return EXIT_PORT_TAKEN
    run(
        Place(
            home=Home(arguments.home.resolve()),
            host=arguments.host,
            port=arguments.port,
            admin_port=arguments.admin_port,
            manager=arguments.manager,
            is_lan_on=arguments.lan,
        ),
        listener,
    )
    return 0


def _raise_open_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(OPEN_FILES, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m webui", description="Serves the console of Splash.")
    parser.add_argument("--home", type=Path, required=True, help="SPLASH_HOME")
    parser.add_argument("--port", type=int, required=True, help="where the console serves; 0 takes a free port")
    parser.add_argument("--admin-port", type=int, required=True, help="control's admin port")
    parser.add_argument("--host", default="127.0.0.1", help="numeric address to listen at")
    parser.add_argument("--lan", action="store_true", help="answer other machines, too: to this one's name and address")
    parser.add_argument("--manager", choices=get_args(Manager), default="detached", help="who started this process")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
