"""The forms in which `convo inspect` prints what is known of a conversation."""

import json
import os
import sys
from collections.abc import Callable, Sequence

from convo.inspection import Known, as_json
from convo.ui.inspecting import screen, transcript
from convo.ui.medium import Medium, medium_of


def printed(found: Sequence[Known], form: str) -> None:
    """Print conversations in one of `FORMS`; what programs read has no line between."""
    medium = medium_of(sys.stdout, os.environ)
    between = "" if form in ("--json", "--raw") else "\n"
    sys.stdout.write(between.join(FORMS[form](known, medium) + "\n" for known in found))


def _object(known: Known, medium: Medium) -> str:
    return json.dumps(as_json(known))


def _raw(known: Known, medium: Medium) -> str:
    """A list with an item a line, as a replay file has it."""
    stored = [json.dumps(dict(item)) for item in known.path.items]
    return "[\n" + ",\n".join(stored) + "\n]" if stored else "[]"


FORMS: dict[str, Callable[[Known, Medium], str]] = {
    "": screen,
    "--items": transcript,
    "--raw": _raw,
    "--json": _object,
}
