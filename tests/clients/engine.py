"""The scripted engine for real clients: it calls a client's shell tool, reports what it printed, and sums up on demand.

    python tests/clients/engine.py --journal FILE --home DIR

It is `tests/fakes/engine.py` with a script that reads the whole conversation. What it was asked to generate, it writes
down in the journal: one JSON line a request, its kind and nothing of its content.
"""

import argparse
import json
import logging
import os
import sys
import time
from pathlib import Path

if __name__ == "__main__":
    # Python puts this file's folder first, where this very file is called `engine`; the root belongs there.
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from engine.errors import EngineError, PortTaken
from engine.wire import Message, Prompt, Tool, ToolCallBegin, ToolCallDelta, ToolCallEnd
from tests.clients.words import (
    AFTER_COMPACTION,
    COMMAND,
    COMPACTION_ORDER,
    GREETING,
    GREETING_ASKED,
    OVERFLOW_ASKED,
    REPORT,
    SUMMARY,
)
from tests.fakes.script import Prefill, Script, Step, Tokens, num_words
from tests.fakes.scripted_engine import answer, serve

SHELL_TOOLS = ("Bash", "bash", "shell", "exec_command", "shell_command")
COMMAND_FIELDS = ("command", "cmd")
TOO_MANY_TOKENS = 1_000_000


class ClientScript(Script):
    """What it says depends on what the conversation ends with."""

    def __init__(self, journal: Path) -> None:
        super().__init__()
        self._journal = journal

    def num_prompt_tokens(self, prompt: Prompt) -> int:
        return TOO_MANY_TOKENS if kind_of(prompt) == "too long" else num_words(prompt)

    def steps(self, prompt: Prompt) -> tuple[Step, ...]:
        kind = kind_of(prompt)
        with self._journal.open("a") as journal:
            journal.write(json.dumps({"kind": kind, "at_s": round(time.time(), 1), "tools": len(prompt.tools)}) + "\n")
        if kind == "call":
            return _call(prompt)
        said = {
            "report": f"{REPORT} {_tool_result(prompt)}",
            "greeting": GREETING,
            "compaction": f"<analysis>All of it.</analysis>\n<summary>{SUMMARY}</summary>",
            "after compaction": AFTER_COMPACTION,
        }
        return Step(prefill=Prefill()), Step(tokens=Tokens(text=said.get(kind, "A short title")))


def kind_of(prompt: Prompt) -> str:
    """Clients that give no tools ask for something beside the conversation: a title, say."""
    messages = prompt.messages or ()
    since = _since_the_last_answer(messages)
    asked = "\n".join(_text(message) for message in since if message.role == "user")
    everything = "\n".join(_text(message) for message in messages)
    if COMPACTION_ORDER in asked:
        return "compaction"
    if SUMMARY in everything:
        return "after compaction"
    if not prompt.tools:
        return "beside"
    if OVERFLOW_ASKED in asked:
        return "too long"
    if any(message.role == "tool" for message in since):
        return "report"
    if COMMAND in asked:
        return "call"
    return "greeting" if GREETING_ASKED in asked else "other"


def _since_the_last_answer(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    answered = [number for number, message in enumerate(messages) if message.role == "assistant"]
    return messages[answered[-1] + 1 :] if answered else messages


def _tool_result(prompt: Prompt) -> str:
    """The newest one's text; empty when there is none."""
    results = [_text(message) for message in prompt.messages or () if message.role == "tool"]
    return results[-1] if results else ""


def _text(message: Message) -> str:
    return "\n".join(part.text for part in message.content if hasattr(part, "text"))


def _call(prompt: Prompt) -> tuple[Step, ...]:
    """The shell tool with COMMAND, in the form that its schema wants."""
    tool = next((tool for name in SHELL_TOOLS for tool in prompt.tools if tool.name == name), None)
    if tool is None:
        names = ", ".join(tool.name for tool in prompt.tools)
        return (Step(tokens=Tokens(text=f"There is no shell among {names}")),)
    arguments = json.dumps(_arguments(tool))
    return (
        Step(prefill=Prefill()),
        Step(event=ToolCallBegin(index=0, id="call_1", name=tool.name)),
        Step(event=ToolCallDelta(index=0, arguments=arguments)),
        Step(event=ToolCallEnd(index=0)),
    )


def _arguments(tool: Tool) -> dict[str, object]:
    fields = tool.parameters.get("properties", {})
    name = next(name for name in COMMAND_FIELDS if name in fields)
    is_list = fields[name].get("type") == "array"
    others = {other: "what was asked" for other in tool.parameters.get("required", ()) if other != name}
    return others | {name: ["bash", "-lc", COMMAND] if is_list else COMMAND}


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", nargs="?", choices=["serve", "plan", "models"], default="serve")
    parser.add_argument("--home", type=Path, required=True)
    parser.add_argument("--journal", type=Path, required=True)
    parser.add_argument("--model", default="demo")
    parsed, _ = parser.parse_known_args()
    logging.basicConfig(stream=sys.stderr, level=logging.INFO)
    try:
        if parsed.command == "serve":
            serve(parsed.home.absolute(), ClientScript(parsed.journal))
        else:
            answer(parsed.command, parsed.model)
    except EngineError as error:
        print(error.message, file=sys.stderr)
        return 5 if isinstance(error, PortTaken) else 4
    return 0


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    os._exit(code)
