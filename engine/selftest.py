"""The load-time self-test: compares the model in a batch, and restored, with plain mlx-lm; chooses the layout.

It judges numbers, not language: a model that is finite and equal in a batch passes, however little sense it makes.

1. Plain decoding: two prompts of different lengths, two steps each. Not finite: the model is refused.
2. Each layout on trial: the same steps together.
3. Canary: a few tokens of greedy decoding in the chosen layout are finite.
4. Restoring: a prompt restored at one block and at two goes on as it was computed. If not, there is no prefix cache.

Some 25 small forwards in all.
"""

import copy
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx.utils import tree_flatten

from engine.blocks import BLOCK_TOKENS
from engine.errors import ModelUnsound
from engine.layout import Caches, Layout, LayoutUnsupported, QuantizedRow, new_caches
from engine.padded import OneByOneLayout, PaddedLayout
from engine.prefix.index import Piece
from engine.prefix.store import PrefixStore
from engine.rows import RowsLayout
from engine.step import prefill_slice
from engine.wire import LayoutStatus, SelfTest

logger = logging.getLogger(__name__)

PROMPT_LENGTHS = (6, 21)
NUM_STEPS = 2
NUM_CANARY_TOKENS = 8
RESTORE_BLOCKS = (1, 2)
NUM_REPLAYED_TOKENS = 6
LARGEST_TEST_TOKEN = 61  # every vocabulary is larger

# Tolerances in standard deviations of the logits. Float32 rows differ by 5e-7 to 8e-6 from single streams on a CPU.
FLOAT32_TOLERANCE = 1e-3
HALF_OR_QUANTISED_TOLERANCE = 0.1
# A restored sequence goes through the very kernels that the original went through: what differs was not restored.
RESTORE_TOLERANCE = 1e-3
# A batch of two may run other kernels than a single stream. Their rounding is measured before a layout is blamed.
NOISE_ALLOWANCE = 4.0

LayoutMaker = Callable[[Any, Caches], Layout]


@dataclass(frozen=True, slots=True)
class Chosen:
    """`kv_bits` None: keys and values stay as the model computes them, as asked for or because it needs them so."""

    layout: Layout
    kv_bits: int | None
    status: LayoutStatus
    tests: tuple[SelfTest, ...]


@dataclass(frozen=True, slots=True)
class Reference:
    """One prompt as plain mlx-lm decodes it. `logits[i]` (V,) came from `inputs[i]`; `caches` is from before both."""

    caches: Caches
    inputs: tuple[int, ...]
    logits: tuple[mx.array, ...]

    @property
    def is_finite(self) -> bool:
        return all(bool(mx.isfinite(logits).all()) for logits in self.logits)


def choose_layout(
    model: Any,
    *,
    kv_bits: int | None = None,
    makers: Sequence[tuple[str, LayoutMaker]] = (("rows", RowsLayout), ("padded", PaddedLayout)),
) -> Chosen:
    """Try `makers` in order; the first layout that equals plain decoding is taken, and none means one by one.

    With `kv_bits`, plain decoding keeps KV quantised as well; a model that can't do that goes without.
    Raises ModelUnsound when plain decoding itself is not finite, or decoding in the chosen layout.
    """
    tests: list[SelfTest] = []
    why_not: list[str] = []
    if kv_bits is not None:
        test = quantised_kv_test(model, kv_bits)
        tests.append(test)
        if not test.passed:
            logger.warning("kv is not quantised bits=%d reason=%s", kv_bits, test.detail)
            why_not.append(f"{kv_bits}-bit KV: {test.detail}")
            kv_bits = None
    references = [plain_decoding(model, trial_prompt(length), kv_bits=kv_bits) for length in PROMPT_LENGTHS]
    if not all(reference.is_finite for reference in references):
        raise ModelUnsound
    tests.append(SelfTest(name="finite", passed=True, error=None, tolerance=None, detail="plain decoding is finite"))
    layout: Layout | None = None
    for name, maker in makers:
        try:
            candidate = maker(model, references[0].caches)
        except LayoutUnsupported as unsupported:
            tests.append(not_supported(name, str(unsupported)))
            why_not.append(f"{name}: {unsupported}")
            continue
        test = try_layout(name, model, candidate, references, kv_bits=kv_bits)
        tests.append(test)
        if test.passed:
            layout = candidate
            break
        logger.warning("layout failed the self-test layout=%s error=%s detail=%s", name, test.error, test.detail)
        why_not.append(f"{name}: {test.detail}")
    verdict = "equal to plain decoding in the self-test"
    if layout is None:
        layout, verdict = OneByOneLayout(model, references[0].caches), "streams run one after another"
    tests.append(canary(layout, references))
    status = LayoutStatus(kind=layout.kind, reason="; ".join([verdict, *why_not]), kv_bits=kv_bits)
    return Chosen(layout, kv_bits, status, tuple(tests))


def quantised_kv_test(model: Any, kv_bits: int) -> SelfTest:
    """Whether the model decodes with quantised keys and values at all; how well, is for whoever asked for it."""
    try:
        if not any(isinstance(cache, QuantizedRow) for cache in new_caches(model, room_len=1, kv_bits=kv_bits)):
            return not_passed("kv_bits", "no layer keeps KV that can be quantised")
        is_finite = plain_decoding(model, trial_prompt(PROMPT_LENGTHS[0]), kv_bits=kv_bits).is_finite
    except Exception as failure:  # a foreign model may raise anything when its cache is not what it expects
        return not_passed("kv_bits", f"{type(failure).__name__}: {failure}")
    if not is_finite:
        return not_passed("kv_bits", "decoding with quantised KV is not finite")
    return SelfTest(name="kv_bits", passed=True, error=None, tolerance=None, detail=f"decodes with {kv_bits}-bit KV")


def canary(layout: Layout, references: Sequence[Reference]) -> SelfTest:
    """Decode a few tokens greedily in the layout, and leave it empty. Raises ModelUnsound when one is not finite."""
    for reference in references:
        layout.join(copy.deepcopy(reference.caches))
    tokens = mx.array([reference.inputs[0] for reference in references])
    is_finite = mx.array(True)
    for _ in range(NUM_CANARY_TOKENS):
        logits = layout.forward(tokens)
        tokens = mx.argmax(logits, axis=-1)
        is_finite = is_finite & mx.isfinite(logits).all()
        mx.eval(tokens, is_finite, layout.pending())
    for _ in references:
        layout.leave(0)
    if not bool(is_finite):
        raise ModelUnsound
    detail = f"{NUM_CANARY_TOKENS} tokens decoded, all finite"
    return SelfTest(name="canary", passed=True, error=None, tolerance=None, detail=detail)


def restore_test(
    model: Any, *, kv_bits: int | None = None, make_store: Callable[[Caches], PrefixStore] = PrefixStore
) -> SelfTest:
    """Whether the prefix store gives a sequence back as it was. Never raises: what a store can't do, fails."""
    try:
        error, tolerance = restored_difference(model, make_store, kv_bits=kv_bits)
    except Exception as failure:  # as above
        return not_passed("restore", f"{type(failure).__name__}: {failure}")
    return compared("restore", error, tolerance, to="recomputing")


def restored_difference(
    model: Any, make_store: Callable[[Caches], PrefixStore], *, kv_bits: int | None
) -> tuple[float, float]:
    """The largest difference in logits between a prompt restored at each of RESTORE_BLOCKS and the same one computed,
    and the tolerance for it.
    """
    prompt = trial_prompt(RESTORE_BLOCKS[-1] * BLOCK_TOKENS + NUM_REPLAYED_TOKENS)
    caches = new_caches(model, room_len=len(prompt), kv_bits=kv_bits)
    store = make_store(caches)
    for blocks in RESTORE_BLOCKS:
        length = blocks * BLOCK_TOKENS
        prefill_slice(model, caches, prompt[length - BLOCK_TOKENS : length])
        store.put_extent(blocks, caches, length - BLOCK_TOKENS, length)
        snapshot = store.capture(caches, length)
        mx.eval(snapshot.arrays())
        store.put_snapshot(blocks, snapshot)
    plain = last_logits(model, caches, prompt, start=length)
    differences = []
    for blocks in RESTORE_BLOCKS:
        restored = new_caches(model, room_len=len(prompt), kv_bits=kv_bits)
        held = store.hold([Piece(block, 0, 1) for block in range(1, blocks + 1)], blocks)
        store.restore(held, length=blocks * BLOCK_TOKENS, caches=restored, room_len=len(prompt))
        for start in range(blocks * BLOCK_TOKENS, length, BLOCK_TOKENS):
            prefill_slice(model, restored, prompt[start : start + BLOCK_TOKENS])
        differences.append(mx.abs(last_logits(model, restored, prompt, start=length) - plain).max())
    error = number(mx.stack(differences).max())
    return error, number(mx.std(plain)) * RESTORE_TOLERANCE


def last_logits(model: Any, caches: Caches, prompt: list[int], *, start: int) -> mx.array:
    """Logits (V,) after the whole prompt, of which `caches` holds `start` tokens: one more slice, then one token."""
    prefill_slice(model, caches, prompt[start:-1])
    logits: mx.array = model(mx.array([prompt[-1:]]), cache=caches)[0, -1]
    return logits.astype(mx.float32)


def trial_prompt(length: int) -> list[int]:
    return [1 + (index * 29 + length) % LARGEST_TEST_TOKEN for index in range(length)]


def plain_decoding(model: Any, prompt: list[int], *, kv_bits: int | None = None) -> Reference:
    caches = new_caches(model, room_len=len(prompt) + NUM_STEPS, kv_bits=kv_bits)
    prefill_slice(model, caches, prompt[:-1])
    kept = copy.deepcopy(caches)
    token = prompt[-1]
    inputs, logits = [], []
    for _ in range(NUM_STEPS):
        inputs.append(token)
        logits.append(model(mx.array([[token]]), cache=caches)[0, -1].astype(mx.float32))
        token = int(number(mx.argmax(logits[-1])))
    return Reference(kept, tuple(inputs), tuple(logits))


def try_layout(
    name: str, model: Any, layout: Layout, references: Sequence[Reference], *, kv_bits: int | None
) -> SelfTest:
    """Equal within the tolerance also means the same greedy token, unless the two likeliest are closer than that."""
    tolerance = base_tolerance(model, references)
    try:
        error = largest_difference(layout, references)
        if error > tolerance:
            tolerance = max(tolerance, NOISE_ALLOWANCE * batch_noise(model, references[-1], kv_bits=kv_bits))
    except Exception as failure:  # as above
        return not_passed(name, f"{type(failure).__name__}: {failure}")
    return compared(name, error, tolerance, to="plain decoding")


def compared(name: str, error: float, tolerance: float, *, to: str) -> SelfTest:
    passed = error <= tolerance
    relation = "within" if passed else "beyond"
    detail = f"logits differ by {error:.1e} from {to}, {relation} {tolerance:.1e}"
    return SelfTest(name=name, passed=passed, error=error, tolerance=tolerance, detail=detail)


def not_passed(name: str, detail: str) -> SelfTest:
    return SelfTest(name=name, passed=False, error=None, tolerance=None, detail=detail)


def not_supported(name: str, detail: str) -> SelfTest:
    return SelfTest(name=name, passed=False, error=None, tolerance=None, detail=detail, is_supported=False)


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


def batch_noise(model: Any, reference: Reference, *, kv_bits: int | None) -> float:
    """How much the same prompt twice in one plain batch, without any layout, differs from once."""
    prompt = trial_prompt(PROMPT_LENGTHS[-1])
    caches = new_caches(model, room_len=len(prompt) + NUM_STEPS, kv_bits=kv_bits)
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
