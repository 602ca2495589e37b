"""What is not as it should be with the engine: the reason why it does not run, and what works less well than it could.

It judges nothing: the engine's self-tests and its governor did, and their own words are passed on. What a model is not
made for is no problem but a fact: `webui.views.facts`.
"""

from dataclasses import dataclass
from typing import Final

from control.wire import EngineView, SelfTest
from webui import numbers
from webui.text import Text
from webui.views.self_tests import failed_tests, together
from webui.views.shell import Tone

# What a model does without when this self-test did not pass. Source: engine.preparation, engine.text.canary.
_TEST_TEXT: Final[dict[str, str]] = {
    "rows": "layout.padded_cost",
    "padded": "layout.turns_cost",
    "kv_bits": "warning.kv_bits",
    "gated_delta": "warning.gated_delta",
    "late_system": "warning.late_system",
}


@dataclass(frozen=True, slots=True)
class Problem:
    """Red only when a person must come; a crash is followed by a new start, and its reason then is history.

    `reason` is what the engine says about it; empty when the sentence is all.
    """

    tone: Tone
    sign: str
    sentence: str
    reason: str = ""


def problem(engine: EngineView, text: Text) -> Problem | None:
    if engine.error is None:
        return None
    if engine.state == "loading":
        return Problem("idle", "○", text("engine.last_error", error=engine.error))
    if engine.state == "crashed":
        return Problem("wait", "◒", engine.error)
    return Problem("bad", "✕", engine.error)


def warnings(engine: EngineView, text: Text) -> tuple[Problem, ...]:
    """The model answers, but not as well as it could: nobody has to come, and nobody shall wonder."""
    found = []
    if engine.cache is not None and not engine.cache.is_on:
        found.append(_warning(text, text("warning.cache_off"), engine.cache.reason))
    failed = failed_tests(engine)
    found += [_of_test(test, engine, text) for test in failed.values() if not _is_said_already(test, failed, engine)]
    governor = engine.governor
    if governor is not None and governor.is_pressed:
        pool, planned = numbers.size(governor.pool_bytes), numbers.size(governor.planned_pool_bytes)
        found.append(_warning(text, text("warning.pressed", pool=pool, planned=planned)))
    return tuple(found)


def _is_said_already(test: SelfTest, failed: dict[str, SelfTest], engine: EngineView) -> bool:
    """A failed restore is why the cache is off; without any layout, the first that failed is of no interest."""
    if test.name == "restore":
        return engine.cache is not None and not engine.cache.is_on
    return test.name == "rows" and "padded" in failed


def _of_test(test: SelfTest, engine: EngineView, text: Text) -> Problem:
    # What follows from a failed layout is said of the last: the one that was then taken may not be there either.
    name = "padded" if test.name == "rows" and together(engine) == "turns" else test.name
    key = _TEST_TEXT.get(name)
    return _warning(text, text(key) if key is not None else text("warning.other", name=test.name), test.detail)


def _warning(text: Text, sentence: str, reason: str = "") -> Problem:
    return Problem("wait", "◒", sentence, text("warning.why", reason=reason) if reason else "")
