"""One conversation as a file can hold it, and as it is read back.

    {"object": "convo.conversation", "version": 1,
     "name": "monads", "model": "openai/gpt-5-mini", "instructions": null, "created_at": 1700000000.0,
     "acknowledged": 4,                     how many of the items their owner had confirmed
     "items": [items as they travelled],
     "links": [{"id": "resp_...", "saw": 3, "head": 4, "sent": 1, ...}]}

A link says how many items led up to its question and to its answer; only those on the path are here,
what lies on other branches is not. Who owned the conversation stands nowhere: in a file, nobody does.
As lines (JSONL) the same is a head without items and links, then each item in an object of its own
with the links that end there behind it, so that no item can be taken for anything else.

    1   the first form
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from convo.errors import InputFault
from convo.history import Key, Link, Path, Scope, Strategy
from convo.items import Item, Json

CONVERSATION, ITEM, LINK = "convo.conversation", "convo.item", "convo.link"
VERSION = 1

COMMENT_BEGIN, COMMENT_END = "<!-- convo.conversation ", " -->"
"""What stands around a document in Markdown; it is the last line, so no words of a message can be taken for it."""

COMMENT_WITHOUT = "<!-- convo: without its data -->"

PAGE_BEGIN, PAGE_END = '<script type="application/json" id="convo">', "</script>"
"""What stands around a document in a page; every word beside it is escaped."""


@dataclass(frozen=True, slots=True)
class Document:
    """One conversation in a file; see the module. `links` are JSON objects as they stand there."""

    items: tuple[Item, ...]
    acknowledged: int
    name: str | None = None
    model: str | None = None
    instructions: str | None = None
    created_at: float | None = None
    links: tuple[Mapping[str, Json], ...] = ()


def head_of(document: Document) -> dict[str, Json]:
    """Everything but items and links."""
    return {
        "object": CONVERSATION,
        "version": VERSION,
        "name": document.name,
        "model": document.model,
        "instructions": document.instructions,
        "created_at": document.created_at,
        "acknowledged": document.acknowledged,
    }


def as_whole(document: Document) -> dict[str, Json]:
    """The one object."""
    return {**head_of(document), "items": list(document.items), "links": [dict(link) for link in document.links]}


def as_lines(document: Document) -> Iterator[dict[str, Json]]:
    """The objects of its lines."""
    yield head_of(document)
    for at in range(len(document.items) + 1):
        if at:
            yield {"object": ITEM, "item": document.items[at - 1]}
        yield from ({"object": LINK, **link} for link in document.links if link["head"] == at)


def from_whole(found: Json) -> Document:
    """What `as_whole` gave. raises: InputFault"""
    head = _head(found)
    items, links = found.get("items"), found.get("links", [])
    if not isinstance(items, list) or not isinstance(links, list):
        raise InputFault("it has no list of items")
    return _document(head, items, links)


def from_lines(lines: Sequence[Json]) -> Document:
    """What `as_lines` gave. raises: InputFault"""
    items, links = [], []
    for at, line in enumerate(lines[1:], 2):
        what = line.get("object") if isinstance(line, dict) else None
        if what == ITEM:
            items.append(line.get("item"))
        elif what == LINK:
            links.append({name: value for name, value in line.items() if name != "object"})
        else:
            raise InputFault(f"line {at} is neither an item nor a link")
    return _document(_head(lines[0]), items, links)


def is_document(found: Json) -> bool:
    return isinstance(found, dict) and found.get("object") == CONVERSATION


def _head(found: Json) -> Mapping[str, Json]:
    """raises: InputFault"""
    if not is_document(found):
        raise InputFault("it is no conversation of convo's")
    if found.get("version") != VERSION:
        raise InputFault(f"a newer convo wrote it, in form {found.get('version')}", hint="upgrade convo-state")
    for name, kinds in HEAD.items():
        if name not in found:
            raise InputFault(f"its {name!r} is missing")
        if not isinstance(found[name], kinds):
            raise InputFault(f"its {name!r} is of another kind")
    if found["created_at"] is not None and not _is_time(found["created_at"]):
        raise InputFault("its 'created_at' is no time")
    return dict(found)


HEAD: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "model", "instructions"), (str, type(None))),
    "created_at": (int, float, type(None)),
    "acknowledged": (int,),
}


def _document(head: Mapping[str, Json], items: Sequence[Json], links: Sequence[Json]) -> Document:
    bad = next((at for at, item in enumerate(items, 1) if not isinstance(item, dict)), None)
    if bad is not None:
        raise InputFault(f"item {bad} is no object")
    for link in links:
        if not isinstance(link, dict) or not _fits(link, len(items)):
            raise InputFault("one of its links is none")
    if not 0 <= head["acknowledged"] <= len(items):
        raise InputFault("more is acknowledged in it than was said")
    return Document(
        items=tuple(items),
        acknowledged=head["acknowledged"],
        name=head["name"],
        model=head["model"],
        instructions=head["instructions"],
        created_at=head["created_at"],
        links=tuple(links),
    )


# -- links ----------------------------------------------------------------------------------------


def written(links: Iterable[Link], path: Path) -> tuple[Mapping[str, Json], ...]:
    """The links on `path` as they stand in a file, in the order of their answers."""
    depth = {key: at for at, key in enumerate(path.keys, 1)} | {path.root: 0}
    here = {link.id: link for link in links if link.saw in depth and link.head in depth}
    ordered = sorted(here.values(), key=lambda link: (depth[link.head], depth[link.saw], link.created_at, link.id))
    return tuple(_written(link, depth) for link in ordered)


def _written(link: Link, depth: Mapping[Key, int]) -> dict[str, Json]:
    return {
        "id": link.id,
        "saw": depth[link.saw],
        "head": depth[link.head],
        "strategy": str(link.strategy),
        "endpoint": list(link.scope),
        "sent": link.sent,
        "model": link.model,
        "status": link.status,
        "created_at": link.created_at,
        "parent": link.parent,
        "conversation_id": link.conversation_id,
        "previous_response_id": link.previous_response_id,
        "seconds": link.seconds,
        "first_token_s": link.first_token_s,
        "parameters": link.parameters,
        "usage": link.usage,
        "error": link.error,
        "stored": link.stored,
    }


def link_of(found: Mapping[str, Json], path: Path, session: str) -> Link:
    """The link that stands in a file, on `path`, as if `session` had made it. raises: InputFault"""

    def key(count: int) -> Key:
        return path.nodes[count - 1].key if count else path.root

    try:
        return Link(
            id=found["id"],
            saw=key(found["saw"]),
            head=key(found["head"]),
            strategy=Strategy(found["strategy"]),
            scope=Scope(*found["endpoint"]),
            session=session,
            sent=found["sent"],
            model=found["model"],
            status=found["status"],
            created_at=found["created_at"],
            parent=found.get("parent"),
            conversation_id=found.get("conversation_id"),
            previous_response_id=found.get("previous_response_id"),
            seconds=found.get("seconds"),
            first_token_s=found.get("first_token_s"),
            parameters=found.get("parameters", {}),
            usage=found.get("usage"),
            error=found.get("error"),
            stored=found.get("stored", True),
        )
    except (TypeError, ValueError, KeyError) as wrong:
        raise InputFault("one of its links is none") from wrong


KINDS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("id", "model", "strategy", "status"), (str,)),
    **dict.fromkeys(("saw", "head", "sent"), (int,)),
    **dict.fromkeys(("parent", "conversation_id", "previous_response_id"), (str, type(None))),
    **dict.fromkeys(("seconds", "first_token_s"), (int, float, type(None))),
    "created_at": (int, float),
    "parameters": (dict,),
    "usage": (dict, type(None)),
    "error": (dict, type(None)),
    "stored": (bool,),
    "endpoint": (list,),
}


def _fits(link: Mapping[str, Json], items: int) -> bool:
    """Whether it has the fields of a link, and stands among `items` items."""
    if not all(isinstance(link.get(name), kinds) for name, kinds in KINDS.items()):
        return False
    scope = link["endpoint"]
    words = [*(link[name] for name in KINDS), *scope]
    if not all(_can_be_kept(one) for one in words if isinstance(one, str)):
        return False
    known = link["strategy"] in list(Strategy) and link["status"] in STATUSES and _is_time(link["created_at"])
    placed = 0 <= link["saw"] <= link["head"] <= items and 0 <= link["sent"] <= items
    return known and placed and len(scope) == 3 and all(isinstance(part, str | None) for part in scope)


def _can_be_kept(words: str) -> bool:
    """Whether it is whole characters: a database takes no half of one."""
    return words.isascii() or not HALF.search(words)


HALF = re.compile("[\ud800-\udfff]")

END_OF_TIME = 253_402_300_800
"""The first second of the year 10000, since 1970; no calendar goes further."""


def _is_time(seconds: float) -> bool:
    return 0 <= seconds < END_OF_TIME


STATUSES = ("queued", "in_progress", "completed", "incomplete", "failed", "cancelled")


def line(found: Json) -> str:
    """One line of a file."""
    return json.dumps(found, ensure_ascii=True, separators=(", ", ": "))


def embedded(document: Document) -> str:
    """The document as JSON that can stand in a page or a comment."""
    return harmless(as_whole(document))


def harmless(found: Json) -> str:
    """JSON in which no character means anything to HTML, or ends a comment.

    Two dashes in a row stand only in strings, and the second is written as its number.
    """
    text = json.dumps(found, ensure_ascii=True).replace("--", "-\\u002d")
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")
