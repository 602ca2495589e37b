"""The options of `splash up` and `splash load` that say how a model is loaded: as a person writes them, made an order.

It sends nothing. Whether a number is one that a setting can have says `control.load_settings`.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final, TypeVar

import typer

from control.cli.sizes import bytes_of
from control.cli.tables import printable
from control.command_errors import UsageWrong
from control.load_settings import complaint
from control.wire import DEFAULT, Default, LoadRequest

Context = Annotated[str | None, typer.Option(metavar="TOKENS", help="Largest context, prompt and answer together.")]
Budget = Annotated[
    str | None, typer.Option(metavar="SIZE", help="Memory for contexts beside the weights: bytes, or 12GiB.")
]
KvBits = Annotated[str | None, typer.Option(metavar="8|4|none", help="Keep the context quantised, in less memory.")]
MaxGapMs = Annotated[
    str | None, typer.Option(metavar="MS", help="Longest wait of a running stream for its next token, 50 to 10000.")
]
DecodeShare = Annotated[
    str | None, typer.Option(metavar="SHARE", help="Running streams' share of the time beside a prompt, 0 to 0.9.")
]

_WHOLE: Final = re.compile("[0-9]{1,16}")
_NUMBER: Final = re.compile(r"[0-9]{1,16}(\.[0-9]{1,16})?")
# What a person writes for a setting of `control.load_settings`.
_OPTIONS: Final = {
    "context": "--context",
    "budget_bytes": "--budget",
    "kv_bits": "--kv-bits",
    "max_gap_ms": "--max-gap-ms",
    "decode_share": "--decode-share",
}
# "auto" is what the console calls it.
_DEFAULT_WORDS: Final = (DEFAULT, "auto", "none")

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class Given:
    """What was written behind each option; None where the option was not."""

    context: str | None = None
    budget: str | None = None
    kv_bits: str | None = None
    max_gap_ms: str | None = None
    decode_share: str | None = None


def load_request(model: str | None, given: Given) -> LoadRequest:
    """Raises UsageWrong, with one sentence about what can't be understood or can't be."""
    request = LoadRequest(
        model=_found_from_here(model),
        context=_read("--context", given.context, _whole, "a number of tokens"),
        budget_bytes=_read("--budget", given.budget, bytes_of, "a size: bytes, or a number with KiB, MiB, GiB or TiB"),
        kv_bits=_read("--kv-bits", given.kv_bits, _whole, "8, 4 or none"),
        max_gap_ms=_read("--max-gap-ms", given.max_gap_ms, _number, "a number of milliseconds"),
        decode_share=_read("--decode-share", given.decode_share, _number, "a number from 0 to 0.9"),
    )
    wrong = complaint(request)
    if wrong is not None:
        setting, rest = wrong.split(" ", 1)
        raise UsageWrong(f"{_OPTIONS.get(setting, setting)} {rest}")
    return request


def _read(
    option: str, text: str | None, understood: Callable[[str], Number | None], what: str
) -> Number | Default | None:
    if text is None:
        return None
    if text.strip().lower() in _DEFAULT_WORDS:
        return DEFAULT
    value = understood(text.strip())
    if value is None:
        raise UsageWrong(f"{option} {printable(text)} is not {what}; `{DEFAULT}` undoes an earlier choice.")
    return value


def _whole(text: str) -> int | None:
    return int(text) if _WHOLE.fullmatch(text) else None


def _number(text: str) -> float | None:
    return float(text) if _NUMBER.fullmatch(text) else None


def _found_from_here(model: str | None) -> str | None:
    """A folder is named from here, but looked for by a process that runs elsewhere."""
    try:
        if model is not None and (model.startswith(("~", ".", os.sep)) or Path(model).is_dir()):
            return str(Path(model).expanduser().resolve())
    except (OSError, RuntimeError, ValueError) as error:
        raise UsageWrong(f"{printable(model or '')} can't be a folder: {str(error).rstrip('.')}.") from error
    return model
