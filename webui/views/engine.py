"""The engine's card: which model, how it runs, and what each order would do to the requests.

It gives no orders; every sentence here is said before a person decides.
"""

from dataclasses import dataclass

from control.wire import CacheCleared, EngineState, EngineView, Overview
from webui import numbers
from webui.text import Text
from webui.views.facts import Fact, disk_speed, facts
from webui.views.memory import no_plan_words
from webui.views.problems import Problem, problem, warnings
from webui.views.shell import Shell, load_fraction, load_left_s, num_running
from webui.watch import Seen

# An engine process exists, or is about to: it can be stopped.
_LIVING: frozenset[EngineState] = frozenset({"loading", "ready", "draining", "stopping"})
# Nothing is there to unload, or it is on its way out. Unloading a crashed engine calls off its next start.
_NOTHING_TO_UNLOAD: frozenset[EngineState] = frozenset({"unloaded", "stopping"})


@dataclass(frozen=True, slots=True)
class LoadBar:
    """`percent` None: the size is not known yet."""

    percent: int | None
    label: str
    note: str


@dataclass(frozen=True, slots=True)
class EngineCard:
    """`name` is empty when there is no model; then `lead` teaches what to do.

    `loadable` is what a load would be asked for: the model that is loaded, else the last one; empty: nobody knows.
    """

    name: str
    loadable: str
    is_loaded: bool
    is_demo: bool
    lead: str
    problem: Problem | None
    warnings: tuple[Problem, ...]
    load: LoadBar | None
    facts: tuple[Fact, ...]
    no_plan: str
    """What stands in the place of the memory bar while there is no plan."""


@dataclass(frozen=True, slots=True)
class Orders:
    """What is possible now, and the sentence that says what each order does to running and waiting requests."""

    can_load: bool
    can_unload: bool
    can_force: bool
    can_restart: bool
    can_cancel: bool
    can_clear: bool
    load_effect: str
    unload_effect: str
    force_effect: str
    restart_effect: str
    clear_effect: str
    quit_effect: str
    concurrency: int | None


def engine_card(overview: Overview | None, text: Text) -> EngineCard:
    if overview is None:
        lead = text("engine.unknown")
        no_plan = no_plan_words(None, text)
        return EngineCard("", "", False, False, lead, problem=None, warnings=(), load=None, facts=(), no_plan=no_plan)
    engine = overview.engine
    model = engine.model
    name = model.id if model is not None else engine.model_name or engine.wanted_model or ""
    return EngineCard(
        name=name,
        loadable=engine.model_name or engine.wanted_model or engine.last_model or "",
        is_loaded=model is not None,
        is_demo=model is not None and model.is_demo,
        lead=_lead(engine, text),
        problem=problem(engine, text),
        warnings=warnings(engine, text),
        load=_load_bar(engine, text) if engine.state == "loading" or engine.is_downloading else None,
        facts=facts(overview, text),
        no_plan=no_plan_words(engine, text),
    )


def stale(seen: Seen, shell: Shell) -> str | None:
    """A sentence while control is silent; None when what is shown is of now, or the masthead says that all is over."""
    text = shell.text
    if seen.is_current or shell.ending == "over":
        return None
    if shell.ending == "begun":
        return text("stale.quitting", age=numbers.span(text, seen.age_s)) if seen.overview is not None else None
    if seen.overview is None:
        return text("stale.never")
    return text("stale.since", age=numbers.span(text, seen.age_s))


def cleared_notice(cleared: CacheCleared, text: Text) -> str:
    if not cleared.freed_bytes:
        return text("clear.nothing")
    return text(
        "clear.done",
        size=numbers.size(cleared.freed_bytes),
        blocks=numbers.tokens(cleared.blocks),
        snapshots=numbers.tokens(cleared.snapshots),
    )


def _lead(engine: EngineView, text: Text) -> str:
    if engine.state != "unloaded":
        return ""
    return text("engine.empty_held") if engine.holds else text("engine.empty")


def _keeps_prompts(engine: EngineView) -> bool:
    """A model is there, and its cache is on: it can be emptied."""
    return engine.state in ("ready", "draining") and engine.cache is not None and engine.cache.is_on


def _clear_effect(engine: EngineView | None, text: Text) -> str:
    if engine is None or engine.cache is None or not _keeps_prompts(engine):
        return text("effect.clear_none")
    return text("effect.clear", kept=numbers.size(engine.cache.used_bytes))


def orders(seen: Seen, text: Text) -> Orders:
    overview = seen.overview
    running = num_running(overview) if overview is not None else 0
    waiting = len(overview.waiting) if overview is not None else 0
    can_order = seen.is_current and overview is not None and not overview.quitting
    engine = overview.engine if overview is not None else None
    is_living = engine is not None and (engine.state in _LIVING or engine.pid is not None)
    finish = text.count("effect.finish", running) if running else ""
    # With nobody to wait for, nothing comes "then".
    cut = text.count("effect.cut", running) if running else text("effect.none_running")
    wait_on = text.count("effect.wait_on", waiting) if waiting else ""
    wait_load = text.count("effect.wait_load", waiting) if waiting else ""
    told = text.count("effect.told", waiting) if waiting else ""
    drain_or_cut = text.count("quit.ask", running) if running else ""
    return Orders(
        can_load=can_order,
        can_unload=can_order and engine is not None and engine.state not in _NOTHING_TO_UNLOAD,
        can_force=can_order and is_living,
        can_restart=can_order and engine is not None and engine.state != "unloaded",
        # While it quits, too: what is cancelled need not be waited for.
        can_cancel=seen.is_current,
        can_clear=can_order and engine is not None and _keeps_prompts(engine),
        load_effect=text.join(finish, wait_on, text("effect.then_load" if running else "effect.now_load"))
        if is_living
        else text.join(text("effect.load"), wait_on),
        unload_effect=text.join(finish, wait_load, text("effect.then_unload" if running else "effect.now_unload")),
        force_effect=text.join(cut, wait_load, text("effect.then_force")),
        clear_effect=_clear_effect(engine, text),
        restart_effect=text.join(finish, wait_on, text("effect.then_restart" if running else "effect.now_restart")),
        quit_effect=text.join(drain_or_cut, told, text("effect.then_quit" if running else "effect.now_quit")),
        concurrency=overview.concurrency if overview is not None else None,
    )


def _load_bar(engine: EngineView, text: Text) -> LoadBar:
    """Weights that are read, or a model that is downloaded first: beside one that runs, or before it can be planned."""
    fraction, left_s = load_fraction(engine), load_left_s(engine)
    load = engine.load
    is_download = engine.is_downloading or (fraction is not None and engine.memory_plan is None)
    read, whole = (numbers.size(load.bytes_read), numbers.size(load.bytes_total)) if load is not None else ("", "")
    parts = []
    if fraction is None:
        parts.append(text("load.starting"))
    elif is_download:
        parts.append(text("load.downloaded", read=read, whole=whole))
    else:
        parts.append(text("load.read", read=read, whole=whole))
    speed = _download_speed(engine) if is_download else disk_speed(engine)
    if speed is not None:
        parts.append(numbers.byte_speed(speed))
    if left_s is not None:
        parts.append(text("state.left", span=numbers.span(text, left_s)))
    return LoadBar(
        percent=None if fraction is None else int(fraction * 100),
        label=text("load.download_bar", model=engine.wanted_model or "") if is_download else text("load.bar"),
        note=" · ".join(parts),
    )


def _download_speed(engine: EngineView) -> float | None:
    load = engine.load
    return None if load is None or not load.bytes_read or not load.seconds else load.bytes_read / load.seconds
