"""Reads all that the store knows of one handle, and changes nothing.

Links say where they stand and the store gives paths, so a path is read only when a link stands
on none that was read before: one for each fork, however long the history.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from convo.engine.finding import absolute, by_handle, find, session_of_run, the_conversation, the_link, the_session
from convo.engine.item_file import read_items
from convo.engine.open_runs import open_run
from convo.engine.replay_file import ReplayFile
from convo.errors import AmbiguousHandle, ItemDeleted, NotFound, Unreadable
from convo.history import HERE, OWNERS, Key, Link, Path, Session, Strategy, root
from convo.inspection import Known, Places, drift, strung
from convo.stores.contract import Store
from convo.strategies import kind_of

ANSWERED = ("completed", "incomplete")


async def look(store: Store, handle: str, *, files: bool = True) -> Known:
    """What the store knows of what `handle` names.

    files:   also read the file that owns a conversation; without, its record is shown
    raises:  NotFound, AmbiguousHandle, Usage  as `find`
    """
    try:
        found = await find(store, handle)
    except NotFound:
        session = await mirror_at(store, handle)
        if session is None:
            raise
        return replace(await of_session(store, session, files=files), handle=session.handle or session.name)
    if found.kind in SESSIONS:
        return await of_session(store, await SESSIONS[found.kind](store, found.id), files=files)
    return await KINDS[found.kind](store, found.id)


async def look_at_file(store: Store, place: str) -> Known:
    """What is known of the file of items at `place`; its record's links, where it has one.

    raises:  NotFound, Unreadable
    """
    file = ReplayFile(place)
    if not file.exists():
        raise NotFound("file", place, hint="convo sessions")
    session = await by_handle(store, Strategy.REPLAY, absolute(place))
    if session:
        return replace(await of_session(store, session), handle=place)
    path = Path(root(store.tenant)).grow(read_items(place).items)
    places = Places(path.root)
    places.add(path)
    return Known(place, Strategy.REPLAY, None, path, path.head, (), places)


async def mirror_at(store: Store, handle: str) -> Session | None:
    """The session used last that mirrors the endpoint's handle which begins like this.

    raises:  AmbiguousHandle  several handles do
    """
    strategy = kind_of(handle)
    if not OWNERS[strategy].remembers:
        return None
    begun = [
        one for one in await store.sessions() if one.strategy is strategy and (one.handle or "").startswith(handle)
    ]
    exact = [one for one in begun if one.handle == handle] or begun
    if len({one.handle for one in exact}) > 1:
        raise AmbiguousHandle(handle, [(one.handle or "", f"{one.strategy}  {one.name}") for one in exact])
    return exact[0] if exact else None


async def of_session(store: Store, session: Session, *, files: bool = True) -> Known:
    """A session's record, its links and every fork of them; `files` as for `look`."""
    held = await (READ[session.strategy] if files else READ_HERE[session.strategy])(store, session)
    made = await store.links(session.id)
    links = await _kin(store, made, [*filter(None, [session.link]), *(link.id for link in made)])
    others = await _others(store, session)
    places = await _places(store, held.path, [*links, *others])
    return Known(
        handle=session.name or session.id,
        strategy=session.strategy,
        scope=session.scope,
        path=held.path,
        mark=held.mark,
        links=strung(_each([*links, *others]), places) if others else links,
        places=places,
        at=session.link,
        session=session,
        names=await _names(store, [*links, *others]),
        notes=held.notes,
        lost=held.lost,
        run=await open_run(store, session),
    )


async def of_link(store: Store, link_id: str) -> Known:
    """A response, and every response that it is kin to."""
    link = await the_link(store, link_id)
    links = await _kin(store, [link], [link_id])
    held = await _held(store, link.head, link.head)
    places = await _places(store, held.path, links)
    unheard = link.status not in ANSWERED and link.saw in places
    return Known(
        handle=link.id,
        strategy=link.strategy,
        scope=link.scope,
        path=held.path,
        mark=places.start(link.saw, link.sent) if unheard and not held.lost else held.mark,
        links=links,
        places=places,
        at=link.id,
        names=await _names(store, links),
        notes=held.notes,
        lost=held.lost,
    )


async def of_conversation(store: Store, conversation_id: str) -> Known:
    """A conversation of our own endpoint, and the responses that went through it."""
    conversation = await the_conversation(store, conversation_id)
    path = await store.path(conversation.head)
    through = await _through(store, conversation_id, path)
    session = await by_handle(store, Strategy.CONVERSATION, conversation_id)
    if session:  # it also knows the links to what was deleted since
        through = _each([*through, *await store.links(session.id)])
    places = await _places(store, path, through)
    links = strung(through, places)
    return Known(
        handle=conversation_id,
        strategy=Strategy.CONVERSATION,
        scope=HERE,
        path=path,
        mark=path.head,
        links=links,
        places=places,
        at=next((link.id for link in reversed(links) if link.status in ANSWERED), None),
        names=await _names(store, links),
    )


SESSIONS: dict[str, Callable[[Store, str], Awaitable[Session]]] = {
    "session": the_session,
    "run": session_of_run,
}
"""Which session each kind of thing is that stands for one."""

KINDS: dict[str, Callable[[Store, str], Awaitable[Known]]] = {
    "response": of_link,
    "conversation": of_conversation,
}
"""How to read each other kind of thing that a handle names."""


# -- what a record holds, compared with its owner where that can be done here ----------------------


@dataclass(frozen=True)
class Held:
    """What a record holds: the path, what of it is confirmed, what a person should know, what cannot be read."""

    path: Path
    mark: Key
    notes: tuple[str, ...] = ()
    lost: Key | None = None


async def _held(store: Store, head: Key, mark: Key) -> Held:
    try:
        return Held(await store.path(head), mark)
    except ItemDeleted as gone:
        empty = Path(root(store.tenant))
        return Held(empty, empty.head, (gone.message,), head)


async def _as_recorded(store: Store, session: Session) -> Held:
    return await _held(store, session.head, session.mark)


async def _as_in_file(store: Store, session: Session) -> Held:
    """The file owns the conversation: when people edited it, what it says is what was said."""
    held, file = await _as_recorded(store, session), ReplayFile(session.handle or "")
    if not file.exists():
        return replace(held, notes=(f"{file.place} is not there; this is what the record says was in it",))
    try:
        items = file.read()
    except Unreadable as wrong:
        return replace(held, notes=(f"{wrong.message}; this is what the record says was in it",))
    now = Path(held.path.root).grow(items)
    if now.head in (session.written or held.path.root, held.path.head):
        return held
    differs = drift(held.path.items, items, "the file")
    return Held(now, now.head, (f"{differs}: it was edited",) if differs else ())


async def _as_in_conversation(store: Store, session: Session) -> Held:
    held = await _as_recorded(store, session)
    if session.scope != HERE or not session.handle or held.lost:
        return held
    conversation = await store.conversation(session.handle)
    if conversation is None:
        return replace(held, notes=(f"{session.handle} is gone; this is the record's own copy",))
    theirs = await store.path(conversation.head)
    differs = drift(held.path.upto(held.mark).items, theirs.items, "the conversation")
    return replace(held, notes=(differs,) if differs else ())


READ: dict[Strategy, Callable[[Store, Session], Awaitable[Held]]] = {
    Strategy.SESSION: _as_recorded,
    Strategy.CHAIN: _as_recorded,
    Strategy.REPLAY: _as_in_file,
    Strategy.CONVERSATION: _as_in_conversation,
}

READ_HERE = {**READ, Strategy.REPLAY: _as_recorded}
"""The same without a look into files."""


# -- links and places ------------------------------------------------------------------------------


async def _kin(store: Store, links: Iterable[Link], seeds: Iterable[str]) -> tuple[Link, ...]:
    """`links`, and all that are kin to one of the `seeds`."""
    found: dict[str, Link] = {}
    for seed in seeds:
        if seed not in found:
            found |= {link.id: link for link in await store.family(seed)}
    return tuple(_each([*found.values(), *links]))


async def _others(store: Store, session: Session) -> list[Link]:
    """The links that anybody made through the session's conversation at our own endpoint."""
    if session.strategy is not Strategy.CONVERSATION or session.scope != HERE or not session.handle:
        return []
    conversation = await store.conversation(session.handle)
    return await _through(store, conversation.id, await store.path(conversation.head)) if conversation else []


async def _through(store: Store, conversation_id: str, path: Path) -> list[Link]:
    """The links that went through a conversation of our own endpoint, as far as its list still leads there."""
    there = frozenset(path.keys)
    return [link for link in await store.conversation_links(conversation_id) if link.saw in there]


def _each(links: Iterable[Link]) -> list[Link]:
    """Every link once, oldest first."""
    return sorted({link.id: link for link in links}.values(), key=lambda link: link.created_at)


async def _places(store: Store, path: Path, links: Sequence[Link]) -> Places:
    """Every place that a link stands on; a path that lost an item is left out."""
    places = Places(path.root)
    places.add(path)
    for link in reversed(links):
        for key in (link.head, link.saw):
            if key not in places:
                with suppress(NotFound, ItemDeleted):
                    places.add(await store.path(key))
    return places


async def _names(store: Store, links: Sequence[Link]) -> dict[str, str]:
    """The names of the sessions that made the links, by id."""
    ids = {link.session for link in links if link.session}
    found = [await store.session(one) for one in ids]
    return {session.id: session.name for session in found if session}
