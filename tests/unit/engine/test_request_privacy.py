"""What a prompt or an answer says is in no error message, however an error comes about."""

import pytest

from engine.blocks import TokenBlocks
from engine.errors import DeviceFailed
from engine.line import Line
from engine.mailbox import Cancel, Submit
from engine.request import Finish, Request, SampledToken, SamplingParameters
from engine.scheduler import Start
from tests.unit.engine.conversations import NumberedOutput
from tests.unit.engine.models import KINDS, build
from tests.unit.engine.workers import ask, running

SECRET = 31_337


class Telling:
    """Whatever has a request's content in its own repr."""

    def __repr__(self):
        return str(SECRET)

    def deliver(self, events):
        pass


def a_telling_request() -> Request:
    return Request(
        id="r",
        prompt=(SECRET,) * 40,
        sampling=SamplingParameters(logit_bias=((SECRET, 1.0),)),
        max_tokens=8,
        request_class="interactive",
        output=Telling(),
        deliver=Telling().deliver,
        arrived_at=0.0,
        blocks=TokenBlocks((SECRET,) * 40),
        constraint=Telling(),
        tokens=[SECRET],
    )


@pytest.mark.parametrize("wrapped", [lambda request: request, Submit, Cancel, Start])
def test_a_request_is_named_without_its_content(wrapped):
    named = repr(wrapped(a_telling_request()))

    assert "id='r'" in named
    assert str(SECRET) not in named


def test_neither_is_a_token_or_a_stop_string():
    assert str(SECRET) not in repr(SampledToken(SECRET, logprob=-1.0, top=((SECRET, -1.0),)))
    assert str(SECRET) not in repr(Finish("stop", stop_sequence=str(SECRET)))


def test_an_error_that_names_a_request_says_nothing_of_its_prompt():
    request = a_telling_request()

    with pytest.raises(KeyError) as caught:
        Line().forget(request)

    assert str(SECRET) not in DeviceFailed(f"KeyError: {caught.value}").message


def test_a_fault_is_logged_with_its_place_and_without_its_words(caplog):
    """A KeyError on a word of the answer says that word."""

    def push(_token):
        raise KeyError("my password")

    output = NumberedOutput()
    output.push = push
    with running(build(KINDS["dense"])) as worker:
        assert ask(worker, max_tokens=5, output=output).ending().code == "internal"

    assert "password" not in caplog.text
    assert "KeyError at" in caplog.text and "test_request_privacy.py" in caplog.text
