"""The events of a Responses server, as a model gives them.

They pass in their order and as they are. Left out is what belongs to the server's own response:
its beginning, its numbers, its padding. Added is what the contract promises and a server may
forget: an id on every item, and the output in the last event. Every seal gets its maker's name.
"""

from collections.abc import Mapping

from convo.ids import NewId
from convo.items import Event, Item, Json, kind
from convo.models.sealed import Maker, signed
from convo.models.stream import is_token_count

BEGINNINGS = frozenset({"response.created", "response.queued", "response.in_progress"})
ENDS = frozenset({"response.completed", "response.incomplete", "response.failed", "response.cancelled"})
AROUND_ITEMS = frozenset({"response.output_item.added", "response.output_item.done"})
NOT_PASSED = frozenset({"sequence_number", "obfuscation"})

STOPPED = {"code": "server_error", "message": "The provider stopped the answer."}


class Events:
    """One answer while its events come in; `end` is the last one, once it came."""

    def __init__(self, by: Maker, new_id: NewId, model: str) -> None:
        self.end: Event | None = None
        self._by, self._new_id, self._model = by, new_id, model
        self._ids: dict[int, str] = {}
        self._done: dict[int, Item] = {}

    def read(self, event: Event) -> Event | None:
        """What `event` is to whoever asked; None for keep-alives, what is the server's own, and the end."""
        name = event["type"]
        if name in ENDS:
            self.end = self._end(event)
            return None
        if name in AROUND_ITEMS:
            return self._around(event)
        if name in BEGINNINGS or not name.startswith("response."):
            return None
        return self._within(event)

    def _around(self, event: Event) -> Event:
        index = event.get("output_index", len(self._ids))
        item = self._named(event.get("item") or {}, index)
        if event["type"] == "response.output_item.done":
            self._done[index] = item
        return {**_passed(event), "output_index": index, "item": item}

    def _within(self, event: Event) -> Event:
        """An event inside an item, which says inside which one."""
        index = event.get("output_index")
        if event.get("item_id") or index not in self._ids:
            return _passed(event)
        return {**_passed(event), "item_id": self._ids[index]}

    def _end(self, event: Event) -> Event:
        response = event.get("response") or {}
        status = str(event["type"]).removeprefix("response.").replace("cancelled", "failed")
        output = [self._named(item, index) for index, item in enumerate(response.get("output") or ())]
        ended: dict[str, Json] = {
            "status": status,
            "model": _text(response, "model") or self._model,
            "output": output or [self._done[index] for index in sorted(self._done)],
            "usage": _usage(response.get("usage")),
        }
        if status == "incomplete":
            reason = _text(response.get("incomplete_details") or {}, "reason")
            ended["incomplete_details"] = {"reason": reason} if reason else None
        if status == "failed":
            error = response.get("error") or {}
            ended["error"] = {name: _text(error, name) or words for name, words in STOPPED.items()}
        return {"type": f"response.{status}", "response": ended}

    def _named(self, item: Item, index: int) -> Item:
        """`item` with an id, the same one each time it comes."""
        if item.get("id"):
            self._ids[index] = item["id"]
        elif index not in self._ids:
            self._ids[index] = self._new_id(PREFIXES.get(kind(item), "item"))
        return signed({**item, "id": self._ids[index]}, self._by)


PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs", "custom_tool_call": "ctc"}


FIGURES = ("input_tokens", "output_tokens", "total_tokens")
DETAILS = ("input_tokens_details", "output_tokens_details")


def _usage(reported: Mapping[str, Json] | None) -> Json:
    """`reported` without the figures that are no numbers of tokens; fields that the API does not have stay."""
    if not reported:
        return None
    used = {name: value for name, value in reported.items() if name not in FIGURES or is_token_count(value)}
    for name in DETAILS:
        if name in used:
            details = used[name] or {}
            used[name] = {figure: value for figure, value in details.items() if is_token_count(value)}
    return used


def _text(fields: Mapping[str, Json], name: str) -> str | None:
    """A field that is text; None for anything else."""
    found = fields.get(name)
    return found if isinstance(found, str) else None


def _passed(event: Event) -> dict[str, Json]:
    return {name: value for name, value in event.items() if name not in NOT_PASSED}
