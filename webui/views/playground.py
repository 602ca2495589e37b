"""The page *Try it*: which model answers, and every sentence that is said while it does.

It holds no conversation: that is in the browser alone.
"""

from dataclasses import dataclass
from typing import Final

from control.wire import Overview, Slot
from webui import numbers
from webui.text import Text
from webui.views.requests import eta_words, is_reading
from webui.views.shell import Shell
from webui.watch import Seen

# Source: control.errors. What is not here is said as control says it.
_PROBLEM_TEXT: Final[dict[str, str]] = {
    "context_length_exceeded": "talk.too_long",
    "engine_died": "talk.engine_died",
    "engine_stopped": "talk.engine_stopped",
    "gateway_restarts": "talk.gateway_restarts",
    "no_model": "talk.no_model",
    "quitting": "talk.quitting",
    "rate_limit_exceeded": "talk.line_full",
    "request_cancelled": "talk.cancelled",
    "request_too_large": "talk.too_large",
    "waited_too_long": "talk.waited_too_long",
}


# Random weights never come to an end: the longest answer of the demo where a person chose none.
DEMO_LIMIT_TOKENS: Final = 256
# A speed over less is chance.
_LEAST_HEARD_S: Final = 0.2
# Source: engine.model.library.
_DEMO_NAMES: Final = ("demo", "splash-demo")


@dataclass(frozen=True, slots=True)
class PlaygroundPage:
    """`model` None: none is loaded; then `lead` says what to do. `demo_limit`: the demo's longest answer, in tokens."""

    shell: Shell
    model: str | None
    is_demo: bool
    lead: str
    demo_limit: str = f"{DEMO_LIMIT_TOKENS:,}"


@dataclass(frozen=True, slots=True)
class Heard:
    """What has come of an answer: pieces of a token or more each, over the `seconds` since the first."""

    num_pieces: int = 0
    seconds: float = 0.0

    @property
    def tokens_per_second(self) -> float | None:
        """The first piece took no decode time; None: too little to say."""
        return (self.num_pieces - 1) / self.seconds if self.seconds >= _LEAST_HEARD_S else None


@dataclass(frozen=True, slots=True)
class Progress:
    """Where an answer is: a word for ears and eyes, and numbers that change too often to be read out."""

    phase: str
    numbers: str


def playground_page(shell: Shell, seen: Seen) -> PlaygroundPage:
    text = shell.text
    engine = seen.overview.engine if seen.is_current and seen.overview is not None else None
    if engine is None:
        return PlaygroundPage(shell=shell, model=None, is_demo=False, lead=text("talk.gateway_silent"))
    if engine.model is None:
        lead = text("talk.will_wait") if engine.holds else text("talk.no_model")
        return PlaygroundPage(shell=shell, model=None, is_demo=False, lead=lead)
    return PlaygroundPage(
        shell=shell,
        model=engine.model.id,
        is_demo=engine.model.is_demo,
        lead=_demo_lead(text) if engine.model.is_demo else "",
    )


def usual_limit(seen: Seen) -> int | None:
    """Tokens that an answer may have when nothing was chosen; None: as the context allows."""
    engine = seen.overview.engine if seen.overview is not None else None
    if engine is None:
        return None
    is_demo = engine.model.is_demo if engine.model is not None else engine.wanted_model in _DEMO_NAMES
    return DEMO_LIMIT_TOKENS if is_demo else None


def _demo_lead(text: Text) -> str:
    return text.join(text("engine.demo_lead"), text("talk.demo_limit", n=f"{DEMO_LIMIT_TOKENS:,}"))


def progress_of(request_id: str, heard: Heard, overview: Overview, text: Text) -> Progress | None:
    """None when the request is neither in the line nor in a slot (any more), and nothing came of it.

    The overview is half a second old: what was heard since goes before it.
    """
    for slot in overview.slots:
        if slot is not None and slot.id == request_id and (slot.is_suspended or slot.phase == "decode"):
            return _in_slot(slot, heard, text)
    if heard.num_pieces:
        return _decoding(heard.num_pieces, heard.tokens_per_second, text)
    for waiting in overview.waiting:
        if waiting.id == request_id:
            key = "talk.held" if waiting.phase == "held" else "talk.waiting"
            return Progress(text(key), text("talk.place", n=f"{waiting.position:,}"))
    for slot in overview.slots:
        if slot is not None and slot.id == request_id:
            return _in_slot(slot, heard, text)
    return None


def end_of(*, finish_reason: str, first_token_s: float, decode_s: float, num_tokens: int, text: Text) -> Progress:
    """Of an answer that came to its end. `decode_s`: between its first and its last piece."""
    phase = text("talk.at_limit") if finish_reason == "length" else text("talk.complete")
    # The first token came with the first piece: it took no decode time.
    speed = (num_tokens - 1) / decode_s if num_tokens > 1 and decode_s > 0 else None
    return Progress(
        phase,
        text(
            "talk.end_numbers",
            first=numbers.seconds(text, first_token_s * 1000),
            speed=numbers.speed(speed),
            tokens=text.count("talk.tokens", num_tokens),
        ),
    )


def problem_words(code: str, message: str, text: Text) -> str:
    return text(_PROBLEM_TEXT[code]) if code in _PROBLEM_TEXT else message


def _decoding(num_tokens: int, tokens_per_second: float | None, text: Text) -> Progress:
    count = text.count("talk.tokens", num_tokens)
    speed = "" if tokens_per_second is None else f"{numbers.speed(tokens_per_second)} tok/s · "
    return Progress(text("phase.decode"), f"{speed}{count}")


def _in_slot(slot: Slot, heard: Heard, text: Text) -> Progress:
    if slot.is_suspended:
        return Progress(text("phase.paused"), "")
    if slot.phase == "decode":
        speed = slot.tokens_per_second if slot.tokens_per_second is not None else heard.tokens_per_second
        return _decoding(max(slot.output_tokens, heard.num_pieces), speed, text)
    if not is_reading(slot) or not slot.prompt_tokens:
        return Progress(text("phase.prefill"), "")
    percent = f"{min(slot.prefilled_tokens, slot.prompt_tokens) * 100 // slot.prompt_tokens}%"
    return Progress(text("phase.prefill"), " · ".join(part for part in (percent, eta_words(slot, text)) if part))
