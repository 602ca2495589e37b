"""What the checks of a Mac stand on: one Splash of its own in a temporary home, and the programs of macOS.

It checks nothing itself.
"""

import json
import shutil
import subprocess
import time
from dataclasses import dataclass

import httpx

from control.config import default_home
from control.services.agents import label_of
from control.services.launchctl import Job, Launchctl
from tests.story.stack import Stack

COMMAND_LIMIT_S = 60.0
READY_LIMIT_S = 900.0


class NotTried(Exception):
    """This machine can't show it; the reason is the message."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """One streamed request as control wrote it down. Tokens per second; of the prompt only what was computed."""

    prefill_speed: float
    decode_speed: float


class Stage:
    """`model` None: the demo."""

    def __init__(self, stack: Stack, launchctl: Launchctl, model: str | None = None) -> None:
        self.stack = stack
        self.launchctl = launchctl
        self.model = model or "demo"

    # --- Splash ---

    def up(self, manager: str) -> None:
        self.stack.up("--manager", manager, self.model)

    def quit(self) -> None:
        done = self.stack.quit("--force")
        assert done.returncode in (0, 3), done.stderr

    def job(self, name: str) -> Job | None:
        return self.launchctl.find(self.label(name))

    def label(self, name: str) -> str:
        return label_of(name, self.stack.home.root, default_root=default_home())

    def spoken(self, num_words: int, num_tokens: int) -> Spoken:
        """Ask once, with a prompt that no cache knows, and read the row of it."""
        words = " ".join(f"{time.time_ns() % 100_003}-{number}" for number in range(num_words))
        body = {"model": "default", "max_tokens": num_tokens, "messages": [{"role": "user", "content": words}]}
        with self.stack.api() as api:
            api.post("/chat/completions", json=body, timeout=READY_LIMIT_S).raise_for_status()
        with self.stack.admin() as admin:
            row = admin.get("/requests", params={"limit": 1}).json()["requests"][0]["row"]
        return Spoken(
            prefill_speed=(row["prompt_tokens"] - row["cached_tokens"]) / row["prefill_ms"] * 1000,
            decode_speed=(row["completion_tokens"] - max(row["first_emission_tokens"], 1)) / row["decode_ms"] * 1000,
        )

    def doctor(self) -> dict:
        return json.loads(self.stack.splash("doctor", "--json").stdout)

    def answers(self, host: str) -> bool:
        """Whether the API answers by that name, asked as another machine would."""
        try:
            return httpx.get(f"http://{host}:{self.stack.ports['api']}/healthz", trust_env=False).status_code == 200
        except httpx.ConnectError as error:
            raise NotTried(f"{host} can't be reached here: {error}") from error


def said(*command: str) -> str:
    """What a program of macOS prints. Raises NotTried when it is not here, AssertionError when it fails."""
    if shutil.which(command[0]) is None:
        raise NotTried(f"{command[0]} is not on this machine")
    done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_LIMIT_S)
    assert done.returncode == 0, f"{' '.join(command)}: {done.stderr.strip() or done.returncode}"
    return done.stdout
