"""What one answer leaves behind: its link, and the change that makes it durable.

A link says the same thing to everybody. The response resource is made from it, the inspector
draws it, and a session that asked here claims it later as its own.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from convo.endpoints.embedded.context import Before
from convo.endpoints.embedded.membership import joined
from convo.endpoints.embedded.requests import Request
from convo.errors import ConvoError, LimitReached
from convo.history import IGNORED, PROVIDER, Link, Path, Strategy, storable
from convo.history.link import Status
from convo.ids import NewId
from convo.items import Event, Item, Json, Response, is_call
from convo.items.partial import STREAMED, TEXT_DIFFERS
from convo.stores.contract import Change, Growth

STOPPED: Mapping[str, Json] = {"code": "cancelled", "message": "The answer was stopped."}

NOT_KEPT: Mapping[str, Json] = {"code": "server_error", "message": "The server could not keep this answer."}

GONE: Mapping[str, Json] = {"code": "server_error", "message": "The server that ran this response went away."}

FAILED: dict[str, Json] = {"code": "server_error", "message": "The model failed."}

CUT_SHORT: Mapping[str, str] = {
    "max_output_tokens": "The answer was cut off at its limit of tokens.",
    "content_filter": "The answer was cut off by a content filter.",
}


@dataclass(frozen=True)
class Ended:
    """How a model's answer ended.

    error:  {"code", "message"}; of an incomplete answer the reason and its words; "limit" where one ended it
    sent:   the output of a cancelled answer is what its client had been sent, and joins the conversation
    """

    status: Status
    output: tuple[Item, ...] = ()
    usage: Mapping[str, Json] | None = None
    error: Mapping[str, Json] | None = None
    sent: bool = False

    @property
    def acknowledged(self) -> bool:
        """Whether the answer ended by itself, and not by a fault."""
        return self.status in ("completed", "incomplete")

    @property
    def joins(self) -> bool:
        """Whether the turn is appended to its conversation."""
        return self.acknowledged or self.sent


def ended(event: Event) -> Ended:
    """How a terminal event ends an answer."""
    response: Response = event["response"]
    output, used = tuple(response.get("output") or ()), response.get("usage")
    if event["type"] == "response.completed":
        return Ended("completed", output, used)
    if event["type"] == "response.incomplete":
        if "limit" in (response.get("error") or {}):
            return Ended("incomplete", output, used, response["error"])
        reason = (response.get("incomplete_details") or {}).get("reason") or "max_output_tokens"
        words = CUT_SHORT.get(reason, "The answer was cut off.")
        return Ended("incomplete", output, used, {"code": reason, "message": words})
    return Ended("failed", output, used, FAILED | (response.get("error") or {}))


def stopped(output: Sequence[Item]) -> Ended:
    """An answer that its reader stopped; `output` is what had come of it."""
    return Ended("cancelled", tuple(output), error=STOPPED)


def disconnected(output: Sequence[Item]) -> Ended:
    """An answer whose client disconnected; `output` is what it had been sent.

    A whole call is marked incomplete: the client may still answer it, and a next turn without its output is accepted.
    """
    kept = tuple({**item, "status": "incomplete"} if is_call(item) else item for item in output)
    return Ended("cancelled", kept, error=STOPPED, sent=True)


def not_kept(output: Sequence[Item]) -> Ended:
    """An answer that no store took."""
    return Ended("failed", tuple(output), error=NOT_KEPT)


def abandoned(output: Sequence[Item]) -> Ended:
    """An answer that nobody carries out any more; `output` is what had come of it."""
    return Ended("failed", tuple(output), error=GONE)


def broken_off(fault: ConvoError, output: Sequence[Item]) -> Event:
    """The terminal event of an answer that `fault` ended; `output` is what had been finished of it."""
    error = {"code": fault.code, "message": fault.message}
    return {"type": "response.failed", "response": {"output": list(output), "error": error}}


def cut_off_at_limit(reached: LimitReached, output: Sequence[Item]) -> Event:
    """The terminal event of an answer that reached a limit: of time it failed, of size it is incomplete.

    output:  as much as there is of it; the link keeps the limit's name beside its error
    """
    status, code = ("failed", "server_error") if reached.timed else ("incomplete", "max_output_tokens")
    error = {"code": code, "message": reached.message, "limit": reached.limit}
    return {"type": f"response.{status}", "response": {"output": list(output), "error": error}}


DIFFERS: Mapping[str, Json] = {"code": "text_differs", "message": TEXT_DIFFERS}


def differing(end: Ended) -> Ended:
    """`end` of an answer whose final text is not the text that was streamed: the link says so in its error."""
    return replace(end, error={**DIFFERS, **(end.error or {}), STREAMED: True}) if end.acknowledged else end


def begun(
    request: Request,
    before: Before,
    saw: Path,
    *,
    response_id: str,
    created_at: float,
    first_token_s: float | None,
    ignored: Sequence[str] = (),
    provider: str | None = None,
) -> Link:
    """The link of an answer that has begun.

    saw:       ends where the model's input ends
    ignored:   what the model was not sent, see `convo.models.ignored`
    provider:  the model's, where the model's name does not begin with it
    """
    ours: dict[str, Json] = {IGNORED: list(ignored)} if ignored else {}
    if provider:
        ours[PROVIDER] = provider
    return Link(
        id=response_id,
        saw=saw.head,
        head=saw.head,
        sent=len(saw) - len(before.path),
        model=request.model,
        strategy=Strategy.CONVERSATION if request.conversation else Strategy.CHAIN,
        status="in_progress",
        created_at=created_at,
        parent=request.previous,
        conversation_id=request.conversation,
        previous_response_id=request.previous,
        first_token_s=first_token_s,
        parameters=storable(request.parameters) | ours,
        stored=request.store,
    )


def finished(link: Link, saw: Path, end: Ended, seconds: float) -> Link:
    return replace(
        link,
        head=saw.grow(end.output).head,
        status=end.status,
        usage=end.usage,
        error=end.error,
        seconds=seconds,
    )


def change_for(before: Before, saw: Path, end: Ended, link: Link, new_id: NewId) -> Change:
    """The one change after which the answer is durable."""
    said = (*saw.items[len(before.path) :], *end.output)
    grow = (Growth(before.path.head, said),) if said else ()
    if before.conversation is None or not end.joins:
        return Change(grow=grow, links=(link,))
    return replace(joined(before.conversation, before.path, said, new_id), links=(link,))


def replanted(change: Change, saw: Path, end: Ended) -> Change:
    """`change` without leaning on a place that somebody deleted meanwhile: the whole path grows from the root."""
    return replace(change, grow=(Growth(saw.root, (*saw.items, *end.output)),))
