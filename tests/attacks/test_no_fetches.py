"""Addresses in requests (SSRF): nobody here follows one. A listener of the test sees that nobody comes."""

import socket

import psutil
import pytest

SHAPES = (
    "http://{host}/a.png",
    "https://{host}/a.png",
    "file:///etc/passwd",
    "ftp://{host}/a",
    "gopher://{host}/a",
    "//{host}/a.png",
)


@pytest.fixture
def listener():
    """Who connects to it stands in its backlog."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0.2)
        yield server


def came(listener: socket.socket) -> bool:
    try:
        listener.accept()[0].close()
    except TimeoutError:
        return False
    return True


def bodies(url: str) -> list[tuple[str, dict]]:
    """A request with that address in every place where a dialect has one for images and files."""
    text = {"type": "text", "text": "look"}
    image_url = {"type": "image_url", "image_url": {"url": url}}
    anthropic = {"type": "image", "source": {"type": "url", "url": url}}
    input_image = {"type": "input_image", "image_url": url}
    input_file = {"type": "input_file", "file_url": url}
    chat, messages, responses = "/chat/completions", "/messages", "/responses"
    return [
        (chat, {"messages": [{"role": "user", "content": [text, image_url]}]}),
        (chat, {"messages": [{"role": "user", "content": [text, {"type": "image_url", "image_url": url}]}]}),
        (chat, {"messages": [{"role": "user", "content": [text, {"type": "file", "file": {"file_url": url}}]}]}),
        (messages, {"max_tokens": 5, "messages": [{"role": "user", "content": [text, anthropic]}]}),
        ("/messages/count_tokens", {"messages": [{"role": "user", "content": [text, anthropic]}]}),
        (responses, {"input": [{"role": "user", "content": [input_image]}]}),
        (responses, {"input": [{"role": "user", "content": [{"type": "input_text", "text": "look"}, input_file]}]}),
    ]


@pytest.mark.parametrize("shape", SHAPES)
def test_an_address_of_an_image_is_refused_in_every_dialect_and_nobody_goes_there(splash, listener, shape):
    url = shape.format(host=f"127.0.0.1:{listener.getsockname()[1]}")

    with splash.api() as api:
        answers = [(path, api.post(path, json={"model": "default", **body})) for path, body in bodies(url)]

    assert {path: answer.status_code for path, answer in answers if answer.status_code != 400} == {}
    assert all("root:" not in answer.text for _, answer in answers)
    assert not came(listener)


@pytest.mark.parametrize("shape", SHAPES)
def test_an_address_in_what_a_session_brings_again_is_said_to_be_unreadable_and_not_followed(splash, listener, shape):
    url = shape.format(host=f"127.0.0.1:{listener.getsockname()[1]}")
    source = {"type": "url", "url": url}
    call = {"type": "tool_use", "id": "t1", "name": "look", "input": {}}
    found = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "document", "source": source}]}
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "document", "source": source}]},
        {"role": "assistant", "content": [call]},
        {"role": "user", "content": [found]},
    ]

    with splash.api() as api:
        answer = api.post("/messages", json={"model": "default", "max_tokens": 5, "messages": messages})

    assert answer.status_code == 200
    assert not came(listener)


@pytest.mark.parametrize("name", ["api", "admin", "console", "engine"])
def test_no_header_and_no_address_makes_a_proxy_of_a_door(doors, listener, name):
    address = f"127.0.0.1:{listener.getsockname()[1]}"
    headers = [f"X-Forwarded-Host: {address}", f"Referer: http://{address}/", f"Location: http://{address}/"]

    answers = [
        doors[name].asked(path, headers=headers, has_pass=True)
        for path in (f"http://{address}/", f"//{address}/", f"/?url=http://{address}/", f"/proxy?url=http://{address}/")
    ]

    assert all(answer.status != 502 for answer in answers)
    assert all(address not in (answer.header("location") or "") for answer in answers)
    assert not came(listener)


def test_our_processes_are_connected_to_this_machine_only(splash, doors):
    for name in ("control", "engine", "webui"):
        connections = psutil.Process(splash.record(name).pid).net_connections(kind="inet")
        assert [each for each in connections if each.raddr and each.raddr.ip not in ("127.0.0.1", "::1")] == []
        listening = {each.laddr.ip for each in connections if each.status == psutil.CONN_LISTEN}
        assert listening == {"127.0.0.1"}, name
