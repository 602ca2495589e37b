"""Chromium driven over its debugging pipe, with as few of its tools switched on as a measurement of memory needs.

It is no test browser: Playwright's keeps the body of every answer in the page's process, where it would be measured.
Format: Chrome DevTools Protocol, messages of JSON that end with a zero byte, on the descriptors 3 and 4.
"""

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

PROGRAM: Final = "/usr/bin/chromium"
ANSWER_LIMIT_S: Final = 60.0
SEE_EVERY_S: Final = 0.25
ARGUMENTS: Final = (
    "--headless=new",
    "--no-sandbox",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--remote-debugging-pipe",
    "--window-size=1280,900",
    "--lang=en-US",
)


class BrowserSaysNo(Exception):
    """The browser refused an order, or a script of ours threw."""


class Chromium:
    """`asked`: the pipe that orders go into; `answers`: where answers come out."""

    def __init__(self, asked: int, answers: int) -> None:
        self._asked = asked
        self._answers = os.fdopen(answers, "rb", buffering=0)
        self._rest = b""
        self._number = 0

    def send(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        """Raises BrowserSaysNo. What the browser tells by itself meanwhile is not listened to."""
        self._number += 1
        order = {"id": self._number, "method": method, "params": parameters}
        os.write(self._asked, json.dumps(order | ({"sessionId": session} if session else {})).encode() + b"\0")
        deadline = time.monotonic() + ANSWER_LIMIT_S
        while time.monotonic() < deadline:
            told = self._next()
            if told.get("id") == self._number:
                if "error" in told:
                    raise BrowserSaysNo(f"{method}: {told['error']['message']}")
                return dict(told["result"])
        raise BrowserSaysNo(f"{method}: no answer within {ANSWER_LIMIT_S:.0f} s")

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = self._answers.read(65_536)
            if not read:
                raise BrowserSaysNo("the browser has ended")
            self._rest += read
        message, _, self._rest = self._rest.partition(b"\0")
        return dict(json.loads(message))


class OpenPage:
    """One page. No domain of the tools is enabled but that of the heap."""

    def __init__(self, browser: Chromium, address: str) -> None:
        self.browser = browser
        target = browser.send("Target.createTarget", url=address)["targetId"]
        self._session = browser.send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]

    def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.send(method, self._session, **parameters)

    def evaluate(self, function: str) -> Any:
        """What a function of the page's own world returns, as JSON. Raises BrowserSaysNo."""
        answer = self.send("Runtime.evaluate", expression=f"({function})()", returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserSaysNo(answer["exceptionDetails"].get("exception", {}).get("description", "a script threw"))
        return answer["result"].get("value")

    def wait_for(self, claim: str, *, limit_s: float = 60.0) -> None:
        """Until the function `claim` returns something true. Raises BrowserSaysNo."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            if self.evaluate(claim):
                return
            time.sleep(SEE_EVERY_S)
        raise BrowserSaysNo(f"not so within {limit_s:.0f} s: {claim}")


@contextmanager
def chromium() -> Iterator[Chromium]:
    """Ended afterwards, and its profile removed."""
    orders_out, orders_in = os.pipe()
    answers_out, answers_in = os.pipe()

    def on_three_and_four() -> None:
        # Copies first: one of the four may already be a 3 or a 4.
        reads, writes = os.dup(orders_out), os.dup(answers_in)
        os.dup2(reads, 3)
        os.dup2(writes, 4)

    with tempfile.TemporaryDirectory(prefix="splash-chromium-") as profile:
        process = subprocess.Popen(
            [PROGRAM, *ARGUMENTS, f"--user-data-dir={profile}", "about:blank"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            preexec_fn=on_three_and_four,  # before any thread of ours runs
            close_fds=False,
        )
        os.close(orders_out)
        os.close(answers_in)
        try:
            yield Chromium(orders_in, answers_out)
        finally:
            os.close(orders_in)
            process.terminate()
            process.wait(20)
