"""The page that asks for the console's password, where one was set; a link of the terminal opens the console, too.

It checks nothing: control does.
"""

from dataclasses import dataclass

from webui.views.shell import Shell


@dataclass(frozen=True, slots=True)
class LoginPage:
    """`next_path`: the page that was asked for. `problem`: why the last try did not open it."""

    shell: Shell
    next_path: str
    problem: str = ""
    is_password_wrong: bool = False
