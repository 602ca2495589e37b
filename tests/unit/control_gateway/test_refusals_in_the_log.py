"""What is refused before it is a request has no row: one line of the log says which, whose, and what it wanted."""

import logging

import httpx
import pytest
import pytest_asyncio

from tests.unit.control_gateway.dialect_calls import CHAT, MESSAGES, as_new
from tests.unit.control_gateway.gateway_stage import staged

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(tmp_path_factory):
    async with staged(tmp_path_factory.mktemp("home"), body_limit_bytes=100_000) as stage:
        yield stage, stage.source.engine


@pytest.fixture
def stage(shared, caplog):
    caplog.set_level(logging.INFO, logger="control.gate")
    return as_new(*shared)


def lines(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "control.gate"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (CHAT.path, CHAT.body()),
        (MESSAGES.path, MESSAGES.body()),
        ("/v1/messages/count_tokens", MESSAGES.body()),
    ],
)
async def test_a_model_that_is_not_here_leaves_its_name_in_one_line(stage, caplog, path, body):
    wanted = "org/no-model_4bit:latest"

    answer = await stage.client.post(path, json=body | {"model": wanted})

    assert answer.status_code == 404
    [line] = lines(caplog)
    assert line == (
        f"request refused id={answer.headers['x-request-id']} key='test' path={path!r} status=404 "
        f"error=model_not_found param='model' model={wanted!r}"
    )


@pytest.mark.parametrize("wanted", ["words that somebody said", "no-model\n", "x" * 81, "\x1b[2J"])
async def test_what_cannot_be_the_name_of_a_model_is_not_written_down(stage, caplog, wanted):
    await stage.client.post(CHAT.path, json=CHAT.body() | {"model": wanted})

    [line] = lines(caplog)
    assert line.endswith("model='(not a name)'") and wanted not in line


@pytest.mark.parametrize(
    ("method", "path", "content", "said"),
    [
        (
            "POST",
            CHAT.path,
            b'{"model": "demo", "messages": [], "x": "a prompt"}',
            "error=invalid_request param='messages'",
        ),
        ("POST", CHAT.path, b"a prompt", "status=400 error=invalid_request param=None"),
        ("POST", CHAT.path, b" " * 100_001, "status=413 error=request_too_large"),
        ("GET", CHAT.path, b"", "status=405 error=method_not_allowed"),
        ("GET", "/v1/a prompt", b"", "path='/v1/a prompt' status=404 error=not_found"),
    ],
)
async def test_other_refusals_leave_a_line_without_a_word_of_the_body(stage, caplog, method, path, content, said):
    await stage.client.request(method, path, content=content)

    [line] = lines(caplog)
    assert said in line
    assert "key='test'" in line
    assert "a prompt" not in line.replace(f"path={path!r}", "")


async def test_a_key_that_is_wrong_leaves_what_tells_it_from_others(stage, caplog):
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{stage.port}", trust_env=False) as stranger:
        for key in ("sk-splash-wrong", "sk-splash-wrong", "another"):
            await stranger.get("/v1/models", headers={"authorization": f"Bearer {key}"})
        await stranger.get("/v1/models")

    keys = [line.partition("key=")[2].partition(" ")[0] for line in lines(caplog)]
    assert keys[0] == keys[1] != keys[2] != keys[3] == "-"
    assert [len(key) for key in keys] == [8, 8, 8, 1]
    assert "wrong" not in "".join(lines(caplog))
