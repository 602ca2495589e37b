"""What the engine's program can do without a model in memory: plan a load, list the models here, download one.

Each is a process of its own, `python -m engine plan|models|fetch`, which imports no MLX. Nothing is kept here:
`control.plans` keeps plans for a moment.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from control.admin.errors import ModelRefused, UnknownModel
from control.home import Home
from control.lifecycle import Wanted
from control.plans import Planned
from control.wire import LoadProgress, MemoryPlan, ModelList, PlanAnswer

logger = logging.getLogger(__name__)

# Reading the headers of hundreds of shards on a slow disk takes seconds.
ANSWER_LIMIT_S: Final = 60.0
KILL_LIMIT_S: Final = 5.0
# Source: engine.errors.ModelNotFound.
MODEL_NOT_FOUND: Final = "not_found"
# Source: engine.__main__: the model can't be served, which is an answer and no fault.
REFUSED: Final = 4

Answer = TypeVar("Answer", bound=msgspec.Struct)


class _PlannedModel(msgspec.Struct):
    name: str
    path: str
    native_context_tokens: int


class _PlanReport(msgspec.Struct):
    """The part of `python -m engine plan --json` that is needed; no plan for a model that is not downloaded yet.

    `code` is there when the engine refused, and then `message` is its sentence, `reason` and the maximum for programs.
    """

    message: str = ""
    code: str | None = None
    reason: str | None = None
    maximum_context_tokens: int | None = None
    model: _PlannedModel | None = None
    plan: MemoryPlan | None = None


@dataclass(frozen=True, slots=True)
class _Said:
    """What the engine's program wrote, and how it ended. `asked`: its arguments, the question first."""

    asked: tuple[str, ...]
    answer: bytes
    complaint: bytes
    exit_code: int | None


class EngineQuestions:
    def __init__(self, home: Home, command: Sequence[str]) -> None:
        self._home = home
        self._command = tuple(command)

    async def check(self, wanted: Wanted) -> bool:
        """Whether it is on this machine; False: it has to be downloaded, and nothing more is known yet.

        Raises ModelRefused, with the engine's sentence, when it is known already that this load would not work.
        """
        plan = (await self._report(wanted)).plan
        if plan is not None and not plan.fits:
            raise ModelRefused(plan.verdict)
        return plan is not None

    async def find(self, wanted: Wanted) -> None:
        """Raises ModelRefused when there is nothing to load it from."""
        await self._report(wanted)

    async def plan(self, wanted: Wanted) -> Planned:
        """What a load would find; that it can't be is an answer, too.

        Raises UnknownModel for a name that is nothing, and ModelRefused when the engine can't be asked.
        """
        said = await self._ask(*_plan_arguments(wanted))
        if said.exit_code != 0 and not said.answer.strip():
            _require_success(said)
        report = _understood(said.answer, _PlanReport)
        if report.code == MODEL_NOT_FOUND:
            raise UnknownModel(report.message)
        if report.code is not None:
            refusal = PlanAnswer(
                outcome="refused",
                verdict=report.message,
                name=wanted.model,
                native_context_tokens=report.maximum_context_tokens,
                reason=report.reason,
            )
            return Planned(refusal, folder=None)
        if report.model is None or report.plan is None:
            return Planned(PlanAnswer(outcome="not_here", verdict=report.message, name=wanted.model), folder=None)
        answer = PlanAnswer(
            outcome="fits" if report.plan.fits else "too_large",
            verdict=report.plan.verdict,
            name=report.model.name,
            plan=report.plan,
            native_context_tokens=report.model.native_context_tokens,
        )
        return Planned(answer, folder=Path(report.model.path))

    async def models(self) -> ModelList:
        """Raises ModelRefused when the engine can't look.

        Of what can't be used only the home's own: a hub's cache is full of what was never meant for us.
        """
        listed = _understood(_require_success(await self._ask("models", "--json")), ModelList)
        own = self._home.root / "models"
        refused = tuple(each for each in listed.refused if Path(each.path).is_relative_to(own))
        return msgspec.structs.replace(listed, refused=refused)

    async def fetch(self, model: str, on_progress: Callable[[LoadProgress], None]) -> None:
        """Download a model, however long it takes. Cancelled, it ends where it is, and goes on from there next time.

        Raises ModelRefused with the engine's sentence.
        """
        async with self._running("fetch", "--model", model) as process:
            assert process.stdout is not None and process.stderr is not None
            complaint = asyncio.create_task(process.stderr.read())
            async for line in process.stdout:
                on_progress(_understood(line, LoadProgress))
            _require_success(_Said(("fetch", model), b"", exit_code=await process.wait(), complaint=await complaint))

    async def _report(self, wanted: Wanted) -> _PlanReport:
        return _understood(_require_success(await self._ask(*_plan_arguments(wanted))), _PlanReport)

    async def _ask(self, *arguments: str) -> _Said:
        async with self._running(*arguments) as process:
            try:
                async with asyncio.timeout(ANSWER_LIMIT_S):
                    answer, complaint = await process.communicate()
            except TimeoutError as error:
                logger.warning("engine question took too long asked=%r", " ".join(arguments))
                raise ModelRefused(
                    f"The engine did not answer `{arguments[0]}` within {ANSWER_LIMIT_S:.0f} s, and was ended; "
                    "a folder of models on a disk that does not answer is the likely cause."
                ) from error
            return _Said(arguments, answer, complaint, process.returncode)

    @asynccontextmanager
    async def _running(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """The engine's program with these arguments; it does not outlive the block. Raises ModelRefused."""
        command = [*self._command, *arguments, "--home", str(self._home.root)]
        try:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
                cwd=self._home.root,
            )
        except (OSError, ValueError) as error:
            raise ModelRefused(f"The engine could not be asked `{arguments[0]}`: {error}.") from error
        try:
            yield process
        finally:
            if process.returncode is None:
                process.kill()
                await self._until_gone(process)

    async def _until_gone(self, process: asyncio.subprocess.Process) -> None:
        """Killed, it is gone at once, unless a disk holds it; then it is left to go when that lets it."""
        try:
            async with asyncio.timeout(KILL_LIMIT_S):
                await process.wait()
        except TimeoutError:
            logger.error("engine question does not end pid=%d", process.pid)


def _plan_arguments(wanted: Wanted) -> list[str]:
    arguments = ["plan", "--model", wanted.model, "--json"]
    if wanted.context is not None:
        arguments += ["--context", str(wanted.context)]
    if wanted.budget_bytes is not None:
        arguments += ["--budget", str(wanted.budget_bytes)]
    if wanted.kv_bits is not None:
        arguments += ["--kv-bits", str(wanted.kv_bits)]
    return arguments


def _require_success(said: _Said) -> bytes:
    """What it answered. Raises ModelRefused with the last line of its complaint."""
    if said.exit_code == 0:
        return said.answer
    lines = said.complaint.decode(errors="replace").strip().splitlines()
    sentence = lines[-1] if lines else f"The engine ended `{said.asked[0]}` with {said.exit_code}."
    if said.exit_code == REFUSED:
        logger.info("engine refused asked=%r reason=%r", " ".join(said.asked), sentence)
    else:
        asked = " ".join(said.asked)
        logger.warning("engine question failed asked=%r code=%s reason=%r", asked, said.exit_code, sentence)
    raise ModelRefused(sentence)


def _understood(answer: bytes, kind: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise ModelRefused(f"The engine answered in a form that is not understood: {error}.") from error
