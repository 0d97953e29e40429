"""Where the tokens that a model saw came from, request by request.

What a request shows the model is one row of tokens, the oldest first. What travelled in it is always
the end of that row: whoever owns the history puts the rest in front. What came from the prompt cache is
always its beginning. So two marks on a row say all of it, and the two may overlap: a whole
history that is sent again travels, and most of it is read from the cache.
"""

from collections.abc import Sequence
from typing import NamedTuple

from convo.inspection.figures import Figures


class Cell(NamedTuple):
    """A piece of a row: whether it travelled, and whether the cache held it."""

    sent: bool
    cached: bool


class Share(NamedTuple):
    """One request, in tokens; `sent` and `cached` are parts of `seen`.

    seen:  as the endpoint reported it; None where it did not
    sent:  an estimate, but for a request that held everything; None where its items are not known
    """

    seen: int | None = None
    sent: int | None = None
    cached: int = 0

    def cells(self, room: int, most: int) -> tuple[Cell, ...]:
        """The row in cells, as many as `room` where `most` tokens were seen; never none for something."""
        if not self.seen:
            return ()
        count = max(1, round(room * self.seen / most))
        cached = round(count * self.cached / self.seen)
        sent = max(1, round(count * self.sent / self.seen)) if self.sent else 0
        return tuple(Cell(at >= count - sent, at < cached) for at in range(count))


def share(was: Figures) -> Share:
    """Where the tokens of one request came from."""
    if was.used is None:
        return Share()
    seen = was.used.input
    sent = seen if was.full else None if was.sent_tokens is None else min(was.sent_tokens, seen)
    return Share(seen, sent, min(was.used.cached, seen))


def most(shares: Sequence[Share]) -> int:
    """The tokens of the longest row; 0 where none is known."""
    return max((one.seen or 0 for one in shares), default=0)
