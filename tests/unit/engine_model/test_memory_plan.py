from dataclasses import replace

import pytest

from engine.errors import ModelRefused
from engine.memory import Coefficients, Limit, plan
from engine.memory_text import GIB, KIB, MIB, bytes_of, size_text
from engine.model.layers import Layer
from engine.model.preflight import Preflight, preflight

GROWING = Layer("growing", bytes_per_token=4 * KIB, group_size=64, element_bytes=2)
FIXED = Layer("fixed", state_bytes=50 * MIB)
TOKEN = 16 * KIB
STATE = 200 * MIB
BIG = Limit(64 * GIB, 8 * GIB)


@pytest.fixture
def model(tmp_path) -> Preflight:
    """10 GiB of weights; 16 KiB a token and 200 MiB a sequence."""
    return Preflight(
        path=tmp_path,
        name="org/big",
        architecture="qwen3_next",
        quantization="4-bit",
        native_context_tokens=262_144,
        weights_bytes=10 * GIB,
        num_tensors=100,
        tensor_types=("BF16", "U32"),
        activation_bytes=2,
        hidden_size=2048,
        vocabulary_size=150_000,
        layers=(GROWING, FIXED) * 4,
        generation_config={},
        has_chat_template=True,
        has_vision=False,
        is_demo=False,
    )


def test_the_coefficients_are_sums_over_the_layers(model):
    result = plan(model, BIG)

    assert result.weights_bytes == 10 * GIB
    assert result.kv_bytes_per_token == TOKEN
    assert result.state_bytes_per_sequence == STATE
    assert result.snapshots_per_session == 6
    assert result.reserve_bytes == 8 * GIB


def test_a_model_without_fixed_layers_has_no_snapshots(model):
    assert plan(replace(model, layers=(GROWING,)), BIG).snapshots_per_session == 0


def test_the_default_pool_keeps_six_sessions_warm_and_one_of_the_whole_context_running(model):
    result = plan(model, BIG)

    warm_bytes = 23_000 * TOKEN + 6 * STATE
    assert result.pool_bytes == 6 * warm_bytes + 262_144 * TOKEN + 2 * STATE
    assert result.warm_sessions >= 6
    assert result.longest_context_tokens == 262_144


def test_where_four_usual_sessions_take_more_than_the_whole_context_there_is_room_for_the_four(model):
    result = plan(model, BIG, context=32_768)

    assert result.pool_bytes == 6 * (23_000 * TOKEN + 6 * STATE) + 4 * (23_000 * TOKEN + 2 * STATE)
    assert result.warm_sessions == 6


def test_a_session_of_the_whole_context_finds_its_own_past_in_the_cache(model):
    dense = replace(model, layers=(GROWING,) * 4)

    result = plan(dense, BIG)

    assert result.pool_bytes == 2 * 262_144 * TOKEN


def test_a_context_below_the_usual_session_sizes_the_sessions_too(model):
    result = plan(model, BIG, context=4096)

    assert result.warm_session_tokens == 4096
    assert result.pool_bytes == 6 * (4096 * TOKEN + 6 * STATE) + 4 * (4096 * TOKEN + 2 * STATE)


def test_where_memory_is_short_the_pool_is_what_the_limit_leaves(model):
    result = plan(model, Limit(16 * GIB))

    assert result.fits
    assert result.weights_bytes + result.fixed_bytes + result.pool_bytes == result.limit_bytes


@pytest.mark.parametrize(
    ("pool_bytes", "sessions"),
    [(29, 0), (30, 1), (59, 1), (60, 2), (120, 4), (139, 4), (140, 5), (160, 6)],
)
def test_a_session_is_warm_when_as_many_as_may_can_run_beside_it(pool_bytes, sessions):
    """A session takes 20 bytes in the cache, and 10 more while it runs; four run at most."""
    coefficients = Coefficients(kv_bytes_per_token=0, state_bytes_per_sequence=5, snapshots_per_session=4)

    assert coefficients.warm_sessions(pool_bytes, 10) == sessions


def test_without_a_size_nothing_can_be_said_of_warm_sessions():
    coefficients = Coefficients(kv_bytes_per_token=0, state_bytes_per_sequence=0, snapshots_per_session=0)

    assert coefficients.warm_sessions(GIB, 23_000) == 0


def test_the_verdict_says_what_runs_at_once_and_what_stays_warm(model):
    result = plan(model, BIG)

    assert result.verdict == (
        "org/big fits, with 13.5 GiB for contexts: 3 sequences of the full 262,144 tokens at once; "
        f"{result.warm_sessions} sessions of 23,000 tokens stay warm."
    )


@pytest.mark.parametrize(
    ("budget", "words"),
    [("1.5 GiB", "no session of 23,000 tokens stays warm"), ("2.5 GiB", "1 session of 23,000 tokens stays warm")],
)
def test_the_verdict_counts_warm_sessions_as_people_do(model, budget, words):
    assert words in plan(model, BIG, budget_bytes=bytes_of(budget)).verdict


def test_a_pool_that_cannot_hold_the_native_context_says_what_it_holds_and_cuts_nothing(model):
    result = plan(model, Limit(13 * GIB))

    assert result.fits
    assert result.maximum_context_tokens == 262_144
    held = (result.pool_bytes - 2 * STATE) // TOKEN
    assert result.longest_context_tokens == held
    assert f"one sequence of up to {held:,} tokens; the full 262,144 would take" in result.verdict


def test_a_smaller_context_is_planned_as_asked(model):
    result = plan(model, BIG, context=32_768)

    assert result.maximum_context_tokens == 32_768
    assert "of the full 32,768 tokens" in result.verdict


def test_no_more_sequences_are_promised_at_once_than_may_run(model):
    result = plan(model, BIG, context=4096, budget_bytes=20 * GIB)

    assert "4 sequences of the full 4,096 tokens at once" in result.verdict


@pytest.mark.parametrize("context", [262_145, 0, -1])
def test_a_context_that_the_model_was_not_made_for_is_refused(model, context):
    with pytest.raises(ModelRefused, match="org/big was made for up to 262,144") as caught:
        plan(model, BIG, context=context)

    assert caught.value.reason == "context_above_native"


def test_weights_above_the_limit_do_not_fit_and_the_verdict_says_by_how_much(model):
    result = plan(model, Limit(8 * GIB))

    assert not result.fits
    assert result.pool_bytes == 0
    lacking_bytes = 10 * GIB + result.fixed_bytes + 2 * STATE + 4096 * TOKEN - 8 * GIB
    assert f"{lacking_bytes / GIB:,.1f} GiB more than the 8.0 GiB there are" in result.verdict
    assert "a smaller or lower-bit version would fit" in result.verdict


def test_there_is_one_limit_at_which_it_begins_to_fit(model):
    smallest = plan(model, Limit(0)).fixed_bytes + 10 * GIB + 2 * STATE + 4096 * TOKEN

    assert plan(model, Limit(smallest)).fits
    assert not plan(model, Limit(smallest - 1)).fits


def test_a_budget_is_the_size_of_the_pool(model):
    result = plan(model, BIG, budget_bytes=6 * GIB)

    assert result.fits
    assert result.pool_bytes == 6 * GIB


def test_a_budget_above_what_is_left_does_not_fit_and_the_verdict_names_one_that_does(model):
    left_bytes = plan(model, Limit(16 * GIB)).pool_bytes

    result = plan(model, Limit(16 * GIB), budget_bytes=left_bytes + 1)

    assert not result.fits
    assert f"a budget of {left_bytes / GIB:,.1f} GiB or less fits" in result.verdict
    assert plan(model, Limit(16 * GIB), budget_bytes=left_bytes).fits


def test_a_budget_too_small_for_a_short_sequence_does_not_fit(model):
    result = plan(model, BIG, budget_bytes=100 * MIB)

    assert not result.fits
    assert "a budget of 100 MiB cannot hold one sequence of 4,096 tokens, which takes 464 MiB" in result.verdict


@pytest.mark.parametrize(("kv_bits", "bytes_per_token"), [(8, 4 * (2048 + 128)), (4, 4 * (1024 + 128))])
def test_quantised_keys_and_values_take_their_codes_and_a_scale_and_bias_for_each_group(
    model, kv_bits, bytes_per_token
):
    result = plan(model, BIG, kv_bits=kv_bits)

    assert result.kv_bytes_per_token == bytes_per_token
    assert result.kv_bits == kv_bits
    assert result.state_bytes_per_sequence == STATE


def test_keys_and_values_that_cannot_be_quantised_are_refused_with_the_reason(model):
    odd = replace(model, layers=(replace(GROWING, group_size=None, obstacle="its heads are odd"),))

    with pytest.raises(ModelRefused, match="can't be kept in 8 bits: its heads are odd; load it without") as caught:
        plan(odd, BIG, kv_bits=8)

    assert caught.value.reason == "kv_not_quantisable"
    assert plan(odd, BIG).fits


def test_one_layer_that_can_be_quantised_is_enough(model):
    mixed = replace(model, layers=(replace(GROWING, group_size=None), GROWING))

    result = plan(mixed, BIG, kv_bits=8)

    assert result.kv_bits == 8
    assert result.kv_bytes_per_token == 4096 + 2048 + 128


@pytest.mark.parametrize(("window", "beyond"), [(128, 1920), (1024, 1024), (2048, 0), (4096, 0)])
def test_what_a_slice_leaves_in_windows_beyond_two_states_is_planned_as_runtime_for_each_stream(model, window, beyond):
    layer = Layer("window", state_bytes=window * KIB, window_bytes_per_token=KIB)

    windowed = plan(replace(model, layers=(GROWING, layer)), BIG)

    assert windowed.fixed_bytes == plan(model, BIG).fixed_bytes + 4 * beyond * KIB


@pytest.mark.parametrize("layers", [(), (Layer("unknown", bytes_per_token=4096),)], ids=["nothing", "by-heads"])
def test_layers_that_are_not_known_are_admitted_in_the_verdict(model, layers):
    result = plan(replace(model, layers=layers), BIG)

    assert result.fits
    assert "Splash does not know the layers of this architecture" in result.verdict


def test_a_model_of_which_no_layer_is_known_gets_all_that_is_left(model):
    result = plan(replace(model, layers=()), BIG)

    assert result.pool_bytes == BIG.limit_bytes - result.weights_bytes - result.fixed_bytes


def test_the_demo_fits_into_a_small_machine(demo_home):
    result = plan(preflight(demo_home / "models" / "demo"), Limit(2 * GIB))

    assert result.fits
    assert "2 sequences of the full 262,144 tokens" in result.verdict


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("12884901888", 12 * GIB),
        ("12GiB", 12 * GIB),
        ("12 gb", 12 * GIB),
        ("1.5g", 3 * GIB // 2),
        ("800MiB", 800 * MIB),
        ("64k", 64 * KIB),
        (" 2T ", 2048 * GIB),
    ],
)
def test_a_size_is_read_as_people_write_it(text, num_bytes):
    assert bytes_of(text) == num_bytes


@pytest.mark.parametrize("text", ["", "GiB", "-1", "1e9", "12 apples", "1.5.2g", "nan"])
def test_what_is_no_size_is_said_so(text):
    with pytest.raises(ValueError, match="is not a size"):
        bytes_of(text)


@pytest.mark.parametrize("text", ["12.0 GiB", "800 MiB", "64 KiB"])
def test_a_size_that_is_shown_can_be_typed(text):
    assert size_text(bytes_of(text)) == text
