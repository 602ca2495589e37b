"""What goes wrong at the door and behind it: clients that break off, our own mistakes, a database that fails."""

import asyncio
import logging

import pytest

from tests.unit.control_gateway.gateway_stage import assert_refused, chat_body, eventually, staged

PATH = "/v1/chat/completions"


@pytest.fixture
async def stage(tmp_path):
    async with staged(tmp_path) as stage:
        yield stage


async def test_a_revoked_key_is_refused(stage):
    await stage.keys.revoke(1)

    answer = await stage.client.get("/v1/models")

    assert_refused(answer, 401, "invalid_api_key")


async def test_a_client_that_leaves_while_it_sends_leaves_no_trace(stage, caplog):
    _, writer = await asyncio.open_connection("127.0.0.1", stage.port)
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: 127.0.0.1:{stage.port}\r\nx-api-key: {stage.key}\r\nContent-Length: 9\r\n\r\n{{"
    )
    writer.write(head.encode())
    await asyncio.sleep(0.05)
    writer.close()
    await asyncio.sleep(0.05)

    assert [record for record in caplog.records if record.levelno >= logging.WARNING] == []
    assert await stage.rows(0) == []


async def test_our_own_mistake_is_a_500_that_tells_nothing_and_has_a_row(stage, monkeypatch, caplog):
    def broken(*_):
        raise RuntimeError("secret detail")

    monkeypatch.setattr("control.relay._request", broken)

    answer = await stage.client.post(PATH, json=chat_body())

    assert_refused(answer, 500, "internal_error")
    assert "secret detail" not in answer.text
    assert "secret detail" not in caplog.text
    assert "RuntimeError at relay.py" in caplog.text
    assert [(row.outcome, row.error_code) for row in await stage.rows()] == [("failed", "internal_error")]


async def test_our_own_mistake_in_reading_a_request_is_a_500_whose_text_is_not_logged(stage, monkeypatch, caplog):
    def broken(*_):
        raise KeyError("what the user said")

    monkeypatch.setattr("control.dialects.chat.neutral_messages", broken)

    answer = await stage.client.post(PATH, json=chat_body())

    assert_refused(answer, 500, "internal_error")
    assert "what the user said" not in answer.text + caplog.text
    assert "KeyError at " in caplog.text


async def test_serving_goes_on_when_the_database_fails_and_the_loss_is_counted_at_the_end(stage, caplog):
    await stage.writer.write(lambda connection: connection.exec_driver_sql("DROP TABLE requests"))

    answer = await stage.client.post(PATH, json=chat_body())

    assert answer.status_code == 200
    await eventually(lambda: "rows not written waiting=1 lost=0" in caplog.text)
    stage.writer.close()
    assert stage.writer.losses == 1


async def test_names_that_a_client_sent_make_no_line_of_their_own_in_the_log(stage, caplog):
    caplog.set_level(logging.DEBUG)
    forged = "\nERROR forged"
    stage.engine.prompt_tokens = 5000

    too_long = await stage.client.post(PATH, json=chat_body(model=f"claude-x{forged}"))
    packed = await stage.client.post(PATH, json=chat_body(), headers={"content-encoding": "zip%0aERROR forged"})
    nowhere = await stage.client.get("/v1/nowhere%0aERROR forged")

    assert (too_long.status_code, packed.status_code, nowhere.status_code) == (400, 415, 404)
    assert "request rejected" in caplog.text
    assert not any(record.getMessage().count(forged) for record in caplog.records)


async def test_neither_keys_nor_texts_are_logged(stage, caplog):
    caplog.set_level(logging.DEBUG, logger="control")

    await stage.client.post(PATH, json=chat_body(messages=[{"role": "user", "content": "my secret question"}]))
    await stage.client.post(PATH, json=chat_body(messages=[{"role": "user", "content": "my secret question"}], n=2))

    assert "request completed" in caplog.text
    assert stage.key not in caplog.text
    assert "secret question" not in caplog.text
    assert "hello" not in caplog.text
