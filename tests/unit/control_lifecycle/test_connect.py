"""`splash connect`: which key a client gets, when a config is written, and what a person is told."""

import json
import stat
import sys
from types import SimpleNamespace

import msgspec
import pytest
import typer
from typer.testing import CliRunner

from control.cli import connect as command
from control.cli.connect import Order, connected, remarks, report
from control.command_errors import CommandFailed, UsageWrong
from control.connections.clients import CLIENTS
from control.connections.connection import instructions
from control.connections.merging import ConfigUnusable
from control.wire import CreatedKey, KeyView

API = "http://127.0.0.1:8888/v1"
CONTEXT = 65_536
COMMENTED = "has comments or spare commas, which can't be kept; add what `splash connect opencode` prints by hand"


class Admin:
    """The admin API as `splash connect` sees it: keys in memory."""

    def __init__(self, *names, context=CONTEXT):
        self.views = []
        self.context = context
        for name in names:
            self.new_key(name, "interactive")

    def overview(self):
        model = None if self.context is None else SimpleNamespace(maximum_context_tokens=self.context, is_demo=False)
        return SimpleNamespace(api_base=API, engine=SimpleNamespace(model=model))

    def keys(self):
        return tuple(self.views)

    def new_key(self, name, request_class):
        number = len(self.views) + 1
        view = KeyView(id=number, name=name, request_class=request_class, hint=f"sk-splash-…{number}", created_at_s=0.0)
        self.views.append(view)
        return CreatedKey(key=f"sk-splash-{number}", view=view)

    def revoke_key(self, key_id):
        self.views[key_id - 1] = msgspec.structs.replace(self.views[key_id - 1], revoked_at_s=1.0)
        return self.views[key_id - 1]

    def active(self):
        return [view.name for view in self.views if view.revoked_at_s is None]


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty home; the variables that would lead elsewhere are not set; the gateway accepts every key."""
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(command, "ask", lambda *_, **__: SimpleNamespace(status=200))
    return tmp_path


def order(name, **more):
    return Order(CLIENTS[name], **more)


def backups(folder):
    return sorted(folder.glob("*.before-splash-*"))


def test_a_client_gets_a_key_that_is_called_after_it(home):
    admin = Admin()

    done = connected(admin, order("claude"), home)

    assert admin.active() == ["claude"]
    assert done.connection.key == "sk-splash-1"
    assert "export ANTHROPIC_AUTH_TOKEN=sk-splash-1" in instructions(done.client, done.connection).splitlines()
    assert 'The key is new, and called "claude".' in remarks(done)


def test_a_second_machine_gets_a_second_key_and_the_first_goes_on_to_work(home):
    admin = Admin("claude", "claude 2")

    done = connected(admin, order("claude"), home)

    assert done.key_name == "claude 3"
    assert admin.active() == ["claude", "claude 2", "claude 3"]


def test_replace_revokes_the_key_of_that_name_and_takes_the_name(home):
    admin = Admin("claude", "codex")

    done = connected(admin, order("claude", replaces=True), home)

    assert done.key_name == "claude"
    assert admin.active() == ["codex", "claude"]
    assert admin.views[0].revoked_at_s is not None


def test_a_revoked_key_does_not_keep_its_name_taken(home):
    admin = Admin("claude")
    admin.revoke_key(1)

    assert connected(admin, order("claude"), home).key_name == "claude"


def test_a_key_can_be_called_otherwise(home):
    assert connected(Admin(), order("codex", key_name=" night shift "), home).key_name == "night shift"


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
def test_nothing_is_written_unless_asked(home, name):
    connected(Admin(), order(name), home)

    assert list(home.iterdir()) == []


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
def test_what_is_written_is_what_would_be_printed_and_only_its_owner_can_read_it(home, name):
    done = connected(Admin(), order(name, writes=True), home)

    assert done.path.read_text() == report(done)["content"]
    assert stat.S_IMODE(done.path.stat().st_mode) == 0o600
    assert backups(done.path.parent) == []


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
def test_writing_twice_keeps_the_key_and_changes_nothing(home, name):
    admin = Admin()
    first = connected(admin, order(name, writes=True), home)

    second = connected(admin, order(name, writes=True), home)

    assert admin.active() == [name]
    assert (second.key_name, second.written.is_changed) == (None, False)
    assert second.connection == first.connection
    assert backups(second.path.parent) == []
    assert f'The key in it, "{name}", is kept.' in remarks(second)


def test_what_was_only_printed_can_be_written_without_leaving_a_key_behind(home):
    admin = Admin("claude")
    printed = connected(admin, order("claude"), home)

    written = connected(admin, order("claude", writes=True, replaces=True, key_name="claude 2"), home)

    hint = "`splash connect claude --write --replace --key 'claude 2'` merges it in with a new key, revokes this one"
    assert hint in remarks(printed)[0]
    assert admin.active() == ["claude", "claude 2"]
    assert remarks(written)[1:] == [
        'The key that was called "claude 2" is revoked.',
        'The key is new, and called "claude 2".',
    ]
    assert report(written)["revoked"] == "claude 2"


def test_a_good_key_that_is_no_longer_in_the_config_is_named(home):
    admin = Admin()
    connected(admin, order("codex", writes=True), home)

    done = connected(admin, order("codex", writes=True, key_name="night"), home)

    said = 'The key that was in the file before, "codex", stays good; `splash keys revoke codex` ends it.'
    assert remarks(done)[-1] == said


def test_a_key_that_cannot_be_told_from_another_is_kept_without_a_name(home):
    admin = Admin()
    connected(admin, order("codex", writes=True), home)
    admin.views[0] = msgspec.structs.replace(admin.views[0], hint="sk-splash-…9")

    assert "The key in it is kept." in remarks(connected(admin, order("codex", writes=True), home))


def test_a_key_in_the_config_that_is_refused_is_replaced_by_a_new_one(home, monkeypatch):
    admin = Admin()
    connected(admin, order("codex", writes=True), home)
    monkeypatch.setattr(command, "ask", lambda *_, **__: SimpleNamespace(status=401))

    done = connected(admin, order("codex", writes=True), home)

    assert done.key_name == "codex 2"
    assert "sk-splash-2" in done.path.read_text()


def test_the_gateway_itself_says_whether_a_key_is_still_good(home, monkeypatch):
    asked = []
    connected(Admin(), order("codex", writes=True), home)
    monkeypatch.setattr(
        command, "ask", lambda *where, secret, **_: asked.append((*where, secret)) or SimpleNamespace(status=200)
    )

    connected(Admin(), order("codex", writes=True), home)

    assert asked == [(8888, "/v1/models", "sk-splash-1")]


@pytest.mark.parametrize("key", ["schlüssel", "a\nb", ""])
def test_what_cannot_be_a_key_is_not_sent_anywhere(home, monkeypatch, key):
    monkeypatch.setattr(command, "ask", lambda *_, **__: pytest.fail("it was sent"))
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"env": {"ANTHROPIC_AUTH_TOKEN": key}}))

    assert connected(Admin(), order("claude", writes=True), home).key_name == "claude"


def test_the_config_as_it_was_is_kept_beside_it_for_its_owner_alone(home):
    file = home / ".claude" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"theme": "dark", "env": {"EDITOR": "vi"}}')

    done = connected(Admin(), order("claude", writes=True), home)

    assert [each.read_text() for each in backups(file.parent)] == ['{"theme": "dark", "env": {"EDITOR": "vi"}}']
    assert done.written.backup == backups(file.parent)[0]
    assert stat.S_IMODE(done.written.backup.stat().st_mode) == 0o600
    settings = json.loads(file.read_text())
    assert settings["theme"] == "dark"
    assert settings["env"]["EDITOR"] == "vi"
    assert settings["env"]["ANTHROPIC_AUTH_TOKEN"] == "sk-splash-1"


@pytest.mark.parametrize(
    ("name", "path", "text", "sentence"),
    [
        ("claude", ".claude/settings.json", b"{", "is not valid JSON"),
        ("claude", ".claude/settings.json", b"[" * 100_000, "is not valid JSON"),
        ("claude", ".claude/settings.json", b"[]", "does not hold a JSON object"),
        ("claude", ".claude/settings.json", b'{"env": 3}', 'has an "env" that is not an object'),
        ("claude", ".claude/settings.json", b"\xff", "is not text in UTF-8"),
        ("codex", ".codex/config.toml", b"model = ", "is not valid TOML"),
        ("codex", ".codex/config.toml", b"a = 1\na = 2", "is not valid TOML"),
        ("codex", ".codex/config.toml", b"a = " + b"[" * 100_000, "is not valid TOML"),
        (
            "codex",
            ".codex/config.toml",
            b"model_providers.azure.name = 'a'",
            "is laid out in a way that can't be merged; add what `splash connect codex` prints by hand",
        ),
        ("codex", ".codex/config.toml", b"model_providers = 3", 'has a "model_providers" that is not a table'),
        ("codex", ".codex/config.toml", b"[model_providers]\nsplash = 3", 'has a "splash" that is not a table'),
        ("opencode", ".config/opencode/opencode.json", b"// hello\n{}", COMMENTED),
        ("opencode", ".config/opencode/opencode.json", b'{"a": "//", /* x\n */ "b": [1,],}', COMMENTED),
        ("opencode", ".config/opencode/opencode.jsonc", b'{} // "', COMMENTED),
        ("opencode", ".config/opencode/opencode.json", b'{"a": // }', "is not valid JSON"),
        ("opencode", ".config/opencode/opencode.json", b'{"a" "//"}', "is not valid JSON"),
        ("opencode", ".config/opencode/opencode.json", b"[] // x", "does not hold a JSON object"),
        ("opencode", ".config/opencode/opencode.json", b'{"provider": []}', 'has a "provider" that is not an object'),
    ],
)
def test_a_config_that_is_not_valid_is_refused_in_one_sentence_and_nothing_changes(home, name, path, text, sentence):
    file = home / path
    file.parent.mkdir(parents=True)
    file.write_bytes(text)
    admin = Admin()

    with pytest.raises(ConfigUnusable) as caught:
        connected(admin, order(name, writes=True), home)

    assert str(caught.value) == f"{file} {sentence}; nothing was changed."
    assert file.read_bytes() == text
    assert [each.name for each in file.parent.iterdir()] == [file.name]
    assert admin.active() == []


@pytest.mark.parametrize("names", [("opencode.jsonc",), ("opencode.json", "opencode.jsonc")])
def test_opencode_is_set_up_in_the_file_that_it_reads_last_and_gets_no_second_one(home, names):
    folder = home / ".config" / "opencode"
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text('{"theme": "dark"}')

    done = connected(Admin(), order("opencode", writes=True), home)

    assert done.path == folder / "opencode.jsonc"
    assert json.loads(done.path.read_text())["model"] == "splash/default"
    assert {each.name for each in folder.iterdir() if "before-splash" not in each.name} == set(names)


def test_a_folder_where_the_config_should_be_is_refused(home):
    (home / ".codex" / "config.toml").mkdir(parents=True)

    with pytest.raises(ConfigUnusable, match="can't be read"):
        connected(Admin(), order("codex", writes=True), home)


@pytest.mark.parametrize("name", ["openai", "anthropic"])
def test_an_sdk_has_no_config_to_write_and_gets_no_key_for_it(home, name):
    admin = Admin()

    with pytest.raises(UsageWrong, match="has no config file"):
        connected(admin, order(name, writes=True), home)

    assert admin.active() == []


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
def test_without_a_model_the_context_is_left_out_and_it_is_said(home, name):
    done = connected(Admin(context=None), order(name, writes=True), home)

    assert not any(word in done.path.read_text().lower() for word in ("context", '"limit"'))
    assert any("No model is loaded" in said for said in remarks(done))


def test_a_model_that_is_loaded_later_brings_its_context_and_the_key_stays(home):
    admin = Admin(context=None)
    connected(admin, order("opencode", writes=True), home)
    admin.context = CONTEXT

    done = connected(admin, order("opencode", writes=True), home)

    assert json.loads(done.path.read_text())["provider"]["splash"]["models"]["default"]["limit"]["context"] == CONTEXT
    assert (done.key_name, len(backups(done.path.parent))) == (None, 1)


def test_the_json_is_one_object_and_the_file_is_written_too(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(command, "this_place", lambda: None)
    monkeypatch.setattr(command, "running_control", lambda _place: Admin())
    app = typer.Typer()
    app.command()(command.connect)

    ran = CliRunner().invoke(app, ["codex", "--write", "--json"])

    answer = json.loads(ran.stdout)
    assert (answer["client"], answer["key_name"], answer["api"], answer["context"]) == ("codex", "codex", API, CONTEXT)
    assert (answer["written"], answer["changed"], answer["backup"]) == (True, True, None)
    assert answer["file"] == str(home / ".codex" / "config.toml")


def test_only_what_is_to_be_copied_is_on_stdout(home, monkeypatch):
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr(command, "this_place", lambda: None)
    monkeypatch.setattr(command, "running_control", lambda _place: Admin())
    app = typer.Typer()
    app.command()(command.connect)

    ran = CliRunner().invoke(app, ["openai"])

    assert ran.stdout == f"export OPENAI_BASE_URL={API}\nexport OPENAI_API_KEY=sk-splash-1\n"
    assert 'The key is new, and called "openai".' in ran.stderr


def test_a_home_that_cannot_be_written_is_said_and_the_config_stays(home, monkeypatch):
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.write_text("# mine\n")

    def refuse(*_arguments, **_more):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("control.connections.merging.tempfile.mkstemp", refuse)

    admin = Admin()

    with pytest.raises(CommandFailed, match="can't be written") as caught:
        connected(admin, order("codex", writes=True), home)

    assert "as it was" in str(caught.value)
    assert file.read_text() == "# mine\n"
    assert admin.active() == []


@pytest.mark.skipif(sys.platform == "win32", reason="links")
def test_a_config_that_is_a_link_stays_one(home):
    real = home / "dotfiles" / "codex.toml"
    real.parent.mkdir()
    real.write_text("# mine\n")
    file = home / ".codex" / "config.toml"
    file.parent.mkdir()
    file.symlink_to(real)

    connected(Admin(), order("codex", writes=True), home)

    assert file.is_symlink()
    assert real.read_text().startswith("# mine\n")
    assert "sk-splash-1" in real.read_text()
