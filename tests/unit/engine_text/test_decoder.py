"""Token ids into text for the three kinds of detokenizer that mlx-lm has, and log-probabilities beside it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.request import SampledToken
from engine.text.decoder import TokenDecoder
from tests.unit.engine_text.tokenizers_by_hand import SPM_PIECES, sentencepiece, word_level


def decoded(tokenizer, tokens, *, continues_text=False):
    decoder = TokenDecoder(tokenizer, continues_text=continues_text)
    return "".join([*(decoder.push(SampledToken(token)).text for token in tokens), decoder.flush().text])


@given(text=st.text(st.characters(exclude_categories=["Cs"]), max_size=40))
def test_byte_level_tokens_decode_to_the_text_they_were_made_of(demo, text):
    tokens = demo.tokenizer.encode(text, add_special_tokens=False)

    assert decoded(demo.tokenizer, tokens) == demo.tokenizer.decode(tokens)


def test_a_leading_space_is_part_of_the_text(demo):
    tokens = demo.tokenizer.encode(" Paris", add_special_tokens=False)

    assert decoded(demo.tokenizer, tokens) == " Paris"


def test_a_character_in_several_tokens_comes_out_whole_with_the_last_of_them(demo):
    tokens = demo.tokenizer.encode("🦙", add_special_tokens=False)
    decoder = TokenDecoder(demo.tokenizer, continues_text=False)

    pieces = [decoder.push(SampledToken(token)).text for token in tokens]

    assert len(tokens) > 1
    assert pieces == [""] * (len(tokens) - 1) + ["🦙"]


def test_a_character_that_is_never_completed_shows_as_a_replacement(demo):
    tokens = demo.tokenizer.encode("🦙", add_special_tokens=False)

    assert decoded(demo.tokenizer, tokens[:-1]) == "\ufffd"


@pytest.mark.parametrize("token", [-1, 10**6])
def test_an_id_beyond_the_tokenizer_is_no_text(demo, token):
    assert decoded(demo.tokenizer, [token]) == ""
    assert decoded(sentencepiece(), [token]) == ""


def test_two_decoders_of_one_tokenizer_do_not_mix(demo):
    first, second = (TokenDecoder(demo.tokenizer, continues_text=False) for _ in range(2))
    tokens = demo.tokenizer.encode("🦙", add_special_tokens=False)

    first.push(SampledToken(tokens[0]))
    other = second.push(SampledToken(demo.tokenizer.encode("a", add_special_tokens=False)[0]))

    assert other.text == "a"


def test_a_sentencepiece_turn_begins_without_the_space_of_its_first_word_and_a_continuation_keeps_it():
    hello, world = SPM_PIECES.index("▁Hello"), SPM_PIECES.index("▁world")

    assert decoded(sentencepiece(), [hello, world]) == "Hello world"
    assert decoded(sentencepiece(), [hello, world], continues_text=True) == " Hello world"


def test_sentencepiece_bytes_become_characters():
    bytes_of_e = [SPM_PIECES.index("<0xC3>"), SPM_PIECES.index("<0xA9>")]

    assert decoded(sentencepiece(), bytes_of_e) == "é"


def test_a_tokenizer_of_another_kind_decodes_as_it_does_itself():
    tokenizer = word_level()
    tokens = tokenizer.encode("Hello world !", add_special_tokens=False)

    assert decoded(tokenizer, tokens) == tokenizer.decode(tokens)


def test_log_probabilities_name_the_token_its_bytes_and_the_alternatives(demo):
    (space_a,) = demo.tokenizer.encode(" a", add_special_tokens=False)
    (b,) = demo.tokenizer.encode("b", add_special_tokens=False)
    decoder = TokenDecoder(demo.tokenizer, continues_text=False)

    piece = decoder.push(SampledToken(space_a, -0.5, ((space_a, -0.5), (b, -1.5))))

    (logprob,) = (mark.logprob for mark in piece.marks)
    assert (logprob.token, logprob.bytes, logprob.logprob) == (" a", (32, 97), -0.5)
    assert [(one.token, one.logprob) for one in logprob.top] == [(" a", -0.5), ("b", -1.5)]


def test_the_log_probability_of_half_a_character_waits_for_the_other_half(demo):
    tokens = demo.tokenizer.encode("🦙", add_special_tokens=False)
    decoder = TokenDecoder(demo.tokenizer, continues_text=False)

    pieces = [decoder.push(SampledToken(token, -1.0)) for token in tokens]

    assert [len(piece.marks) for piece in pieces] == [0] * (len(tokens) - 1) + [len(tokens)]
    assert b"".join(bytes(mark.logprob.bytes) for mark in pieces[-1].marks).decode() == "🦙"


def test_byte_zero_has_its_own_byte(demo):
    (zero,) = demo.tokenizer.encode("\x00", add_special_tokens=False)
    decoder = TokenDecoder(demo.tokenizer, continues_text=False)

    piece = decoder.push(SampledToken(zero, -1.0))

    assert piece.marks[0].logprob.bytes == (0,)


def test_bytes_that_are_no_character_come_out_as_they_come(demo):
    tokens = demo.tokenizer.encode("é", add_special_tokens=False)
    second_byte = demo.tokenizer.convert_tokens_to_ids("\u0142")  # 0xA0, which begins nothing
    decoder = TokenDecoder(demo.tokenizer, continues_text=False)

    pieces = [decoder.push(SampledToken(second_byte)).text for _ in range(3)]
    good = "".join(decoder.push(SampledToken(token)).text for token in tokens)

    assert pieces == ["\ufffd"] * 3
    assert good == "é"
