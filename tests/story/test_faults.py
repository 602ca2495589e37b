"""The fault matrix: each process killed, stopped, hung and slow; what the others do, who says so, what mends it."""

import pytest

from tests.story.fault_cells import CELLS, Cell
from tests.story.fault_run import run

pytestmark = [pytest.mark.story, pytest.mark.timed]


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name.replace(" ", "-"))
def test_a_fault_of_one_process_does_what_is_written_and_no_more(cell: Cell, tmp_path):
    seen = run(cell, tmp_path)

    assert seen.expected == cell.expected
    assert seen.noticed_s <= cell.noticed_within_s
    assert seen.mended_s <= cell.mended_within_s
    assert (seen.quit_code, seen.left) == (0, ())
