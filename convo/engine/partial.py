"""What has come of an answer so far.

The final payload is what is stored. This stands in for it when the answer was cut off: the items
that were begun, with the pieces that arrived.
"""

from typing import Any

from convo.items import Event, Item

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The events that end a response and carry it whole."""

BEGINS = frozenset({"response.created", "response.queued", "response.in_progress"})
"""The events that say nothing of the answer yet."""

PIECES = {
    "response.output_text.delta": "text",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "text",
    "response.reasoning.delta": "text",
}
"""Events that carry a piece of a content part, and the part's field that it belongs to."""


class Partial:
    """Gathers the events of one response."""

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.began = False
        self._items: dict[int, dict[str, Any]] = {}

    @property
    def output(self) -> list[Item]:
        """The items so far, in the order of the answer."""
        return [self._items[at] for at in sorted(self._items)]

    def take(self, event: Event) -> None:
        """Account for one event; kinds that carry no piece of the answer change nothing."""
        kind = event["type"]
        if kind in BEGINS:
            self.response_id = event.get("response", {}).get("id") or self.response_id
            return
        self.began = self.began or kind not in ENDS
        if kind in ("response.output_item.added", "response.output_item.done"):
            item = event["item"]
            self._items[event["output_index"]] = (
                {**item, "content": list(item["content"])} if "content" in item else {**item}
            )
        elif kind == "response.content_part.added":
            self._parts(event).append(dict(event["part"]))
        elif kind in PIECES:
            part = self._parts(event)[-1]
            part[PIECES[kind]] = part.get(PIECES[kind], "") + event["delta"]
        elif kind == "response.function_call_arguments.delta":
            call = self._items[event["output_index"]]
            call["arguments"] = call.get("arguments", "") + event["delta"]

    def _parts(self, event: Event) -> list[dict[str, Any]]:
        parts: list[dict[str, Any]] = self._items[event["output_index"]].setdefault("content", [])
        return parts
