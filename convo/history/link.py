"""One model call, as it is remembered.

A link does not copy what it saw. It names the node at which the model's input ended and the node
at which its output ended; the path between root and node is the rest. `sent` says how many of the
last items of that input travelled, the owner having put the others there itself.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from convo.history.owner import HERE, Scope, Strategy
from convo.history.tree import Key
from convo.items import Json

Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]


@dataclass(frozen=True, slots=True)
class Link:
    """One call of a model.

    id:               the endpoint's `resp_...`, or `try_...` for an attempt that never got one
    parent:           the link that this one goes on from, under every strategy
    session:          the session that made it; None for calls by other clients of the endpoint
    model:            "provider/model"
    saw:              the last node of the model's input
    sent:             how many items of that input travelled in the request
    head:             the last node of its output; `saw` when there is none
    created_at:       seconds since 1970
    seconds:          from request to the end of the answer
    first_token_s:    seconds from the request to the first piece of the answer
    parameters:       the request without model, input and state: instructions, tools, ...
    usage:            as the endpoint gave it, in tokens
    error:            {"code", "message"} of a call that did not end well
    stored:           whether the endpoint keeps the response, so that a chain may go on from it
    """

    id: str
    saw: Key
    head: Key
    sent: int
    model: str
    strategy: Strategy
    status: Status
    created_at: float
    parent: str | None = None
    session: str | None = None
    scope: Scope = HERE
    conversation_id: str | None = None
    previous_response_id: str | None = None
    seconds: float | None = None
    first_token_s: float | None = None
    parameters: Mapping[str, Json] = field(default_factory=dict)
    usage: Mapping[str, Json] | None = None
    error: Mapping[str, Json] | None = None
    stored: bool = True
