"""A conversation as text between two markers, and the way back.

    For context, here is the conversation so far between the user and the previous agent:
    <CONVERSATION HISTORY>
    1. user: hello
    2. {"type": "function_call", "call_id": "call_0", "name": "t", "arguments": "{}"}
    </CONVERSATION HISTORY>

The text is the Agents SDK's to the letter. A message of one line is `role: text`; everything else
is its JSON, so a record never spans lines and no words of a person can begin a record of their
own. A summary that is found again is taken apart into its records, so nothing is summed up twice.
Only an assistant's message is ever taken for one: a user who writes the markers is quoted.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from convo.items import Item, Json


@dataclass(frozen=True, slots=True)
class Markers:
    """The lines around a summary."""

    start: str = "<CONVERSATION HISTORY>"
    end: str = "</CONVERSATION HISTORY>"


MARKERS = Markers()

PREAMBLE = "For context, here is the conversation so far between the user and the previous agent:"
PREAMBLES = {PREAMBLE, "For context, here is the conversation so far:"}
"""The line that every release wrote above its marker."""

EMPTY = "(no previous turns recorded)"

ROLES = {"assistant", "developer", "system", "user"}

NOT_SAID = ("_agents_tool_description", "_agents_tool_title", "created_by")
"""Fields that are a keeper's own and no part of what was said."""


def summarise(transcript: Sequence[Item], markers: Markers = MARKERS) -> dict[str, Json]:
    """One assistant's message that holds the whole transcript as text."""
    records = (f"{number}. {_record(item)}" for number, item in enumerate(transcript, start=1))
    lines = (PREAMBLE, markers.start, *(records if transcript else (EMPTY,)), markers.end)
    return {"role": "assistant", "content": "\n".join(lines)}


def unfold(items: Iterable[Item], markers: Markers = MARKERS) -> list[Item]:
    """`items`, with the records of every summary in its place."""
    flat: list[Item] = []
    for item in items:
        body = _body(item, markers)
        flat += [cleaned(item)] if body is None else _parsed(body)
    return flat


def cleaned(item: Item) -> Item:
    """`item` without a keeper's own fields."""
    if not any(field in item for field in NOT_SAID):
        return item
    return {field: value for field, value in item.items() if field not in NOT_SAID}


# -- writing --------------------------------------------------------------------------------------


def _record(item: Item) -> str:
    item, role = cleaned(item), item.get("role")
    if isinstance(role, str) and _one_line(item):
        name = item.get("name")
        said = item.get("content")
        return f"{role} ({name}): {said or ''}" if isinstance(name, str) and name else f"{role}: {said or ''}"
    said = {field: value for field, value in item.items() if field != "provider_data"}
    return json.dumps(said, ensure_ascii=False, default=str)


def _one_line(item: Item) -> bool:
    """Whether a message fits one line; its role and name come from elsewhere too, and could break one."""
    content = item.get("content")
    parts = (item.get("role"), item.get("name"), content)
    return (content is None or isinstance(content, str)) and not any(
        "\n" in part or "\r" in part for part in parts if isinstance(part, str)
    )


# -- reading --------------------------------------------------------------------------------------


def _body(item: Item, markers: Markers) -> str | None:
    """The records of a summary, as text; None for everything else."""
    content = item.get("content")
    if item.get("role") != "assistant" or not isinstance(content, str):
        return None
    preamble, broken, wrapped = content.partition("\n")
    start, end = f"{markers.start}\n", f"\n{markers.end}"
    if not broken or preamble not in PREAMBLES or not wrapped.startswith(start) or not wrapped.endswith(end):
        return None
    return wrapped[len(start) : -len(end)]


def _parsed(body: str) -> list[Item]:
    return [item for record in _records(body) if (item := _item(record)) is not None]


def _records(body: str) -> Iterator[str]:
    """Numbered records; lines that go on belong to the one before, as early releases wrote them.

    Only a line feed ends a line here: other separators can stand in a message of one line, and
    must not make two of it.
    """
    current: list[str] = []
    numbered = False
    for line in body.split("\n"):
        if not line.strip():
            continue
        begins = _number(line.lstrip()) is not None
        if current and (begins or not numbered):
            yield "\n".join(current)
            current = []
        if not current:
            numbered = begins
        current.append(line.rstrip() if current else line.strip())
    if current:
        yield "\n".join(current)


def _number(record: str) -> int | None:
    """Where the text behind a record's number begins; None where there is no number."""
    dot = record.find(".")
    return dot + 1 if dot != -1 and record[:dot].isdigit() else None


def _item(record: str) -> Item | None:
    text = record[_number(record) or 0 :].lstrip()
    if (found := _object(text)) is not None:
        return cleaned(found)
    role, colon, rest = text.partition(":")
    if not colon:
        return _message(text, "") if _is_role(text) else None
    role, rest = role.strip(), rest.strip()
    if not role:
        return None
    typed = _object(rest) if _plain(role) not in ROLES else None
    return cleaned({**typed, "type": _plain(role)}) if typed is not None else _message(role, rest)


def _object(text: str) -> dict[str, Json] | None:
    try:
        found = json.loads(text) if text.startswith("{") else None
    except (ValueError, RecursionError):
        return None
    return {field: value for field, value in found.items() if field != "provider_data"} if found is not None else None


def _is_role(text: str) -> bool:
    """A record of an early release whose message had no content; other words without a colon are nobody's."""
    bare = text[: text.rfind("(")].strip() if text.endswith(")") and "(" in text else text
    return bare in ROLES


def _plain(role: str) -> str:
    """A role without the name behind it."""
    return _named(role)[0]


def _named(role: str) -> tuple[str, str | None]:
    name = role[role.rfind("(") + 1 : -1].strip() if role.endswith(")") and "(" in role else ""
    return (role[: role.rfind("(")].strip() or "developer", name) if name else (role, None)


def _message(role: str, content: str) -> dict[str, Json]:
    plain, name = _named(role)
    return {"role": plain, **({"name": name} if name else {}), "content": content}
