"""Requests that keep the prefix of the one before: items at the end of the history change what a field would change.

A developer message changes the instructions, `additional_tools` adds tools, and one `configuration_update` changes the
reasoning effort and the text format until another one. The fields of the request stay those of the request before. A
tool that was removed stays in it, and `tool_choice` allows the others.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from convo.config.request_settings import get_request_field, override_fields
from convo.history.items import CONFIGURATION_TYPES, Item, Json, developer_message, item_type
from convo.history.records import CLIENT_TOOL_TYPES, strip_tool_secrets
from convo.history.tree import derive, where
from convo.strategies.instructions import ENDED_INSTRUCTIONS, find_last_instructions

UPDATED_FIELDS = ("reasoning.effort", "text.format")
"""The fields of a request that a `configuration_update` changes."""

UPDATED_FORMATS = ("text", "json_schema")
"""The text formats that a `configuration_update` can have."""


class KeptPrefix(NamedTuple):
    """The fields of a request that keeps the prefix, and the items that are appended to the history before it."""

    items: tuple[Item, ...]
    instructions: str | None
    parameters: Mapping[str, Json]


def find_configuration_items(items: Sequence[Item]) -> list[Item]:
    """Return the items that change the fields of later requests."""
    return [items[index] for index in derive(items, _CONFIGURATION_ITEMS)]


def apply_configuration_items(parameters: Mapping[str, Json], items: Sequence[Item]) -> dict[str, Json]:
    """Return the parameters that apply after `items`: those of the request, changed by them."""
    applied = dict(parameters)
    for item in items:
        if item_type(item) == "additional_tools":
            applied["tools"] = [*(applied.get("tools") or ()), *(item.get("tools") or ())]
        elif item_type(item) == "configuration_update":
            applied = override_fields(applied, {name: item[name] for name in ("reasoning", "text") if item.get(name)})
    return applied


def merge_updates(items: Sequence[Item]) -> list[Item]:
    """Return the update that is in force after `items`, for a history that takes their place; empty without one."""
    updates = [item for item in find_configuration_items(items) if item_type(item) == "configuration_update"]
    applied = apply_configuration_items({}, updates)
    return [{"type": "configuration_update", **applied}] if applied else []


def keep_prefix(
    history: Sequence[Item],
    instructions: str | None,
    parameters: Mapping[str, Json],
    before: Mapping[str, Json] | None,
    *,
    appendable: Collection[str],
    setting_fields: Collection[str],
    previous_instructions: str | None,
) -> KeptPrefix:
    """Return the request with these instructions and parameters that keeps the prefix of the one before.

    before:                 the parameters of the request before, as stored; None: no prefix can be kept
    appendable:             the fields that an item can change; a field that an item has changed is one of them
    setting_fields:         those that the settings set: an update applies until a command, not a setting, names another
    previous_instructions:  those of the turn before
    A change that no item can make is left in the fields.
    """
    changes = find_configuration_items(history)
    kept: dict[str, Json] = dict(parameters)
    items: list[Item] = []
    held_tools = before.get("tools") or [] if before is not None and "tools" in appendable else None
    appended_tools = apply_configuration_items({}, changes).get("tools") or []
    if held_tools is not None or appended_tools:
        kept, added = _keep_tools(kept, held_tools, appended_tools, can_remove="tools" in appendable)
        items += [{"type": "additional_tools", "role": "developer", "tools": added}] if added else []
    for field in UPDATED_FIELDS if before is not None else ():
        if field in appendable and _can_update(field, parameters):
            kept = _with_field(kept, field, get_request_field(before, field))
    update: dict[str, Json] = {}
    in_force = apply_configuration_items(kept, changes)
    for field in UPDATED_FIELDS:
        wanted, current = get_request_field(parameters, field), get_request_field(in_force, field)
        is_updated = any(get_request_field(change, field) is not None for change in changes)
        if wanted not in (None, current) and not (is_updated and field in setting_fields):
            update = _with_field(update, field, wanted)
    items += [{"type": "configuration_update", **update}] if update else []
    if before is not None and "instructions" in appendable:
        held, current_text = before.get("instructions"), find_last_instructions(history)
        current_text = held if current_text is None else current_text
        text = instructions or (ENDED_INSTRUCTIONS if current_text else None)
        # Other developer messages of the history are no change of the instructions.
        if text not in (None, current_text) and not instructions == held == previous_instructions:
            items.append(developer_message(str(text)))
        instructions = held
    return KeptPrefix(tuple(items), instructions, kept)


def _keep_tools(
    parameters: Mapping[str, Json], held: Sequence[Json] | None, appended: Sequence[Json], *, can_remove: bool
) -> tuple[dict[str, Json], list[Json]]:
    """Return `parameters` with the tools of the request before, and the tools that are added by an item.

    held:        the tools of the request before, without their credentials; None: its prefix is not kept
    appended:    those that items have added; they are not offered twice
    can_remove:  do not let the model call the tools that `parameters` lacks
    All stays as it is if a definition changed, or if credentials would be missing or stored.
    """
    wanted = parameters.get("tools") or []
    stored = strip_tool_secrets({"tools": list(wanted)})["tools"]
    held = [tool for tool in stored if tool not in appended] if held is None else held
    offered = [*held, *appended]
    added = [tool for tool, form in zip(wanted, stored, strict=True) if form not in offered]
    removed = [tool for tool in offered if tool not in stored] if can_remove else []
    has_changed = any(_name_tool(tool) == _name_tool(other) for tool in added for other in removed)
    has_secrets = any(tool not in stored for tool in added) or any(
        tool.get("type") not in CLIENT_TOOL_TYPES for tool in removed
    )
    if has_changed or has_secrets:
        return dict(parameters), []
    kept = {name: value for name, value in parameters.items() if name != "tools"}
    if held:
        kept["tools"] = [wanted[stored.index(tool)] if tool in stored else tool for tool in held]
    choice = kept.get("tool_choice") or "auto"
    if removed and choice in ("auto", "required"):
        names = [_name_tool(tool) for tool in wanted]
        kept["tool_choice"] = {"type": "allowed_tools", "mode": choice, "tools": names} if names else "none"
    return kept, added


def _name_tool(tool: Json) -> dict[str, Json]:
    """Return the entry of a tool in `allowed_tools`."""
    return {name: tool[name] for name in ("type", "name", "server_label") if name in tool}


def _can_update(field: str, parameters: Mapping[str, Json]) -> bool:
    kind = get_request_field(parameters, f"{field}.type")
    return kind is None or kind in UPDATED_FORMATS


def _with_field(parameters: Mapping[str, Json], field: str, value: object) -> dict[str, Json]:
    """Return `parameters` with another value of a field such as "text.format"; None removes it."""
    name, member = field.split(".")
    members: Json = parameters.get(name) or {}
    changed = {other: current for other, current in {**members, member: value}.items() if current is not None}
    others = {other: current for other, current in parameters.items() if other != name}
    return {**others, name: changed} if changed else others


_CONFIGURATION_ITEMS = where(lambda item: item_type(item) in CONFIGURATION_TYPES)
