"""Going back to any place between two turns. Heads move, nothing is lost.

Whoever owns the history decides what going back means. A client cuts its own path. A chain goes on
from the response that stood there, and the next turn forks. A conversation is one list at its
endpoint: what it confirmed cannot be taken back from here, only what it has not.
"""

from dataclasses import replace

from convo.errors import Usage, WrongOwner
from convo.history import Link, Strategy
from convo.strategies.branching import floor
from convo.strategies.held import Held


def rewind(held: Held, at: int, began: Link | None) -> Held:
    """`held` as it stood after its first `at` nodes.

    at:      between two turns
    began:   the link that went on from there, where there is one
    raises:  WrongOwner  a conversation has confirmed what stands behind it
             Usage       nothing stands behind it, it lies before a compaction, or a chain has no response there
    """
    if at == len(held.path):
        raise Usage("nothing stands behind that turn", hint="/rewind N, with an earlier one")
    path = held.path.first(at)
    if at < floor(held.path):
        raise Usage("what was said before a compaction is another branch", hint="convo inspect shows it")
    if at >= held.path.place(held.mark):
        return replace(held, path=path)
    if held.strategy is Strategy.CONVERSATION:
        raise WrongOwner(
            "these turns belong to the conversation at its endpoint and cannot be taken back here",
            hint=f"convo convert {held.handle} --to session, and take them back there",
        )
    if held.strategy is Strategy.CHAIN:
        return _on_a_chain(held, at, began)
    return replace(held, path=path, mark=path.head)


def _on_a_chain(held: Held, at: int, began: Link | None) -> Held:
    """A chain goes on from the response that ended there; one that began behind it begins anew, and says all again."""
    path = held.path.first(at)
    if at == 0 or (began is not None and began.previous_response_id is None):
        return replace(held, path=path, mark=path.root, handle=None)
    if began is None or held.path.place(began.saw) - began.sent != at:
        raise Usage("no response of this chain ends there", hint="convo inspect shows where they end")
    return replace(held, path=path, mark=path.head, handle=began.previous_response_id)
