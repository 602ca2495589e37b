"""The switch of the trace: it begins one while the engine serves, and ends it when it is told to, full or broken.

It knows the index only as a value; what is told is in `recorder`, how it lies on disk in `events`. Worker thread only.
"""

import logging
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from engine.blocks import BLOCK_TOKENS
from engine.trace.events import IndexState
from engine.trace.file import TraceFile
from engine.trace.recorder import NO_RECORDER, Recorder, TraceRecorder
from engine.wire import TraceEnd, TraceStatus

logger = logging.getLogger(__name__)

LARGEST_BYTES: Final = 256 * 2**20
"""Some 30 million blocks: weeks of agents at work."""
SALT_BYTES: Final = 32
NAME_LENGTH: Final = 60

StateOf = Callable[[Callable[[bytes], bytes], Callable[[str], str]], IndexState]
"""The index's state, under the names that the two functions give to blocks and requests."""


class Tracing:
    """At most one trace at a time; `status` is what GET /status says of it. `folder` None: there is no place."""

    def __init__(
        self, folder: Path | None, *, largest_bytes: int = LARGEST_BYTES, wall: Callable[[], float] = time.time
    ) -> None:
        self._folder = folder
        self._largest_bytes = largest_bytes
        self._wall = wall
        self._file: TraceFile | None = None
        self._recorder: TraceRecorder | None = None
        self._attach: Callable[[Recorder], None] = lambda _: None
        self._status = TraceStatus(is_on=False)

    @property
    def status(self) -> TraceStatus:
        if self._file is None:
            return self._status
        return replace(self._status, num_bytes=self._file.num_bytes)

    def start(
        self,
        *,
        model: str,
        needs_snapshots: bool,
        pool_bytes: int,
        state_of: StateOf,
        attach: Callable[[Recorder], None],
    ) -> TraceStatus:
        """`attach` makes the prefix cache tell a recorder from now on. One that is being written goes on.

        A file that can't be made is said in the status.
        """
        if self._file is not None:
            return self.status
        if self._folder is None:
            self._status = TraceStatus(is_on=False, error="there is no folder for traces")
            return self._status
        began_at_s = self._wall()
        name = f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime(began_at_s))}-{_plain(model)}.trace"
        try:
            self._file = TraceFile(self._folder / name)
        except OSError as error:
            self._status = TraceStatus(is_on=False, error=f"{name} can't be written: {error.strerror}")
            logger.warning("trace not begun file=%s reason=%s", name, error.strerror)
            return self._status
        self._status = TraceStatus(is_on=True, file=name, began_at_s=began_at_s)
        self._recorder = recorder = TraceRecorder(self._write, salt=secrets.token_bytes(SALT_BYTES))
        recorder.opened(
            model=model,
            needs_snapshots=needs_snapshots,
            block_tokens=BLOCK_TOKENS,
            pool_bytes=pool_bytes,
            state=state_of(recorder.key_of, recorder.owner_of),
        )
        self._attach = attach
        attach(recorder)
        logger.info("trace begun file=%s", name)
        return self.status

    def stop(self, reason: TraceEnd = "stopped") -> TraceStatus:
        """End the file, whole. Harmless when there is none."""
        file, recorder = self._file, self._recorder
        if file is None or recorder is None:
            return self._status
        self._attach(NO_RECORDER)
        self._recorder = None  # from here on nothing ends the trace again
        recorder.closed(reason)
        file.close()
        self._status = replace(self._status, is_on=False, num_bytes=file.num_bytes, error=file.error, ended=reason)
        self._file = None
        logger.info("trace ended file=%s bytes=%d reason=%s", file.path.name, file.num_bytes, reason)
        return self._status

    def _write(self, frame: bytes) -> None:
        file = self._file
        assert file is not None, "a recorder is attached only while there is a file"
        file.write(frame)
        if self._recorder is not None and file.error is not None:
            self.stop("broken")
        elif self._recorder is not None and file.num_bytes > self._largest_bytes:
            self.stop("full")


def _plain(name: str) -> str:
    """As a part of a file's name."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")[:NAME_LENGTH] or "model"
