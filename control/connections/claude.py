"""Claude Code: the `env` block of its settings.json, the same variables that a shell can set.

Measured with 2.1.332. It knows no other part of that file.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from control.connections.connection import LONG_WAIT_MS, Client, ConfigFile, ConfigInvalid, Connection
from control.connections.merging import json_object, json_text

# A `claude-…` name that Claude Code does not know: for those it knows it ignores CLAUDE_CODE_MAX_CONTEXT_TOKENS.
# The gateway's pattern `claude-*` answers it with whatever is loaded, so that it outlives a switch of models.
MODEL: Final = "claude-splash"
BACKGROUND_MODEL: Final = "claude-haiku-splash"
# System prompt and tools, as the demo's tokenizer counts them.
FIRST_PROMPT_TOKENS: Final = 21_000
KEY_VARIABLE: Final = "ANTHROPIC_AUTH_TOKEN"


def environment(connection: Connection) -> dict[str, str]:
    values = {
        "ANTHROPIC_BASE_URL": connection.origin,
        KEY_VARIABLE: connection.key,
        "ANTHROPIC_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_OPUS_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_SONNET_MODEL": MODEL,
        "ANTHROPIC_DEFAULT_HAIKU_MODEL": BACKGROUND_MODEL,
        "API_TIMEOUT_MS": str(LONG_WAIT_MS),
        "CLAUDE_STREAM_IDLE_TIMEOUT_MS": str(LONG_WAIT_MS),
    }
    if connection.context_tokens is not None:
        values["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] = str(connection.context_tokens)
        values["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] = str(connection.output_tokens)
    return values


def path(variables: Mapping[str, str], home: Path) -> Path:
    folder = variables.get("CLAUDE_CONFIG_DIR")
    return (Path(folder) if folder else home / ".claude") / "settings.json"


def merged(text: str, connection: Connection) -> str:
    settings = json_object(text)
    settings["env"] = _variables(settings) | environment(connection)
    return json_text(settings)


def key_in(text: str) -> str | None:
    key = _variables(json_object(text)).get(KEY_VARIABLE)
    return key if isinstance(key, str) else None


def _variables(settings: dict[str, Any]) -> dict[str, Any]:
    variables = settings.get("env", {})
    if not isinstance(variables, dict):
        raise ConfigInvalid('has an "env" that is not an object')
    return variables


CLAUDE: Final = Client(
    name="claude",
    title="Claude Code",
    file=ConfigFile(path=path, merged=merged, key_in=key_in),
    environment=environment,
    first_prompt_tokens=FIRST_PROMPT_TOKENS,
)
