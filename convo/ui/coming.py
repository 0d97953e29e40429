"""The next request on a screen, and as a command that anybody can run.

What its owner puts before it stands first and apart; the body follows exactly as it travels. The
command carries the body on its input, because a shell takes only so much in one argument, and names
the key's variable instead of the key.
"""

import json
from collections.abc import Iterator, Mapping
from shlex import quote

from convo.inspection.coming import Coming
from convo.items import Json, first_words
from convo.ui.answer import safe
from convo.ui.inspecting import label
from convo.ui.labelled import counted
from convo.ui.medium import Medium, cut
from convo.ui.window import table

END = "END_OF_REQUEST"
"""No line of JSON looks like this."""

SPREAD = 100
"""So many items are spread over lines of their own."""


def screen(coming: Coming, medium: Medium, *, most: int | None = None) -> str:
    """All of it; of what the owner puts before it the last `most` items."""
    body = _pretty(coming.body)
    shown = [*_before(coming, medium, most), where(coming), safe(body), "", *table(coming.filling, medium)]
    return medium.drawn("\n".join(shown))


def where(coming: Coming) -> str:
    """The line that says where the request goes."""
    return f"POST {coming.url}" if coming.url else "to convo's own endpoint, in this process"


def curl(coming: Coming, base_url: str | None = None) -> str:
    """The request as a command for a POSIX shell. It streams the answer, as a chat does.

    base_url:  where it goes instead, for a request that would not leave this process
    """
    url = f"{base_url.rstrip('/')}/responses" if base_url else coming.url or ""
    headers = {"Content-Type": "application/json", **coming.headers}
    shown = [f"-H {_header(name, value, coming.key_env)}" for name, value in headers.items()]
    # escaped as JSON, so that no byte of it means anything to a terminal or a shell
    body = json.dumps({**coming.body, "stream": True}, indent=2).replace("\x7f", "\\u007f")
    options = " \\\n  ".join([f"curl -sS -N {quote(url)}", *shown, f"--data-binary @- <<'{END}'"])
    return f"{options}\n{body}\n{END}"


def _pretty(body: Mapping[str, Json]) -> str:
    """A request as JSON for people; where its input is long, an item a line."""
    said = body.get("input")
    if not isinstance(said, list) or len(said) <= SPREAD:
        return json.dumps(body, indent=2, ensure_ascii=False)
    items = ",\n    ".join(map(json.JSONEncoder(ensure_ascii=False).encode, said))
    rest = {name: "" if name == "input" else json.dumps(value, ensure_ascii=False) for name, value in body.items()}
    rest["input"] = f"[\n    {items}\n  ]"
    return "{\n" + ",\n".join(f"  {json.dumps(name)}: {value}" for name, value in rest.items()) + "\n}"


def _header(name: str, value: str, variable: str | None) -> str:
    """One header, quoted; a key is left to the shell."""
    if "{key}" not in value:
        return quote(f"{name}: {value}")
    before, _, after = value.partition("{key}")
    return f'"{name}: {before}${{{variable}}}{after}"'


def _before(coming: Coming, medium: Medium, most: int | None) -> Iterator[str]:
    if not coming.before:
        yield "nothing stands before it"
        return
    many = len(coming.before)
    yield f"the owner puts {counted(many)} of {coming.owner} before it"
    left_out = 0 if most is None else max(0, many - most)
    if left_out:
        yield f"      {counted(left_out)} before these"
    for at, node in enumerate(coming.before[left_out:], left_out + 1):
        line = f"{at:>4}  {label(node.item)}: {safe(first_words(node.item))}"
        yield line if medium.width is None else cut(line, medium.width)
    yield ""
