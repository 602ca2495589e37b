"""One command at a time starts and restarts the processes of a home: whoever comes second waits, and says for whom.

It starts nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from control.home import Home, LockHolder


@contextmanager
def turn(home: Home, show: Callable[[str], None]) -> Iterator[LockHolder | None]:
    """Hold the turn; whom it was waited for, None when it was free. Raises HomeUnusable.

    It is held from before the first process is told to end until the last has started: what is decided meanwhile by
    what runs, and by the settings, stays true.
    """
    with home.only_one("up", wait=False) as is_free:
        if is_free:
            yield None
            return
        holder = home.holder_of("up") or LockHolder(None)
    show(f"Waiting for {holder}, which starts or restarts Splash.")
    with home.only_one("up", wait=True):
        yield holder
