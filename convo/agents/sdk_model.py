"""The model that an agent of the Agents SDK brings, which the SDK calls: its requests are those of the SDK.

It is a model object, the model of a provider, or a name with one of the SDK's own prefixes.
"""

import dataclasses
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from convo.agents.agent import CustomModel
from convo.agents.handoff_history import to_sdk_form
from convo.agents.sdk_internals import has_default_client
from convo.agents.sdk_run import SDK_PACKAGE, SdkRun, is_unset
from convo.errors import InputFault, Unsupported
from convo.history.items import Item, Json

SDK_PREFIXES = ("litellm/", "any-llm/")
"""Prefixes of model names for which the SDK calls another package."""


def convert_model(agent: Any, run: SdkRun) -> str | CustomModel | None:
    """Return the name of an agent's model for convo's providers, or the model that the SDK calls.

    Raises InputFault if the SDK cannot make it.
    """
    model, sdk = getattr(agent, "model", None), import_module(SDK_PACKAGE)
    name = str(model) if isinstance(model, str) and "/" in model else ""
    if model is None or isinstance(model, str):
        config = run.config or sdk.RunConfig()
        (field,) = (one for one in dataclasses.fields(config) if one.name == "model_provider")
        is_sdk_name = (model or "").startswith(SDK_PREFIXES)
        if not is_sdk_name and not has_default_client() and is_unset(config.model_provider, field):
            return model
        try:
            model = config.model_provider.get_model(model)
        except (ImportError, sdk.UserError) as error:
            raise InputFault(f"the model of agent {agent.name!r}: {error}", hint="install it, or name it -m") from error
    name = name or f"{SDK_PACKAGE}/{getattr(model, 'model', type(model).__name__)}"
    settings = agent.model_settings.resolve(run.get("model_settings"))

    def stream(instructions: str | None, items: Sequence[Item], parameters: Mapping[str, Json]) -> AsyncIterator[Any]:
        hosted = (tool for tool in agent.tools if not isinstance(tool, sdk.FunctionTool))
        tools = [_find_tool(agent, definition, hosted) for definition in parameters.get("tools") or ()]
        output = agent.output_type
        if output is not None and not hasattr(output, "validate_json"):
            output = sdk.AgentOutputSchema(output)
        events: AsyncIterator[Any] = model.stream_response(
            instructions,
            [to_sdk_form(item) for item in items],
            settings if "tool_choice" in parameters else dataclasses.replace(settings, tool_choice=None),
            tools,
            None if output is None or output.is_plain_text() else output,
            [],
            sdk.ModelTracing.DISABLED,
            previous_response_id=None,
            conversation_id=None,
            prompt=None,
        )
        return events

    return CustomModel(name, stream)


async def _refuse_call(*_: object) -> None:
    """Fail: convo runs the tools, the model only describes them."""
    raise NotImplementedError


def _find_tool(agent: Any, definition: Mapping[str, Json], hosted: Iterator[Any]) -> Any:
    """Return the SDK's tool for one in a request; a handoff and a tool of an MCP server become functions."""
    sdk, name = import_module(SDK_PACKAGE), definition.get("name")
    if definition["type"] == "namespace":
        raise Unsupported("the model of an agent", "a namespace of tools", hint="name the model with -m")
    if definition["type"] != "function":
        return next(hosted)
    own = (tool for tool in agent.tools if isinstance(tool, sdk.FunctionTool) and tool.name == name)
    return next(own, None) or sdk.FunctionTool(
        name=name,
        description=definition["description"],
        params_json_schema=definition["parameters"],
        on_invoke_tool=_refuse_call,
        strict_json_schema=definition["strict"],
    )
