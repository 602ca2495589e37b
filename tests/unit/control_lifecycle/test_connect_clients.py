"""What each client is told: its addresses, the limits that a long wait needs, and what else was in its config."""

import json
import tomllib
from pathlib import Path

import pytest

from control.connections import claude, codex, opencode, sdk
from control.connections.connection import Connection

DAY_MS = 86_400_000
CONNECTION = Connection(api_base="http://127.0.0.1:8888/v1", key="sk-splash-x", context_tokens=65_536)
HOME = Path("/home/me")

CODEX_BEFORE = """\
# My Codex.
model = "gpt-6"  # the best
approval_policy = "never"

[model_providers.azure]  # at work
base_url = "https://example.invalid"

[tui]
theme = "dark"
"""


def test_claude_code_waits_a_day_and_knows_the_context():
    variables = claude.environment(CONNECTION)

    assert variables["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8888"
    assert variables["CLAUDE_STREAM_IDLE_TIMEOUT_MS"] == variables["API_TIMEOUT_MS"] == str(DAY_MS)
    assert variables["CLAUDE_CODE_MAX_CONTEXT_TOKENS"] == "65536"
    assert variables["CLAUDE_CODE_MAX_OUTPUT_TOKENS"] == "16384"


def test_claude_codes_models_are_names_that_the_gateway_answers_whatever_is_loaded():
    variables = claude.environment(CONNECTION)

    models = {value for name, value in variables.items() if name.endswith("_MODEL")}

    assert models == {"claude-splash", "claude-haiku-splash"}


def test_codex_waits_a_day_and_knows_the_context():
    config = tomllib.loads(codex.merged("", CONNECTION))

    assert config["model_provider"] == "splash"
    assert config["model_context_window"] == 65_536
    assert config["model_providers"]["splash"] == {
        "name": "Splash",
        "base_url": "http://127.0.0.1:8888/v1",
        "wire_api": "responses",
        "experimental_bearer_token": "sk-splash-x",
        "stream_idle_timeout_ms": DAY_MS,
    }


def test_everything_else_in_codexs_config_stays_with_its_comments():
    text = codex.merged(CODEX_BEFORE, CONNECTION)

    config, before = tomllib.loads(text), tomllib.loads(CODEX_BEFORE)
    ours = {"model", "model_provider", "model_context_window", "model_providers"}
    assert {name: value for name, value in config.items() if name not in ours} == {
        name: value for name, value in before.items() if name not in ours
    }
    assert config["model_providers"]["azure"] == before["model_providers"]["azure"]
    assert config["model_providers"]["splash"]["base_url"] == CONNECTION.api_base
    for comment in ("# My Codex.", "# the best", "# at work"):
        assert comment in text


@pytest.mark.parametrize(
    "before",
    [
        'model_providers = { azure = { name = "a" } }\n',
        '[model_providers]\nazure = { name = "a" }\n',
        '[tui]\ntheme = "dark"\n\n[model_providers.splash]\nname = "old"\nenv_key = "X"\n',
        "\r\n# windows\r\n[tui]\r\ntheme = 'dark'\r\n",
        "[[hooks]]\ncommand = 'x'\n",
    ],
)
def test_codexs_config_may_be_written_in_any_way_that_toml_allows(before):
    text = codex.merged(before, CONNECTION)

    config = tomllib.loads(text)
    for name, value in tomllib.loads(before).items():
        assert config[name] == value if name != "model_providers" else config[name].items() >= {}.items()
    assert config["model"] == "codex-splash"
    assert config["model_providers"]["splash"]["experimental_bearer_token"] == "sk-splash-x"
    assert codex.merged(text, CONNECTION) == text


def test_opencode_never_gives_up_and_knows_the_limits():
    config = json.loads(opencode.merged("", CONNECTION))

    provider = config["provider"]["splash"]
    assert config["model"] == "splash/default"
    assert provider["options"] == {
        "baseURL": "http://127.0.0.1:8888/v1",
        "apiKey": "sk-splash-x",
        "timeout": False,
        "headerTimeout": False,
        "chunkTimeout": False,
    }
    assert provider["models"]["default"]["limit"] == {"context": 65_536, "output": 16_384}


def test_everything_else_in_opencodes_config_stays():
    before = {
        "theme": "é",
        "provider": {"other": {"npm": "x"}, "splash": {"options": {"headers": {"a": "b"}}, "models": {"mine": {}}}},
    }

    config = json.loads(opencode.merged(json.dumps(before), CONNECTION))

    assert config["theme"] == "é"
    assert config["provider"]["other"] == {"npm": "x"}
    assert config["provider"]["splash"]["options"]["headers"] == {"a": "b"}
    assert set(config["provider"]["splash"]["models"]) == {"mine", "default"}


@pytest.mark.parametrize("client", [claude, codex, opencode], ids=lambda module: module.__name__)
def test_the_key_that_was_merged_is_found_again(client):
    assert client.key_in("") is None
    assert client.key_in(client.merged("", CONNECTION)) == "sk-splash-x"


@pytest.mark.parametrize(
    ("client", "variable", "path"),
    [
        (claude, "CLAUDE_CONFIG_DIR", ".claude/settings.json"),
        (codex, "CODEX_HOME", ".codex/config.toml"),
        (opencode, "XDG_CONFIG_HOME", ".config/opencode/opencode.json"),
    ],
)
def test_a_config_is_where_the_client_looks_for_it(client, variable, path):
    moved = client.path({variable: "/elsewhere"}, HOME)

    assert client.path({}, HOME) == client.path({variable: ""}, HOME) == HOME / path
    assert moved.is_relative_to("/elsewhere")
    assert moved.name == Path(path).name


def test_a_long_context_does_not_ask_for_longer_answers_than_a_client_wants():
    assert Connection("http://h/v1", "k", 262_144).output_tokens == 32_000
    assert Connection("http://h/v1", "k", 3).output_tokens == 1


def test_the_sdks_read_their_address_and_key_from_the_environment():
    assert sdk.openai_environment(CONNECTION) == {
        "OPENAI_BASE_URL": "http://127.0.0.1:8888/v1",
        "OPENAI_API_KEY": "sk-splash-x",
    }
    assert sdk.anthropic_environment(CONNECTION) == {
        "ANTHROPIC_BASE_URL": "http://127.0.0.1:8888",
        "ANTHROPIC_API_KEY": "sk-splash-x",
    }
