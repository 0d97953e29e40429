"""What a command says: its answer on stdout, everything else on stderr.

What stands on stdout may go on into a pipe, so it is the answer or the JSON and nothing beside it.
What somebody else wrote (a name, an error) is told with its control characters spelled out.
"""

import json
import sys

from convo.config.secret import without_passwords
from convo.items import Json
from convo.ui.answer import safe


def say(words: str) -> None:
    """Print the answer, or a line of it, as it is."""
    sys.stdout.write(words + "\n")


def say_json(value: Json) -> None:
    """Print the answer for a program: one line of JSON."""
    say(json.dumps(value))


def note(words: str) -> None:
    """Tell the person something that is not the answer; passwords in URLs are left out."""
    sys.stderr.write(safe(without_passwords(words)) + "\n")
