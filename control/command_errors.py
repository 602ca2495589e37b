"""How a command or a process of ours ends when it fails: one sentence for stderr, and an exit code.

No client and no page gets to see these; their errors are in `control.errors`.

CommandFailed           1
├── SettingsInvalid     2
├── HomeUnusable        1
├── StartFailed         1
├── OrderRefused        1
├── NotRunning          3
├── PortTaken           5
└── AlreadyRuns         5
"""

from typing import ClassVar


class CommandFailed(Exception):
    """`str(error)` is what the person reads on stderr."""

    exit_code: ClassVar[int] = 1


class SettingsInvalid(CommandFailed):
    exit_code = 2


class HomeUnusable(CommandFailed):
    """The folder cannot be made or written."""


class StartFailed(CommandFailed):
    """A process of ours did not come up."""


class OrderRefused(CommandFailed):
    """Control understood, and said no."""


class NotRunning(CommandFailed):
    exit_code = 3

    def __init__(self) -> None:
        super().__init__("Splash is not running; `splash up` starts it.")


class PortTaken(CommandFailed):
    exit_code = 5

    def __init__(self, *, port: int, key: str, holder: str) -> None:
        super().__init__(f"Port {port} is taken by {holder}; end that, or give Splash another port with {key}.")
        self.port = port


class AlreadyRuns(CommandFailed):
    exit_code = 5

    def __init__(self, *, home: str, pid: int | None) -> None:
        who = "another process" if pid is None else f"pid {pid}"
        super().__init__(f"Splash already runs for {home}: its control is {who}.")
