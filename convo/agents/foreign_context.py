"""The context that functions of the Agents SDK receive: instances of its own classes, filled from a run of convo.

`context` is the application's object as it was given, `usage` the tokens of the run so far, `turn_input`
what the run began with. Approvals are decided by convo, so `approve_tool` and `reject_tool` are refused.
The package is imported here, when one of its functions is called, and never before.
"""

import inspect
from collections.abc import Mapping
from importlib import import_module
from typing import Any, NoReturn

from convo.agents.foreign_fields import PACKAGE
from convo.errors import Unsupported
from convo.items import Item, Json, is_user
from convo.tools import NO_VALUES, Context

TOKENS = ("input_tokens", "output_tokens", "total_tokens")
DETAILS = {
    "input_tokens_details": ("cached_tokens", "cache_write_tokens"),
    "output_tokens_details": ("reasoning_tokens",),
}


def run_context(context: Context) -> Any:
    """The RunContextWrapper of a run."""
    return _made(import_module(PACKAGE).RunContextWrapper, _of_run(context))


def tool_context(context: Context, written: str, agent: Any) -> Any:
    """The ToolContext of one call.

    written:  the arguments as the model wrote them
    agent:    the SDK's agent that asks
    """
    from openai.types.responses import ResponseFunctionToolCall

    item = dict(context.call or {"type": "function_call", "call_id": context.call_id, "name": context.tool})
    said = {
        "tool_name": item.get("name"),
        "tool_call_id": context.call_id,
        "tool_arguments": written,
        "tool_call": ResponseFunctionToolCall.model_construct(**{**item, "arguments": written}),
        "agent": agent,
        "run_config": import_module(PACKAGE).RunConfig(),
    }
    return _made(import_module(f"{PACKAGE}.tool_context").ToolContext, {**_of_run(context), **said})


def guardrail_input(items: list[Item]) -> str | list[dict[str, Json]]:
    """A run's input as an input guardrail receives it: text where it is one text of the user."""
    easy = [easy_form(item) for item in items]
    if len(easy) == 1 and is_user(easy[0]) and isinstance(easy[0].get("content"), str):
        return str(easy[0]["content"])
    return easy


def _made(kind: Any, said: Mapping[str, Any]) -> Any:
    """An instance, without the fields that an older release does not take."""
    taken = inspect.signature(kind).parameters
    made = kind(**{name: value for name, value in said.items() if name in taken})

    def refuse(*args: object, **named: object) -> NoReturn:
        words = "approve_tool and reject_tool of a run context"
        made.convo_refusal = Unsupported("convo", words, hint="decide with convo resume, or at the prompt")
        raise made.convo_refusal

    made.approve_tool = made.reject_tool = refuse
    return made


def refusal_of(made: Any) -> Unsupported | None:
    """The refusal that a function ran into with its context, whatever it made of it."""
    found = vars(made).get("convo_refusal")
    return found if isinstance(found, Unsupported) else None


def _of_run(context: Context) -> dict[str, Any]:
    return {
        "context": None if context.values is NO_VALUES else context.values,
        "usage": _usage(context),
        "turn_input": [easy_form(item) for item in context.input],
    }


def _usage(context: Context) -> Any:
    kind = import_module(PACKAGE).Usage
    total = kind()
    for one in context.usages:
        tokens = {name: one.get(name) or 0 for name in TOKENS}
        details = {name: _details(one.get(name), fields) for name, fields in DETAILS.items()}
        total.add(kind(requests=1, **tokens, **details))
    return total


def _details(said: Json, fields: tuple[str, ...]) -> dict[str, int]:
    return {name: (said or {}).get(name) or 0 for name in fields}


def easy_form(item: Item) -> dict[str, Json]:
    """`item`, a user's plain text in the short form that the SDK gives it."""
    content = item.get("content")
    if is_user(item) and isinstance(content, list) and len(content) == 1:
        (part,) = content
        if isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "input_text":
            return {"content": part["text"], "role": "user"}
    return dict(item)
