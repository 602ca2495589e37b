"""GET /v1/models, and which names a request may use. Format: one body that OpenAI's and Anthropic's clients both read.

It knows the models of the engine source only: not what lies on the disk.

Listed are the loaded model (else the last one), the one that is on its way, and the aliases that are no patterns:
Claude Code shows the ids that begin with `claude` or `anthropic`. Nothing that never loaded and is not coming is.
Codex's own array `models` is left out on purpose: an entry that lacks one of the fields that its release requires, and
they change, makes it refuse the whole list; without the array it warns and works (`docs/settings.md`).
Parameters that page through the list (`limit`, `after_id`) are accepted: everything always fits on the first page.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from control.aliases import Aliases
from control.engine_client import EngineSource
from control.errors import UnknownModel
from engine.wire import ModelStatus, RequestClass

PATH: Final = "/v1/models"


def known_as(wanted_model: str) -> str:
    """A folder is known by its last name, a hub id as it is."""
    path = Path(wanted_model)
    return path.name if path.is_absolute() else wanted_model


def check_model(name: str, source: EngineSource, aliases: Aliases) -> RequestClass | None:
    """The class that the name carries, if it does. Raises UnknownModel.

    While no model was ever seen, no name can be wrong: the request is answered for that. A model's own id goes before
    a pattern that fits it, and carries no class of its own.
    """
    known = _known_ids(source)
    if name in aliases.plain_names() or name not in known:
        if known and not aliases.knows(name):
            raise UnknownModel(name)
        return aliases.class_of(name)
    return None


def model_list(source: EngineSource, aliases: Aliases, *, now_s: float) -> dict[str, Any]:
    entries = _entries(source, aliases, now_s)
    ids = [entry["id"] for entry in entries]
    return {
        "object": "list",
        "data": entries,
        "has_more": False,
        "first_id": ids[0] if ids else None,
        "last_id": ids[-1] if ids else None,
    }


def model_entry(model_id: str, source: EngineSource, aliases: Aliases, *, now_s: float) -> dict[str, Any]:
    """Raises UnknownModel. What is listed is answered so; any other name with the model that it stands for."""
    check_model(model_id, source, aliases)
    entries = _entries(source, aliases, now_s)
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


def _entries(source: EngineSource, aliases: Aliases, now_s: float) -> list[dict[str, Any]]:
    entries = [_loaded(source.model, now_s)] if source.model is not None else []
    if source.wanted_model is not None and source.availability == "held":
        wanted_id = known_as(source.wanted_model)
        if wanted_id not in [entry["id"] for entry in entries]:
            entries.append(_named(wanted_id, wanted_id, now_s))
    if entries:
        ids = {entry["id"] for entry in entries}
        entries += [_alias(name, entries[0]) for name in aliases.plain_names() if name not in ids]
    return entries


def _alias(name: str, model: dict[str, Any]) -> dict[str, Any]:
    return {**model, "id": name, "display_name": f"{name} ({model['display_name']})"}


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
