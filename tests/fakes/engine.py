"""The scripted engine: a program that stands for `python -m engine`, on the same door, without a model.

    python tests/fakes/engine.py [--script FILE] --home DIR

It starts from the same launch file, leaves the same record, needs the same secret and ends by the same means; what it
answers is in the script (`tests.fakes.script`). It honours `id` and `max_tokens`; sampling, stop strings and tools are
checked as in the real engine, and then ignored. It answers `plan` and `models` too, with one scripted model that fits.
"""

import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # Python puts this file's folder first, where this very file is called `engine`; the root belongs there.
    sys.path[0] = str(Path(__file__).resolve().parents[2])
    from tests.fakes.scripted_engine import main

    code = main()
    sys.stdout.flush()
    os._exit(code)
