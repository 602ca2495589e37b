"""Settings: where each comes from, and that a wrong one is named in one sentence."""

import pytest

from control.command_errors import SettingsInvalid
from control.config import Settings


@pytest.fixture
def home(tmp_path):
    return tmp_path.resolve()


def read(home, toml: str | None = None, **environment: str) -> Settings:
    if toml is not None:
        (home / "splash.toml").write_text(toml)
    return Settings.from_env({"SPLASH_HOME": str(home), "PATH": "/bin", **environment})


def test_defaults_are_the_ports_of_the_design(home):
    settings = read(home)

    ports = (settings.api_port, settings.admin_port, settings.console_port, settings.engine_port)
    assert ports == (8888, 18084, 18082, 18081)
    assert (settings.host, settings.home) == ("127.0.0.1", home)


def test_the_file_goes_before_the_defaults_and_the_environment_before_the_file(home):
    settings = read(home, "SPLASH_API_PORT = 1111\nSPLASH_ENGINE_PORT = 2222", SPLASH_API_PORT="3333")

    assert (settings.api_port, settings.engine_port, settings.admin_port) == (3333, 2222, 18084)


def test_lan_mode_opens_the_api_and_with_a_password_the_console_and_keeps_the_urls_of_this_machine(home):
    closed, opened, opened_v6 = read(home), read(home, SPLASH_LAN="on"), read(home, SPLASH_LAN="on", SPLASH_HOST="::1")

    def hosts(settings):
        return settings.api_host, *(settings.console_host(has_password=each) for each in (False, True))

    assert hosts(closed) == ("127.0.0.1",) * 3
    assert hosts(opened) == ("0.0.0.0", "127.0.0.1", "0.0.0.0")
    assert hosts(opened_v6) == ("::", "::1", "::")
    assert opened.api_base == "http://127.0.0.1:8888/v1"


@pytest.mark.parametrize("text", ["on", "ON", "true", "1", " on "])
def test_a_switch_is_a_word_or_in_the_file_a_boolean_too(home, text):
    assert read(home, SPLASH_LAN=text).is_lan_on
    assert not read(home, "SPLASH_LAN = true", SPLASH_LAN="off").is_lan_on
    assert [read(home, f"SPLASH_LAN = {each}").is_lan_on for each in ("true", "false", "'on'", "'0'")] == [
        True,
        False,
        True,
        False,
    ]


def test_without_a_home_the_platforms_folder_is_used():
    assert Settings.from_env({}).home.name == "Splash"


def test_an_ipv6_loopback_address_is_bracketed_in_the_api_base(home):
    assert read(home, SPLASH_HOST="::1").api_base == "http://[::1]:8888/v1"


@pytest.mark.parametrize(
    ("toml", "environment", "named"),
    [
        ("SPLASH_API_PORT = ", {}, "not valid TOML"),
        ("api_port = 1", {}, "api_port is not a setting"),
        ("SPLASH_PORT = 1", {}, "SPLASH_PORT is not a setting"),
        ("SPLASH_API_PORT = true", {}, "SPLASH_API_PORT=True is not a port"),
        ("SPLASH_API_PORT = 1.5", {}, "is not a port"),
        ("SPLASH_HOME = '/elsewhere'", {}, "SPLASH_HOME"),
        ("[SPLASH_API_PORT]", {}, "is not a port"),
        (None, {"SPLASH_APIPORT": "1"}, "SPLASH_APIPORT is not a setting"),
        (None, {"SPLASH_API_PORT": "eighty"}, "SPLASH_API_PORT=eighty is not a port"),
        (None, {"SPLASH_API_PORT": "0"}, "is not a port"),
        (None, {"SPLASH_API_PORT": "65536"}, "is not a port"),
        (None, {"SPLASH_API_PORT": ""}, "is not a port"),
        (None, {"SPLASH_API_PORT": "18084"}, "SPLASH_API_PORT and SPLASH_ADMIN_PORT are both 18084"),
        (None, {"SPLASH_HOST": "localhost"}, "neither 127.0.0.1 nor ::1"),
        (None, {"SPLASH_HOST": "0.0.0.0"}, "SPLASH_HOST=0.0.0.0"),
        (None, {"SPLASH_LAN": "maybe"}, "SPLASH_LAN=maybe is neither on nor off"),
        (None, {"SPLASH_LAN": ""}, "SPLASH_LAN= is neither on nor off"),
        ("SPLASH_LAN = 1", {}, "SPLASH_LAN=1 is neither on nor off"),
        ("SPLASH_LAN = []", {}, "SPLASH_LAN=[] is neither on nor off"),
        (None, {"SPLASH_HOME": " "}, "SPLASH_HOME is empty"),
        (None, {"SPLASH_HOME": "~no-such-user/x"}, "SPLASH_HOME=~no-such-user/x can't be a folder"),
        (None, {"SPLASH_HOME": "/" + "x" * 5000}, "can't be a folder"),
        (None, {"SPLASH_API_PORT": "9" * 5000}, "is not a port"),
        (None, {"SPLASH_HOST": "two\nlines"}, "SPLASH_HOST=two lines"),
        ("SPLASH_API_PORT = " + "9" * 5000, {}, "not valid TOML"),
        ("SPLASH_API_PORT = 0x" + "f" * 5000, {}, "is not a port"),
        ("a = " + "[" * 100_000, {}, "not valid TOML"),
    ],
)
def test_what_is_wrong_stops_the_start_with_one_sentence_that_names_it(home, toml, environment, named):
    with pytest.raises(SettingsInvalid) as caught:
        read(home, toml, **environment)

    assert named in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_that_is_not_text_is_named(home):
    (home / "splash.toml").write_bytes(b"\xff\xfe")

    with pytest.raises(SettingsInvalid, match=r"splash\.toml"):
        read(home)


def test_a_home_that_is_a_file_is_refused(home):
    (home / "file").touch()

    with pytest.raises(SettingsInvalid, match="is not a folder"):
        read(home, SPLASH_HOME=str(home / "file"))


def test_a_home_that_is_a_loop_of_links_is_refused(home):
    (home / "a").symlink_to(home / "b")
    (home / "b").symlink_to(home / "a")

    with pytest.raises(SettingsInvalid, match="can't be a folder"):
        read(home, SPLASH_HOME=str(home / "a"))
