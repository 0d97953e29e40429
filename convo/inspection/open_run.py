"""A run of agents that stands open in a conversation.

As long as its calls have no output nothing else can be said there: whoever looks at the
conversation has to be told that it goes on with the run, and how.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run whose calls have no output yet.

    waits:   the ids of the calls that a person has to decide on
    paused:  it stopped for a person; otherwise it was in the middle of its calls
    by:      the process that performs it, in words; "" where none does any more
    """

    id: str
    waits: tuple[str, ...] = ()
    paused: bool = False
    by: str = ""

    @property
    def left(self) -> bool:
        """Whether it was in the middle of its calls when its process went away."""
        return not self.paused and not self.by
