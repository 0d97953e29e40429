"""Arguments that a tool could never have been called with.

A stream that broke while a model wrote its arguments leaves the beginning of a JSON object. What was
stored of it goes back to a server, and to models whose providers read it: they refuse the request. It
is closed where it can be: open strings and brackets end, and a name without its value goes.
"""

import json
from collections.abc import Iterator, Sequence

from convo.inspection.linting.finding import Change, Fault, of_items
from convo.inspection.linting.view import Edits, View, edited
from convo.items import Item, Json

FIELD = ".arguments"

CLOSES = {"{": "}", "[": "]"}


def invalid_arguments(view: View) -> Iterator[Fault]:
    """A function call whose arguments are not the text of one JSON object."""
    for at, item in view.of_kind("function_call"):
        wrong = _wrong(item.get("arguments")) if view.travels[at] else ""
        if wrong:
            yield Fault(f"the arguments of {item.get('name') or 'a call'} {wrong}", at, FIELD)


def close_arguments(view: View, faults: Sequence[Fault]) -> tuple[View, list[Change]]:
    """What was cut off is closed; what no object can be made of becomes an empty one."""
    new: dict[int, Item] = {}
    changes = []
    for at, fault in of_items(faults):
        item = view.items[at]
        text = mended(item.get("arguments"))
        new[at] = {**{key: value for key, value in item.items() if key != "status"}, "arguments": text}
        why = f"{fault.message}: they are {text if len(text) <= SHOWN else text[:SHOWN] + '...'} now"
        changes.append(Change("invalid-arguments", "replaced", why, view.sources[at]))
    return edited(view, Edits(new)), changes


SHOWN = 60
"""Characters of mended arguments that the list of changes shows."""


def mended(arguments: Json) -> str:
    """The text of a JSON object that says what `arguments` said, as far as it can be read."""
    if isinstance(arguments, dict):
        return json.dumps(arguments)
    text = _first(arguments) or closed(arguments) if isinstance(arguments, str) else ""
    return text if not _wrong(text) else "{}"


def _first(text: str) -> str:
    """The value that `text` begins with, where something stands behind it; "" where it does not end."""
    begun = text.lstrip()
    try:
        return begun[: json.JSONDecoder().raw_decode(begun)[1]]
    except (ValueError, RecursionError):
        return ""


def closed(text: str) -> str:
    """The beginning of a JSON object, ended where the last whole value in it ends."""
    open_: list[str] = []
    left = 0  # the longest beginning that can be closed; what is open there is open at the end, too
    in_string = escaped = False
    for at, sign in enumerate(text):
        if in_string:
            in_string, escaped = escaped or sign != '"', sign == "\\" and not escaped
        elif sign == '"':
            in_string = True
        elif sign in CLOSES:
            open_.append(CLOSES[sign])
        elif sign in "}]" and open_:
            open_.pop()
        if not in_string and sign in "{[}],":
            left = at + (sign != ",")
    return _longest(text, in_string, escaped, open_) or text[:left] + "".join(reversed(open_))


def _longest(text: str, in_string: bool, escaped: bool, open_: Sequence[str]) -> str:
    """All of `text` with what is open closed, where it ends in a value."""
    ended = (text[:-1] if escaped else text) + '"' if in_string else text
    candidate = ended + "".join(reversed(open_))
    return "" if _wrong(candidate) else candidate


def _wrong(arguments: Json) -> str:
    """What is wrong with arguments, as the end of a sentence; "" when nothing is."""
    if not isinstance(arguments, str):
        return "are missing" if arguments is None else "are not a string"
    try:
        found = json.loads(arguments)
    except json.JSONDecodeError as wrong:
        return "break off" if _breaks_off(arguments, wrong) else f"are not JSON: {wrong.msg.lower()}"
    except (ValueError, RecursionError):
        return "are not JSON that can be read"
    return "" if isinstance(found, dict) else "are not an object"


def _breaks_off(arguments: str, wrong: json.JSONDecodeError) -> bool:
    return wrong.pos >= len(arguments.rstrip()) or wrong.msg.startswith("Unterminated")
