"""Resolve handles, and report the conversations of a store.

A handle is a response, a conversation, a session's name or id, an agent run, a unique prefix of one
of these, `@last` or `@recorded`. A name wins over a prefix; an ambiguous prefix raises AmbiguousHandle. Commands that
read accept words of a session's name, too; what is deleted or changed is named in full (`load_named_session`).
"""

import os
import re
from collections.abc import Awaitable
from shlex import quote
from typing import TypeVar

from convo.config.values import find_closest_word
from convo.errors import AmbiguousHandle, DamagedRow, InvalidUsage, ItemDeleted, NotFound
from convo.history.accumulator import ResponseAccumulator
from convo.history.items import (
    Item,
    item_text,
)
from convo.history.records import (
    IMPORT_USE_ORDER,
    RECORDED_SESSION_PREFIX,
    RECORDING_PARAMETER,
    SCRATCH_PREFIX,
    Link,
    Session,
)
from convo.history.request_body import API_PATHS, SentBody, join_request_body
from convo.stores.base import HandleMatch, Store
from convo.strategies.selection import check_handle, is_session_handle, owner_of_handle, parse_turn_handle
from convo.strategies.strategy import STRATEGIES

Result = TypeVar("Result")

LAST_HANDLE = "@last"
"""The session used last, without those that were recorded from other clients."""

RECORDED_HANDLE = "@recorded"
"""The session whose requests `convo tap` or `convo serve --record` recorded last."""

FILE_SUFFIXES = {".json", ".jsonl", ".html", ".md", ".txt"}
"""Suffixes of files that commands read; an unknown handle with one of them was meant as a path."""


async def resolve_handle(store: Store, handle: str) -> HandleMatch:
    """Return the one object that `handle` names. Raises NotFound, AmbiguousHandle, InvalidUsage."""
    if not handle:
        raise InvalidUsage("the handle is empty").replace_hint(NotFound.hint, NotFound.prompt_hint)
    if handle == LAST_HANDLE:
        return _to_found(await load_last_used_session(store))
    if handle == RECORDED_HANDLE:
        return _to_found(await load_last_recorded_session(store))
    session = await store.session(handle)
    if session:
        return _to_found(session)
    check_handle(handle)
    matches = await store.find_handles(handle)
    exact_matches = [match for match in matches if match.id == handle]
    if len(exact_matches or matches) > 1:
        raise AmbiguousHandle(handle, [(match.id, f"{match.kind}  {match.label}") for match in matches])
    if not matches:
        raise await _make_unknown_handle_error(store, handle)
    return (exact_matches or matches)[0]


async def has_handle(store: Store, handle: str) -> bool:
    """Return whether the store has an object with this handle. Raises AmbiguousHandle, InvalidUsage."""
    try:
        await resolve_handle(store, handle)
    except NotFound:
        return False
    return True


_MAX_COMPARED_SESSIONS = 300
"""Number of the newest sessions whose names are compared with an unknown one."""

_MAX_COMPARED_CHARS = 100
"""Characters of a name; longer names are not compared."""


async def _make_unknown_handle_error(store: Store, handle: str) -> NotFound:
    """Return the error for an unknown handle; it names the most similar session, or says that a turn is no session."""
    base_handle, number = parse_turn_handle(handle)
    if number is not None and await has_handle(store, base_handle):
        return NotFound(
            "session",
            handle,
            note=f": a turn of {base_handle} is not a session",
            hint=f"convo chat --fork {quote(handle)} continues after that turn; omit @{number} for the whole session",
        )
    if os.path.splitext(handle)[1] in FILE_SUFFIXES:
        hint = quote(f"./{handle}") if is_session_handle(handle) and is_existing_path(handle) else "check the path"
        return NotFound("session or file", handle, hint=hint)
    noun = "request" if handle.startswith("req_") else STRATEGIES[owner_of_handle(handle)].id_noun
    closest = None
    if base_handle.startswith("@"):
        closest = find_closest_word(base_handle, (LAST_HANDLE, RECORDED_HANDLE)) or LAST_HANDLE
    elif not noun:
        closest = await _find_closest_session_name(store, base_handle)
    return NotFound(noun or "session", handle, note=f"; did you mean {closest!r}?" if closest else "")


async def _find_closest_session_name(store: Store, name: str) -> str | None:
    """Return the newest name with the words of `name`, else the most similar one, else one with a similar word."""
    if len(name) > _MAX_COMPARED_CHARS:
        return None
    if found := await _find_sessions_by_words(store, name):
        return found[0].name
    sessions = await store.sessions(limit=_MAX_COMPARED_SESSIONS)
    stored = [session.name for session in sessions if not session.name.startswith(SCRATCH_PREFIX)]
    names = [each for each in stored if len(each) <= _MAX_COMPARED_CHARS]
    names_by_word = {word: each for each in reversed(names) for word in each.split("-")}
    word = find_closest_word(name, names_by_word, cutoff=0.8)
    return find_closest_word(name, names) or names_by_word.get(word or "")


async def load_session_by_words(store: Store, words: str) -> Session | None:
    """Return the only session whose name has all the words, for a command that reads; None if no name has.

    Raises AmbiguousHandle for several.
    """
    found = await _find_sessions_by_words(store, words)
    if len(found) > 1:
        candidates = [(session.name, "session") for session in found[:MAX_CANDIDATES]]
        raise AmbiguousHandle(words, candidates, hint="add another word of its name")
    return found[0] if found else None


async def _find_sessions_by_words(store: Store, words: str) -> list[Session]:
    wanted = _split_words(words)
    if not wanted or words.startswith(("@", *ID_PREFIXES)):
        return []
    sessions = await store.sessions()
    return [one for one in sessions if not one.name.startswith(SCRATCH_PREFIX) and wanted <= _split_words(one.name)]


def _split_words(text: str) -> set[str]:
    return set(re.findall(r"[^\W_]+", text.casefold()))


MAX_CANDIDATES = 20
"""Sessions that an error lists."""

ID_PREFIXES = ("resp_", "conv_", "ses_", "run_", "req_")
"""Prefixes of ids, whose parts are no words."""


async def load_last_used_session(store: Store) -> Session:
    """Return the session used last, except those of a running or killed command and those recorded from other clients.

    Raises NotFound when there is none, and DamagedRow when it is damaged: no other session is returned instead.
    """
    for session in await store.sessions(limit=1, strict=True):
        if is_own_chat(session):
            return session
    sessions = await store.sessions()
    for session in sessions:
        if is_own_chat(session):
            return session
    is_recorded = any(is_recorded_session(session) for session in sessions)
    hint = f"convo inspect {RECORDED_HANDLE}" if is_recorded else await get_other_clients_hint(store)
    note = "" if sessions or hint else ": there are no conversations yet"
    raise NotFound("session", LAST_HANDLE, note=note, hint=hint or 'convo chat "hello"')


def is_own_chat(session: Session) -> bool:
    """Return whether the session is a chat of this program, and no temporary one, recording or import."""
    is_import = session.use_order == IMPORT_USE_ORDER
    return not session.name.startswith(SCRATCH_PREFIX) and not is_recorded_session(session) and not is_import


def is_recorded_session(session: Session) -> bool:
    """Return whether the session has recorded requests of another client."""
    return session.id.startswith(RECORDED_SESSION_PREFIX)


async def load_last_recorded_session(store: Store) -> Session:
    """Return the recorded session with the newest request. Raises NotFound when there is none."""
    for session in await store.sessions():
        if is_recorded_session(session):
            return session
    raise NotFound(
        "session",
        RECORDED_HANDLE,
        note=": nothing was recorded yet",
        hint="convo tap -- PROGRAM, or convo serve --record",
    )


async def load_session(store: Store, handle: str) -> Session:
    """Return the session that `handle` or words of its name identify, for a command that reads.

    Raises the errors of `resolve_handle`; NotFound also for another kind.
    """
    try:
        match = await resolve_handle(store, handle)
    except NotFound:
        session = await load_session_by_words(store, handle)
        if session is None:
            raise
        return session
    session = await store.session(match.id) if match.kind == "session" else None
    if session is None:
        raise NotFound("session", handle)
    return session


async def load_named_session(store: Store, handle: str) -> Session:
    """Return the session that `handle` names in full, for a command that deletes or changes it.

    A prefix is refused: after `solo` was deleted, it would name `solo-2`. Raises NotFound, which names the session that
    begins with `handle` if there is one, and the errors of `resolve_handle`.
    """
    session = await store.session(handle)
    if session:
        return session
    if handle in ("", LAST_HANDLE, RECORDED_HANDLE):
        return await load_session(store, handle)
    check_handle(handle)
    matches = [match for match in await store.find_handles(handle) if match.kind == "session"]
    if len(matches) != 1:
        raise await _make_unknown_handle_error(store, handle)
    name = matches[0].label or matches[0].id
    raise NotFound("session", handle, note=f"; did you mean {name!r}?")


async def load_session_of_run(store: Store, run_id: str) -> Session:
    """Return the session of an agent run. Raises NotFound."""
    run = await store.agent_run(run_id)
    session = await store.session(run.session_id) if run else None
    if session is None:
        raise NotFound("run", run_id, hint="convo approvals")
    return session


async def find_session_by_handle(store: Store, handle: str) -> Session | None:
    """Return the session used last whose record has `handle`: `conv_...`, `resp_...` or an absolute path."""
    for session in await store.sessions():
        if session.handle == handle:
            return session
    return None


async def read_or_report(store: Store, read: Awaitable[Result]) -> Result | None:
    """Return the result of `read`, one of several reads for a list; None for a damaged row, which is reported."""
    try:
        return await read
    except DamagedRow as error:
        store.report_damaged_row(error)
        return None


async def load_running_text(link: Link, store: Store) -> str:
    """Return the text of a response in progress, as far as the event log has it."""
    accumulator = ResponseAccumulator()
    for event in await store.events(link.id):
        accumulator.add(event)
    return "\n".join(filter(None, map(item_text, accumulator.output)))


async def load_sent_body(store: Store, link: Link) -> SentBody | None:
    """Return the body of a recorded request as its client sent it; None if it is not stored, or cannot be read."""
    recording = link.parameters.get(RECORDING_PARAMETER)
    if link.body_head is None or not isinstance(recording, dict):
        return None
    try:
        path = await read_or_report(store, store.path(link.body_head))
    except (NotFound, ItemDeleted):  # the recording was deleted meanwhile
        return None
    body = join_request_body(path.items) if path is not None else None
    if body is None:
        return None
    protocol = str(recording.get("protocol"))
    headers = recording.get("headers")
    return SentBody(
        protocol,
        str(recording.get("path") or API_PATHS.get(protocol, "")),
        headers if isinstance(headers, dict) else {},
        body,
    )


def to_absolute_path(path: str) -> str:
    """Return the path of a replay file as records store it."""
    return os.path.abspath(os.path.expanduser(path))


async def split_turn_suffix(store: Store, handle: str) -> tuple[str, int | None]:
    """Split a handle from the turn number after its @. A session name or a file that ends so has no turn number."""
    base_handle, number = parse_turn_handle(handle)
    if number is None or is_existing_path(handle) or await store.session(handle):
        return handle, None
    return base_handle, number


def is_existing_path(path: str) -> bool:
    return os.path.lexists(to_absolute_path(path))


async def load_link(store: Store, response_id: str) -> Link:
    """Return the link of a response. Raises NotFound."""
    link = await store.link(response_id)
    if link is None:
        raise NotFound("response", response_id)
    return link


def _to_found(session: Session) -> HandleMatch:
    return HandleMatch("session", session.id, session.name)


OTHER_CLIENTS_HINT = "convo inspect resp_ lists the newest responses of other clients"


async def get_other_clients_hint(store: Store) -> str:
    """Return a hint for a store without sessions that has responses of other clients; otherwise ""."""
    return OTHER_CLIENTS_HINT if await store.find_handles("resp_", limit=1) else ""


async def load_unconfirmed_items(store: Store, session: Session) -> tuple[Item, ...]:
    """Return the unconfirmed items of `session`; none when an item of its history was deleted."""
    try:
        path = await store.path(session.head)
    except ItemDeleted:
        return ()
    return tuple(node.item for node in path.after(session.confirmed_head))
