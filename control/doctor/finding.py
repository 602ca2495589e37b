"""What `splash doctor` has to say about one thing: what it is, why it matters, and the command that mends it.

It finds nothing: that is in the modules of checks.
"""

from dataclasses import dataclass
from typing import Literal

# wrong: Splash of this home does not work as it should, or would not start. warning: it does; a person should know.
Level = Literal["wrong", "warning"]


@dataclass(frozen=True, slots=True)
class Finding:
    """`check` is a name for scripts. `what` and `why` are sentences. `mend` is for a person to do; None: nothing is."""

    check: str
    level: Level
    what: str
    why: str
    mend: str | None = None
