"""The forecast of a request that changes the prefix of the one before: lost cached tokens, and lost reasoning.

A reasoning item is bound to the prefix that it was made with, which is the input of its link. It stays usable while a
request has the same items before it and the same bound settings; reasoning before an edit is not lost. A request that
only appends to the one before loses nothing, and has no forecast.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, NamedTuple

from convo.config.sections import Price
from convo.history.items import ENCRYPTED_FIELD, Item, item_type, to_resendable
from convo.history.records import REMOVED_FIELD, Link, is_compaction_link
from convo.history.tree import Key
from convo.inspect.diff import diff_json
from convo.inspect.view import PathIndex
from convo.prompt_cache.compare import (
    LOOKBACK_BLOCKS,
    PromptChange,
    count_new_blocks,
    find_item_change,
    find_setting_change,
    find_shared_depth,
)
from convo.report import FLAT, HIDDEN, Count, Wire
from convo.strategies.strategy import STRATEGIES
from convo.usage.cache_rules import (
    CERTAINTIES,
    CLAUDE_EFFORT,
    CacheRules,
    Certainty,
    find_cache_rules,
    find_model_change_loss,
    read_setting,
)
from convo.usage.cost import Usage, format_usd, tokens_cost_usd
from convo.usage.counting import count_item_tokens, count_tokens
from convo.usage.model_info import find_price

MAX_TTL_S = 86_400.0
"""Seconds after which no vendor is known to keep a prefix."""

MAX_COMPARED_LINKS = 20
"""The newest requests of a branch whose cached prefixes are compared with the next request, besides its own prefixes.
"""

END_USER_SETTINGS = ("safety_identifier", "user")
"""The fields that may name the end user of a request; no source says to which of them reasoning is bound."""


class LostReasoning(NamedTuple):
    """A reasoning item in the next request that the vendor will withhold or refuse.

    item_index:  of the item in the input
    tokens:      as reported for its response, else an estimate
    certainty:   yes, or may where the vendor does not say
    """

    item_index: Annotated[Count, Wire("item")]
    tokens: Count
    certainty: Certainty


class PrefixForecast(NamedTuple):
    """The losses of a request that changes the prefix.

    lost_tokens:     cached tokens of the request before that this one cannot read; an estimate
    cache_loss:      whether cached tokens are lost; may: they may have expired before
    lost_usd:        price of the lost tokens, minus that of cached tokens; null if it is unknown
    lost_reasoning:  reasoning items that were usable in the request before, and no longer are
    append_instead:  how to get the same by appending, which loses nothing; null if there is no way
    not_kept:        why convo did not append it itself
    """

    change: Annotated[PromptChange, FLAT]
    lost_tokens: Count
    cache_loss: Certainty
    lost_usd: float | None
    lost_reasoning: Sequence[LostReasoning]
    append_instead: str | None
    not_kept: Annotated[str | None, HIDDEN] = None

    @property
    def has_loss(self) -> bool:
        """Whether anything is lost: a short prompt is not cached."""
        return bool(self.lost_tokens or self.lost_reasoning)

    def __str__(self) -> str:
        may = "up to " if self.cache_loss == "may" else ""
        losses = []
        if self.lost_tokens:
            cost = "" if self.lost_usd is None else f" ({format_usd(self.lost_usd)})"
            losses.append(f"{may}{self.lost_tokens:,} cached tokens{cost}")
        for certainty, text in (("yes", ""), ("may", "perhaps ")):
            tokens = [item.tokens for item in self.lost_reasoning if item.certainty == certainty]
            if tokens:
                noun = "item" if len(tokens) == 1 else "items"
                losses.append(f"{text}{len(tokens):,} reasoning {noun} ({sum(tokens):,} tokens)")
        loss = (
            f" and loses {' and '.join(losses)}"
            if losses
            else "; no cached tokens and no reasoning are known to be lost"
        )
        instead = f"; instead: {self.append_instead}" if self.append_instead else ""
        instead += f"; {self.not_kept}" if self.not_kept else ""
        return f"the next request changes the prefix ({_describe_change(self.change)}){loss}{instead}"


def _describe_change(change: PromptChange) -> str:
    cause = change.change.replace("_", " ")
    if change.item_index is not None:
        cause += f", {change.name.replace('_', ' ')} {change.item_index + 1}"
    elif change.change == "setting_changed":
        cause += f", {change.name}"
    if change.difference and change.difference.path and change.change != "context_compacted":
        cause += f", at {change.difference.path}"
    return cause


def forecast_prefix(
    links: Sequence[Link], planned: Link, path_index: PathIndex, prices: Mapping[str, Price]
) -> PrefixForecast | None:
    """Return what a request loses; None if it only appends, or if an item is unknown.

    planned:     the link of the request, without an output
    links:       the answered ones of its branch, oldest first; reasoning of links that are left out is ignored
    path_index:  the nodes of the request and of the links
    prices:      the user's own, by full name of the model
    """
    links = [link for link in links if link.head in path_index]
    previous = next((link for link in reversed(links) if not is_compaction_link(link)), None)
    if previous is None or planned.input_head not in path_index:
        return None
    lost_reasoning = tuple(lost for _, lost in _find_lost_reasoning(links, previous, planned, path_index))
    change = _find_change(previous, planned, path_index, loses_reasoning=bool(lost_reasoning))
    if change is None and lost_reasoning:  # by a change of the last response
        change = find_item_change(previous.head, planned.input_head, path_index)
    if change is None:
        return None
    rules = find_cache_rules(planned.model, planned.parameters)
    is_recent = planned.created_at - previous.created_at < (rules.ttl_s or 0.0)
    life_s = rules.ttl_s if is_recent and rules.ttl_s else MAX_TTL_S
    lost_tokens, is_certain = _count_lost_tokens(links, previous, planned, path_index, life_s)
    return PrefixForecast(
        change=change,
        lost_tokens=lost_tokens,
        cache_loss="no" if not lost_tokens else "yes" if is_certain and is_recent else "may",
        lost_usd=_compute_lost_usd(lost_tokens, previous, planned, prices),
        lost_reasoning=lost_reasoning,
        append_instead=_choose_append(change, previous, planned, rules),
    )


def _find_change(earlier: Link, planned: Link, path_index: PathIndex, *, loses_reasoning: bool) -> PromptChange | None:
    """Return the first difference of a request from an earlier one; None if it only appends."""
    return (
        find_setting_change(earlier.model, earlier.parameters, planned.model, planned.parameters)
        or _find_account_change(earlier, planned, loses_reasoning=loses_reasoning)
        or find_item_change(earlier.input_head, planned.input_head, path_index)
    )


def _find_account_change(previous: Link, planned: Link, *, loses_reasoning: bool) -> PromptChange | None:
    """Return the change of the organisation, which has a cache of its own, or of the end user, if it loses reasoning.

    They are no part of the prefix.
    """
    before, after = (
        {"organisation": request.scope.organisation}
        | {name: request.parameters.get(name) for name in END_USER_SETTINGS if loses_reasoning}
        for request in (previous, planned)
    )
    names = [name for name in before if before[name] != after[name]]
    if None in (before["organisation"], after["organisation"]):
        names = [name for name in names if name != "organisation"]
    differences = [diff_json(before[name], after[name]) for name in names]
    return PromptChange("setting_changed", names[0], None, differences[0], 0) if names else None


# -- reasoning ------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """The place of a reasoning item in an input.

    prefix:            digest of the items before it, reasoning excepted, from the vendor's last compaction on
    reasoning_prefix:  digest of the reasoning items among them
    compaction:        digest of the prefix that begins with that compaction; "" without one
    """

    item_index: int
    item: Item
    prefix: str
    reasoning_prefix: str
    compaction: str


def _find_places(head: Key, path_index: PathIndex) -> dict[str, _Place]:
    """Return the places of the reasoning items of an input, by `_get_identity`."""
    places: dict[str, _Place] = {}
    prefix = reasoning_prefix = compaction = ""
    for index, key in enumerate(path_index.keys_after(head)):
        item = path_index.item(key) or {}
        text = json.dumps(to_resendable(item), sort_keys=True)
        if item_type(item) == "reasoning":
            places[_get_identity(item)] = _Place(index, item, prefix, reasoning_prefix, compaction)
            reasoning_prefix = sha256(f"{reasoning_prefix}{prefix}{text}".encode()).hexdigest()
            continue
        if item_type(item) == "compaction":  # reasoning that follows is bound to what follows, too
            prefix = reasoning_prefix = ""
        prefix = sha256(f"{prefix}{text}".encode()).hexdigest()
        if item_type(item) == "compaction":
            compaction = prefix
    return places


def _find_lost_reasoning(
    links: Sequence[Link], previous: Link, planned: Link, path_index: PathIndex, *, is_any: bool = False
) -> Iterator[tuple[Link, LostReasoning]]:
    """Yield the reasoning items that were usable before, and will not be in a request, each with the link that made it.

    is_any:  also those that were not usable in the request before
    """
    next_places = _find_places(planned.input_head, path_index)
    if not STRATEGIES[planned.strategy].is_server_side:  # reasoning without encrypted content is not sent
        next_places = {identity: place for identity, place in next_places.items() if ENCRYPTED_FIELD in place.item}
    if not next_places:
        return
    is_edited = find_item_change(previous.head, planned.input_head, path_index) is not None
    previous_places = _find_places(previous.head, path_index)
    previous_keys = {path_index.root, *path_index.keys_after(previous.head)}
    for link in links:
        if is_compaction_link(link):
            continue
        output_keys = path_index.keys_after(link.head, path_index.depth(link.input_head))
        outputs = [path_index.item(key) or {} for key in output_keys]
        output_identities = [_get_identity(item) for item in outputs if item_type(item) == "reasoning"]
        identities = [identity for identity in output_identities if identity in next_places]
        if not identities:
            continue
        made_places = previous_places if link.head in previous_keys else _find_places(link.head, path_index)
        for identity in identities:
            made_place, place = made_places[identity], next_places[identity]
            previous_place = previous_places.get(identity, made_place)
            before = {} if is_any else _find_losses(link, made_place, previous, previous_place, is_edited=False)
            after = _find_losses(link, made_place, planned, place, is_edited=is_edited)
            is_new = any(loss not in ("no", before.get(reason)) for reason, loss in after.items())
            if is_new and "yes" not in before.values():
                tokens = _count_reasoning(link, place.item, len(identities))
                yield link, LostReasoning(place.item_index, tokens, "yes" if "yes" in after.values() else "may")


def describe_changed_reasoning(
    links: Sequence[Link], planned: Link, path_index: PathIndex
) -> Iterator[tuple[int, str, str]]:
    """Yield each reasoning item of a request that was made with another prefix by the same model and account.

    Yields its index, a sentence, and the id of the response that made it; arguments as for `forecast_prefix`.
    """
    same = (planned.model, planned.scope)
    links = [link for link in links if link.head in path_index and (link.model, link.scope) == same]
    for link, lost in _find_lost_reasoning(links, planned, planned, path_index, is_any=True):
        change = _find_change(link, planned, path_index, loses_reasoning=True)
        change = change or find_item_change(link.head, planned.input_head, path_index)
        cause = f" ({_describe_change(change)})" if change else ""
        effect = "does" if lost.certainty == "yes" else "may"
        text = f"this reasoning was made with another prefix{cause}: {planned.model} {effect} not receive it"
        yield lost.item_index, text, link.id


def _get_identity(reasoning: Item) -> str:
    """Return the encrypted content of a reasoning item, or the id of one that its server has stored."""
    return str(reasoning.get(ENCRYPTED_FIELD) or reasoning.get("id") or "")


def _count_reasoning(link: Link, item: Item, item_count: int) -> int:
    usage = Usage.from_json(link.usage)
    return usage.reasoning_tokens // item_count if usage and usage.reasoning_tokens else count_item_tokens([item])[0]


def _find_losses(maker: Link, made: _Place, request: Link, place: _Place, *, is_edited: bool) -> dict[str, Certainty]:
    """Return the certainty of each loss of a reasoning item of `maker` in a request, by its reason.

    made, place:  the place of the item where it was made, and in the request
    is_edited:    the request changes items of the one before
    """
    rules = find_cache_rules(request.model, request.parameters)
    at_most_may = min(rules.binds_reasoning, "may", key=CERTAINTIES.index)
    is_maker_bound = find_cache_rules(maker.model, maker.parameters).binds_reasoning != "no"
    binds = rules.binds_reasoning if is_maker_bound else at_most_may
    losses: dict[str, Certainty] = {}
    if maker.model != request.model:
        losses[request.model] = find_model_change_loss(maker.model, request.model)
    for name in (*rules.bound_settings, *END_USER_SETTINGS):
        if read_setting(maker.parameters, name) != read_setting(request.parameters, name):
            losses[name] = "may" if name in END_USER_SETTINGS else binds
    organisations = {maker.scope.organisation, request.scope.organisation}
    if len(organisations) > 1 and None not in organisations:
        losses["organisation"] = "may" if binds == "no" else "yes"
    if made.prefix != place.prefix and place.compaction not in ("", made.compaction):
        # Anthropic keeps the turns that follow its compaction unchanged, as a whole; of OpenAI's nothing is known.
        losses["edited" if is_edited else place.prefix] = at_most_may
    elif made.prefix != place.prefix:
        losses[place.prefix] = binds
    elif made.reasoning_prefix != place.reasoning_prefix:
        # Anthropic allows the removal of the first or the last reasoning items; OpenAI does not say.
        losses[place.reasoning_prefix] = at_most_may
    return {reason: loss for reason, loss in losses.items() if loss != "no"}


def describe_wrong_forecast(links: Sequence[Link], path_index: PathIndex) -> str | None:
    """Describe how the reasoning that a provider reports as removed differs from the forecast; None if it does not.

    links:  of a branch, oldest first; the last one is compared with its forecast
    """
    *earlier, last = links
    forecast = forecast_prefix(earlier, last, path_index, {})
    removed, removed_before = _read_removed_ids(last), _read_removed_ids(earlier[-1]) if earlier else set()
    keys = path_index.keys_after(last.input_head) if forecast else []
    lost = {
        str((path_index.item(keys[item.item_index]) or {}).get("id")): item.certainty
        for item in (forecast.lost_reasoning if forecast else ())
    }
    unforeseen = len(removed - removed_before - lost.keys())
    kept = sum(certainty == "yes" and item_id not in removed for item_id, certainty in lost.items())
    parts = [f"{unforeseen:,} of the removed reasoning items not expected"] if unforeseen else []
    parts += [f"{kept:,} expected as removed and not reported"] if kept else []
    return "; ".join(parts) or None


def _read_removed_ids(link: Link) -> set[str]:
    """Return the ids of the reasoning items that a provider removed, without those removed because their turn ended."""
    reported = link.reported.get(REMOVED_FIELD)
    entries = [entry for entry in reported if isinstance(entry, Mapping)] if isinstance(reported, list) else []
    return {
        str(entry.get("id"))
        for entry in entries
        if entry.get("action") == "removed" and entry.get("reason") != "turn_boundary"
    }


# -- the cache ------------------------------------------------------------------------------------


def _count_lost_tokens(
    links: Sequence[Link], previous: Link, planned: Link, path_index: PathIndex, life_s: float
) -> tuple[int, bool]:
    """Estimate the cached tokens of the request before that the next one cannot read from any request in `links`.

    life_s:  after that time prefixes may have expired; a later request may have refreshed them
    Also returns whether the loss is certain.
    """
    links = [link for link in links if planned.created_at - link.created_at < MAX_TTL_S]
    if previous not in links:
        return 0, False
    longest, kept, is_certain, changed_parameters = 0, 0, True, None
    shared = find_shared_depth(previous.input_head, planned.input_head, path_index)
    min_tokens = find_cache_rules(planned.model, planned.parameters).min_tokens or 0
    # A return to the effort before last, or to the agent before a handoff, still has the older prefix in the cache.
    for index, link in enumerate(reversed(links)):
        is_own_prefix = path_index.depth(link.input_head) <= shared
        if is_compaction_link(link) or not (index < MAX_COMPARED_LINKS or is_own_prefix):
            continue
        parameters = (link.model, link.scope, link.parameters)
        if parameters == changed_parameters:
            continue
        change = _find_change(link, planned, path_index, loses_reasoning=True)
        changed_parameters = parameters if change and change.item_index is None else None
        if change is not None and _may_keep_prefix(change, link, planned, path_index):
            is_certain = False
        estimate, tokens = _count_kept_tokens(link, change, path_index)
        is_doubtful = planned.created_at - link.created_at >= life_s or tokens < min_tokens
        if tokens and (is_doubtful or (change is None and _is_too_far(link, planned, path_index))):
            is_certain = False
        elif estimate > longest:
            longest, kept = estimate, tokens
        if change is None:  # older requests are shorter
            break
    return max(0, _count_cached_tokens(previous) - kept), is_certain


def _is_too_far(link: Link, planned: Link, path_index: PathIndex) -> bool:
    """Whether Claude may not find the prefix of a request that the next one continues; dropped thinking is no block."""
    is_claude = find_cache_rules(planned.model, planned.parameters).vendor == "anthropic"
    return is_claude and count_new_blocks(link.input_head, planned.input_head, path_index) > LOOKBACK_BLOCKS


def _may_keep_prefix(change: PromptChange, link: Link, planned: Link, path_index: PathIndex) -> bool:
    """Whether a request may read the whole prefix of `link` in spite of the change: the vendor does not say.

    Reasoning that was removed already, or is bound to an end user, may not be in the cached prefix. With its default
    effort, Claude gets `thinking`, too, which is the default of most models.
    """
    if change.item_index is None:
        efforts = {read_setting(request.parameters, "reasoning.effort") for request in (link, planned)}
        is_default_effort = change.name == "reasoning.effort" and efforts == {None, CLAUDE_EFFORT}
        is_claude = find_cache_rules(planned.model, planned.parameters).vendor == "anthropic"
        return (is_default_effort and is_claude) or change.name in ("prompt_cache_key", *END_USER_SETTINGS)
    shared = find_shared_depth(link.input_head, planned.input_head, path_index)
    before, after = (
        [
            to_resendable(item)
            for key in path_index.keys_after(head, shared)
            if item_type(item := path_index.item(key) or {}) != "reasoning"
        ]
        for head in (link.input_head, planned.input_head)
    )
    return before == after[: len(before)]


def count_cached_after(usage: Usage, rules: CacheRules, *, is_reported: bool) -> int:
    """Return the tokens of a request that are in the cache after it.

    is_reported:  whether any request of the conversation reported tokens read from the cache or written to it
    """
    if rules.vendor is None:
        return usage.input_tokens if is_reported else 0
    if rules.step_tokens > 1:  # these models do not report what they wrote
        is_cached = usage.input_tokens >= (rules.min_tokens or 0)
        return usage.input_tokens // rules.step_tokens * rules.step_tokens if is_cached else 0
    return usage.cached_tokens + usage.cache_write_tokens


def _count_cached_tokens(link: Link) -> int:
    usage = Usage.from_json(link.usage)
    if usage is None:
        return 0
    is_reported = usage.cached_tokens + usage.cache_write_tokens > 0
    return count_cached_after(usage, find_cache_rules(link.model, link.parameters), is_reported=is_reported)


def _count_kept_tokens(link: Link, change: PromptChange | None, path_index: PathIndex) -> tuple[int, int]:
    """Return the tokens of a request before `change`: our count, and the cached ones by what the provider reported."""
    usage, rules = Usage.from_json(link.usage), find_cache_rules(link.model, link.parameters)
    # Models with breakpoints write one entry, up to the end of the request.
    has_breakpoints = rules.vendor is not None and rules.step_tokens == 1
    if change is not None and (change.item_index is None or has_breakpoints):
        return 0, 0
    instructions, tools = link.parameters.get("instructions"), link.parameters.get("tools")
    setting_tokens = count_tokens((), str(instructions or ""), tools).tokens
    all_tokens = setting_tokens + path_index.tokens_up_to(link.input_head)
    if change is None:
        return all_tokens, _count_cached_tokens(link)
    kept = setting_tokens + change.kept_tokens
    cached = kept * (usage.input_tokens if usage else 0) // max(all_tokens, 1)
    return kept, min(cached, _count_cached_tokens(link))


def _compute_lost_usd(tokens: int, previous: Link, planned: Link, prices: Mapping[str, Price]) -> float | None:
    usage = Usage.from_json(previous.usage)
    price = find_price(planned.model, prices, previous.service_tier)
    written = tokens if usage and usage.cache_write_tokens else 0
    written_1h = written if usage and usage.cache_write_1h_tokens else 0
    again = tokens_cost_usd(price, tokens, 0, 0, written, written_1h)
    read = tokens_cost_usd(price, tokens, tokens, 0, 0, 0)
    return None if again is None or read is None else again - read


# -- what to do instead --------------------------------------------------------------------------


def _choose_append(change: PromptChange, previous: Link, planned: Link, rules: CacheRules) -> str | None:
    """Return how to get the same effect without a change of the prefix; None if there is no way."""
    if change.change in ("item_edited", "item_added", "item_removed", "items_reordered", "item_bytes_changed"):
        return "leave the earlier items as they are and append a message, or fork at the end of a turn before them"
    if change.change == "tools_reordered":
        return "keep the order of the tools"
    before, after = (
        read_setting(parameters, "tools") or () for parameters in (previous.parameters, planned.parameters)
    )
    if change.name == "tools" and rules.vendor == "openai" and all(tool in before for tool in after):
        return "keep the tools, and name those that may be called in tool_choice (allowed_tools)"
    if change.name in rules.appends:
        return f"leave {change.name} as before, and append {rules.appends[change.name]}"
    return None
