"""What a person's own code prints is no part of a command's answer, and goes to stderr.

A file of agents may say hello as it is imported, and a tool may print what it does; on stdout either
would stand in front of the JSON that a script waits for. So stdout is divided by who writes: convo's
own words go on to where they went, theirs to stderr. A thread that they begin themselves, and a
process of theirs, are not known to be theirs.
"""

import sys
from typing import Any, TextIO, cast

from convo.engine.theirs import THEIRS


class Divided:
    """Stands for stdout: it is stderr for a person's own code."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if THEIRS.get() else self._out, name)


def divide() -> None:
    """From now on divide what this process prints."""
    if not isinstance(sys.stdout, Divided):
        sys.stdout = cast(TextIO, Divided(sys.stdout))
