"""`splash logs login`: what a start at login had to complain about, beside the logs of the three processes."""

import pytest

from control.cli.logs import print_log
from control.command_errors import NothingWritten
from control.home import Home


def test_what_a_start_at_login_complained_about_is_printed(tmp_path, capsys):
    home = Home(tmp_path)
    home.login_log.parent.mkdir()
    home.login_log.write_text("Port 8888 is taken by pid 7 (jupyter).\n")

    print_log(home, "login", follow=False)

    assert capsys.readouterr().out == "Port 8888 is taken by pid 7 (jupyter).\n"


@pytest.mark.parametrize("is_there", [False, True])
def test_of_a_log_without_a_line_it_is_said_that_nothing_was_written_yet(tmp_path, is_there):
    home = Home(tmp_path)
    home.login_log.parent.mkdir()
    if is_there:
        home.login_log.touch()

    with pytest.raises(NothingWritten, match=r"^Nothing was written to the login log yet\.$") as caught:
        print_log(home, "login", follow=False)

    assert caught.value.exit_code == 3
