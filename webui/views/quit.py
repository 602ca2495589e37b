"""The page *Quit*: three steps, live, and what to do when the model does not stop.

It shows what was observed of the processes, never what was ordered.
"""

from dataclasses import dataclass
from typing import Final

from webui import numbers
from webui.farewell import PATIENCE_S, Progress, Step
from webui.text import Text
from webui.views.shell import Shell, Tone

_STEP_TEXT: Final[dict[Step, str]] = {
    "waiting": "quit.waiting",
    "going": "quit.going",
    "stuck": "quit.stuck",
    "gone": "quit.gone",
    "closable": "quit.closable",
}
_STEP_TONE: Final[dict[Step, Tone]] = {
    "waiting": "idle",
    "going": "busy",
    "stuck": "bad",
    "gone": "good",
    "closable": "good",
}
_STEP_SIGN: Final[dict[Step, str]] = {"waiting": "○", "going": "◐", "stuck": "✕", "gone": "✓", "closable": "✓"}


@dataclass(frozen=True, slots=True)
class StepRow:
    name: str
    label: str
    state: str
    sign: str
    tone: Tone


@dataclass(frozen=True, slots=True)
class QuitPage:
    """`has_begun` False: the page asks first. `is_over`: nothing polls any more, and the console ends."""

    shell: Shell
    steps: tuple[StepRow, ...]
    has_begun: bool
    is_over: bool
    is_stuck: bool
    lead: str
    command: str | None


def quit_page(shell: Shell, progress: Progress, *, has_begun: bool, effect: str, running: int) -> QuitPage:
    text = shell.text
    is_stuck = has_begun and "stuck" in (progress.engine, progress.gateway)
    return QuitPage(
        shell=shell,
        steps=tuple(
            _step(name, text(label), step if has_begun else "waiting", text)
            for name, label, step in (
                ("engine", "quit.engine", progress.engine),
                ("gateway", "quit.gateway", progress.gateway),
                ("page", "quit.page", progress.page),
            )
        ),
        has_begun=has_begun,
        is_over=has_begun and progress.is_over,
        is_stuck=is_stuck,
        lead=_lead(progress, text, running=running) if has_begun else effect,
        command="splash quit --force" if is_stuck and progress.is_alone else None,
    )


def _step(name: str, label: str, step: Step, text: Text) -> StepRow:
    return StepRow(name=name, label=label, state=text(_STEP_TEXT[step]), sign=_STEP_SIGN[step], tone=_STEP_TONE[step])


def _lead(progress: Progress, text: Text, *, running: int) -> str:
    if progress.is_over:
        return text("quit.over")
    if progress.is_alone:
        return text("quit.alone", pid=progress.engine_pid)
    finishing = text.count("quit.finishing", running) if running else ""
    if progress.engine == "stuck":
        stuck = text("quit.engine_stuck", pid=progress.engine_pid, patience=numbers.span(text, PATIENCE_S))
        return text.join(stuck, finishing)
    if progress.engine != "gone" and running:
        return finishing
    if progress.gateway == "stuck":
        return text("quit.gateway_stuck", patience=numbers.span(text, PATIENCE_S))
    return text("quit.since", span=numbers.span(text, progress.waited_s))
