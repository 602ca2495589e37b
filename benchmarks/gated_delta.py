"""Prefill of a hybrid model with our gated delta rule against mlx-lm's loop, interleaved in one process: times as fast.

With CUDA it first checks the kernel against float64 and times its variants; it trains nothing and needs no weights.
"""

import json
import os
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.utils import _get_classes

from benchmarks.report import Measurement, run
from engine.gated_delta.cuda import CudaRule, Variant
from engine.gated_delta.install import chunkwise_or_loop, install_gated_delta, plain_update, put_in_place, with_rule
from engine.gated_delta.rule import Rule, loop
from tests.unit.engine_gated_delta.regimes import REGIMES, Inputs, draw, largest_error

GPU_TARGET = 5.0  # prefill of the whole model, times mlx-lm's
CPU_TARGET = 1.0
SLICE_LEN = 512
ROUNDS = 5
ERROR_LIMIT = 1e-5  # float32 inputs; mlx-lm's loop itself is off by up to 5e-6

VARIANTS = {
    f"{lanes} lanes, tile {tile_len}": Variant(lanes=lanes, tile_len=tile_len)
    for lanes, tile_len in ((4, 16), (4, 8), (8, 16), (8, 8), (16, 16))
}

HYBRID = {
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "hidden_size": 512,
    "intermediate_size": 1536,
    "num_hidden_layers": 8,
    "rms_norm_eps": 1e-6,
    "vocab_size": 2048,
    "max_position_embeddings": 262144,
    "linear_num_value_heads": 8,
    "linear_num_key_heads": 4,
    "linear_key_head_dim": 64,
    "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4,
    "tie_word_embeddings": True,
    "full_attention_interval": 4,
}
"""About 28M parameters."""

LARGE_HYBRID = HYBRID | {
    "num_attention_heads": 16,
    "head_dim": 256,
    "hidden_size": 2048,
    "num_hidden_layers": 40,
    "vocab_size": 151936,
    "linear_num_value_heads": 32,
    "linear_num_key_heads": 16,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "tie_word_embeddings": False,
    "num_experts": 256,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
}
"""The shape of a 35B-A3B hybrid; 4 bits make about 18 GiB of it."""


class Record:
    """What has been found: told on stderr as it comes, kept in $OUT/gated_delta.json should the run be cut short."""

    def __init__(self) -> None:
        self.found: dict[str, Any] = {}
        self._began_at = time.monotonic()
        self._folder = os.environ.get("OUT")

    def add(self, name: str, value: Any) -> None:
        self.found[name] = value
        print(f"[{time.monotonic() - self._began_at:6.1f} s] {name}: {value}", file=sys.stderr, flush=True)
        if self._folder:
            text = json.dumps(self.found, indent=1)
            (Path(self._folder) / "gated_delta.json").write_text(text, encoding="utf-8")


def build(configuration: dict[str, Any], *, bits: int | None = None) -> Any:
    """A hybrid with random weights: float32, or bfloat16 quantised in groups of 64, evaluated layer by layer."""
    model_type = "qwen3_5_moe" if "num_experts" in configuration else "qwen3_5"
    whole = {"model_type": model_type, "text_config": configuration | {"model_type": f"{model_type}_text"}}
    mx.random.seed(0)
    model_class, arguments_class = _get_classes(whole)
    model = model_class(arguments_class.from_dict(whole))
    if bits is not None:
        model.set_dtype(mx.bfloat16)
        nn.quantize(model, group_size=64, bits=bits)
    for layer in model.layers:
        mx.eval(layer.parameters())
    mx.eval(model.parameters())
    model.eval()
    return model


def prefill(model: Any, num_tokens: int, slice_len: int) -> float:
    """Seconds for a whole prompt, slice after slice, logits of the last slice included."""
    tokens = mx.array([[(index * 37) % 2000 for index in range(num_tokens)]])
    caches = make_prompt_cache(model)
    began_at = time.perf_counter()
    for start in range(0, num_tokens, slice_len):
        logits = model(tokens[:, start : start + slice_len], cache=caches)
        mx.eval([cache.state for cache in caches])
    mx.eval(logits[:, -1])
    return time.perf_counter() - began_at


def build_ms(model: Any) -> float:
    """Milliseconds in which the interpreter lock is held to build the graph of one slice, nothing computed."""
    tokens = mx.zeros((1, SLICE_LEN), mx.int32)
    took = []
    for _ in range(3):
        caches = make_prompt_cache(model)
        began_at = time.perf_counter()
        model(tokens, cache=caches)
        took.append(1e3 * (time.perf_counter() - began_at))
    return statistics.median(took)


def compare_prefill(model: Any, updates: dict[str, Any], *, num_tokens: int, rounds: int, record: Record) -> float:
    """Times as fast as mlx-lm's loop: the median of interleaved rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in updates}
    for number in range(rounds + 1):
        for name, update in updates.items():
            put_in_place(model, update)
            took = prefill(model, num_tokens if number else SLICE_LEN, SLICE_LEN)
            if number:  # the first round compiles kernels
                seconds[name].append(took)
    for name, update in updates.items():
        put_in_place(model, update)
        speeds = [round(num_tokens / took, 1) for took in seconds[name]]
        record.add(f"prefill, {name}", {"tokens_per_second": speeds, "build_ms": round(build_ms(model), 2)})
    return statistics.median(loop_s / ours_s for loop_s, ours_s in zip(seconds["loop"], seconds["ours"], strict=True))


# --- the kernel alone ------------------------------------------------------------------------------------------------


def check(rules: dict[str, Rule], record: Record) -> float:
    """The largest error of any rule against float64, in float32. Half precision is apart: it rounds its outputs."""
    worst = 0.0
    sizes = {"key_dim": 128, "value_dim": 128}
    for name, rule in rules.items():
        errors = {}
        for regime in REGIMES:
            inputs = draw(regime, 512, **sizes).rounded(mx.float32)
            errors[regime] = largest_error(rule(*inputs.arrays(), None), inputs)
        worst = max(worst, *errors.values())
        record.add(f"error, {name}", {regime: f"{error:.1e}" for regime, error in errors.items()})
    name, rule = next(iter(rules.items()))
    for label, inputs in {
        **{f"{n} tokens": draw("mixed", n, batch=3, **sizes) for n in (1, 15, 16, 17)},
        **{f"heads of {dim}": draw("mixed", 65, key_dim=dim, value_dim=dim) for dim in (16, 64, 192, 256)},
        "value rows 40": draw("mild", 65, key_dim=64, value_dim=40),
        "masked": replace(draw("mixed", 65, batch=2, **sizes), mask=np.arange(65) < np.array([[65], [30]])),
        "decay per key": draw("mixed", 65, num_key_heads=4, is_decay_per_key=True, **sizes),
    }.items():
        exact = inputs.rounded(mx.float32)
        mask = None if inputs.mask is None else mx.array(inputs.mask)
        error = largest_error(rule(*exact.arrays(), mask), exact)
        worst = max(worst, error)
        record.add(f"error, {name}, {label}", f"{error:.1e}")
    for dtype in (mx.bfloat16, mx.float16):
        exact = draw("mixed", 512, **sizes).rounded(dtype)
        record.add(f"error, {name}, {dtype}", f"{largest_error(rule(*exact.arrays(dtype), None), exact):.1e}")
    return worst


def layer_ms(rules: dict[str, Rule], inputs: Inputs, dtype: mx.Dtype, *, num_calls: dict[str, int]) -> dict[str, float]:
    """Milliseconds a call, by rule: calls chained by the state, the median of interleaved rounds."""
    *per_token, start = inputs.arrays(dtype)
    mx.eval(per_token, start)

    def chained(rule: Rule, count: int) -> Any:
        outputs, state = [], start
        for _ in range(count):
            y, state = rule(*per_token, state, None)
            outputs.append(y)
        return outputs, state

    took: dict[str, list[float]] = {name: [] for name in rules}
    for number in range(ROUNDS + 1):
        for name, rule in rules.items():
            count = num_calls.get(name, num_calls[""])
            began_at = time.perf_counter()
            mx.eval(chained(rule, count))
            if number:  # the first round compiles kernels
                took[name].append(1e3 * (time.perf_counter() - began_at) / count)
    return {name: round(statistics.median(times), 4) for name, times in took.items()}


def time_layers(rules: dict[str, Rule], record: Record) -> dict[str, float]:
    """Milliseconds a layer of a 35B-A3B hybrid, by rule, for 512 and 2,048 tokens together: the choice of a variant."""
    total = dict.fromkeys(rules, 0.0)
    for num_tokens, num_calls in ((1, {"": 30}), (512, {"": 10, "loop": 1}), (2048, {"": 5})):
        inputs = draw("mild", num_tokens, num_key_heads=16, num_value_heads=32, key_dim=128, value_dim=128)
        contenders = rules if num_tokens > 512 else rules | {"loop": loop}
        found = layer_ms(contenders, inputs, mx.bfloat16, num_calls=num_calls)
        record.add(f"ms a layer, {num_tokens} tokens", found)
        if num_tokens > 1:
            total = {name: total[name] + found[name] for name in rules}
    return total


# --- the measurements ------------------------------------------------------------------------------------------------


def on_cuda(is_quick: bool, record: Record) -> Measurement:
    rules: dict[str, Rule] = {name: CudaRule(variant) for name, variant in VARIANTS.items()}
    worst_error = check(rules, record)
    total_ms = time_layers(rules, record)
    fastest = min(total_ms, key=lambda name: total_ms[name])
    record.add("fastest variant", fastest)

    small = build(HYBRID)
    record.add("self-test, float32", install_gated_delta(small).detail)
    tokens = mx.array([[(index * 37) % 2000 for index in range(300)]])
    ours, _ = small(tokens, cache=make_prompt_cache(small)), put_in_place(small, plain_update())
    mx.eval(ours)
    plain = small(tokens, cache=make_prompt_cache(small))
    record.add("logits of a small model, off from the loop", f"{mx.abs(ours - plain).max().item():.1e}")

    model = build(LARGE_HYBRID | {"num_hidden_layers": 12 if is_quick else 40}, bits=4)
    record.add("model built, GiB", round(mx.get_active_memory() / 2**30, 1))
    self_test = install_gated_delta(model)
    record.add("self-test", self_test.detail)
    updates = {"loop": plain_update(), "ours": with_rule(plain_update(), CudaRule())}
    if VARIANTS[fastest] != Variant():
        updates["fastest variant"] = with_rule(plain_update(), rules[fastest])
    ratio = compare_prefill(model, updates, num_tokens=2 * SLICE_LEN, rounds=2 if is_quick else 4, record=record)
    put_in_place(model, updates["ours"])
    prefill(model, 2048, 2048)
    speeds = [round(8192 / prefill(model, 8192, 2048), 1) for _ in range(2)]
    record.add("prefill, ours, slices of 2048, tokens per second", speeds)
    detail = record.found | {"is_exact": worst_error <= ERROR_LIMIT and self_test.passed}
    # A wrong kernel is no speed.
    value = ratio if detail["is_exact"] else 0.0
    return Measurement("gated_delta", value, "times mlx-lm's prefill", GPU_TARGET, "higher", detail)


def on_cpu(is_quick: bool, record: Record) -> Measurement:
    model = build(HYBRID)
    record.add("parameters", sum(parameter.size for _, parameter in tree_flatten(model.parameters())))
    self_test = install_gated_delta(model)
    record.add("self-test", self_test.detail)
    inputs = draw("mild", SLICE_LEN, num_key_heads=4, num_value_heads=8, key_dim=64, value_dim=64)
    rules: dict[str, Rule] = {"loop": loop, "ours": chunkwise_or_loop}
    record.add(f"ms a layer, {SLICE_LEN} tokens", layer_ms(rules, inputs, mx.float32, num_calls={"": 1}))
    updates = {"loop": plain_update(), "ours": with_rule(plain_update(), chunkwise_or_loop)}
    num_tokens, rounds = (1024, 3) if is_quick else (2048, 5)
    ratio = compare_prefill(model, updates, num_tokens=num_tokens, rounds=rounds, record=record)
    return Measurement("gated_delta", ratio, "times mlx-lm's prefill", CPU_TARGET, "higher", record.found)


def measure(is_quick: bool) -> Measurement:
    record = Record()
    return on_cuda(is_quick, record) if mx.cuda.is_available() else on_cpu(is_quick, record)


if __name__ == "__main__":
    run(measure, __doc__ or "")
