"""What a sampling parameter is when the client leaves it out: the model's own recommendation, else the neutral value.

It checks nothing (`engine.door.checks` does) and samples nothing.
"""

import math
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from engine.request import SamplingParameters
from engine.wire import Sampling

# Logits are multiplied and divided by it: far from 1 they leave what a float holds.
SMALLEST_REPETITION_PENALTY = 0.01
LARGEST_REPETITION_PENALTY = 100.0
_SEED_LIMIT = 2**63  # fits the device's signed and unsigned keys

Number = TypeVar("Number", int, float)


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """Format: `generation_config.json` of Hugging Face."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    @classmethod
    def of(cls, generation_config: Mapping[str, Any]) -> "GenerationDefaults":
        neutral = cls()

        def number(name: str, otherwise: float, least: float = 0.0, most: float = math.inf) -> float:
            """What is no number, or none that can be sampled with, is as good as absent."""
            value = generation_config.get(name)
            if isinstance(value, (int, float)) and math.isfinite(value) and least <= value <= most:
                return value
            return otherwise

        is_greedy = generation_config.get("do_sample") is False
        return cls(
            temperature=0.0 if is_greedy else number("temperature", neutral.temperature),
            top_p=number("top_p", neutral.top_p, most=1.0),
            top_k=int(number("top_k", neutral.top_k)),
            min_p=number("min_p", neutral.min_p, most=1.0),
            repetition_penalty=number(
                "repetition_penalty",
                neutral.repetition_penalty,
                SMALLEST_REPETITION_PENALTY,
                LARGEST_REPETITION_PENALTY,
            ),
        )

    def resolve(self, sampling: Sampling) -> SamplingParameters:
        """Fill in every default. Without a seed, each request gets its own."""

        def given(value: Number | None, otherwise: Number) -> Number:
            return otherwise if value is None else value

        return SamplingParameters(
            temperature=given(sampling.temperature, self.temperature),
            top_p=given(sampling.top_p, self.top_p),
            top_k=given(sampling.top_k, self.top_k),
            min_p=given(sampling.min_p, self.min_p),
            repetition_penalty=given(sampling.repetition_penalty, self.repetition_penalty),
            presence_penalty=given(sampling.presence_penalty, 0.0),
            frequency_penalty=given(sampling.frequency_penalty, 0.0),
            logit_bias=tuple(sorted(sampling.logit_bias.items())),
            seed=secrets.randbelow(_SEED_LIMIT) if sampling.seed is None else sampling.seed % _SEED_LIMIT,
            num_logprobs=sampling.logprobs,
        )
