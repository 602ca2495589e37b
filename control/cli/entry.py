"""The command `splash` from its first moment: Ctrl-C ends it quietly, also while its modules are still being read.

It imports nothing before it is ready for that, and knows no command.
"""

import sys

# What a shell expects of a program that Ctrl-C has ended.
INTERRUPTED = 130


def main() -> None:
    try:
        from control.cli.app import main as run

        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
