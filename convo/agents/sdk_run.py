"""The arguments of the Agents SDK's `Runner.run`: a RunConfig, or a dict of them by name.

Each one is honoured, or refused by name before any request.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, cast

from convo.errors import InputFault, UnsupportedParameter
from convo.history.items import Item, user_message

SDK_PACKAGE = "agents"
"""The import name of the Agents SDK."""

UNSUPPORTED_HINT = "remove it, or run it with the Agents SDK"

RUN_ARGUMENTS: Mapping[str, str | None] = {
    "starting_agent": "name it with --agent",
    "input": None,
    "context": "name it with --context",
    "max_turns": None,
    "hooks": None,
    "run_config": None,
    "error_handlers": UNSUPPORTED_HINT,
    "previous_response_id": "name it with --from",
    "auto_previous_response_id": "use --chain",
    "conversation_id": "name it with --from",
    "session": "name it with --sdk-session",
}
"""Arguments of `Runner.run` -> the hint of the refusal; None for an honoured one."""

RUN_CONFIG_FIELDS: Mapping[str, str | None] = {
    "model": "name it with -m",
    "model_provider": None,
    "model_settings": None,
    "handoff_input_filter": None,
    "nest_handoff_history": None,
    "handoff_history_mapper": None,
    "input_guardrails": None,
    "output_guardrails": None,
    **dict.fromkeys(("tracing_disabled", "tracing", "trace_include_sensitive_data"), None),
    **dict.fromkeys(("workflow_name", "trace_id", "group_id", "trace_metadata"), None),  # no request has them
    "session_input_callback": None,
    "call_model_input_filter": None,
    "tool_error_formatter": None,
    "session_settings": None,
    "reasoning_item_id_policy": UNSUPPORTED_HINT,
    "sandbox": UNSUPPORTED_HINT,
    "tool_execution": None,
    "tool_not_found_behavior": UNSUPPORTED_HINT,
    "tool_name_collision_policy": None,  # two tools of one name are always refused
    "output_guardrail_blocked_message": UNSUPPORTED_HINT,
}
"""Fields of a RunConfig, as RUN_ARGUMENTS."""


class SdkRun(NamedTuple):
    """The honoured arguments of `Runner.run`; None for one that was not given.

    input:  the items of the first message
    """

    config: Any = None
    hooks: Any = None
    max_turns: int | None = None
    input: Sequence[Item] = ()

    def get(self, field: str) -> Any:
        """Return a field of the RunConfig, or None."""
        return getattr(self.config, field, None)


def read_sdk_run(value: object, source: str) -> SdkRun:
    """Read a RunConfig, or a dict of arguments of `Runner.run`.

    source:  the option that names it

    Raises InputFault for another object, and Unsupported for an argument or a field that convo does not honour.
    """
    sdk = import_module(SDK_PACKAGE)
    arguments = dict(value) if isinstance(value, Mapping) else {"run_config": value}
    for name, argument in arguments.items():
        if argument is not None:
            _refuse("the argument", name, RUN_ARGUMENTS.get(name, UNSUPPORTED_HINT))
    config = arguments.get("run_config")
    config = sdk.RunConfig(**config) if isinstance(config, Mapping) else config or sdk.RunConfig()
    if not isinstance(config, sdk.RunConfig):
        hint = "name a RunConfig, or a dict of arguments of Runner.run"
        raise InputFault(f"{source} names a {type(config).__name__}", hint=hint)
    for field in dataclasses.fields(config):
        if not is_unset(getattr(config, field.name), field):
            _refuse("the RunConfig field", field.name, RUN_CONFIG_FIELDS.get(field.name, UNSUPPORTED_HINT))
    hooks = arguments.get("hooks")
    if hooks is not None and not isinstance(hooks, import_module(f"{SDK_PACKAGE}.lifecycle").RunHooksBase):
        raise InputFault(f"{source}: hooks is a {type(hooks).__name__}", hint="use RunHooks; an agent has AgentHooks")
    execution = config.tool_execution
    if execution and execution.pre_approval_tool_input_guardrails:
        _refuse("the RunConfig field", "tool_execution.pre_approval_tool_input_guardrails", UNSUPPORTED_HINT)
    given = arguments.get("input") or ()
    items: Any = [user_message(given)] if isinstance(given, str) else given
    return SdkRun(config, hooks, cast("int | None", arguments.get("max_turns")), items)


def _refuse(kind: str, name: str, hint: str | None) -> None:
    if hint is not None:
        raise UnsupportedParameter("--run-config", f"{kind} {name}", param=name, hint=hint)


def is_unset(value: object, field: dataclasses.Field[Any]) -> bool:
    """Return whether a field of an SDK object is empty or has its default."""
    if value is None or (isinstance(value, str | list | tuple | dict | set) and not value):
        return True
    return _is_equal(value, field.default if field.default_factory is dataclasses.MISSING else field.default_factory())


def _is_equal(value: object, default: object) -> bool:
    """Compare objects without `__eq__`, such as a model provider, by their attributes."""
    if value is default or type(value) is not type(default):
        return value is default
    if type(value).__eq__ is not object.__eq__ or not hasattr(value, "__dict__"):
        return bool(value == default)
    mine, other = vars(value), vars(default)
    return mine.keys() == other.keys() and all(_is_equal(member, other[name]) for name, member in mine.items())
