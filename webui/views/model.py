"""The page *Model*: what is loaded and how it runs, what is waited for, the models on this machine, and the machine.

It turns answers of control into ready sentences and numbers; plans are `webui.views.plan`.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from control.wire import EngineState, EngineView, Machine, ModelOnDisk, Overview, SelfTest, Slot, UnusableModel
from webui import numbers
from webui.text import Text
from webui.views.engine import EngineCard, Orders, engine_card, orders, stale
from webui.views.machine import MachineView, machine_view
from webui.views.memory import MemoryBar, memory_bar
from webui.views.shell import Shell, Tone
from webui.watch import Seen

# The weights are in memory.
_HAS_MODEL: Final[frozenset[EngineState]] = frozenset({"ready", "draining"})
# Requests that run are finished first in these states, and nothing else happens meanwhile.
_WAITS: Final[frozenset[EngineState]] = frozenset({"draining", "stopping"})
# Source: engine.selftest, engine.preparation, engine.gated_delta.install, engine.text.canary.
_CHECK_TEXT: Final[dict[str, str]] = {
    "finite": "check.finite",
    "rows": "check.rows",
    "padded": "check.padded",
    "canary": "check.canary",
    "restore": "check.restore",
    "kv_bits": "check.kv_bits",
    "gated_delta": "check.gated_delta",
    "late_system": "check.late_system",
}


@dataclass(frozen=True, slots=True)
class AwaitedRequest:
    """One that runs, and has to end before the model can go. `tokens` are those that it has generated so far."""

    id: str
    name: str
    key: str
    phase: str
    tokens: str


@dataclass(frozen=True, slots=True)
class Check:
    """One self-test of the loaded model, in plain words; `detail` is the engine's own."""

    sign: str
    tone: Tone
    sentence: str
    result: str
    detail: str


@dataclass(frozen=True, slots=True)
class ModelRow:
    name: str
    is_demo: bool
    is_loaded: bool
    fits: bool
    quantization: str
    size: str
    context: str


@dataclass(frozen=True, slots=True)
class UnusableRow:
    """A folder that can't be loaded; `reason` is the engine's sentence."""

    name: str
    path: str
    reason: str


@dataclass(frozen=True, slots=True)
class ModelPage:
    """`models` None: the list was not asked for. `machine` None: nothing is known of it.

    `awaited` is of an engine that `is_waiting` for them to end. A block needs its part only.
    """

    shell: Shell
    stale: str | None
    engine: EngineCard
    memory: MemoryBar | None
    orders: Orders
    is_waiting: bool
    awaited: tuple[AwaitedRequest, ...]
    checks: tuple[Check, ...]
    num_slots: int
    models: tuple[ModelRow, ...] | None = None
    unusable: tuple[UnusableRow, ...] = ()
    machine: MachineView | None = None


def model_page(
    seen: Seen,
    shell: Shell,
    *,
    models: tuple[ModelOnDisk, ...] | None = None,
    unusable: tuple[UnusableModel, ...] = (),
    machine: Machine | None = None,
) -> ModelPage:
    text, overview = shell.text, seen.overview
    engine = overview.engine if overview is not None else None
    return ModelPage(
        shell=shell,
        stale=stale(seen, shell),
        engine=engine_card(overview, text),
        memory=memory_bar(engine, text) if engine is not None else None,
        orders=orders(seen, text),
        is_waiting=engine is not None and engine.state in _WAITS,
        awaited=_awaited(overview, text),
        checks=tuple(_check(test, text) for test in engine.self_tests) if engine is not None else (),
        num_slots=len(overview.slots) if overview is not None else 0,
        models=tuple(_model(model, engine) for model in models) if models is not None else None,
        unusable=tuple(UnusableRow(Path(each.path).name, each.path, each.message) for each in unusable),
        machine=machine_view(machine, text) if machine is not None else None,
    )


def _awaited(overview: Overview | None, text: Text) -> tuple[AwaitedRequest, ...]:
    if overview is None or overview.engine.state not in _WAITS:
        return ()
    return tuple(_awaited_request(slot, text) for slot in overview.slots if slot is not None)


def _awaited_request(slot: Slot, text: Text) -> AwaitedRequest:
    is_answered = slot.phase == "decode"
    return AwaitedRequest(
        id=slot.id,
        name=f"#{slot.number}",
        key=slot.key,
        phase=text("awaited.generating") if is_answered else text("awaited.reading", share=_share_read(slot)),
        tokens=text.count("awaited.tokens", slot.output_tokens),
    )


def _share_read(slot: Slot) -> str:
    return numbers.share(slot.prefilled_tokens / slot.prompt_tokens if slot.prompt_tokens else None, digits=0)


def _check(test: SelfTest, text: Text) -> Check:
    sentence = text(_CHECK_TEXT[test.name]) if test.name in _CHECK_TEXT else test.name
    if test.passed:
        return Check("✓", "good", sentence, text("check.passed"), test.detail)
    if not test.is_supported:
        return Check("–", "idle", sentence, text("check.unsupported"), test.detail)
    return Check("◒", "wait", sentence, text("check.failed"), test.detail)


def _model(model: ModelOnDisk, engine: EngineView | None) -> ModelRow:
    loaded = engine.model if engine is not None else None
    return ModelRow(
        name=model.name,
        is_demo=model.is_demo,
        is_loaded=loaded is not None
        and loaded.path == model.path
        and engine is not None
        and engine.state in _HAS_MODEL,
        fits=model.fits,
        quantization=model.quantization or "",
        size=numbers.size(model.weights_bytes),
        context=numbers.tokens(model.native_context_tokens),
    )
