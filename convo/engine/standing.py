"""Where a run stands in its conversation, beside what the machine knows.

The conversation keeps everything. What a model is sent may be something else where the client owns
the history: a summary after a handoff, the newest items of a long session. That is a path of its
own in the tree, on which the links of those calls stand, and it grows as the conversation does. In
the run's row it is named by a place once a link stands there, and written out until then.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from convo.history import Key, Path
from convo.items import Item, Json
from convo.stores.contract import Store
from convo.strategies import Held


@dataclass(frozen=True, slots=True)
class View:
    """What the model sees in place of the conversation.

    path:     its items
    history:  how many of them were there when it was made
    upto:     the conversation's node up to which it stands for it
    anchor:   a place on `path` where a link stands, and the conversation's node that it stands for
    """

    path: Path
    history: int
    upto: Key
    anchor: tuple[Key, Key] | None = None

    def behind(self, path: Path) -> "View":
        """The same, with what the conversation has behind `upto`. raises: Conflict  it does not pass through it"""
        more = [node.item for node in path.after(self.upto)]
        return replace(self, path=self.path.grow(more), upto=path.head)


def view_of(items: Iterable[Item], path: Path) -> View:
    """`items`, in place of all of `path`."""
    seen = Path(path.root).grow(items)
    return View(seen, len(seen), path.head)


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands.

    begun:     the last node of its input
    turn:      the last node before the newest answer, or where it will stand
    view:      None: the model sees the conversation itself
    filtered:  the head whose unconfirmed items an input filter has made already, and its instructions
    """

    begun: Key
    turn: Key
    view: View | None = None
    filtered: tuple[Key, str | None] | None = None


def unanswered(held: Held, standing: Standing) -> Held:
    """The conversation without what a stopped answer left of itself."""
    turn = standing.turn
    own = held.path.passes(turn) and held.path.upto(turn).passes(held.mark)
    return replace(held, path=held.path.upto(turn)) if own else held


def written(standing: Standing) -> dict[str, Json]:
    """`standing` as a run's row keeps it."""
    view = standing.view
    return {
        "begun": standing.begun,
        "turn": standing.turn,
        "filtered": list(standing.filtered) if standing.filtered else None,
        "view": _written(view) if view else None,
    }


def _written(view: View) -> dict[str, Json]:
    if view.anchor:
        return {"head": view.anchor[0], "upto": view.anchor[1], "history": view.history}
    return {"items": [dict(item) for item in view.path.items], "upto": view.upto, "history": view.history}


async def read(said: Mapping[str, Any] | None, path: Path, store: Store) -> Standing:
    """What a row keeps, over the conversation at `path`. raises: NotFound, ItemDeleted"""
    if said is None:
        return Standing(path.head, path.head)
    view, filtered = said["view"], said["filtered"]
    made = await _read(view, path, store) if view else None
    return Standing(said["begun"], said["turn"], made, (filtered[0], filtered[1]) if filtered else None)


async def _read(said: Mapping[str, Any], path: Path, store: Store) -> View | None:
    upto = said["upto"]
    if not path.passes(upto):  # a person changed the file that it was made of
        return None
    if "items" in said:
        return View(Path(path.root).grow(said["items"]), said["history"], upto)
    return View(await store.path(said["head"]), said["history"], upto, (said["head"], upto))
