"""The Agents SDK's model settings, as fields of a request.

Most have the same name in both; some are about how that SDK asks, which is the engine's affair
here. One that has no field is refused by its name: an agent that is asked otherwise than it was
tried is another one.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import Any

from convo.agents.foreign_fields import HINT, PACKAGE
from convo.errors import Unsupported
from convo.items import Json

SAME = (
    *("temperature", "top_p", "frequency_penalty", "presence_penalty", "parallel_tool_calls", "truncation"),
    *("metadata", "store", "top_logprobs", "prompt_cache_retention", "prompt_cache_options", "context_management"),
)
FIELDS = {**{name: name for name in SAME}, "max_tokens": "max_output_tokens", "response_include": "include"}
LEFT = {"include_usage", "preserve_raw_usage"}
"""Settings without an effect on a run here: the usage of every answer is asked for and kept as it came."""
REFUSED = {"retry", "timeout", "extra_headers", "extra_query"}
"""Settings about how the SDK asks, which convo does otherwise."""

LOGPROBS = "message.output_text.logprobs"
"""What the SDK asks for with `top_logprobs`."""


def settings_of(found: Any, include: Iterable[str] = (), choice: Json = None) -> dict[str, Json]:
    """The fields of a request that a settings object stands for; what is None is left out.

    include:  what the agent's tools ask to be included in the response
    choice:   the `tool_choice` that the SDK makes of the one in `found`, among the agent's tools
    raises:   Unsupported  a setting that has no field
    """
    said = {name: value for name, value in vars(found).items() if value is not None and not name.startswith("_")}
    fields: dict[str, Json] = {}
    for name, value in said.items():
        if name in FIELDS:
            fields[FIELDS[name]] = value
        elif name == "tool_choice":
            fields[name] = choice
        elif name in MADE:
            _merge(fields, MADE[name](value))
        elif name in REFUSED or name not in LEFT:
            raise Unsupported("convo", f"the model setting {name}", param=name, hint=HINT)
    included = {*include, *(said.get("response_include") or ()), *((LOGPROBS,) if "top_logprobs" in said else ())}
    return {**fields, "include": sorted(included)} if included else fields


def defaults_of(agent: Any, include: Iterable[str]) -> Callable[[str], Mapping[str, Json]] | None:
    """The settings of an agent that says none itself, by the name of the model that is asked in the end.

    The SDK gives such an agent the defaults of the model's name; None where the agent has settings of its own.
    """
    by_name = import_module(f"{PACKAGE}.models").get_default_model_settings
    model = getattr(agent, "model", None)
    implicit = by_name() if model is None else by_name(model)
    if agent.model_settings != implicit:
        return None
    return lambda wire_model: settings_of(by_name(wire_model), include)


def _reasoning(said: Any) -> dict[str, Json]:
    return {"reasoning": said.model_dump(exclude_none=True) if hasattr(said, "model_dump") else dict(said)}


MADE = {
    "reasoning": _reasoning,
    "verbosity": lambda said: {"text": {"verbosity": said}},
    "extra_args": dict,
    "extra_body": dict,
}


def _merge(fields: dict[str, Json], more: Mapping[str, Json]) -> None:
    for name, value in more.items():
        both = isinstance(value, dict) and isinstance(fields.get(name), dict)
        fields[name] = {**fields[name], **value} if both else value
