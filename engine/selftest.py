"""The load-time self-test: compares what the model computes in a batch with plain mlx-lm, and chooses the layout.

It judges numbers, not language: a model that is finite and equal in a batch passes, however little sense it makes.

Eight small forwards in the usual case: two prompts of different lengths, prefilled and decoded for two steps by plain
mlx-lm, then the same two steps together in the layout on trial.
"""

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from engine.errors import ModelUnsound
from engine.layout import Caches, Layout, LayoutUnsupported, new_caches
from engine.padded import OneByOneLayout, PaddedLayout
from engine.rows import RowsLayout
from engine.step import prefill_slice
from engine.wire import LayoutStatus, SelfTest

logger = logging.getLogger(__name__)

PROMPT_LENGTHS = (6, 21)
NUM_STEPS = 2
LARGEST_TEST_TOKEN = 61  # every vocabulary is larger

# Tolerances in standard deviations of the logits. Float32 rows differ by 5e-7 to 8e-6 from single streams on a CPU.
FLOAT32_TOLERANCE = 1e-3
HALF_OR_QUANTISED_TOLERANCE = 0.1
# A batch of two may run other kernels than a single stream. Their rounding is measured before a layout is blamed.
NOISE_ALLOWANCE = 4.0

LayoutMaker = Callable[[Any, Caches], Layout]


@dataclass(frozen=True, slots=True)
class Chosen:
    layout: Layout
    status: LayoutStatus
    tests: tuple[SelfTest, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """One prompt as plain mlx-lm decodes it. `logits[i]` (V,) came from `inputs[i]`; `caches` is from before both."""

    caches: Caches
    inputs: tuple[int, ...]
    logits: tuple[mx.array, ...]


def choose_layout(
    model: Any, *, makers: Sequence[tuple[str, LayoutMaker]] = (("rows", RowsLayout), ("padded", PaddedLayout))
) -> Chosen:
    """Try `makers` in order; the first layout that equals plain decoding is taken, and none means one by one.

    Raises ModelUnsound when plain decoding itself is not finite.
    """
    references = [plain_decoding(model, trial_prompt(length)) for length in PROMPT_LENGTHS]
    if not all(bool(mx.isfinite(logits).all()) for reference in references for logits in reference.logits):
        raise ModelUnsound
    tests = [SelfTest(name="finite", passed=True, error=None, tolerance=None, detail="plain decoding is finite")]
    why_not: list[str] = []
    for name, maker in makers:
        try:
            layout = maker(model, references[0].caches)
        except LayoutUnsupported as unsupported:
            tests.append(SelfTest(name=name, passed=False, error=None, tolerance=None, detail=str(unsupported)))
            why_not.append(f"{name}: {unsupported}")
            continue
        test = try_layout(name, model, layout, references)
        tests.append(test)
        if test.passed:
            reason = "; ".join(["equal to plain decoding in the self-test", *why_not])
            return Chosen(layout, LayoutStatus(kind=layout.kind, reason=reason), tuple(tests))
        logger.warning("layout failed the self-test layout=%s error=%s detail=%s", name, test.error, test.detail)
        why_not.append(f"{name}: {test.detail}")
    reason = "; ".join(["streams run one after another", *why_not])
    one_by_one = OneByOneLayout(model, references[0].caches)
    return Chosen(one_by_one, LayoutStatus(kind=one_by_one.kind, reason=reason), tuple(tests))


def trial_prompt(length: int) -> list[int]:
    return [1 + (index * 29 + length) % LARGEST_TEST_TOKEN for index in range(length)]


def plain_decoding(model: Any, prompt: list[int]) -> Reference:
    caches = new_caches(model, room_len=len(prompt) + NUM_STEPS)
    prefill_slice(model, caches, prompt[:-1])
    kept = copy.deepcopy(caches)
    token = prompt[-1]
    inputs, logits = [], []
    for _ in range(NUM_STEPS):
        inputs.append(token)
        logits.append(model(mx.array([[token]]), cache=caches)[0, -1].astype(mx.float32))
        token = int(number(mx.argmax(logits[-1])))
    return Reference(kept, tuple(inputs), tuple(logits))


def try_layout(name: str, model: Any, layout: Layout, references: Sequence[Reference]) -> SelfTest:
    """Equal within the tolerance also means the same greedy token, unless the two likeliest are closer than that."""
    tolerance = base_tolerance(model, references)
    try:
        error = largest_difference(layout, references)
        if error > tolerance:
            tolerance = max(tolerance, NOISE_ALLOWANCE * batch_noise(model, references[-1]))
    except Exception as failure:  # a foreign model may raise anything when its cache is not what it expects
        return SelfTest(
            name=name, passed=False, error=None, tolerance=None, detail=f"{type(failure).__name__}: {failure}"
        )
    passed = error <= tolerance
    relation = "within" if passed else "beyond"
    detail = f"logits differ by {error:.1e} from plain decoding, {relation} {tolerance:.1e}"
    return SelfTest(name=name, passed=passed, error=error, tolerance=tolerance, detail=detail)


def largest_difference(layout: Layout, references: Sequence[Reference]) -> float:
    """Decode all references together in `layout`, and leave it empty; infinite when a logit is not finite."""
    for reference in references:
        layout.join(copy.deepcopy(reference.caches))
    differences = []
    for step in range(NUM_STEPS):
        logits = layout.forward(mx.array([reference.inputs[step] for reference in references]))
        plain = mx.stack([reference.logits[step] for reference in references])
        differences.append(mx.abs(logits.astype(mx.float32) - plain).max())
    error = mx.stack(differences).max()
    mx.eval(error, layout.pending())
    for _ in references:
        layout.leave(0)
    largest = number(error)
    return largest if largest == largest else float("inf")


def batch_noise(model: Any, reference: Reference) -> float:
    """How much the same prompt twice in one plain batch, without any layout, differs from once."""
    prompt = trial_prompt(PROMPT_LENGTHS[-1])
    caches = new_caches(model, room_len=len(prompt) + NUM_STEPS)
    model(mx.array([prompt[:-1]] * 2), cache=caches)
    differences = []
    for token, plain in zip(reference.inputs, reference.logits, strict=True):
        logits = model(mx.array([[token]] * 2), cache=caches)[0, -1].astype(mx.float32)
        differences.append(mx.abs(logits - plain).max())
    return number(mx.stack(differences).max())


def base_tolerance(model: Any, references: Sequence[Reference]) -> float:
    spread = number(mx.std(mx.stack([logits for reference in references for logits in reference.logits])))
    parameters: Any = tree_flatten(model.parameters())
    is_exact = all(parameter.dtype == mx.float32 for _, parameter in parameters)
    return spread * (FLOAT32_TOLERANCE if is_exact else HALF_OR_QUANTISED_TOLERANCE)


def number(scalar: mx.array) -> float:
    value: Any = scalar.item()
    return float(value)
