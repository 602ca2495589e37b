"""What a grammar costs: making the mask of a token, and decoding with it over decoding without, in alternating rounds.

The vocabulary has the size and the manner of a large model's, and made-up words; the model's weights are random. It
measures the library and the decoder, and neither the server nor how well a model does with a grammar.
"""

import random
import statistics
import time
from collections.abc import Sequence
from typing import Any, Final

import mlx.core as mx
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, TokenizerWrapper
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from benchmarks.models import DENSE_SMALL, num_parameters, of_configuration
from benchmarks.report import Measurement, run
from engine.blocks import TokenBlocks
from engine.layout import new_caches
from engine.request import Request, SamplingParameters
from engine.sampling import Sampler
from engine.selftest import choose_layout
from engine.step import Decoder, prefill_slice
from engine.text.constraint import GrammarConstraint, constraint_of
from engine.text.defaults import GenerationDefaults
from engine.text.grammar import Grammars
from engine.text.markup import ANSWER, Markup
from engine.text.probe import TemplateHabits
from engine.text.template import Rendered
from engine.text.tokenizer import TextModel
from engine.wire import GenerateRequest, Grammar, Prompt

VOCABULARY: Final = 151_936
END: Final = "<|im_end|>"
PROMPT: Final = tuple(range(300, 364))
TARGET: Final = 0.9
# Of a kind and size that agents ask for; no answer to it ends within the tokens that are decoded.
REPORT: Final = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "kind": {"enum": [f"kind {number}" for number in range(40)]},
        "findings": {
            "type": "array",
            "minItems": 500,
            "items": {
                "type": "object",
                "properties": {
                    "file": {"type": "string", "maxLength": 40},
                    "line": {"type": "integer", "minimum": 1},
                    "severity": {"enum": ["low", "medium", "high"]},
                    "is_new": {"type": "boolean"},
                    "note": {"type": ["string", "null"], "maxLength": 60},
                },
                "required": ["file", "line", "severity", "is_new", "note"],
                "additionalProperties": False,
            },
        },
    },
    "required": ["title", "kind", "findings"],
    "additionalProperties": False,
}
FINDING: Final = '{"file": "src/main.py", "line": 12, "severity": "high", "is_new": true, "note": "look \\"here\\""}'
TEXT: Final = '{"title": "What was found", "kind": "kind 7", "findings": [' + ", ".join([FINDING] * 12)


def text_model() -> TextModel:
    """A byte-level tokenizer of made-up words, in the proportions of a real one: two of three begin with a space."""
    draw = random.Random(7)
    characters = sorted(pre_tokenizers.ByteLevel.alphabet())
    words = dict.fromkeys([END, *characters, *(first + second for first in '{}[]",: \\' for second in '{}[]",:')])
    while len(words) < VOCABULARY:
        letters = "".join(draw.choices("etaoinshrdlucmfwypvbgkjqxz", range(26, 0, -1), k=draw.randint(2, 9)))
        words[
            draw.choice(("\u0120", "\u0120", "")) + draw.choice((letters, letters, letters.title(), letters + '"'))
        ] = None
    backend = Tokenizer(models.BPE(vocab={word: token for token, word in enumerate(words)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token=END)
    tokenizer = TokenizerWrapper(fast, BPEStreamingDetokenizer)
    return TextModel(
        tokenizer=tokenizer,
        markup=Markup.of(tokenizer),
        end_tokens=frozenset(tokenizer.eos_token_ids),
        vocabulary_size=VOCABULARY,
        defaults=GenerationDefaults(),
        most_letters_in_token=None,
        habits=TemplateHabits(),
    )


def bound_by(grammar: Grammar, model: TextModel, grammars: Grammars) -> GrammarConstraint:
    asked = GenerateRequest(id="a", prompt=Prompt(text="a"), grammar=grammar)
    constraint = constraint_of(asked, Rendered(PROMPT, ANSWER, has_markup=False, continues_text=True), model, grammars)
    assert constraint is not None
    return constraint


def mask_times(grammar: Grammar, model: TextModel, grammars: Grammars) -> list[float]:
    """Seconds for each mask along the text."""
    constraint = bound_by(grammar, model, grammars)
    times = []
    for token in model.tokenizer.encode(TEXT, add_special_tokens=False):
        began_at = time.perf_counter()
        constraint.allowed()
        times.append(time.perf_counter() - began_at)
        constraint.accept(token)
    return times


class Unread:
    """In the place of a text side, which the decoder does not look at."""


def tokens_per_second(
    model: Any, decoder: Decoder, constraints: Sequence[GrammarConstraint | None], num_tokens: int, *, warmth: float
) -> float:
    """Of one stream for each constraint together. The decoder is empty before and behind it."""
    requests = []
    for stream, constraint in enumerate(constraints):
        request = Request(
            id=str(stream),
            prompt=PROMPT,
            sampling=SamplingParameters(temperature=warmth, seed=stream),
            max_tokens=num_tokens,
            request_class="interactive",
            output=Unread(),  # type: ignore[arg-type]  # the decoder never looks at it
            deliver=lambda events: None,
            arrived_at=0.0,
            blocks=TokenBlocks(PROMPT),
            constraint=constraint,
        )
        caches = new_caches(model, room_len=len(PROMPT) + num_tokens)
        prefill_slice(model, caches, PROMPT[:-1])
        decoder.join(request, caches, Sampler(request.sampling, PROMPT))
        requests.append(request)
    decoder.step()
    began_at = time.perf_counter()
    for _ in range(num_tokens - 1):
        decoder.step()
    seconds = time.perf_counter() - began_at
    for request in requests:
        decoder.leave(request)
    return len(requests) * (num_tokens - 1) / seconds


def measure(is_quick: bool) -> Measurement:
    model_text = text_model()
    began_at = time.perf_counter()
    grammars = Grammars(model_text)
    vocabulary_s = time.perf_counter() - began_at
    grammar = Grammar(kind="json_schema", schema=REPORT)
    began_at = time.perf_counter()
    grammars.answer(grammar)
    compile_ms = (time.perf_counter() - began_at) * 1000
    cold, *warm = (mask_times(grammar, model_text, grammars) for _ in range(3))

    model = of_configuration(DENSE_SMALL | {"vocab_size": VOCABULARY}, is_quantised=False)
    decoder = Decoder(choose_layout(model).layout)
    num_rounds, num_tokens = (2, 16) if is_quick else (7, 32)
    ratios: dict[str, float] = {}
    speeds: dict[str, dict[str, float]] = {}
    for name, num_streams, warmth in (("greedy_1", 1, 0.0), ("warm_1", 1, 1.0), ("greedy_4", 4, 0.0)):
        free, bound = [], []
        for _ in range(num_rounds):
            held = [bound_by(grammar, model_text, grammars) for _ in range(num_streams)]
            free.append(tokens_per_second(model, decoder, [None] * num_streams, num_tokens, warmth=warmth))
            bound.append(tokens_per_second(model, decoder, held, num_tokens, warmth=warmth))
        ratios[name] = round(statistics.median(b / f for b, f in zip(bound, free, strict=True)), 3)
        speeds[name] = {"free": round(statistics.median(free), 1), "bound": round(statistics.median(bound), 1)}
    detail = {
        "ratio": ratios,
        "tokens_per_second": speeds,
        "mask_us": {
            "cold_p50": microseconds(cold, 0.5),
            "cold_max": microseconds(cold, 1.0),
            "p50": microseconds(warm[0] + warm[1], 0.5),
            "p99": microseconds(warm[0] + warm[1], 0.99),
        },
        "num_masks": len(cold),
        "compile_ms": round(compile_ms, 1),
        "vocabulary_s": round(vocabulary_s, 2),
        "vocabulary": VOCABULARY,
        "parameters": num_parameters(model),
        "device": str(mx.default_device()),
    }
    return Measurement("grammar", min(ratios.values()), "of unconstrained speed", TARGET, "higher", detail)


def microseconds(times: list[float], share: float) -> float:
    ordered = sorted(times)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e6, 1)


if __name__ == "__main__":
    run(measure, __doc__ or "")
