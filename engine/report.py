"""What `python -m engine plan` and `python -m engine models` say, as values, as JSON and as text for a person.

It reads headers only and starts nothing; it downloads nothing either.
"""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import msgspec
import psutil

from engine.errors import NotDownloaded, Refused
from engine.memory import Coefficients, Limit, available_bytes, coefficients, host_limit, plan, wired_limit_mb
from engine.memory_text import size_text
from engine.model.demo import ensure_demo
from engine.model.layers import kv_obstacle
from engine.model.library import model_folders, resolve
from engine.model.preflight import Preflight, preflight
from engine.wire import MemoryPlan, ProcessRecord

logger = logging.getLogger(__name__)

SAME_START_S = 2.0
"""A process whose start differs by more from its record has the pid of another that is gone."""

KV_CHOICES = (None, 8, 4)

_LONGEST_MESSAGE: Final = 1_000


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A model on this machine. Control reads it as `control.wire.ModelOnDisk`, which may know fewer fields.

    `fits`, `longest_context_tokens` and `warm_sessions` are of the default plan.
    """

    name: str
    path: str
    architecture: str
    quantization: str | None
    weights_bytes: int
    native_context_tokens: int
    has_vision: bool
    fits: bool
    longest_context_tokens: int
    warm_sessions: int
    warm_session_tokens: int
    is_demo: bool


class RefusedEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A folder that looks like a model and cannot be served, with the sentence that says why."""

    path: str
    message: str


class ModelsReport(msgspec.Struct, frozen=True, kw_only=True):
    models: tuple[ModelEntry, ...]
    refused: tuple[RefusedEntry, ...] = ()

    def as_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def as_text(self) -> str:
        width = max((len(entry.name) for entry in self.models), default=0)
        lines = [
            f"{entry.name:<{width}}  {size_text(entry.weights_bytes):>9}  {entry.quantization or 'not quantised':<13}  "
            f"{entry.native_context_tokens:>9,} tokens  {entry.architecture}  {_remarks(entry)}"
            for entry in self.models
        ]
        return "\n".join(lines + [f"not usable: {entry.message}" for entry in self.refused])


class KvChoice(msgspec.Struct, frozen=True, kw_only=True):
    """What one token takes with keys and values of `kv_bits`; None: as the model computes them."""

    kv_bits: int | None
    kv_bytes_per_token: int


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """`model` and `plan` are None for a hub id that is not on this machine yet; then only a load can tell.

    Whoever has the plan computes another from it, without asking again: formulas in `docs/operations.md`.
    `wired_limit_mb` is macOS's `iogpu.wired_limit_mb`, 0 the system's choice, None elsewhere.
    """

    message: str
    model: ModelEntry | None = None
    plan: MemoryPlan | None = None
    kv_choices: tuple[KvChoice, ...] = ()
    wired_limit_mb: int | None = None

    def as_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def as_text(self) -> str:
        if self.model is None or self.plan is None:
            return self.message
        rows = _plan_rows(self.plan, self.model, self.wired_limit_mb)
        return "\n".join([self.message, *(f"  {label:<20}{value:>14}{note}" for label, value, note in rows)])


def list_models(home: Path, folders: Sequence[Path] = (), *, limit: Limit | None = None) -> ModelsReport:
    """Look at every model of this machine, the demo first. `limit` None asks the machine."""
    limit = _limit_for_a_load(home) if limit is None else limit
    demo = ensure_demo(home)
    models, refused = [], []
    for folder in (demo, *(folder for folder in model_folders(home, folders) if folder != demo)):
        try:
            found = preflight(folder)
            name = str(folder) if any(folder.is_relative_to(extra) for extra in folders) else found.name
            models.append(_entry(found, name, limit))
        except Refused as error:
            refused.append(_refused(folder, error.message))
        except Exception as error:  # files of anybody's; the others of the list are not to suffer from one
            logger.exception("model folder could not be judged path=%r", str(folder))
            refused.append(_refused(folder, f"{folder} could not be judged ({type(error).__name__})."))
    return ModelsReport(models=tuple(models), refused=tuple(refused))


def plan_model(
    name: str,
    home: Path,
    *,
    context: int | None = None,
    budget_bytes: int | None = None,
    kv_bits: int | None = None,
    limit: Limit | None = None,
) -> PlanReport:
    """Plan one model of this machine. Raises ModelNotFound and ModelRefused; "does not fit" is an answer."""
    try:
        folder = resolve(name, home, may_download=False)
    except NotDownloaded as error:
        return PlanReport(message=error.message)
    found = preflight(folder)
    limit = _limit_for_a_load(home) if limit is None else limit
    memory_plan = plan(found, limit, context=context, budget_bytes=budget_bytes, kv_bits=kv_bits)
    choices = tuple(
        KvChoice(kv_bits=bits, kv_bytes_per_token=coefficients(found, kv_bits=bits).kv_bytes_per_token)
        for bits in KV_CHOICES
        if bits is None or kv_obstacle(found.layers) is None
    )
    return PlanReport(
        message=memory_plan.verdict,
        model=_entry(found, found.name, limit),
        plan=memory_plan,
        kv_choices=choices,
        wired_limit_mb=wired_limit_mb(),
    )


def _limit_for_a_load(home: Path) -> Limit:
    """What a load finds: a running engine stops before the next one starts, so what it holds counts as available."""
    try:
        record = msgspec.json.decode((home / "run" / "engine.json").read_bytes(), type=ProcessRecord)
        process = psutil.Process(record.pid)
        is_same = _age_apart_s(process, record) <= SAME_START_S
        held_bytes = int(process.memory_info().rss) if is_same else 0
    except (OSError, msgspec.DecodeError, psutil.Error):
        held_bytes = 0
    return host_limit(available_bytes() + held_bytes)


def _age_apart_s(process: psutil.Process, record: ProcessRecord) -> float:
    """By how much the start of a process differs from the record's; the clock may have been set since."""
    if record.created_after_boot_s is None:
        return float(abs(process.create_time() - record.created_at_s))
    return float(abs(process.create_time() - psutil.boot_time() - record.created_after_boot_s))


def _refused(folder: Path, message: str) -> RefusedEntry:
    return RefusedEntry(path=_written(str(folder)), message=_written(message)[:_LONGEST_MESSAGE])


def _written(text: str) -> str:
    """Names of files need not be UTF-8, and what they are written into must."""
    return text.encode("utf-8", "replace").decode()


def _entry(found: Preflight, name: str, limit: Limit) -> ModelEntry:
    usual = plan(found, limit)
    return ModelEntry(
        name=name,
        path=str(found.path),
        architecture=found.architecture,
        quantization=found.quantization,
        weights_bytes=found.weights_bytes,
        native_context_tokens=found.native_context_tokens,
        has_vision=found.has_vision,
        fits=usual.fits,
        longest_context_tokens=usual.longest_context_tokens,
        warm_sessions=usual.warm_sessions,
        warm_session_tokens=usual.warm_session_tokens,
        is_demo=found.is_demo,
    )


def _remarks(entry: ModelEntry) -> str:
    remarks = [f"{entry.warm_sessions} warm" if entry.fits else "does not fit"]
    if entry.fits and entry.longest_context_tokens < entry.native_context_tokens:
        remarks.append(f"up to {entry.longest_context_tokens:,} tokens here")
    if entry.has_vision:
        remarks.append("has vision")
    if entry.is_demo:
        remarks.append("random weights")
    return f"({', '.join(remarks)})"


def _plan_rows(plan: MemoryPlan, model: ModelEntry, wired_limit_mb: int | None) -> list[tuple[str, str, str]]:
    sizes = Coefficients.of(plan)
    usual = plan.warm_session_tokens
    kv = f"  of keys and values{f', {plan.kv_bits}-bit' if plan.kv_bits else ''}"
    rows = [
        ("weights", size_text(plan.weights_bytes), ""),
        ("runtime", size_text(plan.fixed_bytes), ""),
        ("pool for contexts", size_text(plan.pool_bytes), ""),
        ("limit", size_text(plan.limit_bytes), f"  beside {size_text(plan.reserve_bytes)} for your other programs"),
        ("one token", f"{plan.kv_bytes_per_token:,} bytes", kv),
        ("one snapshot", size_text(plan.state_bytes_per_sequence), f"  {plan.snapshots_per_session} for each session"),
        ("running sequence", size_text(sizes.running_bytes(usual)), f"  of {usual:,} tokens"),
        ("warm session", size_text(sizes.warm_session_bytes(usual)), f"  of {usual:,} tokens"),
        ("warm sessions", f"{plan.warm_sessions:,}", "  while up to four run"),
        ("context", f"{plan.maximum_context_tokens:,}", f"  of {model.native_context_tokens:,} tokens"),
        ("longest that fits", f"{plan.longest_context_tokens:,}", "  tokens, alone"),
    ]
    if wired_limit_mb is not None:
        setting = f"{wired_limit_mb:,} MB" if wired_limit_mb else "the system's"
        rows.append(("iogpu.wired_limit_mb", setting, "  shown, never set by Splash"))
    return rows
