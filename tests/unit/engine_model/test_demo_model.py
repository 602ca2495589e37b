import json
import subprocess
import sys
import unicodedata
from pathlib import Path

import mlx.core as mx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from mlx_lm import load
from mlx_lm.generate import generate_step

from engine.model.demo import MARKER, build_demo, ensure_demo

NUM_SPECIAL_TOKENS = 7
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}, "limit": {"type": "integer"}},
            },
        },
    }
]


@pytest.fixture(scope="module")
def loaded(demo_home: Path):
    return load(str(demo_home / "models" / "demo"))


@pytest.fixture(scope="module")
def tokenizer(loaded):
    return loaded[1]


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir()}


def test_two_processes_make_the_same_bytes(demo_home, tmp_path):
    script = (
        "import sys; from pathlib import Path; from engine.model.demo import build_demo; build_demo(Path(sys.argv[1]))"
    )

    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)

    assert contents(tmp_path) == contents(demo_home / "models" / "demo")


def test_it_takes_at_most_ten_megabytes(demo_home):
    total_bytes = sum(len(content) for content in contents(demo_home / "models" / "demo").values())

    assert total_bytes <= 10_000_000


def test_making_it_imports_no_mlx(tmp_path):
    script = (
        "import sys, pathlib, engine.model.demo as demo; demo.ensure_demo(pathlib.Path(sys.argv[1]))\n"
        "assert not [name for name in sys.modules if name.split('.')[0] in ('mlx', 'mlx_lm', 'transformers')]"
    )

    done = subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)

    assert done.returncode == 0


def test_it_is_made_once_and_left_alone(tmp_path):
    folder = ensure_demo(tmp_path)
    made_at = (folder / "model.safetensors").stat().st_mtime_ns

    again = ensure_demo(tmp_path)

    assert again == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == made_at


@pytest.mark.parametrize("damage", ["older version", "no marker", "no weights"])
def test_a_folder_that_is_not_the_whole_demo_is_replaced(tmp_path, damage):
    folder = ensure_demo(tmp_path)
    if damage == "older version":
        (folder / MARKER).write_text(json.dumps({"version": "of last year"}))
    else:
        (folder / {"no marker": MARKER, "no weights": "model.safetensors"}[damage]).unlink()
    (folder / "left over").touch()

    ensure_demo(tmp_path)

    assert set(contents(folder)) == set(contents(ensure_demo(tmp_path / "other")))
    assert [entry.name for entry in folder.parent.iterdir()] == ["demo"]


def test_a_failed_build_leaves_nothing_behind(tmp_path, monkeypatch):
    def fail(folder: Path) -> None:
        build_demo(folder)
        raise OSError("the disk is full")

    monkeypatch.setattr("engine.model.demo.build_demo", fail)

    with pytest.raises(OSError, match="the disk is full"):
        ensure_demo(tmp_path)

    assert list((tmp_path / "models").iterdir()) == []


def test_mlx_lm_finds_its_tool_parser_its_thinking_and_both_ends_of_text(tokenizer):
    found = tokenizer.tool_parser("<function=read_file>\n<parameter=limit>\n3\n</parameter>\n</function>\n", TOOLS)

    assert found == {"name": "read_file", "arguments": {"limit": 3}}
    assert (tokenizer.think_start, tokenizer.think_end) == ("<think>", "</think>")
    assert tokenizer.convert_ids_to_tokens(sorted(tokenizer.eos_token_ids)) == ["<|endoftext|>", "<|im_end|>"]


@pytest.mark.parametrize("prompt", ["The capital of France is", "def main():", "你好，今天"])
def test_greedy_text_is_plain_varied_and_never_ends(loaded, prompt):
    model, tokenizer = loaded
    tokens = tokenizer.apply_chat_template([{"role": "user", "content": prompt}], add_generation_prompt=True)

    answer = [int(token) for token, _ in generate_step(mx.array(tokens), model, max_tokens=120)]

    assert min(answer) >= NUM_SPECIAL_TOKENS
    assert len(set(answer)) > 60
    text = tokenizer.decode(answer)
    assert "\ufffd" not in text
    assert all(character in "\n\t" or unicodedata.category(character)[0] != "C" for character in text)


def test_markup_and_ends_of_text_score_zero_and_lose_to_the_best(loaded):
    model, _ = loaded
    tokens = mx.random.randint(NUM_SPECIAL_TOKENS, 2048, (1, 256), key=mx.random.key(1))

    logits = model(tokens)[0]

    assert mx.abs(logits[:, :NUM_SPECIAL_TOKENS]).max().item() == 0.0
    assert logits.max(axis=-1).min().item() > 3.0


@pytest.mark.parametrize("kind", ["ArraysCache", "KVCache"])
def test_what_was_read_long_ago_still_changes_the_next_token(loaded, kind):
    """Both kinds of layer must carry it, or a test that compares caches would see nothing."""
    from mlx_lm.models.cache import make_prompt_cache

    model, _ = loaded
    first = mx.random.randint(300, 2048, (1, 150), key=mx.random.key(2))
    second = mx.array(first)
    second[0, 50] = 299

    def read(tokens):
        caches = make_prompt_cache(model)
        mx.eval(model(tokens, cache=caches))
        return caches

    def mixed():
        """Caches of the first text, but for those of one kind, which are of the second."""
        pairs = zip(read(first), read(second), strict=True)
        return [other if type(own).__name__ == kind else own for own, other in pairs]

    last = mx.array([[777]])
    plain, changed = model(last, cache=read(first)), model(last, cache=mixed())

    assert mx.abs(plain - changed).max().item() > 0.01


@given(st.text(max_size=80))
def test_text_survives_encoding_and_decoding(tokenizer, text):
    text = unicodedata.normalize("NFC", text)  # as every model of this family does

    tokens = tokenizer.encode(text, add_special_tokens=False)

    assert tokenizer.decode(tokens) == text


@given(st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=40))
def test_the_streaming_detokenizer_gives_the_same_text(tokenizer, text):
    text = "." + unicodedata.normalize("NFC", text)  # mlx-lm drops a space at the very beginning
    detokenizer = tokenizer.detokenizer

    pieces = []
    for token in tokenizer.encode(text, add_special_tokens=False):
        detokenizer.add_token(token)
        pieces.append(detokenizer.last_segment)
    detokenizer.finalize()

    assert "".join([*pieces, detokenizer.last_segment]) == text


def test_its_tokenizer_file_means_the_same_without_transformers(tokenizer, demo_home):
    from tokenizers import Tokenizer

    plain = Tokenizer.from_file(str(demo_home / "models" / "demo" / "tokenizer.json"))
    text = "Rename é, “x2” and 请求 in  main.py\n\n\t# it's 2026"

    assert plain.encode(text, add_special_tokens=False).ids == tokenizer.encode(text, add_special_tokens=False)


def render(tokenizer, messages, **arguments) -> str:
    return tokenizer.apply_chat_template(messages, tokenize=False, **{"enable_thinking": False, **arguments})


def test_the_template_keeps_system_messages_where_they_stand(tokenizer):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Hello, "}, {"type": "text", "text": "you."}]},
        {"role": "system", "content": "Now in French."},
    ]

    text = render(tokenizer, messages)

    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello, you.<|im_end|>\n"
        "<|im_start|>system\nNow in French.<|im_end|>\n"
    )


def test_the_template_opens_a_thought_only_when_an_effort_is_asked_for(tokenizer):
    messages = [{"role": "user", "content": "Hello"}]

    thinking = render(tokenizer, messages, add_generation_prompt=True, enable_thinking=True, reasoning_effort="high")
    not_thinking = render(tokenizer, messages, add_generation_prompt=True, enable_thinking=True)

    assert thinking.endswith("<|im_start|>assistant\n<think>\n")
    assert not_thinking.endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")


def test_the_template_repeats_a_thought_until_the_user_speaks_again(tokenizer):
    call = {"role": "assistant", "content": "", "reasoning_content": "Let me look.", "tool_calls": []}
    messages = [{"role": "user", "content": "Go"}, call, {"role": "tool", "content": "42"}]

    assert "<think>\nLet me look.\n</think>" in render(tokenizer, messages)
    assert "Let me look." not in render(tokenizer, [*messages, {"role": "user", "content": "And?"}])


def test_the_template_writes_tools_calls_and_results(tokenizer):
    calls = [
        {"id": "1", "type": "function", "function": {"name": "read_file", "arguments": {"path": "a.py", "limit": 3}}},
        {"id": "2", "type": "function", "function": {"name": "read_file", "arguments": '{"path": '}},
    ]
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Read"},
        {"role": "assistant", "content": "Sure.", "tool_calls": calls},
        {"role": "tool", "content": "one"},
        {"role": "tool", "content": "two"},
    ]

    text = render(tokenizer, messages, tools=TOOLS)

    assert text.startswith("<|im_start|>system\n# Tools\n")
    assert '"name": "read_file"' in text.split("<|im_end|>")[0]
    assert text.split("<|im_end|>")[0].endswith("\n\nBe brief.")
    assert text.count("Be brief.") == 1
    assert (
        "Sure.\n<tool_call>\n<function=read_file>\n<parameter=path>\na.py\n</parameter>\n"
        "<parameter=limit>\n3\n</parameter>\n</function>\n</tool_call>\n"
        '<tool_call>\n<function=read_file>\n{"path": \n</function>\n</tool_call><|im_end|>'
    ) in text
    assert text.endswith(
        "<|im_start|>user\n<tool_response>\none\n</tool_response>\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"
    )


def test_the_template_refuses_a_role_that_it_does_not_know(tokenizer):
    with pytest.raises(Exception, match="the role critic is not known to this model"):
        render(tokenizer, [{"role": "critic", "content": "Boo"}])
