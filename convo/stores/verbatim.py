"""JSON as it is kept: the text that comes back as the value that went in.

Keys keep their order and integers their last figure. Text that UTF-8 can carry stands as it is;
a value with half a surrogate pair in it, which no UTF-8 and no database takes, is escaped whole.
"""

import json

from convo.errors import NotCanonical
from convo.items import Json

COMPACT = (",", ":")

VERBATIM = json.JSONEncoder(separators=COMPACT, ensure_ascii=False, allow_nan=False)
"""Made once: to make it takes as long as to write a short item with it."""


def dumps(value: Json) -> str:
    """The JSON text of `value`, always valid UTF-8.

    raises:  NotCanonical  a number is NaN or infinite, or a value is not JSON
    """
    try:
        text = VERBATIM.encode(value)
        return text if encodes(text) else json.dumps(value, separators=COMPACT)
    except (TypeError, ValueError, RecursionError) as wrong:
        raise NotCanonical(f"a value has no JSON form: {wrong}") from wrong


def loads(text: str | bytes) -> Json:
    return json.loads(text)


def encodes(text: str) -> bool:
    """Whether UTF-8 can carry `text`; half a surrogate pair it cannot."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False
