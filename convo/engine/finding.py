"""What a handle names, as the store knows it.

A handle is a response, a conversation, a session's name or id, a run of agents, a unique beginning
of one of these, or `@last`. A name wins over a beginning, and a beginning that fits several things is
refused with the list of them.
"""

import os

from convo.engine.glance import others_answered
from convo.engine.naming import SCRATCH
from convo.errors import AmbiguousHandle, ItemDeleted, NotFound, Usage
from convo.history import Link, Session, Strategy, root
from convo.items import is_assistant, is_output, kind
from convo.stores.contract import Conversation, Found, Store
from convo.strategies import at_turn, check_handle, kind_of

LAST = "@last"

WORDS = {Strategy.CHAIN: "response", Strategy.CONVERSATION: "conversation"}


async def find(store: Store, handle: str) -> Found:
    """The one thing that `handle` names. raises: NotFound, AmbiguousHandle, Usage"""
    if not handle:
        raise Usage("an empty handle names nothing", hint="convo sessions")
    if handle == LAST:
        return _as_found(await last_used(store))
    session = await store.session(handle)
    if session:
        return _as_found(session)
    check_handle(handle)
    found = await store.find(handle)
    exact = [one for one in found if one.id == handle]
    if len(exact or found) > 1:
        raise AmbiguousHandle(handle, [(one.id, f"{one.kind}  {one.words}") for one in found])
    if not found:
        raise NotFound(WORDS.get(kind_of(handle), "session"), handle)
    return (exact or found)[0]


async def last_used(store: Store) -> Session:
    """The session used last; those of a running or killed command do not count. raises: NotFound  there is none yet"""
    for session in await store.sessions(limit=1):
        if not session.name.startswith(SCRATCH):
            return session
    for session in await store.sessions():
        if not session.name.startswith(SCRATCH):
            return session
    raise NotFound("session", LAST, hint=await others_answered(store) or 'convo chat "hello"')


async def last_answered(store: Store) -> Session:
    """The session used last among those with an answer or a history; the session used last where none has one.

    A session whose first turn failed holds its unconfirmed input alone.
    raises:  NotFound  there is no session
    """
    for session in await store.sessions():
        if session.name.startswith(SCRATCH):
            continue
        if session.link or session.mark != root(store.tenant) or await _has_answer(store, session):
            return session
    return await last_used(store)


async def _has_answer(store: Store, session: Session) -> bool:
    """Whether something besides user input is on the session's path: a partial answer, for instance."""
    try:
        path = await store.path(session.head)
    except ItemDeleted:
        return True
    return any(is_assistant(item) if kind(item) == "message" else not is_output(item) for item in path.items)


async def the_session(store: Store, handle: str) -> Session:
    """The session that `handle` names. raises: as `find`; NotFound  it names something else"""
    found = await find(store, handle)
    session = await store.session(found.id) if found.kind == "session" else None
    if session is None:
        raise NotFound("session", handle)
    return session


async def session_of_run(store: Store, run_id: str) -> Session:
    """The session whose conversation a run of agents works on. raises: NotFound"""
    run = await store.agent_run(run_id)
    session = await store.session(run.session) if run else None
    if session is None:
        raise NotFound("run", run_id, hint="convo approvals")
    return session


async def by_handle(store: Store, strategy: Strategy, handle: str) -> Session | None:
    """The session used last whose record stands at `handle`: `conv_...`, `resp_...` or an absolute path."""
    for session in await store.sessions():
        if session.strategy is strategy and session.handle == handle:
            return session
    return None


def absolute(place: str) -> str:
    """The path of a replay file as records keep it."""
    return os.path.abspath(os.path.expanduser(place))


async def with_turn(store: Store, handle: str) -> tuple[str, int | None]:
    """A handle, and the number of the turn behind its @. A name or a file that ends so is no turn of another."""
    whole, number = at_turn(handle)
    if number is None or _is_there(handle) or await store.session(handle):
        return handle, None
    return whole, number


def _is_there(place: str) -> bool:
    return os.path.lexists(absolute(place))


async def the_link(store: Store, response_id: str) -> Link:
    """raises: NotFound"""
    link = await store.link(response_id)
    if link is None:
        raise NotFound("response", response_id)
    return link


async def the_conversation(store: Store, conversation_id: str) -> Conversation:
    """raises: NotFound"""
    conversation = await store.conversation(conversation_id)
    if conversation is None:
        raise NotFound("conversation", conversation_id)
    return conversation


def _as_found(session: Session) -> Found:
    return Found("session", session.id, session.name)
