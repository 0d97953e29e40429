"""Which tool a call means: a tool's name in its layers.

A tool stands alone ("bare"), in a namespace, or is deferred: loaded by a search, and then called
under a namespace of its own name. Two tools of the same last name are two tools as long as their
layers differ, and the layers are what a paused run keeps. What could mean two tools is refused
before anything runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from convo.errors import InputFault
from convo.items import Item, Json
from convo.tools.tool import Tool

Lookup: TypeAlias = tuple[str, ...]
"""("bare", name), ("namespaced", space, name) or ("deferred_top_level", name)."""

Hosted: TypeAlias = Mapping[str, Json]
"""A tool that the provider runs, as it stands in a request: {"type": "web_search"}."""


def lookup_of(tool: Tool) -> Lookup:
    """A tool's name in layers."""
    if tool.namespace:
        return ("namespaced", tool.namespace.name, tool.name)
    return ("deferred_top_level" if tool.deferred else "bare", tool.name)


def _meant(call: Item) -> Lookup:
    """The layers that a call's fields say."""
    name, space = str(call.get("name")), call.get("namespace")
    if not isinstance(space, str) or not space:
        return ("bare", name)
    return ("deferred_top_level", name) if space == name else ("namespaced", space, name)


@dataclass(frozen=True, slots=True)
class Toolbox:
    """The tools of one agent by their layers."""

    tools: Mapping[Lookup, Tool]

    def find(self, call: Item) -> Tool | None:
        """The tool that a call means; None when this agent has none such."""
        return self.tools.get(_meant(call))


def toolbox(tools: Iterable[Tool]) -> Toolbox:
    """Lay tools out by their layers.

    raises:  InputFault  two tools that a call could not tell apart
    """
    found: dict[Lookup, Tool] = {}
    titles: set[str] = set()
    for tool in tools:
        if tool.namespace and tool.namespace.name == tool.name:
            raise InputFault(
                f"tool {tool.title!r} has its namespace's name", hint="that form stands for deferred tools"
            )
        lookup = lookup_of(tool)
        if lookup in found or (tool.title in titles and lookup[0] != "deferred_top_level"):
            raise InputFault(f"two tools are called {tool.title!r}", hint="rename one, or give it a namespace")
        found[lookup] = tool
        titles.add(tool.title)
    return Toolbox(found)


def definitions(tools: Sequence[Tool | Hosted]) -> list[dict[str, Json]]:
    """The `tools` of a request: functions, groups where their first tool stands, hosted ones as they are.

    raises:  InputFault  a group with two descriptions, or deferred tools and no search that would find them
    """
    made: list[dict[str, Json]] = []
    groups: dict[str, dict[str, Json]] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            made.append(dict(tool))
        elif tool.namespace is None:
            made.append(_function(tool))
        else:
            _join(groups, made, tool)
    deferred = [tool.title for tool in tools if isinstance(tool, Tool) and tool.deferred]
    if deferred and not any(one.get("type") == "tool_search" for one in made):
        raise InputFault(f"tool {deferred[0]!r} is deferred and nothing finds it", hint='add {"type": "tool_search"}')
    return made


def _join(groups: dict[str, dict[str, Json]], made: list[dict[str, Json]], tool: Tool) -> None:
    assert tool.namespace
    name, description = tool.namespace.name, tool.namespace.description
    if name not in groups:
        groups[name] = {"type": "namespace", "name": name, "description": description, "tools": []}
        made.append(groups[name])
    if groups[name]["description"] != description:
        raise InputFault(f"namespace {name!r} has two descriptions", hint="say the same for each of its tools")
    groups[name]["tools"].append(_function(tool))


def _function(tool: Tool) -> dict[str, Json]:
    said: dict[str, Json] = {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": dict(tool.parameters),
        "strict": tool.strict,
    }
    return {**said, "defer_loading": True} if tool.deferred else said
