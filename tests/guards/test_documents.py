"""Guards: what the documents must name. They check that it is named, not that the sentence about it is true."""

import re
from pathlib import Path

import pytest
from typer.main import get_command

from control import errors as control_errors
from control import wire as control_wire
from control.admin import errors as admin_errors
from control.cli.app import app
from control.config import KNOWN_KEYS
from control.public_api import public_api
from engine import wire as engine_wire

ROOT = Path(__file__).resolve().parents[2]
API = (ROOT / "docs" / "api.md").read_text()
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()


def paths_of(wire) -> list[str]:
    return [value for name, value in vars(wire).items() if name.isupper() and str(value).startswith("/")]


def error_classes(base: type) -> list[type]:
    return [base, *(each for child in base.__subclasses__() for each in error_classes(child))]


def commands_of(group, *path) -> list[str]:
    """Every command that can be given: `keys new`, and `keys` where the group alone does something."""
    subcommands = getattr(group, "commands", {})
    own = [] if not path or (subcommands and not group.invoke_without_command) else [" ".join(path)]
    return own + [each for name, command in subcommands.items() for each in commands_of(command, *path, name)]


@pytest.mark.parametrize("wire", [control_wire, engine_wire], ids=["control", "engine"])
def test_every_path_of_a_door_is_in_the_api_document(wire):
    assert [path for path in paths_of(wire) if f"{path}`" not in API] == []


def test_every_route_of_the_public_api_is_in_the_api_document():
    routes = public_api(keys=None, relay=None, source=None, hosts=()).app.routes
    named = {route.path.replace("{model_id:path}", "{id}") for route in routes}

    assert "/v1/chat/completions" in named
    assert {path for path in named if f"{path}`" not in API} == set()


def test_every_error_code_that_a_client_can_get_is_in_the_api_document():
    answered = [*error_classes(control_errors.ApiError), *error_classes(admin_errors.AdminRefusal)]
    codes = {error.code for error in answered} | {admin_errors.KeyNameTaken.code, admin_errors.UnknownKey.code}

    assert {code for code in codes if f"`{code}`" not in API} == set()


def test_every_setting_is_in_the_operations_document():
    assert [key for key in KNOWN_KEYS if f"`{key}`" not in OPERATIONS] == []


def test_every_command_of_splash_is_in_the_table_of_commands():
    table = OPERATIONS.split("| command |", 1)[1].split("\n\n", 1)[0]
    named = [words.removeprefix("splash ") for row in table.splitlines() for words in re.findall("`([^`]+)`", row)]

    missing = [
        command
        for command in commands_of(get_command(app))
        if not any(words == command or words.startswith(f"{command} ") for words in named)
    ]

    assert "keys new" in commands_of(get_command(app))
    assert missing == []


def test_the_readme_names_the_two_commands_and_says_what_the_demo_is():
    readme = (ROOT / "README.md").read_text()

    assert "make up" in readme
    assert "make test" in readme
    assert "random weights" in readme
