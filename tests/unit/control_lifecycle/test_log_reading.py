"""A log read from its end: pages that meet without a gap, over a log that is turned over, whatever bytes are in it."""

import time
from datetime import datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from control import log_reading
from control.log_reading import BLOCK_BYTES, EVERYTHING, PAGE_BYTES, Filter, LogFile, Place, log_files, read_page

NOON = "2026-11-30 12:00"
TRACEBACK = 'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nValueError: no\n'


@pytest.fixture
def log(tmp_path):
    return tmp_path / "control.log"


def line(number: int, message: str = "request finished", level: str = "INFO", logger: str = "control.relay") -> str:
    return f"{NOON}:{number % 60:02},{number % 1000:03} {level} {logger} {message} number={number}\n"


def lines(*numbers: int) -> str:
    return "".join(line(number) for number in numbers)


def page(log, *, limit=200, before=None, only=EVERYTHING):
    return read_page("control", log, limit=limit, before=None if before is None else Place.parsed(before), only=only)


def messages(found) -> list[str]:
    return [entry.message for entry in found.entries]


def numbers(found) -> list[int]:
    return [int(entry.message.partition("number=")[2]) for entry in found.entries]


def all_pages(log, *, limit, only=EVERYTHING):
    before = None
    while True:
        found = page(log, limit=limit, before=before, only=only)
        yield found
        before = found.older
        if before is None:
            return


def test_a_log_that_is_not_there_is_empty(log):
    found = page(log)

    assert (found.entries, found.older, found.is_cut_short, found.size_bytes) == ((), None, False, 0)


def test_a_line_is_taken_apart_and_its_time_is_of_this_machines_zone(log):
    log.write_text(f"{NOON}:01,250 WARNING control.metrics.writer rows wait reason=locked\n")

    (entry,) = page(log).entries

    assert (entry.level, entry.logger, entry.message) == (
        "WARNING",
        "control.metrics.writer",
        "rows wait reason=locked",
    )
    assert entry.at_s == datetime(2026, 11, 30, 12, 0, 1, 250_000).timestamp()
    assert (entry.more, entry.omitted_chars) == ("", 0)


def test_the_colon_that_the_engine_puts_after_a_name_is_no_part_of_it(log):
    log.write_text(f"{NOON}:01,000 INFO engine.loader: weights read\n")

    (entry,) = page(log).entries

    assert (entry.logger, entry.message) == ("engine.loader", "weights read")


def test_the_newest_come_first_and_the_next_page_goes_on_without_a_gap(log):
    log.write_text(lines(*range(10)))

    first = page(log, limit=4)
    second = page(log, limit=4, before=first.older)
    third = page(log, limit=4, before=second.older)

    assert [numbers(each) for each in (first, second, third)] == [[9, 8, 7, 6], [5, 4, 3, 2], [1, 0]]
    assert (first.is_cut_short, third.is_cut_short, third.older) == (False, False, None)


def test_a_traceback_stays_with_the_line_that_it_belongs_to(log):
    log.write_text(line(1) + line(2, level="ERROR") + TRACEBACK + line(3))

    found = page(log)

    assert numbers(found) == [3, 2, 1]
    assert found.entries[1].more == TRACEBACK.rstrip("\n")
    assert [entry.more for entry in (found.entries[0], found.entries[2])] == ["", ""]


def test_a_page_that_is_full_at_a_traceback_does_not_tear_it_off(log):
    log.write_text(line(1) + line(2, level="ERROR") + TRACEBACK)

    first = page(log, limit=1)
    second = page(log, limit=1, before=first.older)

    assert (numbers(first), numbers(second)) == ([2], [1])
    assert first.entries[0].more.endswith("ValueError: no")


def test_lines_without_a_time_stand_for_themselves(log):
    log.write_text("Splash starts\non this machine\n" + line(1))

    first, second = page(log).entries

    assert (second.at_s, second.level, second.logger) == (None, None, None)
    assert (second.message, second.more) == ("Splash starts", "on this machine")
    assert first.level == "INFO"


def test_a_date_that_never_was_is_no_time(log):
    log.write_text("2026-02-31 12:00:00,000 INFO control x\n")

    (entry,) = page(log).entries

    assert (entry.at_s, entry.level) == (None, "INFO")


def test_what_was_turned_over_is_older(log):
    log.with_name("control.log.1").write_text(lines(1, 2, 3))
    log.write_text(lines(4, 5))

    pages = list(all_pages(log, limit=2))

    assert [numbers(each) for each in pages] == [[5, 4], [3, 2], [1]]
    assert pages[0].size_bytes == len(lines(1, 2, 3, 4, 5))


def test_a_page_goes_over_the_seam_of_two_files(log):
    log.with_name("control.log.1").write_text(lines(1, 2, 3))
    log.write_text(lines(4, 5))

    assert numbers(page(log)) == [5, 4, 3, 2, 1]


def test_paging_goes_on_where_it_was_when_the_log_is_turned_over_meanwhile(log):
    log.write_text(lines(*range(6)))
    first = page(log, limit=2)

    log.rename(log.with_name("control.log.1"))
    log.write_text(lines(6, 7))

    assert numbers(page(log, limit=2, before=first.older)) == [3, 2]
    assert numbers(page(log, limit=3)) == [7, 6, 5]


def test_a_place_in_a_file_that_is_no_longer_kept_is_an_empty_page(log):
    log.write_text(lines(1))

    found = page(log, before="1-20")

    assert (found.entries, found.older) == ((), None)


def test_the_last_line_may_be_unfinished_and_keeps_its_place(log):
    whole = lines(1, 2)
    log.write_text(whole[:-10])
    before = page(log).entries[0]

    log.write_text(whole)
    after = page(log).entries[0]

    assert before.id == after.id
    assert after.message.startswith(before.message)


def test_bytes_that_are_no_text_are_shown_as_such_and_break_nothing(log):
    log.write_bytes(
        line(1).encode() + f"{NOON}:02,000 INFO control ".encode() + b"\xff\xfe caf\xc3\n" + line(3).encode()
    )

    found = page(log)

    assert messages(found)[1] == "\ufffd\ufffd caf\ufffd"
    assert len(found.entries) == 3


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "red"),
        ("bell\x07", "bell\\x07"),
        ("\u202eevil", "\\u202eevil"),
        ("nul\x00", "nul\\x00"),
        ("日志 😀", "日志 😀"),
        ("<script>alert(1)</script>", "<script>alert(1)</script>"),
    ],
)
def test_what_cannot_be_seen_is_written_out_and_colours_are_left_away(log, written, shown):
    log.write_text(f"{NOON}:01,000 INFO control {written}\n")

    assert messages(page(log)) == [shown]


def test_a_huge_line_loses_its_middle_and_says_how_much(log):
    log.write_text(line(1) + f"{NOON}:02,000 ERROR control {'a' * 100_000}{'b' * 100_000}\n" + line(3))

    entry = page(log).entries[1]

    assert entry.message == "a" * 2_000 + "…" + "b" * 2_000
    assert entry.omitted_chars == 200_000 - 4_000
    assert len(page(log).entries) == 3


def test_a_line_longer_than_a_block_is_passed_in_pieces(log):
    log.write_text(line(1) + f"{NOON}:02,000 ERROR control {'a' * (3 * BLOCK_BYTES)}\n" + line(3))

    pages = list(all_pages(log, limit=200))

    assert messages(pages[0])[0] == "request finished number=3"
    assert messages(pages[-1])[-1] == "request finished number=1"
    assert len(pages) <= 5


def test_a_page_never_reads_more_than_a_block(log, monkeypatch):
    log.write_text("no time here\n" * 200_000)
    read = []
    monkeypatch.setattr(log_reading, "_entries_backwards", lambda piece: read.append(len(piece.content)) or iter(()))

    found = page(log)

    assert 0 < sum(read) <= PAGE_BYTES
    assert (found.is_cut_short, found.older is not None) == (True, True)


def test_a_page_of_long_lines_ends_before_it_is_full(log):
    log.write_text("".join(line(number, "x" * 3_900) for number in range(120)))

    found = page(log)

    assert found.is_cut_short
    assert sum(len(entry.message) for entry in found.entries) < 300_000
    assert [number for each in all_pages(log, limit=200) for number in numbers(each)] == list(reversed(range(120)))


@pytest.mark.parametrize(
    ("only", "expected"),
    [
        (Filter(level="DEBUG"), [6, 5, 4, 3, 2]),
        (Filter(level="WARNING"), [5, 4, 3]),
        (Filter(level="CRITICAL"), [5]),
        (Filter(text="NUMBER=4"), [4]),
        (Filter(text="valueerror"), [4]),
        (Filter(text="磁盘"), [6]),
        (Filter(text="ÄRGER"), [3]),
        (Filter(text="relay", level="ERROR"), [5, 4]),
        (Filter(text="nothing like it"), []),
    ],
)
def test_lines_are_found_by_level_and_by_text_whatever_its_case(log, only, expected):
    log.write_text(
        "a line without a time\n"
        + line(2, level="DEBUG")
        + line(3, "ärger", level="WARNING")
        + line(4, level="ERROR")
        + TRACEBACK
        + line(5, level="CRITICAL")
        + line(6, "磁盘")
    )

    found = page(log, only=only)

    assert numbers(found) == expected
    assert (found.older, found.is_cut_short) == (None, False)


def test_a_search_reads_further_than_a_page_and_then_says_that_there_is_more(log, monkeypatch):
    monkeypatch.setattr(log_reading, "SEARCH_BYTES", 4 * PAGE_BYTES)
    log.write_text(line(1, "needle") + "".join(line(number) for number in range(2, 60_000)))

    first = page(log, only=Filter(text="needle"))
    rest = list(all_pages(log, limit=200, only=Filter(text="needle")))

    assert (first.entries, first.is_cut_short) == ((), True)
    assert [number for each in rest for number in numbers(each)] == [1]
    assert len(rest) == 3


def test_a_file_that_vanishes_while_it_is_read_is_passed_over(log, monkeypatch):
    log.write_text(lines(1))
    gone = LogFile(log.with_name("gone.log"), id=7, num_bytes=400)
    monkeypatch.setattr(log_reading, "log_files", lambda file: (*log_files(file), gone))

    assert numbers(page(log)) == [1]


@pytest.mark.parametrize("text", ["", "1", "-1", "1-", "a-b", "1-2-3", "1" * 30 + "-1", "../secrets/admin", "１-２"])
def test_a_place_that_nobody_was_given_is_none(text):
    assert Place.parsed(text) is None


@settings(max_examples=60, deadline=None)
@given(
    pieces=st.lists(
        st.one_of(
            st.integers(0, 999).map(line),
            st.binary(max_size=40).map(lambda raw: raw.decode(errors="replace") + "\n"),
            st.just(TRACEBACK),
        ),
        max_size=60,
    ),
    limit=st.integers(1, 7),
    cut=st.integers(0, 4_000),
)
def test_pages_of_any_length_give_every_line_once_and_in_order(tmp_path_factory, pieces, limit, cut):
    log = tmp_path_factory.mktemp("logs") / "control.log"
    content = "".join(pieces).encode()
    (log.with_name("control.log.1")).write_bytes(content[:cut])
    log.write_bytes(content[cut:])

    paged = [entry for found in all_pages(log, limit=limit) for entry in found.entries]

    assert paged == list(page(log, limit=1_000).entries)
    assert len({entry.id for entry in paged}) == len(paged)


@pytest.mark.timed
def test_a_large_log_is_not_slower_than_a_small_one(log):
    """The end of 40 MB: a file that is read whole takes a hundred times as long."""
    small = "".join(line(number) for number in range(1_000))
    log.write_text(small * 500)
    begun = time.perf_counter()

    found = page(log)

    assert len(found.entries) == 200
    assert time.perf_counter() - begun < 0.2
    assert [each.path.name for each in log_files(log)] == ["control.log"]
