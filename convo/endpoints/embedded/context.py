"""Where a request goes on from: the history before it, and what the request adds.

A response that nobody knows, that was deleted, that another tenant made or that was made with
`store=false` is not there, and the answer does not tell which. One that failed is there and has no
answer to go on from; one that was cancelled has the part that was kept.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from convo.endpoints.embedded import refusals
from convo.endpoints.embedded.inputs import reference
from convo.endpoints.embedded.listing import ids_of, own_id
from convo.endpoints.embedded.requests import Request
from convo.errors import NotFound
from convo.history import HERE, Key, Link, Path, root
from convo.items import Item
from convo.stores.contract import Conversation, Store

CONTINUES = ("completed", "incomplete", "cancelled")
"""How a response ended that another one may go on from."""


@dataclass(frozen=True)
class Before:
    """The history that the endpoint puts before a request.

    ids:  of each item on `path`; none where the request names no item
    """

    path: Path
    ids: tuple[str, ...] = ()
    previous: Link | None = None
    conversation: Conversation | None = None


async def before(request: Request, store: Store) -> Before:
    """What the endpoint holds for `request`.

    raises:  Refused      there is no such previous response
             NotFound     there is no such conversation
             ItemDeleted  an item of that history was deleted
    """
    if request.conversation:
        conversation = await the_conversation(store, request.conversation)
        return Before(await store.path(conversation.head), conversation.ids, conversation=conversation)
    if request.previous is None:
        return Before(Path(root(store.tenant)))
    link = await kept(store, request.previous)
    if link is None:
        raise refusals.no_previous(request.previous)
    if link.status not in CONTINUES:
        raise refusals.not_answered(link.id, link.status)
    path = await store.path(link.head)
    ids = await ids_in(store, link, path) if any("id" in item for item in request.items) else ()
    return Before(path, ids, previous=link)


async def referred(items: Sequence[Item], known: Sequence[str], store: Store) -> Mapping[str, Item]:
    """What the references among `items` stand for, by id; without those to items that are `known` already.

    raises:  Refused  a reference to nothing
    """
    found: dict[str, Item] = {}
    for wanted in (named for named in map(reference, items) if named is not None):
        item = None if wanted in known else await store.item(wanted)
        if item is not None:
            found[wanted] = item
        elif wanted not in known:
            raise refusals.no_item(wanted)
    return found


def added(items: Sequence[Item], known: Sequence[str], found: Mapping[str, Item]) -> tuple[Item, ...]:
    """What `items` add to a history whose items have the ids in `known`.

    A reference to an item that the history holds already adds nothing: it stands there.

    found:   what the other references stand for
    raises:  Refused  an item that is there already
    """
    there, joining = set(known), []
    for item in items:
        wanted = reference(item)
        if wanted is not None and wanted in there:
            continue
        whole = item if wanted is None else found[wanted]
        _check_new(wanted or own_id(whole), there)
        joining.append(whole)
    return tuple(joining)


async def kept(store: Store, response_id: str) -> Link | None:
    """The link of a response that this endpoint keeps.

    The store has links of other endpoints and of attempts without a response too.
    """
    link = await store.link(response_id)
    ours = link and link.stored and link.scope == HERE and link.id.startswith("resp_")
    return link if ours else None


async def the_response(store: Store, response_id: str) -> Link:
    """raises: NotFound"""
    link = await kept(store, response_id)
    if link is None:
        raise NotFound("response", response_id)
    return link


async def the_conversation(store: Store, conversation_id: str) -> Conversation:
    """raises: NotFound"""
    conversation = await store.conversation(conversation_id)
    if conversation is None:
        raise NotFound("conversation", conversation_id)
    return conversation


async def ids_in(store: Store, link: Link, path: Path) -> tuple[str, ...]:
    """The ids of the items on a response's path; those of its conversation as they are called there."""
    given: dict[Key, str] = {}
    conversation = await store.conversation(link.conversation_id) if link.conversation_id else None
    if conversation:
        keys: Iterable[Key] = (await store.path(conversation.head)).keys
        given = dict(zip(keys, conversation.ids, strict=True))
    return ids_of(path, given)


def _check_new(item_id: str | None, known: set[str]) -> None:
    if item_id is None:
        return
    if item_id in known:
        raise refusals.duplicate(item_id)
    known.add(item_id)
