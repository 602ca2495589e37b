"""`splash cache`: what a person can do with the prefix cache of the running engine, which is to empty it.

It frees nothing itself, and says what was freed.
"""

import msgspec
import typer

from control.cli.places import AsJson, running_control, this_place
from control.cli.sizes import size_text
from control.cli.words import counted
from control.wire import CacheCleared, CacheStatus

cache = typer.Typer(
    help="The prefix cache: prompts that need not be read again.", no_args_is_help=True, rich_markup_mode=None
)


@cache.command()
def clear(as_json: AsJson = False) -> None:
    """Empty the prefix cache.

    Running requests go on, and the next ones read their prompts anew.
    """
    client = running_control(this_place())
    cleared = client.clear_cache()
    if as_json:
        typer.echo(msgspec.json.encode(cleared).decode())
    else:
        typer.echo(sentence(cleared, client.overview().engine.cache))


def sentence(cleared: CacheCleared, cache: CacheStatus | None) -> str:
    if cleared.freed_bytes:
        return (
            f"The prefix cache gave back {size_text(cleared.freed_bytes)}: "
            f"{counted(cleared.blocks, 'block')} and {counted(cleared.snapshots, 'snapshot')}."
        )
    if cache is not None and not cache.is_on:
        return f"The prefix cache is off, so nothing was freed: {cache.reason.rstrip('.')}."
    return "The prefix cache held nothing that could be freed."
