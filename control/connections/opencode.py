"""opencode: a provider of its own in opencode.json, and that it is used.

Measured with 1.18.33, whose own limits are 300 s to the headers and 300 s between two chunks.
"""

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from control.connections.connection import Client, ConfigFile, ConfigInvalid, Connection, no_environment
from control.connections.merging import json_object, json_text

SCHEMA: Final = "https://opencode.ai/config.json"
PROVIDER: Final = "splash"
# An alias of the gateway for whatever is loaded, so that it outlives a switch of models.
MODEL: Final = "default"
FILE_NAME: Final = "opencode.json"
# opencode reads it after the other, so that what it says holds.
COMMENTED_FILE_NAME: Final = "opencode.jsonc"
_TEXT_OR_COMMENT: Final = re.compile(r'("(?:[^"\\\n]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_TEXT_OR_SPARE_COMMA: Final = re.compile(r'("(?:[^"\\\n]|\\.)*")|,(?=\s*[}\]])')


def path(variables: Mapping[str, str], home: Path) -> Path:
    folder = variables.get("XDG_CONFIG_HOME")
    ours = (Path(folder) if folder else home / ".config") / "opencode"
    commented = ours / COMMENTED_FILE_NAME
    return commented if os.access(commented, os.F_OK) else ours / FILE_NAME


def merged(text: str, connection: Connection) -> str:
    config = _config(text)
    config.setdefault("$schema", SCHEMA)
    config["model"] = f"{PROVIDER}/{MODEL}"
    provider = _object(_object(config, "provider"), PROVIDER)
    provider |= {"npm": "@ai-sdk/openai-compatible", "name": "Splash"}
    _object(provider, "options").update(
        baseURL=connection.api_base, apiKey=connection.key, timeout=False, headerTimeout=False, chunkTimeout=False
    )
    model = _object(_object(provider, "models"), MODEL)
    model.setdefault("name", "The loaded model")
    if connection.context_tokens is not None:
        model["limit"] = {"context": connection.context_tokens, "output": connection.output_tokens}
    return json_text(config)


def key_in(text: str) -> str | None:
    provider = _object(_object(_config(text), "provider"), PROVIDER)
    key = _object(provider, "options").get("apiKey")
    return key if isinstance(key, str) else None


def _config(text: str) -> dict[str, Any]:
    """Raises ConfigInvalid: for what opencode reads and JSON lacks, too, since it would be lost."""
    try:
        return json_object(text)
    except ConfigInvalid:
        json_object(_TEXT_OR_SPARE_COMMA.sub(_text, _TEXT_OR_COMMENT.sub(_text, text)))
    raise ConfigInvalid(
        "has comments or spare commas, which can't be kept; add what `splash connect opencode` prints by hand"
    )


def _text(match: re.Match[str]) -> str:
    """A comment is as good as a space, and a text is left as it is."""
    return match[1] or " "


def _object(parent: dict[str, Any], name: str) -> dict[str, Any]:
    """The object of that name, put there when it is missing. Raises ConfigInvalid when it is something else."""
    found = parent.setdefault(name, {})
    if not isinstance(found, dict):
        raise ConfigInvalid(f'has a "{name}" that is not an object')
    return found


OPENCODE: Final = Client(
    name="opencode",
    title="opencode",
    file=ConfigFile(path=path, merged=merged, key_in=key_in),
    environment=no_environment,
)
