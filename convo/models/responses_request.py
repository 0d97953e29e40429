"""An ask as the body of a Responses request that keeps no state at the server.

Everything travels: hosted tools, MCP, parameters that nobody here knows. Three things are changed.
Nothing is stored. Ids that would point at nothing there are left out. And a model that can hand
its reasoning out sealed is always asked to, because the next request is lost without it, whether
or not anybody wants to look at it.
"""

from collections.abc import Collection, Mapping

from convo.config.providers import EXTRA_FIELDS
from convo.items import Item, Json, kind, resendable
from convo.models.contract import Ask
from convo.models.ignored import OPENAI_RESPONSES_FIELDS
from convo.models.sealed import Maker, all_opened, is_own, is_tagged
from convo.tokens.models import seals_reasoning

SEALED_REASONING = "reasoning.encrypted_content"

NOT_OURS = frozenset(
    {
        # the response's own, kept and answered by whoever owns it
        "store", "stream", "stream_options", "background", "metadata",
        "previous_response_id", "conversation", "context_management",
    }
)  # fmt: skip

EXTRA = frozenset(EXTRA_FIELDS) - OPENAI_RESPONSES_FIELDS
"""Extra fields that the Responses API does not have."""

COUNTED = frozenset({"tools", "tool_choice", "text", "reasoning", "parallel_tool_calls", "truncation"})
"""The parameters on which the number of input tokens depends."""

COMPACTED = frozenset({"prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "service_tier"})
"""The parameters that a request to compact takes."""


def request(ask: Ask, by: Maker, who: str, extra: Collection[str] = ()) -> dict[str, Json]:
    """The body that asks for `ask`, without `stream`.

    extra:   the extra fields that are sent, see `convo.models.ignored`
    by:      whose seals can be opened, see `convo.models.sealed`
    who:     the model, for the error's sentence
    raises:  Unsupported  a sealed history of somebody else
    """
    unknown = EXTRA - frozenset(extra)
    asked = {
        name: value
        for name, value in ask.parameters.items()
        if name not in NOT_OURS and name not in unknown and value is not None
    }
    included = _included(ask)
    return {**_said(ask, by, who), **asked, "store": False, **({"include": included} if included else {})}


def ignored(ask: Ask, by: Maker, extra: Collection[str] = ()) -> tuple[str, ...]:
    """What `request` leaves out of `ask`, by the names of `convo.models.ignored`."""
    names = [name for name in ask.parameters if name in EXTRA - frozenset(extra) and ask.parameters[name] is not None]
    if any(kind(item) == "reasoning" and not _is_sent(item, by) for item in ask.input):
        names.append("input.reasoning")
    return tuple(names)


def _is_sent(item: Item, by: Maker) -> bool:
    """Whether a reasoning item is sent: it is sealed, and not by another maker that convo knows."""
    seal = item.get("encrypted_content")
    return bool(seal) and (is_own(item, by) or not is_tagged(item))


def to_count(ask: Ask, by: Maker, who: str) -> dict[str, Json]:
    """The body that asks for the input tokens of `ask`. raises: Unsupported"""
    return {**_said(ask, by, who), **_only(COUNTED, ask.parameters)}


def to_compact(ask: Ask, by: Maker, who: str) -> dict[str, Json]:
    """The body that asks for a smaller window. raises: Unsupported"""
    return {**_said(ask, by, who), **_only(COMPACTED, ask.parameters)}


def _said(ask: Ask, by: Maker, who: str) -> dict[str, Json]:
    told: dict[str, Json] = {} if ask.instructions is None else {"instructions": ask.instructions}
    return {"model": ask.model, **({"input": _input(ask, by, who)} if ask.input else {}), **told}


def _input(ask: Ask, by: Maker, who: str) -> list[Item]:
    sent = (resendable(item) for item in all_opened(ask.input, by, who, foreign=True))
    return [item for item in sent if item is not None]


def _included(ask: Ask) -> list[str]:
    wanted = list(ask.parameters.get("include") or ())
    if seals_reasoning(ask.model) and SEALED_REASONING not in wanted:
        wanted.append(SEALED_REASONING)
    return wanted


def _only(names: frozenset[str], parameters: Mapping[str, Json]) -> dict[str, Json]:
    return {name: value for name, value in parameters.items() if name in names and value is not None}
