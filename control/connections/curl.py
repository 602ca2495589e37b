"""curl: one request, to see that the gateway answers. It has no config, and reads no key from the environment."""

import json
import shlex
from typing import Final

from control.connections.connection import Client, Connection, no_environment

# Few tokens: the demo's random weights never stop by themselves.
BODY: Final = {"model": "default", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}


def command(connection: Connection) -> str:
    words = (
        f"curl {connection.api_base}/chat/completions",
        f"-H {shlex.quote('Content-Type: application/json')}",
        f'-H "Authorization: Bearer {connection.key}"',
        f"-d {shlex.quote(json.dumps(BODY))}",
    )
    return " \\\n  ".join(words)


CURL: Final = Client(name="curl", title="curl", file=None, environment=no_environment, command=command)
