"""A Hugging Face hub of one repository on a free port: the few answers that a download needs."""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "a" * 40


class Hub:
    def __init__(self, url: str) -> None:
        self.url = url
        self.downloaded: list[str] = []


@contextmanager
def serving(name: str, files: dict[str, bytes]) -> Iterator[Hub]:
    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.do_GET()

        def do_GET(self) -> None:
            path = self.path.split("?")[0]
            if path.startswith(f"/api/models/{name}/revision/"):
                self._answer_json({"id": name, "modelId": name, "sha": COMMIT, "siblings": []})
            elif path.startswith(f"/api/models/{name}/tree/"):
                self._answer_json([self._entry(file, content) for file, content in files.items()])
            elif path.startswith(f"/{name}/resolve/") and path.split("/")[-1] in files:
                self._answer_file(path.split("/")[-1])
            else:
                self.send_response(404)
                self.send_header("X-Error-Code", "RepoNotFound")
                self.send_header("Content-Length", "0")
                self.end_headers()

        def _entry(self, file: str, content: bytes) -> dict[str, object]:
            return {"type": "file", "path": file, "size": len(content), "oid": hashlib.sha1(content).hexdigest()}

        def _answer_json(self, value: object) -> None:
            self._answer(json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _answer_file(self, file: str) -> None:
            if self.command == "GET":
                hub.downloaded.append(file)
            headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{hashlib.sha1(files[file]).hexdigest()}"'}
            self._answer(files[file], headers)

        def _answer(self, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(200)
            for header, value in headers.items():
                self.send_header(header, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub = Hub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
