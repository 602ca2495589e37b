"""A trace file that is being written: frames go to a thread of its own, so that nobody waits for a disk.

It knows no event. Whatever goes wrong with the file ends the trace, never the engine.
"""

import contextlib
import os
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import Final

from engine.trace.events import MAGIC

CLOSE_LIMIT_S: Final = 5.0


class TraceFile:
    """`write` and `close` are for one thread. Raises OSError when the file can't be begun, or is there already."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.num_bytes = len(MAGIC)
        self.error: str | None = None
        path.parent.mkdir(mode=0o700, exist_ok=True)
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        self._frames: SimpleQueue[bytes | None] = SimpleQueue()
        self._frames.put(MAGIC)
        self._thread = threading.Thread(target=self._run, name="trace", daemon=True)
        self._thread.start()

    def write(self, frame: bytes) -> None:
        self.num_bytes += len(frame)
        self._frames.put(frame)

    def close(self) -> None:
        """What was written is in the file when this returns, unless the disk hangs or has failed."""
        self._frames.put(None)
        self._thread.join(CLOSE_LIMIT_S)

    def _run(self) -> None:
        try:
            while (frame := self._frames.get()) is not None:
                self._write(frame)
        except OSError as error:
            self.error = error.strerror or str(error)
        finally:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)

    def _write(self, frame: bytes) -> None:
        rest = memoryview(frame)
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]
