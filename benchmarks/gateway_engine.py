"""The scripted engine of the tests, as a program that keeps a pace: for the gateway's benchmarks.

    python benchmarks/gateway_engine.py [--script FILE] --home DIR

It has no model. Scripts are those of `tests.fakes.script`; in a word, <now> becomes this machine's monotonic time and
<serial> the request's number in the order in which they began to play, from 1.
"""

import argparse
import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Python puts this file's folder first, where other benchmarks have names of real packages.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import msgspec
import uvloop

from engine.launch import bind, read_launch, remove_record, write_record
from engine.wire import Event, ReasoningDelta, Status, TextDelta
from tests.fakes import scripted_engine
from tests.fakes.script import Script, Tokens, words
from tests.fakes.scripted_worker import Play, ScriptedWorker

# As old as /status may be; the tests' worker makes a new one for each event, which takes longer than the event.
STATUS_AGE_S = 0.05


class PacedWorker(ScriptedWorker):
    """Tokens are due at fixed times, so that a late one does not delay the next."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        self._made_at = 0.0
        self._num_played = 0
        super().__init__(*arguments, **more)

    async def _say(self, play: Play, tokens: Tokens) -> bool:
        kind = TextDelta if tokens.kind == "text" else ReasoningDelta
        began_at = time.monotonic()
        for number, word in enumerate(words(tokens.text), start=1):
            await asyncio.sleep(max(0.0, began_at + number / tokens.per_second - time.monotonic()))
            if self._emit(play, kind(text=word)):
                return True
        return False

    def _emit(self, play: Play, event: Event) -> bool:
        if isinstance(event, TextDelta):
            event = msgspec.structs.replace(event, text=self._filled(play, event.text))
        return super()._emit(play, event)

    def _filled(self, play: Play, word: str) -> str:
        if "<now>" in word:
            return word.replace("<now>", f"{time.monotonic():.6f}")
        if "<serial>" in word:
            return word.replace("<serial>", f"{play.marks['serial']:.0f}")
        return word

    async def _do(self, play: Play, step: Any) -> bool:
        if "serial" not in play.marks:
            self._num_played += 1
            play.marks["serial"] = self._num_played
        return await super()._do(play, step)

    def _status(self) -> Status:
        now = time.monotonic()
        if now - self._made_at >= STATUS_AGE_S or not self.snapshot.ready:
            self._made_at = now
            return super()._status()
        return self.snapshot


def serve(home: Path, script: Script) -> None:
    launch = read_launch(home)
    with bind(launch.port) as listener:
        record = write_record(home, launch, listener.getsockname()[1])
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(scripted_engine.run(launch, script, listener))
        finally:
            remove_record(home, record)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", nargs="?", choices=["serve", "plan", "models"], default="serve")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--model", default="demo")
    parsed, _ = parser.parse_known_args()
    if parsed.command != "serve":
        scripted_engine.answer(parsed.command, parsed.model)
        return 0
    # The tests' program builds its worker by this name.
    scripted_engine.ScriptedWorker = PacedWorker  # type: ignore[misc]  # it takes its place
    serve(parsed.home.absolute(), Script.read(parsed.script))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
