"""What `--help` shows of every command, and what an argument that can't be gets: our words, whole, at 80 columns."""

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from control.cli.app import app


def commands(group, *path):
    yield path
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *path, name)


@pytest.mark.parametrize("path", list(commands(get_command(app))), ids=" ".join)
def test_no_help_shows_a_flag_with_a_value_or_cuts_a_sentence(path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    shown = CliRunner().invoke(app, [*path, "--help"]).stdout

    assert "--help  " in shown
    # In the first line dots mean that several can be given.
    _, _, described = shown.partition("\n")
    assert "<bool>" not in described and "..." not in described
    assert max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("connect", "nope"),
            "'nope' is not a client: claude, codex, opencode, openai, anthropic or curl.",
        ),
        (("keys", "new", "x", "--class", "first"), "'first' is not a class: interactive or batch."),
        (("logs", "nope"), "'nope' is not a log: engine, control, webui or login."),
        (("connect", "claude", "--key", " "), "--key is empty; it takes the name that the key gets."),
    ],
)
def test_an_argument_that_cannot_be_is_refused_in_our_words(arguments, sentence, monkeypatch, tmp_path):
    monkeypatch.setenv("SPLASH_HOME", str(tmp_path / "home"))

    ran = CliRunner().invoke(app, arguments)

    assert (str(ran.exception), ran.exception.exit_code) == (sentence, 2)
