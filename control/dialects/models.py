"""GET /v1/models, and which names a request may use. Format: one body that OpenAI's and Anthropic's clients both read.

It knows the models of the engine source only: not what lies on the disk.
"""

from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from control.engine_client import EngineSource
from control.errors import UnknownModel
from engine.wire import ModelStatus

PATH: Final = "/v1/models"
# Clients that insist on a name of their vendor's are served by the model that is loaded.
ALIAS_PATTERNS: Final = ("default", "claude-*", "gpt-*", "codex-*")


def known_as(wanted_model: str) -> str:
    """A folder is known by its last name, a hub id as it is."""
    path = Path(wanted_model)
    return path.name if path.is_absolute() else wanted_model


def check_model(name: str, source: EngineSource) -> None:
    """Raises UnknownModel. While no model was ever seen, no name can be wrong: the request is answered for that."""
    known = _known_ids(source)
    if known and name not in known and not any(fnmatchcase(name, pattern) for pattern in ALIAS_PATTERNS):
        raise UnknownModel(name)


def model_list(source: EngineSource, *, now_s: float) -> dict[str, Any]:
    entries = _entries(source, now_s)
    ids = [entry["id"] for entry in entries]
    return {
        "object": "list",
        "data": entries,
        "has_more": False,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
    }


def model_entry(model_id: str, source: EngineSource, *, now_s: float) -> dict[str, Any]:
    """Raises UnknownModel. An alias is answered with the model that it stands for."""
    check_model(model_id, source)
    entries = _entries(source, now_s)
    for entry in entries:
        if entry["id"] == model_id:
            return entry
    if not entries:
        raise UnknownModel(model_id)
    return entries[0]


def _known_ids(source: EngineSource) -> set[str]:
    known = {source.model.id} if source.model is not None else set()
    if source.wanted_model is not None:
        known |= {source.wanted_model, known_as(source.wanted_model)}
    return known


def _entries(source: EngineSource, now_s: float) -> list[dict[str, Any]]:
    """The loaded model, else the last one; and the one on its way, which is valid while the switch lasts."""
    entries = [_loaded(source.model, now_s)] if source.model is not None else []
    if source.wanted_model is not None and source.engine is None:
        wanted_id = known_as(source.wanted_model)
        if wanted_id not in [entry["id"] for entry in entries]:
            entries.append(_named(wanted_id, wanted_id, now_s))
    return entries


def _loaded(model: ModelStatus, now_s: float) -> dict[str, Any]:
    name = "Splash demo (random weights)" if model.is_demo else model.id
    return {
        **_named(model.id, name, now_s),
        "max_input_tokens": model.maximum_context_tokens,
        "max_tokens": model.maximum_context_tokens,
        "context_length": model.maximum_context_tokens,
        "max_model_len": model.maximum_context_tokens,
        "has_random_weights": model.is_demo,
    }


def _named(model_id: str, display_name: str, now_s: float) -> dict[str, Any]:
    return {
        "id": model_id,
        "object": "model",
        "created": int(now_s),
        "owned_by": "splash",
        "type": "model",
        "display_name": display_name,
        "created_at": datetime.fromtimestamp(int(now_s), UTC).isoformat().replace("+00:00", "Z"),
    }
