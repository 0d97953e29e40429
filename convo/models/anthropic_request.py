"""An ask as the body of a Messages request.

What the Messages API calls otherwise is renamed, what belongs to whoever keeps the response is left
to it, and what Claude could not honour is refused by name before anybody is asked.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from convo.errors import Unsupported
from convo.items import Json, kind
from convo.models.anthropic_messages import THOUGHTS, messages, system
from convo.models.anthropic_thinking import form, thinking
from convo.models.contract import Ask
from convo.models.ignored import ignored_in_items, ignored_parameters
from convo.models.sealed import Maker, is_own
from convo.tokens.windows import window_of

LONGEST_ANSWER = 32_000
"""Tokens of output that are asked for where neither the caller nor the model's row says how many."""

NOT_OURS = frozenset(
    {
        # the response's own, kept and answered by whoever owns it
        "store", "stream", "stream_options", "background", "metadata",
        "previous_response_id", "conversation", "context_management",
        # hints that the API has no word for, and a bound on tools that are refused anyway: reported by `ignored`
        "user", "prompt_cache_key", "max_tool_calls", "seed", "chat_template_kwargs",
    }
)  # fmt: skip

MEANS_NOTHING: Mapping[str, Json] = {
    "temperature": 1, "top_p": 1, "top_logprobs": 0, "presence_penalty": 0, "frequency_penalty": 0,
    "truncation": "disabled",
}  # fmt: skip
"""Values that ask for what happens anyway; the newest models take no temperature at all."""

LOGPROBS = "message.output_text.logprobs"
COUNTED = ("model", "messages", "system", "tools", "tool_choice", "thinking", "output_config", "cache_control")
"""The fields of a body on which the number of input tokens depends."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """All that was asked for; who is asked, for the error's sentence; the bound of the answer; extra fields."""

    asked: Mapping[str, Json]
    model: str
    who: str
    max_tokens: int
    extra: frozenset[str] = frozenset()


def request(ask: Ask, by: Maker, who: str, extra: Collection[str] = ()) -> dict[str, Json]:
    """The body that asks for `ask`, without `stream`.

    extra:   the extra fields that are sent, see `convo.models.ignored`
    by:      whose seals can be opened, see `convo.models.sealed`
    who:     the model, for the error's sentence
    raises:  Unsupported  an item or parameter that Claude could not honour; InputFault
    """
    asked = {name: value for name, value in ask.parameters.items() if value is not None}
    window = window_of(ask.model)
    max_tokens = asked.get("max_output_tokens") or (window and window.output) or LONGEST_ANSWER
    wanted = Wanted(asked, ask.model, who, max_tokens, frozenset(extra))
    body: dict[str, Json] = {
        "model": ask.model,
        "max_tokens": max_tokens,
        "messages": messages(ask.input, who, by),
        "cache_control": {"type": "ephemeral"},
    }
    told = system(ask.input, who, ask.instructions)
    for fields in ({"system": told} if told else {}, *(_field(name, wanted) for name in asked)):
        body |= {**fields, "output_config": {**body.get("output_config", {}), **fields.get("output_config", {})}}
    return _fitting({name: value for name, value in body.items() if value or name == "messages"})


def ignored(ask: Ask, by: Maker, extra: Collection[str] = ()) -> tuple[str, ...]:
    """What `request` leaves out of `ask`, by the names of `convo.models.ignored`."""
    asked = ask.parameters
    known = {"prompt_cache_retention", "prompt_cache_options", "safety_identifier"} | (SAME & frozenset(extra))
    known |= {"service_tier"} if asked.get("service_tier") in ("default", "auto") else set()
    shown = ("effort", "summary", "generate_summary") if form(ask.model) != "none" else ("effort",)
    names = [*ignored_parameters(asked, known=known, reasoning=shown)]
    options = asked.get("prompt_cache_options") or {}
    names += [f"prompt_cache_options.{name}" for name, value in options.items() if name != "mode" and value is not None]
    names += ignored_in_items(ask.input)
    if any(kind(item) == "reasoning" and not is_own(item, by) for item in ask.input):
        names.append("input.reasoning")
    return tuple(dict.fromkeys(names))


SAME = frozenset({"top_k", "stop"})
"""The extra fields that the Messages API knows."""


def _field(name: str, wanted: Wanted) -> dict[str, Json]:
    """What one parameter becomes. raises: Unsupported"""
    value = wanted.asked[name]
    if name in NOT_OURS or name == "max_output_tokens" or (name in MEANS_NOTHING and value == MEANS_NOTHING[name]):
        return {}
    if name in TRANSLATED:
        return TRANSLATED[name](value, wanted)
    raise Unsupported(wanted.who, f"the parameter {name!r}", param=name)


def _fitting(body: dict[str, Json]) -> dict[str, Json]:
    """`body` without a budget to think where that would be refused: in a turn that began without thoughts.

    An assistant's turn that goes on behind a tool's output must begin with the thoughts that led
    there, and another model's are not shown. The next turn thinks again.
    """
    turn = body["messages"][-2:]
    begun = len(turn) == 2 and turn[1]["content"][0]["type"] == "tool_result" and turn[0]["content"]
    thoughtless = begun and begun[0]["type"] not in THOUGHTS
    if thoughtless and form(body["model"]) == "budget":
        body.pop("thinking", None)
    return body


# -- parameters -----------------------------------------------------------------------------------


def _sampling(name: str) -> Callable[[Json, Wanted], dict[str, Json]]:
    def field(value: Json, wanted: Wanted) -> dict[str, Json]:
        if value > 1:
            raise Unsupported(wanted.who, f"a {name} of {value}", param=name)
        return {name: value}

    return field


def _tools(tools: Json, wanted: Wanted) -> dict[str, Json]:
    other = next((tool.get("type") for tool in tools if tool.get("type") != "function"), None)
    if other is not None:
        raise Unsupported(wanted.who, f"{other} tools", param="tools")
    allowed = _allowed(wanted.asked.get("tool_choice"))
    offered = [_tool(tool) for tool in tools if allowed is None or tool["name"] in allowed]
    choice = _choice(wanted)
    return {"tools": offered, **({"tool_choice": choice} if choice else {})} if offered else {}


def _tool(tool: Json) -> Json:
    schema = {"type": "object", "properties": {}} | (tool.get("parameters") or {})
    described = {"description": tool["description"]} if tool.get("description") else {}
    return {
        "name": tool["name"],
        **described,
        "input_schema": schema,
        **({"strict": True} if tool.get("strict") else {}),
    }


def _allowed(choice: Json) -> set[str] | None:
    """The names that an `allowed_tools` choice leaves: the others are simply not offered."""
    if not isinstance(choice, Mapping) or choice.get("type") != "allowed_tools":
        return None
    return {str(tool.get("name")) for tool in choice.get("tools", ())}


def _choice(wanted: Wanted) -> dict[str, Json]:
    """Which tools are to be called, and whether several at once; nothing where that goes without saying."""
    choice: Json = wanted.asked.get("tool_choice") or "auto"
    mode = choice if isinstance(choice, str) else choice.get("mode") or choice.get("type")
    if mode not in CHOICES:
        raise Unsupported(wanted.who, f"a choice of {mode} tools", param="tool_choice")
    chosen: dict[str, Json] = {"type": CHOICES[mode]}
    if mode == "function":
        chosen["name"] = choice["name"]
    if wanted.asked.get("parallel_tool_calls") is False and mode != "none":
        chosen["disable_parallel_tool_use"] = True
    return chosen if chosen != {"type": "auto"} else {}


CHOICES = {"auto": "auto", "required": "any", "none": "none", "function": "tool"}


def _with_the_tools(value: Json, wanted: Wanted) -> dict[str, Json]:
    """Said where the tools are; without tools it says nothing."""
    return {}


def _text(text: Json, wanted: Wanted) -> dict[str, Json]:
    if text.get("verbosity") not in (None, "medium"):
        raise Unsupported(wanted.who, "a verbosity", param="text.verbosity")
    wish = text.get("format") or {"type": "text"}
    match wish.get("type"):
        case "text":
            return {}
        case "json_schema":
            return {"output_config": {"format": {"type": "json_schema", "schema": wish["schema"]}}}
        case other:
            hint = "give the JSON a schema: text.format of the type json_schema"
            raise Unsupported(wanted.who, f"{other} as the format of text", param="text.format", hint=hint)


def _reasoning(reasoning: Json, wanted: Wanted) -> dict[str, Json]:
    return thinking(reasoning, wanted.model, wanted.who, max_tokens=wanted.max_tokens)


def _include(include: Json, wanted: Wanted) -> dict[str, Json]:
    """Thoughts are always sealed, and what hosted tools would add is refused with them."""
    if LOGPROBS in include:
        raise Unsupported(wanted.who, "logprobs", param="include")
    return {}


def _caching(retention: Json, wanted: Wanted) -> dict[str, Json]:
    return {"cache_control": {"type": "ephemeral", "ttl": "1h"}} if retention == "24h" else {}


def _cache_options(options: Json, wanted: Wanted) -> dict[str, Json]:
    return {"cache_control": None} if options.get("mode") == "explicit" else {}


def _tier(tier: Json, wanted: Wanted) -> dict[str, Json]:
    """Whoever wants the default wants no dearer capacity; the other tiers are wishes that have no word here."""
    return {"service_tier": "standard_only"} if tier == "default" else {}


def _top_k(value: Json, wanted: Wanted) -> dict[str, Json]:
    return {"top_k": value} if "top_k" in wanted.extra else {}


def _stop(value: Json, wanted: Wanted) -> dict[str, Json]:
    words = [value] if isinstance(value, str) else value
    return {"stop_sequences": words} if "stop" in wanted.extra else {}


def _identifier(identifier: Json, wanted: Wanted) -> dict[str, Json]:
    return {"metadata": {"user_id": identifier}}


TRANSLATED: dict[str, Callable[[Json, Wanted], dict[str, Json]]] = {
    "temperature": _sampling("temperature"),
    "top_p": _sampling("top_p"),
    "tools": _tools,
    "tool_choice": _with_the_tools,
    "parallel_tool_calls": _with_the_tools,
    "text": _text,
    "reasoning": _reasoning,
    "include": _include,
    "prompt_cache_retention": _caching,
    "prompt_cache_options": _cache_options,
    "service_tier": _tier,
    "safety_identifier": _identifier,
    "top_k": _top_k,
    "stop": _stop,
}
"""What has another shape in the Messages API; each gets its value and all that was asked for."""
