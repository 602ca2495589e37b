"""One setting of splash.toml is changed, and nothing else of the file."""

import stat

import pytest

from control.command_errors import SettingsInvalid
from control.home import Home
from control.settings_file import keep_setting

KEY = "SPLASH_LAN"


@pytest.fixture
def home(tmp_path):
    return Home(tmp_path)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (None, "SPLASH_LAN = true\n"),
        ("# mine\nSPLASH_API_PORT = 1 # why", "# mine\nSPLASH_API_PORT = 1 # why\nSPLASH_LAN = true\n"),
        (
            "SPLASH_LAN = false # at home\r\nSPLASH_API_PORT=2\r\n",
            "SPLASH_LAN = true # at home\r\nSPLASH_API_PORT=2\r\n",
        ),
        ("SPLASH_LAN = 'off'\n\n# 完\n", "SPLASH_LAN = true\n\n# 完\n"),
    ],
)
def test_what_a_person_wrote_stays(home, before, after):
    file = home.root / "splash.toml"
    if before is not None:
        file.write_bytes(before.encode())

    keep_setting(home, KEY, True)

    assert file.read_bytes().decode() == after
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_a_file_that_says_so_already_is_not_touched(home):
    file = home.root / "splash.toml"
    file.write_text("SPLASH_LAN = true")
    before = file.stat()

    keep_setting(home, KEY, True)

    assert (file.stat().st_mtime_ns, file.stat().st_ino) == (before.st_mtime_ns, before.st_ino)


def test_a_link_to_the_file_stays_a_link(home, tmp_path):
    real = tmp_path / "elsewhere.toml"
    real.write_text("# kept elsewhere\n")
    (home.root / "splash.toml").symlink_to(real)

    keep_setting(home, KEY, False)

    assert (home.root / "splash.toml").is_symlink()
    assert real.read_text() == "# kept elsewhere\nSPLASH_LAN = false\n"


def test_a_layout_that_would_be_broken_is_left_to_its_owner(home, monkeypatch):
    file = home.root / "splash.toml"
    file.write_text("SPLASH_API_PORT = 1\n")
    monkeypatch.setattr("control.settings_file._changed", lambda *_: "SPLASH_API_PORT = 2\nSPLASH_LAN = true\n")

    with pytest.raises(SettingsInvalid, match=r"write `SPLASH_LAN = true` there"):
        keep_setting(home, KEY, True)

    assert file.read_text() == "SPLASH_API_PORT = 1\n"
