"""Plain calls that bring a scheduler to where a test begins."""

from engine.admission import MemoryPool
from engine.request import Request
from engine.scheduler import Action, Decode, Join, Prefill, Scheduler, Start
from tests.unit.engine.conversations import a_request

POOL = MemoryPool(pool_bytes=10_000, kv_bytes_per_token=10, state_bytes_per_sequence=0)
DOCUMENT = 20_000  # tokens: far more than one that counts as a document


def prompt(num_tokens: int, first: int = 1) -> tuple[int, ...]:
    """Prompts with another `first` share no block."""
    return (first,) * num_tokens


def decoding(scheduler: Scheduler, *requests: Request) -> None:
    """Bring requests with prompts of one token to decoding."""
    for request in requests:
        scheduler.enter(request)
        while request.phase != "decode":
            action = scheduler.next_action(0.0)
            assert isinstance(action, Start | Join | Decode), action
            if action == Decode():
                scheduler.observe_decode(1.0)
    if scheduler.next_action(0.0) == Decode():  # the first step of who joined last
        scheduler.observe_decode(1.0)


def started(scheduler: Scheduler, request: Request) -> Request:
    """Let a request enter, which must be the next to start."""
    scheduler.enter(request)
    assert next_but_decode(scheduler) == Start(request)
    return request


def next_but_decode(scheduler: Scheduler, now: float = 0.0) -> Action:
    """What comes once the streams have decoded for as long as they are owed; Decode when they just go on."""
    for _ in range(200):
        action = scheduler.next_action(now)
        if action != Decode():
            return action
        scheduler.observe_decode(50.0)
    return Decode()


def slices(scheduler: Scheduler, count: int, *, now: float = 0.0) -> list[Request]:
    """Who gets the next slices of 300 ms; joining and starting happen on the way."""
    got: list[Request] = []
    while len(got) < count:
        match next_but_decode(scheduler, now):
            case Prefill(request, num_tokens):
                scheduler.observe_prefill(request, num_tokens, 300.0)
                got.append(request)
            case Start() | Join():
                pass
            case other:
                raise AssertionError(other)
    return got


def a_short(name: int, **asked) -> Request:
    return a_request(f"short {name}", prompt=prompt(100, name), **asked)


def a_document(name: int, **asked) -> Request:
    return a_request(f"document {name}", prompt=prompt(DOCUMENT, name), **asked)


def finish_prefill(scheduler: Scheduler, request: Request, *, now: float = 0.0) -> None:
    """Slices until the request joins, then it ends."""
    while request.phase != "decode":
        action = next_but_decode(scheduler, now)
        assert action.request is request, action
        if isinstance(action, Prefill):
            scheduler.observe_prefill(request, action.num_tokens, 300.0)
    scheduler.remove(request)
