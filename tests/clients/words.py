"""What a client is asked, and what the scripted engine answers: both sides of a run must agree on it.

It holds no behaviour.
"""

from typing import Final

# Its output is not part of it: who knows the output has run it.
COMMAND: Final = "echo splash-$((6 * 7))"
OUTPUT: Final = "splash-42"
TASK: Final = f"Run the shell command `{COMMAND}` and tell me what it printed."
REPORT: Final = "The tool printed:"

GREETING_ASKED: Final = "Greet me when you are back."
GREETING: Final = "Good morning, I am back."

OVERFLOW_ASKED: Final = "Now read all of it once more."
# Claude Code ends its order to sum up with these words.
COMPACTION_ORDER: Final = "TEXT ONLY"
SUMMARY: Final = "They greeted each other, and all of it was to be read once more."
AFTER_COMPACTION: Final = "I went on after the summary."
