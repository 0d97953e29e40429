"""What a conversation is, whoever owns it, as it will be handed over.

A record is a mirror where an endpoint owns the history: the owner's list is read first, what the
record has beyond it is laid behind it, and nothing stands twice. Who made each item is read off the
links that lead through the same places, whichever session they belong to.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from convo.endpoints.contract import Endpoint
from convo.engine.owner_tail import owner_tail
from convo.engine.paging import PAGE, every
from convo.errors import ItemDeleted, Unreachable
from convo.history import HERE, OWNERS, Key, Link, Path, Scope, Strategy, common, root
from convo.inspection import Known
from convo.inspection.document import Document, written
from convo.items import Item
from convo.stores.contract import Store
from convo.strategies import Held, is_answer, reconcile
from convo.strategies.carrying import NOBODY, Maker, Said


@dataclass(frozen=True)
class Source:
    """A conversation that is handed over.

    handle:    what the person called it
    said:      its path, item by item
    held:      the same, with what its owner confirmed
    links:     the calls that are known, on whatever branch
    metadata:  of a conversation at an endpoint
    notes:     what else a person should know, one sentence each
    """

    handle: str
    scope: Scope | None
    model: str | None
    held: Held
    said: tuple[Said, ...]
    name: str | None = None
    instructions: str | None = None
    created_at: float | None = None
    links: tuple[Link, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()

    @property
    def strategy(self) -> Strategy:
        return self.held.strategy

    def without_secrets(self, document: Document) -> "Source":
        """The same with the items, name and instructions of `document`; what it says nothing of is left out."""
        said = tuple(replace(one, item=item) for one, item in zip(self.said, document.items, strict=True))
        named = document.name if document.name == self.name else None
        return replace(self, said=said, name=named, instructions=document.instructions, metadata={}, links=())

    def document(self) -> Document:
        """The same, as a file can hold it."""
        path = self.held.path
        return Document(
            items=path.items,
            acknowledged=path.place(self.held.mark),
            name=self.name,
            model=self.model,
            instructions=self.instructions,
            created_at=self.created_at,
            links=written(self.links, path),
        )


async def taken(known: Known, store: Store, endpoint: Endpoint | None = None) -> Source:
    """What `known` holds, compared with its owner where that is possible.

    endpoint:  of the owner, where it remembers; None: the record is taken at its word
    raises:    ItemDeleted  the history needs an item that is gone;  what the endpoint answers
    """
    handle = _handle(known)
    held, notes = Held(known.strategy, known.path, known.mark, handle), list(known.notes)
    metadata: Mapping[str, str] = {}
    if known.strategy is Strategy.CONVERSATION and handle and endpoint:
        held, metadata, told = await _at_owner(held, store, endpoint, whole=known.lost is None)
        notes = [*notes, *told] if known.lost is None else told
    elif known.lost:
        raise ItemDeleted(known.lost)
    elif known.strategy is Strategy.CHAIN and endpoint and known.session and held.unacknowledged:
        held = reconcile(held, (await owner_tail(held, endpoint, store)).items)
    links = [*known.links, *await _through(store, held.path)]
    return Source(
        handle=known.handle,
        scope=known.scope,
        model=known.model,
        held=held,
        said=_said(held, links, known.scope),
        name=known.session.name if known.session else None,
        instructions=_instructions(known),
        created_at=known.session.created_at if known.session else None,
        links=tuple(links),
        metadata=metadata,
        notes=tuple(notes),
    )


def _handle(known: Known) -> str | None:
    """The owner's name for it."""
    if known.session:
        return known.session.handle
    return known.handle if OWNERS[known.strategy].remembers else None


def _instructions(known: Known) -> str | None:
    """What is said with every turn: by the record, else by the last link."""
    if known.session:
        return known.session.instructions
    at = next((link for link in known.links if link.id == known.at), None)
    said = at.parameters.get("instructions") if at else None
    return said if isinstance(said, str) else None


Owned = tuple[Held, Mapping[str, str], list[str]]


async def _at_owner(held: Held, store: Store, endpoint: Endpoint, *, whole: bool) -> Owned:
    """The conversation as its endpoint has it, and behind it what only the record has."""
    handle = held.handle or ""
    try:
        resource = await endpoint.conversation(handle)
        theirs = await _items(handle, store, endpoint)
    except Unreachable as failure:
        if not whole:
            raise
        return held, {}, [f"{failure.message}; this is the local mirror"]
    ours = held.path.upto(held.mark).items
    if common(ours, theirs) == len(ours):
        held = reconcile(held, theirs[len(ours) :])
        notes = []
    else:
        confirmed = Path(root(store.tenant)).grow(theirs)
        waiting = [node.item for node in held.unacknowledged]
        held = replace(held, path=confirmed.grow(waiting), mark=confirmed.head)
        notes = ["the record and the conversation differ; the conversation is right"]
    return held, resource.get("metadata") or {}, notes


async def _items(conversation_id: str, store: Store, endpoint: Endpoint) -> Sequence[Item]:
    """The items of a conversation, as our own rows keep them or as their endpoint lists them."""
    found = await store.conversation(conversation_id) if endpoint.scope == HERE else None
    if found:
        return (await store.path(found.head)).items
    return await every(lambda after: endpoint.conversation_items(conversation_id, after=after, limit=PAGE, order="asc"))


# -- who made what --------------------------------------------------------------------------------


async def _through(store: Store, path: Path) -> Sequence[Link]:
    """The links whose answer begins on this path: behind what the model was told."""
    keys, answer = (path.root, *path.keys), [False, *(is_answer(node.item) for node in path.nodes)]
    ends = [key for key, before, then in zip(keys, answer, answer[1:], strict=False) if then and not before]
    return await store.answers(*ends)


def _said(held: Held, links: Sequence[Link], scope: Scope | None) -> tuple[Said, ...]:
    made = _makers(held.path, links)
    confirmed = held.path.place(held.mark)
    there = Maker(scope) if held.remembers else NOBODY
    return tuple(
        Said(node.item, made.get(node.key, there), confirmed=at < confirmed) for at, node in enumerate(held.path.nodes)
    )


def _makers(path: Path, links: Sequence[Link]) -> dict[Key, Maker]:
    """Who answered what of this path, by place."""
    keys = path.keys
    depth = {key: at for at, key in enumerate(keys, 1)} | {path.root: 0}
    found: dict[Key, Maker] = {}
    for link in links:
        if link.head in depth and link.saw in depth:
            answered = keys[depth[link.saw] : depth[link.head]]
            found |= dict.fromkeys(answered, Maker(link.scope, link.model))
    return found
