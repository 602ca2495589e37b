"""How long a body of 2 MB, 200k tokens of an agent's history, takes to become a neutral request, by each dialect.

The parsers are timed alone, and beside an event loop whose longest pause is noted: msgspec holds the interpreter's lock
while it decodes. Then a real control takes the same bodies, and is asked for its health all the while.
It measures no engine: the scripted one counts words.
"""

import asyncio
import json
import random
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import uvloop

from benchmarks.gateway_client import Connection
from benchmarks.gateway_stack import CHAT, MIB, Gateway, gateway, load_average
from benchmarks.report import Goal, Measurement, run
from control.dialects.chat import parse_chat
from control.dialects.messages import parse_messages
from control.dialects.response_history import ResponseHistory
from control.dialects.responses import parse_responses

PARSE_TARGET_MS: Final = 60.0
PAUSE_TARGET_MS: Final = 60.0
BODY_BYTES: Final = 2_000_000
NUM_TOKENS: Final = 200_000
NUM_TOOLS: Final = 24  # as Claude Code sends, 64 kB of them
TICK_S: Final = 0.001
# A body that is kept by mistake is 3 MiB.
KEPT_TARGET_MIB: Final = 0.5
NUM_WARM_UPS: Final = 3
PATHS: Final = {"chat": CHAT, "messages": "/v1/messages", "responses": "/v1/responses"}
SAID_AT_LAST: Final = "answer"
SCRIPT: Final = [
    {
        "match": SAID_AT_LAST,
        "steps": [{"prefill": {"total": NUM_TOKENS}}, {"event": {"type": "text_delta", "text": "yes"}}],
    }
]

SAMPLE: Final = (
    "the file returns a list of rows where each has its own slot and no other reads it before the lock is free "
    'def class self import return None True raise for while if not "quoted" \\path\\to <tag> {brace} 变量 naïve é'
)
VOCABULARY: Final = SAMPLE.split(" ")


@dataclass(frozen=True, slots=True)
class Turn:
    """What a coding agent does over and over: it says a sentence, calls a tool, and reads what that gave."""

    number: int
    said: str
    path: str
    edit: str
    result: str

    @property
    def arguments(self) -> dict[str, Any]:
        return {"path": self.path, "edit": self.edit, "options": {"limit": self.number, "is_recursive": True}}


def text_of(draw: random.Random, num_words: int) -> str:
    return "".join(f"{draw.choice(VOCABULARY)}{draw.choice('  ' + chr(10))}" for _ in range(num_words))


def draw_turns(size_bytes: int) -> Iterator[Turn]:
    draw, left = random.Random(0), size_bytes
    for number in range(size_bytes):
        turn = Turn(
            number, text_of(draw, 30), f"/src/{number}.py", text_of(draw, 60), text_of(draw, draw.randrange(20, 900))
        )
        left -= len(json.dumps([turn.said, turn.edit, turn.result], ensure_ascii=False)) + 450
        if left < 0:
            return
        yield turn


def parameters_of(number: int) -> dict[str, Any]:
    draw = random.Random(number)
    fields = {f"field_{n}": {"type": "string", "description": text_of(draw, 25)} for n in range(12)}
    return {"type": "object", "properties": fields, "required": ["field_0"], "additionalProperties": False}


TOOLS: Final = [(f"tool_{n}", text_of(random.Random(n), 150), parameters_of(n)) for n in range(NUM_TOOLS)]
SYSTEM: Final = text_of(random.Random(1), 3000)


def chat_body(turns: list[Turn]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "Begin."}]
    for turn in turns:
        function = {"name": "tool_1", "arguments": json.dumps(turn.arguments)}
        call = {"id": f"call_{turn.number}", "type": "function", "function": function}
        messages += [
            {"role": "assistant", "content": turn.said, "reasoning_content": turn.said, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call["id"], "content": turn.result},
        ]
    functions = [{"name": name, "description": text, "parameters": schema} for name, text, schema in TOOLS]
    return {
        "model": "demo",
        "messages": [*messages, {"role": "user", "content": SAID_AT_LAST}],
        "tools": [{"type": "function", "function": function} for function in functions],
    }


def messages_body(turns: list[Turn]) -> dict[str, Any]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Begin."}]
    for turn in turns:
        use = {"type": "tool_use", "id": f"toolu_{turn.number}", "name": "tool_1", "input": turn.arguments}
        thought = {"type": "thinking", "thinking": turn.said, "signature": "c3BsYXNo"}
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": [{"type": "text", "text": turn.result}]}
        messages += [
            {"role": "assistant", "content": [thought, {"type": "text", "text": turn.said}, use]},
            {"role": "user", "content": [result]},
        ]
    last = {"type": "text", "text": SAID_AT_LAST, "cache_control": {"type": "ephemeral"}}
    return {
        "model": "demo",
        "max_tokens": 100,
        "system": [{"type": "text", "text": SYSTEM}],
        "messages": [*messages, {"role": "user", "content": [last]}],
        "tools": [{"name": name, "description": text, "input_schema": schema} for name, text, schema in TOOLS],
    }


def responses_body(turns: list[Turn]) -> dict[str, Any]:
    items: list[dict[str, Any]] = [message_item("developer", SYSTEM), message_item("user", "Begin.")]
    for turn in turns:
        call_id = f"call_{turn.number}"
        thought = {"type": "reasoning_text", "text": turn.said}
        items += [
            {"type": "reasoning", "id": f"rs_{turn.number}", "summary": [], "content": [thought]},
            message_item("assistant", turn.said),
            {
                "type": "function_call",
                "id": f"fc_{turn.number}",
                "call_id": call_id,
                "name": "tool_1",
                "arguments": json.dumps(turn.arguments),
            },
            {"type": "function_call_output", "call_id": call_id, "output": turn.result},
        ]
    return {
        "model": "demo",
        "input": [*items, message_item("user", SAID_AT_LAST)],
        "store": False,
        "tools": [
            {"type": "function", "name": name, "description": text, "parameters": schema, "strict": False}
            for name, text, schema in TOOLS
        ],
    }


def message_item(role: str, text: str) -> dict[str, Any]:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def make_bodies() -> dict[str, bytes]:
    turns = list(draw_turns(BODY_BYTES))
    made = {"chat": chat_body(turns), "messages": messages_body(turns), "responses": responses_body(turns)}
    return {name: json.dumps(body, ensure_ascii=False).encode() for name, body in made.items()}


PARSERS: Final[dict[str, Callable[[bytes, str], Any]]] = {
    "chat": parse_chat,
    "messages": parse_messages,
    "responses": partial(parse_responses, history=ResponseHistory().of("benchmark")),
}


@dataclass(frozen=True, slots=True)
class ParseTimes:
    """`cpu_ms` is what this thread ran of it: on a busy machine the rest was spent waiting for a core."""

    wall_ms: list[float]
    cpu_ms: list[float]


def parse_times(parse: Callable[[bytes, str], Any], body: bytes, num_rounds: int) -> ParseTimes:
    parse(body, "first")
    found = ParseTimes([], [])
    for number in range(num_rounds):
        began_at, began_cpu_s = time.perf_counter(), time.thread_time()
        parse(body, f"request-{number}")
        found.wall_ms.append((time.perf_counter() - began_at) * 1000)
        found.cpu_ms.append((time.thread_time() - began_cpu_s) * 1000)
    return found


async def pauses_ms(parse: Callable[[bytes, str], Any], body: bytes, num_rounds: int) -> list[float]:
    """The longest pause of the event loop while a thread parses, once each round."""
    found = []
    for number in range(num_rounds):
        parsing = asyncio.create_task(asyncio.to_thread(parse, body, f"request-{number}"))
        longest_s, before = 0.0, time.perf_counter()
        while not parsing.done():
            await asyncio.sleep(TICK_S)
            now = time.perf_counter()
            longest_s, before = max(longest_s, now - before), now
        found.append((longest_s - TICK_S) * 1000)
        await parsing
    return found


@dataclass(slots=True)
class Health:
    """How long control takes to say that it is well, asked without a pause."""

    longest_ms: float = 0.0

    async def ask_for_ever(self, started: Gateway) -> None:
        connection = await Connection.open(started.api_port, started.key)
        while True:
            began_at = time.perf_counter()
            connection.get("/healthz")
            await connection.body()
            self.longest_ms = max(self.longest_ms, (time.perf_counter() - began_at) * 1000)
            await asyncio.sleep(TICK_S)


@dataclass(frozen=True, slots=True)
class Taken:
    """Of a control that takes a body: the longest that anybody else had to wait, and what it kept, each round."""

    waits_ms: list[float]
    kept_mib: float


async def take(started: Gateway, path: str, body: bytes, num_rounds: int) -> Taken:
    waits: list[float] = []
    control = started.control
    rss_bytes = 0
    health = Health()
    connection = await Connection.open(started.api_port, started.key)
    asking = asyncio.create_task(health.ask_for_ever(started))
    for number in range(NUM_WARM_UPS + num_rounds):
        if number == NUM_WARM_UPS:
            rss_bytes = control.memory_info().rss
        health.longest_ms = 0.0
        connection.send(path, body)
        await connection.body()
        waits.append(health.longest_ms)
    asking.cancel()
    connection.close()
    return Taken(waits[NUM_WARM_UPS:], (control.memory_info().rss - rss_bytes) / MIB / num_rounds)


async def is_served(started: Gateway, path: str) -> bool:
    """Whether control has a door for this dialect."""
    connection = await Connection.open(started.api_port, started.key)
    connection.send(path, b"{}")
    head = await connection.head()
    connection.close()
    return head.status != 404


def rounded(values: list[float]) -> dict[str, float]:
    return {name: round(pick(values), 1) for name, pick in (("least", min), ("p50", statistics.median), ("most", max))}


@contextmanager
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        yield runner


def measure(is_quick: bool) -> Measurement:
    load, bodies = load_average(), make_bodies()
    num_rounds = 7 if is_quick else 40
    parses = {name: parse_times(PARSERS[name], body, num_rounds) for name, body in bodies.items()}
    with loop() as runner:
        pauses = {name: runner.run(pauses_ms(PARSERS[name], body, num_rounds)) for name, body in bodies.items()}
    with gateway(SCRIPT) as started, loop() as runner:
        missing = [name for name, path in PATHS.items() if not runner.run(is_served(started, path))]
        taken = {
            name: runner.run(take(started, PATHS[name], body, num_rounds))
            for name, body in bodies.items()
            if name not in missing
        }
    goals = [
        Goal("dialects_without_a_door", len(missing), 0, "lower"),
        *(
            Goal(f"{name}_parse_ms", statistics.median(times.wall_ms), PARSE_TARGET_MS, "lower")
            for name, times in parses.items()
        ),
        *(
            Goal(f"{name}_pause_ms", statistics.median(times), PAUSE_TARGET_MS, "lower")
            for name, times in pauses.items()
        ),
        *(
            Goal(f"{name}_wait_ms", statistics.median(each.waits_ms), PAUSE_TARGET_MS, "lower")
            for name, each in taken.items()
        ),
        *(Goal(f"{name}_kept_mib", each.kept_mib, KEPT_TARGET_MIB, "lower") for name, each in taken.items()),
    ]
    detail = {
        "body_bytes": {name: len(body) for name, body in bodies.items()},
        "parse_ms": {name: rounded(times.wall_ms) for name, times in parses.items()},
        "parse_cpu_ms": {name: rounded(times.cpu_ms) for name, times in parses.items()},
        "loop_pause_ms": {name: rounded(times) for name, times in pauses.items()},
        "control_wait_ms": {name: rounded(each.waits_ms) for name, each in taken.items()},
        "without_a_door": missing,
        "rounds": num_rounds,
        "load_average_before": load,
    }
    slowest = max(statistics.median(times.wall_ms) for times in parses.values())
    return Measurement("bodies", slowest, "ms", PARSE_TARGET_MS, "lower", detail=detail, goals=tuple(goals))


if __name__ == "__main__":
    run(measure, __doc__ or "")
