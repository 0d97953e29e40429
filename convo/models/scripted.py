"""A model that replays a script: for tests, demos and CI without a network.

    scripted/echo         repeats the last user message
    scripted/FILE.json    replies in the order of the file

    {"replies": [{"text": "Hello."},
                 {"call": {"name": "weather", "arguments": {"city": "Oslo"}}},
                 {"output": [{"type": "message", "role": "assistant", ...}]},
                 {"refusal": "I will not."},
                 {"reasoning": "Four, then.", "text": "4", "usage": {"cached": 9, "written": 0, "reasoning": 12}},
                 {"text": "Half an ans", "error": {"code": "overloaded", "message": "Busy", "status": 503}}],
     "chunk": 8, "delay_s": 0.05}

Stateless: the number of user messages and batches of tool outputs in the input selects the reply; the
last reply repeats. A word counts as one token. An `error` alone fails the request; after `text` it
breaks the stream.
"""

import json
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby
from pathlib import Path

from convo.errors import StreamBroken, Unreadable
from convo.history.canonical import describe_json_error
from convo.history.items import Item, Json, StreamEvent, is_client_output, is_user_message, item_text, searchable_text
from convo.models.base import HostedToolsUse, Model, ModelRequest
from convo.models.errors import ErrorContext, fault_from_status
from convo.models.stream import ResponseEventWriter, make_usage
from convo.runtime import Clock, NewId

ECHO_SCRIPT = "echo"
DEFAULT_CHUNK_CHARS = 16
_REPLY_FIELD_TYPES: Mapping[str, type] = {
    "text": str, "reasoning": str, "output": list, "refusal": str, "error": dict, "call": dict, "usage": dict,
}  # fmt: skip
_USAGE_FIELDS = ("cached", "written", "reasoning")


@dataclass(frozen=True, slots=True)
class Script:
    """Replies; `chunk_chars` is the length of a delta in characters, `delay_s` the seconds between deltas."""

    replies: Sequence[Mapping[str, Json]]
    chunk_chars: int = DEFAULT_CHUNK_CHARS
    delay_s: float = 0.0


def read_script(path: Path) -> Script:
    """Load a script file. Raises Unreadable for a file that cannot be read, is not JSON, or is not a script."""
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{path} is not JSON: {describe_json_error(error)}") from error
    problem = _find_script_problem(raw)
    if problem is not None:
        raise Unreadable(
            f"{path} is not a script: {problem}", hint='a script begins with {"replies": [{"text": "..."}]}'
        )
    return Script(raw["replies"], raw.get("chunk", DEFAULT_CHUNK_CHARS), raw.get("delay_s", 0.0))


def _find_script_problem(raw: Json) -> str | None:
    """Return the first error of a script as text, or None."""
    if not isinstance(raw, dict) or not isinstance(raw.get("replies"), list) or not raw["replies"]:
        return "it has no list of replies"
    if not isinstance(raw.get("chunk", DEFAULT_CHUNK_CHARS), int) or raw.get("chunk", DEFAULT_CHUNK_CHARS) < 1:
        return "chunk is not a number of characters"
    if not isinstance(raw.get("delay_s", 0.0), int | float) or raw.get("delay_s", 0.0) < 0:
        return "delay_s is not a number of seconds"
    unknown_fields = sorted(set(raw) - {"replies", "chunk", "delay_s"})
    if unknown_fields:
        return f"it has the unknown field {unknown_fields[0]!r}"
    problems = (_find_reply_problem(reply, number) for number, reply in enumerate(raw["replies"], 1))
    return next((problem for problem in problems if problem), None)


def _find_reply_problem(reply: Json, number: int) -> str | None:
    if not isinstance(reply, dict) or not reply:
        return f"reply {number} is not an object"
    for name, value in reply.items():
        if name not in _REPLY_FIELD_TYPES or not isinstance(value, _REPLY_FIELD_TYPES[name]):
            return f"reply {number} has a wrong {name!r}"
    if "call" in reply and not isinstance(reply["call"].get("name"), str):
        return f"reply {number} has a call without a name"
    if not all(name in _USAGE_FIELDS and isinstance(tokens, int) for name, tokens in reply.get("usage", {}).items()):
        return f"reply {number} has a usage with other values than numbers of {', '.join(_USAGE_FIELDS)}"
    if not all(isinstance(item, dict) for item in reply.get("output", ())):
        return f"reply {number} has output that is not a list of items"
    return None


class ScriptedModel(Model):
    """Replays scripts; each file is read once."""

    hosted_tools: HostedToolsUse = "run"
    """As a server of the Responses API does, a script gets every tool and item unchanged."""

    def __init__(self, clock: Clock, new_id: NewId) -> None:
        self._clock, self._new_id = clock, new_id
        self._scripts: dict[str, Script] = {}

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        script = self._load_script(request)
        reply = script.replies[min(count_prompts(request.input), len(script.replies)) - 1]
        error = reply.get("error")
        if error and len(reply) == 1:
            context = ErrorContext("scripted", model=request.model)
            raise fault_from_status(error.get("status", 500), error, context, retry_after_s=error.get("retry_after_s"))
        writer, reply = ResponseEventWriter(self._new_id, request.model), _truncate_reply(reply, request)
        for event in self._reply_events(writer, reply, script.chunk_chars):
            if script.delay_s and str(event["type"]).endswith(".delta"):
                await self._clock.sleep(script.delay_s)
            yield event
        if error:
            raise StreamBroken(str(error.get("message", "the script ended the response")), code=error.get("code"))
        for event in _terminal_events(writer, reply, _reply_usage(request, writer, reply)):
            yield event

    async def warm(self, model: str) -> None:
        """Load the script. Raises Unreadable."""
        self._load_script(ModelRequest(model, ()))

    async def check_request(self, request: ModelRequest) -> None:
        """Load the script, which accepts every request. Raises Unreadable."""
        self._load_script(request)

    async def count(self, request: ModelRequest) -> int:
        return _count_words(request.input, request.instructions)

    async def aclose(self) -> None:
        self._scripts.clear()

    def _load_script(self, request: ModelRequest) -> Script:
        if request.model == ECHO_SCRIPT:
            text = next((item_text(item) for item in reversed(request.input) if is_user_message(item)), "")
            return Script([{"text": text}])
        if request.model not in self._scripts:
            self._scripts[request.model] = read_script(Path(os.path.expanduser(request.model)))
        return self._scripts[request.model]

    def _reply_events(self, writer: ResponseEventWriter, reply: Mapping[str, Json], size: int) -> Iterator[StreamEvent]:
        yield from chain.from_iterable(map(writer.write_reasoning, _split_text(reply.get("reasoning", ""), size)))
        yield from chain.from_iterable(map(writer.write_text, _split_text(reply.get("text", ""), size)))
        yield from chain.from_iterable(map(writer.write_refusal, _split_text(reply.get("refusal", ""), size)))
        if call := reply.get("call"):
            arguments = call.get("arguments", {})
            yield from writer.start_function_call(call.get("call_id") or self._new_id("call"), call["name"])
            arguments_text = arguments if isinstance(arguments, str) else json.dumps(arguments)
            yield from chain.from_iterable(map(writer.write_arguments, _split_text(arguments_text, size)))
        yield from chain.from_iterable(map(writer.write_item, reply.get("output", ())))


def count_prompts(items: Sequence[Item]) -> int:
    """Count the user messages and the batches of tool outputs; at least 1."""
    batches = sum(1 for outputs, _ in groupby(items, key=is_client_output) if outputs)
    return max(1, sum(map(is_user_message, items)) + batches)


def _truncate_reply(reply: Mapping[str, Json], request: ModelRequest) -> Mapping[str, Json]:
    """Limit the reply's text to `max_output_tokens` words; "cut" marks a truncated reply."""
    max_words = request.parameters.get("max_output_tokens")
    words = reply.get("text", "").split(" ")
    if max_words is None or len(words) <= max_words:
        return reply
    return {**_pick_fields(reply, "reasoning", "usage"), "text": " ".join(words[:max_words]), "cut": True}


def _pick_fields(reply: Mapping[str, Json], *names: str) -> dict[str, Json]:
    return {name: reply[name] for name in names if name in reply}


def _reply_usage(request: ModelRequest, writer: ResponseEventWriter, reply: Mapping[str, Json]) -> Json:
    details = {"reasoning": _count_words([{"content": reply.get("reasoning", "")}]), **reply.get("usage", {})}
    return make_usage(_count_words(request.input, request.instructions), _count_words(writer.output), **details)


def _terminal_events(writer: ResponseEventWriter, reply: Mapping[str, Json], usage: Json) -> Iterator[StreamEvent]:
    return writer.write_incomplete("max_output_tokens", usage) if reply.get("cut") else writer.write_completed(usage)


def _split_text(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def _count_words(items: Sequence[Json], instructions: str | None = None) -> int:
    return sum(len(searchable_text(item).split()) for item in items) + len((instructions or "").split())
