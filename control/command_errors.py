"""How a command or a process of ours ends when it fails: one sentence for stderr, and an exit code.

No client and no page gets to see these; their errors are in `control.errors`.

CommandFailed           1
├── SettingsInvalid     2
├── UsageWrong          2
├── HomeUnusable        1
├── StartFailed         1
│   └── StartRefused    5
├── OrderRefused        1
├── BackupFailed        1
├── NotAnswering        1
├── NotRunning          3
├── PortTaken           5
├── PortUnusable        1
└── AlreadyRuns         5
"""

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


class OrderRefused(CommandFailed):
    """Control understood, and said no."""


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

    def __init__(self) -> None:
        super().__init__("Splash is not running; `splash up` starts it.")


class PortTaken(CommandFailed):
    exit_code = 5

    def __init__(self, *, port: int, key: str, holder: str) -> None:
        super().__init__(f"Port {port} is taken by {holder}; end that, or give Splash another port with {key}.")
        self.port = port


class PortUnusable(CommandFailed):
    """Nobody has it, and still it can't be had: a privileged port, or an address that this machine lacks."""

    def __init__(self, *, host: str, port: int, key: str, reason: str) -> None:
        super().__init__(f"Port {port} can't be used on {host}: {reason}; give Splash another port with {key}.")


class AlreadyRuns(CommandFailed):
    exit_code = 5

    def __init__(self, *, home: str, holder: str) -> None:
        super().__init__(f"Splash already runs for {home}: its control is {holder}.")
