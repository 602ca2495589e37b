"""The three command-line clients: their packages, and how each is run once, alone, with telemetry off.

What they are told of Splash comes from `splash connect`, not from here.
"""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).resolve().parents[2] / ".clients"
INSTALL_TIMEOUT_S: Final = 900
QUIET: Final = ("--no-audit", "--no-fund", "--loglevel=error")


@dataclass(frozen=True, slots=True)
class CommandLine:
    """`arguments` come before what is asked, `go_on` makes it the next turn of the last session."""

    name: str
    package: str
    arguments: tuple[str, ...]
    go_on: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> Path:
        return FOLDER / "node_modules" / ".bin" / self.name

    def version(self, home: Path) -> str:
        done = subprocess.run([self.program, "--version"], env=self.alone(home), capture_output=True, text=True)
        return done.stdout.strip() or f"does not start: {done.stderr.strip()[-200:]}"

    def start(self, asked: str, home: Path, *, goes_on: bool = False) -> "subprocess.Popen[str]":
        """In a folder of its own below `home`; both outputs in one pipe, no input."""
        work = home / "work"
        work.mkdir(exist_ok=True)
        more = self.go_on if goes_on else ()
        return subprocess.Popen(
            [self.program, *self.arguments, *more, asked],
            env=self.alone(home),
            cwd=work,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def alone(self, home: Path) -> dict[str, str]:
        """Nothing of our environment but where programs are."""
        return {"HOME": str(home), "PATH": os.environ["PATH"], "TERM": "dumb", **self.environment}


CLAUDE: Final = CommandLine(
    name="claude",
    package="@anthropic-ai/claude-code",
    arguments=("--allowedTools=Bash", "-p"),
    go_on=("--continue",),
    environment={"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1"},
)
CODEX: Final = CommandLine(
    name="codex",
    package="@openai/codex",
    # Its sandbox needs rights that a container does not give.
    arguments=(
        "exec",
        "--skip-git-repo-check",
        "--sandbox=danger-full-access",
        "--config=analytics.enabled=false",
        "--config=check_for_update_on_startup=false",
    ),
)
OPENCODE: Final = CommandLine(
    name="opencode",
    package="opencode-ai",
    arguments=("run",),
    environment={"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
)
COMMAND_LINES: Final = {each.name: each for each in (CLAUDE, CODEX, OPENCODE)}


def install() -> None:
    """The newest of each, from npm, into FOLDER. Their programs are native: the version of node does not matter."""
    FOLDER.mkdir(exist_ok=True)
    # Without it npm would install beside the next package.json above.
    (FOLDER / "package.json").write_text('{"private": true}\n')
    packages = [f"{each.package}@latest" for each in COMMAND_LINES.values()]
    subprocess.run(
        ["npm", "install", *QUIET, "--prefix", str(FOLDER), *packages], check=True, timeout=INSTALL_TIMEOUT_S
    )
