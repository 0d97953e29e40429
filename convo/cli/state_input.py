"""RunState files as input of `convo inspect`, `resume` and `lint`.

A handle with a slash is a file, `-` is stdin; a bare name is a file only if no conversation has that name. A
file is a RunState by its content. Showing one needs no store and imports no endpoint.
"""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from convo.chat.files import format_os_error
from convo.chat.state_file import is_state_like, load_state_file, parse_state_bytes, read_state_bytes, read_state_stream
from convo.errors import AmbiguousHandle, InvalidUsage, StateFault, Unreadable
from convo.history.items import Item, last_answer_text
from convo.report import to_json
from convo.terminal.pager import print_paged
from convo.terminal.terminal import DisplayOptions, detect_display, escape_answer

if TYPE_CHECKING:
    from convo.runstate.run_state import RunState

STDIN_HANDLE = "-"


def find_run_state(handle: str, config: Path | None, *, javascript: bool = True) -> "RunState | None":
    """Return the state that a handle of `convo inspect` names; None for another handle.

    javascript:  accept one of the JavaScript SDK

    Raises InvalidRunState or Unreadable for a state that cannot be read.
    """
    if handle == STDIN_HANDLE:
        return read_piped_state(javascript=javascript)
    has_slash = "/" in handle or os.sep in handle
    if not os.path.isfile(os.path.expanduser(handle)) or not (has_slash or _is_unknown_handle(handle, config)):
        return None
    data = read_state_bytes(handle)
    return parse_state_bytes(data, handle, javascript=javascript) if is_state_like(data) else None


def print_run_states(
    handles: Sequence[str],
    states: "Mapping[str, RunState | None]",
    output_format: str,
    *,
    paged: bool = True,
    all_columns: bool = False,
) -> None:
    """Print states alone, in one of the formats of `convo inspect`.

    all_columns:  tables show all columns in full, also wider than the terminal
    """
    display = detect_display(sys.stdout, os.environ)._replace(has_all_columns=all_columns)
    texts = (
        render_run_state_in_format(state, handle, output_format, display)
        for handle in handles
        if (state := states[handle])
    )
    print_rendered(texts, output_format, paged=paged)


def print_rendered(texts: Iterable[str], output_format: str, *, paged: bool) -> None:
    """Print texts in a format of `convo inspect`; JSON and answers are never paged and have no empty lines."""
    for_programs = output_format in ("--json", "--raw", "--answer")
    text = ("" if for_programs else "\n").join(view_text + "\n" for view_text in texts)
    if paged and not for_programs:
        print_paged(text)
    else:
        sys.stdout.write(text)


def render_run_state_in_format(state: "RunState", handle: str, output_format: str, display: DisplayOptions) -> str:
    """Render one state: its screen, its items, the document, or a summary for a program."""
    match output_format:
        case "--json":
            from convo.runstate.reader import build_state_report

            return json.dumps(to_json(build_state_report(state)))
        case "--raw":
            from convo.runstate.writer import serialize_run_state

            return serialize_run_state(state).rstrip("\n")
        case "--answer":
            from convo.transfer.import_ import run_state_items

            return render_answer(run_state_items(state), handle)
        case "--items":
            from convo.terminal.inspect_view import render_item
            from convo.transfer.import_ import run_state_items

            items = enumerate(run_state_items(state), 1)
            return "\n\n".join(
                render_item(position, item, is_unconfirmed=False, display=display) for position, item in items
            )
    from convo.terminal.run_state_view import render_paused_state

    return render_paused_state(state, "piped state" if handle == STDIN_HANDLE else handle, display)


def render_answer(items: Sequence[Item], handle: str) -> str:
    """Return the text of the last answer as a chat prints it. Raises StateFault without one."""
    text = last_answer_text(items)
    if not text:
        raise StateFault(f"{handle} has no answer", hint=f"convo inspect {quote(handle)}")
    return escape_answer(text, sys.stdout)


def load_state(handle: str) -> "RunState":
    """Load a state file of either SDK, or the piped state. Raises the errors of both."""
    return read_piped_state(javascript=True) if handle == STDIN_HANDLE else load_state_file(handle, javascript=True)


def read_piped_state(*, javascript: bool) -> "RunState":
    """Read the piped state. Raises InvalidUsage without one, and InvalidRunState or Unreadable."""
    if sys.stdin.isatty():
        raise InvalidUsage("- means a piped state, but stdin is a terminal", hint="cat STATE.json | convo inspect -")
    try:
        return parse_state_bytes(read_state_stream(sys.stdin.buffer), "piped input", javascript=javascript)
    except OSError as error:
        raise Unreadable(f"stdin cannot be read: {format_os_error(error)}") from error


def _is_unknown_handle(handle: str, config: Path | None) -> bool:
    """Return whether no conversation in the store has this handle."""
    from convo.chat.lookup import has_handle
    from convo.cli.deps import read_from_store
    from convo.config.loader import load_settings

    try:
        return not read_from_store(load_settings(config), lambda store: has_handle(store, handle))
    except AmbiguousHandle:
        return False
