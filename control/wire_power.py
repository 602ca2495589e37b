"""Whether the machine may sleep, and how often it did: a part of control's door, which `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only.
"""

from typing import Literal

from engine.wire import Frozen

# busy: while requests run, wait or are held. loaded: as long as an engine lives, too.
KeepAwake = Literal["busy", "loaded", "never"]
# linger: the last request has just ended, and an agent's next one may follow.
AwakeReason = Literal["requests", "linger", "loaded"]


class KeepAwakeRequest(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /settings/keep-awake."""

    keep_awake: KeepAwake


class Power(Frozen, frozen=True, omit_defaults=False):
    """`can_keep_awake` False: not a Mac, or it lacks caffeinate; then the setting has no effect.

    `awake_reason`: why the machine should be awake now, None when it may sleep; `is_kept_awake`: a caffeinate lives.
    `sleeps`, `slept_s` and `woke_at_s` (Unix time; None: it never slept) are since control's start.
    """

    keep_awake: KeepAwake = "busy"
    can_keep_awake: bool = False
    awake_reason: AwakeReason | None = None
    is_kept_awake: bool = False
    sleeps: int = 0
    slept_s: float = 0.0
    woke_at_s: float | None = None
