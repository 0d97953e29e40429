"""Where `convo inspect` and `convo resume` get a RunState from.

A handle with a slash is a file and `-` is a pipe; a bare name is a file only when no conversation
is called that. A file is a state by what is in it. A state is shown without asking the store, and
without importing what speaks to endpoints.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from convo.engine.state_file import judged, means_to_be_a_state, piped, taken
from convo.errors import AmbiguousHandle, NotFound, Unreadable, Usage
from convo.runstate import State, summary, text
from convo.ui.medium import Medium, medium_of
from convo.ui.pager import show
from convo.ui.pausing import paused

PIPE = "-"


def state_at(handle: str, config: Path | None) -> State | None:
    """The state that a handle of `convo inspect` names; None when it names something else.

    raises:  BadState, Unreadable  it names a state that cannot be read
    """
    if handle == PIPE:
        return from_pipe()
    has_slash = "/" in handle or os.sep in handle
    if not os.path.isfile(os.path.expanduser(handle)) or not (has_slash or _is_nobodys(handle, config)):
        return None
    data = taken(handle)
    return judged(data, handle) if means_to_be_a_state(data) else None


def print_states(handles: Sequence[str], states: Mapping[str, State | None], form: str, *, paged: bool = True) -> None:
    """Print states alone, in one of the forms of `convo inspect`."""
    medium = medium_of(sys.stdout, os.environ)
    between = "" if form in ("--json", "--raw") else "\n"
    texts = (shown(state, handle, form, medium) for handle in handles if (state := states[handle]))
    text = between.join(words + "\n" for words in texts)
    if paged and between:
        show(text)
    else:
        sys.stdout.write(text)


def shown(state: State, handle: str, form: str, medium: Medium) -> str:
    """One state in a form: its screen, what was said, the document, or what a program reads of it."""
    match form:
        case "--json":
            return json.dumps(summary(state))
        case "--raw":
            return text(state).rstrip("\n")
        case "--items":
            from convo.transfer.run_states import items_of
            from convo.ui.inspecting import whole

            said = enumerate(items_of(state), 1)
            return "\n\n".join(whole(at, item, waits=False, medium=medium) for at, item in said)
    return paused(state, "a piped state" if handle == PIPE else handle, medium)


def from_pipe() -> State:
    """The state that is piped in. raises: Usage  nothing is; BadState, Unreadable"""
    if sys.stdin.isatty():
        raise Usage("- stands for a state that is piped in", hint="cat STATE.json | convo inspect -")
    try:
        return judged(piped(sys.stdin.buffer), "what is piped in")
    except OSError as wrong:
        raise Unreadable(f"stdin cannot be read: {(wrong.strerror or str(wrong)).lower()}") from wrong


def _is_nobodys(handle: str, config: Path | None) -> bool:
    """Whether no conversation in the store is called that."""
    from convo.cli.wiring import from_store
    from convo.config import load
    from convo.engine.finding import find

    try:
        from_store(load(config), lambda store: find(store, handle))
    except NotFound:
        return True
    except AmbiguousHandle:
        return False
    return False
