"""Notices: lines that code below the command line has for the user.

The command line decides where they go. Without a sink, as in a shell's completion or in a program
that imports convo, they go nowhere: the value that they describe carries the same text.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeAlias

Sink: TypeAlias = Callable[[str], None]

_SINK: ContextVar[Sink | None] = ContextVar("notices", default=None)


def notify(line: str) -> None:
    """Hand one line, without its line break, to the sink."""
    sink = _SINK.get()
    if sink is not None:
        sink(line)


@contextmanager
def notices_to(sink: Sink) -> Iterator[None]:
    """Send notices to `sink` while the block runs; a repeated line is sent once."""
    sent: set[str] = set()

    def once(line: str) -> None:
        if line not in sent:
            sent.add(line)
            sink(line)

    token = _SINK.set(once)
    try:
        yield
    finally:
        _SINK.reset(token)
