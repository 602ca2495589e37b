"""A relay that only relays: httpx in, uvicorn out, on uvloop and httptools. What the gateway is held against.

    python benchmarks/gateway_relay.py PORT ENGINE_PORT ENGINE_SECRET

It passes /generate on to the engine's door and the bytes back, as they come; it reads none of them.
"""

import sys

import httpx
import uvicorn


class BareRelay:
    def __init__(self, engine_port: int, secret: str) -> None:
        self._http = httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{engine_port}",
            headers={"authorization": f"Bearer {secret}"},
            trust_env=False,
            timeout=None,
        )

    async def __call__(self, scope, receive, send) -> None:
        body, is_more = b"", True
        while is_more:
            message = await receive()
            body, is_more = body + message.get("body", b""), message.get("more_body", False)
        async with self._http.stream("POST", scope["path"], content=body) as answer:
            await send({"type": "http.response.start", "status": answer.status_code, "headers": []})
            async for chunk in answer.aiter_raw():
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


if __name__ == "__main__":
    port, engine_port, engine_secret = sys.argv[1:]
    relay = BareRelay(int(engine_port), engine_secret)
    uvicorn.run(
        relay,
        host="127.0.0.1",
        port=int(port),
        loop="uvloop",
        http="httptools",
        lifespan="off",
        ws="none",
        log_config=None,
        access_log=False,
    )
