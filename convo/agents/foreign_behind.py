"""The agent behind a tool of an installed Agents SDK, and how it is run there.

The tool says that an agent stands behind it, and which. How that one is run (in a session of its
own, with an output that is taken out of its answer) only the tool's function knows, in what it
closes over. It is read there; where it cannot be, or would change a run and cannot be taken over,
the tool is refused by name.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from convo.errors import Unsupported

CLOSED_OVER = {
    "session": "a session of its own",
    "conversation_id": "a conversation of its own",
    "previous_response_id": "a chain of its own",
    "run_config": "a run configuration of its own",
    "hooks": "lifecycle hooks",
    "on_stream": "a listener to its events",
    "custom_output_extractor": "a function that takes its output out of the answer",
    "should_capture_tool_input": "an input that is more than text",
}
"""What the function closes over beside `max_turns`, and what each means where it is there."""

MAX_TURNS = 10
"""Model calls of such a run where the tool does not say."""

WORDS = "default_tool_error_function"
"""The SDK's own words for a failure, which are ours as well."""

HINT = "leave it out, or run it with the Agents SDK"


class Behind(NamedTuple):
    """What stands behind a tool. worded: whether its model is told of a failure; else the run fails"""

    agent: Any
    max_turns: int
    worded: bool


def behind(found: Any) -> Behind:
    """The agent behind a tool. raises: Unsupported  it is run in a way that convo does not know"""
    where = f"(tool {found.name!r})"
    agent, kept = getattr(found, "_agent_instance", None), _closed_over(found.on_invoke_tool)
    if agent is None or not {*CLOSED_OVER, "max_turns"} <= kept.keys():
        raise Unsupported("convo", f"an agent that does not say how it is run {where}", hint=HINT)
    for name, words in CLOSED_OVER.items():
        if kept[name] is not None and kept[name] is not False:
            raise Unsupported("convo", f"an agent with {words} {where}", hint=HINT)
    failure = getattr(found, "_failure_error_function", None)
    if failure is not None and getattr(failure, "__name__", "") != WORDS:
        raise Unsupported("convo", f"an agent with words of its own for a failure {where}", hint=HINT)
    default = bool(getattr(found, "_use_default_failure_error_function", False))
    return Behind(agent, kept["max_turns"] or MAX_TURNS, default or failure is not None)


def _closed_over(function: Any) -> Mapping[str, Any]:
    """What the function of a tool closes over; it may stand behind one that hears of failures."""
    inner: Callable[..., Any] = getattr(function, "_invoke_tool_impl", function)
    return inspect.getclosurevars(inner).nonlocals if inspect.isfunction(inner) else {}
