"""Folders that somebody made to break the list of models: each is refused, alone, in one sentence."""

import copy
import json
import os
import random
import struct
from contextlib import suppress

import pytest

from engine.errors import Refused
from engine.memory import Limit, plan
from engine.memory_text import GIB
from engine.model.architectures import module_name
from engine.model.preflight import preflight
from engine.report import list_models
from tests.unit.engine_model.folders import TINY_CONFIG, TINY_TOKENIZER, write_safetensors

SMALL = Limit(4 * GIB, GIB)
DEEP = 150_000


@pytest.fixture(autouse=True)
def no_other_models(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))


def config(**more):
    return json.dumps({**TINY_CONFIG, **more})


def with_header(folder, header: bytes):
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)


def pipe(path):
    path.unlink(missing_ok=True)
    os.mkfifo(path)


HOSTILE = {
    "a config nested deep": lambda folder: (folder / "config.json").write_text("[" * DEEP + "]" * DEEP),
    "a config with a deep part": lambda folder: (folder / "config.json").write_text(
        config()[:-1] + ', "a": ' + '{"a":' * DEEP + "1" + "}" * DEEP + "}"
    ),
    "an index nested deep": lambda folder: (folder / "model.safetensors.index.json").write_text("[" * DEEP),
    "a header nested deep": lambda folder: with_header(folder, b'{"a":' * DEEP + b"1" + b"}" * DEEP),
    "a tokenizer nested deep": lambda folder: (folder / "tokenizer.json").write_text('{"model":{"vocab":' + "[" * DEEP),
    "settings of a tokenizer nested deep": lambda folder: (folder / "tokenizer_config.json").write_text("[" * DEEP),
    "a header that is a list": lambda folder: with_header(folder, b"[]"),
    "a header without an end": lambda folder: with_header(
        folder, b'{"a":{"dtype":"F32","shape":[1e999],"data_offsets":[0,1]}}'
    ),
    "a shape of many lengths": lambda folder: with_header(
        folder,
        b'{"a":{"dtype":"F32","shape":[' + b"9," * 500_000 + b'9],"data_offsets":[0,1]}}',
    ),
    "weights that are a pipe": lambda folder: pipe(folder / "model.safetensors"),
    "an index that is a pipe": lambda folder: (
        pipe(folder / "model.safetensors.index.json"),
        (folder / "model.safetensors").unlink(),
    ),
    "a config that is a pipe": lambda folder: pipe(folder / "config.json"),
    "a config that is not UTF-8": lambda folder: (folder / "config.json").write_bytes(b'{"model_type": "\xff"}'),
    "a type that UTF-8 can't write": lambda folder: (folder / "config.json").write_text(r'{"model_type": "\ud800"}'),
    "a type of a megabyte": lambda folder: (folder / "config.json").write_text(config(model_type="a" * 1_000_000)),
    "a billion layers": lambda folder: (folder / "config.json").write_text(config(num_hidden_layers=10**9)),
    "layers of no machine": lambda folder: (folder / "config.json").write_text(
        config(num_hidden_layers=9_999, num_attention_heads=2**30, num_key_value_heads=2**30, head_dim=2**30)
    ),
    "a context of 4,001 digits": lambda folder: (folder / "config.json").write_text(
        config(max_position_embeddings=None)[:-1] + ', "max_position_embeddings": 1' + "0" * 4_000 + "}"
    ),
    "a context of 5,001 digits": lambda folder: (folder / "config.json").write_text(
        config(max_position_embeddings=None)[:-1] + ', "max_position_embeddings": 1' + "0" * 5_000 + "}"
    ),
    "a text_config that is a list": lambda folder: (folder / "config.json").write_text(config(text_config=[1])),
}

ODD_BUT_USABLE = {
    "architectures that are no names": {"architectures": [[1], {}]},
    "architectures that are a number": {"architectures": 7},
    "bits that are a list": {"quantization": {"bits": [1], "a": {"bits": {}}}},
    "a factor that is no number": {"rope_scaling": {"type": "yarn", "factor": float("nan")}},
    "a factor without an end": {"rope_scaling": {"type": "yarn", "factor": float("inf")}},
    "a factor beyond all contexts": {"rope_scaling": {"type": "yarn", "factor": 1e300}},
    "no text_config": {"text_config": None},
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("spoil", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_folder_that_was_made_to_break_the_list_is_refused_alone_in_one_sentence(make_folder, demo_home, spoil):
    spoil(make_folder("hostile"))
    folder = make_folder("harmless").parent

    report = list_models(demo_home, [folder], limit=SMALL)

    is_model = (folder / "hostile" / "config.json").is_file()
    assert [entry.is_demo for entry in report.models] == [True, False]
    assert len(report.refused) == is_model
    assert all("could not be judged" not in each.message and len(each.message) <= 1_000 for each in report.refused)
    assert report.as_json()


@pytest.mark.timeout(30)
@pytest.mark.parametrize("odd", ODD_BUT_USABLE.values(), ids=ODD_BUT_USABLE.keys())
def test_what_nobody_can_mean_counts_as_missing(make_folder, odd):
    found = preflight(make_folder(config={**TINY_CONFIG, **odd}))

    assert found.native_context_tokens == TINY_CONFIG["max_position_embeddings"]


def test_a_folder_whose_name_is_not_utf8_is_told_of(make_folder, demo_home, tmp_path):
    folder = make_folder("harmless").parent
    odd = folder / os.fsdecode(b"odd-\xff")
    odd.mkdir()
    (odd / "config.json").write_text("{}")

    report = list_models(demo_home, [folder], limit=SMALL)

    assert len(report.models) == 2
    assert "odd-?" in report.as_json()


def test_a_fault_of_ours_with_one_folder_leaves_the_others_in_the_list(make_folder, demo_home, monkeypatch):
    folder = make_folder("harmless").parent

    def broken(path):
        if path.name == "harmless":
            raise ZeroDivisionError
        return preflight(path)

    monkeypatch.setattr("engine.report.preflight", broken)
    report = list_models(demo_home, [folder], limit=SMALL)

    assert len(report.models) == 1
    assert [each.message for each in report.refused] == [
        f"{folder / 'harmless'} could not be judged (ZeroDivisionError)."
    ]


def test_a_snapshot_whose_name_cannot_be_read_is_passed_over(demo_home, tmp_path):
    references = tmp_path / "hub" / "models--org--name" / "refs"
    references.mkdir(parents=True)
    os.mkfifo(references / "main")
    outside = tmp_path / "hub" / "models--org--other" / "refs"
    outside.mkdir(parents=True)
    (outside / "main").write_bytes(b"../../\xff")

    assert len(list_models(demo_home, limit=SMALL).models) == 1


VALUES = (
    None, True, False, 0, -1, 1, 2, 7, 2**31, 2**63, 10**30, 10**400, 0.5, -1.5, 1e300, float("nan"), float("inf"),
    "", "a", "\ud800", "\x00", "x" * 300, "llama", "yarn", [], [1], [[1], {}], ["full_attention"] * 3, {}, {"a": 1},
    {"bits": [1]}, {"type": "yarn", "factor": 1e300}, {"rope_type": "yarn", "factor": float("nan")},
)  # fmt: skip

FAMILIES = (
    "llama",
    "qwen3_5",
    "gemma3_text",
    "gpt_oss",
    "deepseek_v3",
    "deepseek_v2",
    "qwen3_next",
    "mamba2",
    "gemma3",
)

FIELDS = (
    *TINY_CONFIG, "text_config", "architectures", "quantization", "quantization_config", "rope_scaling", "head_dim",
    "rope_parameters", "layer_types", "sliding_window", "sliding_window_pattern", "full_attention_interval",
    "n_positions", "linear_num_key_heads",
    "linear_key_head_dim", "kv_lora_rank", "qk_rope_head_dim", "qk_nope_head_dim",
    "v_head_dim",
    "linear_conv_kernel_dim", "linear_num_value_heads", "linear_value_head_dim", "model_file", "vision_config",
)  # fmt: skip


def mutated(chance, whole):
    """One to three places of a JSON value, somewhere in it, are something else."""
    whole = copy.deepcopy(whole)
    for _ in range(chance.randint(1, 3)):
        part = whole
        while True:
            keys = list(part) if isinstance(part, dict) else list(range(len(part)))
            key = chance.choice([*keys, chance.choice(FIELDS)] if isinstance(part, dict) else keys or [0])
            inner = part[key] if isinstance(key, str) and key in part else None
            if not isinstance(inner, dict | list) or not inner or chance.random() < 0.3:
                break
            part = inner
        if isinstance(part, dict) or part:
            part[key] = copy.deepcopy(chance.choice(VALUES))
    return whole


def written(chance, value) -> bytes:
    """Now and then cut, or with a byte that is another."""
    content = bytearray(json.dumps(value).encode())
    if chance.random() < 0.1:
        del content[chance.randrange(len(content)) :]
    elif chance.random() < 0.2:
        content[chance.randrange(len(content))] = chance.randrange(256)
    return bytes(content)


def is_planned(folder) -> bool:
    """False: it is refused, and the refusal can be told. Heads of the tiny model are too small for 8 bits."""
    try:
        found = preflight(folder)
        plan(found, SMALL)
    except Refused as refused:
        refused.message.encode()
        return False
    with suppress(Refused):
        plan(found, SMALL, kv_bits=8)
    return True


@pytest.mark.timeout(120)
@pytest.mark.parametrize("family", FAMILIES)
def test_whatever_a_config_says_it_is_planned_or_refused(make_folder, family):
    chance = random.Random(family)
    folder = make_folder()
    nested = {**TINY_CONFIG, "model_type": family}
    seen = set()
    for _ in range(150):
        base = (
            nested if chance.random() < 0.6 else {"model_type": family, "text_config": nested, "architectures": ["A"]}
        )
        (folder / "config.json").write_bytes(written(chance, mutated(chance, base)))
        seen.add(is_planned(folder))

    assert seen == {True, False}


@pytest.mark.timeout(120)
def test_whatever_a_header_or_a_small_file_says_it_is_planned_or_refused(make_folder):
    chance = random.Random(5)
    folder = make_folder()
    tensors = {
        "model.embed_tokens.weight": ("F32", [256, 64]),
        "lm.weight": ("U32", [8, 4]),
        "lm.scales": ("F16", [8, 1]),
        "lm.biases": ("F16", [8, 1]),
    }
    (folder / "config.json").write_text(config(quantization={"bits": 4, "group_size": 32}))
    write_safetensors(folder / "model.safetensors", tensors)
    whole = (folder / "model.safetensors").read_bytes()
    header_len = struct.unpack("<Q", whole[:8])[0]
    header, data = json.loads(whole[8 : 8 + header_len]), whole[8 + header_len :]
    small = {
        "model.safetensors.index.json": {"weight_map": dict.fromkeys(tensors, "model.safetensors")},
        "tokenizer_config.json": {"model_max_length": 10**30, "chat_template": "x"},
        "generation_config.json": {"temperature": 1.0},
        "tokenizer.json": json.loads(TINY_TOKENIZER),
    }
    seen = set()
    for _ in range(400):
        # One of the two is whole now and then, so that what is behind it is reached.
        changed = written(chance, mutated(chance, header)) if chance.random() < 0.6 else json.dumps(header).encode()
        length = chance.choice([len(changed)] * 8 + [0, 3, 2**40, 2**64 - 1])
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", length) + changed + data)
        name = chance.choice(list(small))
        (folder / name).write_bytes(written(chance, mutated(chance, small[name])))
        seen.add(is_planned(folder))
        (folder / name).write_text(json.dumps(small[name]))

    assert seen == {True, False}


def test_a_name_of_a_type_is_no_path():
    assert module_name({"model_type": "../llama"}) is None
    assert module_name({"model_type": "a" * 10_000}) is None
