"""The line that shows how far a load is: a bar on a terminal, nothing elsewhere.

It asks nobody; it is shown what control says.
"""

import sys
from types import TracebackType
from typing import Any

from control.wire import EngineView


class LoadProgressLine:
    def __init__(self) -> None:
        self._bar: Any = None
        self._task: Any = None

    def __enter__(self) -> "LoadProgressLine":
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                DownloadColumn(),
                TimeElapsedColumn(),
            )
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.start()
            self._task = self._bar.add_task("starting", total=None)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def show(self, engine: EngineView) -> None:
        if self._bar is None:
            return
        load = engine.load
        total = load.bytes_total if load is not None and load.bytes_total else None
        name = engine.wanted_model or "model"
        self._bar.update(
            self._task,
            description=f"{_what_happens(engine)} {name}",
            total=total,
            completed=0 if load is None else load.bytes_read,
        )


def _what_happens(engine: EngineView) -> str:
    """A model that is on its way while nothing makes way for it yet is being downloaded."""
    is_downloading = engine.state in ("ready", "unloaded") and engine.wanted_model != engine.model_name
    return "downloading" if is_downloading else engine.state
