"""Watch a conversation that another process changes.

Polls the store's data version, then a version of the conversation that reads no items, and loads the view again
only when it changed.
"""

import os
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import NamedTuple

from convo.chat.lookup import is_recorded_session, load_running_text, read_or_report
from convo.chat.view_loader import load_file_view, load_handle_view
from convo.history.records import UNFINISHED_STATUSES, Session, is_recording_in_progress
from convo.history.tree import Key
from convo.inspect.view import ConversationView
from convo.runtime import Clock
from convo.stores.base import Store

POLL_INTERVAL_S = 0.5
"""Seconds between two polls."""


class ConversationVersion(NamedTuple):
    """A value that differs when anything of a conversation changed.

    session:            its record, which every input and every response changes
    head:               of the conversation at the embedded endpoint, which other clients change too
    response_statuses:  (id, status) of each related response
    run_revision:       (id, revision) of the session's newest agent run
    file_stamp:         modification time and size of its replay file
    running_texts:      (id, text so far) of each recorded response in progress
    """

    session: Session | None
    head: Key | None
    response_statuses: tuple[tuple[str, str], ...]
    run_revision: tuple[str, int] | None
    file_stamp: tuple[int, int] | None
    running_texts: tuple[tuple[str, str], ...] = ()


async def watch_conversation(
    store: Store, handle: str, clock: Clock, *, is_replay_file: bool = False
) -> AsyncGenerator[ConversationView, None]:
    """Yield the view of `handle` now, and again after each change; never ends by itself.

    is_replay_file:  the handle is the path of a replay file
    Raises the errors of `load_handle_view` at first; later NotFound, when the conversation was deleted.
    """
    load_view = load_file_view if is_replay_file else load_handle_view
    view = await load_view(store, handle)
    revision = await store.data_version()
    version = await load_conversation_version(store, view)
    view = await load_view(store, handle)  # again: it may have changed before its version was read
    while True:
        yield replace(view, running_texts=dict(version.running_texts))
        new_version = version
        while new_version == version:
            await clock.sleep(POLL_INTERVAL_S)
            revision, last_revision = await store.data_version(), revision
            if revision is None or revision != last_revision or read_replay_stamp(view) != version.file_stamp:
                new_version = await load_conversation_version(store, view)
        version = new_version
        view = await load_view(store, handle)


async def load_conversation_version(store: Store, view: ConversationView) -> ConversationVersion:
    """Load the version of a conversation without reading its items."""
    session = await store.session(view.session.id) if view.session else None
    owner = session.handle if session else view.handle
    conversation = await store.conversation(owner) if owner and owner.startswith("conv_") else None
    link_id = session.link_id if session else view.current_link_id
    related_links = await store.related_links(link_id) if link_id else ()
    statuses = tuple((link.id, link.status) for link in related_links)
    own_links = await store.links(session.id) if session and is_recorded_session(session) else related_links
    running = [link for link in own_links if is_recording_in_progress(link)]
    texts = [(link.id, await load_running_text(link, store)) for link in running]
    runs = await read_or_report(store, store.agent_runs(session_id=session.id, limit=1)) if session else ()
    run = (runs[0].id, runs[0].revision) if runs else None
    return ConversationVersion(
        session, conversation.head if conversation else None, statuses, run, read_replay_stamp(view), tuple(texts)
    )


def read_replay_stamp(view: ConversationView) -> tuple[int, int] | None:
    """Return the modification time of the replay file in nanoseconds and its size in bytes; None without a file."""
    if view.replay_file is None:
        return None
    try:
        info = os.stat(os.path.expanduser(view.replay_file))
    except OSError:
        return None
    return info.st_mtime_ns, info.st_size


def is_in_progress(view: ConversationView) -> bool:
    """Return whether a response is still to come: a request runs, or no request has sent the newest input.

    The head of an interrupted response is its partial output, which is unconfirmed.
    """
    request_heads = {head for link in view.links for head in (link.input_head, link.head)}
    is_unsent = bool(view.unconfirmed_nodes) and view.head not in request_heads
    return is_unsent or any(link.status in UNFINISHED_STATUSES for link in view.links)
