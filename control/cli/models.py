"""`splash models`: what the engine's program finds on this machine; it works when nothing runs.

It knows no model folder itself.
"""

import asyncio

import msgspec
import typer

from control.cli.places import Place
from control.cli.processes import python_module
from control.cli.tables import print_table
from control.command_errors import StartFailed
from control.engine_questions import EngineQuestions
from control.errors import ModelRefused

GIB = 1024**3


def print_models(place: Place, *, as_json: bool) -> None:
    """Raises StartFailed with the engine's sentence when it can't look."""
    try:
        found = asyncio.run(EngineQuestions(place.home, python_module("engine")).models())
    except ModelRefused as error:
        raise StartFailed(str(error)) from error
    if as_json:
        typer.echo(msgspec.json.encode({"models": found}).decode())
        return
    print_table(
        ("name", "architecture", "quantisation", "GiB", "context", "fits", "where"),
        (
            (
                f"{model.name} (random weights)" if model.is_demo else model.name,
                model.architecture,
                model.quantization or "none",
                f"{model.weights_bytes / GIB:.2f}",
                str(model.native_context_tokens),
                "yes" if model.fits else "no",
                model.path,
            )
            for model in found
        ),
    )
