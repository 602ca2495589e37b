"""How this process is found: the launch file it starts from, the port it binds, the record it leaves in SPLASH_HOME.

It starts no server and knows no model.
"""

import os
import socket
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Final

import msgspec
import psutil

from engine.errors import PortTaken, Refused
from engine.wire import Launch, ProcessRecord

LOOPBACK: Final = "127.0.0.1"
_BACKLOG: Final = 128
_LARGEST_PORT: Final = 65_535
_SMALLEST_GAP_MS: Final = 50.0  # below it, prompts are cut so small that most of the time goes into starting slices
_LARGEST_GAP_MS: Final = 10_000.0
_LARGEST_SHARE: Final = 0.9
KV_BITS: Final = (None, 8, 4)
_LARGEST_CONCURRENCY: Final = 1024  # streams; far beyond what a step of any machine is good for


def read_launch(home: Path) -> Launch:
    """Raises Refused when there is no launch file, or when it can't be understood; its content is never shown."""
    file = home / "secrets" / "engine.json"
    try:
        launch = msgspec.json.decode(file.read_bytes(), type=Launch)
    except OSError as error:
        raise Refused(f"the launch file {file} cannot be read: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise Refused(f"the launch file {file} cannot be understood") from error
    for name, value, least, most in (
        ("port", launch.port, 0, _LARGEST_PORT),
        ("concurrency", launch.concurrency, 1, _LARGEST_CONCURRENCY),
        ("max_gap_ms", launch.max_gap_ms, _SMALLEST_GAP_MS, _LARGEST_GAP_MS),
        ("decode_share", launch.decode_share, 0.0, _LARGEST_SHARE),
    ):
        if not least <= value <= most:
            raise Refused(f"the launch file {file} says {name} {value}: it must be from {least} to {most}")
    if launch.kv_bits not in KV_BITS:
        raise Refused(f"the launch file {file} says kv_bits {launch.kv_bits}: it must be 8 or 4, or be left out")
    return launch


def bind(port: int) -> socket.socket:
    """Listen on the loopback address. Raises PortTaken, naming the holder where the system tells."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        raise PortTaken(port=port, holder=_holder(port)) from error
    listener.setblocking(False)
    return listener


def write_record(home: Path, launch: Launch, port: int) -> ProcessRecord:
    """Say who this process is, before it does anything else. The file appears whole, readable by its owner only."""
    created_at_s = psutil.Process().create_time()
    record = ProcessRecord(
        name="engine",
        pid=os.getpid(),
        created_at_s=created_at_s,
        nonce=launch.nonce,
        port=port,
        manager="control",
        started_at_s=time.time(),
        version=_version(),
        # Linux adds the boot time to what the kernel keeps, and that moves when the clock is set.
        created_after_boot_s=created_at_s - psutil.boot_time() if psutil.LINUX else None,
    )
    file = _record_file(home)
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
    with os.fdopen(handle, "wb") as stream:
        stream.write(msgspec.json.encode(record))
    Path(temporary).replace(file)
    return record


def remove_record(home: Path, record: ProcessRecord) -> None:
    """Remove our record, not one that a successor has written meanwhile."""
    file = _record_file(home)
    try:
        found = msgspec.json.decode(file.read_bytes(), type=ProcessRecord)
    except (OSError, msgspec.DecodeError):
        return
    if (found.pid, found.nonce) == (record.pid, record.nonce):
        file.unlink(missing_ok=True)


def _record_file(home: Path) -> Path:
    return home / "run" / "engine.json"


def _version() -> str:
    try:
        return version("splash-server")
    except PackageNotFoundError:
        return "unknown"


def _holder(port: int) -> str | None:
    """`pid 123 (command)`. Processes of other users show nothing."""
    for process in psutil.process_iter():
        try:
            connections = process.net_connections(kind="tcp")
            if any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections):
                return f"pid {process.pid} ({' '.join(process.cmdline()) or process.name()})"
        except psutil.Error:
            continue
    return None
