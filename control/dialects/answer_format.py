"""What an answer must look like, from OpenAI's `response_format` to the engine's grammar.

It does not compile a schema: the engine does, before it generates, and refuses the request when it can't.
"""

from typing import Any

from control.dialects.nesting import NESTING_LIMIT, is_too_deep
from control.errors import InvalidRequest
from engine import wire


def grammar_of(response_format: object) -> wire.Grammar | None:
    """Of a chat request; None: any text. `strict` changes nothing: what can't be enforced is refused either way.

    The schema may stand in `json_schema`, as OpenAI says, or beside the type, as clients of llama.cpp write it.
    Raises InvalidRequest that names the field.
    """
    match response_format:
        case None | "text" | {"type": None | "text"}:
            return None
        case {"type": "json_schema", "json_schema": dict(named)}:
            return json_schema_grammar(named.get("schema"), "response_format.json_schema.schema")
        case {"type": "json_object" | "json_schema", "schema": schema} if schema is not None:
            return json_schema_grammar(schema, "response_format.schema")
        case {"type": "json_object"}:
            return wire.Grammar(kind="json_object")
        case {"type": "json_schema"}:
            raise InvalidRequest("The schema is missing.", param="response_format.json_schema")
        case {"type": _}:
            raise InvalidRequest(
                "The type is text, json_object or json_schema; others are not supported.", param="response_format.type"
            )
    raise InvalidRequest("response_format is an object with a type.", param="response_format")


def json_schema_grammar(schema: object, field: str) -> wire.Grammar:
    """`field` is the client's name of the schema. Raises InvalidRequest when it is none, or is nested too deeply."""
    if not isinstance(schema, dict | bool):
        raise InvalidRequest("A JSON schema is expected here.", param=field)
    if is_too_deep(schema):
        raise InvalidRequest(f"At most {NESTING_LIMIT} levels are supported.", param=field)
    known: dict[str, Any] | bool = schema
    return wire.Grammar(kind="json_schema", schema=known)
