"""Agents written in TOML: a table for each, by name.

    start = "triage"

    [agents.triage]
    instructions = "Send them to the right desk."
    handoffs = ["billing", {to = "returns", tool_name = "to_returns"}]

    [agents.billing]
    model = "openai/gpt-5-mini"
    settings = {temperature = 0.2}
    tools = ["desk.py:refund", {type = "web_search"}]
    output = "desk.py:Receipt"
    input_guardrails = ["desk.py:no_insults"]

A reference to Python, `file.py:name`, is looked up by whoever reads the file; what it names is
looked at here. A word that stands for nothing is refused: a misspelt `handofs` would otherwise
be an agent that cannot hand over.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias, cast, get_args

from convo.agents.agent import AFTER, AfterTools, Agent, Guardrail, Handoff
from convo.agents.graph import Graph, graph
from convo.agents.output import Output, output
from convo.config.checks import KINDS
from convo.errors import BadSettings, InputFault
from convo.items import Json
from convo.tools import Hosted, Tool

Load: TypeAlias = Callable[[str], object]
"""Finds what a reference names: `file.py:name`."""

Kinds: TypeAlias = type | tuple[type, ...]

AGENT: dict[str, Kinds] = {
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
HANDOFF: dict[str, Kinds] = {"to": str, "tool_name": str, "description": str, "nest": bool, "filter": str}


def from_tables(tables: Mapping[str, Json], load: Load) -> Graph:
    """The graph that parsed TOML describes.

    raises:  BadSettings  a key or value that means nothing here, with its place
             NotFound     a handoff to an agent that is not there
    """
    _known("", tables, {"start": str, "agents": dict})
    written = tables.get("agents") or {}
    agents = {name: _agent(name, table, load) for name, table in written.items()}
    if not agents:
        raise BadSettings("the file has no [agents.NAME] table", hint="write one for each agent")
    start = tables.get("start") or next(iter(agents))
    if start not in agents:
        raise BadSettings(f"start is {start!r}, and no agent is called so", hint=f"there are {', '.join(agents)}")
    return graph(agents[start], *agents.values())


def _agent(name: str, table: Json, load: Load) -> Agent:
    where = f"agents.{name}"
    _known(where, table, AGENT)
    fields = {
        "instructions": table.get("instructions"),
        "description": table.get("description", ""),
        "model": table.get("model"),
        "settings": table.get("settings", {}),
        "tools": tuple(_tool(f"{where}.tools", one, load) for one in table.get("tools", ())),
        "handoffs": tuple(_handoff(f"{where}.handoffs", one, load) for one in table.get("handoffs", ())),
        "output": _output(table.get("output"), load),
        "input_guardrails": _guardrails(f"{where}.input_guardrails", table.get("input_guardrails", ()), load),
        "output_guardrails": _guardrails(f"{where}.output_guardrails", table.get("output_guardrails", ()), load),
        "after_tools": _after(f"{where}.after_tools", table.get("after_tools", "ask again")),
        "reset_tool_choice": table.get("reset_tool_choice", True),
    }
    try:
        return Agent(name, **fields)
    except InputFault as wrong:
        raise BadSettings(wrong.message, hint=wrong.hint) from wrong


def _after(where: str, said: Json) -> AfterTools:
    names = [said] if isinstance(said, str) else said
    wrong = [one for one in names if not isinstance(one, str)]
    if wrong or (isinstance(said, str) and said not in get_args(AFTER)):
        raise BadSettings(f"{where} is {said!r}", hint='"ask again", "first output", or a list of tools\' names')
    return cast("AfterTools", said) if isinstance(said, str) else frozenset(names)


def _tool(where: str, said: Json, load: Load) -> Tool | Hosted:
    if isinstance(said, dict):
        return _hosted(where, said)
    found = _loaded(where, said, load)
    if not isinstance(found, Tool):
        raise BadSettings(f"{where}: {said!r} is no tool", hint="put @tool above the function")
    return found


def _hosted(where: str, said: Hosted) -> Hosted:
    if said.get("type") == "function":
        raise BadSettings(
            f"{where}: a table is a tool that the provider runs, and no function",
            hint='"FILE.py:NAME" names a function',
        )
    if "type" not in said:
        raise BadSettings(f"{where}: a table does not say its type", hint='{type = "web_search"}')
    return said


def _handoff(where: str, said: Json, load: Load) -> Handoff:
    if isinstance(said, str):
        return Handoff(said)
    if not isinstance(said, dict):
        raise BadSettings(f"{where}: {said!r} is no agent's name", hint='"NAME", or {to = "NAME"}')
    _known(where, said, HANDOFF)
    if "to" not in said:
        raise BadSettings(f"{where}: an entry does not say to whom", hint='{to = "NAME"}')
    fields = {key: value for key, value in said.items() if key != "filter"}
    if "filter" in said:
        fields["filter"] = _called(where, said["filter"], load)
    try:
        return Handoff(**fields)
    except InputFault as wrong:
        raise BadSettings(f"{where}: {wrong.message}", hint=wrong.hint) from wrong


def _output(said: Json, load: Load) -> Output | None:
    found = load(said) if isinstance(said, str) else said
    return found if isinstance(found, Output) else output(found)


def _guardrails(where: str, said: Sequence[Json], load: Load) -> tuple[Guardrail, ...]:
    return tuple(_guardrail(where, one, load) for one in said)


def _guardrail(where: str, said: Json, load: Load) -> Guardrail:
    found = _called(where, said, load, or_a=Guardrail)
    return found if isinstance(found, Guardrail) else Guardrail(str(said).rpartition(":")[2], found)


def _called(where: str, said: Json, load: Load, *, or_a: type | None = None) -> Json:
    found = _loaded(where, said, load)
    if not callable(found) and not (or_a and isinstance(found, or_a)):
        raise BadSettings(f"{where}: {said!r} is no function", hint="name a function, as file.py:name")
    return found


def _loaded(where: str, said: Json, load: Load) -> object:
    if not isinstance(said, str):
        raise BadSettings(f"{where}: {said!r} names nothing", hint="write a reference to Python, as file.py:name")
    return load(said)


def _known(where: str, table: Json, keys: Mapping[str, Kinds]) -> None:
    """Refuse what means nothing here; `where` is empty for the file itself."""
    if not isinstance(table, dict):
        raise BadSettings(f"{where} is no table", hint=f"it takes {', '.join(keys)}")
    for key, value in table.items():
        if key not in keys:
            raise BadSettings(f"{where or 'the file'} has no key {key!r}", hint=f"it takes {', '.join(keys)}")
        if not isinstance(value, keys[key]):
            place = f"{where}.{key}" if where else key
            raise BadSettings(f"{place} is {value!r}", hint=f"write {_kinds(keys[key])} there")


def _kinds(kinds: Kinds) -> str:
    return " or ".join(KINDS[kind] for kind in (kinds if isinstance(kinds, tuple) else (kinds,)))
