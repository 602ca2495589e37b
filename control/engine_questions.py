"""What the engine's program can say without a model in memory: the plan of a load, and the models on this machine.

Each answer is a short process of its own, `python -m engine plan|models`, which imports no MLX. Nothing is kept here.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import Final, TypeVar

import msgspec

from control.errors import ModelRefused
from control.home import Home
from control.lifecycle import Wanted
from control.wire import MemoryPlan, ModelList, ModelOnDisk

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

    async def check(self, wanted: Wanted) -> None:
        """Raises ModelRefused, with the engine's sentence, when it is known already that this load would not work."""
        arguments = ["plan", "--model", wanted.model, "--json"]
        if wanted.context is not None:
            arguments += ["--context", str(wanted.context)]
        if wanted.budget_bytes is not None:
            arguments += ["--budget", str(wanted.budget_bytes)]
        if wanted.kv_bits is not None:
            arguments += ["--kv-bits", str(wanted.kv_bits)]
        plan = _understood(await self._ask(*arguments), _PlanAnswer).plan
        if plan is not None and not plan.fits:
            raise ModelRefused(plan.verdict)

    async def models(self) -> tuple[ModelOnDisk, ...]:
        """Raises ModelRefused when the engine can't look."""
        return _understood(await self._ask("models", "--json"), ModelList).models

    async def _ask(self, *arguments: str) -> bytes:
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
            async with asyncio.timeout(ANSWER_LIMIT_S):
                answer, complaint = await process.communicate()
        except TimeoutError as error:
            raise ModelRefused(f"The engine did not answer `{arguments[0]}` within {ANSWER_LIMIT_S:.0f} s.") from error
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if process.returncode != 0:
            logger.warning("engine question failed question=%s code=%s", arguments[0], process.returncode)
            lines = complaint.decode(errors="replace").strip().splitlines()
            raise ModelRefused(lines[-1] if lines else f"The engine ended `{arguments[0]}` with {process.returncode}.")
        return answer


def _understood(answer: bytes, kind: type[Answer]) -> Answer:
    try:
        return msgspec.json.decode(answer, type=kind)
    except msgspec.DecodeError as error:
        raise ModelRefused(f"The engine answered in a form that is not understood: {error}.") from error
