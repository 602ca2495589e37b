"""Little processes that answer /healthz, or refuse to: identity and ending are about processes, so these are real."""

import subprocess
import sys
import time
from dataclasses import dataclass

import msgspec
import psutil
import pytest

from engine.wire import ProcessRecord

PROGRAM = """
import http.server, json, os, signal, sys, threading
nonce, behaviour = sys.argv[1:3]
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        body = b"hello" if behaviour == "foreign" else json.dumps({"pid": os.getpid(), "nonce": nonce}).encode()
        self.send_response(200); self.send_header("Content-Length", str(len(body))); self.end_headers()
        self.wfile.write(body)
    def do_POST(self):
        self.send_response(200); self.send_header("Content-Length", "0"); self.end_headers()
        threading.Thread(target=server.shutdown).start()
    def log_message(self, *_): pass
if behaviour == "stubborn":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
"""


@dataclass
class Listener:
    """A process that listens, and the record that it would have written."""

    child: subprocess.Popen
    record: ProcessRecord

    def with_(self, **changes) -> ProcessRecord:
        return msgspec.structs.replace(self.record, **changes)


@pytest.fixture
def listen():
    """Start a listener: "polite", "stubborn" (ignores SIGTERM), or "foreign" (answers /healthz with something else).

    `words` end its command line.
    """
    children = []

    def start(behaviour: str = "polite", nonce: str = "the nonce", *words: str) -> Listener:
        child = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, nonce, behaviour, *words], stdout=subprocess.PIPE, start_new_session=True
        )
        children.append(child)
        port = int(child.stdout.readline())
        record = ProcessRecord(
            name="engine",
            pid=child.pid,
            created_at_s=psutil.Process(child.pid).create_time(),
            nonce=nonce,
            port=port,
            manager="control",
            started_at_s=time.time(),
            version="0",
        )
        return Listener(child, record)

    yield start
    for child in children:
        child.kill()
        child.wait()
        child.stdout.close()
