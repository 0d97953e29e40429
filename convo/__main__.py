"""Where the `convo` command begins.

A version is asked for by scripts and by people who are in doubt, so it is answered from the
words alone, before anything is imported that takes time. A shell that asks what could come next
gets its answer without the rest of the command line. Everything else goes to `convo.cli.app`.
"""

import gc
import os
import sys

from convo import __version__

OBJECTS = 20_000
"""New objects after which Python looks for garbage. Imports make many and drop none, and to look
after every 700 of them takes a twentieth of a short command's time.
"""


def main() -> int:
    """Run the command line of this process; returns the exit code."""
    argv = sys.argv[1:]
    if argv == ["--version"]:
        sys.stdout.write(f"convo {__version__}\n")
        return 0
    gc.set_threshold(OBJECTS)
    code = answered(argv) if "_CONVO_COMPLETE" in os.environ else performed(argv)
    gc.freeze()  # what is left goes with the process: to look through it once more takes a tenth of the time
    return code


def answered(argv: list[str]) -> int:
    """Tell a shell what could come next."""
    from convo.cli.completions import answer

    return answer(argv)


def performed(argv: list[str]) -> int:
    """Do what the words ask for."""
    from convo.cli.app import run

    return run(argv)


if __name__ == "__main__":
    sys.exit(main())
