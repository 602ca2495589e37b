"""The page that loads a model: what each field shows, what is wrong with it, and the plan of what was chosen.

It judges nothing: `webui.load_form` reads what comes back, and `webui.views.plan` shows the engine's plan.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from control.wire import DEFAULT, EngineView
from webui.load_form import (
    KV_BITS,
    LEAST_GAP_MS,
    MOST_GAP_MS,
    MOST_SHARE_PERCENT,
    USUAL_GAP_MS,
    USUAL_SHARE_PERCENT,
    Form,
    chosen_model,
    is_touched,
)
from webui.text import Text
from webui.views.engine import orders, stale
from webui.views.plan import PlanView
from webui.views.shell import Shell
from webui.watch import Seen

_BITS_TEXT: Final = {8: "load.kv_bits_eight", 4: "load.kv_bits_four"}
# The fields that are always in sight; the others are folded away.
_IN_SIGHT: Final = frozenset({"context", "budget_bytes", "kv_bits"})


_LIMITS: Final = {
    "least_gap": f"{LEAST_GAP_MS:,}",
    "most_gap": f"{MOST_GAP_MS:,}",
    "usual_gap": f"{USUAL_GAP_MS:,}",
    "most_share": f"{MOST_SHARE_PERCENT}",
    "usual_share": f"{USUAL_SHARE_PERCENT}",
}


@dataclass(frozen=True, slots=True)
class Field:
    """`shown` is what runs now, and empty where that is not known; `error` is empty when nothing is wrong."""

    name: str
    label: str
    note: str
    value: str
    shown: str
    error: str


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    label: str


@dataclass(frozen=True, slots=True)
class LoadForm:
    """`first_wrong` names the field that the focus goes to; `is_unfolded`: something is wrong in the folded part."""

    model: str
    context: Field
    budget_bytes: Field
    kv_bits: Field
    bits: tuple[Choice, ...]
    max_gap_ms: Field
    decode_share: Field
    first_wrong: str | None
    is_unfolded: bool


@dataclass(frozen=True, slots=True)
class LoadPage:
    """`plan` None: it was not asked for yet. `can_load` False: nothing can be ordered now, whatever is chosen."""

    shell: Shell
    stale: str | None
    form: LoadForm
    effect: str
    can_load: bool
    plan: PlanView | None


def load_page(
    seen: Seen, shell: Shell, form: Form, wrong: Mapping[str, str], *, plan: PlanView | None = None
) -> LoadPage:
    """`form` as it was filled in, `wrong` what is wrong with its fields, as keys of sentences."""
    text = shell.text
    can = orders(seen, text)
    return LoadPage(
        shell=shell,
        stale=stale(seen, shell),
        form=load_form(seen.overview.engine if seen.overview is not None else None, text, form, wrong),
        effect=can.load_effect,
        can_load=can.can_load,
        plan=plan,
    )


def load_form(engine: EngineView | None, text: Text, form: Form, wrong: Mapping[str, str]) -> LoadForm:
    shown = _in_force(engine, chosen_model(form))

    def field(name: str, label: str, note: str) -> Field:
        value = form.get(name, "") if is_touched(form, name) else shown.get(name, "")
        error = text(wrong[name], **_LIMITS) if name in wrong else ""
        return Field(name, text(label), text(note, **_LIMITS), value, shown.get(name, ""), error)

    return LoadForm(
        model=chosen_model(form),
        context=field("context", "load.context", "load.context_note"),
        budget_bytes=field("budget_bytes", "load.budget", "load.budget_note"),
        kv_bits=field("kv_bits", "load.kv_bits", "load.kv_bits_note"),
        bits=_bits(text, is_known="kv_bits" in shown),
        max_gap_ms=field("max_gap_ms", "load.max_gap", "load.max_gap_note"),
        decode_share=field("decode_share", "load.decode_share", "load.decode_share_note"),
        first_wrong=next(iter(wrong), None),
        is_unfolded=bool(wrong.keys() - _IN_SIGHT),
    )


def first_mistake(wrong: Mapping[str, str], text: Text) -> str:
    return next(text(sentence, **_LIMITS) for sentence in wrong.values())


def _in_force(engine: EngineView | None, model: str) -> dict[str, str]:
    """What the running model has; nothing for another one, of which only control knows what it had last."""
    if engine is None or engine.state != "ready" or engine.layout is None or engine.promises is None:
        return {}
    running = (engine.model_name, engine.model.id if engine.model is not None else None)
    if model not in running:
        return {}
    return {
        "kv_bits": DEFAULT if engine.layout.kv_bits is None else str(engine.layout.kv_bits),
        "max_gap_ms": f"{engine.promises.max_gap_ms:g}",
        "decode_share": f"{engine.promises.decode_share * 100:g}",
    }


def _bits(text: Text, *, is_known: bool) -> tuple[Choice, ...]:
    last = () if is_known else (Choice("", text("load.as_last_time")),)
    fewer = (Choice(str(bits), text(_BITS_TEXT[bits])) for bits in KV_BITS)
    return (*last, Choice(DEFAULT, text("load.kv_bits_full")), *fewer)
