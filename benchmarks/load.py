"""How fast weights are loaded, against a plain sequential read of the same files, and that an exit gives all back.

It writes a model of random weights into the temporary folder, so that folder's disk is what is measured. The target is
for cold files; from the page cache a plain read copies only, and a load needs new memory too, so that is only told.
The value is the smaller of two ratios, of medians and of the fastest runs: neighbours on the machine only slow down.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from safetensors.numpy import save_file

from benchmarks.report import ROOT, Measurement, run

RATIO_TARGET = 0.8
LEFT_BEHIND_TARGET = 0.05
COLD_SHARE = 0.95
NUM_LAYERS = 24  # 2.1 GiB
NUM_QUICK_LAYERS = 12
LAYERS_PER_FILE = 6
CHUNK_BYTES = 16 * 2**20
KINDS_OF_LOAD = ("cold_load", "warm_load")

CONFIG = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "vocab_size": 32_000,
    "max_position_embeddings": 32_768,
    "tie_word_embeddings": True,
}
MATRICES = {
    "self_attn.q_proj": (2048, 2048),
    "self_attn.k_proj": (512, 2048),
    "self_attn.v_proj": (512, 2048),
    "self_attn.o_proj": (2048, 2048),
    "mlp.gate_proj": (5632, 2048),
    "mlp.up_proj": (5632, 2048),
    "mlp.down_proj": (2048, 5632),
}

# Both kinds of run begin alike, so that a disk with a budget has had the same rest. Says how long it took and what came
# from the disk, holds what it has until its input ends, and exits.
CHILD = """
import json, os, sys
from pathlib import Path
import psutil
from benchmarks.load import bytes_from_disk, seconds_of_load, seconds_of_read
from engine.model.loader import load
before_bytes = bytes_from_disk()
seconds, loaded = (seconds_of_load if sys.argv[1] == "load" else seconds_of_read)(Path(sys.argv[2]))
said = {"seconds": seconds, "disk_bytes": bytes_from_disk() - before_bytes}
print(json.dumps(said | {"held_bytes": psutil.Process().memory_info().rss}), flush=True)
sys.stdin.read()
os._exit(0)
"""


@dataclass(frozen=True, slots=True)
class Run:
    """`disk_share` is the part of the bytes that the disk was asked for; 1.0: cold."""

    bytes_per_s: float
    disk_share: float
    left_behind_share: float


def write_model(folder: Path, num_layers: int) -> None:
    (folder / "config.json").write_text(json.dumps(CONFIG | {"num_hidden_layers": num_layers}))
    rng = np.random.default_rng(0)

    def weights(*shape: int) -> np.ndarray[Any, np.dtype[np.float16]]:
        return np.frombuffer(rng.bytes(2 * int(np.prod(shape))), dtype=np.float16).reshape(shape)

    ends = {"model.embed_tokens.weight": weights(32_000, 2048), "model.norm.weight": weights(2048)}
    save_file(ends, folder / "model-ends.safetensors")
    for first in range(0, num_layers, LAYERS_PER_FILE):
        tensors = {}
        for layer in range(first, min(first + LAYERS_PER_FILE, num_layers)):
            for name, shape in MATRICES.items():
                tensors[f"model.layers.{layer}.{name}.weight"] = weights(*shape)
            for name in ("input_layernorm", "post_attention_layernorm"):
                tensors[f"model.layers.{layer}.{name}.weight"] = weights(2048)
        save_file(tensors, folder / f"model-{first:03d}.safetensors")
    os.sync()


def weight_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def forget(folder: Path) -> None:
    """Ask the system to drop the files from its page cache, where it can be asked."""
    if hasattr(os, "posix_fadvise"):
        for file in weight_files(folder):
            with file.open("rb") as stream:
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def bytes_from_disk() -> int:
    """What this process made the disk read so far; 0 where the system does not tell."""
    process = psutil.Process()
    return int(process.io_counters().read_bytes) if hasattr(process, "io_counters") else 0


def used_bytes() -> int:
    """Memory in use by programs. Linux's own count of free memory lags behind: it leaves pages in lists of each CPU."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return int(psutil.virtual_memory().used)
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("AnonPages:"))


def seconds_of_read(folder: Path) -> tuple[float, None]:
    """Read all files from begin to end into the same buffer."""
    buffer, began_at = bytearray(CHUNK_BYTES), time.monotonic()
    for file in weight_files(folder):
        with file.open("rb", buffering=0) as stream:
            while stream.readinto(buffer):
                pass
    return time.monotonic() - began_at, None


def seconds_of_load(folder: Path) -> tuple[float, Any]:
    """Also returns the weights, for the caller to hold."""
    from engine.model.loader import load

    loaded = load(folder, lambda done, total: None)
    return loaded.read_seconds, loaded


def run_once(kind: str, folder: Path) -> Run:
    """Read or load in a process of its own, and let it exit."""
    before_bytes = used_bytes()
    child = [sys.executable, "-c", CHILD, kind, str(folder)]
    said = json.loads(subprocess.run(child, cwd=ROOT, input="", capture_output=True, text=True, check=True).stdout)
    num_bytes = sum(file.stat().st_size for file in weight_files(folder))
    return Run(
        num_bytes / said["seconds"],
        said["disk_bytes"] / num_bytes,
        (used_bytes() - before_bytes) / said["held_bytes"],
    )


def round_of(folder: Path, is_load_first: bool) -> dict[str, Run]:
    """One cold and one warm run of each kind; who goes first changes."""
    found = {}
    for kind in ("load", "read") if is_load_first else ("read", "load"):
        forget(folder)
        found[f"cold_{kind}"] = run_once(kind, folder)
        found[f"warm_{kind}"] = run_once(kind, folder)
    return found


def smaller_ratio(loads: list[float], reads: list[float]) -> float:
    return min(statistics.median(loads) / statistics.median(reads), max(loads) / max(reads))


def measure(is_quick: bool) -> Measurement:
    load_average = round(os.getloadavg()[0], 1)
    with tempfile.TemporaryDirectory(prefix="splash-load-") as name:
        folder = Path(name)
        write_model(folder, NUM_QUICK_LAYERS if is_quick else NUM_LAYERS)
        num_bytes = sum(file.stat().st_size for file in weight_files(folder))
        rounds = [round_of(folder, bool(number % 2)) for number in range(3 if is_quick else 8)]
    speeds = {kind: [found[kind].bytes_per_s / 1e9 for found in rounds] for kind in rounds[0]}
    disk_shares = [found[kind].disk_share for found in rounds for kind in ("cold_read", "cold_load")]
    left_behind = statistics.median(found[kind].left_behind_share for found in rounds for kind in KINDS_OF_LOAD)
    detail: dict[str, Any] = {
        "model_gb": round(num_bytes / 1e9, 2),
        "warm_ratio": round(smaller_ratio(speeds["warm_load"], speeds["warm_read"]), 2),
        "is_cold": min(disk_shares) >= COLD_SHARE,
        "left_behind_share": round(left_behind, 3),
        "left_behind_ok": left_behind <= LEFT_BEHIND_TARGET,
        "load_average_before": load_average,
    }
    detail |= {f"{kind}_gb_per_s": [round(speed, 2) for speed in values] for kind, values in speeds.items()}
    ratio = smaller_ratio(speeds["cold_load"], speeds["cold_read"])
    return Measurement("load", ratio, "ratio", RATIO_TARGET, "higher", detail)


if __name__ == "__main__":
    run(measure, __doc__ or "")
