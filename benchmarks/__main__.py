"""Runs every benchmark of this folder, one after the other. It measures nothing itself."""

import subprocess
import sys
from pathlib import Path

NOT_BENCHMARKS = {
    "__init__",
    "__main__",
    "bare",
    "chromium",
    "gateway_client",
    "gateway_engine",
    "gateway_relay",
    "gateway_stack",
    "model_folder",
    "models",
    "report",
    "streams",
    "workload",
}


def main() -> None:
    names = sorted(path.stem for path in Path(__file__).parent.glob("*.py") if path.stem not in NOT_BENCHMARKS)
    missed = [
        name for name in names if subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *sys.argv[1:]]).returncode
    ]
    if missed:
        sys.exit(f"missed or failed: {', '.join(missed)}")


if __name__ == "__main__":
    main()
