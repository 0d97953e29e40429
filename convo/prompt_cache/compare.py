"""The first difference of two requests, for which the later one missed the prompt cache.

Both are read from the tree of their conversation. Requests of one branch share the nodes of its history, so that
comparing each request with the one before it takes time in proportion to the new items alone.
"""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple, TypeAlias

from convo.history.canonical import STRICT_JSON_DECODER, Digest, digest
from convo.history.items import Item, Json, is_compaction, item_type, to_resendable
from convo.history.records import DEFAULT_SERVICE_TIER, Link
from convo.history.tree import Key
from convo.inspect.diff import JsonDifference, diff_json
from convo.inspect.view import PathIndex
from convo.strategies.instructions import choose_field
from convo.strategies.strategy import STRATEGIES
from convo.usage.cache_rules import find_cache_rules, read_setting
from convo.usage.model_info import appends_instructions

Change: TypeAlias = Literal[
    "model_changed", "tools_changed", "tools_reordered", "instructions_changed", "text_format_changed",
    "reasoning_effort_changed", "verbosity_changed", "setting_changed", "prompt_cache_key_changed",
    "service_tier_changed", "item_edited", "item_added", "item_removed", "items_reordered", "item_bytes_changed",
    "context_compacted",
]  # fmt: skip
"""Kinds of changes, named as in OpenAI's cache diagnostics if it has a name.

item_added:          between earlier items; new items at the end are no change
item_bytes_changed:  the same item in other bytes, such as other spaces in the arguments of a call
"""

SETTING_CHANGES: Mapping[str, Change] = {
    "model": "model_changed",
    "tools": "tools_changed",
    "instructions": "instructions_changed",
    "text.format": "text_format_changed",
    "reasoning.effort": "reasoning_effort_changed",
    "output_config.effort": "reasoning_effort_changed",
    "text.verbosity": "verbosity_changed",
    "prompt_cache_key": "prompt_cache_key_changed",
    "service_tier": "service_tier_changed",
}
"""The change of each setting; of the others it is `setting_changed`."""


class PromptChange(NamedTuple):
    """The first difference of two requests.

    name:         the setting, or the type of the item
    item_index:   of the item in what the model receives, prepended items included; null for a setting
    difference:   JSON path, byte and excerpts within the setting or item; null if one side lacks it
    kept_tokens:  estimate for the items before the difference; 0 for a setting, which stands before all items
    """

    change: Change
    name: str
    item_index: int | None
    difference: JsonDifference | None
    kept_tokens: int


def find_first_change(earlier: Link, later: Link, path_index: PathIndex) -> PromptChange | None:
    """Return the first difference of a request from an earlier one; None if it only continues it.

    Also None if an item of either was deleted, so that they cannot be compared.
    """
    setting = find_setting_change(earlier.model, earlier.parameters, later.model, later.parameters)
    if setting is not None and setting.change != "prompt_cache_key_changed":
        return setting
    item = None
    if later.input_head in path_index and earlier.input_head in path_index:
        item = find_item_change(earlier.input_head, later.input_head, path_index, ignores_compacted=True)
        item = item or _find_new_compaction(earlier.input_head, later.input_head, path_index)
    return item or setting or _find_tier_change(earlier, later)


def find_setting_change(
    earlier_model: str, earlier: Mapping[str, Json], later_model: str, later: Mapping[str, Json]
) -> PromptChange | None:
    """Return the first setting before the items that differs. Models are named provider/model."""
    if earlier_model != later_model:
        return PromptChange("model_changed", "model", None, diff_json(earlier_model, later_model), 0)
    rules = find_cache_rules(later_model, later)
    for name in (*rules.settings, *(() if rules.vendor == "anthropic" else ("prompt_cache_key",))):
        before, after = read_setting(earlier, name), read_setting(later, name)
        if before == after:
            continue
        change = SETTING_CHANGES.get(name, "setting_changed")
        if name == "tools" and _is_reordered(before, after):
            change = "tools_reordered"
        return PromptChange(change, name, None, diff_json(before, after), 0)
    return None


def _find_tier_change(earlier: Link, later: Link) -> PromptChange | None:
    """Return a change of the service tier that OpenAI reported: a cache may belong to one tier."""
    before, after = (link.service_tier or DEFAULT_SERVICE_TIER for link in (earlier, later))
    if before == after or find_cache_rules(later.model, later.parameters).vendor != "openai":
        return None
    return PromptChange("service_tier_changed", "service_tier", None, diff_json(before, after), 0)


def find_separate_instructions(link: Link, path_index: PathIndex) -> str | None:
    """Return the instructions that a request had in addition to its items; None if a message of its path has them."""
    messages = path_index.developer_messages(link.input_head)
    is_client_side = not STRATEGIES[link.strategy].is_server_side
    # Another model may get the field instead of the only message with this text: `omit_repeated_message`.
    is_sent_once = appends_instructions(link.model) or (is_client_side and len(messages) == 1)
    return choose_field(link.parameters.get("instructions"), messages, is_appended=is_sent_once)


def _is_reordered(before: Json, after: Json) -> bool:
    if not (isinstance(before, list) and isinstance(after, list)):
        return False
    first, second = (sorted(json.dumps(tool, sort_keys=True) for tool in tools) for tools in (before, after))
    return first == second


def find_item_change(
    earlier_head: Key, later_head: Key, path_index: PathIndex, *, ignores_compacted: bool = False
) -> PromptChange | None:
    """Return the first earlier item that is not in the same place of the later input; None if all are.

    ignores_compacted:  not those before the same compaction by the vendor: the model does not receive them, and a
                        client may leave them out
    """
    shared = find_shared_depth(earlier_head, later_head, path_index)
    before, after = (_items_after(head, shared, path_index) for head in (earlier_head, later_head))
    before_start, after_start = map(_find_last_compaction, (before, after) if ignores_compacted else ((), ()))
    if before_start is None or after_start is None or digest(before[before_start]) != digest(after[after_start]):
        before_start = after_start = 0
    before, after = before[before_start:], after[after_start:]
    for index, item in enumerate(before):
        other = after[index] if index < len(after) else None
        sent, other_sent = to_resendable(item), None if other is None else to_resendable(other)
        if other is not None and sent == other_sent:
            continue
        keys = path_index.last_keys(earlier_head, len(before) - index + 1)
        kept = path_index.tokens_up_to(keys[0] if len(keys) > len(before) - index else path_index.root)
        change = _classify(before[index:], after[index:])
        difference = None if other is None else diff_json(sent, other_sent)
        position = shared + index + (before_start if other is None else after_start)
        return PromptChange(change, item_type(other or item), position, difference, kept)
    return None


def _find_last_compaction(items: Sequence[Item]) -> int | None:
    return max((index for index, item in enumerate(items) if item_type(item) == "compaction"), default=None)


def _find_new_compaction(earlier_head: Key, later_head: Key, path_index: PathIndex) -> PromptChange | None:
    """Return the compaction by the vendor in the new items of a request: it replaces all items before it."""
    shared = find_shared_depth(earlier_head, later_head, path_index)
    index = _find_last_compaction(_items_after(later_head, shared, path_index))
    if index is None or shared < path_index.depth(earlier_head):
        return None
    return PromptChange("context_compacted", "compaction", shared + index, None, 0)


LOOKBACK_BLOCKS = 20
"""Blocks before a breakpoint in which Anthropic searches for a cached prefix."""


def count_new_blocks(earlier_head: Key, later_head: Key, path_index: PathIndex) -> int:
    """Count the content blocks of the Messages API after an earlier input, which the later one continues."""
    keys = path_index.keys_after(later_head, path_index.depth(earlier_head))
    contents = [(path_index.item(key) or {}).get("content") for key in keys]
    return sum(len(content) if isinstance(content, list) else 1 for content in contents)


def find_shared_depth(first: Key, second: Key, path_index: PathIndex) -> int:
    """Return the number of nodes that two paths share at their start."""
    while first != second:
        if path_index.depth(first) >= path_index.depth(second):
            first = path_index.key_before_last(first, 1)
        else:
            second = path_index.key_before_last(second, 1)
    return path_index.depth(first)


def _items_after(head: Key, depth: int, path_index: PathIndex) -> list[Item]:
    return [path_index.item(key) or {} for key in path_index.keys_after(head, depth)]


def _classify(before: Sequence[Item], after: Sequence[Item]) -> Change:
    """Return what happened to the first item of `before`."""
    known = set(map(_digest_meaning, before))
    if any(_digest_meaning(item) not in known for item in after if is_compaction(item)):
        return "context_compacted"
    if not after:
        return "item_removed"
    item, other, kept = _digest_meaning(before[0]), _digest_meaning(after[0]), set(map(_digest_meaning, after))
    if item == other:
        return "item_bytes_changed"
    is_kept, is_known = item in kept, other in known
    if is_kept and is_known:
        return "items_reordered"
    if is_kept:
        return "item_added"
    return "item_removed" if is_known else "item_edited"


def _digest_meaning(item: Item) -> Digest:
    """Return the digest of an item, with the arguments of a call as the value of their JSON."""
    with suppress(TypeError, ValueError, RecursionError):
        return digest({**item, "arguments": STRICT_JSON_DECODER.decode(item.get("arguments") or "")})
    return digest(item)
