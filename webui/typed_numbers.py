"""Numbers as people type them, brought to the digits that forms read: full-width ones too, without grouping.

It reads no number and judges none.
"""

import unicodedata
from typing import Final

_GROUPING: Final = str.maketrans("", "", ", ")


def half_width(typed: str) -> str:
    """With what an input method writes wide as everybody else writes it, and nothing around it."""
    return unicodedata.normalize("NFKC", typed).strip()


def plain_digits(typed: str) -> str:
    """“１２，０００” and “12 000” become “12000”. What is no number stays what it is not."""
    return half_width(typed).translate(_GROUPING)
