"""One-time login links: used once, in time, and never many."""

import pytest

from control.login_links import LINKS_LIMIT, LoginLinks


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def links(clock):
    return LoginLinks(monotonic=clock, wall=lambda: 1_000_000.0)


def test_a_link_works_once(links):
    token = links.mint(30).token

    assert [links.redeem(token), links.redeem(token)] == [True, False]


def test_a_link_says_until_when_it_is_valid(links):
    assert links.mint(30).expires_at_s == 1_000_030.0


@pytest.mark.parametrize(("age_s", "works"), [(29.9, True), (30.0, False), (1e6, False)])
def test_a_link_works_in_its_time(links, clock, age_s, works):
    token = links.mint(30).token

    clock.now += age_s

    assert links.redeem(token) is works


@pytest.mark.parametrize("token", ["", "x", "é", "\ud800"])
def test_an_unknown_token_is_refused(links, token):
    links.mint(30)

    assert links.redeem(token) is False


def test_two_links_are_two(links):
    first, second = links.mint(30).token, links.mint(30).token

    assert first != second
    assert links.redeem(second) and links.redeem(first)


def test_the_oldest_is_forgotten_when_there_are_too_many(links):
    tokens = [links.mint(30).token for _ in range(LINKS_LIMIT + 1)]

    assert not links.redeem(tokens[0])
    assert all(links.redeem(token) for token in tokens[1:])


def test_expired_links_make_room(links, clock):
    for _ in range(LINKS_LIMIT):
        links.mint(1)
    clock.now += 2
    tokens = [links.mint(30).token for _ in range(LINKS_LIMIT)]

    assert all(links.redeem(token) for token in tokens)


def test_the_tokens_themselves_are_not_kept(links):
    token = links.mint(30).token

    assert token not in repr(vars(links))
