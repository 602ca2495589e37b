"""The load-time self-test chooses the layout, and is not fooled by a broken one."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from engine.errors import ModelUnsound
from engine.layout import LayoutUnsupported
from engine.padded import OneByOneLayout, PaddedLayout
from engine.prefix.store import PrefixStore, Snapshot
from engine.rows import AttentionRows, RowsLayout
from engine.selftest import choose_layout, restore_test
from tests.unit.engine.models import KINDS, OTHER_KINDS, build, with_wide_heads


class OnePositionForAll(RowsLayout):
    """Broken on purpose: every row is told the position of the longest."""

    def forward(self, tokens):
        own = self._lengths
        self._lengths = [max(own)] * len(own)
        logits = super().forward(tokens)
        self._lengths = [length + 1 for length in own]
        return logits


class NeighboursContext(RowsLayout):
    """Broken on purpose: every row reads and writes the KV of another."""

    def forward(self, tokens):
        for layer in self._layers:
            if isinstance(layer, AttentionRows):
                layer.rows.reverse()
        return super().forward(tokens)


class Raises(RowsLayout):
    def forward(self, tokens):
        raise AttributeError("'PerRow' object has no attribute 'shape'")


class Forgets(RowsLayout):
    """Broken on purpose: says NaN."""

    def forward(self, tokens):
        return super().forward(tokens) * float("nan")


class FailsLater(RowsLayout):
    """Broken on purpose: finite for as long as it is compared with plain decoding, and not for longer."""

    num_steps = 0

    def forward(self, tokens):
        self.num_steps += 1
        return super().forward(tokens) * (float("nan") if self.num_steps > 6 else 1.0)


class FirstState(PrefixStore):
    """Broken on purpose: gives every snapshot the state of the first one."""

    first = None

    def capture(self, caches, covered_tokens):
        self.first = self.first or super().capture(caches, covered_tokens)
        return Snapshot(covered_tokens, self.first.states)


class FirstBlock(PrefixStore):
    """Broken on purpose: restores the first block for every block."""

    def hold(self, pieces, snapshot_id):
        return super().hold([pieces[0]] * len(pieces), snapshot_id)


def unsupported(model, example):
    raise LayoutUnsupported("not for this model")


def test_a_sound_model_decodes_in_rows(tiny):
    chosen = choose_layout(tiny.model)

    assert chosen.status.kind == "rows"
    assert isinstance(chosen.layout, RowsLayout)
    assert [(test.name, test.passed) for test in chosen.tests] == [("finite", True), ("rows", True), ("canary", True)]
    assert chosen.tests[1].error <= chosen.tests[1].tolerance
    assert len(chosen.layout) == 0


@pytest.mark.parametrize("broken", [OnePositionForAll, NeighboursContext, Raises, Forgets])
def test_a_broken_rows_layout_is_found_and_the_model_is_padded(tiny, broken):
    chosen = choose_layout(tiny.model, makers=(("rows", broken), ("padded", PaddedLayout)))

    assert chosen.status.kind == "padded"
    assert isinstance(chosen.layout, PaddedLayout)
    assert "rows: " in chosen.status.reason
    assert [test.name for test in chosen.tests if test.passed] == ["finite", "padded", "canary"]
    assert [test.name for test in chosen.tests if not test.passed] == ["rows"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_layout_is_found_in_quantised_models_too(kind):
    model = build(KINDS[kind])
    nn.quantize(model, group_size=32, bits=4)

    sound = choose_layout(model)
    broken = choose_layout(model, makers=(("rows", OnePositionForAll), ("padded", PaddedLayout)))

    assert (sound.status.kind, broken.status.kind) == ("rows", "padded")


def test_when_no_layout_works_streams_run_one_after_another(dense):
    chosen = choose_layout(dense, makers=(("rows", Raises), ("padded", unsupported)))

    assert chosen.status.kind == "padded"
    assert chosen.status.reason.startswith("streams run one after another; rows: AttributeError")
    assert chosen.status.reason.endswith("padded: not for this model")
    assert {test.name: test.is_supported for test in chosen.tests if not test.passed} == {"rows": True, "padded": False}


def test_a_model_whose_logits_are_not_finite_is_refused():
    model = build(KINDS["dense"])
    model.model.norm.weight = model.model.norm.weight * float("inf")

    with pytest.raises(ModelUnsound):
        choose_layout(model)


def test_bfloat16_models_decode_in_rows():
    model = build(KINDS["dense"])
    model.set_dtype(mx.bfloat16)

    assert choose_layout(model).status.kind == "rows"


def test_a_layout_that_stops_being_finite_while_it_decodes_is_found(dense):
    with pytest.raises(ModelUnsound):
        choose_layout(dense, makers=(("rows", FailsLater),))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bits", [8, 4])
def test_a_model_decodes_in_rows_with_quantised_kv(kind, bits):
    chosen = choose_layout(build(with_wide_heads(kind)), kv_bits=bits)

    assert (chosen.kv_bits, chosen.status.kv_bits, chosen.status.kind) == (bits, bits, "rows")
    assert [(test.name, test.passed) for test in chosen.tests][:3] == [
        ("kv_bits", True),
        ("finite", True),
        ("rows", True),
    ]


@pytest.mark.parametrize("broken", [OnePositionForAll, NeighboursContext])
def test_a_broken_layout_is_found_with_quantised_kv_and_streams_run_one_after_another(broken):
    model = build(with_wide_heads("dense"))

    chosen = choose_layout(model, kv_bits=8, makers=(("rows", broken), ("padded", PaddedLayout)))

    assert isinstance(chosen.layout, OneByOneLayout)
    assert "padded: no merging for caches of kind QuantizedRow" in chosen.status.reason
    assert chosen.kv_bits == 8


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        (KINDS["dense"], "heads of 16 can't be quantised in groups of 32"),
        (OTHER_KINDS["sparse"], "no layer keeps KV that can be quantised"),
    ],
)
def test_a_model_that_cannot_quantise_its_kv_goes_without_and_says_why(configuration, reason):
    chosen = choose_layout(build(configuration), kv_bits=4)

    assert chosen.kv_bits is None
    assert chosen.status.kv_bits is None
    assert f"4-bit KV: {reason}" in chosen.status.reason.replace("LayoutUnsupported: ", "")
    assert ("kv_bits", False) in [(test.name, test.passed) for test in chosen.tests]


@pytest.mark.parametrize("kind", [*KINDS, *OTHER_KINDS])
def test_every_kind_of_model_is_restored_as_it_was(kind):
    test = restore_test(build({**KINDS, **OTHER_KINDS}[kind]))

    assert (test.name, test.passed) == ("restore", True)
    assert test.error <= test.tolerance


@pytest.mark.parametrize("kind", KINDS)
def test_models_in_bfloat16_with_quantised_kv_are_restored_as_they_were(kind):
    model = build(with_wide_heads(kind))
    if kind != "hybrid":  # its experts don't run in bfloat16 on a CPU
        model.set_dtype(mx.bfloat16)

    assert restore_test(model, kv_bits=8).passed


@pytest.mark.parametrize("kind", ["hybrid", "sliding", "parallel", "chunked"])
def test_a_stale_snapshot_is_found(kind):
    test = restore_test(build({**KINDS, **OTHER_KINDS}[kind]), make_store=FirstState)

    assert not test.passed


@pytest.mark.parametrize("kind", [*KINDS, *OTHER_KINDS])
@pytest.mark.parametrize("is_quantised", [False, True])
def test_a_wrong_block_is_found(kind, is_quantised):
    model = build({**KINDS, **OTHER_KINDS}[kind])
    if is_quantised:
        nn.quantize(model, 32, 4, class_predicate=lambda _, part: hasattr(part, "to_quantized") and fits(part))

    test = restore_test(model, make_store=FirstBlock)

    assert not test.passed
    assert test.error > 3 * test.tolerance


def fits(part):
    return part.weight.shape[-1] % 32 == 0


def test_a_cache_that_cannot_be_saved_fails_the_test_instead_of_the_start(dense):
    class Unsavable(PrefixStore):
        def put_extent(self, *arguments):
            raise ValueError("not this one")

    test = restore_test(dense, make_store=Unsavable)

    assert not test.passed
    assert test.detail == "ValueError: not this one"
