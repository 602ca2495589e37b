"""Guard: the table of docs/reliability.md has the cells of the fault matrix, and says of each what its test expects."""

from tests.story.fault_cells import CELLS
from tests.story.fault_table import DOCUMENT, HEAD, expected_row, written_rows


def test_the_document_has_a_row_for_each_cell_and_says_what_its_test_expects():
    written = written_rows(DOCUMENT.read_text())

    assert [row[: len(HEAD)] for row in written] == [expected_row(cell) for cell in CELLS]


def test_each_fault_befalls_each_process_once():
    cells = [(cell.process, cell.fault) for cell in CELLS]

    assert sorted(set(cells)) == sorted(cells)
    assert len(cells) == 3 * 4
