"""An engine whose speed is known, as its /status tells it: what the policy of throughput is fed with."""

from dataclasses import dataclass, field

from control.metrics.throughput import Throughput
from engine.wire import (
    Admission,
    LoadProgress,
    MemoryActual,
    ModelStatus,
    RequestCounts,
    RequestStatus,
    Roofline,
    SchedulerStatus,
    Status,
)

EPOCH_S = 1_800_000_000.0
CHANGE_S = 0.001


def model(name: str = "Qwen3.8-27B-4bit") -> ModelStatus:
    return ModelStatus(
        id=name,
        path="-",
        architecture="-",
        quantization=None,
        is_demo=False,
        maximum_context_tokens=262_144,
        native_context_tokens=262_144,
        has_thinking=False,
        has_tools=False,
    )


@dataclass(slots=True)
class Stream:
    prompt_tokens: int
    output_tokens: int = 0
    is_suspended: bool = False


@dataclass(slots=True)
class DecodingEngine:
    """Time passes only by what it does. `now_s` is monotonic; a sleep moves the wall clock alone."""

    throughput: Throughput
    roofline: Roofline | None = None
    now_s: float = 1000.0
    wall_offset_s: float = EPOCH_S
    pid: int = 7
    started_at_s: float = 0.0
    model: ModelStatus = field(default_factory=model)
    streams: dict[str, Stream] = field(default_factory=dict)
    epoch: int = 0
    prefilling: int = 0
    prefill_batches: int = 0
    tokens: dict[str, int] = field(default_factory=dict)

    # --- What it does ---

    def join(self, name: str, *, prompt_tokens: int = 1000) -> None:
        """Its prompt is read; it has no token yet."""
        self.streams[name] = Stream(prompt_tokens)
        self._has_changed()

    def leave(self, name: str) -> None:
        del self.streams[name]
        self._has_changed()

    def suspend(self, name: str) -> None:
        self.streams[name].is_suspended = True
        self._has_changed()

    def resume(self, name: str) -> None:
        self.streams[name].is_suspended = False
        self._has_changed()

    def prefill(self, seconds: float) -> None:
        """One slice of somebody's prompt; the streams stand still."""
        self.now_s += seconds
        self.prefill_batches += 1

    def decode(self, seconds: float, each: int, *, width: int | None = None) -> None:
        """Steps that give each stream `each` tokens. `width`: of a step that was launched when there were more."""
        running = [stream for stream in self.streams.values() if not stream.is_suspended]
        name = f"b{len(running) if width is None else width}"
        self.now_s += seconds
        self.tokens[name] = self.tokens.get(name, 0) + each * len(running)
        for stream in running:
            stream.output_tokens += each

    def first_emission(self, name: str, *, seconds: float = 0.05, block: int = 1) -> None:
        """The step with the first tokens of a stream: a speculative block is several; the others get one each."""
        self.decode(seconds, 1)
        self.streams[name].output_tokens += block - 1
        self.tokens[f"b{self.width}"] += block - 1

    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    def sleep(self, seconds: float) -> None:
        """Of the machine: monotonic clocks stand still."""
        self.wall_offset_s += seconds

    def restart(self) -> None:
        self.pid += 1
        self.started_at_s = self.now_s
        self.streams.clear()
        self.tokens.clear()
        self.epoch = self.prefill_batches = self.prefilling = 0

    def _has_changed(self) -> None:
        self.epoch += 1
        self.now_s += CHANGE_S

    # --- How it is seen ---

    @property
    def width(self) -> int:
        return sum(not stream.is_suspended for stream in self.streams.values())

    def sample(self) -> None:
        """Control asks, and is answered at once."""
        status = self.status()
        self.throughput.observe(status, wall_s=status.sampled_at_s, monotonic_s=self.now_s)

    def status(self) -> Status:
        return Status(
            sampled_at_s=self.now_s + self.wall_offset_s,
            sampled_monotonic_s=self.now_s,
            wire_version=1,
            state="ready",
            ready=True,
            pid=self.pid,
            uptime_s=self.now_s - self.started_at_s,
            membership_epoch=self.epoch,
            steps=0,
            concurrency=4,
            model=self.model,
            layout=None,
            self_tests=(),
            load=LoadProgress(),
            admission=Admission(),
            scheduler=SchedulerStatus(
                decoding=self.width,
                prefilling=self.prefilling,
                prefill_batches=self.prefill_batches,
                decode_tokens_by_width=dict(self.tokens),
            ),
            request_counts=RequestCounts(),
            memory_plan=None,
            memory_actual=MemoryActual(),
            requests=tuple(
                RequestStatus(
                    id=name,
                    phase="queued" if stream.is_suspended else "decode",
                    request_class="interactive",
                    prompt_tokens=stream.prompt_tokens,
                    cached_tokens=0,
                    prefilled_tokens=stream.prompt_tokens,
                    output_tokens=stream.output_tokens,
                    tokens_per_second=0.0,
                    age_ms=0.0,
                    is_suspended=stream.is_suspended,
                )
                for name, stream in self.streams.items()
            ),
            roofline=self.roofline,
        )
