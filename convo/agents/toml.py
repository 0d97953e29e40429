"""Parse agents written in TOML, one table `[agents.NAME]` each, with references `file.py:name`.

Unknown keys and values of a wrong type raise InvalidSettings with their place. The caller loads the references.

    start = "triage"

    [agents.triage]
    handoffs = ["billing", {to = "returns", tool_name = "to_returns"}]
    tools = ["desk.py:refund", {type = "web_search"}]
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast, get_args

from convo.agents.agent import AfterTools, AfterToolsMode, Agent, Guardrail, Handoff, Output, output
from convo.agents.graph import Graph, graph
from convo.config.values import _TOML_TYPES
from convo.errors import InputFault, InvalidSettings
from convo.history.items import Json
from convo.tools.tool import Hosted, Tool

ReferenceLoader: TypeAlias = Callable[[str], object]
"""Load the object that a reference `file.py:name` names."""

ValueTypes: TypeAlias = type | tuple[type, ...]

AGENT_TABLE_KEYS: dict[str, ValueTypes] = {
    "instructions": str,
    "description": str,
    "model": str,
    "settings": dict,
    "tools": list,
    "handoffs": list,
    "output": (dict, str),
    "input_guardrails": list,
    "output_guardrails": list,
    "after_tools": (str, list),
    "reset_tool_choice": bool,
}
HANDOFF_TABLE_KEYS: dict[str, ValueTypes] = {
    "to": str,
    "tool_name": str,
    "description": str,
    "nest": bool,
    "filter": str,
}


def from_tables(tables: Mapping[str, Json], load: ReferenceLoader) -> Graph:
    """Build the graph that parsed TOML describes.

    Raises InvalidSettings with the place of an unknown key or invalid value, and NotFound for a handoff to an unknown
    agent.
    """
    _check_keys("", tables, {"start": str, "agents": dict})
    agent_tables = tables.get("agents") or {}
    agents = {name: _parse_agent(name, table, load) for name, table in agent_tables.items()}
    if not agents:
        raise InvalidSettings("the file has no [agents.NAME] table", hint="add one for each agent")
    start = tables.get("start") or next(iter(agents))
    if start not in agents:
        raise InvalidSettings(f"start is {start!r}, which is not an agent", hint=f"choose one of {', '.join(agents)}")
    return graph(agents[start], *agents.values())


def _parse_agent(name: str, table: Json, load: ReferenceLoader) -> Agent:
    where = f"agents.{name}"
    _check_keys(where, table, AGENT_TABLE_KEYS)
    fields = {
        "instructions": table.get("instructions"),
        "description": table.get("description", ""),
        "model": table.get("model"),
        "settings": table.get("settings", {}),
        "tools": tuple(_parse_tool(f"{where}.tools", entry, load) for entry in table.get("tools", ())),
        "handoffs": tuple(_parse_handoff(f"{where}.handoffs", entry, load) for entry in table.get("handoffs", ())),
        "output": _parse_output(table.get("output"), load),
        "input_guardrails": _parse_guardrails(f"{where}.input_guardrails", table.get("input_guardrails", ()), load),
        "output_guardrails": _parse_guardrails(f"{where}.output_guardrails", table.get("output_guardrails", ()), load),
        "after_tools": _parse_after_tools(f"{where}.after_tools", table.get("after_tools", "ask again")),
        "reset_tool_choice": table.get("reset_tool_choice", True),
    }
    try:
        return Agent(name, **fields)
    except InputFault as error:
        raise InvalidSettings(error.message, hint=error.hint) from error


def _parse_after_tools(location: str, value: Json) -> AfterTools:
    names = [value] if isinstance(value, str) else value
    invalid = [name for name in names if not isinstance(name, str)]
    if invalid or (isinstance(value, str) and value not in get_args(AfterToolsMode)):
        raise InvalidSettings(
            f"{location} is {value!r}", hint='use "ask again", "first output", or a list of tool names'
        )
    return cast("AfterTools", value) if isinstance(value, str) else frozenset(names)


def _parse_tool(location: str, value: Json, load: ReferenceLoader) -> Tool | Hosted:
    if isinstance(value, dict):
        return _parse_hosted_tool(location, value)
    tool = _load_reference(location, value, load)
    if not isinstance(tool, Tool):
        raise InvalidSettings(f"{location}: {value!r} is not a tool", hint="decorate the function with @tool")
    return tool


def _parse_hosted_tool(location: str, table: Hosted) -> Hosted:
    if table.get("type") == "function":
        raise InvalidSettings(
            f"{location}: a table defines a hosted tool, not a function",
            hint='name a function as "FILE.py:NAME"',
        )
    if "type" not in table:
        raise InvalidSettings(f"{location}: a table has no type", hint='set one: {type = "web_search"}')
    return table


def _parse_handoff(location: str, entry: Json, load: ReferenceLoader) -> Handoff:
    if isinstance(entry, str):
        return Handoff(entry)
    if not isinstance(entry, dict):
        raise InvalidSettings(f"{location}: {entry!r} is not the name of an agent", hint='use "NAME", or {to = "NAME"}')
    _check_keys(location, entry, HANDOFF_TABLE_KEYS)
    if "to" not in entry:
        raise InvalidSettings(f"{location}: an entry has no target agent", hint='set one: {to = "NAME"}')
    fields = {key: value for key, value in entry.items() if key != "filter"}
    if "filter" in entry:
        fields["filter"] = _load_function(location, entry["filter"], load)
    try:
        return Handoff(**fields)
    except InputFault as error:
        raise InvalidSettings(f"{location}: {error.message}", hint=error.hint) from error


def _parse_output(value: Json, load: ReferenceLoader) -> Output | None:
    loaded = load(value) if isinstance(value, str) else value
    return loaded if isinstance(loaded, Output) else output(loaded)


def _parse_guardrails(location: str, values: Sequence[Json], load: ReferenceLoader) -> tuple[Guardrail, ...]:
    return tuple(_parse_guardrail(location, value, load) for value in values)


def _parse_guardrail(location: str, value: Json, load: ReferenceLoader) -> Guardrail:
    loaded = _load_function(location, value, load, accepted_type=Guardrail)
    return loaded if isinstance(loaded, Guardrail) else Guardrail(str(value).rpartition(":")[2], loaded)


def _load_function(location: str, value: Json, load: ReferenceLoader, *, accepted_type: type | None = None) -> Json:
    loaded = _load_reference(location, value, load)
    if not callable(loaded) and not (accepted_type and isinstance(loaded, accepted_type)):
        raise InvalidSettings(f"{location}: {value!r} is not a function", hint="name a function as file.py:name")
    return loaded


def _load_reference(location: str, value: Json, load: ReferenceLoader) -> object:
    if not isinstance(value, str):
        raise InvalidSettings(f"{location}: {value!r} is not a Python reference", hint="write it as file.py:name")
    return load(value)


def _check_keys(location: str, table: Json, keys: Mapping[str, ValueTypes]) -> None:
    """Raise InvalidSettings for an unknown key or a wrong type; `location` is empty for the file itself."""
    if not isinstance(table, dict):
        raise InvalidSettings(f"{location} is not a table", hint=f"use a table with {', '.join(keys)}")
    for key, value in table.items():
        if key not in keys:
            raise InvalidSettings(f"{location or 'the file'} has an unknown key {key!r}", hint=f"use {', '.join(keys)}")
        if not isinstance(value, keys[key]):
            path = f"{location}.{key}" if location else key
            raise InvalidSettings(f"{path} is {value!r}", hint=f"use {_format_types(keys[key])}")


def _format_types(kinds: ValueTypes) -> str:
    return " or ".join(_TOML_TYPES[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
