"""What the engine's program can do without a model in memory: plan a load, list the models here, download one.

Each is a process of its own, `python -m engine plan|models|fetch`, which imports no MLX. Nothing is kept here.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, TypeVar

import msgspec

from control.admin_errors import ModelRefused
from control.home import Home
from control.lifecycle import Wanted
from control.wire import LoadProgress, MemoryPlan, ModelList, ModelOnDisk

logger = logging.getLogger(__name__)

# Reading the headers of hundreds of shards on a slow disk takes seconds.
ANSWER_LIMIT_S: Final = 60.0

Answer = TypeVar("Answer", bound=msgspec.Struct)


class _PlanAnswer(msgspec.Struct):
    """The part of `python -m engine plan --json` that a load needs; no plan for a model that is not downloaded yet."""

    plan: MemoryPlan | None = None


class EngineQuestions:
    def __init__(self, home: Home, command: Sequence[str]) -> None:
        self._home = home
        self._command = tuple(command)

    async def check(self, wanted: Wanted) -> bool:
        """Whether it is on this machine; False: it has to be downloaded, and nothing more is known yet.

        Raises ModelRefused, with the engine's sentence, when it is known already that this load would not work.
        """
        plan = await self._plan(wanted)
        if plan is not None and not plan.fits:
            raise ModelRefused(plan.verdict)
        return plan is not None

    async def find(self, wanted: Wanted) -> None:
        """Raises ModelRefused when there is nothing to load it from."""
        await self._plan(wanted)

    async def models(self) -> tuple[ModelOnDisk, ...]:
        """Raises ModelRefused when the engine can't look."""
        return _understood(await self._ask("models", "--json"), ModelList).models

    async def fetch(self, model: str, on_progress: Callable[[LoadProgress], None]) -> None:
        """Download a model, however long it takes. Cancelled, it ends where it is, and goes on from there next time.

        Raises ModelRefused with the engine's sentence.
        """
        async with self._running("fetch", "--model", model) as process:
            assert process.stdout is not None and process.stderr is not None
            complaint = asyncio.create_task(process.stderr.read())
            async for line in process.stdout:
                on_progress(_understood(line, LoadProgress))
            _require_success("fetch", await process.wait(), await complaint)

    async def _plan(self, wanted: Wanted) -> MemoryPlan | None:
        arguments = ["plan", "--model", wanted.model, "--json"]
        if wanted.context is not None:
            arguments += ["--context", str(wanted.context)]
        if wanted.budget_bytes is not None:
            arguments += ["--budget", str(wanted.budget_bytes)]
        if wanted.kv_bits is not None:
            arguments += ["--kv-bits", str(wanted.kv_bits)]
        return _understood(await self._ask(*arguments), _PlanAnswer).plan

    async def _ask(self, *arguments: str) -> bytes:
        async with self._running(*arguments) as process:
            try:
                async with asyncio.timeout(ANSWER_LIMIT_S):
                    answer, complaint = await process.communicate()
            except TimeoutError as error:
                raise ModelRefused(
                    f"The engine did not answer `{arguments[0]}` within {ANSWER_LIMIT_S:.0f} s."
                ) from error
            _require_success(arguments[0], process.returncode, complaint)
            return answer

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
                await process.wait()


def _require_success(question: str, exit_code: int | None, complaint: bytes) -> None:
    if exit_code == 0:
        return
    logger.warning("engine question failed question=%s code=%s", question, exit_code)
    lines = complaint.decode(errors="replace").strip().splitlines()
    raise ModelRefused(lines[-1] if lines else f"The engine ended `{question}` with {exit_code}.")


def _understood(answer: bytes, kind: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise ModelRefused(f"The engine answered in a form that is not understood: {error}.") from error
