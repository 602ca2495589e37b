"""What a scripted control answers about keys, clients, logs and settings: one of everything that can be shown."""

import msgspec

from control import wire
from control.connections.clients import CLIENTS
from control.connections.connection import Connection, instructions

NOW_S = 1_795_700_000.0
API_BASE = "http://127.0.0.1:8888/v1"


def keys() -> list[wire.KeyView]:
    return [
        wire.KeyView(
            id=1,
            name="claude",
            request_class="interactive",
            hint="sk-splash-…x7Qa",
            created_at_s=NOW_S - 900_000,
            today=wire.KeyUsage(requests=1_204, tokens=51_606_236, in_flight=2),
        ),
        wire.KeyView(
            id=2,
            name="nightly",
            request_class="batch",
            hint="sk-splash-…b2Kd",
            created_at_s=NOW_S - 500_000,
            limits=wire.KeyLimits(max_in_flight=2, requests_per_day=500, tokens_per_day=5_000_000),
            today=wire.KeyUsage(requests=431, tokens=5_120_402, in_flight=1),
        ),
        wire.KeyView(
            id=3,
            name="a laptop with quite a long name that goes on and on",
            request_class="interactive",
            hint="sk-splash-…0aZz",
            created_at_s=NOW_S - 100_000,
            limits=wire.KeyLimits(tokens_per_day=20_000_000),
        ),
        wire.KeyView(
            id=4,
            name="codex",
            request_class="interactive",
            hint="sk-splash-…9mPl",
            created_at_s=NOW_S - 2_000_000,
            revoked_at_s=NOW_S - 1_000_000,
        ),
    ]


def totals() -> wire.KeyTotalsList:
    return wire.KeyTotalsList(
        keys=(
            wire.KeyTotals(1, 31_204, 1_204_118_402, 1_121_034_000, 9_402_118, 0.931, NOW_S - 120),
            wire.KeyTotals(2, 9_400, 92_000_000, 41_400_000, 1_900_000, 0.45, NOW_S - 4_000),
        )
    )


def connections(*, context_tokens: int | None = 262_144) -> wire.ConnectionList:
    connection = Connection(API_BASE, wire.KEY_PLACEHOLDER, context_tokens)
    files = {
        "claude": ".claude/settings.json",
        "codex": ".codex/config.toml",
        "opencode": ".config/opencode/opencode.json",
    }
    return wire.ConnectionList(
        api_base=API_BASE,
        clients=tuple(
            wire.ClientConnection(
                name=client.name,
                title=client.title,
                text=instructions(client, connection),
                file=f"/Users/me/{files[client.name]}" if client.name in files else None,
                is_file_content=client.name in ("codex", "opencode"),
                lacks_context=client.name in files and context_tokens is None,
            )
            for client in CLIENTS.values()
        ),
    )


def entry(number: int, *, level: wire.LogLevel = "INFO", message: str = "", more: str = "", omitted: int = 0):
    return wire.LogEntry(
        id=f"7-{number * 100}",
        at_s=NOW_S + number * 2.5,
        level=level,
        logger="control.relay",
        message=message or f"request finished id=r{number} ttft_ms={number % 900 + 80} tokens={number % 700 + 12}",
        more=more,
        omitted_chars=omitted,
    )


def log_page(
    *entries: wire.LogEntry, name: wire.LogName = "control", older: str | None = "7-100", is_cut_short: bool = False
) -> wire.LogPage:
    return wire.LogPage(name, entries, older, is_cut_short, 12_400_512)


ALIASES = wire.AliasList(
    aliases=(
        wire.Alias("default"),
        wire.Alias("claude-*"),
        wire.Alias("claude-haiku-*", "batch"),
        wire.Alias("gpt-*"),
        wire.Alias("codex-*"),
    )
)
HEARTBEATS = wire.HeartbeatSettings(
    modes={"chat": "comment", "completions": "comment", "responses": "typed", "messages": "typed"},
    choices={
        "chat": ("comment",),
        "completions": ("comment",),
        "responses": ("typed", "in_progress", "comment"),
        "messages": ("typed", "ping", "comment"),
    },
)
ROWS = wire.StoredRows(36_204, NOW_S - 30 * 86_400)


def installation(*, rows: wire.StoredRows | None = ROWS) -> wire.Installation:
    home = "/Users/me/Library/Application Support/Splash"
    return wire.Installation(
        home=home,
        database=f"{home}/splash.db",
        database_bytes=21_400_000,
        logs=f"{home}/logs",
        logs_bytes=31_000_000,
        disk_free_bytes=412 * 1024**3,
        rows=rows,
        host="127.0.0.1",
        ports={
            "SPLASH_API_PORT": 8888,
            "SPLASH_ADMIN_PORT": 18084,
            "SPLASH_CONSOLE_PORT": 18082,
            "SPLASH_ENGINE_PORT": 18081,
        },
        version="0.1.0",
        python="3.13.1",
        system="Darwin 25.1.0 (arm64)",
    )


def everything() -> dict[str, object]:
    """For `FakeControl.answers`."""
    lines = [entry(number) for number in range(200, 0, -1)]
    lines[3] = entry(197, level="WARNING", message="rows wait reason=database is locked num_rows=3")
    lines[5] = entry(
        195,
        level="ERROR",
        message="admin request broke path='/cost'",
        more='Traceback (most recent call last):\n  File "control/cost.py", line 12, in cost\n    return total / 0\n'
        "ZeroDivisionError: division by zero",
    )
    lines[8] = entry(192, message="x" * 700 + "…" + "y" * 300, omitted=91_204)
    return {
        wire.KEY_TOTALS: totals(),
        wire.CONNECTIONS: connections(),
        wire.ALIASES: ALIASES,
        wire.HEARTBEATS: HEARTBEATS,
        wire.INSTALLATION: installation(),
        **{wire.LOGS.format(name=name): log_page(*lines, name=name) for name in wire.LOG_NAMES},
    }


def used_more(view: wire.KeyView) -> wire.KeyView:
    """After one more request."""
    today = wire.KeyUsage(view.today.requests + 1, view.today.tokens + 812, view.today.in_flight)
    return msgspec.structs.replace(view, today=today)
