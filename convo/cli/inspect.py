"""`convo inspect`: show who owns a conversation and what each request sent.

One conversation tree, or its items, JSON, token chart or HTML page. `--watch` repaints the tree while another
process continues the conversation: in place in a terminal, elsewhere one line for each finished response.
`--interactive` browses the requests in full screen. Output for programs is never paged. A file with a paused run
is shown without a store.
"""

import json
import os
import shutil
import sys
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from convo.chat.files import resolve_links, write_atomic
from convo.chat.lookup import to_absolute_path
from convo.chat.watch import is_in_progress, watch_conversation
from convo.cli.deps import open_configured_store
from convo.cli.output import INTERRUPTED, print_notice
from convo.cli.resolve import LookupOptions, is_path_like, is_unknown_file, resolve_handles
from convo.cli.state_input import print_rendered, render_answer, render_run_state_in_format
from convo.config.loader import load_settings
from convo.errors import InvalidUsage
from convo.history.records import UNFINISHED_STATUSES, Link
from convo.inspect.view import ConversationView
from convo.report import to_json
from convo.runtime import SystemClock
from convo.terminal.inspect_view import (
    build_tree_rows,
    fit_link_table,
    format_fork_command,
    get_fork_model,
    render_conversation,
    render_path_items,
    render_token_chart,
    render_unstored_request,
)
from convo.terminal.tables import table_lines
from convo.terminal.terminal import DUMB_TERMINALS, DisplayOptions, detect_display, format_count

if TYPE_CHECKING:
    from convo.runstate.run_state import RunState
    from convo.stores.unstored_requests import UnstoredRequest


def print_views(
    views: "Sequence[ConversationView | RunState | UnstoredRequest]",
    handles: Sequence[str],
    output_format: str,
    *,
    paged: bool = True,
    all_columns: bool = False,
) -> None:
    """Print conversations, states and requests that left no response in a format of `VIEW_RENDERERS`.

    all_columns:  tables show all columns in full, also wider than the terminal

    Raises InvalidUsage for a format that a request without a response has not, and StateFault without an answer.
    """
    display = detect_display(sys.stdout, os.environ)._replace(has_all_columns=all_columns)
    texts = (_render_view(view, handle, output_format, display) for view, handle in zip(views, handles, strict=True))
    print_rendered(texts, output_format, paged=paged)


def _render_view(
    view: "ConversationView | RunState | UnstoredRequest", handle: str, output_format: str, display: DisplayOptions
) -> str:
    if isinstance(view, ConversationView):
        return VIEW_RENDERERS[output_format](view, display)
    from convo.stores.unstored_requests import UnstoredRequest

    if isinstance(view, UnstoredRequest):
        return _render_unstored_request(view, output_format, display)
    return render_run_state_in_format(view, handle, output_format, display)


def _render_unstored_request(request: "UnstoredRequest", output_format: str, display: DisplayOptions) -> str:
    if output_format == "--json":
        return json.dumps(to_json(request))
    if output_format:
        raise InvalidUsage(
            f"{request.id} left no response; {output_format} needs one", hint=f"convo inspect {request.id}"
        )
    return render_unstored_request(request, display)


def _render_answer(view: ConversationView, display: DisplayOptions) -> str:
    return render_answer(view.path.items, view.handle)


def _render_json(view: ConversationView, display: DisplayOptions) -> str:
    from convo.chat.prefix_guard import find_wrong_forecast
    from convo.inspect.report import build_conversation_report

    report = build_conversation_report(view)._replace(wrong_forecast=find_wrong_forecast(view))
    return json.dumps(to_json(report))


def _render_items_json(view: ConversationView, display: DisplayOptions) -> str:
    """Render a JSON list with one item a line, as in a replay file; of a recorded request its body as it was sent."""
    if view.sent_body is not None:
        return json.dumps(view.sent_body.body, indent=2)
    lines = [json.dumps(dict(item)) for item in view.path.items]
    return "[\n" + ",\n".join(lines) + "\n]" if lines else "[]"


VIEW_RENDERERS: dict[str, Callable[[ConversationView, DisplayOptions], str]] = {
    "": render_conversation,
    "--chart": render_token_chart,
    "--items": render_path_items,
    "--answer": _render_answer,
    "--raw": _render_items_json,
    "--json": _render_json,
}


def write_html_page(views: Sequence[object], handles: Sequence[str], file: Path | None) -> None:
    """Write a page about `views` to a private file, or to stdout.

    Raises InvalidUsage for anything else than a conversation and for the file of a conversation itself, and
    StoreReadOnly, StoreFull or StoreFault for a file that cannot be written.
    """
    from convo.server.inspector_data import build_inspector_data
    from convo.server.pages import render_inspector_page

    conversations = {
        handle: view for handle, view in zip(handles, views, strict=True) if isinstance(view, ConversationView)
    }
    run_handle = next((handle for handle in handles if handle not in conversations), None)
    if run_handle is not None:
        kind = "request without a response" if run_handle.startswith("req_") else "paused run"
        raise InvalidUsage(
            f"{run_handle} is a {kind}; --html shows conversations only", hint=f"convo inspect {run_handle}"
        )
    if file is None:
        sys.stdout.write(render_inspector_page(build_inspector_data(conversations)))
        return
    target = resolve_links(Path(to_absolute_path(str(file))))
    for view in conversations.values():
        own_path = view.session.handle if view.session else view.handle
        if own_path and resolve_links(Path(to_absolute_path(own_path))) == target:
            raise InvalidUsage(f"{file} is the conversation's own file", hint="name another one with --html")
    write_atomic(target, render_inspector_page(build_inspector_data(conversations)))
    print_notice(f"wrote {format_count(len(conversations), 'conversation')} to {file}")


def check_can_browse(handle: str) -> None:
    """Raise InvalidUsage where the browser cannot be drawn or controlled."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InvalidUsage("--interactive needs a terminal", hint=f"convo inspect {quote(handle)}")
    if os.environ.get("TERM") in DUMB_TERMINALS:
        raise InvalidUsage(
            f"--interactive needs a terminal that can move the cursor; TERM is {os.environ['TERM']}",
            hint=f"convo inspect {quote(handle)}",
        )


async def browse_handle(handle: str, options: LookupOptions) -> int:
    """Browse the requests of a conversation until the user leaves, or continues one in a chat; return the exit code.

    Raises the errors of `resolve_handles` and of `run_chat`.
    """
    from convo.terminal.request_browser import ActionKind, RequestBrowser, browse_requests

    (view,) = await resolve_handles([handle], options)

    async def build_curl(link: Link) -> str:
        from convo.cli.next import render_sent_curl_command

        return await render_sent_curl_command(link, view, load_settings(options.config))

    browser = RequestBrowser(view, has_box_chars=detect_display(sys.stdout, os.environ).has_box_chars)
    action = await browse_requests(browser, build_curl)
    if action.kind is not ActionKind.FORK:
        return INTERRUPTED.exit if action.kind is ActionKind.INTERRUPT else 0
    from convo.cli.chat import run_chat
    from convo.cli.context import ChatOptions, ChatOutput

    (link,) = action.links
    print_notice(f"fork: {format_fork_command(link)}")
    if link.is_stored:
        chat_options = ChatOptions(handle=link.id, model=get_fork_model(link), config=options.config)
    else:
        chat_options = ChatOptions(fork=link.id, config=options.config)
    return await run_chat(chat_options, ChatOutput())


CURSOR_HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
"""The terminal cuts a line that is too long: wrapped, it would move the other lines down."""

WATCHING_FOOTER = "watching; press q or Ctrl-C to stop"
IDLE_FOOTER = "no response in progress; press q or Ctrl-C to stop"

QUIT_KEYS = b"qQ\x04"
"""Keys that end watching; the last one is Ctrl-D."""


async def watch_handle(handle: str, config: Path | None, *, until_idle: bool) -> None:
    """Show `handle` and every change of it, until the user ends it.

    until_idle:  end as soon as no response is in progress

    Raises the errors of `watch_conversation`.
    """
    async with open_configured_store(load_settings(config)) as store:
        is_file = is_path_like(handle) or await is_unknown_file(store, handle)
        async with aclosing(watch_conversation(store, handle, SystemClock(), is_replay_file=is_file)) as views:
            if _can_repaint():
                await _show_until_key(views, until_idle=until_idle)
            else:
                await _show_views(views, ResponseLinePrinter(), until_idle=until_idle)


async def _show_until_key(views: AsyncGenerator[ConversationView, None], *, until_idle: bool) -> None:
    """Show the views until a quit key is pressed."""
    import asyncio

    from convo.terminal.raw_terminal import on_key

    painter, loop = ScreenPainter(), asyncio.get_running_loop()
    try:
        # Only a key makes this timeout due, which ends the views.
        async with asyncio.timeout(None) as key_timeout:
            with on_key(QUIT_KEYS, lambda: key_timeout.reschedule(loop.time())):
                await _show_views(views, painter, until_idle=until_idle)
    except TimeoutError:
        if not key_timeout.expired():
            raise
    finally:
        painter.close()


async def _show_views(
    views: AsyncGenerator[ConversationView, None], display: "ScreenPainter | ResponseLinePrinter", *, until_idle: bool
) -> None:
    async for view in views:
        display.show(view)
        if until_idle and not is_in_progress(view):
            return


def _can_repaint() -> bool:
    """Return whether stdout is a terminal that can move the cursor."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class ScreenPainter:
    """Overwrites the whole screen in place, without flicker or scrolling."""

    def __init__(self) -> None:
        self._has_painted = False

    def show(self, view: ConversationView) -> None:
        display, rows = detect_display(sys.stdout, os.environ), shutil.get_terminal_size().lines
        footer = WATCHING_FOOTER if is_in_progress(view) else IDLE_FOOTER
        lines = [*_fit_screen_rows(view, display, rows - 1), display.apply_style(footer, "dim")]
        start = CURSOR_HOME if self._has_painted else CLEAR_BELOW.join((CURSOR_HOME, ""))
        sys.stdout.write(start + NO_WRAP + "".join(line + CLEAR_LINE + "\n" for line in lines[:-1]))
        sys.stdout.write(lines[-1] + CLEAR_BELOW + "\r" + WRAP)
        sys.stdout.flush()
        self._has_painted = True

    def close(self) -> None:
        """Clear the last line, where the next output is printed."""
        if self._has_painted:
            sys.stdout.write(CLEAR_BELOW)
            sys.stdout.flush()


def _fit_screen_rows(view: ConversationView, display: DisplayOptions, max_rows: int) -> list[str]:
    """Render at most `max_rows` lines: without the chart, then without the panel, then without the oldest rows."""
    for lines in (
        render_conversation(view, display).split("\n"),
        render_conversation(view, display, with_chart=False).split("\n"),
        render_conversation(view, display, with_chart=False, with_panel=False).split("\n"),
    ):
        if len(lines) <= max_rows:
            return lines
    return [lines[0], *lines[len(lines) - max_rows + 1 :]] if max_rows > 1 else lines[:max_rows]


class ResponseLinePrinter:
    """Prints each response once, when it has ended, below the heads of the columns."""

    def __init__(self) -> None:
        self._printed_ids: set[str] = set()
        self._has_header = False

    def show(self, view: ConversationView) -> None:
        display = detect_display(sys.stdout, os.environ)
        header, *lines = table_lines(fit_link_table(view, display), display)
        new_rows = [
            (row.link.id, line)
            for row, line in zip(build_tree_rows(view), lines, strict=True)
            if row.link.id not in self._printed_ids and row.link.status not in UNFINISHED_STATUSES
        ]
        if new_rows and not self._has_header:
            self._print(header, display)
        for link_id, line in new_rows:
            self._printed_ids.add(link_id)
            self._print(line, display)

    def _print(self, line: str, display: DisplayOptions) -> None:
        self._has_header = True
        sys.stdout.write(display.translate_box_chars(line) + "\n")
        sys.stdout.flush()
