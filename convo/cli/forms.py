"""The forms in which `convo inspect` prints what is known of a conversation.

One table, from the flag to the function that makes the words. What is for programs goes out as it
is; only what a person reads is paged.
"""

import json
import os
import sys
from collections.abc import Callable, Sequence

from convo.cli.states import shown
from convo.inspection import Known, as_json
from convo.runstate import State
from convo.ui.inspecting import charted, screen, transcript
from convo.ui.medium import Medium, medium_of
from convo.ui.pager import show


def printed(found: Sequence[Known | State], handles: Sequence[str], form: str, *, paged: bool = True) -> None:
    """Print conversations and states in one of `FORMS`; what programs read has no line between, and is never paged."""
    medium = medium_of(sys.stdout, os.environ)
    between = "" if form in ("--json", "--raw") else "\n"
    texts = (
        shown(one, handle, form, medium) if isinstance(one, State) else FORMS[form](one, medium)
        for one, handle in zip(found, handles, strict=True)
    )
    text = between.join(words + "\n" for words in texts)
    if paged and between:
        show(text)
    else:
        sys.stdout.write(text)


def _object(known: Known, medium: Medium) -> str:
    return json.dumps(as_json(known))


def _raw(known: Known, medium: Medium) -> str:
    """A list with an item a line, as a replay file has it."""
    stored = [json.dumps(dict(item)) for item in known.path.items]
    return "[\n" + ",\n".join(stored) + "\n]" if stored else "[]"


FORMS: dict[str, Callable[[Known, Medium], str]] = {
    "": screen,
    "--chart": charted,
    "--items": transcript,
    "--raw": _raw,
    "--json": _object,
}
