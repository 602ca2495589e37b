import re
import string
from pathlib import Path

import pytest

from webui.text import choose_language, load_texts

ROOT = Path(__file__).resolve().parents[3]
KEY = re.compile(r"""["']([a-z_]+(?:\.[a-z_]+)+|copy)["']""")


def test_every_sentence_exists_in_both_languages():
    english, chinese = load_texts()["en"].sentences, load_texts()["zh"].sentences

    assert sorted(english) == sorted(chinese)
    assert all(sentence.strip() for sentence in (*english.values(), *chinese.values()))


def test_both_languages_fill_in_the_same_values():
    english, chinese = load_texts()["en"].sentences, load_texts()["zh"].sentences

    different = {key for key in english if placeholders(english[key]) != placeholders(chinese[key])}

    assert different == set()


def test_every_sentence_is_used_and_every_used_key_is_a_sentence():
    sources = [*(ROOT / "webui").rglob("*.py"), *(ROOT / "frontend" / "templates").glob("*.html")]
    named = {key for source in sources for key in KEY.findall(source.read_text("utf-8"))}
    sentences = set(load_texts()["en"].sentences)
    counted = {key.rpartition(".")[0] for key in sentences if key.endswith((".one", ".many"))}
    rooms = {key.split(".")[0] for key in sentences} - {"copy"}

    unused = {key for key in sentences if key not in named and key.rpartition(".")[0] not in named & counted}
    unknown = {key for key in named - sentences - counted if key.split(".")[0] in rooms and not key.endswith(".html")}

    assert (unused, unknown) == (set(), set())


def test_chinese_is_written_in_chinese():
    chinese = load_texts()["zh"].sentences
    same_in_both = {"slot.bar", "fact.pid", "fact.context_of", "memory.of", "unit.tokens_short", "load.other_example"}
    same_in_both |= {
        "keys.name_example",
        "shell.other_language",
        "shell.other_language_sign",
        "shell.other_language_tag",
    }

    latin = {key for key, sentence in chinese.items() if not re.search(r"[一-鿿]", sentence)}

    assert latin <= same_in_both | {"figure.hit_rate_note"}


@pytest.mark.parametrize(
    ("chosen", "accept_language", "expected"),
    [
        (None, "", "en"),
        (None, "zh-CN,zh;q=0.9,en;q=0.8", "zh"),
        (None, "zh-Hant-HK", "zh"),
        (None, "zh_TW", "zh"),
        (None, "ZH", "zh"),
        (None, "en-US,zh;q=0.9", "en"),
        (None, "en;q=0.4, zh;q=0.8", "zh"),
        (None, "fr-FR,fr", "en"),
        (None, "zh;q=nonsense, en", "en"),
        ("en", "zh-CN", "en"),
        ("zh", "en-US", "zh"),
        ("xx", "zh-CN", "zh"),
    ],
)
def test_the_language_is_the_chosen_one_else_the_browsers(chosen, accept_language, expected):
    assert choose_language(chosen=chosen, accept_language=accept_language) == expected


def test_counts_have_their_own_sentence_for_one():
    text = load_texts()["en"]

    assert text.count("figure.streams", 1) == "1 stream"
    assert text.count("figure.streams", 0) == "0 streams"
    assert text.count("figure.streams", 1234) == "1,234 streams"


def test_sentences_are_joined_as_the_language_joins_them():
    texts = load_texts()

    assert texts["en"].join("One.", "", "Two.") == "One. Two."
    assert texts["zh"].join("一。", "", "二。") == "一。二。"


@pytest.mark.parametrize("word", ["暂存", "饿死", "数据流", "退出登录", "停止 Splash", "登出", "保持不变"])
def test_words_that_were_wrong_in_chinese_do_not_come_back(word):
    assert [key for key, sentence in load_texts()["zh"].sentences.items() if word in sentence] == []


def placeholders(sentence: str) -> set[str | None]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}
