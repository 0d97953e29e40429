"""What convo made of a recorded answer, compared with the expectation of the recording."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tests.recordings.archive import Recording

RIGHT, WRONG, REFUSED, NOT_SENT = "right", "wrong", "refused", "n.a."

COUNTS = ("input_tokens", "output_tokens", "cached_tokens")

MAX_SHOWN = 160
"""Characters of a value in a difference."""


class Outcome(NamedTuple):
    verdict: str
    reason: str = ""


class Answer(NamedTuple):
    """An answer as convo has it: items, status, usage and error of a response."""

    items: Sequence[Mapping[str, Any]]
    status: str
    usage: Mapping[str, Any] | None
    error: Mapping[str, Any] | None


def judge(recording: Recording, answer: Answer, found: Iterable[str] = ()) -> Outcome:
    """Compare an answer; `found` are differences beside those of its content."""
    differences = [*found, *find_differences(recording, answer)]
    message = str(answer.error["message"]) if answer.error and answer.status == "failed" else ""
    if recording.is_failed:
        reason = recording.expected["error"]
        if reason not in message and not is_own_message(recording, message):
            differences.append(f"error: expected {shown(reason)}, found {shown(message)}")
    elif any(re.search(rf"\b{block}\b", message) for block in recording.expected.get("hosted") or ()):
        return Outcome(REFUSED, message)
    elif message:
        differences.insert(0, message)
    return Outcome(WRONG, "; ".join(differences)) if differences else Outcome(RIGHT)


def is_own_message(recording: Recording, message: str) -> bool:
    """Whether convo says in its own words that a key or a model is unknown."""
    if recording.status == 401:
        return "rejected the key of this server" in message
    return message.startswith("The requested model '") and "model" in recording.expected["error"].lower()


def judge_reply(recording: Recording, status: int, body: str, *, is_stream: bool) -> Outcome:
    """Compare the reply of `POST /v1/responses`."""
    if status >= 400:
        return judge(recording, Answer((), "failed", None, json.loads(body)["error"]))
    found: list[str] = []
    if is_stream:
        events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith("data: {")]
        response = events[-1].get("response", {})
        found += find_stream_differences(recording, events, response)
    else:
        response = json.loads(body)
    items = response.get("output") or ()
    call_ids = [item["call_id"] for item in items if item["type"] in ("function_call", "custom_tool_call")]
    if len(set(call_ids)) < len(call_ids) or not all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", one) for one in call_ids):
        found.append(f"call ids: {shown(call_ids)}")
    return judge(recording, Answer(items, response.get("status"), response.get("usage"), response.get("error")), found)


def find_differences(recording: Recording, answer: Answer) -> Iterator[str]:
    counts: Mapping[str, Any] = answer.usage or {}
    cached = (counts.get("input_tokens_details") or {}).get("cached_tokens")
    found: dict[str, Any] = {**counts, "cached_tokens": cached, **read_items(answer.items), "finish": answer.status}
    for name, value in compared_content(recording).items():
        other = found.get(name)
        is_same = (other or 0) == (value or 0) if name in COUNTS else other == value  # unknown counts as zero
        if not is_same:
            yield f"{name}: expected {shown(value)}, found {shown(other)}"


def compared_content(recording: Recording) -> dict[str, Any]:
    """The members of an expectation that an answer is compared with."""
    names = ["text", "reasoning", "refusal", "calls", "finish"]
    if recording.api == "responses":
        names.append("items")
    expected = {name: value for name in names if (value := recording.expected.get(name)) is not None}
    if expected["finish"] == "refused":
        expected["finish"] = "completed"  # the refusal is a part of a message; Claude may give no words
    else:
        expected.setdefault("refusal", "")
    if not recording.is_failed:
        # null: the archive's reader found no count, and did not know every name that servers use (num_cached_tokens)
        expected |= {name: value for name in COUNTS if (value := recording.expected[name]) is not None}
    return expected


def find_stream_differences(
    recording: Recording, events: Sequence[Mapping[str, Any]], response: Mapping[str, Any]
) -> Iterator[str]:
    """Compare the deltas with the answer, and the ids of each item in its events.

    A whole answer of the Responses API is sent without deltas; of two generations the first was sent before the second.
    """
    if (recording.stream or recording.api != "responses") and not recording.expected.get("spliced"):
        expected = {"text": recording.expected.get("streamed_text", recording.expected["text"])}
        expected["reasoning"] = recording.expected["reasoning"]
        for name, kinds in DELTAS.items():
            streamed = "".join(event["delta"] for event in events if event["type"] in kinds)
            if expected[name] is not None and streamed != expected[name]:
                yield f"{name} of the deltas: expected {shown(expected[name])}, found {shown(streamed)}"
    ids: dict[Any, list[Any]] = defaultdict(list)
    for event in events:
        ids[event.get("output_index")].append(event.get("item_id") or event.get("item", {}).get("id"))
    for index, item in enumerate(response.get("output") or ()):
        ids[index].append(item.get("id"))
    for output_index, seen in ids.items():
        if len(different := list(dict.fromkeys(filter(None, seen)))) > 1:
            yield f"ids of item {output_index}: {shown(different)}"


DELTAS = {
    "text": ("response.output_text.delta",),
    "reasoning": ("response.reasoning_text.delta", "response.reasoning_summary_text.delta"),
}


def read_items(items: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The content of output items, in the form of an expectation."""
    texts: dict[str, list[str]] = {"text": [], "reasoning": [], "refusal": []}
    calls: list[list[Any]] = []
    types: list[str] = []
    for item in items:
        types.append(item.get("type", "message"))
        match types[-1]:
            case "message":
                for part in item["content"]:
                    name = "refusal" if part["type"] == "refusal" else "text"
                    texts[name].append(part.get(name) or "")
            case "reasoning":
                parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
                texts["reasoning"] += [part.get("text") or "" for part in parts]
            case "function_call":
                calls.append([item.get("name"), parse_arguments(item.get("arguments"))])
            case "custom_tool_call":
                calls.append([item.get("name"), item.get("input")])
    return {**{name: "".join(pieces) for name, pieces in texts.items()}, "calls": calls, "items": types}


def parse_arguments(arguments: Any) -> Any:
    """Arguments that are an object or a list; else as they are: the text of a call that was cut."""
    if not isinstance(arguments, str):
        return arguments
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        return arguments
    return value if isinstance(value, dict | list) else arguments


def shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN else f"{text[: MAX_SHOWN // 2]}…{text[-MAX_SHOWN // 2 :]}"
