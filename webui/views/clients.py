"""The page *Clients*: which keys exist, their limits and use, and the one moment at which a new one is seen.

It never holds a key longer than the answer that shows it. What a client pastes is `webui.views.connect`.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from control.wire import ConnectionList, CreatedKey, KeyTotals, KeyView
from webui import numbers
from webui.key_form import LIMITS, MOST, Form
from webui.text import Text
from webui.views.connect import ConnectBlock, connect_blocks
from webui.views.shell import Shell, Tone

# From here on a limit of a day is worth a look.
NEARLY_USED: Final = 0.8
# The sums of keys reach back so far; a key that is younger and not among them was never used.
_MONTH_S: Final = 30 * 86_400
_LIMIT_TEXT: Final[dict[str, str]] = {
    "max_in_flight": "keys.max_in_flight",
    "requests_per_day": "keys.requests_per_day",
    "tokens_per_day": "keys.tokens_per_day",
}
_LIMIT_NOTE_TEXT: Final[dict[str, str]] = {
    "max_in_flight": "keys.max_in_flight_note",
    "requests_per_day": "keys.requests_per_day_note",
    "tokens_per_day": "keys.tokens_per_day_note",
}


@dataclass(frozen=True, slots=True)
class Meter:
    """What was used of a limit. `percent` None: there is no such limit, and no bar."""

    used: str
    limit: str
    percent: int | None
    tone: Tone
    sign: str
    summary: str


@dataclass(frozen=True, slots=True)
class LimitField:
    name: str
    label: str
    note: str
    value: str
    error: str


@dataclass(frozen=True, slots=True)
class KeyForm:
    """`first_wrong`: the field that the focus goes to, empty when nothing is wrong."""

    name: str
    name_error: str
    is_batch: bool
    limits: tuple[LimitField, ...]
    first_wrong: str


@dataclass(frozen=True, slots=True)
class KeyRow:
    """`month_…` and `last_used` are of the last 30 days."""

    id: int
    name: str
    request_class: str
    is_batch: bool
    hint: str
    created: str
    in_flight: Meter
    requests: Meter
    tokens: Meter
    month_requests: str
    month_tokens: str
    month_tokens_hint: str
    hit_rate: str
    last_used: str
    form: KeyForm
    edit_label: str
    revoke_label: str
    revoke_effect: str


@dataclass(frozen=True, slots=True)
class RevokedRow:
    id: int
    name: str
    hint: str
    created: str
    revoked: str
    month_requests: str
    month_tokens: str


@dataclass(frozen=True, slots=True)
class NewKeyBox:
    """Shown once, in the answer to the form that made it."""

    name: str
    key: str


@dataclass(frozen=True, slots=True)
class Known:
    """What control answered. `totals` None: the database did not; `connections` None: they are not known now."""

    keys: tuple[KeyView, ...]
    totals: tuple[KeyTotals, ...] | None = None
    connections: ConnectionList | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A form that can't be used, with the sentence for each field. `key_id` None: it is the form of a new key."""

    form: Form
    wrong: Mapping[str, str]
    key_id: int | None = None


@dataclass(frozen=True, slots=True)
class ClientsPage:
    """`problem` replaces the list while control is silent. `edited`: the key whose form comes back open."""

    shell: Shell
    keys: tuple[KeyRow, ...]
    revoked: tuple[RevokedRow, ...]
    new: KeyForm
    created: NewKeyBox | None
    blocks: tuple[ConnectBlock, ...]
    edited: int | None
    refusal: str
    totals_problem: str
    problem: str | None


@dataclass(frozen=True, slots=True)
class _Use:
    by_id: Mapping[int, KeyTotals] = field(default_factory=dict)
    is_known: bool = True


def clients_page(
    shell: Shell,
    known: Known | None,
    *,
    created: CreatedKey | None = None,
    refused: Refused | None = None,
    problem: str | None = None,
) -> ClientsPage:
    """`known` None: control does not answer, as `problem` says."""
    text = shell.text
    views = known.keys if known is not None else ()
    totals = known.totals if known is not None else None
    use = _Use({each.id: each for each in totals or ()}, is_known=totals is not None)
    newest_first = sorted(views, key=lambda view: -view.created_at_s)
    connections = known.connections if known is not None else None
    return ClientsPage(
        shell=shell,
        keys=tuple(_row(view, use, text, refused) for view in newest_first if view.revoked_at_s is None),
        revoked=_revoked(newest_first, use, text),
        new=_form(text, refused.form if refused is not None and refused.key_id is None else {}, _wrong(refused, None)),
        created=NewKeyBox(name=created.view.name, key=created.key) if created is not None else None,
        blocks=connect_blocks(connections, text, key=created.key if created is not None else None)
        if connections is not None
        else (),
        edited=refused.key_id if refused is not None else None,
        refusal=text("keys.refused") if refused is not None else "",
        totals_problem="" if use.is_known else text("keys.totals_unknown"),
        problem=problem,
    )


def meter(used: int, limit: int | None, text: Text) -> Meter:
    fraction = None if limit is None else used / limit
    is_full, is_near = fraction is not None and fraction >= 1, fraction is not None and fraction >= NEARLY_USED
    tone: Tone = "bad" if is_full else "wait" if is_near else "idle"
    of_limit = text("keys.of_limit", limit=numbers.tokens(limit)) if limit is not None else ""
    return Meter(
        used=numbers.tokens(used),
        limit=of_limit,
        percent=None if fraction is None else min(100, int(fraction * 100)),
        tone=tone,
        sign="✕" if is_full else "!" if is_near else "",
        summary=text("keys.limit_reached") if is_full else text("keys.limit_near") if is_near else "",
    )


def _wrong(refused: Refused | None, key_id: int | None) -> Mapping[str, str]:
    return refused.wrong if refused is not None and refused.key_id == key_id else {}


def _form(text: Text, form: Form, wrong: Mapping[str, str]) -> KeyForm:
    return KeyForm(
        name=form.get("name", ""),
        name_error=text(wrong["name"]) if "name" in wrong else "",
        is_batch=form.get("request_class") == "batch",
        limits=tuple(
            LimitField(
                name=name,
                label=text(_LIMIT_TEXT[name]),
                note=text(_LIMIT_NOTE_TEXT[name]),
                value=form.get(name, ""),
                error=text(wrong[name], most=f"{MOST:,}") if name in wrong else "",
            )
            for name in LIMITS
        ),
        first_wrong=next((name for name in ("name", *LIMITS) if name in wrong), ""),
    )


def _form_of(view: KeyView) -> Form:
    """As if a person had filled it in with what is in force."""
    limits = {name: getattr(view.limits, name) for name in LIMITS}
    filled = {name: f"{limit:,}" for name, limit in limits.items() if limit is not None}
    return {"request_class": view.request_class, **filled}


def _row(view: KeyView, use: _Use, text: Text, refused: Refused | None) -> KeyRow:
    totals = use.by_id.get(view.id)
    form = refused.form if refused is not None and refused.key_id == view.id else _form_of(view)
    return KeyRow(
        id=view.id,
        name=view.name,
        request_class=text("keys.batch") if view.request_class == "batch" else text("keys.interactive"),
        is_batch=view.request_class == "batch",
        hint=view.hint,
        created=text("keys.made", at=numbers.date_and_time(text, view.created_at_s)),
        in_flight=meter(view.today.in_flight, view.limits.max_in_flight, text),
        requests=meter(view.today.requests, view.limits.requests_per_day, text),
        tokens=meter(view.today.tokens, view.limits.tokens_per_day, text),
        month_requests=_month_requests(totals, use),
        month_tokens=_month_tokens(totals, use),
        month_tokens_hint=_month_tokens_hint(totals, text),
        hit_rate=numbers.share(totals.hit_rate if totals is not None else None),
        last_used=_last_used(view, totals, use, text),
        form=_form(text, form, _wrong(refused, view.id)),
        edit_label=text("keys.edit_label", name=view.name),
        revoke_label=text("keys.revoke_label", name=view.name),
        revoke_effect=_revoke_effect(view, text),
    )


def _revoked(views: Sequence[KeyView], use: _Use, text: Text) -> tuple[RevokedRow, ...]:
    return tuple(
        RevokedRow(
            id=view.id,
            name=view.name,
            hint=view.hint,
            created=numbers.date_and_time(text, view.created_at_s),
            revoked=numbers.date_and_time(text, view.revoked_at_s),
            month_requests=_month_requests(use.by_id.get(view.id), use),
            month_tokens=_month_tokens(use.by_id.get(view.id), use),
        )
        for view in views
        if view.revoked_at_s is not None
    )


def _month_requests(totals: KeyTotals | None, use: _Use) -> str:
    """Where the sums are known, a key that is not among them was not used."""
    return numbers.tokens(totals.requests if totals is not None else 0 if use.is_known else None)


def _month_tokens(totals: KeyTotals | None, use: _Use) -> str:
    if totals is None:
        return numbers.tokens(0 if use.is_known else None)
    return numbers.tokens(totals.prompt_tokens + totals.completion_tokens)


def _month_tokens_hint(totals: KeyTotals | None, text: Text) -> str:
    return text(
        "keys.month_tokens_hint",
        prompt=numbers.tokens(totals.prompt_tokens if totals is not None else None),
        cached=numbers.tokens(totals.cached_tokens if totals is not None else None),
        output=numbers.tokens(totals.completion_tokens if totals is not None else None),
    )


def _last_used(view: KeyView, totals: KeyTotals | None, use: _Use, text: Text) -> str:
    if totals is not None:
        return numbers.date_and_time(text, totals.last_used_at_s)
    if not use.is_known:
        return numbers.UNKNOWN
    is_young = time.time() - view.created_at_s < _MONTH_S
    return text("keys.not_yet") if is_young else text("keys.not_used")


def _revoke_effect(view: KeyView, text: Text) -> str:
    running = (
        text.count("keys.revoke_running", view.today.in_flight) if view.today.in_flight else text("keys.revoke_idle")
    )
    return text.join(text("keys.revoke_effect", name=view.name), running, text("keys.revoke_final"))
