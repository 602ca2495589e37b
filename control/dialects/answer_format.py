"""What an answer must look like, from a client's format to the engine's grammar.

It does not compile a schema: the engine does, before it generates, and refuses the request when it can't.
"""

from typing import Any

from control.dialects.nesting import check_depth
from control.errors import InvalidRequest
from engine import wire


def grammar_of(wanted: object, field: str, *, schema_key: str = "schema") -> wire.Grammar | None:
    """Of an OpenAI client; None: any text. `strict` changes nothing: what can't be enforced is refused either way.

    The schema may stand in `json_schema`, as OpenAI says of Chat, or beside the type, as in Responses and as clients
    of llama.cpp write it; a missing one is named as `schema_key`. Raises InvalidRequest that names the field.
    """
    match wanted:
        case None | "text" | {"type": None | "text"}:
            return None
        case {"type": "json_schema", "json_schema": dict(named)}:
            return json_schema_grammar(named.get("schema"), f"{field}.json_schema.schema")
        case {"type": "json_object" | "json_schema", "schema": schema} if schema is not None:
            return json_schema_grammar(schema, f"{field}.schema")
        case {"type": "json_object"}:
            return wire.Grammar(kind="json_object")
        case {"type": "json_schema"}:
            raise InvalidRequest("The schema is missing.", param=f"{field}.{schema_key}")
        case {"type": _}:
            raise InvalidRequest(
                "The type is text, json_object or json_schema; others are not supported.", param=f"{field}.type"
            )
    raise InvalidRequest("The format of an answer is an object with a type.", param=field)


def json_schema_grammar(schema: object, field: str) -> wire.Grammar:
    """`field` is the client's name of the schema. Raises InvalidRequest when it is none, or is nested too deeply."""
    if not isinstance(schema, dict | bool):
        raise InvalidRequest("A JSON schema is expected here.", param=field)
    check_depth(schema, field)
    known: dict[str, Any] | bool = schema
    return wire.Grammar(kind="json_schema", schema=known)
