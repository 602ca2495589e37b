"""How many files control may open: raised as far as the system lets it, with enough kept for what is not a client."""

import resource

import pytest

from control import open_files
from control.open_files import MACOS_LIMIT, RESERVED, WANTED, client_limit, raise_limit

UNLIMITED = resource.RLIM_INFINITY


class System:
    """A process with these limits; more than `refuses_above` is refused whatever the hard limit says."""

    def __init__(self, soft, hard, refuses_above=10**9) -> None:
        self.limits = (soft, hard)
        self.refuses_above = refuses_above

    def getrlimit(self, _what):
        return self.limits

    def setrlimit(self, _what, limits) -> None:
        if limits[0] > self.refuses_above:
            raise ValueError("current limit exceeds maximum limit")
        self.limits = limits


@pytest.mark.parametrize(
    ("system", "limit"),
    [
        (System(256, UNLIMITED), WANTED),
        (System(256, UNLIMITED, refuses_above=MACOS_LIMIT), MACOS_LIMIT),
        (System(256, UNLIMITED, refuses_above=300), 256),
        (System(256, 20_000), 20_000),
        (System(256, 10**6), WANTED),
        (System(256, 256), 256),
        (System(10**6, 10**6), 10**6),
        (System(UNLIMITED, UNLIMITED), WANTED),
    ],
)
def test_the_limit_of_open_files_is_raised_as_far_as_it_goes_and_never_lowered(monkeypatch, system, limit):
    before = system.limits
    for name in ("getrlimit", "setrlimit"):
        monkeypatch.setattr(open_files.resource, name, getattr(system, name))

    raised = raise_limit()

    assert raised == limit
    assert system.limits in (before, (limit, before[1]))


@pytest.mark.parametrize(("num_files", "num_clients"), [(256, 64), (MACOS_LIMIT, 5056), (RESERVED, 1), (64, 1)])
def test_clients_leave_files_for_everything_else(num_files, num_clients):
    assert client_limit(num_files) == num_clients
