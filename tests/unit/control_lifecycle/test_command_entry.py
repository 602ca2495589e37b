"""Ctrl-C before a command has begun: an exit code, and no traceback."""

import sys
from types import ModuleType

import pytest

from control.cli import entry


def interrupt(*_):
    raise KeyboardInterrupt


def test_ctrl_c_while_the_modules_are_read_ends_quietly(monkeypatch, capsys):
    half_read = ModuleType("control.cli.app")
    half_read.__getattr__ = interrupt
    monkeypatch.setitem(sys.modules, "control.cli.app", half_read)

    with pytest.raises(SystemExit) as caught:
        entry.main()

    assert caught.value.code == 130
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_in_a_command_that_does_not_expect_it_does_so_too(monkeypatch):
    monkeypatch.setattr("control.cli.app.app", interrupt)

    with pytest.raises(SystemExit) as caught:
        entry.main()

    assert caught.value.code == 130


def test_nothing_is_imported_before_it_is_ready_for_that():
    imported = [name for name, value in vars(entry).items() if isinstance(value, ModuleType)]

    assert imported == ["sys"]
