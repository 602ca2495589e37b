"""The form that loads a model: what each field shows, and what is wrong with it.

It judges nothing: `webui.load_form` reads what comes back.
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

_BITS_TEXT: Final = {8: "load.kv_bits_eight", 4: "load.kv_bits_four"}


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
    """`is_refused`: it comes back with errors, and its panel opens by itself; `is_unfolded`: one is in the folded part.

    `first_wrong` names the field that the focus goes to.
    """

    model: str
    other_model: str
    context: Field
    kv_bits: Field
    bits: tuple[Choice, ...]
    max_gap_ms: Field
    decode_share: Field
    first_wrong: str | None
    is_unfolded: bool

    @property
    def is_refused(self) -> bool:
        return self.first_wrong is not None


def load_form(engine: EngineView | None, text: Text, form: Form, wrong: Mapping[str, str]) -> LoadForm:
    shown = _in_force(engine, chosen_model(form))

    def field(name: str, label: str, note: str) -> Field:
        value = form.get(name, "") if is_touched(form, name) else shown.get(name, "")
        error = text(wrong[name], **_LIMITS) if name in wrong else ""
        return Field(name, text(label), text(note, **_LIMITS), value, shown.get(name, ""), error)

    return LoadForm(
        model=form.get("model", ""),
        other_model=form.get("other_model", ""),
        context=field("context", "load.context", "load.context_note"),
        kv_bits=field("kv_bits", "load.kv_bits", "load.kv_bits_note"),
        bits=_bits(text, is_known="kv_bits" in shown),
        max_gap_ms=field("max_gap_ms", "load.max_gap", "load.max_gap_note"),
        decode_share=field("decode_share", "load.decode_share", "load.decode_share_note"),
        first_wrong=next(iter(wrong), None),
        is_unfolded=bool(wrong.keys() - {"context"}),
    )


def _in_force(engine: EngineView | None, model: str) -> dict[str, str]:
    """What the running model has; nothing for another one, of which only control knows what it had last."""
    if engine is None or engine.state != "ready" or engine.layout is None or engine.promises is None:
        return {}
    if model not in ("", engine.wanted_model or engine.model_name):
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
