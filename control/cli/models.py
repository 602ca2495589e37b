"""`splash models`: what the engine's program finds on this machine; it works when nothing runs.

A table where there is room for one, else a few lines a model: a name is what `splash load` takes, and never shortened.
It knows no model folder itself.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import typer

from control.admin.errors import ModelRefused
from control.cli.places import Place
from control.cli.processes import python_module
from control.cli.sizes import size_text
from control.cli.tables import has_room, print_table, printable
from control.command_errors import StartFailed
from control.engine_questions import EngineQuestions
from control.wire import ModelOnDisk

COLUMNS: Final = ("name", "architecture", "quantisation", "size", "context", "fits", "where")


def print_models(place: Place, *, as_json: bool) -> None:
    """Raises StartFailed with the engine's sentence when it can't look."""
    try:
        listed = asyncio.run(EngineQuestions(place.home, python_module("engine")).models())
    except ModelRefused as error:
        raise StartFailed(str(error)) from error
    if as_json:
        typer.echo(msgspec.json.encode(listed).decode())
        return
    rows = [_row(model) for model in listed.models]
    if has_room(COLUMNS, rows):
        print_table(COLUMNS, rows)
    else:
        _print_lines(rows)
    for folder in listed.refused:
        typer.echo(f"{printable(Path(folder.path).name)} can't be used: {printable(folder.message)}")


def _print_lines(rows: Sequence[tuple[str, ...]]) -> None:
    for name, *rest in rows:
        typer.echo(printable(name))
        architecture, quantization, size, context, fits, path = rest
        facts = f"{architecture}, {quantization}, {size}, context {context} tokens, fits: {fits}"
        typer.echo(f"    {printable(facts)}\n    {printable(path)}")


def _row(model: ModelOnDisk) -> tuple[str, ...]:
    return (
        f"{model.name} (random weights)" if model.is_demo else model.name,
        model.architecture,
        model.quantization or "not quantised",
        size_text(model.weights_bytes),
        f"{model.native_context_tokens:,}",
        "yes" if model.fits else "no",
        model.path,
    )
