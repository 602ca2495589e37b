"""Endpoints of the page *Settings*: the page, and one order for each thing that can be changed on it.

What can't be followed comes back with the reason where it was filled in.
"""

import asyncio
from typing import Final, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from control import wire
from webui import numbers
from webui.alias_form import moved_up, with_new, without
from webui.errors import BadForm, ControlGone, ControlRefused
from webui.pages.edge import (
    Console,
    Form,
    console_of,
    may_be_taken_later,
    order,
    see_other,
    sentence_for,
    whole_number,
)
from webui.views.settings import AliasForm, Known, settings_page
from webui.views.sleep import keep_awake_of

Answer = TypeVar("Answer")

_TEMPLATE: Final = "settings.html"
_HERE: Final = "/settings"
_UNREADABLE: Final = 422
# A database of a million requests is copied in a few seconds; a slow disk takes longer.
_BACKUP_TIMEOUT_S: Final = 300.0
_PREFIX: Final = "heartbeat."


async def show(request: Request) -> Response:
    return await _page(request)


async def set_concurrency(request: Request, form: Form) -> Response:
    concurrency = whole_number(form, "concurrency")
    if concurrency is None or not 1 <= concurrency <= wire.NUM_SLOTS:
        raise BadForm("concurrency")
    await console_of(request).control.set_concurrency(concurrency)
    return _done(request, console_of(request).text_for(request)("settings.concurrency_set", n=concurrency))


async def set_keep_awake(request: Request, form: Form) -> Response:
    keep_awake = keep_awake_of(form.get("keep_awake"))
    if keep_awake is None:
        raise BadForm("keep_awake")
    await console_of(request).control.order("POST", wire.KEEP_AWAKE, wire.KeepAwakeRequest(keep_awake=keep_awake))
    return _done(request, console_of(request).text_for(request)("settings.sleep_set"))


async def set_heartbeats(request: Request, form: Form) -> Response:
    modes = {name.removeprefix(_PREFIX): mode for name, mode in form.items() if name.startswith(_PREFIX)}
    await console_of(request).control.order("PUT", wire.HEARTBEATS, wire.HeartbeatModes(modes=modes))
    return _done(request, console_of(request).text_for(request)("settings.heartbeats_set"))


async def add_alias(request: Request, form: Form) -> Response:
    console = console_of(request)
    listed = await console.control.ask("GET", wire.ALIASES, wire.AliasList)
    changed = with_new(listed.aliases, form)
    if changed.aliases is None:
        return await _page(request, alias_form=_alias_form(form, console.text_for(request)(changed.wrong)))
    try:
        await _replace_aliases(console, changed.aliases)
    except ControlRefused as refusal:
        if may_be_taken_later(refusal):
            raise
        return await _page(request, alias_form=_alias_form(form, sentence_for(refusal, console.text_for(request))))
    return _done(request, console.text_for(request)("settings.alias_added", name=form["name"].strip()))


async def remove_alias(request: Request, form: Form) -> Response:
    console = console_of(request)
    listed = await console.control.ask("GET", wire.ALIASES, wire.AliasList)
    name = form.get("name", "")
    await _replace_aliases(console, without(listed.aliases, name))
    return _done(request, console.text_for(request)("settings.alias_removed", name=name))


async def move_alias(request: Request, form: Form) -> Response:
    console = console_of(request)
    listed = await console.control.ask("GET", wire.ALIASES, wire.AliasList)
    await _replace_aliases(console, moved_up(listed.aliases, form.get("name", "")))
    return see_other(f"{_HERE}#aliases")


async def back_up(request: Request, _: Form) -> Response:
    console = console_of(request)
    made = await console.control.ask(
        "POST", wire.BACKUP, wire.Backup, wire.BackupRequest(), timeout_s=_BACKUP_TIMEOUT_S
    )
    text = console.text_for(request)
    size = numbers.size(made.size_bytes)
    return _done(request, text.count("settings.backed_up", made.requests, path=made.path, size=size))


def _done(request: Request, sentence: str) -> Response:
    """Back to the page, which says what was done: it is not seen on it."""
    response = see_other(_HERE)
    console_of(request).sessions.leave_notice(response, sentence, is_good=True)
    return response


async def _replace_aliases(console: Console, aliases: tuple[wire.Alias, ...]) -> None:
    await console.control.order("PUT", wire.ALIASES, wire.AliasList(aliases=aliases))


def _alias_form(form: Form, error: str) -> AliasForm:
    return AliasForm(name=form.get("name", ""), request_class=form.get("request_class", ""), error=error)


async def _page(request: Request, *, alias_form: AliasForm | None = None) -> Response:
    console = console_of(request)
    shell = await console.shell(request, "settings", "settings.title", here=_HERE)
    known = await _known(console)
    if alias_form is None:
        return console.answer(request, _TEMPLATE, settings_page(shell, known))
    view = settings_page(shell, known, alias_form=alias_form)
    return console.answer(request, _TEMPLATE, view, status=_UNREADABLE)


async def _known(console: Console) -> Known:
    seen = await console.watch.look()
    aliases, heartbeats, installation = await asyncio.gather(
        _if_known(console, wire.ALIASES, wire.AliasList),
        _if_known(console, wire.HEARTBEATS, wire.HeartbeatSettings),
        _if_known(console, wire.INSTALLATION, wire.Installation),
    )
    return Known(seen.overview if seen.is_current else None, aliases, heartbeats, installation)


async def _if_known(console: Console, path: str, kind: type[Answer]) -> Answer | None:
    try:
        return await console.control.ask("GET", path, kind)
    except (ControlGone, ControlRefused):
        return None


ROUTES: Final = (
    Route("/settings", show),
    Route("/settings/concurrency", order(set_concurrency, back=_HERE), methods=["POST"]),
    Route("/settings/keep-awake", order(set_keep_awake, back=_HERE), methods=["POST"]),
    Route("/settings/heartbeats", order(set_heartbeats, back=_HERE, is_typed=True), methods=["POST"]),
    Route("/settings/aliases", order(add_alias, back=_HERE, is_typed=True), methods=["POST"]),
    Route("/settings/aliases/remove", order(remove_alias, back=_HERE), methods=["POST"]),
    Route("/settings/aliases/up", order(move_alias, back=_HERE), methods=["POST"]),
    Route("/settings/backup", order(back_up, back=_HERE), methods=["POST"]),
)
