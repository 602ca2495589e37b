"""All checks of one SDK, in whatever environment this runs: one JSON line each.

    python -m tests.sdks.small_environment openai|anthropic URL KEY

It needs the SDK and the standard library only.
"""

import asyncio
import importlib
import json
import sys
import traceback
from collections.abc import Awaitable, Callable
from typing import Any

from tests.sdks.either import Absent, entered

CHECK_LIMIT_S = 60


async def outcome_of(check: Callable[[Any], Awaitable[None]], client: Any) -> str:
    try:
        async with asyncio.timeout(CHECK_LIMIT_S):
            await check(client)
    except Absent:
        return "absent"
    except Exception:
        traceback.print_exc()
        return "FAIL"
    return "ok"


async def main(sdk: str, url: str, key: str) -> None:
    room = importlib.import_module(f"tests.sdks.{sdk}_checks")
    for mode, make in room.clients(url, key).items():
        async with entered(make()) as client:
            for check in room.CHECKS:
                print(json.dumps([check.__name__, mode, await outcome_of(check, client)]), flush=True)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
