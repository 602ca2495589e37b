"""The page *Settings*: what a person changes while Splash runs, what the database holds, and where everything is.

It decides nothing about what a setting can be: control says so, and refuses.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from control.wire import NUM_SLOTS, AliasList, DatabaseHealth, HeartbeatSettings, Installation, Overview
from webui import numbers
from webui.text import LANGUAGES, Language, Text
from webui.views.shell import NEXT_THEME, THEME_TEXT, Shell, Theme, Tone
from webui.views.sleep import SleepView, sleep_view

_DIALECT_TEXT: Final[dict[str, str]] = {
    "chat": "settings.chat",
    "completions": "settings.completions",
    "responses": "settings.responses",
    "messages": "settings.messages",
}
# Source: control.dialects.exchange. A mode that is not here is shown as it is called.
_MODE_TEXT: Final[dict[tuple[str, str], str]] = {
    ("chat", "comment"): "settings.only_comment",
    ("completions", "comment"): "settings.only_comment",
    ("responses", "typed"): "settings.responses_typed",
    ("responses", "in_progress"): "settings.responses_in_progress",
    ("responses", "comment"): "settings.responses_comment",
    ("messages", "typed"): "settings.messages_typed",
    ("messages", "ping"): "settings.messages_ping",
    ("messages", "comment"): "settings.messages_comment",
}
_PORT_TEXT: Final[dict[str, str]] = {
    "SPLASH_API_PORT": "settings.api_port",
    "SPLASH_ADMIN_PORT": "settings.admin_port",
    "SPLASH_CONSOLE_PORT": "settings.console_port",
    "SPLASH_ENGINE_PORT": "settings.engine_port",
}
_LANGUAGE_NAME: Final[dict[Language, str]] = {"en": "English", "zh": "简体中文"}


@dataclass(frozen=True, slots=True)
class Known:
    """What control answered; None where it did not."""

    overview: Overview | None = None
    aliases: AliasList | None = None
    heartbeats: HeartbeatSettings | None = None
    installation: Installation | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    value: str
    label: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """One dialect. A single choice is none: it is only told."""

    dialect: str
    label: str
    choices: tuple[Choice, ...]


@dataclass(frozen=True, slots=True)
class AliasRow:
    number: int
    name: str
    request_class: str
    remove_label: str
    remove_effect: str
    up_label: str


@dataclass(frozen=True, slots=True)
class AliasForm:
    """As it was filled in; `error` is the sentence at the name."""

    name: str = ""
    request_class: str = ""
    error: str = ""


NOTHING_TYPED: Final = AliasForm()


@dataclass(frozen=True, slots=True)
class Fact:
    """`setting`: the environment variable that it comes from, empty without one."""

    label: str
    value: str
    hint: str
    setting: str = ""


@dataclass(frozen=True, slots=True)
class Health:
    tone: Tone
    sign: str
    sentence: str


@dataclass(frozen=True, slots=True)
class SettingsPage:
    """Empty where control does not answer, and `problem` says so."""

    shell: Shell
    concurrency: int | None
    concurrency_choices: tuple[int, ...]
    sleep: SleepView
    heartbeats: tuple[Heartbeat, ...]
    aliases: tuple[AliasRow, ...] | None
    alias_warnings: tuple[str, ...]
    alias_form: AliasForm
    database: tuple[Fact, ...]
    health: tuple[Health, ...]
    places: tuple[Fact, ...]
    ports: tuple[Fact, ...]
    versions: tuple[Fact, ...]
    languages: tuple[Choice, ...]
    themes: tuple[Choice, ...]
    problem: str | None


def settings_page(shell: Shell, known: Known, *, alias_form: AliasForm = NOTHING_TYPED) -> SettingsPage:
    text = shell.text
    overview, installation = known.overview, known.installation
    is_silent = overview is None and installation is None
    return SettingsPage(
        shell=shell,
        concurrency=overview.concurrency if overview is not None else None,
        concurrency_choices=tuple(range(1, NUM_SLOTS + 1)),
        sleep=sleep_view(overview, text),
        heartbeats=_heartbeats(known.heartbeats, text),
        aliases=_aliases(known.aliases, text),
        alias_warnings=_alias_warnings(known, text),
        alias_form=alias_form,
        database=_database(installation, text),
        health=_health(overview.database, text) if overview is not None else (),
        places=_places(installation, text),
        ports=_ports(installation, text),
        versions=_versions(installation, text),
        languages=tuple(Choice(each, _LANGUAGE_NAME[each], each == text.language) for each in LANGUAGES),
        themes=tuple(Choice(each, text(THEME_TEXT[each]), each == shell.theme) for each in _themes()),
        problem=text("settings.unknown") if is_silent else None,
    )


def _themes() -> tuple[Theme, ...]:
    return tuple(NEXT_THEME)


def _heartbeats(settings: HeartbeatSettings | None, text: Text) -> tuple[Heartbeat, ...]:
    if settings is None:
        return ()
    return tuple(
        Heartbeat(
            dialect=dialect,
            label=text(_DIALECT_TEXT[dialect]) if dialect in _DIALECT_TEXT else dialect,
            choices=tuple(
                Choice(choice, _mode(dialect, choice, text), choice == mode)
                for choice in settings.choices.get(dialect, ())
            ),
        )
        for dialect, mode in settings.modes.items()
    )


def _mode(dialect: str, mode: str, text: Text) -> str:
    key = _MODE_TEXT.get((dialect, mode))
    return mode if key is None else text(key)


def _aliases(listed: AliasList | None, text: Text) -> tuple[AliasRow, ...] | None:
    if listed is None:
        return None
    classes = {
        None: text("settings.class_of_key"),
        "interactive": text("keys.interactive"),
        "batch": text("keys.batch"),
    }
    return tuple(
        AliasRow(
            number=number,
            name=alias.name,
            request_class=classes[alias.request_class],
            remove_label=text("settings.alias_remove_label", name=alias.name),
            remove_effect=text("settings.alias_remove_effect", name=alias.name),
            up_label=text("settings.alias_up_label", name=alias.name),
        )
        for number, alias in enumerate(listed.aliases)
    )


def _alias_warnings(known: Known, text: Text) -> tuple[str, ...]:
    """What is allowed, and seldom meant."""
    names = [alias.name for alias in known.aliases.aliases] if known.aliases is not None else []
    model = known.overview.engine.model if known.overview is not None else None
    for_all = (text("settings.alias_fits_all", name=name) for name in names if not name.strip("*"))
    own = (text("settings.alias_is_model", name=name) for name in names if model is not None and name == model.id)
    return (*for_all, *own)


def _database(installation: Installation | None, text: Text) -> tuple[Fact, ...]:
    if installation is None:
        return ()
    rows = installation.rows
    oldest_at_s = rows.oldest_at_s if rows is not None else None
    return (
        Fact(text("settings.size"), numbers.size(installation.database_bytes), text("settings.size_hint")),
        Fact(
            text("settings.rows"),
            numbers.tokens(rows.requests if rows is not None else None),
            text("settings.rows_hint"),
        ),
        Fact(
            text("settings.oldest"),
            numbers.UNKNOWN if oldest_at_s is None else numbers.date_and_time(text, oldest_at_s),
            text("settings.oldest_hint"),
        ),
        Fact(text("settings.free"), numbers.size(installation.disk_free_bytes), text("settings.free_hint")),
    )


def _health(health: DatabaseHealth, text: Text) -> tuple[Health, ...]:
    found = []
    if health.problem is not None:
        waiting = text.count("settings.rows_wait", health.waiting_rows, reason=health.problem)
        found.append(Health("wait", "!", waiting))
    if health.lost_rows:
        found.append(Health("bad", "✕", text.count("settings.rows_lost", health.lost_rows)))
    if health.set_aside is not None:
        found.append(Health("wait", "!", text("settings.set_aside", name=health.set_aside)))
    if health.from_copy:
        found.append(Health("wait", "!", text("settings.from_copy")))
    return tuple(found) or (Health("good", "●", text("settings.healthy")),)


def _places(installation: Installation | None, text: Text) -> tuple[Fact, ...]:
    if installation is None:
        return ()
    logs = f"{installation.logs} · {numbers.size(installation.logs_bytes)}"
    return (
        Fact(text("settings.home"), installation.home, text("settings.home_hint"), "SPLASH_HOME"),
        Fact(text("settings.database_file"), installation.database, text("settings.database_file_hint")),
        Fact(text("settings.logs"), logs, text("settings.logs_hint")),
    )


def _ports(installation: Installation | None, text: Text) -> tuple[Fact, ...]:
    if installation is None:
        return ()
    hint = text("settings.port_hint")
    ports: Mapping[str, int] = installation.ports
    return (
        Fact(text("settings.host"), installation.host, text("settings.host_hint"), "SPLASH_HOST"),
        *(Fact(text(label), str(ports[name]), hint, name) for name, label in _PORT_TEXT.items() if name in ports),
        Fact(text("settings.lan"), _addresses(installation.lan_api, text), text("settings.lan_hint"), "SPLASH_LAN"),
        Fact(
            text("settings.lan_console"),
            _addresses(installation.lan_console, text),
            text("settings.lan_console_hint"),
        ),
    )


def _addresses(addresses: tuple[str, ...], text: Text) -> str:
    return " · ".join(addresses) or text("settings.lan_off")


def _versions(installation: Installation | None, text: Text) -> tuple[Fact, ...]:
    if installation is None:
        return ()
    return (
        Fact("Splash", installation.version, text("settings.version_hint")),
        Fact("Python", installation.python, text("settings.python_hint")),
        Fact(text("settings.system"), installation.system, text("settings.system_hint")),
    )
