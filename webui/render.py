"""Templates into HTML: whole pages, and single blocks of the same templates.

It gives a template the fields of one view and nothing else; escaping is on, and an unknown name is an error.
"""

import re
from dataclasses import fields
from pathlib import Path
from typing import Any, Final, Protocol

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from webui.views.shell import Shell

FRONTEND: Final = Path(__file__).resolve().parent.parent / "frontend"


_COMMAND: Final = re.compile(r"`([^`]+)`")


class View(Protocol):
    """A frozen dataclass: the whole context of one template."""

    @property
    def shell(self) -> Shell: ...


class Renderer:
    def __init__(self, templates: Path = FRONTEND / "templates") -> None:
        self._environment = Environment(
            loader=FileSystemLoader(templates),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        self._environment.filters["commands"] = commands
        self._environment.filters["plain"] = plain

    def page(self, template: str, view: View) -> str:
        return self._environment.get_template(template).render(_context(view))

    def block(self, template: str, block: str, view: View) -> str:
        page = self._environment.get_template(template)
        return "".join(page.blocks[block](page.new_context(_context(view))))


def commands(sentence: str) -> Markup:
    """What stands between backticks is something to type."""
    return Markup(_COMMAND.sub(r"<code>\1</code>", str(escape(sentence))))


def plain(sentence: str) -> str:
    """For an attribute, where nothing can be shown as code."""
    return _COMMAND.sub(r"\1", sentence)


def _context(view: View) -> dict[str, Any]:
    context = {field.name: getattr(view, field.name) for field in fields(view)}  # type: ignore[arg-type]  # a Protocol cannot say "dataclass"
    return context | {"t": view.shell.text}
