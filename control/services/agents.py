"""What launchd is told about a process of ours: labels and property lists, as pure data.

What is the same on every machine stands in `launchd/*.plist`. It writes no file and starts nothing.
"""

import hashlib
import plistlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from control.command_errors import StartFailed

AgentName = Literal["control", "webui", "login"]
TEMPLATES: Final = Path(__file__).resolve().parents[2] / "launchd"
LABEL_PREFIX: Final = "io.github.splash"
LABEL_HEX_DIGITS: Final = 8
# All that a job gets by itself. Source: notes/console.md, reports 60 (herdr#2099, agent-cli#481).
MINIMAL_PATH: Final = "/usr/bin:/bin:/usr/sbin:/sbin"
# What else of a shell's environment changes what Splash does: proxies, certificates, and the hub's mirror and cache.
CARRIED: Final = frozenset(
    (
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    )
)
CARRIED_PREFIXES: Final = ("SPLASH_", "HF_")
# The hub's token stays where `hf auth login` keeps it: a property list is shown by `launchctl print`.
NEVER_CARRIED: Final = frozenset(("HF_TOKEN",))


@dataclass(frozen=True, slots=True)
class Agent:
    """One job. `log` gets stderr, and stdout too unless `is_stdout_dropped`. `root` is SPLASH_HOME."""

    label: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    root: Path
    log: Path
    is_stdout_dropped: bool = False


def label_of(name: AgentName, root: Path, *, default_root: Path) -> str:
    """The label of a home's job. Two homes never share one; that of the default home is short."""
    plain = f"{LABEL_PREFIX}.{name}"
    if root == default_root:
        return plain
    return f"{plain}.{hashlib.sha256(str(root).encode(errors='surrogateescape')).hexdigest()[:LABEL_HEX_DIGITS]}"


def job_environment(environment: Mapping[str, str], root: Path, *, python: str = sys.executable) -> dict[str, str]:
    """What of the caller's environment a job gets, and what it needs beside."""
    carried = {
        key: value
        for key, value in environment.items()
        if (key in CARRIED or key.startswith(CARRIED_PREFIXES)) and key not in NEVER_CARRIED
    }
    return carried | {
        "SPLASH_HOME": str(root),
        "PATH": f"{Path(python).parent}:{MINIMAL_PATH}",
        "PYTHONUNBUFFERED": "1",
    }


def template(name: AgentName) -> dict[str, Any]:
    content: dict[str, Any] = plistlib.loads((TEMPLATES / f"{name}.plist").read_bytes())
    return content


def exit_limit_s(name: AgentName) -> int:
    """So long after SIGTERM launchd kills the job."""
    return int(template(name)["ExitTimeOut"])


def property_list(name: AgentName, agent: Agent) -> bytes:
    """The same bytes for the same agent. Raises StartFailed for a text that no property list can hold."""
    _require_absolute(agent)
    content = template(name) | {
        "Label": agent.label,
        "ProgramArguments": list(agent.command),
        "EnvironmentVariables": dict(agent.environment),
        "WorkingDirectory": str(agent.root),
        "StandardOutPath": "/dev/null" if agent.is_stdout_dropped else str(agent.log),
        "StandardErrorPath": str(agent.log),
    }
    try:
        return plistlib.dumps(content)
    except (ValueError, UnicodeError) as error:
        raise StartFailed(
            f"launchd can't be told how to start {name}: a path or a variable has a character that no property list "
            "can hold. `splash up --manager detached` does without launchd."
        ) from error


def _require_absolute(agent: Agent) -> None:
    for path in (agent.command[0], str(agent.root), str(agent.log)):
        # launchd expands neither ~ nor variables, and has no working directory of its own.
        assert Path(path).is_absolute(), f"{path} is not absolute"


def program(words: Sequence[str]) -> tuple[str, ...]:
    """A command as launchd takes it: its first word is a whole path, not resolved, so that an environment stays one."""
    return (str(Path(words[0]).absolute()), *words[1:])
