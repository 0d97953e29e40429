"""Where the `convo` command begins.

A version is asked for by scripts and by people who are in doubt, so it is complete from the
words alone, before anything is imported that takes time. A shell that asks what could come next
gets its answer without the rest of the command line. Everything else goes to `convo.cli.app`.
"""

import gc
import os
import sys

from convo import __version__

GC_THRESHOLD = 20_000
"""New objects after which Python looks for garbage. Imports make many and drop none, and to look
after every 700 of them takes a twentieth of a short command's time.
"""


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    argv = sys.argv[1:]
    if argv == ["--version"]:
        sys.stdout.write(f"convo {__version__}\n")
        return 0
    gc.set_threshold(GC_THRESHOLD)
    code = complete(argv) if "_CONVO_COMPLETE" in os.environ else run(argv)
    gc.freeze()  # what is left goes with the process: to look through it once more takes a tenth of the time
    return code


def complete(argv: list[str]) -> int:
    """Tell a shell what could come next."""
    from convo.cli.completion import print_completions

    return print_completions(argv)


def run(argv: list[str]) -> int:
    """Do what the words ask for."""
    from convo.cli.app import run_command_line

    return run_command_line(argv)


if __name__ == "__main__":
    sys.exit(main())
