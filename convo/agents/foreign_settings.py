"""The Agents SDK's model settings, as fields of a request.

Most have the same name in both; some are about how that SDK asks, which is the engine's affair
here. One that has no field is refused by its name: an agent that is asked otherwise than it was
tried is another one.
"""

from collections.abc import Mapping
from typing import Any

from convo.errors import Unsupported
from convo.items import Json

SAME = (
    *("temperature", "top_p", "frequency_penalty", "presence_penalty", "parallel_tool_calls", "truncation"),
    *("metadata", "store", "top_logprobs", "prompt_cache_retention", "prompt_cache_options", "context_management"),
)
FIELDS = {**{name: name for name in SAME}, "max_tokens": "max_output_tokens", "response_include": "include"}
LEFT = {"include_usage", "preserve_raw_usage", "retry", "timeout"}
"""Settings about how it asks, which here are the engine's affair."""

CHOICES = {"auto", "required", "none"}
HOSTED_CHOICES = {
    *("file_search", "web_search", "web_search_preview", "computer_use_preview", "image_generation"),
    *("code_interpreter", "mcp"),
}


def settings_of(found: Any) -> dict[str, Json]:
    """The fields of a request that a settings object stands for; what is None is left out.

    raises:  Unsupported  a setting that has no field
    """
    said = {name: value for name, value in vars(found).items() if value is not None and not name.startswith("_")}
    fields: dict[str, Json] = {}
    for name, value in said.items():
        if name in FIELDS:
            fields[FIELDS[name]] = value
        elif name in MADE:
            _merge(fields, MADE[name](value))
        elif name not in LEFT:
            raise Unsupported("convo", f"the model setting {name}", param=name, hint="leave it out")
    return fields


def tool_choice(said: Any) -> Json:
    """The request's `tool_choice`: a word, a hosted tool or a function by its name."""
    if said in CHOICES or isinstance(said, Mapping):
        return said
    if said in HOSTED_CHOICES:
        return {"type": said}
    if isinstance(said, str):
        return {"type": "function", "name": said}
    return {"type": "mcp", "server_label": said.server_label, "name": said.name}


def _reasoning(said: Any) -> dict[str, Json]:
    return {"reasoning": said.model_dump(exclude_none=True) if hasattr(said, "model_dump") else dict(said)}


MADE = {
    "tool_choice": lambda said: {"tool_choice": tool_choice(said)},
    "reasoning": _reasoning,
    "verbosity": lambda said: {"text": {"verbosity": said}},
    "extra_args": dict,
    "extra_body": dict,
}


def _merge(fields: dict[str, Json], more: Mapping[str, Json]) -> None:
    for name, value in more.items():
        both = isinstance(value, dict) and isinstance(fields.get(name), dict)
        fields[name] = {**fields[name], **value} if both else value
