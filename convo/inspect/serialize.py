"""JSON and text forms of a conversation in a file: export documents, readable passages.

An export document (a JSON object; as JSONL a header line, then one line for each item or link):

    {"object": "convo.conversation", "version": 1,
     "name": "monads", "model": "openai/gpt-6.1-terra", "instructions": null, "created_at": 1700000000.0,
     "acknowledged": 4,                     number of confirmed items
     "items": [items as they were sent],
     "links": [{"id": "resp_...", "saw": 3, "head": 4, "sent": 1, ...}],
     "used_at": 1700000600.0, "link_id": "resp_...",
     "other_items": [{"after": 3, "item": item of another branch}],
     "other_links": [{"id": "resp_...", "saw": 3, "head": -1, "sent": 1, ...}]}

`saw`, `head` and `after` are numbers of items, 0 before the first one: 1 is the first of `items`, -1 the first of
`other_items`, so that no number changes when items are appended. The last four members may be missing. The owner, and
the bodies of recorded requests, are not in a document.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from convo.errors import InputFault
from convo.history.canonical import item_hash
from convo.history.items import (
    TEXT_FIELDS,
    Item,
    Json,
    decode_json_escapes,
    is_client_call,
    is_client_output,
    item_author,
    item_text,
    item_type,
)
from convo.history.records import (
    LINK_STATUSES,
    Link,
    Scope,
    Strategy,
    strip_item_secrets,
)
from convo.history.tree import Key, Path, child_key

CONVERSATION_OBJECT, ITEM_OBJECT, LINK_OBJECT = "convo.conversation", "convo.item", "convo.link"
DOCUMENT_VERSION = 1

COMMENT_BEGIN, COMMENT_END = "<!-- convo.conversation ", " -->"
"""The delimiters of a document in Markdown, on the last line: no text of a message can be taken for them."""

COMMENT_WITHOUT_DATA = "<!-- convo: without its data -->"

PAGE_BEGIN, PAGE_END = '<script type="application/json" id="convo">', "</script>"
"""The delimiters of a document in an HTML page; all other text in the page is escaped."""


class TranscriptEntry(NamedTuple):
    """One item of a text for reading.

    replaced_numbers:  of a compaction, the numbers, from 1, of the entries that it replaces in later requests
    """

    item: Item
    replaced_numbers: tuple[int, ...] = ()


class BranchItem(NamedTuple):
    """An item of another branch, and the number of the item before it."""

    after: int
    item: Item


@dataclass(frozen=True, slots=True)
class ConversationDocument:
    """One conversation in a file; see the module docstring. `links` are JSON objects as in the file, of all branches.

    The items have no credentials of tools: neither an export nor the store that a file is imported to may contain them.

    transcript:  `items` with those that a compaction replaced, for Markdown and pages; empty without a compaction, and
                 in no JSON form
    notes:       what a transcript of another program has that was not imported; in no JSON form
    """

    items: tuple[Item, ...]
    confirmed_count: int
    name: str | None = None
    model: str | None = None
    instructions: str | None = None
    created_at: float | None = None
    links: tuple[Mapping[str, Json], ...] = ()
    transcript: tuple[TranscriptEntry, ...] = ()
    used_at: float | None = None
    link_id: str | None = None
    other_items: tuple[BranchItem, ...] = ()
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "items", strip_item_secrets(self.items))
        others = [BranchItem(other.after, *strip_item_secrets([other.item])) for other in self.other_items]
        object.__setattr__(self, "other_items", tuple(others))
        items = strip_item_secrets([entry.item for entry in self.transcript])
        entries = zip(self.transcript, items, strict=True)
        object.__setattr__(self, "transcript", tuple(entry._replace(item=item) for entry, item in entries))

    @property
    def entries(self) -> tuple[TranscriptEntry, ...]:
        """The items of a text for reading."""
        return self.transcript or tuple(map(TranscriptEntry, self.items))


def document_header(document: ConversationDocument) -> dict[str, Json]:
    """Return all fields except items and links."""
    return {
        "object": CONVERSATION_OBJECT,
        "version": DOCUMENT_VERSION,
        "name": document.name,
        "model": document.model,
        "instructions": document.instructions,
        "created_at": document.created_at,
        "acknowledged": document.confirmed_count,
    }


def document_to_json(document: ConversationDocument) -> dict[str, Json]:
    """Return the document as one JSON object."""
    others = {
        "used_at": document.used_at,
        "link_id": document.link_id,
        "other_items": [{"after": other.after, "item": other.item} for other in document.other_items],
        "other_links": [dict(link) for link in document.links if not is_on_path(link)],
    }
    return {
        **document_header(document),
        "items": list(document.items),
        "links": [dict(link) for link in document.links if is_on_path(link)],
        **{name: value for name, value in others.items() if value},
    }


def is_on_path(link: Mapping[str, Json]) -> bool:
    """Return whether the link of a document is on the path of its items."""
    return bool(link["saw"] >= 0 and link["head"] >= 0)


def replace_items(document: ConversationDocument, items: Sequence[Item]) -> ConversationDocument:
    """Return the document with other items; links and branches are left out if they refer to an item that changed."""
    changed = replace(document, items=tuple(items), confirmed_count=len(items))
    is_continued = changed.items[: len(document.items)] == document.items
    return changed if is_continued else replace(changed, links=(), link_id=None, other_items=())


def document_to_lines(document: ConversationDocument) -> Iterator[dict[str, Json]]:
    """Yield the JSON objects of the document's lines."""
    yield document_header(document)
    for position in range(len(document.items) + 1):
        if position:
            yield {"object": ITEM_OBJECT, "item": document.items[position - 1]}
        yield from ({"object": LINK_OBJECT, **link} for link in document.links if link["head"] == position)


def document_from_json(document: Json) -> ConversationDocument:
    """Parse the object of `document_to_json`. Raises InputFault."""
    head = _parse_header(document)
    items = document.get("items")
    links, other_items, other_links = (document.get(name, []) for name in ("links", "other_items", "other_links"))
    if not all(isinstance(value, list) for value in (items, links, other_items, other_links)):
        raise InputFault("'items' and 'links' must be lists")
    return _build_document(head, items, [*links, *other_links], other_items)


def document_from_lines(lines: Sequence[Json]) -> ConversationDocument:
    """Parse the objects of `document_to_lines`. Raises InputFault."""
    items, links = [], []
    for line_number, line in enumerate(lines[1:], 2):
        object_type = line.get("object") if isinstance(line, dict) else None
        if object_type == ITEM_OBJECT:
            items.append(line.get("item"))
        elif object_type == LINK_OBJECT:
            links.append({name: value for name, value in line.items() if name != "object"})
        else:
            raise InputFault(f"line {line_number} is neither an item nor a link")
    return _build_document(_parse_header(lines[0]), items, links)


def is_document(value: Json) -> bool:
    return isinstance(value, dict) and value.get("object") == CONVERSATION_OBJECT


def _parse_header(header: Json) -> Mapping[str, Json]:
    """Validate the header fields. Raises InputFault."""
    if not is_document(header):
        raise InputFault("not a convo conversation")
    if header.get("version") != DOCUMENT_VERSION:
        raise InputFault(f"unsupported document version {header.get('version')}", hint="upgrade convo-state")
    for name, types in HEADER_FIELD_TYPES.items():
        if name not in header:
            raise InputFault(f"{name!r} is missing")
        if not isinstance(header[name], types):
            raise InputFault(f"{name!r} has the wrong type")
    if not isinstance(header.get("link_id"), str | None):
        raise InputFault("'link_id' has the wrong type")
    for name in ("created_at", "used_at"):
        seconds = header.get(name)
        if seconds is not None and not (isinstance(seconds, int | float) and _is_timestamp(seconds)):
            raise InputFault(f"{name!r} is not a valid time")
    return dict(header)


HEADER_FIELD_TYPES: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "model", "instructions"), (str, type(None))),
    "created_at": (int, float, type(None)),
    "acknowledged": (int,),
}


def _build_document(
    head: Mapping[str, Json], items: Sequence[Json], links: Sequence[Json], other_items: Sequence[Json] = ()
) -> ConversationDocument:
    invalid = next((position for position, item in enumerate(items, 1) if not isinstance(item, dict)), None)
    if invalid is not None:
        raise InputFault(f"item {invalid} is not an object")
    for number, other in enumerate(other_items, 1):
        is_valid = isinstance(other, dict) and isinstance(other.get("item"), dict)
        if not is_valid or not isinstance(other.get("after"), int) or not -number < other["after"] <= len(items):
            raise InputFault(f"item {number} of 'other_items' has missing or wrong fields")
    parents = {-number: other["after"] for number, other in enumerate(other_items, 1)}
    for link in links:
        if not isinstance(link, dict) or not _is_valid_link(link, len(items), parents):
            raise InputFault("a link has missing or wrong fields")
    if not 0 <= head["acknowledged"] <= len(items):
        raise InputFault("'acknowledged' is not between 0 and the number of items")
    return ConversationDocument(
        items=tuple(items),
        confirmed_count=head["acknowledged"],
        name=head["name"],
        model=head["model"],
        instructions=head["instructions"],
        created_at=head["created_at"],
        links=tuple(links),
        used_at=head.get("used_at"),
        link_id=head.get("link_id"),
        other_items=tuple(BranchItem(other["after"], other["item"]) for other in other_items),
    )


# -- links ----------------------------------------------------------------------------------------


def links_to_json(links: Iterable[Link], path: Path) -> tuple[Mapping[str, Json], ...]:
    """Return the links on `path` in the form of a document, in the order of their answers."""
    depth = {key: position for position, key in enumerate(path.keys, 1)} | {path.root: 0}
    links_by_id = {link.id: link for link in links if link.input_head in depth and link.head in depth}
    ordered = sorted(
        links_by_id.values(), key=lambda link: (depth[link.head], depth[link.input_head], link.created_at, link.id)
    )
    return tuple(_link_to_json(link, depth) for link in ordered)


def add_branches(
    document: ConversationDocument, links: Iterable[Link], path: Path, nodes: Iterable[tuple[Key, Key, Item]]
) -> ConversationDocument:
    """Return the document of `path` with the branches that `links` are on.

    nodes:  key, parent and item of each node of the links and of `path`, each after its parent
    """
    numbers = {key: position for position, key in enumerate(path.keys, 1)} | {path.root: 0}
    other_items = []
    for key, parent, item in nodes:
        if key not in numbers and parent in numbers:
            other_items.append(BranchItem(numbers[parent], item))
            numbers[key] = -len(other_items)
    known_ids = {link["id"] for link in document.links}
    others = {link.id: link for link in links if link.id not in known_ids}
    other_links = [
        _link_to_json(link, numbers) for link in others.values() if link.input_head in numbers and link.head in numbers
    ]
    return replace(document, links=(*document.links, *other_links), other_items=tuple(other_items))


def number_nodes(document: ConversationDocument, path: Path) -> dict[int, Key]:
    """Return the key of each numbered item of a document in the tree of `path`, which has its items."""
    keys = dict(enumerate([path.root, *path.keys]))
    for number, other in enumerate(document.other_items, 1):
        keys[-number] = child_key(keys[other.after], item_hash(other.item))
    return keys


def _link_to_json(link: Link, numbers: Mapping[Key, int]) -> dict[str, Json]:
    return {
        "id": link.id,
        "saw": numbers[link.input_head],
        "head": numbers[link.head],
        "strategy": str(link.strategy),
        "endpoint": list(link.scope),
        "sent": link.sent_count,
        "model": link.model,
        "status": link.status,
        "created_at": link.created_at,
        "parent": link.parent_id,
        "conversation_id": link.conversation_id,
        "previous_response_id": link.previous_response_id,
        "seconds": link.duration_s,
        "first_token_s": link.first_token_s,
        "parameters": link.parameters,
        "usage": link.usage,
        "error": link.error,
        "stored": link.is_stored,
        **({"reported": link.reported} if link.reported else {}),
    }


def link_from_json(link: Mapping[str, Json], keys: Mapping[int, Key], session: str) -> Link:
    """Parse a link of a document as a link of `session`. Raises InputFault.

    keys:  of `number_nodes`
    """
    try:
        return Link(
            id=link["id"],
            input_head=keys[link["saw"]],
            head=keys[link["head"]],
            strategy=Strategy(link["strategy"]),
            scope=Scope(*link["endpoint"]),
            session_id=session,
            sent_count=link["sent"],
            model=link["model"],
            status=link["status"],
            created_at=link["created_at"],
            parent_id=link.get("parent"),
            conversation_id=link.get("conversation_id"),
            previous_response_id=link.get("previous_response_id"),
            duration_s=link.get("seconds"),
            first_token_s=link.get("first_token_s"),
            parameters=link.get("parameters", {}),
            usage=link.get("usage"),
            error=link.get("error"),
            is_stored=link.get("stored", True),
            reported=link.get("reported", {}),
        )
    except (TypeError, ValueError, KeyError) as error:
        raise InputFault("a link has missing or wrong fields") from error


LINK_FIELD_TYPES: dict[str, tuple[type, ...]] = {
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


def _is_valid_link(link: Mapping[str, Json], item_count: int, parents: Mapping[int, int]) -> bool:
    """Whether `link` has the fields of a link, and the items that it saw are the first ones of the path to its head.

    parents:  the number of the item before each item of another branch
    """
    if not all(isinstance(link.get(name), types) for name, types in LINK_FIELD_TYPES.items()):
        return False
    if not isinstance(link.get("reported", {}), dict):
        return False
    scope = link["endpoint"]
    values = [*(link[name] for name in LINK_FIELD_TYPES), *scope]
    if not all(_is_valid_unicode(value) for value in values if isinstance(value, str)):
        return False
    has_valid_values = (
        link["strategy"] in list(Strategy) and link["status"] in LINK_STATUSES and _is_timestamp(link["created_at"])
    )
    head = link["head"]
    while head < 0 and head != link["saw"]:
        head = parents.get(head, item_count + 1)
    has_valid_positions = (head == link["saw"] or 0 <= link["saw"] <= head) and head <= item_count
    has_valid_positions = has_valid_positions and 0 <= link["sent"] <= item_count + len(parents)
    return (
        has_valid_values
        and has_valid_positions
        and len(scope) == 3
        and all(isinstance(part, str | None) for part in scope)
    )


def _is_valid_unicode(text: str) -> bool:
    """Whether `text` has no unpaired surrogate, which a database rejects."""
    return text.isascii() or not SURROGATE.search(text)


SURROGATE = re.compile("[\ud800-\udfff]")

MAX_TIMESTAMP_S = 253_402_300_800
"""Seconds from 1970 to the year 10000; `datetime` supports no later time."""


def _is_timestamp(seconds: float) -> bool:
    return 0 <= seconds < MAX_TIMESTAMP_S


def format_document(document: ConversationDocument) -> str:
    """Format the document as one JSON object, each item and each request on a line of its own."""
    members = []
    for name, value in document_to_json(document).items():
        lines = ",\n".join(map(format_json_line, value)) if isinstance(value, list) else ""
        members.append(f"{json.dumps(name)}: " + (f"[\n{lines}\n]" if lines else format_json_line(value)))
    return "{" + ",\n".join(members) + "}\n"


def format_json_lines(values: Iterable[Json]) -> str:
    return "".join(format_json_line(value) + "\n" for value in values)


def format_json_line(value: Json) -> str:
    """Format one JSON line."""
    return json.dumps(value, ensure_ascii=True, separators=(", ", ": "))


def document_to_embedded_json(document: ConversationDocument) -> str:
    """Serialize the document so that it can be embedded in a page or a comment."""
    return dump_html_safe_json(document_to_json(document))


def dump_html_safe_json(value: Json) -> str:
    """Serialize JSON without a character that has a meaning in HTML or ends a comment.

    Two consecutive dashes occur only in strings; the second is written as an escape.
    """
    text = json.dumps(value, ensure_ascii=True).replace("--", "-\\u002d")
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


PassageForm = Literal["prose", "thought", "code", "image", "aside"]

UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069"
    "\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    "\U000e0000-\U000e007f\U000e0100-\U000e01ef]"
)
"""Characters that are not text: terminal controls, surrogates, invisible characters, changes of direction."""


class Passage(NamedTuple):
    form: PassageForm
    text: str


def item_title(item: Item) -> str:
    """Return the author of a message, or the kind of an item: "user", "summary", "call of weather"."""
    if is_client_call(item):
        return replace_unprintable(f"call of {item.get('name') or item_type(item)}")
    if is_client_output(item):
        return replace_unprintable(f"output of {item.get('call_id') or item_type(item)}")
    return replace_unprintable(item_author(item))


def entry_title(entry: TranscriptEntry) -> str:
    """Return the title of an item; of a compaction with the items that it replaced: "summary of items 1-4"."""
    if not entry.replaced_numbers:
        return item_title(entry.item)
    noun = "item" if len(entry.replaced_numbers) == 1 else "items"
    return f"{item_title(entry.item)} of {noun} {_format_number_ranges(entry.replaced_numbers)}"


MAX_NUMBER_RANGES = 10
"""Ranges of numbers in a title; a compaction may keep every other item of a thousand."""


def _format_number_ranges(numbers: Sequence[int]) -> str:
    """Format ascending numbers: "1-3, 5"; of many ranges the first ones and the last one: "1-3, 5, … 901"."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][-1] + 1:
            ranges[-1][1:] = [number]
        else:
            ranges.append([number])
    texts = ["-".join(map(str, bounds)) for bounds in ranges]
    if len(texts) > MAX_NUMBER_RANGES:
        texts[MAX_NUMBER_RANGES - 1 :] = [f"… {texts[-1]}"]
    return ", ".join(texts)


def item_passages(item: Item) -> tuple[Passage, ...]:
    """Return the passages of one item, in order, with unprintable characters replaced."""
    passages = [Passage(form, replace_unprintable(text)) for form, text in _iter_passages(item) if text]
    return tuple(passages) or (Passage("aside", "empty"),)


def replace_unprintable(text: str) -> str:
    return UNPRINTABLE.sub("\ufffd", text.replace("\r\n", "\n"))


def _iter_passages(item: Item) -> Iterator[tuple[PassageForm, str]]:
    if item_type(item) == "message":
        yield from _content_passages(item.get("content"))
    elif item_type(item) == "reasoning":
        yield "thought", item_text(item)
        if not item_text(item):
            yield "aside", "encrypted reasoning" if item.get("encrypted_content") else "reasoning without text"
    elif is_client_call(item):
        arguments = item.get("arguments", item.get("input"))
        yield "code", decode_json_escapes(arguments) if isinstance(arguments, str) else _format_json(dict(item))
    elif is_client_output(item):
        yield from _output_passages(item.get("output"))
    elif item_type(item) == "compaction":
        yield "aside", "compaction of the items before this one; encrypted"
    else:
        yield "code", _format_json(dict(item))


def _output_passages(output: Json) -> Iterator[tuple[PassageForm, str]]:
    if isinstance(output, str):
        yield "code", output
    else:
        yield from _content_passages(output)


def _content_passages(content: Json) -> Iterator[tuple[PassageForm, str]]:
    if isinstance(content, str):
        yield "prose", content
    elif isinstance(content, list):
        for part in content:
            yield from _part_passages(part)
    elif content is not None:
        yield "code", _format_json(content)


def _part_passages(part: Json) -> Iterator[tuple[PassageForm, str]]:
    if not isinstance(part, dict):
        yield "code", _format_json(part)
        return
    text = next((part[name] for name in TEXT_FIELDS if isinstance(part.get(name), str)), None)
    if text is not None:
        yield "prose", text
    elif isinstance(part.get("image_url"), str):
        yield "image", part["image_url"]
    elif part.get("type") in ("input_file", "input_image"):
        file_name = part.get("filename") or part.get("file_id") or part.get("file_url") or "unnamed"
        yield "aside", f"a file: {file_name}"
    else:
        yield "code", _format_json(part)


def _format_json(value: Json) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)
