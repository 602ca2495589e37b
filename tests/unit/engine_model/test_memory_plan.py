from dataclasses import replace

import pytest

from engine.errors import ModelRefused
from engine.memory import GIB, MIB, device_limit_bytes, plan
from engine.model.layers import Layer
from engine.model.preflight import Preflight, preflight
from engine.startup import CheckedModel, within_device
from engine.wire import Launch

GROWING = Layer("growing", bytes_per_token=4096)
FIXED = Layer("fixed", state_bytes=50 * MIB)
LAUNCH = Launch(secret="s", nonce="n", port=1, model="m")


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
    result = plan(model, limit_bytes=64 * GIB)

    assert result.weights_bytes == 10 * GIB
    assert result.kv_bytes_per_token == 16 * 1024
    assert result.state_bytes_per_sequence == 200 * MIB


def test_the_pool_is_what_the_limit_leaves(model):
    result = plan(model, limit_bytes=64 * GIB)

    assert result.fits
    assert result.weights_bytes + result.fixed_bytes + result.pool_bytes == result.limit_bytes
    assert result.maximum_context_tokens == 262_144
    assert "12 sequences of the full 262,144 tokens at once" in result.verdict


def test_a_pool_that_cannot_hold_the_native_context_says_what_it_holds_and_cuts_nothing(model):
    result = plan(model, limit_bytes=13 * GIB)

    assert result.fits
    assert result.maximum_context_tokens == 262_144
    held = (result.pool_bytes - 200 * MIB) // (16 * 1024)
    assert f"one sequence of up to {held:,} tokens; the full 262,144 would take" in result.verdict


def test_a_smaller_context_is_planned_as_asked(model):
    result = plan(model, limit_bytes=64 * GIB, context=32_768)

    assert result.maximum_context_tokens == 32_768
    assert "of the full 32,768 tokens" in result.verdict


@pytest.mark.parametrize("context", [262_145, 0, -1])
def test_a_context_that_the_model_was_not_made_for_is_refused(model, context):
    with pytest.raises(ModelRefused, match="org/big was made for up to 262,144") as caught:
        plan(model, limit_bytes=64 * GIB, context=context)

    assert caught.value.reason == "context_above_native"


def test_weights_above_the_limit_do_not_fit_and_the_verdict_says_by_how_much(model):
    result = plan(model, limit_bytes=8 * GIB)

    assert not result.fits
    assert result.pool_bytes == 0
    lacking_bytes = 10 * GIB + result.fixed_bytes + 200 * MIB + 4096 * 16 * 1024 - 8 * GIB
    assert f"{lacking_bytes / GIB:,.1f} GiB more than the 8.0 GiB there are" in result.verdict
    assert "a smaller or lower-bit version would fit" in result.verdict


def test_there_is_one_limit_at_which_it_begins_to_fit(model):
    smallest = plan(model, limit_bytes=0).fixed_bytes + 10 * GIB + 200 * MIB + 4096 * 16 * 1024

    assert plan(model, limit_bytes=smallest).fits
    assert not plan(model, limit_bytes=smallest - 1).fits


def test_a_budget_is_the_size_of_the_pool(model):
    result = plan(model, limit_bytes=64 * GIB, budget_bytes=6 * GIB)

    assert result.fits
    assert result.pool_bytes == 6 * GIB


def test_a_budget_above_what_is_left_does_not_fit_and_the_verdict_names_one_that_does(model):
    left_bytes = plan(model, limit_bytes=16 * GIB).pool_bytes

    result = plan(model, limit_bytes=16 * GIB, budget_bytes=left_bytes + 1)

    assert not result.fits
    assert f"a budget of {left_bytes / GIB:,.1f} GiB or less fits" in result.verdict
    assert plan(model, limit_bytes=16 * GIB, budget_bytes=left_bytes).fits


def test_a_budget_too_small_for_a_short_sequence_does_not_fit(model):
    result = plan(model, limit_bytes=64 * GIB, budget_bytes=100 * MIB)

    assert not result.fits
    assert "a budget of 100 MiB cannot hold one sequence of 4,096 tokens, which takes 264 MiB" in result.verdict


@pytest.mark.parametrize("layers", [(), (Layer("unknown", bytes_per_token=4096),)])
def test_layers_that_are_not_known_are_admitted_in_the_verdict(model, layers):
    result = plan(replace(model, layers=layers), limit_bytes=64 * GIB)

    assert result.fits
    assert "Splash does not know the layers of this architecture" in result.verdict


def test_the_demo_fits_into_a_small_machine(demo_home):
    result = plan(preflight(demo_home / "models" / "demo"), limit_bytes=2 * GIB)

    assert result.fits
    assert "2 sequences of the full 262,144 tokens" in result.verdict


def test_a_gpu_that_recommends_less_than_is_free_gets_a_smaller_pool(model):
    checked = CheckedModel(model, plan(model, limit_bytes=16 * GIB))

    smaller = within_device(checked, LAUNCH, 15 * GIB)

    assert smaller.plan.limit_bytes == 15 * GIB
    assert smaller.plan.pool_bytes == checked.plan.pool_bytes - GIB


@pytest.mark.parametrize("working_set_bytes", [None, 16 * GIB, 17 * GIB])
def test_a_device_that_allows_the_plan_leaves_it_as_it_is(model, working_set_bytes):
    checked = CheckedModel(model, plan(model, limit_bytes=16 * GIB))

    assert within_device(checked, LAUNCH, working_set_bytes) is checked


def test_a_model_that_the_gpu_cannot_hold_is_refused_with_numbers(model):
    checked = CheckedModel(model, plan(model, limit_bytes=16 * GIB))

    with pytest.raises(ModelRefused, match="does not fit"):
        within_device(checked, LAUNCH, MIB)


@pytest.fixture
def control_groups(tmp_path):
    """A machine whose process is in /outer/inner; returns the arguments that point to it."""
    (tmp_path / "own").write_text("0::/outer/inner\n")
    (tmp_path / "root" / "outer" / "inner").mkdir(parents=True)
    return {"own_cgroup": tmp_path / "own", "cgroup_root": tmp_path / "root"}


def limit_group(folder, *, maximum, current, inactive_file=0):
    (folder / "memory.max").write_text(f"{maximum}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive_file}\n")


def test_the_limit_is_available_memory_less_a_reserve(tmp_path, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 40 * GIB}))

    assert device_limit_bytes(own_cgroup=tmp_path / "absent") == 36 * GIB


@pytest.mark.parametrize(("available", "limit"), [(4 * GIB, 3 * GIB), (512 * MIB, 0), (400 * GIB, 392 * GIB)])
def test_the_reserve_is_never_below_one_nor_above_eight_gibibytes(tmp_path, monkeypatch, available, limit):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": available}))

    assert device_limit_bytes(own_cgroup=tmp_path / "absent") == limit


def test_a_control_group_limits_it_further_and_its_page_cache_counts_as_free(control_groups, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 40 * GIB}))
    outer = control_groups["cgroup_root"] / "outer"
    limit_group(outer, maximum=8 * GIB, current=5 * GIB, inactive_file=GIB)
    limit_group(outer / "inner", maximum="max", current=GIB)

    assert device_limit_bytes(**control_groups) == 3 * GIB


def test_the_tightest_of_several_control_groups_counts(control_groups, monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 40 * GIB}))
    outer = control_groups["cgroup_root"] / "outer"
    limit_group(outer, maximum=30 * GIB, current=0)
    limit_group(outer / "inner", maximum=5 * GIB, current=GIB)

    assert device_limit_bytes(**control_groups) == 3 * GIB
