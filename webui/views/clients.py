"""The page *Keys*: which keys exist, and the one moment at which a new one is seen.

It never holds a key longer than the answer that shows it.
"""

from dataclasses import dataclass

from control.wire import CreatedKey, KeyView
from webui import numbers
from webui.text import Text
from webui.views.shell import Shell


@dataclass(frozen=True, slots=True)
class KeyRow:
    id: int
    name: str
    request_class: str
    hint: str
    created: str
    revoked: str | None
    revoke_label: str
    revoke_effect: str


@dataclass(frozen=True, slots=True)
class NewKeyBox:
    """Shown once, in the answer to the form that made it."""

    name: str
    key: str


@dataclass(frozen=True, slots=True)
class KeysPage:
    """`problem` replaces the list while control is silent."""

    shell: Shell
    keys: tuple[KeyRow, ...]
    created: NewKeyBox | None
    problem: str | None
    api_base: str


def keys_page(
    shell: Shell,
    keys: tuple[KeyView, ...],
    *,
    api_base: str = "",
    created: CreatedKey | None = None,
    problem: str | None = None,
) -> KeysPage:
    newest_first = sorted(keys, key=lambda view: (view.revoked_at_s is not None, -view.created_at_s))
    return KeysPage(
        shell=shell,
        keys=tuple(_key_row(view, shell.text) for view in newest_first),
        created=NewKeyBox(name=created.view.name, key=created.key) if created is not None else None,
        problem=problem,
        api_base=api_base,
    )


def _key_row(view: KeyView, text: Text) -> KeyRow:
    return KeyRow(
        id=view.id,
        name=view.name,
        request_class=text("keys.batch") if view.request_class == "batch" else text("keys.interactive"),
        hint=view.hint,
        created=numbers.date_and_time(text, view.created_at_s),
        revoked=numbers.date_and_time(text, view.revoked_at_s) if view.revoked_at_s is not None else None,
        revoke_label=text("keys.revoke_label", name=view.name),
        revoke_effect=text("keys.revoke_effect", name=view.name),
    )
