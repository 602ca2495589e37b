"""A page of one message: log in, this link is used, this is not here, this went wrong.

It offers at most one way on.
"""

from dataclasses import dataclass

from webui.views.shell import Shell


@dataclass(frozen=True, slots=True)
class MessagePage:
    """`command` is shown as something to type. `refresh_to` sends the browser on by itself."""

    shell: Shell
    heading: str
    sentence: str
    command: str | None = None
    link: str | None = None
    link_text: str = ""
    refresh_to: str | None = None
