"""`splash requests export`: what it asks of control, and that it ends in words when control does not send it all."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import pytest
from typer.testing import CliRunner

from control.cli import requests as request_commands
from control.cli.admin_client import AdminClient
from control.cli.app import app
from control.command_errors import NotRunning, UsageWrong
from engine.wire import ProcessRecord

# No system gives such a one.
NO_PID = 2**22 + 1


@pytest.fixture
def control(monkeypatch):
    """Answers every GET with `status` and `body` in one chunk; unless `is_whole`, the end of the chunks is missing."""
    state = SimpleNamespace(status=200, body=b"", is_whole=True, asked=[])

    class Answers(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            state.asked.append((self.path, self.headers["authorization"]))
            self.send_response(state.status)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(state.body), state.body))
            self.wfile.write(b"0\r\n\r\n" if state.is_whole else b"")
            self.close_connection = True

        def log_message(self, *_):
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    record = ProcessRecord(
        name="control",
        pid=NO_PID,
        created_at_s=0.0,
        nonce="n",
        port=server.server_port,
        manager="detached",
        started_at_s=0.0,
        version="0",
    )
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

    done = CliRunner().invoke(app, ["requests", "export", "--range", "week", "--key", "a b"])

    ((path, secret),) = control.asked
    assert (done.exit_code, done.stdout_bytes) == (0, control.body)
    assert (urlsplit(path).path, secret) == ("/requests/export", "Bearer secret")
    assert parse_qs(urlsplit(path).query) == {"format": ["csv"], "range": ["week"], "key": ["a b"]}


def test_a_refusal_is_its_sentence(control):
    control.status, control.body = 400, b'{"code": "invalid_request", "message": "format must be one of csv, json."}'

    done = CliRunner().invoke(app, ["requests", "export", "--format", "xlsx"])

    assert isinstance(done.exception, UsageWrong), "it is wrong however things stand"
    assert str(done.exception) == "format must be one of csv, json."


def test_a_file_that_broke_off_is_not_taken_for_the_whole(control):
    control.body, control.is_whole = b"number\r\n1\r\n", False

    done = CliRunner().invoke(app, ["requests", "export"])

    assert isinstance(done.exception, NotRunning), "nobody has that pid"
