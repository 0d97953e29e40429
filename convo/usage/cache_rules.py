"""The vendors' rules for prompt caches, and for reasoning that is bound to the prompt before it, by model.

Sources: openai.types.responses and anthropic.types (November 2026); OpenAI, "Prompt caching" (September 2026), "Keep
the prefix unchanged" and "Using GPT-6.2" (November 2026), and "Prompt Caching 201" in its cookbook; Anthropic, "Prompt
caching" and "Extended thinking" (November 2026).
"""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple, TypeAlias, get_args

from convo.config.request_settings import get_request_field
from convo.history.items import Json
from convo.usage.cost import Usage
from convo.usage.model_info import REASONING_MODELS, appends_instructions, gpt_version

Certainty: TypeAlias = Literal["no", "may", "yes"]

CERTAINTIES: tuple[Certainty, ...] = get_args(Certainty)
"""In rising order."""

Vendor: TypeAlias = Literal["openai", "anthropic"]

OPENAI_SETTINGS = (
    "tools", "parallel_tool_calls", "text.format", "reasoning.effort", "text.verbosity", "context_management",
    "instructions",
)  # fmt: skip
ANTHROPIC_SETTINGS = ("tools", "instructions", "tool_choice", "reasoning.effort", "output_config.effort", "thinking")
OTHER_SETTINGS = ("tools", "instructions")
"""The settings that stand before all items, by vendor; "text.format" is the member `format` of `text`.

Recorded requests of the Messages API have the effort in `output_config`. A change of a setting loses the whole prefix;
Claude keeps what stands before the setting: first the tools, then the instructions.
"""


class CacheRules(NamedTuple):
    """The rules of one model.

    vendor:          None if it is neither OpenAI nor Anthropic: nothing is known but that a prefix must be identical
    settings:        those that stand before all items, in order
    min_tokens:      the shortest prefix that is cached; None if unknown
    step_tokens:     the number of cached tokens is a multiple of this
    ttl_s:           a prefix is kept for at least this time after its last use; None if unknown
    binds_reasoning: whether reasoning is withheld or refused if the prefix that it was made with has changed
    bound_settings:  the settings that are a part of that prefix
    appends:         by setting, the item that is appended to change it without a change of the prefix
    """

    vendor: Vendor | None
    settings: tuple[str, ...]
    min_tokens: int | None
    step_tokens: int
    ttl_s: float | None
    binds_reasoning: Certainty
    bound_settings: tuple[str, ...]
    appends: Mapping[str, str]


_FIVE_MINUTES_S, _HALF_HOUR_S, _HOUR_S, _HALF_DAY_S = 300.0, 1_800.0, 3_600.0, 43_200.0

_UPDATE, _TOOLS, _DEVELOPER = "a configuration_update item", "an additional_tools item", "a developer message"
_SYSTEM = "a system message after the last user message"

OPENAI_APPENDS = {
    "reasoning.effort": _UPDATE, "text.format": _UPDATE, "tools": _TOOLS, "instructions": _DEVELOPER,
}  # fmt: skip
ANTHROPIC_APPENDS = {"instructions": _SYSTEM, "tools": "tool_addition and tool_removal items"}
"""From Claude 4.8 on, without Sonnet 5 (Anthropic, "What's new in Claude Opus 4.8", 2026)."""

ANTHROPIC_MIN_TOKENS = {
    "opus-5": 512, "opus-5-5": 512, "fable-5": 512, "fable-5-1": 512, "mythos-5": 512, "mythos-5-1": 512,
    "opus-4-8": 1_024, "sonnet-5": 1_024, "sonnet-4-6": 1_024, "sonnet-4-5": 1_024, "opus-4-7": 2_048,
    "opus-4-6": 4_096, "opus-4-5": 4_096, "haiku-4-5": 4_096,
}  # fmt: skip
"""The shortest cached prompt by model, in tokens; no page has those of the other models."""

ALWAYS_BOUND, MAYBE_BOUND = (
    ("fable-5-2", "mythos-5-2"),
    ("fable-5-1", "mythos-5-1", "opus-5-5", "sonnet-5-5", "haiku-5-5"),
)
"""Models of Claude with bound thinking: on every account, and on accounts made since 31 August 2026.

Thinking of ALWAYS_BOUND models is read by these models only.
"""

_CLAUDE_NAME = r"claude-((?:opus|sonnet|haiku|fable|mythos)-\d{1,2}(?:-\d{1,2})?)(?:-\d{8}|-latest)?$"


_OPENAI_PREFIXES = ("chatgpt-", *REASONING_MODELS)
"""Prefixes of the names of OpenAI's models, in addition to those with a GPT version."""


def find_cache_rules(model: str, parameters: Mapping[str, Json]) -> CacheRules:
    """Return the rules of a model for a request with these parameters.

    model:  with or without its provider
    """
    name = model.rpartition("/")[2]
    if gpt_version(name) > (0, 0) or name.startswith(_OPENAI_PREFIXES):
        return _openai_rules(gpt_version(name), parameters)
    claude = re.fullmatch(_CLAUDE_NAME, name)
    if claude or name.startswith("claude"):
        return _anthropic_rules(claude[1] if claude else "", parameters)
    return CacheRules(None, OTHER_SETTINGS, None, 1, None, "no", (), {})


def find_appendable_fields(model: str, parameters: Mapping[str, Json]) -> frozenset[str]:
    """Return the fields that convo changes by an appended item, so that the prefix stays the same.

    GPT-6.2 has its instructions in the history in any case; Claude's items for tools need betas.
    """
    rules = find_cache_rules(model, parameters)
    others = {"instructions"} if appends_instructions(model) else {"tools"} if rules.vendor == "anthropic" else set()
    return frozenset(rules.appends) - others


def _openai_rules(version: tuple[int, int], parameters: Mapping[str, Json]) -> CacheRules:
    has_breakpoints, is_bound = version >= (5, 6), version >= (6, 2)
    ttl = read_setting(parameters, TTL_FIELD)
    ttl_s = (_HALF_DAY_S if ttl == "12h" else _HALF_HOUR_S) if has_breakpoints else _FIVE_MINUTES_S
    step = 1 if has_breakpoints else 2_048 if version == (5, 5) else 128
    settings = OPENAI_SETTINGS[:-1] if is_bound else OPENAI_SETTINGS  # then `instructions` follow the input
    bound = ("tools", "text.format") if is_bound else ()
    is_pro = read_setting(parameters, "reasoning.mode") == "pro"  # a 400 for configuration_update
    appends = {
        name: item for name, item in OPENAI_APPENDS.items() if version >= (6, 0) and not (is_pro and item == _UPDATE)
    }
    return CacheRules("openai", settings, 1_024, step, ttl_s, "yes" if is_bound else "no", bound, appends)


def _anthropic_rules(name: str, parameters: Mapping[str, Json]) -> CacheRules:
    binds: Certainty = "yes" if name in ALWAYS_BOUND else "may" if name in MAYBE_BOUND else "no"
    bound = () if binds == "no" else ("tools", "instructions")
    version = tuple(map(int, name.split("-")[1:]))
    appends = ANTHROPIC_APPENDS if version >= (4, 8) and name != "sonnet-5" else {}
    min_tokens = ANTHROPIC_MIN_TOKENS.get(name)
    ttl_s = _HOUR_S if find_claude_ttl(parameters) == "1h" else _FIVE_MINUTES_S
    return CacheRules("anthropic", ANTHROPIC_SETTINGS, min_tokens, 1, ttl_s, binds, bound, appends)


UNPUBLISHED_PRICE = "the price of a cache write for 12 hours is not published: that of 30 minutes was used"


def has_unpublished_price(model: str, parameters: Mapping[str, Json], usage: Usage | None) -> bool:
    """Return whether a request wrote tokens for 12 hours, for which OpenAI publishes no price."""
    return bool(usage and usage.cache_write_tokens) and find_cache_rules(model, parameters).ttl_s == _HALF_DAY_S


TTL_FIELD = "prompt_cache_options.ttl"

CLAUDE_TTLS = {"5m": "5m", "30m": "1h", "1h": "1h"}
"""The shortest ttl of the Messages API that reaches each `prompt_cache_options.ttl`, which is a minimum."""


def find_claude_ttl(parameters: Mapping[str, Json]) -> str | None:
    """Return the ttl of `cache_control` for these parameters; None if they ask for none: then it is 5 minutes."""
    requested_ttl = str(read_setting(parameters, TTL_FIELD))
    is_longer = requested_ttl == "12h" or parameters.get("prompt_cache_retention") == "24h"
    return CLAUDE_TTLS.get(requested_ttl, "1h" if is_longer else None)


def find_model_change_loss(maker: str, reader: str) -> Certainty:
    """Return whether the model `reader` does not receive the reasoning of `maker`, behind the same prefix."""
    maker_rules, reader_rules = find_cache_rules(maker, {}), find_cache_rules(reader, {})
    if maker_rules.vendor != reader_rules.vendor:
        return "yes"
    if reader_rules.vendor != "anthropic":
        return "may"  # OpenAI: "certain model changes", without a list
    made_by, read_by = (re.fullmatch(_CLAUDE_NAME, model.rpartition("/")[2]) for model in (maker, reader))
    if not made_by or not read_by:
        return "may"
    if made_by[1] in ALWAYS_BOUND:
        return "no" if read_by[1] in ALWAYS_BOUND else "yes"
    family, major, *minor = made_by[1].split("-")
    is_5_or_earlier = (int(major), *map(int, minor)) <= (5,)
    is_read = (
        (is_5_or_earlier and family in ("opus", "sonnet", "haiku"))
        if read_by[1] == "opus-5-5"
        else (is_5_or_earlier or made_by[1] == "opus-5-5") and read_by[1] in ("fable-5-1", "mythos-5-1")
    )
    return "no" if is_read else "may"


CLAUDE_EFFORT = "high"
"""The default effort of Claude."""

DEFAULTS: Mapping[str, Json] = {
    "parallel_tool_calls": True, "text.format": {"type": "text"}, "text.verbosity": "medium", "tool_choice": "auto",
    "output_config.effort": CLAUDE_EFFORT,
}  # fmt: skip
"""The values of settings that a request does not set, for models of both vendors."""


def read_setting(parameters: Mapping[str, Json], name: str) -> Json:
    """Return a field of a request, such as one of `CacheRules.settings`; None if it is not set, or is the default.

    Tools with `defer_loading` are not a part of the prefix.
    """
    value: Json = get_request_field(parameters, name)
    if name == "tools" and isinstance(value, list):
        value = [tool for tool in value if not (isinstance(tool, Mapping) and tool.get("defer_loading"))] or None
    return None if value == DEFAULTS.get(name) else value
