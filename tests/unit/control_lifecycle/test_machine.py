"""The machine's figures: grouped programs, rates between two samples, one sample for many, and real processes."""

import asyncio
import ctypes
import os
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from control import wire
from control.admin.machine import MachineApi
from control.machine import disk_bytes as disk_bytes_room
from control.machine.disk_bytes import DiskBytes, disk_bytes
from control.machine.heat import heat
from control.machine.mac_disk_bytes import RusageInfoV4
from control.machine.mac_thermal_pressure import mac_thermal_pressure
from control.machine.programs import MOST_SHOWN, Seen, all_processes, largest_users
from control.machine.sampler import FRESH_S, LONGEST_RATE_S, MachineSampler
from control.wire import Machine, MemoryUser, ProcessRecord
from tests.unit.control_lifecycle.rooms import asked, served

MIB = 2**20


def record_of(pid: int, name: str = "engine", *, seconds_off: float = 0.0) -> ProcessRecord:
    return ProcessRecord(
        name=name,
        pid=pid,
        created_at_s=psutil.Process(pid).create_time() + seconds_off,
        nonce="n",
        port=1,
        manager="test",
        started_at_s=0.0,
        version="0",
    )


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_two_thousand_orphans_are_one_line_with_their_number_and_their_sum():
    orphans = [Seen(pid=1_000 + number, parent_pid=1, name="orphan", resident_bytes=9 * MIB) for number in range(1_966)]
    editor = Seen(pid=7, parent_pid=1, name="editor", resident_bytes=500 * MIB)

    users = largest_users([editor, *orphans], our_pids=())

    assert users[0] == MemoryUser(name="orphan", num_processes=1_966, resident_bytes=1_966 * 9 * MIB, is_ours=False)
    assert users[1].name == "editor"


def test_what_is_ours_and_what_it_started_is_one_group_apart_from_others_of_that_name():
    seen = [
        Seen(pid=10, parent_pid=1, name="python3", resident_bytes=5),
        Seen(pid=11, parent_pid=10, name="python3", resident_bytes=6),
        Seen(pid=12, parent_pid=11, name="sh", resident_bytes=7),
        Seen(pid=20, parent_pid=1, name="python3", resident_bytes=8),
    ]

    users = largest_users(seen, our_pids=(10, 99))

    assert users == (
        MemoryUser(name="Splash", num_processes=3, resident_bytes=18, is_ours=True),
        MemoryUser(name="python3", num_processes=1, resident_bytes=8, is_ours=False),
    )


def test_only_the_largest_are_shown_and_the_kernels_own_threads_never():
    seen = [Seen(pid=number, parent_pid=0, name=f"p{number}", resident_bytes=number) for number in range(20)]

    users = largest_users(seen, our_pids=())

    assert [user.resident_bytes for user in users] == list(range(19, 19 - MOST_SHOWN, -1))
    assert largest_users([Seen(pid=2, parent_pid=0, name="kthreadd", resident_bytes=0)], our_pids=()) == ()


async def test_however_many_ask_the_machine_is_looked_at_once_in_two_seconds():
    clock, looks = Clock(), []

    def processes():
        looks.append(threading.current_thread())
        return ()

    sampler = MachineSampler(tuple, processes=processes, monotonic=clock)
    await asyncio.gather(*(sampler.sample() for _ in range(20)))
    clock.now += FRESH_S - 0.1
    await sampler.sample()
    once = len(looks)
    clock.now += 0.1
    await sampler.sample()

    assert (once, len(looks)) == (1, 2)
    assert threading.main_thread() not in looks


async def test_who_leaves_takes_the_sample_from_nobody():
    may_end = threading.Event()

    def processes():
        may_end.wait(10)
        return ()

    sampler = MachineSampler(tuple, processes=processes)
    leaving, staying = asyncio.create_task(sampler.sample()), asyncio.create_task(sampler.sample())
    await asyncio.sleep(0)

    leaving.cancel()
    may_end.set()

    assert (await staying).num_processes == 0


@pytest.fixture
def counters(monkeypatch):
    """Cumulative figures that the test sets."""
    said = SimpleNamespace(swapped_in=0, read=0)
    swap = psutil.swap_memory()
    monkeypatch.setattr(psutil, "swap_memory", lambda: swap._replace(sin=said.swapped_in, sout=0))
    monkeypatch.setattr(
        "control.machine.sampler.disk_bytes", lambda pid: DiskBytes(read_bytes=said.read, written_bytes=0)
    )
    return said


@pytest.mark.parametrize(
    ("seconds", "grown", "rate"),
    [(5.0, 50 * MIB, 10 * MIB), (LONGEST_RATE_S, 0, 0), (LONGEST_RATE_S + 1, 50 * MIB, None), (5.0, -1, None)],
)
async def test_a_rate_is_what_a_counter_grew_since_the_last_sample(counters, seconds, grown, rate):
    clock = Clock()
    counters.swapped_in = counters.read = 100 * MIB
    sampler = MachineSampler(lambda: (record_of(os.getpid()),), processes=tuple, monotonic=clock)

    first = await sampler.sample()
    clock.now += seconds
    counters.swapped_in += grown
    counters.read += grown
    second = await sampler.sample()

    assert first.memory.swap_in_bytes_per_second is None
    assert first.processes[0].disk_read_bytes_per_second is None
    assert second.memory.swap_in_bytes_per_second == rate
    assert second.processes[0].disk_read_bytes_per_second == rate
    assert second.processes[0].disk_read_bytes == 100 * MIB + grown


async def test_a_pid_that_is_another_process_by_now_is_not_ours():
    records = (record_of(os.getpid(), seconds_off=60.0), msgspec.structs.replace(record_of(os.getpid()), pid=2**22 + 1))

    sample = await MachineSampler(lambda: records).sample()

    assert sample.processes == ()
    assert not any(user.is_ours for user in sample.users)


@pytest.fixture
def writer(tmp_path):
    """A process that holds 60 MiB and has written 8 MiB."""
    program = (
        "import os, sys, time; held = bytearray(60 * 2**20)\n"
        "handle = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)\n"
        "os.write(handle, bytes(8 * 2**20)); os.fsync(handle); print('ready', flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", program, tmp_path / "file"], stdout=subprocess.PIPE)
    assert process.stdout.readline() == b"ready\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


async def test_real_processes_are_seen_with_their_memory_and_their_disk(writer):
    ours = record_of(writer.pid)

    async with served(MachineApi(sampler=MachineSampler(lambda: (ours,)))) as client:
        sample = await asked(client, wire.MACHINE, Machine)

    (process,) = sample.processes
    assert (process.name, process.pid) == ("engine", writer.pid)
    assert process.resident_bytes >= 60 * MIB
    assert sample.num_processes > 1
    (user,) = (user for user in sample.users if user.is_ours)
    assert (user.num_processes, user.resident_bytes) == (1, process.resident_bytes)
    assert 0 < sample.memory.available_bytes < sample.memory.total_bytes
    assert sample.memory.used_bytes == sample.memory.total_bytes - sample.memory.available_bytes
    assert abs(sample.sampled_at_s - time.time()) < 60
    assert (process.disk_written_bytes is not None) == (sys.platform in ("linux", "darwin"))


def test_this_process_sees_itself_by_its_name():
    (ourselves,) = (seen for seen in all_processes() if seen.pid == os.getpid())

    assert ourselves.name == psutil.Process().name()
    assert ourselves.parent_pid == os.getppid()
    assert ourselves.resident_bytes > MIB


def test_a_process_that_is_gone_has_no_disk_bytes():
    assert disk_bytes(2**22 + 1) is None


def test_on_a_mac_its_own_library_is_asked():
    assert disk_bytes(1, platform="darwin", on_mac=lambda pid: (pid, 2)) == DiskBytes(1, 2)
    assert disk_bytes(1, platform="darwin", on_mac=lambda pid: None) is None
    assert heat(platform="darwin", on_mac=lambda: "heavy").pressure == "heavy"


@pytest.mark.skipif(sys.platform == "darwin", reason="a Mac has both")
def test_elsewhere_the_macs_libraries_are_missed_without_harm():
    assert disk_bytes_room.mac_disk_bytes(os.getpid()) is None
    assert mac_thermal_pressure() is None
    assert heat().pressure is None


def test_the_macs_structure_is_laid_out_as_its_header_says():
    """Source: <sys/resource.h>, struct rusage_info_v4: a UUID, and 35 numbers of 64 bits."""
    assert ctypes.sizeof(RusageInfoV4) == 16 + 35 * 8
    assert RusageInfoV4.ri_diskio_bytesread.offset == 16 + 16 * 8
    assert RusageInfoV4.ri_diskio_byteswritten.offset == 16 + 17 * 8
    assert RusageInfoV4.ri_logical_writes.offset == 16 + 27 * 8


def test_sensors_are_read_where_there_are_any(monkeypatch):
    reading = SimpleNamespace(label="Package", current=71.5)
    cold = SimpleNamespace(label="", current=30.0)
    fan = SimpleNamespace(label="left", current=2_140.0)
    monkeypatch.setattr(psutil, "sensors_temperatures", lambda: {"nvme": [cold], "coretemp": [reading]}, raising=False)
    monkeypatch.setattr(psutil, "sensors_fans", lambda: {"thinkpad": [fan]}, raising=False)

    found = heat()

    assert [(each.sensor, each.celsius) for each in found.temperatures] == [("coretemp Package", 71.5), ("nvme", 30.0)]
    assert [(each.name, each.rounds_per_minute) for each in found.fans] == [("thinkpad left", 2_140)]
