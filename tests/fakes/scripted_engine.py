"""The scripted engine behind `tests/fakes/engine.py`: the real door, launch file and record, with scripted answers.

It has no model: what it says is in the script (`tests.fakes.script`), how it plays is in `tests.fakes.scripted_worker`.
"""

import argparse
import asyncio
import logging
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from engine.blocks import TokenBlocks
from engine.door.bodies import decode
from engine.door.checks import check_id, check_request
from engine.door.http_server import make_http_server
from engine.door.server import Door, make_app
from engine.errors import ContextTooLong, EngineError, PortTaken
from engine.launch import bind, read_launch, remove_record, write_record
from engine.request import PromptMarks, SamplingParameters
from engine.text.prompts import check_prompt
from engine.wire import CountAnswer, CountRequest, GenerateRequest, Launch
from tests.fakes.script import Script
from tests.fakes.scripted_worker import CONTEXT_TOKENS, PLAN, ScriptedWorker

VOCABULARY_SIZE = 2048


@dataclass(frozen=True, slots=True)
class Admitted:
    asked: GenerateRequest
    prompt: tuple[int, ...]
    sampling: SamplingParameters
    max_tokens: int
    blocks: TokenBlocks = field(default_factory=TokenBlocks)
    marks: PromptMarks = field(default_factory=PromptMarks)
    output: None = None
    constraint: None = None


class ScriptedIntake:
    """Checks like the real intake; counts words."""

    given_up_s = 0.0

    def __init__(self, script: Script, worker: ScriptedWorker, context_tokens: int) -> None:
        self._script = script
        self._worker = worker
        self._context_tokens = context_tokens

    def count(self, body: bytes) -> CountAnswer:
        asked = decode(body, CountRequest)
        if asked.id is not None:
            check_id(asked.id)
        check_prompt(asked.prompt)
        return CountAnswer(
            prompt_tokens=self._script.num_prompt_tokens(asked.prompt), maximum_context_tokens=self._context_tokens
        )

    def forget(self) -> None:
        """It keeps nothing."""

    def admit(self, body: bytes) -> Admitted:
        asked = decode(body, GenerateRequest)
        check_request(asked, VOCABULARY_SIZE)
        check_prompt(asked.prompt)
        num_tokens = self._script.num_prompt_tokens(asked.prompt)
        room = self._context_tokens - num_tokens
        if room < 1:
            raise ContextTooLong(prompt_tokens=num_tokens, maximum_context_tokens=self._context_tokens)
        self._worker.steps_of[asked.id] = self._script.steps(asked.prompt)
        return Admitted(
            asked=asked,
            prompt=tuple(range(num_tokens)),
            sampling=SamplingParameters(),
            max_tokens=room if asked.max_tokens is None else min(asked.max_tokens, room),
        )


async def run(launch: Launch, script: Script, listener) -> None:
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, over.set)
    context_tokens = launch.context or CONTEXT_TOKENS
    worker = ScriptedWorker(script, launch, context_tokens=context_tokens)
    door = Door(worker=worker, text_thread=ThreadPoolExecutor(max_workers=1), nonce=launch.nonce, on_shutdown=over.set)
    door.open(worker, ScriptedIntake(script, worker, context_tokens))
    server = make_http_server(make_app(door, secret=launch.secret, port=listener.getsockname()[1]))
    async with asyncio.TaskGroup() as tasks:
        publishing = tasks.create_task(worker.publish())
        tasks.create_task(server.serve(sockets=[listener]))
        await over.wait()
        door.stop()
        await worker.stop()
        publishing.cancel()
        server.should_exit = True


def serve(home: Path, script: Script) -> None:
    launch = read_launch(home)
    with bind(launch.port) as listener:
        record = write_record(home, launch, listener.getsockname()[1])
        try:
            asyncio.run(run(launch, script, listener))
        finally:
            remove_record(home, record)


def answer(command: str, model: str) -> None:
    """`plan` and `models`: one scripted model, which fits."""
    entry = {
        "name": model,
        "path": "",
        "architecture": "scripted",
        "quantization": None,
        "weights_bytes": 2**30,
        "native_context_tokens": CONTEXT_TOKENS,
        "fits": True,
        "is_demo": True,
    }
    said = {"models": [entry]} if command == "models" else {"model": entry, "plan": PLAN}
    print(msgspec.json.encode(said).decode())


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", nargs="?", choices=["serve", "plan", "models"], default="serve")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--model", default="demo")
    parsed, _ = parser.parse_known_args()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    try:
        if parsed.command == "serve":
            serve(parsed.home.absolute(), Script.read(parsed.script))
        else:
            answer(parsed.command, parsed.model)
    except EngineError as error:
        print(error.message, file=sys.stderr)
        return 5 if isinstance(error, PortTaken) else 4
    return 0
