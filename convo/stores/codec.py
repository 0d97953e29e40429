"""Encoding of records, JSON and search terms, the same in every store.

Links and sessions are columns that queries use, plus JSON. The usage of a link is stored as its shape, which
links share, and its integers. JSON keeps key order and integers exactly, and is always valid UTF-8.
A change of `tokenize`, or of the text that it gets, needs a migration that rebuilds the search index.
"""

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, TypeGuard

from convo.errors import NotCanonical
from convo.history.items import Item, Json, searchable_text
from convo.history.records import Link, Scope, Session, Strategy
from convo.history.tree import Key

SAME_AS_PARENT = ""
"""Value of the column `previous` for the parent's own id, the usual case in a chain."""


def decode_link(row: Sequence[Any]) -> Link:
    """Build a link from its columns.

    row:  id, parent, session, saw, head, sent, route, status, created_at, previous, seconds,
          first_token_s, parameters, usage, error; keys as bytes, JSON as text
    """
    (link_id, parent, session, saw, head, sent, route, status, created_at, previous, *rest) = row
    (seconds, first_token_s, parameters, figures, error) = rest
    model, strategy, url, organisation, project, conversation, is_stored, form = decode_json(route)
    return Link(
        id=link_id,
        input_head=Key(saw.hex()),
        head=Key(head.hex()),
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
        parameters=decode_json(parameters) if parameters else {},
        usage=merge_integers(form, figures) if figures is not None else None,
        error=decode_json(error) if error else None,
        is_stored=is_stored,
    )


def encode_route(link: Link) -> tuple[list[Json], str | None]:
    """Return the part of a link that repeats from call to call, and the integers of its usage."""
    form, figures = split_integers(link.usage)
    scope = [link.scope.url, link.scope.organisation, link.scope.project]
    return [link.model, link.strategy, *scope, link.conversation_id, link.is_stored, form], figures


def is_route(route: Json) -> TypeGuard[list[Json]]:
    """Return whether the stored route of a link can be decoded."""
    if not isinstance(route, list) or len(route) != 8:
        return False
    model, strategy, url, organisation, project, conversation, is_stored, _ = route
    return (
        all(isinstance(text, str) for text in (model, url))
        and all(text is None or isinstance(text, str) for text in (organisation, project, conversation))
        and strategy in list(Strategy)
        and isinstance(is_stored, bool)
    )


def encode_previous_response_id(link: Link) -> str | None:
    """Return the value of the column `previous`."""
    is_chained = link.parent_id is not None and link.previous_response_id == link.parent_id
    return SAME_AS_PARENT if is_chained else link.previous_response_id


def decode_session(row: Sequence[Any]) -> Session:
    """Build a session from its columns.

    row:  id, name, head, mark, written, link, used_at, record, used; keys as bytes
    """
    session_id, name, head, mark, written, link, used_at, record, used = row
    strategy, model, created_at, url, organisation, project, handle, instructions = decode_json(record)
    return Session(
        id=session_id,
        name=name,
        strategy=Strategy(strategy),
        model=model,
        head=Key(head.hex()),
        confirmed_head=Key(mark.hex()),
        created_at=created_at,
        used_at=used_at,
        scope=Scope(url, organisation, project),
        link_id=link,
        handle=handle,
        file_head=Key(written.hex()) if written else None,
        instructions=instructions,
        use_order=used,
    )


def is_session_record(record: str) -> bool:
    """Return whether the text of a session's column `record` can be decoded."""
    try:
        decode_session(("", "", b"", b"", None, None, 0.0, record, None))
    except (ValueError, TypeError, RecursionError):
        return False
    return True


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
    """Return the value that `split_integers` split. Raises ValueError for fewer integers than there are places."""
    try:
        return _put_integers(form, iter(decode_json(f"[{integers}]")))
    except StopIteration as error:
        raise ValueError("a stored value has more places for integers than integers") from error


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
    return next(integers) if type(form) is int else form


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


def decode_json(text: str | bytes) -> Json:
    return json.loads(text)


def is_utf8_encodable(text: str) -> bool:
    """Return whether `text` can be encoded as UTF-8; it cannot with half a surrogate pair."""
    try:
        return text.isascii() or bool(text.encode())
    except UnicodeEncodeError:
        return False


CJK_RANGES = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
EMOJI_RANGES = "\u2600-\u27bf\U0001f000-\U0001faff"
JAPANESE_SOUND_MARKS = "\u3099\u309a"
MAX_TERM_CHARACTERS = 64
"""Characters of a term that are indexed; a longer one is a key or an encoded file, not a word."""


@cache
def _term_pattern() -> re.Pattern[str]:
    """Compiled on first use, because most commands neither write nor search."""
    return re.compile(f"[^\\W_{CJK_RANGES}{EMOJI_RANGES}]+|[{CJK_RANGES}{EMOJI_RANGES}]")


def tokenize(text: str) -> str:
    """Return the terms of `text` in order, separated by one space."""
    return " ".join(term[:MAX_TERM_CHARACTERS] for term in _term_pattern().findall(_normalize_text(text)))


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
