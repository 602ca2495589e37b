"""How a command or a process of ours ends when it fails: one sentence for stderr, and an exit code.

No client and no page gets to see these; their errors are in `control.errors`.

CommandFailed           1
├── SettingsInvalid     2
├── UsageWrong          2
├── HomeUnusable        1
├── StartFailed         1
│   └── StartRefused    5
├── ServiceStays        1
├── OrderRefused        1
│   └── ControlLeaves   1
├── BackupFailed        1
├── NotAnswering        1
├── NotRunning          3
│   └── ControlGone     3
├── NothingWritten      3
├── PortTaken           5
├── PortPassing         5
├── PortUnusable        1
└── AlreadyRuns         5
"""

import shlex
from pathlib import Path
from typing import ClassVar


class CommandFailed(Exception):
    """`str(error)` is what the person reads on stderr."""

    exit_code: ClassVar[int] = 1


class SettingsInvalid(CommandFailed):
    exit_code = 2


class UsageWrong(CommandFailed):
    """An argument can't be what it says."""

    exit_code = 2


class HomeUnusable(CommandFailed):
    """The folder cannot be made or written."""


class StartFailed(CommandFailed):
    """A process of ours did not come up."""


class StartRefused(StartFailed):
    """It ended with exit code 5: its port is taken, or it runs already. Its own sentence is passed on."""

    exit_code = 5


class ServiceStays(CommandFailed):
    """launchd still has a job of ours, though it was told to let it go."""

    def __init__(self, *, label: str, limit_s: float, reason: str) -> None:
        super().__init__(f"launchd still has {label} after {limit_s:.0f} s: {reason}. `splash quit` tries again.")


class OrderRefused(CommandFailed):
    """Control understood, and said no."""


class ControlLeaves(OrderRefused):
    """It ends with its last request, and whoever told it to is not there any more to start the next."""

    def __init__(self, *, waits_for: str) -> None:
        super().__init__(
            f"Control leaves: it waits for {waits_for} to finish, and nobody starts the next. `splash up` waits for "
            "that and does; `splash restart --force` does not wait."
        )


class BackupFailed(CommandFailed):
    """No copy was made; the sentence says why."""


class NotAnswering(CommandFailed):
    """Control lives, and nothing can be asked of it."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Control does not answer: {reason}. `splash quit --force` ends it, `splash up` starts it again."
        )


class NotRunning(CommandFailed):
    exit_code = 3

    def __init__(self, sentence: str = "Splash is not running; `splash up` starts it.") -> None:
        super().__init__(sentence)


class ControlGone(NotRunning):
    """The rest of Splash goes on without it."""

    def __init__(self, *, rest: str) -> None:
        """`rest`: who runs, with its verb."""
        super().__init__(f"Control is not running ({rest}); `splash up` starts it.")


class NothingWritten(CommandFailed):
    """A log has no line yet."""

    exit_code = 3

    def __init__(self, *, log: str) -> None:
        super().__init__(f"Nothing was written to the {log} log yet.")


class PortTaken(CommandFailed):
    exit_code = 5

    def __init__(self, *, port: int, key: str, holder: str, home: Path | None = None) -> None:
        """`home`: of the other Splash that has it; None: another program does."""
        whose = holder if home is None else f"another Splash, of the home {home}: {holder}"
        end = "end that" if home is None else f"end that with `SPLASH_HOME={shlex.quote(str(home))} splash quit`"
        super().__init__(f"Port {port} is taken by {whose}; {end}, or give this Splash another port with {key}.")
        self.port = port


class PortPassing(CommandFailed):
    """Nobody listens on it: a connection to somewhere else has it at this end."""

    exit_code = 5

    def __init__(self, *, port: int, key: str, user: str) -> None:
        super().__init__(
            f"Port {port} is in use by an outgoing connection of {user}, and will be free when that ends; try again "
            f"soon, or give this Splash another port with {key}."
        )


class PortUnusable(CommandFailed):
    """Nobody has it, and still it can't be had: a privileged port, or an address that this machine lacks."""

    def __init__(self, *, host: str, port: int, key: str, reason: str) -> None:
        super().__init__(f"Port {port} can't be used on {host}: {reason}; give Splash another port with {key}.")


class AlreadyRuns(CommandFailed):
    exit_code = 5

    def __init__(self, *, home: str, holder: str) -> None:
        super().__init__(f"Splash already runs for {home}: its control is {holder}.")
