"""What `python -m engine plan` and `python -m engine models` say, as values, as JSON and as text for a person.

It reads headers only and starts nothing; it downloads nothing either.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import psutil

from engine.errors import ModelRefused, NotDownloaded
from engine.memory import device_limit_bytes, plan, size_text
from engine.model.demo import ensure_demo
from engine.model.library import model_folders, resolve
from engine.model.preflight import Preflight, preflight
from engine.wire import MemoryPlan, ProcessRecord

SAME_START_S = 2.0
"""A process whose start differs by more from its record has the pid of another that is gone."""


class ModelEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A model on this machine. Control reads it as `control.wire.ModelOnDisk`: the same fields."""

    name: str
    path: str
    architecture: str
    quantization: str | None
    weights_bytes: int
    native_context_tokens: int
    fits: bool
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
            f"{entry.native_context_tokens:>9,} tokens  {entry.architecture}"
            f"{'' if entry.fits else '  (does not fit)'}{'  (random weights)' if entry.is_demo else ''}"
            for entry in self.models
        ]
        return "\n".join(lines + [f"not usable: {entry.message}" for entry in self.refused])


class PlanReport(msgspec.Struct, frozen=True, kw_only=True):
    """`model` and `plan` are None for a hub id that is not on this machine yet; then only a load can tell."""

    message: str
    model: ModelEntry | None = None
    plan: MemoryPlan | None = None

    def as_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def as_text(self) -> str:
        if self.model is None or self.plan is None:
            return self.message
        plan = self.plan
        rows = {
            "weights": size_text(plan.weights_bytes),
            "runtime": size_text(plan.fixed_bytes),
            "pool for contexts": size_text(plan.pool_bytes),
            "limit": size_text(plan.limit_bytes),
            "per token": f"{plan.kv_bytes_per_token:,} bytes",
            "per sequence": size_text(plan.state_bytes_per_sequence),
            "context": f"{plan.maximum_context_tokens:,} of {self.model.native_context_tokens:,} tokens",
        }
        return "\n".join([self.message, *(f"  {label:<18}{value:>18}" for label, value in rows.items())])


def list_models(home: Path, folders: Sequence[Path] = (), *, limit_bytes: int | None = None) -> ModelsReport:
    """Look at every model of this machine, the demo first. `limit_bytes` None asks the machine."""
    limit_bytes = _limit_for_a_load(home) if limit_bytes is None else limit_bytes
    demo = ensure_demo(home)
    models, refused = [], []
    for folder in (demo, *(folder for folder in model_folders(home, folders) if folder != demo)):
        try:
            found = preflight(folder)
        except ModelRefused as error:
            refused.append(RefusedEntry(path=str(folder), message=error.message))
        else:
            name = str(folder) if any(folder.is_relative_to(extra) for extra in folders) else found.name
            models.append(_entry(found, name, fits=plan(found, limit_bytes=limit_bytes).fits))
    return ModelsReport(models=tuple(models), refused=tuple(refused))


def plan_model(
    name: str,
    home: Path,
    *,
    context: int | None = None,
    budget_bytes: int | None = None,
    limit_bytes: int | None = None,
) -> PlanReport:
    """Plan one model of this machine. Raises ModelNotFound and ModelRefused; "does not fit" is an answer."""
    try:
        folder = resolve(name, home, may_download=False)
    except NotDownloaded as error:
        return PlanReport(message=error.message)
    found = preflight(folder)
    limit_bytes = _limit_for_a_load(home) if limit_bytes is None else limit_bytes
    memory_plan = plan(found, limit_bytes=limit_bytes, context=context, budget_bytes=budget_bytes)
    entry = _entry(found, found.name, fits=memory_plan.fits)
    return PlanReport(message=memory_plan.verdict, model=entry, plan=memory_plan)


def _limit_for_a_load(home: Path) -> int:
    """What a load finds: a running engine stops before the next one starts, so what it holds counts as available."""
    try:
        record = msgspec.json.decode((home / "run" / "engine.json").read_bytes(), type=ProcessRecord)
        process = psutil.Process(record.pid)
        is_same = abs(process.create_time() - record.created_at_s) <= SAME_START_S
        held_bytes = int(process.memory_info().rss) if is_same else 0
    except (OSError, msgspec.DecodeError, psutil.Error):
        held_bytes = 0
    return device_limit_bytes() + held_bytes


def _entry(found: Preflight, name: str, *, fits: bool) -> ModelEntry:
    return ModelEntry(
        name=name,
        path=str(found.path),
        architecture=found.architecture,
        quantization=found.quantization,
        weights_bytes=found.weights_bytes,
        native_context_tokens=found.native_context_tokens,
        fits=fits,
        is_demo=found.is_demo,
    )
