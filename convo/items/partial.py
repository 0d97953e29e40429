"""What has come of an answer so far.

The final payload is what is stored. This stands in for it when the answer was cut off, or when an
endpoint's final payload leaves the answer out: the items that were begun, with the pieces that
arrived.
"""

from convo.items.shapes import Event, Item, Json

ENDS = frozenset({"response.completed", "response.incomplete", "response.failed"})
"""The events that end a response and carry it whole."""

BEGINS = frozenset({"response.created", "response.queued", "response.in_progress"})
"""The events that say nothing of the answer yet."""

PIECES = {
    "response.output_text.delta": ("output_text", "text"),
    "response.refusal.delta": ("refusal", "refusal"),
    "response.reasoning_text.delta": ("reasoning_text", "text"),
    "response.reasoning.delta": ("reasoning_text", "text"),
}
"""Events that carry a piece of a content part: the kind of the part, and the field that it belongs to."""


class Partial:
    """Gathers the events of one response; they are well-formed.

    Pieces stay pieces until somebody asks for the whole: an answer may come in very many.
    """

    def __init__(self) -> None:
        self.response_id: str | None = None
        self.began = False
        self._items: dict[int, dict[str, Json]] = {}
        self._pieces: dict[tuple[int, str], list[str]] = {}

    @property
    def output(self) -> list[Item]:
        """The items so far, in the order of the answer."""
        for (at, field), pieces in self._pieces.items():
            whole = "".join(pieces)
            pieces[:] = [whole]
            owner = self._items[at] if field == "arguments" else self._items[at]["content"][-1]
            owner[field] = whole
        return [self._items[at] for at in sorted(self._items)]

    def take(self, event: Event) -> None:
        """Account for one event; kinds that carry no piece of the answer change nothing."""
        kind = event["type"]
        if kind in BEGINS:
            self.response_id = event["response"].get("id") or self.response_id
            return
        self.began = self.began or kind not in ENDS
        if kind in ("response.output_item.added", "response.output_item.done"):
            self._item(event["output_index"], event["item"])
        elif kind == "response.content_part.added":
            self._part(event["output_index"], dict(event["part"]))
        elif kind in PIECES:
            part, field = PIECES[kind]
            self._piece(event, part, field)
        elif kind == "response.function_call_arguments.delta":
            self._items.setdefault(event["output_index"], {"type": "function_call"})
            self._add(event["output_index"], "arguments", event["delta"])

    def _item(self, at: int, item: dict[str, Json]) -> None:
        parts = item.get("content")
        self._items[at] = {**item, "content": list(parts)} if isinstance(parts, list) else dict(item)
        for field in [field for index, field in self._pieces if index == at]:
            del self._pieces[at, field]

    def _part(self, at: int, part: dict[str, Json]) -> None:
        settled = self.output  # the part before this one is whole
        del settled
        self._content(at).append(part)
        for field in ("text", "refusal"):
            self._pieces.pop((at, field), None)

    def _piece(self, event: Event, part: str, field: str) -> None:
        at = event["output_index"]
        if not self._content(at):
            self._content(at).append({"type": part, field: ""})
        self._add(at, field, event["delta"])

    def _add(self, at: int, field: str, piece: str) -> None:
        self._pieces.setdefault((at, field), []).append(piece)

    def _content(self, at: int) -> list[dict[str, Json]]:
        item = self._items.setdefault(at, {"type": "message", "role": "assistant"})
        parts: list[dict[str, Json]] = item.setdefault("content", [])
        return parts
