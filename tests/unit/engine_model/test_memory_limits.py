"""What the machine gives: available memory, control groups, the GPU's limit, and the reserve beside them."""

import sys
from dataclasses import replace

import pytest

from engine.errors import ModelRefused
from engine.memory import Limit, available_bytes, device_limit, host_limit, plan, wired_limit_mb
from engine.memory_text import GIB, MIB
from engine.model.preflight import preflight
from engine.report import plan_model
from engine.startup import CheckedModel, check_model, within_device
from engine.wire import Launch
from tests.unit.engine_model.folders import TINY_CONFIG

LAUNCH = Launch(secret="s", nonce="n", port=1, model="demo")


@pytest.fixture
def checked(demo_home) -> CheckedModel:
    """The demo as if it had 10 GiB of weights, planned for 16 GiB beside 2 GiB."""
    found = replace(preflight(demo_home / "models" / "demo"), weights_bytes=10 * GIB)
    return CheckedModel(found, plan(found, Limit(16 * GIB, 2 * GIB)))


@pytest.fixture
def control_groups(tmp_path):
    """A machine whose process is in /outer/inner; returns the arguments that point to it."""
    (tmp_path / "own").write_text("0::/outer/inner\n")
    (tmp_path / "root" / "outer" / "inner").mkdir(parents=True)
    return {"own_cgroup": tmp_path / "own", "cgroup_root": tmp_path / "root"}


@pytest.fixture
def machine_of_40_gib(monkeypatch):
    monkeypatch.setattr("psutil.virtual_memory", lambda: type("Memory", (), {"available": 40 * GIB}))


def limit_group(folder, *, maximum, current, inactive_file=0):
    (folder / "memory.max").write_text(f"{maximum}\n")
    (folder / "memory.current").write_text(f"{current}\n")
    (folder / "memory.stat").write_text(f"anon 1\ninactive_file {inactive_file}\n")


def test_without_control_groups_available_memory_is_the_machines(machine_of_40_gib, tmp_path):
    assert available_bytes(own_cgroup=tmp_path / "absent") == 40 * GIB


def test_a_control_group_limits_it_further_and_its_page_cache_counts_as_free(control_groups, machine_of_40_gib):
    outer = control_groups["cgroup_root"] / "outer"
    limit_group(outer, maximum=8 * GIB, current=5 * GIB, inactive_file=GIB)
    limit_group(outer / "inner", maximum="max", current=GIB)

    assert available_bytes(**control_groups) == 4 * GIB


def test_the_tightest_of_several_control_groups_counts(control_groups, machine_of_40_gib):
    outer = control_groups["cgroup_root"] / "outer"
    limit_group(outer, maximum=30 * GIB, current=0)
    limit_group(outer / "inner", maximum=5 * GIB, current=GIB)

    assert available_bytes(**control_groups) == 4 * GIB


@pytest.mark.parametrize(
    ("available", "reserve"),
    [(40 * GIB, 4 * GIB), (4 * GIB, GIB), (400 * GIB, 8 * GIB), (512 * MIB, 512 * MIB), (0, 0)],
    ids=["a tenth", "at least 1 GiB", "at most 8 GiB", "all there is", "nothing"],
)
def test_a_tenth_of_available_memory_is_left_to_other_programs(available, reserve):
    assert host_limit(available) == Limit(available - reserve, reserve)


@pytest.mark.parametrize(
    ("working_set", "reserve"),
    [(100 * GIB, 2 * GIB), (20 * GIB, GIB), (MIB, MIB)],
    ids=["a fiftieth", "at least 1 GiB", "all there is"],
)
def test_a_part_of_a_gpus_memory_is_left_to_the_screen(working_set, reserve):
    assert device_limit(working_set) == Limit(working_set - reserve, reserve)


def test_a_mac_whose_gpu_recommends_less_than_is_free_is_planned_for_that(checked):
    smaller = within_device(checked, LAUNCH, 15 * GIB, platform="darwin")

    assert smaller.plan.limit_bytes == 14 * GIB
    assert smaller.plan.reserve_bytes == 2 * GIB


def test_a_mac_whose_gpu_recommends_more_than_is_free_keeps_the_plan(checked):
    assert within_device(checked, LAUNCH, 17 * GIB, platform="darwin") is checked


@pytest.mark.parametrize("free_bytes", [15 * GIB, 80 * GIB])
def test_a_gpu_with_memory_of_its_own_is_planned_for_what_it_has_free(checked, free_bytes):
    planned = within_device(checked, LAUNCH, free_bytes, platform="linux")

    assert Limit(planned.plan.limit_bytes, planned.plan.reserve_bytes) == device_limit(free_bytes)


def test_a_cpu_keeps_the_plan(checked):
    assert within_device(checked, LAUNCH, None) is checked


@pytest.mark.parametrize("platform", ["darwin", "linux"])
def test_a_model_that_the_gpu_cannot_hold_is_refused_with_numbers(checked, platform):
    with pytest.raises(ModelRefused, match="does not fit") as caught:
        within_device(checked, LAUNCH, 2 * GIB, platform=platform)

    assert caught.value.reason == "does_not_fit"


def test_the_engine_refuses_with_the_words_of_the_plan(demo_home, monkeypatch):
    monkeypatch.setattr("engine.startup.available_bytes", lambda: GIB)

    with pytest.raises(ModelRefused) as caught:
        check_model(LAUNCH, demo_home, lambda done, total: None)

    assert caught.value.message == plan(preflight(demo_home / "models" / "demo"), host_limit(GIB)).verdict


def test_a_machine_with_a_gpu_of_its_own_memory_refuses_only_when_that_is_known(demo_home, monkeypatch):
    monkeypatch.setattr("engine.startup.available_bytes", lambda: GIB)
    monkeypatch.setattr("engine.startup.has_gpu_memory", lambda: True)

    checked = check_model(LAUNCH, demo_home, lambda done, total: None)

    assert within_device(checked, LAUNCH, 80 * GIB, platform="linux").plan.fits
    with pytest.raises(ModelRefused):
        within_device(checked, LAUNCH, None, platform="linux")


def test_a_launch_is_planned_with_its_context_budget_and_bits(demo_home, monkeypatch):
    monkeypatch.setattr("engine.startup.available_bytes", lambda: 8 * GIB)
    launch = Launch(secret="s", nonce="n", port=1, model="demo", context=8192, budget_bytes=GIB, kv_bits=8)

    result = check_model(launch, demo_home, lambda done, total: None).plan

    assert (result.maximum_context_tokens, result.pool_bytes, result.kv_bits) == (8192, GIB, 8)


GPT_OSS = {**TINY_CONFIG, "model_type": "gpt_oss", "head_dim": 64, "sliding_window": 128}


def test_keys_and_values_that_cannot_be_quantised_are_refused_by_a_load_and_by_a_plan_alike(make_folder, tmp_path):
    folder = make_folder("sinks", config=GPT_OSS)
    launch = Launch(secret="s", nonce="n", port=1, model=str(folder), kv_bits=4)

    with pytest.raises(ModelRefused, match="sinks can't be kept in 4 bits") as loading:
        check_model(launch, tmp_path, lambda done, total: None)
    with pytest.raises(ModelRefused) as planning:
        plan_model(str(folder), tmp_path, kv_bits=4)

    assert loading.value.message == planning.value.message
    assert loading.value.reason == planning.value.reason == "kv_not_quantisable"
    assert plan_model(str(folder), tmp_path).plan.kv_bits is None


def test_a_plan_offers_only_the_bits_that_a_load_would_take(make_folder, demo_home, tmp_path):
    refusing, taking = plan_model(str(make_folder("sinks", config=GPT_OSS)), tmp_path), plan_model("demo", demo_home)

    assert [choice.kv_bits for choice in refusing.kv_choices] == [None]
    assert [choice.kv_bits for choice in taking.kv_choices] == [None, 8, 4]


def test_the_kernels_limit_is_asked_for_on_macos_only():
    says_65536 = [sys.executable, "-c", "print(65536)"]

    assert wired_limit_mb(platform="darwin", command=says_65536) == 65_536
    assert wired_limit_mb(platform="linux", command=says_65536) is None


@pytest.mark.parametrize("command", [["/absent"], [sys.executable, "-c", "print('no')"], [sys.executable, "-c", "1/0"]])
def test_a_kernel_that_does_not_tell_its_limit_has_none(command):
    assert wired_limit_mb(platform="darwin", command=command) is None
