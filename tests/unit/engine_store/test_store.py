"""What the store holds: exactly what it says, nothing larger kept alive, and one layer at a time on the way back."""

import gc

import mlx.core as mx
import pytest
from mlx_lm.models.cache import CacheList, KVCache, RotatingKVCache

from engine.layout import QuantizedRow
from engine.prefix.index import Piece
from engine.prefix.store import CacheUnsupported, PrefixStore
from engine.rows import row_of_state
from tests.unit.engine_store.conftest import prefilled, prompt_of, put_blocks

HEADS, WIDTH = 4, 64
MIB = 1 << 20


def growing_cache(num_tokens, *, room_len):
    cache = KVCache()
    cache.step = room_len
    cache.update_and_fetch(*[mx.random.normal((1, HEADS, num_tokens, WIDTH)) for _ in range(2)])
    mx.eval(cache.keys, cache.values)
    return cache


def active_bytes():
    gc.collect()
    mx.synchronize()
    return mx.get_active_memory()


def test_bytes_are_known_before_anything_is_copied(subject):
    store = subject.store()
    caches = prefilled(subject, prompt_of(96))
    extent_bytes = store.extent_bytes(caches, 64)
    snapshot_bytes = store.capture(caches, 0).nbytes

    put_blocks(store, caches, 32, 96)
    held_by_extent = store.nbytes
    store.put_snapshot(0, store.capture(caches, 96))

    assert held_by_extent == extent_bytes > 0
    assert store.nbytes - held_by_extent == snapshot_bytes
    assert (snapshot_bytes > 0) == store.needs_snapshots


def test_when_all_is_dropped_nothing_is_held(dense):
    store = dense.store()
    caches = prefilled(dense, prompt_of(96))
    pieces = put_blocks(store, caches, 0, 96)
    store.put_snapshot(3, store.capture(caches, 96))

    store.drop([piece.extent_id for piece in pieces], [3])

    assert store.nbytes == 0
    with pytest.raises(KeyError):
        store.hold(pieces, None)


def test_an_extent_keeps_no_row_alive():
    before = active_bytes()
    cache = growing_cache(4096, room_len=8192)
    store = PrefixStore([cache])

    store.put_extent(0, [cache], 1024, 1280)
    with_row = active_bytes() - before
    del cache
    without_row = active_bytes() - before

    assert with_row > 16 * MIB
    assert store.nbytes == 2 * HEADS * 256 * WIDTH * 4
    assert without_row <= store.nbytes * 1.1


def test_an_extent_of_a_single_head_keeps_no_row_alive():
    before = active_bytes()
    cache = KVCache()
    cache.update_and_fetch(mx.ones((1, 1, 65536, 16)), mx.ones((1, 1, 65536, 16)))
    store = PrefixStore([cache])

    store.put_extent(0, [cache], 0, 256)
    mx.synchronize()
    del cache

    assert active_bytes() - before <= store.nbytes + 16 * 1024


def test_a_snapshot_of_a_row_keeps_no_batch_alive():
    from mlx_lm.models.cache import ArraysCache

    before = active_bytes()
    batch = ArraysCache(size=1)
    batch[0] = mx.random.normal((8, 512, 512))
    mx.eval(batch[0])
    store = PrefixStore([ArraysCache(size=1)])

    snapshot = store.capture([row_of_state(batch, 3)], 64)
    mx.eval(snapshot.arrays())
    del batch

    assert snapshot.nbytes == MIB
    assert active_bytes() - before <= snapshot.nbytes * 1.1


def test_a_snapshot_of_a_window_is_no_larger_than_the_window():
    window = RotatingKVCache(max_size=64)
    window.update_and_fetch(mx.ones((1, HEADS, 1024, WIDTH)), mx.ones((1, HEADS, 1024, WIDTH)))
    store = PrefixStore([window])

    assert store.capture([window], 0).nbytes == 2 * HEADS * 64 * WIDTH * 4
    assert store.extent_bytes([window], 256) == 0


def test_the_bytes_of_a_snapshot_are_found_without_computing_anything():
    window = RotatingKVCache(max_size=64)
    window.update_and_fetch(mx.ones((1, HEADS, 1024, WIDTH)), mx.ones((1, HEADS, 1024, WIDTH)))
    mx.eval(window.keys, window.values)
    store = PrefixStore([window])
    before = active_bytes()
    mx.reset_peak_memory()

    num_bytes = store.capture([window], 0).nbytes

    assert num_bytes == 2 * HEADS * 64 * WIDTH * 4
    assert mx.get_peak_memory() <= before


def test_restoring_what_was_dropped_needs_room_for_two_layers_more():
    num_layers, length = 8, 2048
    layer_bytes = 2 * HEADS * length * WIDTH * 4
    start = active_bytes()
    caches = [growing_cache(length, room_len=length) for _ in range(num_layers)]
    store = PrefixStore(caches)
    pieces = put_blocks(store, caches, 0, length)
    mx.synchronize()
    del caches
    held = store.hold(pieces, None)
    store.drop([piece.extent_id for piece in pieces], [])
    assert active_bytes() - start >= num_layers * layer_bytes
    mx.reset_peak_memory()

    fresh = [KVCache() for _ in range(num_layers)]
    store.restore(held, length=length, caches=fresh, room_len=length + 64)

    assert mx.get_peak_memory() - start <= (num_layers + 2) * layer_bytes * 1.1
    assert active_bytes() - start <= num_layers * layer_bytes * 1.1


def test_moving_a_row_into_the_store_needs_room_for_one_layer_more_and_keeps_what_copying_keeps():
    num_layers, length = 8, 2048
    layer_bytes = 2 * HEADS * length * WIDTH * 4
    start = active_bytes()
    caches = [growing_cache(length, room_len=length) for _ in range(num_layers)]
    kept = [mx.array(cache.keys[:, :, 256:512]) for cache in caches]
    mx.eval(kept)
    store = PrefixStore(caches)
    mx.reset_peak_memory()

    store.move_extents({number: (number * 256, (number + 1) * 256) for number in range(length // 256)}, caches)

    assert mx.get_peak_memory() - start <= (num_layers + 1) * layer_bytes * 1.1 + sum(each.nbytes for each in kept)
    assert all(cache.keys is None for cache in caches)
    assert store.nbytes == num_layers * layer_bytes
    fresh = [KVCache() for _ in range(num_layers)]
    store.restore(store.hold([Piece(1, 0, 8)], None), length=256, caches=fresh, room_len=256)
    assert all(mx.array_equal(cache.keys, keys) for cache, keys in zip(fresh, kept, strict=True))


def test_a_restored_row_leaves_the_store_as_large_as_it_was():
    cache = growing_cache(512, room_len=512)
    store = PrefixStore([cache])
    pieces = put_blocks(store, [cache], 0, 512)
    held_before = store.nbytes
    fresh = KVCache()

    store.restore(store.hold(pieces, None), length=512, caches=[fresh], room_len=600)

    assert fresh.keys.shape == (1, HEADS, 600, WIDTH)
    assert mx.array_equal(fresh.keys_and_values()[0], cache.keys)
    assert store.nbytes == held_before


def test_a_long_extent_can_be_cut_out_of_a_row_that_goes_on_growing():
    cache = growing_cache(64, room_len=128)
    store = PrefixStore([cache])
    expected = cache.keys[:, :, 32:64].tolist()

    store.put_extent(7, [cache], 32, 64)
    cache.update_and_fetch(mx.zeros((1, HEADS, 32, WIDTH)), mx.zeros((1, HEADS, 32, WIDTH)))
    cache.keys[:, :, :64] = 0
    fresh = KVCache()
    store.restore(store.hold([Piece(7, 0, 1)], None), length=32, caches=[fresh], room_len=32)

    assert fresh.keys.tolist() == expected


@pytest.mark.parametrize(("bits", "width", "group_size"), [(8, 64, 64), (4, 96, 32), (8, 32, 32)])
def test_quantised_layers_are_kept_as_they_are(bits, width, group_size):
    cache = QuantizedRow(bits)
    cache.update_and_fetch(mx.random.normal((1, 2, 64, width)), mx.random.normal((1, 2, 64, width)))
    store = PrefixStore([cache])
    pieces = put_blocks(store, [cache], 0, 64)
    fresh = QuantizedRow(bits)

    store.restore(store.hold(pieces, None), length=64, caches=[fresh], room_len=100)

    assert fresh.group_size == cache.group_size == group_size
    for restored, original in zip(fresh.keys + fresh.values, cache.keys + cache.values, strict=True):
        assert restored.shape[2] == 100
        assert mx.array_equal(restored[:, :, :64], original[:, :, :64])
    assert store.nbytes == 2 * 2 * 64 * (width * bits // 8 + 2 * width // group_size * 4)


def test_parts_of_one_layer_are_taken_apart():
    layer = CacheList(growing_cache(64, room_len=64), CacheList(RotatingKVCache(max_size=8)))
    layer[1][0].update_and_fetch(mx.ones((1, 1, 64, 8)), mx.ones((1, 1, 64, 8)))
    store = PrefixStore([layer])

    assert store.needs_snapshots
    assert store.extent_bytes([layer], 32) == 2 * HEADS * 32 * WIDTH * 4
    assert store.capture([layer], 0).nbytes == 2 * 8 * 8 * 4


def test_a_cache_whose_state_cannot_be_set_is_refused():
    from mlx_lm.models.deepseek_v41 import LayerCache

    with pytest.raises(CacheUnsupported, match="LayerCache"):
        PrefixStore([KVCache(), LayerCache(8)])
