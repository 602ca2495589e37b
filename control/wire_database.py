"""The database itself in the answers of the admin API: a part of the door that `control.wire` passes on.

It holds no behaviour: it imports the standard library, msgspec and `engine.wire` only. Clients import `control.wire`.
"""

from engine.wire import Frozen


class BackupRequest(Frozen, frozen=True, forbid_unknown_fields=True):
    """POST /database/backup: `name` of the file in the backups folder of this home; None: one with date and time."""

    name: str | None = None


class Backup(Frozen, frozen=True, omit_defaults=False):
    """A copy that is whole, checked and on disk. `requests`: how many rows it has; `seconds`: how long it took."""

    path: str
    size_bytes: int
    seconds: float
    requests: int
