"""One room of the admin API behind its guard, with the secret in hand; nothing else of control."""

from contextlib import asynccontextmanager

import httpx
import msgspec
from starlette.applications import Starlette

from control import wire
from control.admin.edge import HANDLERS, Guard

SECRET, PORT = "the admin secret", 18084


@asynccontextmanager
async def served(room):
    app = Guard(Starlette(routes=room.routes(), exception_handlers=HANDLERS), secret=SECRET, port=PORT)
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app=app),
        base_url=f"http://127.0.0.1:{PORT}",
        headers={"authorization": f"Bearer {SECRET}", "content-type": "application/json"},
    ) as client:
        yield client


async def asked(client, path, kind):
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=kind)


async def refusal(client, path) -> tuple[int, str, str]:
    answer = await client.get(path)
    error = msgspec.json.decode(answer.content, type=wire.AdminError)
    return answer.status_code, error.code, error.message
