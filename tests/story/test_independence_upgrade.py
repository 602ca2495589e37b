"""One process is replaced under load: what runs ends well, what waits is told or held, nothing twice."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import msgspec
import pytest

from control.identity import live_process
from control.loopback import ask
from control.wire import CONCURRENCY
from engine.wire import STATUS, Status
from tests.story.fault_run import Asking, Page
from tests.story.stack import wait_until

pytestmark = pytest.mark.story

NUM_WAITING = 3


def engine_status(stack) -> Status:
    launch = stack.home.read_launch()
    answer = ask(launch.port, STATUS, secret=launch.secret, timeout_s=5)
    return msgspec.json.decode(answer.body, type=Status)


def one_at_a_time(stack) -> None:
    with stack.admin() as admin:
        admin.post(CONCURRENCY, json={"concurrency": 1}).raise_for_status()


def asked(stack, content: str) -> httpx.Response:
    body = {"model": "default", "max_tokens": 4, "messages": [{"role": "user", "content": content}]}
    with stack.api() as api:
        return api.post("/chat/completions", json=body)


def test_an_upgrade_of_control_lets_running_requests_finish_and_tells_the_rest_when_to_come_back(stack):
    stack.up()
    one_at_a_time(stack)
    engine = stack.record("engine")
    running = Asking(stack, "slowly", max_tokens=200)
    wait_until(lambda: running.lines, "the stream to begin")

    with ThreadPoolExecutor(NUM_WAITING) as pool:
        waiting = [pool.submit(asked, stack, f"turn {number}") for number in range(NUM_WAITING)]
        streamed = Asking(stack, "turn", max_tokens=4)
        wait_until(lambda: len(stack.overview().waiting) == NUM_WAITING + 1, "all of them to wait")
        done = stack.splash("restart", "control", "--engine-command", stack.engine_command)
        answers = [each.result() for each in waiting]
    wait_until(lambda: running.end and streamed.end, "both streams to end")

    assert (done.returncode, running.end, len(running.lines)) == (0, "done", 200), done.stderr
    assert [answer.status_code for answer in answers] == [503] * NUM_WAITING
    assert {answer.json()["error"]["code"] for answer in answers} == {"gateway_restarts"}
    assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers)
    assert streamed.end == "ends with gateway_restarts"
    wait_until(lambda: stack.engine_state() == "ready", "the adopted engine")
    assert stack.record("engine") == engine
    # The one that ran, and nothing of what was sent away: each comes back by itself, and runs once.
    assert engine_status(stack).request_counts.completed == 1
    assert asked(stack, "turn again").status_code == 200
    assert engine_status(stack).request_counts.completed == 2


def test_a_restart_of_the_engine_holds_what_waits_and_the_next_one_answers_each_once(stack):
    stack.up()
    one_at_a_time(stack)
    engine, control = stack.record("engine"), stack.record("control")
    running = Asking(stack, "slowly", max_tokens=100)
    wait_until(lambda: running.lines, "the stream to begin")

    with ThreadPoolExecutor(NUM_WAITING) as pool:
        waiting = [pool.submit(asked, stack, f"turn {number}") for number in range(NUM_WAITING)]
        wait_until(lambda: len(stack.overview().waiting) == NUM_WAITING, "all of them to wait")
        done = stack.splash("restart", "engine")
        answers = [each.result() for each in waiting]

    assert (done.returncode, running.end) == (0, "done"), done.stderr
    assert [answer.json()["choices"][0]["message"]["content"] for answer in answers] == [
        f"turn {number}" for number in range(NUM_WAITING)
    ]
    assert (live_process(engine), stack.record("control")) == (None, control)
    assert engine_status(stack).request_counts.completed == NUM_WAITING


def test_a_restart_of_the_console_touches_no_stream_and_ends_no_session(stack):
    page = Page(stack.up()["login"])
    console = stack.record("webui")
    running = Asking(stack, "slowly", max_tokens=150)
    wait_until(lambda: running.lines, "the stream to begin")

    done = stack.splash("restart", "webui")
    is_under_way = running.end is None
    shown = page.state()
    wait_until(lambda: running.end, "the stream's end")

    assert (done.returncode, is_under_way, running.end, len(running.lines)) == (0, True, "done", 150)
    assert (live_process(console), shown) == (None, "ready")


@pytest.mark.parametrize("name", ["engine", "control"])
def test_a_process_may_be_replaced_again_and_again_while_clients_come(stack, name):
    stack.up()
    over, failures, answered = threading.Event(), [], []

    def come_again() -> None:
        """As an SDK does: a refused connection and a 503 are tried again."""
        while not over.wait(0.02):
            try:
                answer = asked(stack, "hello")
            except (httpx.ConnectError, httpx.ReadError, httpx.RemoteProtocolError):
                continue
            (answered if answer.status_code == 200 else failures).append(answer)

    client = threading.Thread(target=come_again)
    client.start()
    hidden = ["--engine-command", stack.engine_command] if name == "control" else []
    codes = [stack.splash("restart", name, *hidden).returncode for _ in range(2)]
    num_before = len(answered)
    wait_until(lambda: len(answered) > num_before, "one more answer")
    over.set()
    client.join()

    assert codes == [0, 0]
    assert [json.loads(each.text)["error"]["code"] for each in failures if each.status_code != 503] == []
