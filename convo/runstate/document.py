"""Parse a JSON document strictly, and read, match and replace values by path.

Invalid UTF-8, duplicate keys, NaN, infinite numbers, excessive size and excessive depth raise InvalidRunState with a
JSON path. A pattern such as `model_responses[].request_id` matches every element with `[]` and every key with `*`.
Documents are never changed in place: `replace_path` and `remove_path` return a copy that shares the rest.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from math import isinf
from typing import NamedTuple, TypeAlias

from convo.errors import InvalidRunState
from convo.history.items import Json

PathStep: TypeAlias = str | int
"""A key of an object or an index of a list."""

PathSteps: TypeAlias = tuple[PathStep, ...]

PLAIN_KEY = re.compile(r"[A-Za-z_$][\w$-]*\Z", re.ASCII)
MAX_KEY_LENGTH = 60
MAX_PRINTED_STEPS = 12
"""Steps; a longer path is printed without its middle."""


class PathMatch(NamedTuple):
    """A value in a document and its path."""

    steps: PathSteps
    value: Json


def format_path(steps: Sequence[PathStep]) -> str:
    """Format a path as JSON path, short enough for a message."""
    if len(steps) > MAX_PRINTED_STEPS:
        return (
            "$"
            + "".join(map(_format_step, steps[: MAX_PRINTED_STEPS // 2]))
            + "…"
            + "".join(map(_format_step, steps[-MAX_PRINTED_STEPS // 2 :]))
        )
    return "$" + "".join(map(_format_step, steps))


def _format_step(step: PathStep) -> str:
    if isinstance(step, int):
        return f"[{step}]"
    short = step if len(step) <= MAX_KEY_LENGTH else step[:MAX_KEY_LENGTH] + "…"
    return f".{short}" if PLAIN_KEY.match(short) else "[" + _quote_key(short) + "]"


def _quote_key(key: str) -> str:
    return '"' + "".join(char if char.isprintable() and char != '"' else f"\\u{ord(char):04x}" for char in key) + '"'


def parse_path_pattern(text: str) -> tuple[str, ...]:
    """Parse `"a.b[].c"` into the steps that `iter_path_matches` takes."""
    return tuple(re.findall(r"\[\]|[^.\[\]]+", text))


def iter_path_matches(value: Json, steps: Sequence[str], prefix: PathSteps = ()) -> Iterator[PathMatch]:
    """Iterate over the values below `value` that match the pattern `steps`."""
    for at, step in enumerate(steps):
        if step in ("[]", "*"):
            members: Iterable[tuple[PathStep, Json]] = ()
            if step == "[]" and isinstance(value, list):
                members = enumerate(value)
            elif step == "*" and isinstance(value, dict):
                members = value.items()
            for key, child in members:
                yield from iter_path_matches(child, steps[at + 1 :], (*prefix, key))
            return
        if not isinstance(value, dict) or step not in value:
            return
        value, prefix = value[step], (*prefix, step)
    yield PathMatch(prefix, value)


def get_path(value: Json, steps: Sequence[PathStep]) -> Json:
    """Return the value at a path; None if there is none."""
    for step in steps:
        if isinstance(value, dict):
            value = value.get(step)
        elif isinstance(value, list) and isinstance(step, int) and step < len(value):
            value = value[step]
        else:
            return None
    return value


def replace_path(value: Json, steps: Sequence[PathStep], new: Json) -> Json:
    """Return `value` with `new` at a path; missing objects on the path are created."""
    if not steps:
        return new
    step, rest = steps[0], steps[1:]
    if isinstance(step, int):
        return [replace_path(child, rest, new) if index == step else child for index, child in enumerate(value)]
    members = value if isinstance(value, dict) else {}
    return {**members, step: replace_path(members.get(step), rest, new)}


def remove_path(value: Json, steps: Sequence[PathStep]) -> Json:
    """Return `value` without the member at a path; only a key is removed, so elements of lists keep their indexes."""
    *parent_steps, last = steps
    parent = get_path(value, parent_steps)
    if not isinstance(parent, dict) or last not in parent:
        return value
    return replace_path(value, parent_steps, {key: child for key, child in parent.items() if key != last})


MAX_STATE_BYTES = 64 * 1024 * 1024
"""Bytes; a state of 5,000 items has 4 million."""

MAX_MEMBERS = 750_000
"""Members and elements of all objects and lists; a state of 5,000 items has 110,000.

More would exhaust the memory, and the one second that an error may take.
"""

MAX_DEPTH = 400
"""Levels of nested objects and lists; a state without nested states needs eight."""

MAX_SCANNED_CHARS = 1_000_000
"""Characters searched for the path of an error; beyond them the path is `$`."""

SCAN_CHUNK_BYTES = 1024 * 1024
"""Bytes scanned at a time."""

UNCOUNTED_BYTES = bytes(set(range(256)) - set(b',[{"'))

BYTE_ORDER_MARKS = (
    (b"\xef\xbb\xbf", "a UTF-8 byte order mark, which no release supports"),
    (b"\xff\xfe", "a UTF-16 byte order mark; a state is UTF-8"),
    (b"\xfe\xff", "a UTF-16 byte order mark; a state is UTF-8"),
)

TOKEN_PATTERN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]|[^\s\[\]{},:"]+', re.DOTALL)
NON_FINITE_PATTERN = re.compile(r"-?(?:NaN|Infinity)")


def parse_document(data: bytes) -> dict[str, Json]:
    """Parse a document. Raises InvalidRunState with the path of the first error."""
    text = _decode_utf8(data)
    if not text.strip():
        raise InvalidRunState("$", "is empty; a state must be one JSON object")
    if _has_too_many_members(data):
        raise InvalidRunState("$", f"has more than {MAX_MEMBERS:,} members of objects and lists, which is too many")
    document = _load_json(text)
    if not isinstance(document, dict):
        raise InvalidRunState("$", f"is {describe_json_type(document)}, not an object")
    if _measure_depth(document) > MAX_DEPTH:
        raise _too_deep_error(text)
    return document


def describe_json_type(value: Json) -> str:
    """Return the JSON type of a value for a message, with its article."""
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return "null" if value is None else names[type(value)]


def _decode_utf8(data: bytes) -> str:
    if len(data) > MAX_STATE_BYTES:
        raise InvalidRunState("$", f"has {len(data):,} bytes; the limit is {MAX_STATE_BYTES:,}")
    for mark, description in BYTE_ORDER_MARKS:
        if data.startswith(mark):
            raise InvalidRunState(
                "$", f"begins with {description}", hint="save the file as UTF-8 without a byte order mark"
            )
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        text = data[: error.start].decode("utf-8")
        raise InvalidRunState(locate_offset(text, error.start), f"is not UTF-8 at byte {error.start}") from error


def _has_too_many_members(data: bytes) -> bool:
    """Return whether there are more than `MAX_MEMBERS` commas and opening brackets outside strings."""
    # This also counts in strings; the exact count is needed only above the limit.
    if sum(map(data.count, (b",", b"[", b"{"))) <= MAX_MEMBERS:
        return False
    counted = 0
    for marks in _count_member_marks(data):
        counted += marks
        if counted > MAX_MEMBERS:
            return True
    return False


def _count_member_marks(data: bytes) -> Iterator[int]:
    """Count the commas and opening brackets outside strings, one chunk after the other.

    Escapes are removed first, so every remaining quote starts or ends a string. Strings without a comma or bracket are
    removed next; then every second piece between quotes is outside a string.
    """
    offset = in_string = 0
    while offset < len(data):
        chunk = data[offset : offset + SCAN_CHUNK_BYTES]
        if (len(chunk) - len(chunk.rstrip(b"\\"))) % 2:
            chunk = data[offset : offset + SCAN_CHUNK_BYTES + 1]
        offset += len(chunk)
        unescaped = chunk.replace(b"\\\\", b"").replace(b'\\"', b"")
        pieces = unescaped.translate(None, UNCOUNTED_BYTES).replace(b'""', b"").split(b'"')
        yield sum(map(len, pieces[in_string::2]))
        in_string = (in_string + len(pieces) - 1) % 2


def _load_json(text: str) -> Json:
    try:
        return json.loads(
            text, object_pairs_hook=_make_object, parse_constant=_reject_constant, parse_float=_parse_float
        )
    except RecursionError as error:
        raise _too_deep_error(text) from error
    except json.JSONDecodeError as error:
        problem = f"has a JSON syntax error: {error.msg.lower()} (line {error.lineno}, column {error.colno})"
        raise InvalidRunState(locate_offset(text, error.pos), problem) from error
    except _InvalidValue as error:
        raise _invalid_value_error(text, error) from None
    # Python refuses an integer of more than 4,300 digits.
    except ValueError as error:
        raise InvalidRunState(_locate_token(text, _is_too_long_number), "is a number with too many digits") from error


class _InvalidValue(ValueError):
    """A value that JSON or Python accepts and a state must not contain."""


class _DuplicateKey(_InvalidValue):
    """An object has a key twice."""


def _make_object(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise _DuplicateKey
    return members


def _reject_constant(token: str) -> Json:
    raise _InvalidValue(token)


def _parse_float(token: str) -> float:
    number = float(token)
    if isinf(number):
        raise _InvalidValue(token)
    return number


def _invalid_value_error(text: str, error: _InvalidValue) -> InvalidRunState:
    if isinstance(error, _DuplicateKey):
        path = next((candidate for candidate in _iter_duplicate_keys(text)), "$")
        return InvalidRunState(path, "is a duplicate key; readers differ on which value counts")
    token = str(error)
    if NON_FINITE_PATTERN.fullmatch(token):
        return InvalidRunState(
            _locate_token(text, lambda candidate: candidate == token), f"is {token}, which is not JSON"
        )
    return InvalidRunState(_locate_token(text, lambda candidate: candidate == token), "is a number that is too large")


def _measure_depth(document: Json) -> int:
    """Count the levels of nested objects and lists, up to one more than `MAX_DEPTH`."""
    levels, level = 0, [document]
    while level and levels <= MAX_DEPTH:
        levels += 1
        level = [
            value
            for container in level
            for value in (container.values() if type(container) is dict else container)
            if type(value) is dict or type(value) is list
        ]
    return levels


# -- paths of errors in the text ------------------------------------------------------------------


class JsonToken(NamedTuple):
    """A token of the text.

    steps:  the path at the start of the token
    """

    offset: int
    text: str
    steps: Sequence[PathStep | None]
    is_key: bool


def locate_offset(text: str, offset: int) -> str:
    """Return the JSON path of the last token before `offset`; `$` beyond `MAX_SCANNED_CHARS`."""
    steps: list[PathStep] = []
    if offset > MAX_SCANNED_CHARS:
        return format_path(steps)
    for token in _iter_tokens(text):
        if token.offset >= offset:
            break
        steps = _known_steps(token.steps)
    return format_path(steps)


def _iter_tokens(text: str) -> Iterator[JsonToken]:
    """Iterate over the tokens. All share one list of steps, so a caller that keeps the steps copies them."""
    steps: list[PathStep | None] = []
    for match in TOKEN_PATTERN.finditer(text, 0, MAX_SCANNED_CHARS):
        symbol = match[0]
        is_key = symbol[0] == '"' and bool(steps) and steps[-1] is None
        if is_key:
            steps[-1] = _parse_key(symbol)
        elif symbol == "," and steps:
            last = steps[-1]
            steps[-1] = last + 1 if isinstance(last, int) else None
        elif symbol in "}]" and steps:
            steps.pop()
        yield JsonToken(match.start(), symbol, steps, is_key)
        if symbol in "{[":
            steps.append(None if symbol == "{" else 0)


def _parse_key(token: str) -> str:
    try:
        return str(json.loads(token))
    except ValueError:
        return token[1:-1]


def _known_steps(steps: Sequence[PathStep | None]) -> list[PathStep]:
    return [step for step in steps if step is not None]


def _too_deep_error(text: str) -> InvalidRunState:
    steps = next((token.steps for token in _iter_tokens(text) if len(token.steps) > MAX_DEPTH), ())
    return InvalidRunState(format_path(_known_steps(steps)[:8]) + "…", f"is nested deeper than {MAX_DEPTH} levels")


def _locate_token(text: str, is_match: Callable[[str], bool]) -> str:
    """Return the path of the first token for which `is_match` returns True."""
    return next((format_path(_known_steps(token.steps)) for token in _iter_tokens(text) if is_match(token.text)), "$")


def _is_too_long_number(token: str) -> bool:
    return len(token) > 4000 and token.lstrip("-").isdecimal()


def _iter_duplicate_keys(text: str) -> Iterator[str]:
    """Iterate over the paths of duplicate keys."""
    seen: list[set[str]] = []
    for token in _iter_tokens(text):
        while len(seen) > len(token.steps):
            seen.pop()
        while len(seen) < len(token.steps):
            seen.append(set())
        key = token.steps[-1] if token.is_key else None
        if isinstance(key, str):
            if key in seen[-1]:
                yield format_path(_known_steps(token.steps))
            seen[-1].add(key)
