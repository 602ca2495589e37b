"""The page *Quit*: three steps, live, and what to do when the model does not stop.

It shows what was observed of the processes, never what was ordered.
"""

from dataclasses import dataclass
from typing import Final

from webui import numbers
from webui.farewell import PATIENCE_S, Progress, Step
from webui.text import Text
from webui.views.engine import orders
from webui.views.shell import Shell, Tone, num_running
from webui.watch import Seen

# Ends what this page can't, with or without a gateway that answers.
_FORCE_COMMAND: Final = "splash quit --force"

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
    """`has_begun` False: the page asks first. `is_over`: nothing polls any more, and the console ends.

    `force_effect` is empty where no force is offered; before the order it is offered when requests run.
    """

    shell: Shell
    steps: tuple[StepRow, ...]
    has_begun: bool
    is_over: bool
    is_stuck: bool
    lead: str
    command: str | None
    can_quit: bool
    force_effect: str


@dataclass(frozen=True, slots=True)
class _Question:
    """What is said before the order, and whether it can be given here."""

    lead: str
    command: str | None = None
    can_quit: bool = True
    cut_effect: str = ""


def quit_page(shell: Shell, progress: Progress, seen: Seen, *, has_begun: bool) -> QuitPage:
    text = shell.text
    running = num_running(seen.overview) if seen.is_current and seen.overview is not None else 0
    is_stuck = has_begun and "stuck" in (progress.engine, progress.gateway)
    question = _question(progress, seen, text, running=running)
    command = _FORCE_COMMAND if is_stuck and progress.is_alone else None
    # Requests that run are waited for, however long: whoever doesn't want to is told what force does.
    is_forceable = has_begun and command is None and (is_stuck or (progress.engine == "going" and running > 0))
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
        lead=_lead(progress, text, running=running) if has_begun else question.lead,
        command=command if has_begun else question.command,
        can_quit=question.can_quit,
        force_effect=question.cut_effect
        if not has_begun
        else _force_effect(text, running=running)
        if is_forceable
        else "",
    )


def _question(progress: Progress, seen: Seen, text: Text, *, running: int) -> _Question:
    if seen.is_current:
        cut_effect = text.count("quit.cut_effect", running) if running else ""
        return _Question(orders(seen, text).quit_effect, cut_effect=cut_effect)
    if progress.is_alone:
        return _Question(text("quit.alone", pid=progress.engine_pid), _FORCE_COMMAND, can_quit=False)
    if progress.is_over:
        return _Question(text("quit.only_page"))
    known = _last_known(seen, text)
    return _Question(text.join(text("quit.silent"), known, text("quit.by_terminal")), _FORCE_COMMAND, can_quit=False)


def _last_known(seen: Seen, text: Text) -> str:
    if seen.overview is None:
        return ""
    running, waiting = num_running(seen.overview), len(seen.overview.waiting)
    return text("quit.last_known", age=numbers.span(text, seen.age_s), running=running, waiting=waiting)


def _force_effect(text: Text, *, running: int) -> str:
    return text.count("quit.force_cut", running) if running else text("quit.force_effect")


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
