"""The chat-template canary: what becomes of a system message behind other roles, as a self-test for /status.

It tries nothing itself: `engine.text.probe` did, at load.
"""

from engine.text.tokenizer import TextModel
from engine.wire import SelfTest


def template_canary(model: TextModel) -> SelfTest:
    """Fails only where no form of such a message comes out in its place: requests that have one are refused."""
    habits = model.habits
    return SelfTest(
        name="late_system",
        passed=habits.late_system != "unsupported",
        error=None,
        tolerance=None,
        detail=f"{habits.late_system}: {habits.detail}",
    )
