"""How long a warm start takes: control and console answering, and the demo's first token, counted from `splash up`.

Warm: the environment, the home and MLX's compiled kernels exist. It starts a Splash of its own and ends it.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import httpx

from benchmarks.report import Measurement, run

SPLASH = Path(sys.executable).parent / "splash"
PORTS = {
    "SPLASH_API_PORT": 38888,
    "SPLASH_ADMIN_PORT": 38084,
    "SPLASH_CONSOLE_PORT": 38082,
    "SPLASH_ENGINE_PORT": 38081,
}
ANSWER_TARGET_S = 3.0
FIRST_TOKEN_TARGET_S = 10.0
PATIENCE_S = 120.0


def answering_after(port: int, began_at: float, found: dict[int, float]) -> None:
    """Put into `found` how many seconds after `began_at` the port's /healthz answered."""
    while time.monotonic() - began_at < PATIENCE_S:
        try:
            if httpx.get(f"http://127.0.0.1:{port}/healthz", trust_env=False, timeout=1).status_code == 200:
                found[port] = time.monotonic() - began_at
                return
        except httpx.TransportError:
            time.sleep(0.02)


def first_token_after(api: str, key: str, began_at: float) -> float:
    body = {"model": "default", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 4, "stream": True}
    headers = {"Authorization": f"Bearer {key}"}
    with httpx.stream("POST", f"{api}/chat/completions", json=body, headers=headers, timeout=PATIENCE_S) as answer:
        for line in answer.iter_lines():
            if '"delta":{"content"' in line:
                return time.monotonic() - began_at
    raise RuntimeError("the stream ended without a token")


def start_once(environment: dict[str, str], key: str | None) -> tuple[dict[str, float], str]:
    """One start and its end. Returns seconds by what was waited for, and the key."""
    found: dict[int, float] = {}
    began_at = time.monotonic()
    watched = [PORTS["SPLASH_API_PORT"], PORTS["SPLASH_CONSOLE_PORT"]]
    watchers = [threading.Thread(target=answering_after, args=(port, began_at, found)) for port in watched]
    for watcher in watchers:
        watcher.start()
    done = subprocess.run(
        [SPLASH, "up", "--json", "--no-open"], env=environment, capture_output=True, text=True, check=True
    )
    ready_s = time.monotonic() - began_at
    answer = json.loads(done.stdout)
    key = answer.get("key", key)
    first_token_s = first_token_after(answer["api"], key, began_at)
    for watcher in watchers:
        watcher.join()
    subprocess.run([SPLASH, "quit"], env=environment, capture_output=True, check=True)
    control_s, console_s = (found[port] for port in watched)
    return {"control_s": control_s, "console_s": console_s, "ready_s": ready_s, "first_token_s": first_token_s}, key


def measure(is_quick: bool) -> Measurement:
    with tempfile.TemporaryDirectory() as folder:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("SPLASH_")}
        environment = inherited | {name: str(port) for name, port in PORTS.items()} | {"SPLASH_HOME": folder}
        first, key = start_once(environment, None)
        warm = [start_once(environment, key)[0] for _ in range(2 if is_quick else 5)]
    medians = {name: round(statistics.median(start[name] for start in warm), 2) for name in warm[0]}
    worst_answer_s = max(medians["control_s"], medians["console_s"])
    detail = medians | {
        "first_start": {name: round(seconds, 2) for name, seconds in first.items()},
        "num_warm_starts": len(warm),
        "answer_target_s": ANSWER_TARGET_S,
        "answer_ok": worst_answer_s <= ANSWER_TARGET_S,
    }
    return Measurement("startup", medians["first_token_s"], "s", FIRST_TOKEN_TARGET_S, "lower", detail)


if __name__ == "__main__":
    run(measure, __doc__ or "")
