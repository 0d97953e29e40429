"""Encoding of records, JSON and search terms, the same in every store.

Links and sessions are columns that queries use, plus JSON. The usage of a link is stored as its shape, which
links share, and its integers. JSON keeps key order and integers exactly, and is always valid UTF-8.
A change of `tokenize`, or of the text that it gets, needs a migration that rebuilds the search index.
"""

import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import NoneType
from typing import Any, Generic, NamedTuple, TypeAlias, TypeGuard, TypeVar

from convo.errors import DamagedRow, NotCanonical, RowKind
from convo.history.canonical import is_utf8_encodable, refuse_json_constant
from convo.history.items import Item, Json, StreamEvent, searchable_text
from convo.history.records import (
    AGENT_RUN_STATUSES,
    LINK_STATUSES,
    AgentCall,
    AgentRun,
    ApprovalDecision,
    Link,
    Scope,
    Session,
    Strategy,
)
from convo.history.tree import Key

SAME_AS_PARENT = ""
"""Value of the column `previous` for the parent's own id, the usual case in a chain."""


class InvalidColumn(ValueError):
    """A column has a value that convo never stores; the message names the column."""


UNDECODABLE = (ValueError, RecursionError)
"""Errors of a column that cannot be decoded: invalid JSON, too deeply nested JSON, or an `InvalidColumn`."""


def damaged_row(table: RowKind, key: object, error: BaseException) -> DamagedRow:
    """Return the error for a row that cannot be decoded; it never quotes the content of the row.

    key:  the name or id, as stored
    """
    problem = str(error) if isinstance(error, InvalidColumn) else "it contains invalid JSON"
    return DamagedRow(table, key.decode("utf-8", "replace") if isinstance(key, bytes) else str(key or ""), problem)


RowResult = TypeVar("RowResult")


class ReadRows(NamedTuple, Generic[RowResult]):
    """The rows of a list that could be decoded, and the errors of those that were left out."""

    rows: list[RowResult]
    damaged: list[DamagedRow]

    def report(self, observer: Callable[[DamagedRow], None], *, strict: bool = False) -> list[RowResult]:
        """Return the decoded rows, and report the others; raise the first of them instead if `strict`."""
        for error in self.damaged:
            if strict:
                raise error
            observer(error)
        return self.rows


def decode_rows(decode: Callable[[Any], RowResult], rows: Iterable[Any]) -> ReadRows[RowResult]:
    """Decode the rows of a list; a damaged one is left out. `decode` raises DamagedRow."""
    read: ReadRows[RowResult] = ReadRows([], [])
    for row in rows:
        try:
            read.rows.append(decode(row))
        except DamagedRow as error:
            read.damaged.append(error)
    return read


KEY_BYTES = 32

TEXT, OPTIONAL_TEXT = (str,), (str, NoneType)
NUMBER, OPTIONAL_NUMBER = (int, float), (int, float, NoneType)
INTEGER, OPTIONAL_INTEGER = (int,), (int, NoneType)
OBJECT = (dict,)

ColumnCheck: TypeAlias = tuple[str, object, tuple[type, ...]]
"""The name of a column, its value, and the types that it can have."""


def _check_columns(*columns: ColumnCheck) -> None:
    """Raise InvalidColumn for the first column with a value of another type; a bool is not a number."""
    for name, value, types in columns:
        if type(value) not in types:
            raise InvalidColumn(f"its {name} is {'missing' if value is None else 'invalid'}")


def _decode_key(name: str, column: object) -> Key:
    if not isinstance(column, bytes) or len(column) != KEY_BYTES:
        raise InvalidColumn(f"its {name} is {'missing' if column is None else 'invalid'}")
    return Key(column.hex())


def _decode_text(name: str, column: object, types: tuple[type, ...]) -> Json:
    """Decode the JSON in a column, which must be of one of these types."""
    _check_columns((name, column, (str, bytes)))
    try:
        value = decode_json(column)  # type: ignore[arg-type]
    except UNDECODABLE as error:
        raise InvalidColumn(f"its {name} is not valid JSON") from error
    _check_columns((name, value, types))
    return value


def decode_link(row: Sequence[Any]) -> Link:
    """Build a link from its columns. Raises DamagedRow.

    row:  id, parent, session, saw, head, sent, route, status, created_at, previous, seconds,
          first_token_s, parameters, usage, error, body; keys as bytes, JSON as text
    """
    try:
        return _build_link(*row)
    except UNDECODABLE as error:
        raise damaged_row("response", row[0], error) from error


def _build_link(
    link_id: Any, parent: Any, session: Any, saw: Any, head: Any, sent: Any, route: Any, status: Any, created_at: Any,
    previous: Any, seconds: Any, first_token_s: Any, parameters: Any, figures: Any, error: Any, body: Any,
) -> Link:  # fmt: skip
    route = _decode_text("route", route, (list,))
    if not is_route(route):
        raise InvalidColumn("its route is invalid")
    model, strategy, url, organisation, project, conversation, is_stored, form = route
    if status not in LINK_STATUSES:
        raise InvalidColumn(f"its status is {'missing' if status is None else 'invalid'}")
    _check_columns(
        ("id", link_id, TEXT), ("parent", parent, OPTIONAL_TEXT), ("session", session, OPTIONAL_TEXT),
        ("number of sent items", sent, INTEGER), ("time", created_at, NUMBER),
        ("previous response", previous, OPTIONAL_TEXT), ("duration", seconds, OPTIONAL_NUMBER),
        ("time of the first token", first_token_s, OPTIONAL_NUMBER), ("usage", figures, OPTIONAL_TEXT),
    )  # fmt: skip
    fields = {} if error is None else dict(_decode_text("error", error, OBJECT))
    reported = fields.pop(REPORTED_MEMBER, None) or {}
    _check_columns(("reported fields", reported, OBJECT))
    usage = None if figures is None else _decode_usage(form, figures)
    if usage is not None:
        usage.pop(TIER_MEMBER, None)
    return Link(
        id=link_id,
        input_head=_decode_key("input", saw),
        head=_decode_key("head", head),
        sent_count=sent,
        model=model,
        strategy=Strategy(strategy),
        status=status,
        created_at=created_at,
        parent_id=parent,
        session_id=session,
        scope=Scope(url, organisation, project),
        conversation_id=conversation,
        previous_response_id=parent if previous == SAME_AS_PARENT else previous,
        duration_s=seconds,
        first_token_s=first_token_s,
        parameters={} if parameters is None else _decode_text("parameters", parameters, OBJECT),
        usage=usage,
        error=fields if fields or not (error is None or reported) else None,
        is_stored=is_stored,
        reported=reported,
        body_head=None if body is None else _decode_key("body", body),
    )


def _decode_usage(form: Json, figures: str) -> Json:
    try:
        usage = merge_integers(form, figures)
    except UNDECODABLE as error:
        raise InvalidColumn("its usage is invalid") from error
    _check_columns(("usage", usage, OBJECT))
    return usage


TIER_MEMBER = "convo.service_tier"
"""The member of a stored usage with the service tier, by which versions without the column `tier` find the price."""


def encode_route(link: Link) -> tuple[list[Json], str | None]:
    """Return the part of a link that repeats from call to call, and the integers of its usage.

    Raises NotCanonical for a link that `decode_link` would refuse.
    """
    if link.status not in LINK_STATUSES:
        raise NotCanonical(f"the response {link.id!a} has an unknown status")
    usage = link.usage
    if usage is not None and link.service_tier:
        usage = {**usage, TIER_MEMBER: link.service_tier}
    form, figures = split_integers(usage)
    scope = [link.scope.url, link.scope.organisation, link.scope.project]
    return [link.model, link.strategy, *scope, link.conversation_id, link.is_stored, form], figures


REPORTED_MEMBER = "convo.reported"
"""The member of the column `error` with the reported fields of a link, which may have no error."""


def encode_error(link: Link) -> str | None:
    """Return the value of the column `error`."""
    if link.reported:
        return encode_json({**(link.error or {}), REPORTED_MEMBER: link.reported})
    return encode_json(link.error) if link.error is not None else None


def is_route(route: Json) -> TypeGuard[list[Json]]:
    """Return whether the stored route of a link can be decoded."""
    if not isinstance(route, list) or len(route) != 8:
        return False
    model, strategy, url, organisation, project, conversation, is_stored, form = route
    return (
        all(isinstance(text, str) for text in (model, url))
        and all(text is None or isinstance(text, str) for text in (organisation, project, conversation))
        and strategy in list(Strategy)
        and isinstance(is_stored, bool)
        and (form is None or isinstance(form, dict))
    )


LISTED_COLUMNS = (
    *("model", "tier", "input_tokens", "cached_tokens", "output_tokens", "written_tokens", "written_1h_tokens"),
    *("title", "tools"),
)
"""The columns of a link by which requests are listed, sorted, filtered and charted."""

MAX_LISTED_TOOLS, MAX_TOOL_CHARS = 200, 100
"""Tools of a request, or of a list, that are listed, and characters of their names."""


def encode_listed_columns(link: Link) -> tuple[str | int | None, ...]:
    """Return the values of `LISTED_COLUMNS`. The cost is none: a price can change, in the settings or in a release."""
    from convo.usage.cost import Usage  # a command that writes no link does not need it

    usage = Usage.from_json(link.usage)
    counts = usage and (
        *(usage.input_tokens, usage.cached_tokens, usage.output_tokens),
        *(usage.cache_write_tokens, usage.cache_write_1h_tokens),
    )
    names = sorted({*_find_hosted_tools(link.parameters), *link.tools})
    tools = [name for name in names if len(name) <= MAX_TOOL_CHARS][:MAX_LISTED_TOOLS]
    return (
        escape_name(link.model),
        link.service_tier and escape_name(link.service_tier),
        *(counts or (None,) * 5),
        None if link.title is None else escape_name(link.title),
        json.dumps(tools) if tools else None,
    )


def encode_tool(name: str) -> str:
    """Return the text that the column `tools` contains if a request has this tool."""
    return json.dumps(name)


UNREADABLE_COLUMNS: tuple[str | int | None, ...] = (*(None for _ in LISTED_COLUMNS[:-2]), "", None)
"""The values of `LISTED_COLUMNS` of a damaged link."""


def _find_hosted_tools(parameters: Json) -> Iterator[str]:
    """Yield the types and the server labels of the tools that a request offers, except for functions."""
    tools = parameters.get("tools")
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, dict) and tool.get("type") != "function":
            names = tool.get("type"), tool.get("server_label")
            yield from (name for name in names if isinstance(name, str))


ESCAPE_CHARACTER = "\x1a"
UNSTORABLE_CHARACTERS = re.compile(f"[\0{ESCAPE_CHARACTER}\ud800-\udfff]")
ESCAPE_SEQUENCE = re.compile(f"{ESCAPE_CHARACTER}([0-9a-f]{{4}})")


def escape_name(name: str) -> str:
    """Return `name` in a form that every database can store."""
    return UNSTORABLE_CHARACTERS.sub(lambda match: f"{ESCAPE_CHARACTER}{ord(match[0]):04x}", name)


def unescape_name(column: str) -> str:
    """Return the name that `escape_name` escaped."""
    return ESCAPE_SEQUENCE.sub(lambda match: chr(int(match[1], 16)), column)


def encode_previous_response_id(link: Link) -> str | None:
    """Return the value of the column `previous`."""
    is_chained = link.parent_id is not None and link.previous_response_id == link.parent_id
    return SAME_AS_PARENT if is_chained else link.previous_response_id


def decode_session(row: Sequence[Any]) -> Session:
    """Build a session from its columns. Raises DamagedRow.

    row:  id, name, head, mark, written, link, used_at, record, used; keys as bytes
    """
    session_id, name, head, mark, written, link, used_at, record, used = row
    try:
        _check_columns(
            ("id", session_id, TEXT), ("name", name, TEXT), ("response", link, OPTIONAL_TEXT),
            ("time", used_at, NUMBER), ("use order", used, OPTIONAL_INTEGER),
        )  # fmt: skip
        strategy, model, created_at, url, organisation, project, handle, instructions = _parse_session_record(record)
        return Session(
            id=session_id,
            name=name,
            strategy=Strategy(strategy),
            model=model,
            head=_decode_key("head", head),
            confirmed_head=_decode_key("confirmed head", mark),
            created_at=created_at,
            used_at=used_at,
            scope=Scope(url, organisation, project),
            link_id=link,
            handle=handle,
            file_head=None if written is None else _decode_key("file head", written),
            instructions=instructions,
            use_order=used,
        )
    except UNDECODABLE as error:
        raise damaged_row("session", name or session_id, error) from error


def _parse_session_record(record: object) -> list[Json]:
    """Return the members of a session's column `record`. Raises InvalidColumn."""
    members: list[Json] = _decode_text("record", record, (list,))
    if len(members) != 8 or members[0] not in list(Strategy):
        raise InvalidColumn("its record is invalid")
    _, model, created_at, url, *optional_texts = members
    _check_columns(("record", model, TEXT), ("record", created_at, NUMBER), ("record", url, TEXT))
    _check_columns(*(("record", text, OPTIONAL_TEXT) for text in optional_texts))
    return members


def is_session_record(record: object) -> bool:
    """Return whether the text of a session's column `record` can be decoded."""
    try:
        _parse_session_record(record)
    except InvalidColumn:
        return False
    return True


def decode_session_handle(name: object, record: object) -> tuple[Strategy, str | None]:
    """Return the strategy and the handle in a session's column `record`. Raises DamagedRow."""
    try:
        strategy, *_, handle, _ = _parse_session_record(record)
    except InvalidColumn as error:
        raise damaged_row("session", name, error) from error
    return Strategy(strategy), handle


def decode_metadata(conversation_id: str, created_at: object, metadata: object) -> dict[str, str]:
    """Return the metadata of a conversation. Raises DamagedRow."""
    try:
        _check_columns(("time", created_at, NUMBER))
        pairs: dict[str, str] = _decode_text("metadata", metadata, OBJECT)
    except InvalidColumn as error:
        raise damaged_row("conversation", conversation_id, error) from error
    return pairs


def decode_agent_run(row: Sequence[Any]) -> AgentRun:
    """Build an agent run from its columns. Raises DamagedRow.

    row:  id, session, revision, status, document, created_at, changed_at, state; the document as JSON
    """
    run_id, session, revision, status, document, created_at, changed_at, state = row
    try:
        _check_columns(
            ("id", run_id, TEXT), ("session", session, TEXT), ("revision", revision, INTEGER),
            ("time", created_at, NUMBER), ("time", changed_at, NUMBER), ("source state", state, OPTIONAL_TEXT),
        )  # fmt: skip
        if status not in AGENT_RUN_STATUSES:
            raise InvalidColumn("its status is invalid")
        document = _decode_text("document", document, OBJECT)
    except InvalidColumn as error:
        raise damaged_row("run", run_id, error) from error
    return AgentRun(run_id, session, revision, status, document, created_at, changed_at, state)


def decode_agent_call(run_id: str, row: Sequence[Any]) -> AgentCall:
    """Build a tool call of a run from its columns. Raises DamagedRow.

    row:  id, started_at, output; the output as JSON, None while the call runs
    """
    call_id, started_at, output = row
    try:
        _check_columns(("id", call_id, TEXT), ("time", started_at, NUMBER))
        value = None if output is None else decode_json(_check_text("output", output))
    except UNDECODABLE as error:
        raise damaged_row("tool call", f"{run_id} {call_id}", error) from error
    return AgentCall(run_id, call_id, started_at, output is not None, value)


def encode_approval_decision(decision: ApprovalDecision) -> str:
    """Encode the column `body` of a decision. Raises NotCanonical."""
    return encode_json(
        {
            "call_id": decision.call_id,
            "agent": decision.agent,
            "tool": decision.tool,
            "arguments": decision.arguments,
            "approved": decision.approved,
            "decided_by": decision.decided_by,
            "source": decision.source,
            "always": decision.is_sticky,
            "reason": decision.reason,
        }
    )


def decode_approval_decision(row: Sequence[Any]) -> ApprovalDecision:
    """Build a decision from its columns. Raises DamagedRow.

    row:  run, decided_at, body; the body as JSON
    """
    run_id, decided_at, body = row
    try:
        _check_columns(("run", run_id, TEXT), ("time", decided_at, NUMBER))
        members = _decode_text("body", body, OBJECT)
        call_id, approved, is_sticky = members.get("call_id"), members.get("approved"), members.get("always")
        _check_columns(
            *((name, members.get(name), TEXT) for name in ("call_id", "agent", "tool", "arguments", "source")),
            *((name, members.get(name), OPTIONAL_TEXT) for name in ("decided_by", "reason")),
        )
        if not isinstance(approved, bool) or not isinstance(is_sticky, bool):
            raise InvalidColumn("it does not contain a decision")
    except InvalidColumn as error:
        raise damaged_row("decision", f"of {run_id}", error) from error
    return ApprovalDecision(
        *(run_id, call_id, members["agent"], members["tool"], members["arguments"], approved, decided_at),
        *(members["decided_by"], members["source"], is_sticky, members["reason"]),
    )


def _check_text(name: str, column: object) -> str | bytes:
    _check_columns((name, column, (str, bytes)))
    return column  # type: ignore[return-value]


def decode_event(response_id: str, body: object) -> StreamEvent:
    """Decode an event of a response. Raises DamagedRow."""
    try:
        event: StreamEvent = _decode_text("body", body, OBJECT)
        _check_columns(("sequence number", event.get("sequence_number"), INTEGER))
    except InvalidColumn as error:
        raise damaged_row("event", f"of {response_id}", error) from error
    return event


def decode_event_batch(response_id: str, body: object) -> list[StreamEvent]:
    """Decode a list of events of a response. Raises DamagedRow."""
    try:
        events: list[StreamEvent] = _decode_text("body", body, (list,))
        for event in events:
            _check_columns(("body", event, OBJECT))
            _check_columns(("sequence number", event.get("sequence_number"), INTEGER))
    except InvalidColumn as error:
        raise damaged_row("event", f"of {response_id}", error) from error
    return events


def decode_item(key: str, body: object) -> Item:
    """Decode an item. Raises DamagedRow.

    key:  names the item in the error: the key of its node, which is shortened, or its id
    """
    try:
        item: Item = _decode_text("body", body, OBJECT)
    except InvalidColumn as error:
        raise damaged_row("item", key[:12] if len(key) == 2 * KEY_BYTES else key, error) from error
    return item


def decode_items(keys: Sequence[str], bodies: Sequence[str | bytes]) -> Sequence[Item]:
    """Decode items, joined into one array: that takes half the time. Raises DamagedRow for the first damaged one.

    keys:  one for each item, as in `decode_item`
    """
    try:
        items: list[Item] = decode_json(
            b"[" + b",".join(bodies) + b"]"  # type: ignore[arg-type]
            if bodies and isinstance(bodies[0], bytes)
            else f"[{','.join(bodies)}]"  # type: ignore[arg-type]
        )
        if len(items) == len(bodies) and all(type(item) is dict for item in items):
            return items
    except (TypeError, *UNDECODABLE):  # a body of bytes among texts: it is not UTF-8
        pass
    return [decode_item(key, body) for key, body in zip(keys, bodies, strict=True)]


def encode_session_record(session: Session) -> str:
    """Return the JSON of a session's column `record`. Raises NotCanonical."""
    scope = [session.scope.url, session.scope.organisation, session.scope.project]
    return encode_json(
        [session.strategy, session.model, session.created_at, *scope, session.handle, session.instructions]
    )


def split_integers(value: Json) -> tuple[Json, str | None]:
    """Return `value` with 0 in place of every integer, and the integers as "1,2,3".

    Returns (None, None) for None.
    """
    if value is None:
        return None, None
    integers: list[int] = []
    form = _take_integers(value, integers)
    return form, encode_json(integers)[1:-1]


def merge_integers(form: Json, integers: str) -> Json:
    """Return the value that `split_integers` split. Raises ValueError if it did not split a value into these."""
    remaining = iter(decode_json(f"[{integers}]"))
    value = _put_integers(form, remaining)
    if next(remaining, None) is not None:
        raise ValueError("there are more integers than places for them")
    return value


def _take_integers(value: Json, integers: list[int]) -> Json:
    if isinstance(value, dict):
        return {key: _take_integers(inner, integers) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_take_integers(inner, integers) for inner in value]
    if type(value) is int:  # not a bool
        integers.append(value)
        return 0
    return value


def _put_integers(form: Json, integers: Iterator[int]) -> Json:
    if isinstance(form, dict):
        return {key: _put_integers(inner, integers) for key, inner in form.items()}
    if isinstance(form, list):
        return [_put_integers(inner, integers) for inner in form]
    if type(form) is not int:
        return form
    integer = next(integers, None)
    if type(integer) is not int:
        raise ValueError("an integer is missing")
    return integer


COMPACT_SEPARATORS = (",", ":")

STORED_JSON_ENCODER = json.JSONEncoder(separators=COMPACT_SEPARATORS, ensure_ascii=False, allow_nan=False)
"""Created once: creating it takes as long as encoding a short item with it."""


def encode_json(value: Json) -> str:
    """Return the JSON text of `value`, always valid UTF-8.

    Raises NotCanonical for NaN, infinity, or a value that is not JSON.
    """
    try:
        text = STORED_JSON_ENCODER.encode(value)
        return text if is_utf8_encodable(text) else json.dumps(value, separators=COMPACT_SEPARATORS)
    except (TypeError, ValueError, RecursionError) as error:
        raise NotCanonical(f"a value has no JSON form: {error}") from error


STORED_JSON_DECODER = json.JSONDecoder(parse_constant=refuse_json_constant)


def decode_json(text: str | bytes) -> Json:
    """Decode stored JSON. Raises ValueError and RecursionError."""
    return STORED_JSON_DECODER.decode(text if isinstance(text, str) else text.decode())


CJK_RANGES = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
EMOJI_RANGES = "\u2600-\u27bf\U0001f000-\U0001faff"
JAPANESE_SOUND_MARKS = "\u3099\u309a"
MAX_TERM_CHARACTERS = 64
"""Characters of a term that are indexed; a longer one is a key or an encoded file, not a word."""


_TERM = f"[^\\W_{CJK_RANGES}{EMOJI_RANGES}]+|[{CJK_RANGES}{EMOJI_RANGES}]"
_ASCII_TERM = "[^\\W_]+"
"""The same for ASCII text. Compiling `_TERM` takes 2 ms, more than storing a message."""


def tokenize(text: str) -> str:
    """Return the terms of `text` in order, separated by one space."""
    normalized = _normalize_text(text)
    terms = re.findall(_ASCII_TERM if normalized.isascii() else _TERM, normalized)
    return " ".join(term[:MAX_TERM_CHARACTERS] for term in terms)


def tokenize_item(item: Item) -> str:
    return tokenize(searchable_text(item))


def parse_search_phrases(query: str) -> tuple[str, ...]:
    """Return the phrases that a search requires: the terms of each word, which must be adjacent."""
    return tuple(dict.fromkeys(phrase for word in query.split() if (phrase := tokenize(word))))


def phrase_density(terms: str, phrases: tuple[str, ...]) -> float:
    """Return the density of the phrases in a text; 0 if one is missing, or if there are none.

    terms:  the text, from `tokenize`
    """
    counts = [f" {terms} ".count(f" {phrase} ") for phrase in phrases]
    return sum(counts) / len(terms) if all(counts) and counts else 0.0


def _normalize_text(text: str) -> str:
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text).casefold()
    return unicodedata.normalize("NFC", "".join(character for character in decomposed if _is_significant(character)))


def _is_significant(character: str) -> bool:
    """Return whether a character is no combining mark, or one that changes the letter before it, as in Japanese."""
    return character in JAPANESE_SOUND_MARKS or not unicodedata.combining(character)
