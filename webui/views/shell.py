"""What every page has around its content: language, theme, navigation, and the state of the whole system.

It knows nothing of a single page's content.
"""

import time
from dataclasses import dataclass, replace
from typing import Final, Literal

from control.wire import DatabaseHealth, EngineState, EngineView, Overview
from webui import numbers
from webui.home import Fate
from webui.text import Language, Text
from webui.watch import Seen

Theme = Literal["system", "light", "dark"]
Tone = Literal["good", "busy", "wait", "bad", "idle"]
PageName = Literal[
    "now", "performance", "requests", "model", "cost", "clients", "logs", "settings", "playground", "quit", "message"
]
# Whether Splash ends because this console was told to: then a silent gateway is no alarm. over: nothing is left.
Ending = Literal["no", "begun", "over"]


@dataclass(frozen=True, slots=True)
class Link:
    """A page of the navigation, and where it stands. `title` is the key of its name."""

    page: PageName
    path: str
    title: str


NAVIGATION: Final = (
    Link("now", "/", "nav.now"),
    Link("performance", "/performance", "nav.performance"),
    Link("requests", "/requests", "nav.requests"),
    Link("model", "/model", "nav.model"),
    Link("cost", "/cost", "nav.cost"),
    Link("clients", "/clients", "nav.clients"),
    Link("playground", "/playground", "nav.playground"),
    Link("logs", "/logs", "nav.logs"),
    Link("settings", "/settings", "nav.settings"),
    Link("quit", "/quit", "nav.quit"),
)

NEXT_THEME: Final[dict[Theme, Theme]] = {"system": "light", "light": "dark", "dark": "system"}
THEME_TEXT: Final[dict[Theme, str]] = {
    "system": "theme.system",
    "light": "theme.light",
    "dark": "theme.dark",
}
THEME_SIGN: Final[dict[Theme, str]] = {"system": "◐", "light": "○", "dark": "●"}
NEXT_LANGUAGE: Final[dict[Language, Language]] = {"en": "zh", "zh": "en"}

STATE_TEXT: Final[dict[EngineState, str]] = {
    "unloaded": "state.unloaded",
    "loading": "state.loading",
    "ready": "state.ready",
    "draining": "state.draining",
    "stopping": "state.stopping",
    "crashed": "state.crashed",
    "failed": "state.failed",
}
# What became of a gateway that does not answer.
_GONE_TEXT: Final[dict[Fate, str]] = {"lives": "state.gone", "died": "state.died", "unrecorded": "state.gone"}
_GONE_HINT: Final[dict[Fate, str]] = {
    "lives": "state.gone_hint",
    "died": "state.died_hint",
    "unrecorded": "state.left_hint",
}
_STATE_TONE: Final[dict[EngineState, Tone]] = {
    "unloaded": "idle",
    "loading": "busy",
    "ready": "good",
    "draining": "wait",
    "stopping": "wait",
    # It is started again by itself: nobody has to come.
    "crashed": "wait",
    "failed": "bad",
}
# The form of the mark tells the tone without its colour.
_SIGN: Final[dict[Tone, str]] = {"good": "●", "busy": "◐", "wait": "◒", "bad": "✕", "idle": "○"}
# A status of the engine is published several times a second: this old means that it does not answer.
ENGINE_SILENT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class Masthead:
    """The one place that says how the whole system is. `detail` is a short addition, `hint` one sentence.

    `farewell` is said over every page when nothing is left of Splash; else empty.
    """

    tone: Tone
    sign: str
    state: str
    detail: str
    model: str
    hint: str
    farewell: str = ""


@dataclass(frozen=True, slots=True)
class NoticeLine:
    """What became of the last order. `at`: time of day; `tone`: good, or wait when it was not followed."""

    message: str
    at: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class Shell:
    """`masthead` None: a page outside a session, which shows nothing. `here`: where a preference leads back to.

    `keep_page`: why this page must not be left for a preference, since what it shows is shown once; empty: it may.
    """

    text: Text
    theme: Theme
    page: PageName
    title: str
    here: str
    form_token: str
    masthead: Masthead | None
    notice: NoticeLine | None = None
    ending: Ending = "no"
    zone_cookie: str = ""
    keep_page: str = ""

    @property
    def navigation(self) -> tuple[Link, ...]:
        return NAVIGATION

    @property
    def utc_offset_min(self) -> int:
        """Minutes that the times on this page are ahead of UTC now."""
        offset = self.text.local(time.time()).utcoffset()
        return 0 if offset is None else int(offset.total_seconds() // 60)

    @property
    def next_theme(self) -> Theme:
        return NEXT_THEME[self.theme]

    @property
    def theme_sign(self) -> str:
        return THEME_SIGN[self.theme]

    @property
    def theme_label(self) -> str:
        return self.text(
            "theme.label", now=self.text(THEME_TEXT[self.theme]), next=self.text(THEME_TEXT[self.next_theme])
        )

    @property
    def next_language(self) -> Language:
        return NEXT_LANGUAGE[self.text.language]


@dataclass(frozen=True, slots=True)
class StatePage:
    """The masthead alone, for its own refresh."""

    shell: Shell


def farewell_masthead(seen: Seen, text: Text, *, is_over: bool) -> Masthead:
    """While Splash ends on purpose, a silent gateway is no fault."""
    if not is_over:
        return _masthead("wait", text("state.quitting"), "", None, text("state.quitting_hint"))
    at_s = seen.overview.sampled_at_s if seen.overview is not None else None
    at = numbers.UNKNOWN if at_s is None else numbers.time_of_day(text, at_s)
    ended = _masthead("idle", text("state.stopped"), "", None, text("state.quitting_hint"))
    return replace(ended, farewell=text("state.over", at=at))


def masthead(seen: Seen, text: Text) -> Masthead:
    overview = seen.overview
    if not seen.is_current:
        detail = text("state.gone_age", age=numbers.span(text, seen.age_s)) if overview is not None else ""
        return _masthead("bad", text(_GONE_TEXT[seen.fate]), detail, overview, text(_GONE_HINT[seen.fate]))
    assert overview is not None, "a current answer has an overview"
    engine = overview.engine
    if overview.quitting:
        return _masthead("wait", text("state.quitting"), "", overview, text("state.quitting_hint"))
    if overview.leaving:
        return _masthead("wait", text("state.leaving"), _detail(overview, text), overview, text("state.leaving_hint"))
    if engine.state == "ready" and engine.status_age_s is not None and engine.status_age_s > ENGINE_SILENT_S:
        age = numbers.span(text, engine.status_age_s)
        return _masthead("bad", text("state.silent", age=age), "", overview, text("state.silent_hint"))
    return _masthead(
        _STATE_TONE[engine.state],
        text(STATE_TEXT[engine.state]),
        _detail(overview, text),
        overview,
        # The reason may be longer than the room beside the state.
        engine.error if engine.state == "failed" and engine.error is not None else text("state.hint"),
    )


def num_running(overview: Overview) -> int:
    return sum(slot is not None for slot in overview.slots)


def load_fraction(engine: EngineView) -> float | None:
    """How much of the weights is read; None while that is not known."""
    if engine.load is None or engine.load.bytes_total <= 0:
        return None
    return min(engine.load.bytes_read / engine.load.bytes_total, 1.0)


def load_left_s(engine: EngineView) -> float | None:
    """Seconds that the rest of the weights takes at the mean speed so far; None while there is too little to say."""
    fraction = load_fraction(engine)
    if engine.load is None or fraction is None or fraction < 0.02:
        return None
    return engine.load.seconds * (1 - fraction) / fraction


def is_in_trouble(database: DatabaseHealth) -> bool:
    """Rows wait or are lost, or a file was damaged: the numbers are not all there."""
    is_missing_rows = bool(database.waiting_rows or database.lost_rows)
    return is_missing_rows or database.problem is not None or database.set_aside is not None or database.from_copy


def _detail(overview: Overview, text: Text) -> str:
    engine = overview.engine
    parts = []
    if engine.state == "loading":
        fraction, left_s = load_fraction(engine), load_left_s(engine)
        if fraction is not None:
            parts.append(numbers.share(fraction, digits=0))
        if left_s is not None:
            parts.append(text("state.left", span=numbers.span(text, left_s)))
    elif engine.state in ("draining", "stopping"):
        parts.append(text.count("state.drain", num_running(overview)))
    elif engine.state == "crashed":
        parts.append(text("state.starts_again"))
    elif engine.state == "ready" and engine.cache is not None and not engine.cache.is_on:
        parts.append(text("state.cache_off"))
    elif engine.state == "failed" and engine.error is not None:
        parts.append(engine.error.partition("\n")[0])
    num_held = sum(waiting.phase == "held" for waiting in overview.waiting)
    if num_held:
        parts.append(text("state.held", n=f"{num_held:,}"))
    if is_in_trouble(overview.database):
        parts.append(text("state.numbers"))
    return " · ".join(parts)


def _masthead(tone: Tone, state: str, detail: str, overview: Overview | None, hint: str) -> Masthead:
    return Masthead(tone=tone, sign=_SIGN[tone], state=state, detail=detail, model=_model(overview), hint=hint)


def _model(overview: Overview | None) -> str:
    if overview is None:
        return ""
    engine = overview.engine
    if engine.model is not None:
        return f"{engine.model.id} · {numbers.tokens_short(engine.model.maximum_context_tokens)}"
    return engine.wanted_model or engine.model_name or ""
