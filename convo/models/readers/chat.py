"""Read an answer of chat completions: its chunks, or its whole body, in any form that a server was seen to send.

The form of the data decides, not the name of the server. An invalid field is skipped, and the rest is kept.

    content            text, a list of parts (Mistral: text and thinking), or null
    reasoning_content  reasoning; also `reasoning`, `thinking`, and the texts of `reasoning_details`
    tool_calls         whole calls, or pieces that may alternate; a piece may lack its id, index or name
    function_call      the call of older servers; empty beside a real one (Snowflake)
    message            in place of a delta: a whole body, or a whole message in one chunk

A choice other than the first is left out.
"""

import json
from collections.abc import Iterator, Mapping

from convo.history.items import Json
from convo.models.answer import Call, Piece, PieceKind
from convo.models.http import DONE_MARKER
from convo.models.stream import Ending, is_json, make_usage, read_ending, read_token_count


class ChatReader:
    """Reads one answer.

    id, model:   as the server names them
    calls:       the calls so far, in the order in which they began
    fields:      other fields of the message, such as `reasoning_details`; the pieces of a list or text are joined
    logprobs:    of the tokens of the last chunks, in the form of the Responses API; the reader's user empties the list
    usage:       in the form of the Responses API; None if the server sent none
    service_tier:  the tier that the server says it used, which decides the price
    error:       the chunk or choice with an error; the answer ended with it
    has_choices, has_reasoning_content:  whether a choice came, and one with the field `reasoning_content`
    other_choices:  the choices that were left out
    unknown_parts:  the types of the parts of the content that were left out
    """

    def __init__(self) -> None:
        self.id: str | None = None
        self.model: str | None = None
        self.calls: list[Call] = []
        self.fields: dict[str, Json] = {}
        self.logprobs: list[Json] = []
        self.usage: Json = None
        self.service_tier: str | None = None
        self.error: Json = None
        self.other_choices: set[Json] = set()
        self.unknown_parts: set[str] = set()
        self.has_choices = self.has_reasoning_content = False
        self._calls: dict[object, Call] = {}  # the last one by id, by index, and by both
        self._finish_reason: Json = None
        self._choice_index: Json = None
        self._has_delta = self._is_whole = False

    def read(self, chunk: Json) -> Iterator[Piece]:
        """Read one chunk, a whole body, or the text [DONE] that ends a stream."""
        if chunk == DONE_MARKER:
            self._is_whole = True
        if not isinstance(chunk, dict):
            return
        choices = chunk.get("choices")
        if chunk.get("error") or ("choices" not in chunk and _is_error(chunk)):
            self.error = chunk
        response_id, model, groq = chunk.get("id"), chunk.get("model"), chunk.get("x_groq")
        self.id = response_id if isinstance(response_id, str) and response_id else self.id
        self.model = model if isinstance(model, str) and model else self.model
        if isinstance(tier := chunk.get("service_tier"), str):
            self.service_tier = tier
        if usage := chunk.get("usage") or (isinstance(groq, dict) and groq.get("usage")):
            self.usage = read_chat_usage(usage) or self.usage
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict):
                self.has_choices = True
                yield from self._read_choice(choice, is_whole=chunk.get("object") == "chat.completion")
        if not choices and self.usage is not None:  # the last chunk of a stream with its usage
            self._is_whole = self._is_whole or self.has_choices

    def read_plain(self, chunk: Json) -> tuple[PieceKind, str] | None:
        """Read a chunk that continues the answer with one text and has nothing else to read; None for any other chunk.

        Nearly all chunks of a stream are such; this reads them in one call.
        """
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
            return None
        choice, response_id = choices[0], chunk.get("id")
        delta = choice.get("delta")
        if (
            not isinstance(delta, dict)
            or self.logprobs
            or (chunk.get("model") or self.model) != self.model
            or chunk.get("service_tier") not in (None, self.service_tier)
            or (choice.get("index") or 0) != self._choice_index
            or any(map(chunk.get, _OTHER_CHUNK_FIELDS))
            or any(map(choice.get, _OTHER_CHOICE_FIELDS))
        ):
            return None
        found = ""
        for name, value in delta.items():
            if name == "role" or value is None or (not value and name in _READ_FIELDS):
                continue
            if found or name not in _PLAIN_KINDS or not isinstance(value, str):
                return None
            found = name
        if not found:
            return None
        self._has_delta = True
        self.id = response_id if isinstance(response_id, str) and response_id else self.id
        self.has_reasoning_content = self.has_reasoning_content or found == "reasoning_content"
        return _PLAIN_KINDS[found], delta[found]

    def ending(self) -> Ending | None:
        """Return how the answer ended; None for a stream that was cut."""
        has_whole_calls = all(call.is_custom or not call.arguments or is_json(call.arguments) for call in self.calls)
        return read_ending(self._finish_reason, is_whole=self._is_whole, has_whole_calls=has_whole_calls)

    def _read_choice(self, choice: Mapping[str, Json], *, is_whole: bool) -> Iterator[Piece]:
        index = choice.get("index") or 0
        if self._choice_index is None:
            self._choice_index = index
        if index != self._choice_index:
            self.other_choices.add(str(index))
            return
        if choice.get("error"):  # OpenRouter
            self.error = choice
        if usage := choice.get("usage"):  # Moonshot
            self.usage = read_chat_usage(usage) or self.usage
        logprobs = choice.get("logprobs")
        if isinstance(logprobs, dict) and isinstance(tokens := logprobs.get("content"), list):
            self.logprobs += [read_logprob(token) for token in tokens if isinstance(token, dict)]
        delta, message = choice.get("delta"), choice.get("message")
        for piece in self.read_message(delta) if isinstance(delta, dict) else ():
            self._has_delta = True
            yield piece
        if isinstance(message, dict):  # Perplexity sends a delta and the whole message so far
            self._is_whole = self._is_whole or is_whole
            calls = {name: message.get(name) for name in ("tool_calls", "function_call")}
            yield from self.read_message(message if not self._has_delta else {} if self.calls else calls)
        self._finish_reason = choice.get("finish_reason") or self._finish_reason

    def read_message(self, message: Mapping[str, Json]) -> Iterator[Piece]:
        """Read a message, or a part of one."""
        for name, value in message.items():
            if name not in _READ_FIELDS and value is not None:
                self.fields[name] = _join_values(self.fields.get(name), value)
        self.has_reasoning_content = self.has_reasoning_content or bool(message.get("reasoning_content"))
        if reasoning := read_reasoning(message):
            yield Piece("reasoning", reasoning)
        content = message.get("content")
        if isinstance(content, str):
            if content:
                yield Piece("text", content)
        elif content:
            parts = [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
            self.unknown_parts |= {
                str(part.get("type") or "untyped") for part in parts if not part.keys() & _PART_KINDS.keys()
            }
            for kind, text in read_parts(content, "text"):
                yield Piece(kind, text)
        if isinstance(refusal := message.get("refusal"), str) and refusal:
            yield Piece("refusal", refusal)
        calls, touched = message.get("tool_calls"), set[Call]()
        for piece in calls if isinstance(calls, list) else [calls]:
            if isinstance(piece, dict):
                yield from self._read_call(piece, touched)
        legacy = message.get("function_call")
        if isinstance(legacy, dict) and any(legacy.values()):
            yield from self._read_call({"index": 0, "function": legacy}, touched)

    def _read_call(self, piece: Mapping[str, Json], touched: set[Call]) -> Iterator[Piece]:
        """Read a piece of a call; `touched` are the calls that other pieces of the same list belong to."""
        custom, function = piece.get("custom"), piece.get("function")
        is_custom = isinstance(custom, dict) and any(custom.values())
        body = custom if is_custom else function
        body = body if isinstance(body, dict) else {}
        call_id, name, index = _str(piece.get("id")), _str(body.get("name")), piece.get("index")
        index = index if type(index) is int else None
        arguments = body.get("input" if is_custom else "arguments")
        text = arguments if isinstance(arguments, str) else "" if arguments is None else json.dumps(arguments)
        call = self._find_call(call_id, index, name, text, touched)
        if call is None:
            inherited = "" if call_id or name or not self.calls else self.calls[-1].name
            call = Call(name=inherited, index=index, is_custom=is_custom)
            self.calls.append(call)
            if index is not None:
                self._calls[index] = call
        call.id, call.name, call.is_custom = call.id or call_id, call.name or name, call.is_custom or is_custom
        if call.id:
            self._calls[call.id] = self._calls[call.id, call.index] = call
        call.add(text)
        call.fields |= {key: value for key, value in piece.items() if key not in _CALL_FIELDS and value is not None}
        touched.add(call)
        yield Piece("call", text, call)

    def _find_call(self, call_id: str, index: int | None, name: str, text: str, touched: set[Call]) -> Call | None:
        """Return the call that a piece continues, found by its id, else its index, else the last one.

        None if the piece begins a call: it has another name, or follows a closed JSON object. Some servers repeat the
        id and the name in every piece, some give all calls one id or one index, some give every piece an index of its
        own.
        """
        if not call_id and not name:
            found = None if index is None else self._calls.get(index)
            call = found or (self.calls[-1] if self.calls else None)
            starts_object = text.lstrip().startswith("{")
            return None if call is None or (starts_object and not call.is_custom and call.is_closed()) else call
        both = self._calls.get((call_id, index)) if call_id else None
        call = both or self._calls.get(call_id) or self._calls.get(index)
        if call is None and not call_id and index is None and self.calls:
            call = self.calls[-1]
        if call is None:
            return None
        has_id = bool(call_id) and call.id == call_id
        is_named_again = bool(name) and (
            call in touched
            or call.name not in ("", name)
            or (call_id and call.id not in ("", call_id))
            or (has_id and not both and None not in (index, call.index))
        )
        if is_named_again:
            return None
        follows = bool(text.strip()) or (bool(name) and not has_id)
        return None if follows and not call.is_custom and call.is_closed() else call


_READ_FIELDS = frozenset(
    {"role", "content", "refusal", "tool_calls", "function_call", "reasoning_content", "reasoning", "thinking"}
)
"""The fields of a message that are read here."""

_PLAIN_KINDS: Mapping[str, PieceKind] = {"content": "text", "reasoning_content": "reasoning"}
"""The fields of a delta that `read_plain` reads."""

_OTHER_CHUNK_FIELDS = ("error", "usage", "x_groq")
_OTHER_CHOICE_FIELDS = ("error", "usage", "logprobs", "message", "finish_reason")
"""Fields of a chunk and of its choice that only `read` reads."""

_CALL_FIELDS = frozenset({"id", "type", "index", "function", "custom"})


def _is_error(body: Mapping[str, Json]) -> bool:
    """Whether a body without choices is an error: `{"detail": ...}`, or a message beside a code or type."""
    return bool(body.get("detail") or (body.get("message") and (body.get("code") or body.get("type"))))


def _str(value: Json) -> str:
    return value if isinstance(value, str) else ""


def read_reasoning(message: Mapping[str, Json]) -> str:
    """Return the reasoning; some servers send the same text in several fields."""
    for name in ("reasoning_content", "reasoning", "thinking"):
        value = message.get(name)
        text = (
            value if isinstance(value, str) else value and "".join(text for _, text in read_parts(value, "reasoning"))
        )
        if text:
            return str(text)
    details = message.get("reasoning_details")
    if not details:
        return ""
    parts = [part for part in details if isinstance(part, dict)] if isinstance(details, list) else []
    return "".join(_str(part.get("text")) or _str(part.get("summary")) for part in parts)


def read_parts(content: Json, kind: PieceKind) -> Iterator[tuple[PieceKind, str]]:
    """Yield the texts of content in any form, nested ones too; parts that have no text are skipped."""
    if isinstance(content, str):
        yield kind, content
    elif isinstance(content, list):
        for part in content:
            yield from read_parts(part, kind)
    elif isinstance(content, dict):
        for name, part_kind in _PART_KINDS.items():
            if content.get(name):
                yield from read_parts(content[name], "reasoning" if kind == "reasoning" else part_kind)


_PART_KINDS: Mapping[str, PieceKind] = {"text": "text", "thinking": "reasoning", "refusal": "refusal"}
"""The fields with the text of a part, and what it is."""


def _join_values(earlier: Json, value: Json) -> Json:
    if isinstance(value, list):
        joined: list[Json] = earlier if isinstance(earlier, list) else []
        for entry in value:
            _add_entry(joined, entry)
        return joined
    return earlier + value if isinstance(value, str) and isinstance(earlier, str) else value


_ENTRY_TEXTS = ("text", "summary", "data", "signature")


def _add_entry(entries: list[Json], entry: Json) -> None:
    """Add an entry to a list of a stream; the parts of one of OpenRouter's `reasoning_details` share index and type."""
    last = entries[-1] if entries else None
    if not (
        isinstance(last, dict)
        and isinstance(entry, dict)
        and all(last.get(name) == entry.get(name) and name in entry for name in ("index", "type"))
    ):
        entries.append(dict(entry) if isinstance(entry, dict) else entry)
        return
    for name, value in entry.items():
        joins = name in _ENTRY_TEXTS and isinstance(value, str) and isinstance(last.get(name), str)
        if joins or value is not None:
            last[name] = last[name] + value if joins else value


def read_logprob(token: Mapping[str, Json]) -> Json:
    """Return the log probability of a token in the form of the Responses API."""
    probability, alternatives = token.get("logprob"), token.get("top_logprobs")
    read: dict[str, Json] = {
        "token": _str(token.get("token")),
        "bytes": token["bytes"] if isinstance(token.get("bytes"), list) else [],
        "logprob": probability if isinstance(probability, int | float) else 0.0,
    }
    if isinstance(alternatives, list):
        read["top_logprobs"] = [read_logprob(other) for other in alternatives if isinstance(other, dict)]
    return read


_USAGE_NAMES: Mapping[str, tuple[str, ...]] = {
    "input_tokens": ("prompt_tokens", "input_tokens"),
    "output_tokens": ("completion_tokens", "output_tokens"),
    "cached": (
        "prompt_tokens_details.cached_tokens",
        "input_tokens_details.cached_tokens",
        "cached_tokens",  # Kimi
        "prompt_cache_hit_tokens",  # DeepSeek
        "num_cached_tokens",  # Mistral
        "cache_read_input_tokens",  # proxies in front of Claude
    ),
    "written": ("prompt_tokens_details.cache_write_tokens", "cache_creation_input_tokens"),
    "reasoning": ("completion_tokens_details.reasoning_tokens", "reasoning_tokens"),  # the latter: Perplexity
}
"""The names of each count that servers use; the first one with a number above 0 is read."""


def read_chat_usage(counts: Json) -> Json:
    """Read token counts in any form that a server was seen to send, as usage of the Responses API; None without any."""
    if isinstance(counts, list):
        counts = next((entry for entry in counts if isinstance(entry, dict)), None)
    if not isinstance(counts, dict) or not counts:
        return None
    return make_usage(**{name: read_token_count(counts, *names) for name, names in _USAGE_NAMES.items()})
