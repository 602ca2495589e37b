"""Chooses the next token of each row from its logits, on the device, without waiting for the device.

It decides no defaults and validates nothing: parameters arrive resolved. Order: logit bias, penalties, the grammar's
mask, temperature, top-k, top-p, min-p: nothing brings a token back that the grammar forbids, and the shares are of what
it allows. The repetition penalty looks at prompt and output, presence and frequency at the output only.
"""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
import numpy as np

from engine.request import SampledToken, SamplingParameters

# top-p 0 means "only the most likely": its mass is above any positive threshold.
SMALLEST_TOP_P = 1e-9
# Below it the likeliest token has all the probability, and soon a logit divided by it is no finite number.
SMALLEST_TEMPERATURE = 1e-6


def position_key(seed: int, position: int) -> mx.array:
    """The random key of one token. It depends on nothing else, so neither neighbours nor order can change a sample."""
    digest = hashlib.blake2b(f"{seed}:{position}".encode(), digest_size=8).digest()
    return mx.random.key(int.from_bytes(digest, "little"))


@dataclass(frozen=True, slots=True)
class Logprobs:
    """Natural-log probabilities of one row: of the chosen token (1,), and of the most likely ones (1, N), unsorted."""

    chosen: mx.array
    top_tokens: mx.array | None
    top_logprobs: mx.array | None


@dataclass(frozen=True, slots=True)
class Choice:
    """The next tokens of all rows (B,), perhaps still being computed; `normalisers` (B,) tells the broken ones."""

    tokens: mx.array
    normalisers: mx.array
    logprobs: tuple[Logprobs | None, ...]

    def arrays(self) -> list[mx.array]:
        reported = [
            array
            for row in self.logprobs
            if row is not None
            for array in (row.chosen, row.top_tokens, row.top_logprobs)
            if array is not None
        ]
        return [self.tokens, self.normalisers, *reported]

    def finite_rows(self) -> list[bool]:
        """Whether the logits of each row were finite."""
        normalisers: Any = self.normalisers.tolist()
        return [math.isfinite(normaliser) for normaliser in normalisers]

    def sampled(self, row: int, token: int) -> SampledToken:
        """Row `row` as the text side takes it; its token was read already."""
        logprobs = self.logprobs[row]
        if logprobs is None:
            return SampledToken(token)
        top: tuple[tuple[int, float], ...] = ()
        if logprobs.top_tokens is not None and logprobs.top_logprobs is not None:
            tokens: Any = logprobs.top_tokens[0].tolist()
            values: Any = logprobs.top_logprobs[0].tolist()
            top = tuple(sorted(zip(tokens, values, strict=True), key=lambda pair: (-pair[1], pair[0])))
        chosen: Any = logprobs.chosen.item()
        return SampledToken(token, logprob=chosen, top=top)


class Sampler:
    """Chooses the tokens of one request. What depends on earlier tokens is counted on the device.

    `generated`: what was sampled before, by another Sampler, of a request that was suspended and goes on now.
    """

    def __init__(self, parameters: SamplingParameters, prompt: Sequence[int], *, generated: Sequence[int] = ()) -> None:
        self.parameters = parameters
        self._prompt = prompt
        self._generated = tuple(generated)
        self._position = len(self._generated)
        self._bias: mx.array | None = None
        self._is_in_prompt: mx.array | None = None
        self._counts: mx.array | None = None

    @property
    def is_plain_greedy(self) -> bool:
        return self._is_greedy and not self._has_adjustments

    @property
    def _is_greedy(self) -> bool:
        return self.parameters.temperature < SMALLEST_TEMPERATURE

    @property
    def _has_penalties(self) -> bool:
        p = self.parameters
        return p.repetition_penalty != 1.0 or p.presence_penalty != 0.0 or p.frequency_penalty != 0.0

    @property
    def _has_adjustments(self) -> bool:
        return self._has_penalties or bool(self.parameters.logit_bias)

    def choose(self, logits: mx.array, allowed: bytes | None = None) -> mx.array:
        """The next token (1,) from logits (1, V) in float32; remembers it for the penalties.

        `allowed`: a mask as `engine.request.Constraint` gives it; None allows every token.
        """
        if self._has_adjustments:
            logits = self._adjusted(logits)
        if allowed is not None:
            logits = mx.where(unpacked(allowed, logits.shape[-1]), logits, -math.inf)
        if self._is_greedy:
            token = mx.argmax(logits, axis=-1)
        else:
            key = position_key(self.parameters.seed, self._position)
            token = drawn(logits / self.parameters.temperature, self.parameters, key)
        self._position += 1
        if self._counts is not None:
            self._counts = self._counts.at[token].add(1)
        return token

    def _adjusted(self, logits: mx.array) -> mx.array:
        p = self.parameters
        vocabulary = logits.shape[-1]
        if p.logit_bias:
            if self._bias is None:
                known = [(token, bias) for token, bias in p.logit_bias if 0 <= token < vocabulary]
                tokens, biases = mx.array([t for t, _ in known], mx.uint32), mx.array([b for _, b in known], mx.float32)
                self._bias = mx.zeros(vocabulary).at[tokens].add(biases)
            logits = logits + self._bias
        if not self._has_penalties:
            return logits
        if self._counts is None or self._is_in_prompt is None:
            self._counts = mx.zeros(vocabulary, mx.int32).at[mx.array(self._generated, mx.uint32)].add(1)
            in_prompt = mx.array([token for token in set(self._prompt) if token < vocabulary], mx.uint32)
            self._is_in_prompt = mx.zeros(vocabulary, mx.int32).at[in_prompt].add(1) > 0
        was_generated = self._counts > 0
        if p.repetition_penalty != 1.0:
            penalised = mx.where(logits > 0, logits / p.repetition_penalty, logits * p.repetition_penalty)
            logits = mx.where(was_generated | self._is_in_prompt, penalised, logits)
        return logits - p.presence_penalty * was_generated - p.frequency_penalty * self._counts


def unpacked(allowed: bytes, vocabulary: int) -> mx.array:
    """A packed mask as booleans (V,). Tokens beyond its end are not allowed: a model's vocabulary may be padded."""
    num_bytes = -(-vocabulary // 32) * 4
    words = mx.array(np.frombuffer(allowed[:num_bytes].ljust(num_bytes, b"\0"), "<u4"))
    bits = mx.bitwise_and(mx.right_shift(words[:, None], mx.arange(32, dtype=mx.uint32)), 1)
    return bits.reshape(-1)[:vocabulary].astype(mx.bool_)


def drawn(logits: mx.array, parameters: SamplingParameters, key: mx.array) -> mx.array:
    """A token (1,) from logits (1, V) that the temperature was applied to, within top-k, top-p and min-p."""
    vocabulary = logits.shape[-1]
    has_top_k = 0 < parameters.top_k < vocabulary
    if not has_top_k and parameters.top_p >= 1.0:
        return mx.random.categorical(within_min_p(logits, parameters.min_p), key=key)
    if has_top_k:
        tokens = mx.argpartition(-logits, parameters.top_k - 1, axis=-1)[:, : parameters.top_k]
        candidates = mx.take_along_axis(logits, tokens, axis=-1)
        order = mx.argsort(-candidates, axis=-1)
        tokens = mx.take_along_axis(tokens, order, axis=-1)
    else:
        tokens = mx.argsort(-logits, axis=-1)
    candidates = mx.take_along_axis(logits, tokens, axis=-1)
    if parameters.top_p < 1.0:
        likelier = mx.cumsum(mx.softmax(candidates, axis=-1), axis=-1, inclusive=False)
        candidates = mx.where(likelier < max(parameters.top_p, SMALLEST_TOP_P), candidates, -math.inf)
    choice = mx.random.categorical(within_min_p(candidates, parameters.min_p), key=key)
    return mx.take_along_axis(tokens, choice[:, None], axis=-1)[:, 0]


def within_min_p(logits: mx.array, min_p: float) -> mx.array:
    """Drop what is less likely than `min_p` times the most likely token."""
    if min_p <= 0:
        return logits
    return mx.where(logits >= logits.max(axis=-1, keepdims=True) + math.log(min_p), logits, -math.inf)


def choose_tokens(logits: mx.array, samplers: Sequence[Sampler], masks: Sequence[bytes | None] | None = None) -> Choice:
    """The next token of every row of `logits` (B, V). One argmax serves all rows when all are greedy.

    `masks`: what each row's grammar allows; None when no row has one.
    """
    logits = logits.astype(mx.float32)
    # NaN and infinity anywhere in a row survive this sum, so it tells a broken row at the price of one reduction.
    normalisers = mx.logsumexp(logits, axis=-1)
    if masks is None and all(sampler.is_plain_greedy for sampler in samplers):
        tokens = mx.argmax(logits, axis=-1)
    else:
        rows = mx.split(logits, len(samplers))
        row_masks = [None] * len(samplers) if masks is None else masks
        chosen = [sampler.choose(row, mask) for sampler, row, mask in zip(samplers, rows, row_masks, strict=True)]
        tokens = mx.concatenate([token.astype(mx.uint32) for token in chosen])
    logprobs = tuple(
        None
        if sampler.parameters.num_logprobs is None
        else row_logprobs(
            logits[row : row + 1] - normalisers[row : row + 1, None],
            tokens[row : row + 1],
            sampler.parameters.num_logprobs,
        )
        for row, sampler in enumerate(samplers)
    )
    return Choice(tokens=tokens, normalisers=normalisers, logprobs=logprobs)


def row_logprobs(logprobs: mx.array, token: mx.array, num_top: int) -> Logprobs:
    """What to report of one row (1, V): before temperature, penalties and bias, as the model itself put it."""
    chosen = mx.take_along_axis(logprobs, token[:, None], axis=-1)[:, 0]
    num_top = min(num_top, logprobs.shape[-1])
    if num_top == 0:
        return Logprobs(chosen, None, None)
    if num_top < logprobs.shape[-1]:
        top_tokens = mx.argpartition(-logprobs, num_top - 1, axis=-1)[:, :num_top]
    else:
        top_tokens = mx.argsort(-logprobs, axis=-1)
    return Logprobs(chosen, top_tokens, mx.take_along_axis(logprobs, top_tokens, axis=-1))
