"""An ask as the body of a Responses request that keeps no state at the server.

Everything travels: hosted tools, MCP, parameters that nobody here knows. Three things are changed.
Nothing is stored. Ids that would point at nothing there are left out. And a model that can hand
its reasoning out sealed is always asked to, because the next request is lost without it, whether
or not anybody wants to look at it.
"""

from collections.abc import Mapping

from convo.items import Item, Json, resendable
from convo.models.contract import Ask
from convo.models.sealed import all_opened
from convo.tokens.models import seals_reasoning

SEALED_REASONING = "reasoning.encrypted_content"

NOT_OURS = frozenset(
    {
        # the response's own, kept and answered by whoever owns it
        "store", "stream", "stream_options", "background", "metadata",
        "previous_response_id", "conversation", "context_management",
    }
)  # fmt: skip

COUNTED = frozenset({"tools", "tool_choice", "text", "reasoning", "parallel_tool_calls", "truncation"})
"""The parameters on which the number of input tokens depends."""

COMPACTED = frozenset({"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "service_tier"})
"""The parameters that a request to compact takes."""


def request(ask: Ask, by: str, who: str) -> dict[str, Json]:
    """The body that asks for `ask`, without `stream`.

    by:      whose seals can be opened, see `convo.models.sealed`
    who:     the model, for the error's sentence
    raises:  Unsupported  a sealed history of somebody else
    """
    asked = {name: value for name, value in ask.parameters.items() if name not in NOT_OURS and value is not None}
    included = _included(ask)
    return {**_said(ask, by, who), **asked, "store": False, **({"include": included} if included else {})}


def to_count(ask: Ask, by: str, who: str) -> dict[str, Json]:
    """The body that asks for the input tokens of `ask`. raises: Unsupported"""
    return {**_said(ask, by, who), **_only(COUNTED, ask.parameters)}


def to_compact(ask: Ask, by: str, who: str) -> dict[str, Json]:
    """The body that asks for a smaller window. raises: Unsupported"""
    return {**_said(ask, by, who), **_only(COMPACTED, ask.parameters)}


def _said(ask: Ask, by: str, who: str) -> dict[str, Json]:
    told: dict[str, Json] = {} if ask.instructions is None else {"instructions": ask.instructions}
    return {"model": ask.model, **({"input": _input(ask, by, who)} if ask.input else {}), **told}


def _input(ask: Ask, by: str, who: str) -> list[Item]:
    sent = (resendable(item) for item in all_opened(ask.input, by, who))
    return [item for item in sent if item is not None]


def _included(ask: Ask) -> list[str]:
    wanted = list(ask.parameters.get("include") or ())
    if seals_reasoning(ask.model) and SEALED_REASONING not in wanted:
        wanted.append(SEALED_REASONING)
    return wanted


def _only(names: frozenset[str], parameters: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in parameters.items() if name in names and value is not None}
