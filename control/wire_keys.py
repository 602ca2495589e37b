"""Keys, their limits and their use, in the answers of the admin API: a part of the door that `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only. Clients import `control.wire`.
"""

from typing import Annotated

from msgspec import UNSET, Meta, UnsetType

from engine.wire import Frozen, RequestClass

# SQLite keeps 64 bits; nobody means more than this.
Limit = Annotated[int, Meta(ge=1, le=10**15)]


class KeyLimits(Frozen, frozen=True, omit_defaults=False, forbid_unknown_fields=True):
    """None: no such limit. A day is this machine's; tokens are prompt and completion together."""

    max_in_flight: Limit | None = None
    requests_per_day: Limit | None = None
    tokens_per_day: Limit | None = None


class KeyChange(Frozen, frozen=True, forbid_unknown_fields=True):
    """PATCH /keys/{id}: what is left out stays; null takes a limit away."""

    request_class: RequestClass | UnsetType = UNSET
    max_in_flight: Limit | UnsetType | None = UNSET
    requests_per_day: Limit | UnsetType | None = UNSET
    tokens_per_day: Limit | UnsetType | None = UNSET


class KeyUsage(Frozen, frozen=True, omit_defaults=False):
    """Since local midnight, without what was turned away; `tokens` of requests that ended. `in_flight` is of now."""

    requests: int = 0
    tokens: int = 0
    in_flight: int = 0


class NewKey(Frozen, frozen=True, forbid_unknown_fields=True):
    name: str
    request_class: RequestClass = "interactive"
    limits: KeyLimits = KeyLimits()


class KeyView(Frozen, frozen=True, omit_defaults=False):
    """A key without its secret: `hint` is its beginning and its last four characters."""

    id: int
    name: str
    request_class: RequestClass
    hint: str
    created_at_s: float
    revoked_at_s: float | None = None
    limits: KeyLimits = KeyLimits()
    today: KeyUsage = KeyUsage()


class CreatedKey(Frozen, frozen=True, omit_defaults=False):
    """Answer of POST /keys: the only time that `key` is seen."""

    key: str
    view: KeyView


class KeyList(Frozen, frozen=True, omit_defaults=False):
    keys: tuple[KeyView, ...]


class KeyTotals(Frozen, frozen=True, omit_defaults=False):
    """What a key was used for on the last 30 days of this machine, today included, without what was turned away.

    `hit_rate` = cached / prompt tokens, None without any. `last_used_at_s`: when its newest request that ended began.
    """

    id: int
    requests: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    hit_rate: float | None
    last_used_at_s: float


class KeyTotalsList(Frozen, frozen=True, omit_defaults=False):
    """GET /keys/totals: by the keys' ids; keys that were not used in that time are left out."""

    keys: tuple[KeyTotals, ...]
