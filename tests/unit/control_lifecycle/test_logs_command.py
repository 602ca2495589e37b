"""`splash logs login`: what a start at login had to complain about, beside the logs of the three processes."""

import pytest

from control.cli.logs import print_log
from control.command_errors import NotRunning
from control.home import Home


def test_what_a_start_at_login_complained_about_is_printed(tmp_path, capsys):
    home = Home(tmp_path)
    home.login_log.parent.mkdir()
    home.login_log.write_text("Port 8888 is taken by pid 7 (jupyter).\n")

    print_log(home, "login", follow=False)

    assert capsys.readouterr().out == "Port 8888 is taken by pid 7 (jupyter).\n"


def test_when_no_start_at_login_ever_complained_that_is_said(tmp_path):
    with pytest.raises(NotRunning):
        print_log(Home(tmp_path), "login", follow=False)
