"""The load-time self-test chooses the layout, and is not fooled by a broken one."""

import mlx.core as mx
import mlx.nn as nn
import pytest

from engine.errors import ModelUnsound
from engine.layout import LayoutUnsupported
from engine.padded import PaddedLayout
from engine.rows import AttentionRows, RowsLayout
from engine.selftest import choose_layout
from tests.unit.engine.models import KINDS, build


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


def unsupported(model, example):
    raise LayoutUnsupported("not for this model")


def test_a_sound_model_decodes_in_rows(tiny):
    chosen = choose_layout(tiny.model)

    assert chosen.status.kind == "rows"
    assert isinstance(chosen.layout, RowsLayout)
    assert [(test.name, test.passed) for test in chosen.tests] == [("finite", True), ("rows", True)]
    assert chosen.tests[1].error <= chosen.tests[1].tolerance
    assert len(chosen.layout) == 0


@pytest.mark.parametrize("broken", [OnePositionForAll, NeighboursContext, Raises, Forgets])
def test_a_broken_rows_layout_is_found_and_the_model_is_padded(tiny, broken):
    chosen = choose_layout(tiny.model, makers=(("rows", broken), ("padded", PaddedLayout)))

    assert chosen.status.kind == "padded"
    assert isinstance(chosen.layout, PaddedLayout)
    assert "rows: " in chosen.status.reason
    assert [(test.name, test.passed) for test in chosen.tests] == [("finite", True), ("rows", False), ("padded", True)]


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


def test_a_model_whose_logits_are_not_finite_is_refused():
    model = build(KINDS["dense"])
    model.model.norm.weight = model.model.norm.weight * float("inf")

    with pytest.raises(ModelUnsound):
        choose_layout(model)


def test_bfloat16_models_decode_in_rows():
    model = build(KINDS["dense"])
    model.set_dtype(mx.bfloat16)

    assert choose_layout(model).status.kind == "rows"
