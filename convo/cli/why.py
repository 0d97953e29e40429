"""`convo why`: explain why the prompt cache missed in one request.

A response is explained itself; of a conversation the last request of its branch that missed, or else the last one.
"""

import os
import sys
from dataclasses import replace
from pathlib import Path

from convo.chat.lookup import load_sent_body
from convo.cli.deps import open_configured_store
from convo.cli.output import print_json, print_line
from convo.cli.progress import show_progress
from convo.cli.resolve import HandleResolver, LookupOptions
from convo.config.loader import load_settings
from convo.errors import NotFound
from convo.history.records import ANSWERED_STATUSES, Link
from convo.inspect.tree import split_branch_links
from convo.inspect.view import ConversationView
from convo.prompt_cache.why import explain_miss, find_missed_ids
from convo.terminal.cache_view import render_miss
from convo.terminal.terminal import detect_display


async def run_why(handle: str, config: Path | None, *, as_json: bool) -> None:
    """Print the explanation. Raises the errors of `HandleResolver`, and NotFound without an answered request."""
    settings = load_settings(config)
    async with open_configured_store(settings) as store:
        with show_progress("reading", settings):
            resolver = HandleResolver(settings, store, LookupOptions(config))
            view = await resolver.resolve(handle)
            link = _choose_link(view)
            if view.session is None and link.session_id and link.session_id in view.session_names:
                # Requests of one session may share a prompt without one continuing the other.
                view = await resolver.resolve(link.session_id)
            stored = await store.link(link.id)
            view = replace(view, sent_body=await load_sent_body(store, stored) if stored else None)
    report = explain_miss(view, link)
    if as_json:
        print_json(report)
    else:
        print_line(render_miss(report, detect_display(sys.stdout, os.environ)))


def _choose_link(view: ConversationView) -> Link:
    links = [link for link in split_branch_links(view)[0] if link.status in ANSWERED_STATUSES]
    if not links:
        raise NotFound(
            "request", view.handle, hint="a file has no requests: convo import reads those of an exported conversation"
        )
    if view.handle == view.current_link_id:
        return next((link for link in links if link.id == view.handle), links[-1])
    missed = find_missed_ids(view)
    return next((link for link in reversed(links) if link.id in missed), links[-1])
