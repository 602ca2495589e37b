"""`splash requests export`: what it asks of control, and that it ends in words when control does not send it all."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest
from typer.testing import CliRunner

from control.cli import requests as request_commands
from control.cli.admin_client import AdminClient
from control.cli.app import app
from control.command_errors import NotAnswering, OrderRefused, UsageWrong
from control.wire import KEYS, REQUEST_CHOICES, KeyList, KeyView, RequestChoices
from tests.fakes.control_record import record_of_this_process


def answers(*, keys=(), of_requests=()):
    """What control says of the names of keys, and of those that its rows have."""
    views = tuple(
        KeyView(id=number, name=name, request_class="batch", hint="h", created_at_s=0, revoked_at_s=1)
        for number, name in enumerate(keys, 1)
    )
    choices = RequestChoices(keys=of_requests, models=(), dialects=())
    return {KEYS: msgspec.json.encode(KeyList(keys=views)), REQUEST_CHOICES: msgspec.json.encode(choices)}


@pytest.fixture
def control(monkeypatch):
    """Answers every GET with `status` and `body` in one chunk; unless `is_whole`, the end of the chunks is missing.

    `known`: other answers by their path.
    """
    state = SimpleNamespace(status=200, body=b"", is_whole=True, asked=[], known={})

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            state.asked.append((self.path, self.headers["authorization"]))
            self.send_response(state.status)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            body = state.known.get(self.path, state.body)
            self.wfile.write(b"%x\r\n%b\r\n" % (len(body), body))
            self.wfile.write(b"0\r\n\r\n" if state.is_whole else b"")
            self.close_connection = True

        def log_message(self, *_):
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    record = record_of_this_process(server.server_port)
    client = AdminClient(SimpleNamespace(admin_secret=lambda: "secret"), record)
    monkeypatch.setattr(request_commands, "this_place", lambda: None)
    monkeypatch.setattr(request_commands, "running_control", lambda place: client)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield state
    server.shutdown()
    thread.join()
    server.server_close()


def test_the_file_goes_to_standard_output_as_it_came(control):
    control.body = b"number,key\r\n" + b"1,laptop\r\n" * 50_000
    control.known = answers(keys=("a b",))

    done = CliRunner().invoke(app, ["requests", "export", "--range", "week", "--key", "a b"])

    path, secret = control.asked[-1]
    assert (done.exit_code, done.stdout_bytes) == (0, control.body)
    assert (urlsplit(path).path, secret) == ("/requests/export", "Bearer secret")
    assert parse_qs(urlsplit(path).query) == {"format": ["csv"], "range": ["week"], "key": ["a b"]}


@pytest.mark.parametrize("known", [{"keys": ("zzz",)}, {"of_requests": ("zzz",)}])
def test_a_key_may_be_asked_for_that_only_rows_or_only_keys_know(control, known):
    control.body, control.known = b"number,key\r\n", answers(**known)

    done = CliRunner().invoke(app, ["requests", "export", "--key", "zzz"])

    assert (done.exit_code, done.stdout_bytes) == (0, control.body)


def test_a_key_that_nobody_has_is_no_empty_file(control):
    control.body, control.known = b"number,key\r\n", answers(keys=("laptop",))

    done = CliRunner().invoke(app, ["requests", "export", "--key", "zzz"])

    assert isinstance(done.exception, OrderRefused)
    assert str(done.exception) == "There is no key named 'zzz'; `splash keys --all` lists them."
    assert done.stdout_bytes == b""


def test_a_refusal_is_its_sentence(control):
    control.status, control.body = 400, b'{"code": "invalid_request", "message": "format must be one of csv, json."}'

    done = CliRunner().invoke(app, ["requests", "export", "--format", "xlsx"])

    assert isinstance(done.exception, UsageWrong), "it is wrong however things stand"
    assert str(done.exception) == "format must be one of csv, json."


def test_a_file_that_broke_off_is_not_taken_for_the_whole(control):
    control.body, control.is_whole = b"number\r\n1\r\n", False

    done = CliRunner().invoke(app, ["requests", "export"])

    assert isinstance(done.exception, NotAnswering)
