"""A row is published while it decodes beside others; restored, it goes on like a stream never interrupted."""

import mlx.core as mx
import pytest

from engine.blocks import BLOCK_TOKENS
from engine.padded import OneByOneLayout, PaddedLayout
from engine.rows import RowsLayout
from tests.unit.engine.models import KINDS, OTHER_KINDS, build, with_wide_heads
from tests.unit.engine_store.conftest import (
    ROOM,
    Subject,
    greedy,
    prefilled,
    prompt_of,
    put_blocks,
    relative_error,
)

PROMPT_LENS = (21, 46, 91)
NUM_STEPS = 40
NUM_AFTER = 40
TOLERANCE = 1e-4  # a batch differs from a stream alone by up to 5e-5; restored from it, the difference stays

LAYOUTS = {"rows": RowsLayout, "padded": PaddedLayout, "one by one": OneByOneLayout}
CASES = [
    *[(kind, name, None) for kind in KINDS for name in ("rows", "padded")],
    *[(kind, "padded", None) for kind in ("parallel", "sparse")],
    ("chunked", "one by one", None),
    ("dense", "rows", 8),
    ("dense", "one by one", 4),
    ("hybrid", "rows", 4),
    ("sliding", "rows", 4),
]


@pytest.mark.parametrize(("kind", "name", "kv_bits"), CASES)
def test_a_row_published_from_a_batch_continues_like_the_uninterrupted_stream(kind, name, kv_bits):
    configuration = {**KINDS, **OTHER_KINDS}[kind] if kv_bits is None else with_wide_heads(kind)
    subject = Subject(kind, build(configuration), kv_bits)
    prompts = [prompt_of(length, seed=length) for length in PROMPT_LENS]
    plain = [
        greedy(subject.model, prefilled(subject, prompt[:-1]), prompt[-1], NUM_STEPS + NUM_AFTER) for prompt in prompts
    ]
    layout = LAYOUTS[name](subject.model, subject.caches())
    stores = [subject.store() for _ in prompts]
    published = {}
    for prompt in prompts:
        layout.join(prefilled(subject, prompt[:-1]))

    for step in range(NUM_STEPS):
        inputs = [([prompt[-1], *tokens])[step] for prompt, (tokens, _) in zip(prompts, plain, strict=True)]
        mx.eval(layout.forward(mx.array(inputs)), layout.pending())
        for row, prompt in enumerate(prompts):
            length = len(prompt) + step
            if length % BLOCK_TOKENS == 0:
                sequence = layout.sequence(row)
                pieces = put_blocks(stores[row], sequence, 0, length, first_id=length * 100)
                snapshot = stores[row].capture(sequence, length)
                mx.eval(snapshot.arrays())
                stores[row].put_snapshot(length, snapshot)
                published[row] = (length, pieces)

    assert set(published) == {0, 1, 2}
    for row, (length, pieces) in published.items():
        tokens, logits = plain[row]
        first = length - len(prompts[row])
        caches = subject.caches()
        store = stores[row]
        store.restore(store.hold(pieces, length), length=length, caches=caches, room_len=ROOM)
        again, again_logits = greedy(subject.model, caches, tokens[first], NUM_AFTER)
        assert again == tokens[first + 1 : first + 1 + NUM_AFTER]
        assert relative_error(again_logits, logits[first + 1 : first + 1 + NUM_AFTER]) <= TOLERANCE


def test_a_row_alone_in_a_padded_layout_is_published_without_a_copy_of_it():
    subject = Subject("dense", build(KINDS["dense"]), None)
    layout = PaddedLayout(subject.model, subject.caches())
    caches = prefilled(subject, prompt_of(64))
    layout.join(caches)

    assert layout.sequence(0) is caches


def test_the_kv_of_a_row_in_the_rows_layout_is_not_copied_to_be_published():
    subject = Subject("hybrid", build(KINDS["hybrid"]), None)
    layout = RowsLayout(subject.model, subject.caches())
    rows = [prefilled(subject, prompt_of(length)) for length in (40, 64)]
    for caches in rows:
        layout.join(list(caches))

    sequence = layout.sequence(1)

    growing = [index for index, cache in enumerate(rows[1]) if hasattr(cache, "keys")]
    assert growing
    assert all(sequence[index] is rows[1][index] for index in growing)
