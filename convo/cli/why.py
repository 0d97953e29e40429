"""`convo why`: explain why the prompt cache missed in one request.

A response is explained itself; of a conversation the last request of its branch that missed; of a turn the one that
missed most. Without a miss it is the last request.
"""

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from shlex import quote

from convo.chat.lookup import load_sent_body
from convo.cli.deps import open_configured_store
from convo.cli.output import print_json, print_line
from convo.cli.progress import show_progress
from convo.cli.resolve import HandleResolver, LookupOptions, find_last_turn_links
from convo.config.loader import load_settings
from convo.errors import NotFound
from convo.history.records import ANSWERED_STATUSES, Link
from convo.inspect.tree import split_branch_links
from convo.inspect.view import ConversationView
from convo.prompt_cache.why import explain_miss, find_missed_tokens
from convo.strategies.selection import parse_turn_handle
from convo.terminal.cache_view import render_miss
from convo.terminal.terminal import detect_display


async def run_why(handle: str, config: Path | None, *, as_json: bool) -> None:
    """Print the explanation. Raises the errors of `HandleResolver`, and NotFound without an answered request."""
    settings = load_settings(config)
    async with open_configured_store(settings) as store:
        with show_progress("reading", settings):
            resolver = HandleResolver(settings, store, LookupOptions(config))
            view = await resolver.resolve(handle)
            is_turn = view.session is None and parse_turn_handle(handle)[1] is not None
            links = _list_links(view, is_turn=is_turn)
            session_id = links[-1].session_id
            if view.session is None and session_id and session_id in view.session_names:
                # Requests of one session may share a prompt without one continuing the other.
                view = await resolver.resolve(session_id)
            missed_tokens = find_missed_tokens(view)
            missed = [link for link in links if link.id in missed_tokens] or links[-1:]
            link = max(missed, key=lambda link: missed_tokens.get(link.id, 0)) if is_turn else missed[-1]
            stored = await store.link(link.id)
            view = replace(view, sent_body=await load_sent_body(store, stored) if stored else None)
    others = [other.id for other in missed if other is not link]
    report = explain_miss(view, link)._replace(other_missed_ids=others)
    if as_json:
        print_json(report)
    else:
        print_line(render_miss(report, detect_display(sys.stdout, os.environ)))


def _list_links(view: ConversationView, *, is_turn: bool) -> Sequence[Link]:
    """Return the answered requests of the handle, oldest first: of a branch, of the last turn of a path, or one."""
    branch = split_branch_links(view)[0]
    links = [link for link in branch if link.status in ANSWERED_STATUSES]
    if branch and not links:
        reason = (branch[-1].error or {}).get("message")
        note = f"; the last one is {branch[-1].status}: {reason}" if reason else ""
        raise NotFound("completed request of", view.handle, note=note, hint=f"convo inspect {quote(view.handle)}")
    if not links:
        raise NotFound(
            "request", view.handle, hint="a file has no requests: convo import reads those of an exported conversation"
        )
    if is_turn:
        return find_last_turn_links(view, links)
    if view.handle == view.current_link_id:
        return [link for link in links if link.id == view.handle] or links[-1:]
    return links
