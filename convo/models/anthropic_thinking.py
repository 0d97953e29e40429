"""How much a Claude model is to think, in the words that its generation takes.

    before 3.7        does not think
    3.7 up to 4.5     a budget of tokens, within the tokens of the answer
    4.6 and later     decides for itself ("adaptive"), and is told an effort

What a generation does not know is an error there, so the form goes by the version in the name. A
name without one is taken for a newer model.
"""

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

from convo.errors import Unsupported
from convo.items import Json

Form: TypeAlias = Literal["none", "budget", "adaptive"]

VERSION = re.compile(r"claude-(?:[a-z]+-)?(\d{1,2})(?:-(\d{1,2}))?(?!\d)")

NEWEST = (99, 0)
LEAST_BUDGET = 1024
"""Tokens; a smaller budget is refused."""

BUDGETS = {"minimal": LEAST_BUDGET, "low": 4096, "medium": 10_240, "high": 24_576, "xhigh": 32_768, "max": 32_768}
"""Tokens to think in, by effort."""

EFFORTS = {"minimal": "low", "low": "low", "medium": "medium", "high": "high", "xhigh": "xhigh", "max": "max"}
"""An effort of the Responses API, as the Messages API calls it."""


def thinking(reasoning: Mapping[str, Json], model: str, who: str, *, max_tokens: int) -> dict[str, Json]:
    """The fields of a request that `reasoning` asks for.

    max_tokens:  the bound of the whole answer, thoughts included
    raises:      Unsupported
    """
    effort, shown = reasoning.get("effort"), reasoning.get("summary") or reasoning.get("generate_summary")
    display = {"display": "summarized"} if shown else {}
    if effort is not None and effort != "none" and effort not in EFFORTS:
        raise Unsupported(who, f"the effort {effort!r}", param="reasoning.effort")
    match form(model):
        case "none" if effort not in (None, "none"):
            raise Unsupported(who, "an effort of reasoning", param="reasoning.effort")
        case "budget" if effort not in (None, "none"):
            return {"thinking": {"type": "enabled", "budget_tokens": _budget(effort, max_tokens, who), **display}}
        case "adaptive" if effort == "none":
            return _off(model, who)
        case "adaptive" if effort or display:
            told = {"output_config": {"effort": _effort(effort, model)}} if effort else {}
            return {"thinking": {"type": "adaptive", **display}, **told}
    return {}


def form(model: str) -> Form:
    return "adaptive" if version(model) >= (4, 6) else "budget" if version(model) >= (3, 7) else "none"


def version(model: str) -> tuple[int, int]:
    """Major and minor, as the name says: (4, 0) for "claude-opus-4-20250514"."""
    found = VERSION.search(model)
    return (int(found[1]), int(found[2] or 0)) if found else NEWEST


def _budget(effort: str, max_tokens: int, who: str) -> int:
    """Tokens to think in, which leave some of the answer's for its words."""
    if max_tokens <= LEAST_BUDGET:
        raise Unsupported(
            who, f"an effort of reasoning within {max_tokens} tokens of output", param="max_output_tokens"
        )
    return max(LEAST_BUDGET, min(BUDGETS[effort], max_tokens * 3 // 4))


def _effort(effort: str, model: str) -> str:
    """4.6 goes from high to max."""
    return "max" if effort == "xhigh" and version(model) == (4, 6) else EFFORTS[effort]


def _off(model: str, who: str) -> dict[str, Json]:
    """Up to 4.8 a model thinks only when it is told to; of the later ones some cannot be told not to."""
    if version(model) < (5, 0):
        return {}
    if version(model) >= (5, 5) and "opus" in model:
        raise Unsupported(who, "an effort of 'none'", param="reasoning.effort", hint="use low")
    between = version(model) >= (5, 5) and "sonnet" in model
    return {"thinking": {"type": "between_tools" if between else "disabled"}}
