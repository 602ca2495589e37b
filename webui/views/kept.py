"""A form that control could not take: what was typed, with the reason, to be sent again as it is.

It knows no page: any form of the console can come back this way.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from webui.text import Text
from webui.views.shell import Shell

# The fields that a person fills in, as their pages call them; what is not here goes along unseen.
_LABELS: Final[dict[str, str]] = {
    "name": "keys.name",
    "model": "prices.model",
    "max_in_flight": "keys.max_in_flight",
    "requests_per_day": "keys.requests_per_day",
    "tokens_per_day": "keys.tokens_per_day",
    "context": "load.context",
    "budget_bytes": "load.budget",
    "max_gap_ms": "load.max_gap",
    "decode_share": "load.decode_share",
    "other_currency": "prices.other_currency",
    "miss": "prices.miss",
    "hit": "prices.hit",
    "output": "prices.output",
}
_TOKEN: Final = "form_token"


@dataclass(frozen=True, slots=True)
class KeptPage:
    """`typed`: labels and values, to be read; `fields`: names and values, to be sent to `action`."""

    shell: Shell
    reason: str
    typed: tuple[tuple[str, str], ...]
    fields: tuple[tuple[str, str], ...]
    action: str
    back: str


def kept_page(shell: Shell, form: Mapping[str, str], *, reason: str, action: str, back: str) -> KeptPage:
    fields = tuple((name, value) for name, value in form.items() if name != _TOKEN)
    held = replace(shell, keep_page=shell.text("shell.keep_typed"))
    return KeptPage(
        shell=held, reason=reason, typed=_typed(fields, shell.text), fields=fields, action=action, back=back
    )


def _typed(fields: tuple[tuple[str, str], ...], text: Text) -> tuple[tuple[str, str], ...]:
    return tuple((text(_LABELS[name]), value) for name, value in fields if name in _LABELS and value.strip())
