"""The next request of a conversation, before it is sent.

Two things come together at the model: what its owner puts there, and what travels. They are shown
apart, because the first is what nobody sees, and what two people who talk of "the request" disagree
about.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from convo.history import Node, Strategy
from convo.inspection.window import Filling
from convo.inspection.window import as_json as filling_as_json
from convo.items import Json


@dataclass(frozen=True, repr=False)  # an event loop spells out what it returns, and this is long
class Coming:
    """The next request.

    handle:    what names the conversation
    owner:     the handle that the owner goes on from; None where nothing stands before the request
    before:    what the owner puts before it
    model:     "provider/model"
    url:       where it is posted; None where it stays in this process
    body:      the request as it travels
    headers:   without secrets; `{key}` stands where the key goes
    key_env:   the variable that holds the key; None where none is needed
    """

    handle: str
    strategy: Strategy
    owner: str | None
    before: tuple[Node, ...]
    model: str
    url: str | None
    body: Mapping[str, Json]
    filling: Filling
    headers: Mapping[str, str]
    key_env: str | None = None


def next_as_json(coming: Coming) -> dict[str, Json]:
    """The object of `convo next --json`."""
    return {
        "handle": coming.handle,
        "strategy": str(coming.strategy),
        "model": coming.model,
        "method": "POST",
        "url": coming.url,
        "before": {"owner": coming.owner, "items": [node.item for node in coming.before]},
        "body": dict(coming.body),
        **filling_as_json(coming.filling),
    }
