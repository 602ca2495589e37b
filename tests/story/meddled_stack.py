"""A whole Splash whose processes can be made to hang, and whose clock can be set, without a hook in the product."""

import os
import signal
from pathlib import Path

from control.home import ProcessName
from engine.wire import ProcessRecord
from tests.story.stack import ROOT, Stack

MEDDLING = ROOT / "tests" / "fakes" / "meddling"


class MeddledStack(Stack):
    """`told` is a new folder with what they are told; `limits`: `linger` and `silence` of control, in seconds."""

    def __init__(self, folder: Path, *, engine_command: str, told: Path, **limits: float) -> None:
        super().__init__(folder, engine_command=engine_command)
        self.told = told
        told.mkdir()
        for name, seconds in limits.items():
            (told / name).write_text(str(seconds))

    @property
    def environment(self) -> dict[str, str]:
        return super().environment | {"PYTHONPATH": str(MEDDLING), "MEDDLING": str(self.told)}

    def set_clock_off(self, seconds: float) -> None:
        """Every process sees it that started since the first call; also those that run."""
        draft = self.told / "clock.new"
        draft.write_text(str(seconds))
        draft.replace(self.told / "clock")

    def hang(self, name: ProcessName) -> ProcessRecord:
        """From now its event loop stands still; it lives and its port takes connections."""
        record = self.record(name)
        os.kill(record.pid, signal.SIGUSR2)
        return record
