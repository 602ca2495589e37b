"""Connection help by HTTP: exactly what `splash connect` prints, without a key."""

from types import SimpleNamespace

import pytest

from control import wire
from control.admin.connections import ConnectionsApi
from control.cli.connect import Order, connected
from control.connections.clients import CLIENTS
from control.connections.connection import instructions
from tests.unit.control_lifecycle.rooms import asked, served
from tests.unit.control_lifecycle.test_connect import API, CONTEXT, Admin


async def connections(context=CONTEXT):
    supervisor = SimpleNamespace(view=lambda: Admin(context=context).overview().engine)
    async with served(ConnectionsApi(supervisor, api_base=API)) as client:
        return await asked(client, wire.CONNECTIONS, wire.ConnectionList)


@pytest.mark.parametrize("name", CLIENTS)
@pytest.mark.parametrize("context", [CONTEXT, None])
async def test_with_the_key_in_its_place_a_block_is_what_the_command_prints(tmp_path, name, context):
    done = connected(Admin(context=context), Order(CLIENTS[name]), tmp_path)

    (block,) = [each for each in (await connections(context)).clients if each.name == name]

    printed = instructions(done.client, done.connection)
    assert wire.KEY_PLACEHOLDER in block.text
    assert block.text.replace(wire.KEY_PLACEHOLDER, done.connection.key) == printed
    assert block.lacks_context is (context is None and done.path is not None)


async def test_a_block_says_which_file_it_is_for_and_whether_it_is_that_file(monkeypatch, tmp_path):
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))

    listed = {each.name: each for each in (await connections()).clients}

    assert list(listed) == ["claude", "codex", "opencode", "openai", "anthropic", "curl"]
    assert listed["claude"].file == str(tmp_path / ".claude" / "settings.json")
    assert listed["codex"].file == str(tmp_path / ".codex" / "config.toml")
    assert {name for name, each in listed.items() if each.is_file_content} == {"codex", "opencode"}
    assert {name for name, each in listed.items() if each.file is None} == {"openai", "anthropic", "curl"}


async def test_curl_asks_for_an_answer_of_whatever_is_loaded():
    (curl,) = [each for each in (await connections()).clients if each.name == "curl"]

    assert curl.text == (
        f"curl {API}/chat/completions \\\n  -H 'Content-Type: application/json' \\\n"
        f'  -H "Authorization: Bearer {wire.KEY_PLACEHOLDER}" \\\n'
        '  -d \'{"model": "default", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 50}\''
    )
