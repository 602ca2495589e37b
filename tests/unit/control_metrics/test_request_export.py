"""Request rows as files: what a spreadsheet reads is what a program reads, whatever is in the rows."""

import csv
import io
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from control.metrics.request_export import COLUMNS, FORMULA_SIGNS, beginning, end, middle
from control.metrics.request_questions import listed
from control.prices import Tariff
from control.wire import PriceList
from tests.unit.control_gateway.test_metrics import NOON, row

# Lone surrogates can't be in the database.
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from([*FORMULA_SIGNS, '"', ",", ""])
times = st.none() | st.integers(0, 10**9).map(lambda number: number / 1000)


@st.composite
def rows(draw):
    return row(
        draw(st.integers(0, 2**53)),
        key=draw(texts),
        model=draw(texts),
        error_code=draw(st.none() | texts.filter(bool)),
        stream=draw(st.booleans()),
        started_at_s=NOON + draw(st.floats(0, 1e6)),
        **{name: draw(times) for name in ("queue_ms", "prefill_ms", "decode_ms", "ttft_ms", "largest_gap_ms")},
        **{name: draw(st.integers(0, 2**27)) for name in ("prompt_tokens", "cached_tokens", "completion_tokens")},
    )


def file_of(chosen, pages) -> str:
    parts = [middle(chosen, page, is_first=number == 0) for number, page in enumerate(pages)]
    return b"".join((beginning(chosen), *parts, end(chosen))).decode()


def as_text(value) -> str:
    """Of JSON, as a cell; a formula is kept from being one."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    if isinstance(value, str):
        return f"'{value}" if value.startswith(FORMULA_SIGNS) else value
    return str(value)


@settings(max_examples=80, deadline=None)
@given(st.lists(st.lists(rows(), max_size=3), max_size=4))
def test_both_files_say_the_same_of_every_row_and_no_cell_is_a_formula(pages):
    tariff = Tariff(PriceList())
    asked = [[listed(each, tariff) for each in page] for page in pages]

    sheet = list(csv.reader(io.StringIO(file_of("csv", asked), newline="")))
    program = json.loads(file_of("json", [page for page in asked if page]))

    said = [each for page in pages for each in page]
    assert sheet[0] == list(COLUMNS)
    assert [(each["number"], each["key"], each["model"]) for each in program] == [
        (r.number, r.key, r.model) for r in said
    ]
    for cells, values, one in zip(sheet[1:], program, said, strict=True):
        assert list(values) == sheet[0]
        for cell, (name, value) in zip(cells, values.items(), strict=True):
            assert float(cell) == value if isinstance(value, float) else cell == as_text(value)
            assert not cell.startswith(FORMULA_SIGNS)
            if isinstance(value, float) and hasattr(one, name):
                assert abs(value - getattr(one, name)) <= 0.0501
