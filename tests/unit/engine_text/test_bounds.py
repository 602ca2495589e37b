"""The least number of tokens that a text makes is never more than it really makes, whatever the tokenizer."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from engine.text.bounds import least_tokens, most_letters_in_token
from tests.unit.engine_text.tokenizers_by_hand import word_level

LETTERS = [chr(ord(first) + i) for first in "aA" for i in range(26)]
# Letters that compose with what follows, whitespace that special tokens swallow, names of tokens, and other scripts.
PIECES = [
    "a",
    "e\u0301",
    "i\u0308\u0301",
    "Hello",
    "world",
    "  \n",
    "<sep>",
    "<|end",
    "\u1112\u1161\u11ab",
    "🙂",
    "1",
    "zzz",
]


def bpe(*, normaliser=None, splitter=None, without="", **options):
    """A BPE tokenizer of letters and a few words, with a special token that swallows the whitespace around it."""
    words = ["He", "ll", "Hell", "Hello"]
    entries = ["<unk>", *(letter for letter in LETTERS if letter not in without), *words]
    vocabulary = {entry: i for i, entry in enumerate(entries)}
    merges = [("H", "e"), ("l", "l"), ("He", "ll"), ("Hell", "o")]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>", fuse_unk=True, **options))
    tokenizer.add_special_tokens([AddedToken("<sep>", lstrip=True, rstrip=True)])
    if normaliser is not None:
        tokenizer.normalizer = normaliser
    if splitter is not None:
        tokenizer.pre_tokenizer = splitter
    return tokenizer


def most_letters(tokenizer):
    return most_letters_in_token(SimpleNamespace(backend_tokenizer=tokenizer))


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_a_text_never_makes_fewer_tokens(text):
    for normaliser in (None, normalizers.NFC(), normalizers.Sequence([normalizers.NFKD(), normalizers.Strip()])):
        for splitter in (None, pre_tokenizers.Whitespace(), pre_tokenizers.Split("l", "isolated")):
            tokenizer = bpe(normaliser=normaliser, splitter=splitter)

            assert least_tokens(text, most_letters(tokenizer)) <= len(tokenizer.encode(text).ids)


@given(st.text(max_size=200))
def test_a_text_never_makes_fewer_tokens_of_a_real_tokenizer(demo, text):
    assert least_tokens(text, demo.most_letters_in_token) <= len(demo.tokenizer.encode(text, add_special_tokens=False))


def test_of_prose_a_fifth_of_its_tokens_is_certain(demo):
    text = "The temperature of the water rises while it is heated. " * 50

    num_tokens = len(demo.tokenizer.encode(text))

    assert least_tokens(text, demo.most_letters_in_token) > num_tokens / 5


def test_the_longest_name_counts_that_of_a_special_token_too():
    tokenizer = bpe()
    plain = most_letters(tokenizer)
    tokenizer.add_special_tokens(["<|a_very_long_name|>"])

    assert (plain, most_letters(tokenizer)) == (5, 13)


@pytest.mark.parametrize(
    "tokenizer",
    [
        bpe(normaliser=normalizers.Replace("Hello", "")),
        bpe(normaliser=normalizers.Sequence([normalizers.NFC(), normalizers.BertNormalizer()])),
        bpe(splitter=pre_tokenizers.Split("l", "removed")),
        bpe(splitter=pre_tokenizers.Sequence([pre_tokenizers.CharDelimiterSplit("l")])),
        bpe(without="z"),
        bpe(end_of_word_suffix="</w>"),
        Tokenizer(models.WordPiece(vocab={"[UNK]": 0, **{letter: i for i, letter in enumerate(LETTERS, 1)}})),
    ],
    ids=["replaces", "unknown normaliser", "removes", "unknown splitter", "lacks a letter", "marks words", "WordPiece"],
)
def test_where_a_token_may_stand_for_any_number_of_letters_nothing_is_claimed(tokenizer):
    assert most_letters(tokenizer) is None


def test_a_tokenizer_of_another_kind_makes_no_claim():
    assert most_letters_in_token(word_level()) is None
    assert most_letters_in_token(SimpleNamespace()) is None
    assert least_tokens("Hello" * 1000, None) == 0
