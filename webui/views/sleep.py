"""Sleep on the page *Settings*: when the machine is kept awake, whether it is now and for what, and how often it slept.

It decides nothing: control does.
"""

from dataclasses import dataclass
from typing import Final

from control.wire import AwakeReason, KeepAwake, Overview, Power
from webui import numbers
from webui.text import Text

_CHOICE_TEXT: Final[dict[KeepAwake, str]] = {
    "busy": "settings.sleep_busy",
    "loaded": "settings.sleep_loaded",
    "never": "settings.sleep_never",
}
_REASON_TEXT: Final[dict[AwakeReason, str]] = {
    "requests": "settings.awake_requests",
    "linger": "settings.awake_linger",
    "loaded": "settings.awake_loaded",
}


@dataclass(frozen=True, slots=True)
class SleepChoice:
    value: str
    label: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class SleepView:
    """`is_known` False: control does not answer, and nothing can be chosen. `sentences` say how it is now."""

    choices: tuple[SleepChoice, ...]
    sentences: tuple[str, ...]
    is_known: bool


def sleep_view(overview: Overview | None, text: Text) -> SleepView:
    chosen = None if overview is None else overview.power.keep_awake
    return SleepView(
        choices=tuple(SleepChoice(each, text(label), each == chosen) for each, label in _CHOICE_TEXT.items()),
        sentences=(text("settings.not_known"),)
        if overview is None
        else (_now(overview.power, text), *_past(overview.power, text)),
        is_known=overview is not None,
    )


def keep_awake_of(value: str | None) -> KeepAwake | None:
    """None for what no choice is called."""
    return next((each for each in _CHOICE_TEXT if each == value), None)


def _now(power: Power, text: Text) -> str:
    if not power.can_keep_awake:
        return text("settings.awake_cannot")
    if power.awake_reason is None:
        return text("settings.awake_off" if power.keep_awake == "never" else "settings.awake_idle")
    if not power.is_kept_awake:
        return text("settings.awake_failing")
    return text(_REASON_TEXT[power.awake_reason])


def _past(power: Power, text: Text) -> tuple[str, ...]:
    if not power.sleeps or power.woke_at_s is None:
        return ()
    span, woke = numbers.span(text, power.slept_s), numbers.date_and_time(text, power.woke_at_s)
    return (text.count("settings.slept", power.sleeps, span=span, woke=woke),)
