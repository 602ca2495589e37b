"""docs/security.md and these tests say the same: each file here is somebody's proof, and each proof is here."""

import re
from pathlib import Path

HERE = Path(__file__).parent
DOCUMENT = HERE.parents[1] / "docs" / "security.md"


def test_every_attack_is_in_the_document_and_every_proof_exists():
    named = set(re.findall(r"`(test_\w+\.py)`", DOCUMENT.read_text()))

    assert named == {file.name for file in HERE.glob("test_*.py")} - {Path(__file__).name}
