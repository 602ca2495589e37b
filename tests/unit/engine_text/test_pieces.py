"""Prompts tokenised piece by piece: always what tokenising them whole gives, and only what is new is tokenised."""

from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from engine.door.intake import Intake
from engine.text import pieces as pieces_module
from engine.text.pieces import Pieces, pieces_of, safe_openers
from engine.text.positions import encode
from engine.text.template import render
from engine.wire import Message, Prompt, TextPart, Tool
from tests.unit.engine_text.templates_by_hand import with_template

OPENER, END = "<turn>", "</turn>"
WORD_START = "\u2581"
PIECES = [
    *("<unk>", *(f"<0x{byte:02X}>" for byte in range(256))),
    *(WORD_START, "a", "b", "\n", "\u00e9", "\u4f60", "ab", WORD_START + "a", WORD_START * 2, "\n\n", "\u4f60b"),
]
MERGES = [("a", "b"), (WORD_START, "a"), (WORD_START, WORD_START), ("\n", "\n"), ("\u4f60", "b")]


def sentencepiece(normaliser=None, splitter=None, more=()):
    backend = Tokenizer(
        models.BPE(
            vocab={piece: i for i, piece in enumerate(PIECES)}, merges=MERGES, byte_fallback=True, unk_token="<unk>"
        )
    )
    backend.normalizer, backend.pre_tokenizer = normaliser, splitter
    backend.decoder = decoders.Sequence([decoders.Replace(WORD_START, " "), decoders.ByteFallback(), decoders.Fuse()])
    backend.add_special_tokens([AddedToken(OPENER, normalized=False), AddedToken(END, normalized=False), *more])
    return backend


def llama(scheme):
    return sentencepiece(splitter=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=False))


BACKENDS = {
    "a space before each text": lambda: llama("always"),
    "a space before the first text": lambda: llama("first"),
    "a space by a normaliser": lambda: sentencepiece(
        normalizers.Sequence([normalizers.Prepend(WORD_START), normalizers.Replace(" ", WORD_START)])
    ),
    "gemma": lambda: sentencepiece(
        normalizers.Replace(" ", WORD_START), pre_tokenizers.Split(" ", "merged_with_previous")
    ),
    "composed and stripped": lambda: sentencepiece(
        normalizers.Sequence([normalizers.NFC(), normalizers.Strip(), normalizers.Replace(" ", WORD_START)])
    ),
    "greedy added tokens": lambda: sentencepiece(
        normalizers.Replace(" ", WORD_START),
        more=(
            AddedToken("<left>", lstrip=True, normalized=False),
            AddedToken("<right>", rstrip=True, normalized=False),
            AddedToken("\n\n", normalized=False),
            AddedToken("b a", normalized=True),
            AddedToken("urn>a", normalized=False),
        ),
    ),
}
PARTS = st.one_of(
    st.sampled_from([OPENER, END, "<left>", "<right>", "<think>", "<|im_start|>", "<|im_end|>", "<tool_response>"]),
    st.sampled_from([" ", "  ", "\n", "\n\n", "\r\n", "\t", WORD_START, "\u0301", "e\u0301", "\u00e9", "\u3000"]),
    st.sampled_from(["a", " ab", "b a", "I'm", "123", "def f(x):\n    return x\n", '{"a": 1}', "<", "urn>", "<tur"]),
    st.sampled_from(["\u4f60\u597d", "\U0001f999", "\U0001f469\u200d\U0001f467", "\ud55c\uad6d", "\x00", "<0x0A>"]),
    st.text(max_size=4).filter(lambda text: not any("\ud800" <= char <= "\udfff" for char in text)),
)
TEXTS = st.lists(PARTS, max_size=24).map("".join)


def assert_equal(tokenizer, pieces, text):
    whole, joined = encode(tokenizer, text, with_positions=True), pieces.encode(text)
    assert joined.tokens == whole.tokens
    assert [joined.token_at(i) for i in range(len(text))] == [whole.token_at(i) for i in range(len(text))]


@pytest.mark.parametrize("kind", BACKENDS)
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_the_pieces_make_the_tokens_of_the_whole_text_whatever_a_tokenizer_does_with_spaces(kind, texts):
    backend = BACKENDS[kind]()
    tokenizer = SimpleNamespace(_tokenizer=PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="<unk>"))
    openers = safe_openers(backend, [f"{END}\n{OPENER}"])
    pieces = Pieces(backend, openers)

    assert OPENER in openers
    for text in texts:
        assert_equal(tokenizer, pieces, text)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=1, max_size=4))
def test_the_pieces_make_the_tokens_of_the_whole_text_in_a_byte_level_tokenizer(demo, texts):
    pieces = pieces_of(demo.tokenizer, demo.habits.openings, has_positions=True)

    for text in texts:
        assert_equal(demo.tokenizer, pieces, text)


def said(role, text):
    return Message(role=role, content=(TextPart(text),))


def conversation(num_turns):
    turns = [said(role, f"{role} {turn}\n" * 50) for turn in range(num_turns) for role in ("user", "assistant")]
    return Prompt(
        messages=(said("system", "Be brief. " * 300), *turns, said("user", f"And {num_turns}?")),
        tools=(Tool(name="clock", description="tells the time"),),
    )


class Counted:
    """A backend that notes the texts that it is given."""

    def __init__(self, backend):
        self._backend = backend
        self.texts = []

    def encode_batch(self, texts, **how):
        self.texts += texts
        return self._backend.encode_batch(texts, **how)


def test_the_next_turn_tokenises_only_what_is_new(demo):
    backend = Counted(demo.tokenizer.backend_tokenizer)
    pieces = Pieces(backend, ("<|im_start|>",))
    render(conversation(5), demo, pieces=pieces)
    num_chars = sum(map(len, backend.texts))
    backend.texts.clear()

    rendered = render(conversation(6), demo, pieces=pieces)

    assert rendered == render(conversation(6), demo)
    assert sum(map(len, backend.texts)) < num_chars / 4


@pytest.mark.parametrize("opening", ["<|im_start|>{}\n", "<|start_header|>{}<|end_header|>\n\n", "<turn>{}\n"])
def test_marks_are_the_same_as_without_pieces(opening):
    before, after = opening.split("{}")
    template = (
        "{%- for m in messages -%}" + before + "{{ m.role }}" + after.replace("\n", "{{ '\\n' }}")
        + "{{ m.content }}<end>{%- endfor -%}"
        + "{%- if add_generation_prompt -%}" + before + "assistant" + after.replace("\n", "{{ '\\n' }}")
        + "{%- endif -%}"
    )  # fmt: skip
    model = with_template(template)
    pieces = pieces_of(model.tokenizer, model.habits.openings, has_positions=model.habits.has_positions)

    for num_turns in (1, 3, 4):
        assert render(conversation(num_turns), model, pieces=pieces) == render(conversation(num_turns), model)


def test_a_request_is_admitted_with_the_tokens_of_its_whole_text(demo):
    intake = Intake(lambda: demo, 100_000)

    for num_turns in (2, 3):
        prompt = conversation(num_turns)
        body = msgspec.json.encode({"id": "a", "prompt": prompt})

        assert intake.admit(body).prompt == render(prompt, demo).tokens


def test_an_intake_that_is_told_to_forget_keeps_no_text_and_tokenises_all_of_it_again(demo):
    intake = Intake(lambda: demo, 100_000)
    body = msgspec.json.encode({"id": "a", "prompt": conversation(3)})
    before = intake.admit(body).prompt
    assert intake._pieces.kept_bytes > 0

    intake.forget()

    assert (intake._pieces.kept_bytes, len(intake._pieces._kept)) == (0, 0)
    assert intake.admit(body).prompt == before


@pytest.mark.parametrize(
    ("added", "reason"),
    [
        ([AddedToken(OPENER, normalized=True)], "found only in what others leave"),
        ([AddedToken(OPENER, normalized=False, lstrip=True)], "takes spaces before it"),
        ([AddedToken(OPENER, normalized=False, single_word=True)], "found only between others"),
        ([OPENER, AddedToken("a", normalized=False, single_word=True)], "looks at what follows it"),
        ([OPENER, AddedToken("a<tu", normalized=False)], "hidden by one that reaches into it"),
        ([OPENER, AddedToken("a<turn>b", normalized=False)], "hidden by one that contains it"),
        ([OPENER, AddedToken("<turn>b", normalized=False)], "hidden by a longer one"),
        ([AddedToken(" <turn>", normalized=False)], "begins with a space that others take"),
        ([AddedToken("aba", normalized=False)], "overlaps itself"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_text_is_not_cut_before_a_token_that_may_be_missed(added, reason):
    backend = Tokenizer(models.BPE(vocab={"a": 0, "b": 1}, merges=[]))
    backend.add_special_tokens([AddedToken(t, normalized=False) if isinstance(t, str) else t for t in added])

    assert not {OPENER, " <turn>", "aba"} & set(safe_openers(backend, ["aba <turn>b"])), reason


def test_a_tokenizer_that_ignores_its_special_tokens_or_cuts_texts_off_tokenises_them_whole():
    ignoring, cutting = sentencepiece(), sentencepiece()
    ignoring.encode_special_tokens = True
    cutting.enable_truncation(100)

    assert safe_openers(sentencepiece(), [OPENER]) == (OPENER,)
    assert safe_openers(ignoring, [OPENER]) == ()
    assert safe_openers(cutting, [OPENER]) == ()


@pytest.mark.parametrize("lack", ["positions", "openers", "library", "equality"])
def test_without_proof_prompts_are_tokenised_whole(demo, lack, monkeypatch):
    tokenizer, openings = demo.tokenizer, demo.habits.openings
    if lack == "library":
        tokenizer = SimpleNamespace()
    if lack == "equality":
        monkeypatch.setattr(pieces_module, "safe_openers", lambda backend, openings: ("ll",))

    found = pieces_of(tokenizer, () if lack == "openers" else openings, has_positions=lack != "positions")

    assert found is None


def test_what_is_kept_stays_within_its_bound_and_the_oldest_goes_first(demo):
    backend = Counted(demo.tokenizer.backend_tokenizer)
    pieces = Pieces(backend, ("<|im_start|>",), most_bytes=20_000)

    for turn in range(200):
        pieces.encode(f"<|im_start|>always<|im_start|>{turn} {'word ' * (turn % 60)}")
        assert pieces.kept_bytes <= 20_000
    pieces.encode("<|im_start|>" + "far too long " * 10_000)

    assert backend.texts.count("<|im_start|>always") == 1
    assert pieces.kept_bytes <= 20_000
