"""A model that writes summaries, has a context window and records its requests.

The constants are texts and items for compaction tests; LONG is long enough to be compacted.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import Any

from convo.compaction.window import SUMMARY_INSTRUCTIONS
from convo.errors import RequestRefused, Unsupported, WindowExceeded
from convo.history.items import SUMMARY_HEADING, Item, StreamEvent, item_text, item_type
from convo.models.base import Model, ModelRequest
from convo.models.stream import ResponseEventWriter, make_usage
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import random_id
from tests.endpoints.endpoint_calls import ask

SUMMARY = "They greeted."
USAGE = make_usage(10, 3)
LONG = " ".join(["word"] * 60)
ANSWER = {"role": "assistant", "content": LONG}
CALL = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
TRIGGER = {"type": "compaction_trigger"}
SUMMARY_TEXT = f"{SUMMARY_HEADING}\n\n{SUMMARY}"


class SummarizingModel(Model):
    """A model for every name: it replies with a summary to a summary request, else with the number of input items.

    summary:  the reply to a summary request
    window:  the context window in words; None: unlimited
    provider_compaction:  the output of the provider's compaction; None: the provider has none
    refuses:  whether the provider refuses to compact for this model
    answer:  the reply to any other request; None: the number of input items
    """

    def __init__(
        self, summary: str = SUMMARY, *, window: int | None = None, provider_compaction: Sequence[Item] | None = None
    ) -> None:
        self.summary, self.window, self.provider_compaction = summary, window, provider_compaction
        self.answer: str | None = None
        self.refuses = False
        self.requests: list[ModelRequest] = []
        self.summaries: list[ModelRequest] = []
        self.compactions: list[ModelRequest] = []

    def __call__(self, name: str) -> tuple[Model, str]:
        return self, name

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        is_summary = (request.instructions or "").startswith(SUMMARY_INSTRUCTIONS)
        (self.summaries if is_summary else self.requests).append(request)
        word_count = sum(len(item_text(item).split()) for item in request.input)
        if self.provider_compaction is None and any(item_type(item) == "compaction" for item in request.input):
            raise Unsupported(request.model, "compaction items", param="input")
        if self.window is not None and word_count > self.window:
            raise WindowExceeded(request.model, word_count, self.window)
        answer, text = ResponseEventWriter(random_id, request.model), self.answer or f"shown {len(request.input)}"
        for event in answer.write_text(self.summary if is_summary else text):
            yield event
        for event in answer.write_completed(USAGE):
            yield event

    async def count(self, request: ModelRequest) -> int | None:
        return sum(len(item_text(item).split()) for item in request.input)

    async def compact(self, request: ModelRequest) -> Sequence[Item] | None:
        if self.refuses:
            raise RequestRefused("This model cannot compact")
        if self.provider_compaction is not None:
            self.compactions.append(request)
        return self.provider_compaction

    def last_input(self) -> list[str]:
        """Return the text of each item of the last request that was not a summary request."""
        return [item_text(item) for item in self.requests[-1].input]


def item_types(items: Any) -> list[str]:
    return [item_type(item) for item in items]


async def create_chain(endpoint: EmbeddedEndpoint, *inputs: str) -> str:
    """Send each of `inputs` on one chain and return the id of the last response."""
    last = None
    for text in inputs:
        last = (await ask(endpoint, text, previous_response_id=last))["id"]
    return str(last)
