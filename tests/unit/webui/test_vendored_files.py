import hashlib
from pathlib import Path

VENDOR = Path(__file__).resolve().parents[3] / "frontend" / "static" / "vendor"


def test_every_vendored_file_is_the_one_that_was_chosen():
    lines = (VENDOR / "SHA256SUMS").read_text().splitlines()
    expected = {name: digest for digest, name in (line.split("  ") for line in lines)}

    actual = {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in VENDOR.iterdir()
        if path.name != "SHA256SUMS"
    }

    assert actual == expected
