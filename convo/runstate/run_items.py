"""Items of a conversation as the run items of a state, and calls as what waits and what would run.

A run item is an item with whose it is and what it was good for: a call is a tool's or a handoff's,
an output answers one of them. What the format has no kind for goes as input, which every reader
sends again as it is; a kind that a reader does not know would be passed over in silence.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from convo.agents import Graph
from convo.handoffs import IGNORED, offers
from convo.items import Item, Json, call_id, is_output, kind
from convo.run import Call
from convo.runstate.identity import HANDOFF, call_of, layers
from convo.runstate.identity import Call as Bound
from convo.tools import Lookup, Tool, lookup_of, toolbox

APPROVAL = "tool_approval_item"

KINDS = {
    "message": "message_output_item",
    "reasoning": "reasoning_item",
    "compaction": "compaction_item",
    "mcp_list_tools": "mcp_list_tools_item",
    "mcp_approval_request": "mcp_approval_request_item",
    "mcp_approval_response": "mcp_approval_response_item",
    "tool_search_call": "tool_search_call_item",
    "tool_search_output": "tool_search_output_item",
}
CALLS = {
    *("function_call", "custom_tool_call", "computer_call", "local_shell_call", "shell_call", "apply_patch_call"),
    *("web_search_call", "file_search_call", "code_interpreter_call", "image_generation_call", "mcp_call"),
}
INPUT = "input_item"

OWN = "convo:"
"""Begins the identities of agents that share a name in a state for convo alone; every other reader refuses them."""


@dataclass(frozen=True)
class Speaker:
    """An agent of a graph, as the run items of its turns speak of it."""

    graph: Graph
    identity: str

    @property
    def reference(self) -> dict[str, Json]:
        """The agent as a state names it; one that shares its name has an identity that only convo reads."""
        name = self.graph[self.identity].name
        shared = name in self.graph.duplicates
        return {"name": name, "identity": OWN + self.identity} if shared else {"name": name}

    @property
    def ways(self) -> dict[str, str]:
        """The names of its handoffs, and to whom they lead."""
        return {offer.name: offer.to for offer in offers(self.graph, self.identity)}

    def tool(self, call: Item) -> Tool | None:
        return toolbox(self.graph[self.identity].functions).find(call)


def answered(speaker: Speaker, output: Iterable[Item]) -> Iterator[dict[str, Json]]:
    """The items of a model's answer."""
    ways = speaker.ways
    for item in output:
        if kind(item) == "function_call" and item.get("name") in ways and not item.get("namespace"):
            yield _item("handoff_call_item", speaker, item)
        elif kind(item) in CALLS:
            yield {**_item("tool_call_item", speaker, item), **_called(speaker, item)}
        else:
            yield _item(KINDS.get(kind(item), INPUT), speaker, item)


def followed(speaker: Speaker, output: Iterable[Item], after: Iterable[Item]) -> Iterator[dict[str, Json]]:
    """What was added to the conversation after an answer: outputs of its calls, a person's words."""
    ways = speaker.ways
    names = {call_id(item): str(item.get("name")) for item in output if kind(item) == "function_call"}
    for item in after:
        to = ways.get(names.get(call_id(item), ""))
        if is_output(item) and to is not None and item.get("output") != IGNORED:
            both = {"source_agent": speaker.reference, "target_agent": Speaker(speaker.graph, to).reference}
            yield {**_item("handoff_output_item", speaker, item), **both}
        elif is_output(item):
            yield {**_item("tool_call_output_item", speaker, item), "output": item.get("output")}
        elif kind(item) == "mcp_approval_response":
            yield _item(KINDS[kind(item)], speaker, item)
        else:
            yield _item(INPUT, speaker, item)


def waiting(speaker: Speaker, call: Call) -> dict[str, Json]:
    """The approval item of a call."""
    item = _item(APPROVAL, speaker, call.item)
    if call.tool is None:
        return {**item, "tool_name": call.lookup[-1]}
    space = {"tool_namespace": call.tool.namespace.name} if call.tool.namespace else {}
    origin = {"tool_origin": {"type": "function"}}
    return {**item, "tool_name": call.tool.name, **space, "tool_lookup_key": lookup_key(call.lookup), **origin}


def action(call: Call) -> dict[str, Json]:
    """A function's call as it would run."""
    tool = call.tool
    assert tool
    space = {"namespace": tool.namespace.name, "qualifiedName": tool.title} if tool.namespace else {}
    said = {"description": tool.description, "paramsJsonSchema": dict(tool.parameters)}
    named = {"name": tool.name, **space, "lookupKey": lookup_key(call.lookup), **said}
    return {"tool_call": dict(call.item), "tool": named}


def request(call: Call) -> dict[str, Json]:
    """A hosted tool's request, and the tool without the secrets that its definition may hold."""
    tool = {"name": "hosted_mcp", "tool_config": {"type": "mcp", "server_label": call.lookup[1]}}
    return {"request_item": {"raw_item": dict(call.item)}, "mcp_tool": tool}


def lookup_key(lookup: Lookup) -> dict[str, Json]:
    """A tool's name in layers, as the format spells it."""
    kinds, *space, name = lookup
    return {"kind": kinds, **({"namespace": space[0]} if space else {}), "name": name}


def bindings(items: Iterable[Mapping[str, Json]], done: Iterable[str]) -> dict[str, Json]:
    """The ledger over run items: what each call would do, by its id; one that is `done` cannot be done again.

    raises:  ValueError  arguments that no digest can be made of
    """
    over = frozenset(done)
    ledger: dict[str, Json] = {}
    for item in items:
        call = call_of(item["raw_item"], item)
        if call is None or call.id is None:
            continue
        role = HANDOFF if item["type"] == "handoff_call_item" else None
        binding = call.binding(role)
        if binding is not None:
            marks = {"executed": call.id in over, "completed": call.id in over}
            ledger[call.id] = {
                "type": call.type,
                "approval_scope": binding.scope,
                "fingerprint": binding.fingerprint,
                **marks,
            }
    return ledger


def bound(lookup: Lookup, agent: Mapping[str, Json] | None) -> Bound:
    """A call that stands for every call of a tool, for decisions that hold for good."""
    if lookup[0] == "mcp":
        _, server, name = lookup
        raw = {"type": "mcp_approval_request", "id": "any", "server_label": server, "name": name}
        return Bound(raw, name, agent=agent)
    return Bound({"type": "function_call", "name": lookup[-1]}, lookup[-1], lookup, agent=agent)


def _item(named: str, speaker: Speaker, raw: Item) -> dict[str, Json]:
    return {"type": named, "raw_item": dict(raw), "agent": speaker.reference}


def _called(speaker: Speaker, item: Item) -> dict[str, Json]:
    """What is known of a call's tool; of a tool that is gone its name."""
    if kind(item) != "function_call":
        return {}
    tool = speaker.tool(item)
    if tool is None:
        return {"tool_name": str(item.get("name"))}
    key = lookup_of(tool)
    plain = key == layers(str(item.get("name")), item.get("namespace"))
    told = {"tool_name": tool.name, "description": tool.description, "tool_origin": {"type": "function"}}
    return told if plain else {**told, "tool_lookup_key": lookup_key(key)}
