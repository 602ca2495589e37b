"""Orders to end, part of `control.wire`: all of Splash, or control alone.

It holds no behaviour.
"""

from engine.wire import Frozen


class QuitRequest(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /quit: engine, then control. Answered at once (202); progress is in the overview until control is gone."""

    force: bool = False


class LeaveRequest(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /leave: control ends and leaves the engine with its weights, for the next control to adopt.

    Answered at once (202): no new request is taken, waiting ones are told to come again, running ones finish; with
    `force` they are cut, with a typed error each.
    """

    force: bool = False
