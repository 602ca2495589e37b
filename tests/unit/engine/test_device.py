"""What is asked of a GPU, by a stand-in for MLX: the branches that no machine here runs."""

from types import SimpleNamespace

import pytest

from engine import device
from engine.wire import DeviceStatus


class Machine:
    """Stands where `mlx.core` stands; remembers the limit that was set."""

    def __init__(self, *, metal=False, cuda=False, **info):
        self.metal = SimpleNamespace(is_available=lambda: metal)
        self.cuda = SimpleNamespace(is_available=lambda: cuda)
        self.wired_bytes = None
        self._info = info

    def device_info(self):
        return self._info

    def set_wired_limit(self, num_bytes):
        self.wired_bytes = num_bytes


@pytest.mark.parametrize(
    ("kind", "machine", "working_set_bytes", "free_gpu_bytes", "wired_bytes"),
    [
        ("metal", Machine(metal=True, max_recommended_working_set_size=96), 96, None, 96),
        ("cuda", Machine(cuda=True, free_memory=80), 80, 80, None),
        ("cpu", Machine(), None, None, None),
    ],
    ids=["metal", "cuda", "cpu"],
)
def test_metal_wires_its_working_set_and_others_wire_nothing(
    monkeypatch, kind, machine, working_set_bytes, free_gpu_bytes, wired_bytes
):
    monkeypatch.setattr(device, "mx", machine)

    device.keep_resident()

    assert device.working_set_bytes() == working_set_bytes
    assert device.free_gpu_bytes() == free_gpu_bytes
    assert machine.wired_bytes == wired_bytes
    assert device.device_status() == DeviceStatus(kind=kind, working_set_bytes=working_set_bytes)
