"""Entry point of the `convo` command.

`--version` is answered from the arguments alone, before any slow import: scripts ask for it, and
users with a broken installation. A shell completion does not load the rest of the command line.
`convo.cli.app` runs everything else.
"""

import gc
import os
import sys

from convo import __version__

GC_THRESHOLD = 200_000
"""New objects before a garbage collection. Imports make many objects and drop none: a collection of
the first 50,000 takes a twentieth of a short command's time, and 50,000 is what `convo inspect` makes.
Commands that run for hours collect more often, see `convo.runtime.collect_garbage_often`.
"""


INTERRUPTED_EXIT_CODE = 130


def main() -> int:
    """Run the command line of this process; return the exit code."""
    argv = sys.argv[1:]
    if argv == ["--version"]:
        sys.stdout.write(f"convo {__version__}\n")
        return 0
    gc.set_threshold(GC_THRESHOLD)
    code, is_ignored = INTERRUPTED_EXIT_CODE, False
    try:
        import signal

        is_ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        code = complete(argv) if "_CONVO_COMPLETE" in os.environ else run(argv)
        gc.freeze()  # a last collection before the exit would take a tenth of the time
    except KeyboardInterrupt:  # outside the command, which reports its own: an import, or a second Ctrl-C
        code = INTERRUPTED_EXIT_CODE
    finally:
        if not is_ignored:
            try:
                end_process_on_interrupt()
            except KeyboardInterrupt:  # one more, just now
                end_process_on_interrupt()
    return code


def end_process_on_interrupt() -> None:
    """Let a later SIGINT end the process at once: the interpreter's exit would print a traceback."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_DFL)


def complete(argv: list[str]) -> int:
    """Print completions for a shell."""
    from convo.cli.completion import print_completions

    return print_completions(argv)


def run(argv: list[str]) -> int:
    """Run a command."""
    from convo.cli.app import run_command_line

    return run_command_line(argv)


if __name__ == "__main__":
    sys.exit(main())
