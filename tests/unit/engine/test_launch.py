"""What the engine reads before it starts, and what it refuses there in one sentence."""

import msgspec
import pytest

from engine.errors import Refused
from engine.launch import read_launch

LAUNCH = {"secret": "s3cret", "nonce": "n", "port": 18181, "model": "demo"}


@pytest.fixture
def launched(tmp_path):
    (tmp_path / "secrets").mkdir()

    def write(**fields):
        (tmp_path / "secrets" / "engine.json").write_bytes(msgspec.json.encode(LAUNCH | fields))
        return tmp_path

    return write


def test_a_launch_file_is_read(launched):
    launch = read_launch(launched(concurrency=2))

    assert (launch.port, launch.model, launch.concurrency) == (18181, "demo", 2)


@pytest.mark.parametrize(
    ("field", "value"),
    [("concurrency", 0), ("concurrency", -1), ("concurrency", 10**6), ("port", -1), ("port", 65_536)],
)
def test_a_number_that_no_engine_can_run_with_is_refused_by_its_name(launched, field, value):
    with pytest.raises(Refused, match=f"{field} {value}") as refusal:
        read_launch(launched(**{field: value}))

    assert "s3cret" not in refusal.value.message


def test_without_a_launch_file_the_engine_is_refused(tmp_path):
    with pytest.raises(Refused, match="cannot be read"):
        read_launch(tmp_path)
