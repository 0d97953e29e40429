"""Why the prompt cache missed: for one request the cause, the tokens and the cost, and one way to avoid it.

The vendor's reason is repeated as it was reported. That of convo comes from two requests: this one, and the earlier
one whose prompt it could have read from the cache. Where no source states a rule, the certainty is "may".
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal, NamedTuple, TypeAlias

from convo.config.sections import Price
from convo.config.values import format_duration_setting
from convo.history.items import Json, item_text
from convo.history.records import (
    ANSWERED_STATUSES,
    COMPARISON_FIELD,
    RECORDING_PARAMETER,
    UPSTREAM_ID,
    Link,
    is_compaction_link,
)
from convo.inspect.diff import common_text_length
from convo.inspect.view import ConversationView, PathIndex, link_cost_usd
from convo.prompt_cache.compare import (
    LOOKBACK_BLOCKS,
    Change,
    PromptChange,
    count_new_blocks,
    find_first_change,
    find_separate_instructions,
    find_shared_depth,
)
from convo.report import Count, Wire
from convo.usage.cache_rules import (
    UNPUBLISHED_PRICE,
    Certainty,
    Vendor,
    find_cache_rules,
    has_unpublished_price,
    read_setting,
)
from convo.usage.cost import Usage, tokens_cost_usd
from convo.usage.counting import BYTES_PER_TOKEN
from convo.usage.model_info import appends_instructions, find_price

Cause: TypeAlias = Literal[
    Change, "no_breakpoint", "below_minimum", "parallel_request", "ttl_expired", "breakpoint_too_far", "unknown"
]

Outcome: TypeAlias = Literal["miss", "partial", "hit", "first", "unreported"]
"""As in `MissReport`."""

MISSES: Sequence[Outcome] = ("miss", "partial")

VENDOR_NAMES: Mapping[Vendor | None, str] = {"openai": "OpenAI", "anthropic": "Anthropic", None: "the provider"}


class VendorReason(NamedTuple):
    """The cache diagnostics of the vendor.

    type:           cache_hit, cache_miss, comparison_response_not_found or unavailable
    reason:         the name that the vendor gave it
    missed_tokens:  the vendor's estimate
    """

    vendor: str
    type: str
    reason: str | None
    missed_tokens: int | None


class MissReport(NamedTuple):
    """Why the prompt cache missed in one request.

    compared_id:      the earlier request whose prompt it could have read from the cache; null if there is none
    outcome:          miss: less than half of the reusable tokens were read from the cache; partial: at least half of
                      them, but not all; first: there is no such earlier request; unreported: the endpoint reported no
                      cached tokens
    reported:         what the vendor reported; null if nothing
    cause:            what convo found in the requests; null for a hit
    certainty:        may: no source of the vendor states that this loses the cache
    path:             of the first difference of both requests: "tools[3].name", "input[7].content[0].text"
    byte_offset:      in the value at the path
    before, after:    excerpts at the difference
    detail:           further figures of the cause
    reusable_tokens:  input tokens that could have been read from the cache
    missed_tokens:    the part of them that was not
    cost_usd:         their price, minus that of cached tokens; null if it is unknown
    fix:              one way to avoid it
    note:             the part of its price that no source states; null if all are known
    request_cost_usd: of the whole request; null if it is unknown
    other_missed_ids: the other requests of the conversation, or of its turn, that missed
    """

    response_id: str
    compared_id: str | None
    model: str
    outcome: Outcome
    reported: VendorReason | None
    cause: Cause | None
    certainty: Certainty | None
    path: str | None
    byte_offset: Annotated[int | None, Wire("byte")]
    before: str | None
    after: str | None
    detail: str | None
    input_tokens: int | None
    cached_tokens: int | None
    reusable_tokens: Count | None
    missed_tokens: Count | None
    cost_usd: float | None
    fix: str | None
    note: str | None
    output_tokens: int | None
    request_cost_usd: float | None
    other_missed_ids: Sequence[str] = ()


class CacheUse(NamedTuple):
    """The tokens that a request could have read from the cache, and those that it read."""

    reusable_tokens: int
    cached_tokens: int

    @property
    def missed_tokens(self) -> int:
        return max(0, self.reusable_tokens - self.cached_tokens)

    @property
    def outcome(self) -> Outcome:
        if self.missed_tokens <= max(MIN_MISSED_TOKENS, self.reusable_tokens // 50):
            return "hit"
        return "miss" if self.missed_tokens * 2 > self.reusable_tokens else "partial"


MIN_MISSED_TOKENS = 128
"""Fewer tokens, or less than 2 % of the reusable ones, count as a hit: vendors round, and do not report some tokens."""


# -- the earlier request -----------------------------------------------------------------------------


def find_earlier_requests(view: ConversationView) -> dict[str, Link]:
    """Return by id the earlier request whose prompt each request could have read from the cache.

    That is the answered request before it on its branch, or a later one with the same instructions whose prompt it
    also continues, such as that of another agent's turn or of a retry. If a recorded client edits its history, its
    request is on another branch here, but the cache has the prompt of the client's latest request: that one is used.
    """
    index, found = view.path_index, dict[str, Link]()
    answered, conversations = dict[str, Link | None](), dict[str, str]()
    latest: dict[tuple[str, str], Link] = {}
    for link in sorted(view.links, key=lambda link: link.created_at):
        parent = answered.get(link.parent_id or "")
        conversation = conversations[link.id] = link.session_id or conversations.get(link.parent_id or "", link.id)
        key = conversation, str(link.parameters.get("instructions"))
        earlier = _choose_earlier(link, parent, latest.get(key), index)
        if earlier is not None:
            found[link.id] = earlier
        is_answer = link.status in ANSWERED_STATUSES and not is_compaction_link(link)
        answered[link.id] = link if is_answer else parent
        if is_answer:
            latest[key] = link
    return found


def _choose_earlier(link: Link, parent: Link | None, latest: Link | None, index: PathIndex) -> Link | None:
    if latest is not None and latest is not parent:
        is_rewritten = (
            parent is not None
            and RECORDING_PARAMETER in link.parameters
            and latest.created_at > parent.created_at
            and _count_shared_items(latest, link, index)
        )
        if is_rewritten or index.is_ancestor(latest.input_head, link.input_head):
            return latest
    if parent is not None and not _is_another_conversation(parent, link, index):
        return parent
    return latest if latest is not None and _is_parallel(latest, link, index) else None


def _is_another_conversation(parent: Link, link: Link, index: PathIndex) -> bool:
    """Return whether a request shares neither items nor instructions with its parent: the first one of a subagent."""
    is_same = parent.parameters.get("instructions") == link.parameters.get("instructions")
    return not is_same and _count_shared_items(parent, link, index) == 0


def _count_shared_items(first: Link, second: Link, index: PathIndex) -> int | None:
    """Return the number of equal items at the start of both prompts; None if the items of one are unknown."""
    is_known = first.input_head in index and second.input_head in index
    return find_shared_depth(first.input_head, second.input_head, index) if is_known else None


def _is_parallel(earlier: Link, link: Link, index: PathIndex) -> bool:
    """Return whether a request was sent before the first token of an earlier one, whose response it cannot have."""
    if earlier.head != earlier.input_head and index.is_ancestor(earlier.head, link.input_head):
        return False
    started_s = earlier.duration_s if earlier.first_token_s is None else earlier.first_token_s
    return started_s is not None and link.created_at < earlier.created_at + started_s


# -- figures -----------------------------------------------------------------------------------------


def find_missed_tokens(view: ConversationView) -> dict[str, int]:
    """Return by id the missed tokens of the requests that read less than half of the reusable tokens from the cache."""
    uses = _measure_cache_use(view, find_earlier_requests(view))
    return {link_id: use.missed_tokens for link_id, use in uses.items() if use.outcome == "miss"}


def find_listed_misses(requests: Iterable[tuple[Link, Usage | None]]) -> set[str]:
    """Return the ids of the requests of a list that missed the cache.

    Each has the usage of the request that it continues, if there is one: no items are read.
    """
    used = [(link, usage, earlier) for link, earlier in requests if (usage := Usage.from_json(link.usage))]
    cached_models = {link.model for link, usage, _ in used if usage.cached_tokens}
    return {
        link.id
        for link, usage, earlier in used
        if earlier is not None
        and usage.cached_tokens * 2 < usage.input_tokens  # no other can be a miss, and the rules take time
        and has_cache_figures(link, cached_models)
        and CacheUse(_limit_reusable_tokens(earlier, link, usage), usage.cached_tokens).outcome == "miss"
    }


class Miss(NamedTuple):
    """A request that did not read all reusable tokens from the cache.

    cost_usd:  price of the missed tokens, minus that of cached tokens; None if it is unknown
    change:    the first difference from the earlier request; None if it only continues it
    """

    link: Link
    earlier: Link
    cost_usd: float | None
    change: PromptChange | None


def find_misses(view: ConversationView) -> Iterator[Miss]:
    """Yield each request of a conversation that missed the cache, at least partly."""
    earlier_requests, links = find_earlier_requests(view), {link.id: link for link in view.links}
    for link_id, use in _measure_cache_use(view, earlier_requests).items():
        link, earlier = links[link_id], earlier_requests[link_id]
        if use.outcome in MISSES:
            change = find_first_change(earlier, link, view.path_index)
            yield Miss(link, earlier, _missed_cost_usd(use, link, view.prices), change)


def _measure_cache_use(view: ConversationView, earlier_requests: Mapping[str, Link]) -> dict[str, CacheUse]:
    """Return by id how far each request used the cache; without those that have no earlier request or no figures."""
    usages = {link.id: usage for link in view.links if (usage := Usage.from_json(link.usage))}
    cached_models = {link.model for link in view.links if link.id in usages and usages[link.id].cached_tokens}
    uses = {}
    for link in view.links:
        earlier, usage = earlier_requests.get(link.id), usages.get(link.id)
        if earlier is None or usage is None or earlier.id not in usages or not has_cache_figures(link, cached_models):
            continue
        reusable = _count_reusable_tokens(earlier, usages[earlier.id], link, usage, view.path_index)
        # More may be read than is known here: another conversation may have sent the same prompt.
        uses[link.id] = CacheUse(max(reusable, usage.cached_tokens), usage.cached_tokens)
    return uses


def has_cache_figures(link: Link, cached_models: set[str]) -> bool:
    """Return whether the endpoint of a request counts cached tokens: those of other vendors may always report 0."""
    details = (link.usage or {}).get("input_tokens_details")
    is_counted = isinstance(details, Mapping) and type(details.get("cached_tokens")) is int
    is_vendor = find_cache_rules(link.model, link.parameters).vendor is not None
    return is_counted and (is_vendor or link.model in cached_models)


def _count_reusable_tokens(earlier: Link, earlier_usage: Usage, link: Link, usage: Usage, index: PathIndex) -> int:
    separate_tokens = unshared_tokens = 0
    if appends_instructions(link.model):  # billed uncached, behind the input
        separate_tokens = len(str(find_separate_instructions(earlier, index) or "")) // BYTES_PER_TOKEN
    if _is_parallel(earlier, link, index) and (shared := _count_shared_items(earlier, link, index)) is not None:
        shared_head = index.key_before_last(earlier.input_head, index.depth(earlier.input_head) - shared)
        unshared_tokens = index.tokens_up_to(earlier.input_head) - index.tokens_up_to(shared_head)
    return _limit_reusable_tokens(earlier_usage, link, usage, separate_tokens, unshared_tokens)


def _limit_reusable_tokens(
    earlier_usage: Usage, link: Link, usage: Usage, separate_tokens: int = 0, unshared_tokens: int = 0
) -> int:
    rules = find_cache_rules(link.model, link.parameters)
    tokens = earlier_usage.input_tokens - separate_tokens
    if rules.vendor is not None and rules.step_tokens == 1:  # it reports writes
        tokens = earlier_usage.cached_tokens + earlier_usage.cache_write_tokens or tokens
    tokens = min(tokens - unshared_tokens, usage.input_tokens) // rules.step_tokens * rules.step_tokens
    return 0 if tokens < (rules.min_tokens or 0) else max(0, tokens)


def _missed_cost_usd(use: CacheUse, link: Link, prices: Mapping[str, Price]) -> float | None:
    """Return the price of the missed tokens, minus that of cached ones. Written tokens come before uncached ones."""
    usage, price = Usage.from_json(link.usage) or Usage(), find_price(link.model, prices, link.service_tier)
    missed = min(use.missed_tokens, usage.input_tokens - usage.cached_tokens)
    write, write_1h = usage.cache_write_tokens, usage.cache_write_1h_tokens
    read_write, read_1h = max(0, write - missed), max(0, write_1h - missed)
    paid = tokens_cost_usd(price, usage.input_tokens, usage.cached_tokens, 0, write, write_1h)
    best = tokens_cost_usd(price, usage.input_tokens, usage.cached_tokens + missed, 0, read_write, read_1h)
    return None if paid is None or best is None else paid - best


# -- the cause ---------------------------------------------------------------------------------------


class Finding(NamedTuple):
    """The cause of a miss; `change` is the difference of both requests, if that is the cause."""

    cause: Cause
    certainty: Certainty
    fix: str
    detail: str | None = None
    change: PromptChange | None = None


def explain_miss(view: ConversationView, link: Link) -> MissReport:
    """Explain how far a request of a conversation used the prompt cache.

    `view.sent_body` is the body of this request, if it was recorded and its body is stored.
    """
    earlier_requests = find_earlier_requests(view)
    use = _measure_cache_use(view, earlier_requests).get(link.id)
    return _explain(view, link, earlier_requests.get(link.id), use)


def explain_misses(view: ConversationView) -> Iterator[MissReport]:
    """Explain each request of a conversation that missed the cache, at least partly; `view.sent_body` is not used."""
    view, links = replace(view, sent_body=None), {link.id: link for link in view.links}
    earlier_requests = find_earlier_requests(view)
    for link_id, use in _measure_cache_use(view, earlier_requests).items():
        if use.outcome in MISSES:
            yield _explain(view, links[link_id], earlier_requests[link_id], use)


def _explain(view: ConversationView, link: Link, earlier: Link | None, use: CacheUse | None) -> MissReport:
    usage = Usage.from_json(link.usage)
    outcome: Outcome = "first" if earlier is None else "unreported" if use is None else use.outcome
    if use and not use.reusable_tokens:
        outcome = "miss"  # below the minimum: nothing could be read
    finding = None
    if earlier is not None and outcome != "hit":
        finding = (use and _find_cause_without_change(view, earlier, link)) or _find_change(view, earlier, link)
        finding = finding or (_find_other_cause(earlier, link, view.path_index) if use else None)
    change = finding.change if finding else None
    difference = change.difference if change else None
    return MissReport(
        response_id=link.id,
        compared_id=earlier.id if earlier else None,
        model=link.model,
        outcome=outcome,
        reported=read_vendor_reason(link),
        cause=finding.cause if finding else None,
        certainty=finding.certainty if finding else None,
        path=_name_path(change) if change else None,
        byte_offset=difference.byte_offset if difference else None,
        before=difference.a if difference else None,
        after=difference.b if difference else None,
        detail=finding.detail if finding else None,
        input_tokens=usage.input_tokens if usage else None,
        cached_tokens=use.cached_tokens if use else None,
        reusable_tokens=use.reusable_tokens if use else None,
        missed_tokens=use.missed_tokens if use else None,
        cost_usd=_missed_cost_usd(use, link, view.prices) if use else None,
        fix=finding.fix if finding else None,
        note=UNPUBLISHED_PRICE if has_unpublished_price(link.model, link.parameters, usage) else None,
        output_tokens=usage.output_tokens if usage else None,
        request_cost_usd=link_cost_usd(link, view.prices),
    )


def describe_cause(report: MissReport) -> str:
    """Describe the cause of a miss in one line: what changed, where, and both excerpts."""
    if report.cause == "unknown":
        return f"no difference: {report.detail}"
    text = ("perhaps " if report.certainty == "may" else "") + (report.cause or "").replace("_", " ")
    if report.path is not None:
        text += f": {report.path}" + ("" if report.byte_offset is None else f", byte {report.byte_offset:,}")
    if report.before is not None:
        # One line: an excerpt may have line breaks, and they may be the difference.
        before, after = (json.dumps(excerpt or "", ensure_ascii=False) for excerpt in (report.before, report.after))
        text += f": {before} -> {after}"
    return f"{text}: {report.detail}" if report.detail else text


def read_vendor_reason(link: Link) -> VendorReason | None:
    """Return the diagnostics of a response; None if its provider reported none."""
    reported = link.reported.get("prompt_cache_diagnostics")
    if not isinstance(reported, Mapping) or not isinstance(reported.get("type"), str):
        return None
    reason, tokens = reported.get("provider_reason") or reported.get("reason"), reported.get("cache_missed_tokens")
    return VendorReason(
        VENDOR_NAMES[find_cache_rules(link.model, link.parameters).vendor],
        reported["type"],
        reason if isinstance(reason, str) else None,
        tokens if type(tokens) is int else None,
    )


def _find_change(view: ConversationView, earlier: Link, link: Link) -> Finding | None:
    """Return the first difference from the earlier request, or from the one that the vendor compared it with."""
    compared_id = read_setting(link.parameters, f"prompt_cache_options.{COMPARISON_FIELD}")
    compared = [one for one in view.links if compared_id and compared_id in (one.id, one.reported.get(UPSTREAM_ID))]
    changes = (find_first_change(one, link, view.path_index) for one in (earlier, *compared))
    change = next(filter(None, changes), None)
    if change is None:
        return None
    if change.change.startswith("item") and _is_summarized(view, earlier, link):
        change = change._replace(change="context_compacted")
    is_uncertain = change.change in ("prompt_cache_key_changed", "service_tier_changed")
    return Finding(change.change, "may" if is_uncertain else "yes", _fix_change(change, earlier, link), change=change)


def _is_summarized(view: ConversationView, earlier: Link, link: Link) -> bool:
    """Return whether a request that replaces its history contains the answer of its parent: a client's own summary."""
    index = view.path_index
    parent = next((one for one in view.links if one.id == link.parent_id), earlier)
    if parent.head == parent.input_head or parent.head not in index or link.input_head not in index:
        return False
    answer, shared = item_text(index.item(parent.head) or {}), find_shared_depth(parent.head, link.input_head, index)
    keys = index.keys_after(link.input_head, shared)
    return len(answer) >= MIN_SUMMARY_CHARS and any(answer in item_text(index.item(key) or {}) for key in keys)


MIN_SUMMARY_CHARS = 40
"""Characters; a shorter answer may be contained in a message by chance."""


def _find_cause_without_change(view: ConversationView, earlier: Link, link: Link) -> Finding | None:
    """Return why the cache could not be read even with an unchanged prefix."""
    rules, earlier_usage = find_cache_rules(link.model, link.parameters), Usage.from_json(earlier.usage) or Usage()
    if _lacks_breakpoint(view, link):
        fix = 'add "cache_control": {"type": "ephemeral"} to the request'
        if view.sent_body is None:
            fix = "set prompt_cache_options.mode to implicit, or prompt_cache_breakpoint on a part of the input"
        return Finding("no_breakpoint", "yes", fix, "the request has no cache breakpoint")
    if rules.min_tokens and earlier_usage.input_tokens < rules.min_tokens:
        detail = f"{earlier_usage.input_tokens:,} tokens; {link.model} caches {rules.min_tokens:,} tokens or more"
        return Finding("below_minimum", "yes", "none needed: a short prompt costs little", detail)
    if rules.vendor and _is_parallel(earlier, link, view.path_index):
        detail = f"sent {link.created_at - earlier.created_at:.1f} s after {earlier.id}, before its first token"
        certainty: Certainty = "yes" if rules.vendor == "anthropic" else "may"
        return Finding(
            "parallel_request", certainty, "send parallel requests after the first token of the first one", detail
        )
    return None


def _find_other_cause(earlier: Link, link: Link, index: PathIndex) -> Finding:
    """Return the cause of a miss of a request that only continues the earlier one."""
    rules, gap_s = find_cache_rules(link.model, link.parameters), link.created_at - earlier.created_at
    if rules.ttl_s is not None and gap_s > rules.ttl_s:
        gap, ttl = format_duration_setting(round(gap_s / 60) * 60), format_duration_setting(rules.ttl_s)
        certainty: Certainty = "yes" if rules.vendor == "anthropic" else "may"  # OpenAI states a minimum
        detail = f"{gap} passed; the cache keeps a prefix for {ttl}"
        return Finding("ttl_expired", certainty, _fix_ttl(link, ttl), detail)
    is_continued = index.is_ancestor(earlier.input_head, link.input_head)
    count = count_new_blocks(earlier.input_head, link.input_head, index) if is_continued else 0
    if rules.vendor == "anthropic" and count > LOOKBACK_BLOCKS:
        certainty = "may" if RECORDING_PARAMETER in link.parameters else "yes"  # its other breakpoints are unknown
        detail = f"{count} blocks after the last cached one; Anthropic looks back {LOOKBACK_BLOCKS}"
        fix = f"set a cache breakpoint at least every {LOOKBACK_BLOCKS} blocks"
        return Finding("breakpoint_too_far", certainty, fix, detail)
    detail = "the provider may have used another machine, or removed the prefix early"
    return Finding("unknown", "may", "none known", detail)


def _lacks_breakpoint(view: ConversationView, link: Link) -> bool:
    """Return whether nothing of a request is cached because only breakpoints are, and it has none."""
    rules, body = find_cache_rules(link.model, link.parameters), view.sent_body
    if body is not None and body.protocol == "messages":
        return '"cache_control"' not in json.dumps(body.body)
    is_explicit = read_setting(link.parameters, "prompt_cache_options.mode") == "explicit"
    if not (rules.vendor and is_explicit and rules.step_tokens == 1) or link.input_head not in view.path_index:
        return False
    keys = view.path_index.keys_after(link.input_head)
    return not any('"prompt_cache_breakpoint"' in json.dumps(view.path_index.item(key)) for key in keys)


# -- the fix -----------------------------------------------------------------------------------------

VOLATILE_PATTERNS = {
    "id": r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F-]*",
    "date": r"\d{4}-\d\d-\d\d|\d{1,2}[./]\d{1,2}[./]\d{2,4}|(?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day"
    r"|(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]* \d{1,2}(?:, \d{4})?",
    "time": r"\d{1,2}:\d\d(?::\d\d)?|\b1[6-9]\d{8}(?:\d{3})?\b",
}
"""Values that often change by accident; times also as seconds or milliseconds since 1970."""

FIXES: Mapping[Change, str] = {
    "model_changed": "each model has its own cache: change the model only at the start of a conversation",
    "tools_reordered": "send the tools in the same order with every request",
    "item_bytes_changed": "send items back exactly as they were received, with the same spaces and order of keys",
    "context_compacted": "none needed after a compaction; compact less often, or when the cache is lost anyway",
    "prompt_cache_key_changed": "use one prompt_cache_key for all requests of a conversation",
    "service_tier_changed": "use one service_tier for all requests of a conversation",
}


def _fix_change(change: PromptChange, earlier: Link, link: Link) -> str:
    place = _name_place(change, link)
    if kind := _find_volatile_kind(change):
        return f"keep the {kind} out of the {place}; put it into the newest user message"
    if change.change in FIXES:
        return FIXES[change.change]
    if change.item_index is not None:
        command = "" if RECORDING_PARAMETER in link.parameters else f": convo chat --fork {earlier.id}"
        return f"append to the history instead of changing it, or continue the earlier request{command}"
    appended = find_cache_rules(link.model, link.parameters).appends.get(change.name)
    instead = f"append {appended} instead" if appended else "change it only at the start of a conversation"
    return f"keep {place if '.' in place else f'the {place}'} as in the request before; {instead}"


def _name_place(change: PromptChange, link: Link) -> str:
    """Return the name of the changed part of the request: a tool, a setting or the type of an item."""
    index = re.match(r"\[(\d+)\]", change.difference.path if change.difference else "")
    tools = read_setting(link.parameters, "tools")
    if change.name == "tools" and index and isinstance(tools, list) and int(index[1]) < len(tools):
        tool: Json = tools[int(index[1])]
        name = tool.get("name") if isinstance(tool, Mapping) else None
        return f"tool {name}" if isinstance(name, str) else "tools"
    return change.name


def _find_volatile_kind(change: PromptChange) -> str | None:
    """Return "date", "time" or "id" if the first difference is within such a value in both requests."""
    if change.difference is None:
        return None
    a, b = change.difference.a, change.difference.b
    position = common_text_length(a, b)

    def has_match(pattern: str, text: str) -> bool:
        return any(match.start() <= position <= match.end() for match in re.finditer(pattern, text))

    kinds = (kind for kind, pattern in VOLATILE_PATTERNS.items() if has_match(pattern, a) and has_match(pattern, b))
    return next(kinds, None)


def _name_path(change: PromptChange) -> str:
    path = change.difference.path if change.difference else ""
    base = change.name if change.item_index is None else f"input[{change.item_index}]"
    return f"{base}{path if path.startswith('[') or not path else f'.{path}'}"


def _fix_ttl(link: Link, ttl: str) -> str:
    """Return how to keep a prefix longer, as far as the vendor can."""
    longest = {"5m": ("prompt_cache_retention", "24h"), "30m": ("prompt_cache_options", '{"ttl": "12h"}')}.get(ttl)
    if longest is None:
        return f"send the next request within {ttl}"
    if RECORDING_PARAMETER in link.parameters and find_cache_rules(link.model, {}).vendor == "anthropic":
        return 'add "ttl": "1h" to cache_control; it raises the price of writes'
    name, value = longest
    return f"send the next request within {ttl}, or ask for a longer ttl: convo chat --param '{name}={value}'"
