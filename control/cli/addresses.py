"""The addresses at which the API and the console are to listen: another program must not have their ports there.

It binds nothing; who of ours listens elsewhere is in `control.misplaced`.
"""

from collections.abc import Callable, Iterable

from control.command_errors import PortTaken
from control.config import Settings
from control.console_password import ConsolePassword
from control.doctor.collected_machine import Listener, listeners
from control.doctor.port_checks import collides
from control.home import Home


def require_addresses(home: Home, settings: Settings, listening: Callable[[], Iterable[Listener]] = listeners) -> None:
    """Nothing is ended for a start that can't succeed. Raises PortTaken: another has a port where ours will be."""
    ours = {record.pid for record in home.read_records()}
    console_host = settings.console_host(has_password=ConsolePassword(home).is_set)
    wanted = {
        settings.api_port: ("SPLASH_API_PORT", settings.api_host),
        settings.console_port: ("SPLASH_CONSOLE_PORT", console_host),
    }
    for each in listening():
        if each.port not in wanted or each.pid in ours:
            continue
        key, host = wanted[each.port]
        if collides(each.address, host):
            raise PortTaken(port=each.port, key=key, holder=f"pid {each.pid} ({each.command})")
