"""What a /generate may ask for beside its prompt: the sizes of its stop strings."""

import pytest

from engine.door.checks import MOST_STOP_CHARS, MOST_STOPS, check_request
from engine.errors import InvalidRequest
from engine.wire import GenerateRequest, Prompt


def asked(*stops):
    return GenerateRequest(id="a", prompt=Prompt(text="a"), stop=stops)


def test_stop_strings_within_the_limits_are_taken():
    check_request(asked(*["x" * MOST_STOP_CHARS] * MOST_STOPS), 100)


@pytest.mark.parametrize(
    ("stops", "message", "param"),
    [
        (["a"] * (MOST_STOPS + 1), "At most 16 stop strings.", "stop"),
        (["a", "x" * (MOST_STOP_CHARS + 1)], "A stop string has at most 1024 characters.", "stop[1]"),
        (["a", ""], "A stop string must not be empty.", "stop[1]"),
    ],
)
def test_other_stop_strings_are_refused_by_name(stops, message, param):
    with pytest.raises(InvalidRequest) as refused:
        check_request(asked(*stops), 100)

    assert (refused.value.message, refused.value.param) == (message, param)
