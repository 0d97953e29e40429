"""What a strategy decides over, and what it decides.

The one value between a record and the decisions about it. What an owner has not confirmed is not
marked anywhere: it is what stands behind the mark, so a turn that failed has nothing to undo.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from convo.history import OWNERS, Key, Node, Path, Strategy
from convo.items import Item, Json, is_assistant, is_output, kind


@dataclass(frozen=True)
class Held:
    """A conversation as one side of it is known here.

    path:    everything said, the input of the coming turn included
    mark:    the last node that the owner confirmed; what follows is unacknowledged
    handle:  the `conv_...` or `resp_...` to go on from; None before there is one
    """

    strategy: Strategy
    path: Path
    mark: Key
    handle: str | None = None

    @property
    def unacknowledged(self) -> tuple[Node, ...]:
        """The nodes after the mark. raises: Conflict  the path no longer passes through it"""
        return self.path.after(self.mark)

    @property
    def remembers(self) -> bool:
        """Whether the owner holds the history itself."""
        return OWNERS[self.strategy].remembers


def answered(held: Held) -> int:
    """How many nodes lead up to the last whole answer behind the mark; 0 where none stands there.

    Behind a mark stands what was said and not confirmed. Only a new root begins with answers, too:
    a history that another owner had.
    """
    confirmed = held.path.place(held.mark)
    return next((at for at in range(len(held.path), confirmed, -1) if is_answer(held.path.nodes[at - 1].item)), 0)


def is_answer(item: Item) -> bool:
    """Whether only a model can have said it, and has said all of it."""
    from_client = is_output(item) or (kind(item) == "message" and not is_assistant(item))
    return not from_client and item.get("status") in (None, "completed")


@dataclass(frozen=True, slots=True)
class Sent:
    """What one turn sends.

    items:  the request's input, in the form in which it travels
    nodes:  how many nodes at the end of the path it stands for
    state:  the request's fields that name the state: previous_response_id, conversation, store, include
    """

    items: Sequence[Item]
    nodes: int
    state: Mapping[str, Json]
