"""A Messages server that enforces Anthropic's published rules: prompt cache, signed thinking, compaction, bills.

`AnthropicRules` is the pure model: a request and its time give a response and its bill, or a Refusal.
`run_anthropic_server` puts HTTP around it. What no source states is a choice in `Unstated`.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from itertools import accumulate, takewhile
from typing import Any, NamedTuple

from tests.vendor_rules.rules_server import (
    MILLION,
    Json,
    PromptCache,
    Received,
    Refusal,
    RulesServer,
    Tokenizer,
    canonical,
    count_tokens,
    extend_digest,
    run_rules_server,
    without,
)

Family = tuple[str, tuple[int, int]]
"""A name like "opus" and a version like (5, 5)."""

LIFE_S = {"5m": 300.0, "1h": 3600.0}
WRITE = {"5m": Decimal("1.25"), "1h": Decimal(2)}
MAX_BREAKPOINTS, LOOKBACK = 4, 20
COMPACTION_TRIGGER = 150_000
DEFAULT_EFFORT = "high"
CHEAPER_READS_FROM = datetime(2026, 10, 7, tzinfo=UTC).timestamp()
CHECKS_FROM = datetime(2026, 8, 31, tzinfo=UTC).timestamp()
"""Accounts made from here on are refused an edited prefix by default."""

MINIMUM_TOKENS: Mapping[Family, int] = {
    **dict.fromkeys(
        [("opus", (5, 0)), ("opus", (5, 5)), *((name, (5, v)) for name in ("fable", "mythos") for v in (0, 1))], 512
    ),
    **dict.fromkeys([("opus", (4, 8)), *(("sonnet", version) for version in ((5, 0), (4, 6), (4, 5)))], 1024),
    ("opus", (4, 7)): 2048,
    **dict.fromkeys([("opus", (4, 6)), ("opus", (4, 5)), ("haiku", (4, 5))], 4096),
}
CHECKED = {("opus", (5, 5)), ("sonnet", (5, 5)), ("haiku", (5, 5)),
           *((name, (5, minor)) for name in ("fable", "mythos") for minor in (1, 2))}  # fmt: skip
"""The models that check that nothing before their thinking has changed."""

BINDING = "thinking-binding-controls-2026-08-01"
TOOL_CHANGES = "mid-conversation-tool-changes-2026-07-01"
INLINE_TOOLS = "inline-tools-2026-09-15"
MESSAGE_CONFIG = "mid-conversation-output-config-2026-07-01"
CLEAR_AT = "mid-conversation-system-clear-at-2026-08-21"
COMPACT = "compact-2026-09-04"
PREFIX = "prefix_binding_mismatch"
BOUND_ELSEWHERE = (
    "{path}: Invalid `signature` in `thinking` block. The block is bound to a different conversation. "
    'Remove the block, or set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
THINKING = {"thinking", "redacted_thinking"}
EDITS = {"compact_20260112", "clear_tool_uses_20250919", "clear_thinking_20251015"}


class Price(NamedTuple):
    """Dollars for a million tokens of requests with at most `up_to` input tokens."""

    input: Decimal
    output: Decimal
    up_to: float = float("inf")


@dataclass(frozen=True)
class Unstated:
    """Behaviour that no source states. The defaults are the simplest interpretation.

    minimum_tokens:   the minimum of the models for which none was found: 5.2, Sonnet 5.5, Haiku 5.5
    reads:            whether a model reads the thinking of another one, for pairs that no page names
    pending:          whether diagnostics are not finished when the response is sent
    """

    minimum_tokens: int = 1024
    reads: Callable[[str, str], bool] = lambda made_by, asked: False
    pending: bool = False


class Bill(NamedTuple):
    """Tokens of one request by price, and what it costs in dollars. Each input token is in exactly one count."""

    uncached: int
    cached: int
    written_5m: int
    written_1h: int
    output: int
    cost: Decimal


class Answer(NamedTuple):
    """`effective`: the effort and the names of the tools that the model is offered in this response."""

    response: Json
    bill: Bill
    effective: Json


class Block(NamedTuple):
    """A part of the rendered prompt. `part`: tools, system or messages; "" is a setting, which has no tokens."""

    part: str
    key: str
    tokens: int = 0
    ttl: str | None = None
    is_cacheable: bool = True


class Seal(NamedTuple):
    """The prefix to which a thinking block is bound.

    start:    system and tools
    prefix:   all that precedes the block except thinking
    earlier:  the signatures of the thinking that precedes it; a block that fails takes the rest of its run with it
    """

    organization: str
    end_user: str | None
    model: str
    start: str
    prefix: str
    earlier: tuple[str, ...] = ()


class Compaction(NamedTuple):
    """A compaction block, and what it summarizes.

    messages:  the messages, or None if the block was made by an edit within a response
    before:    what precedes each of them
    """

    block: Json
    model: str
    start: str
    messages: list[Json] | None
    before: Mapping[int, Seal]


class Checked(NamedTuple):
    """`dropped`: places of blocks that are not shown. `seal`: what new thinking is bound to; `before`: each message."""

    dropped: set[tuple[int, int]]
    report: list[Json]
    seal: Seal
    before: dict[int, Seal]


class Asked(NamedTuple):
    """The parts of a request that diagnostics compare."""

    organization: str
    model: Any
    settings: Any
    blocks: Sequence[Block]

    def keys(self, part: str) -> list[str]:
        return [block.key for block in self.blocks if block.part == part]


@dataclass
class _Call:
    """One request while it is answered; its messages have lists of blocks."""

    request: Mapping[str, Any]
    at: float
    betas: Collection[str]
    organization: str
    workspace: str
    is_batch: bool
    model: str = field(init=False)
    family: Family = field(init=False)
    messages: list[Json] = field(init=False)

    def __post_init__(self) -> None:
        self.model = str(self.request.get("model"))
        self.family = model_family(self.model)
        self.messages = [{**message, "content": blocks_of(message)} for message in self.request.get("messages") or ()]

    @property
    def end_user(self) -> str | None:
        return (self.request.get("metadata") or {}).get("user_id")


class AnthropicRules:
    """The server's state: cache entries, signed blocks, compactions.

    prices:                   for each model, its prices by the size of the prompt
    account_created:          when the account was made, in seconds; new ones check prefixes by default
    platform:                 claude, bedrock or google: what isolates caches, and who reads whose thinking
    response_begins_after_s:  from the request until its response begins, when its entries can be read
    url_content:              what a URL of an image returns; an unknown URL is its own content
    """

    def __init__(
        self, prices: Mapping[str, Sequence[Price]], *, count: Tokenizer = count_tokens,
        account_created: float = 0.0, platform: str = "claude", response_begins_after_s: float = 1.0,
        url_content: Mapping[str, str] | None = None, unstated: Unstated | None = None,
    ) -> None:  # fmt: skip
        self.prices, self.count, self.unstated = prices, count, unstated or Unstated()
        self.account_created, self.platform = account_created, platform
        self.response_begins_after_s, self.url_content = response_begins_after_s, url_content or {}
        self.compaction_available = True
        self._cache = PromptCache()
        self._seals: dict[str, Seal] = {}
        self._compactions: dict[str, Compaction] = {}
        self._asked: dict[str, Asked] = {}
        self._ids = 0

    def answer(
        self, request: Mapping[str, Any], at: float, *, betas: Collection[str] = (), organization: str = "org",
        workspace: str = "default", reply: Sequence[Mapping[str, Any]] | None = None, is_batch: bool = False,
    ) -> Answer:  # fmt: skip
        """Answer a request made at `at` (seconds). `reply`: the content blocks; thinking is signed by the server."""
        call = _Call(request, at, betas, organization, workspace, is_batch)
        if call.model not in self.prices:
            raise Refusal(f"model: {call.model}", status=404, type="not_found_error")
        self._check(call)
        checked = self._check_thinking(call)
        blocks, seal = self._render(call, checked.dropped), checked.seal
        cached, written = self._use_cache(call, blocks)
        tokens = sum(block.tokens for block in blocks)
        content, stop_reason = self._content(call, reply, tokens, checked)
        signed = []
        for block in content:
            signed.append(self._sign(block, seal))
            seal = self._extend(seal, "assistant", signed[-1])
        output = sum(self.count(without(block, "signature")) for block in signed)
        bill = self._bill(call, tokens, cached, written, output)
        response: Json = {
            "id": self._new_id("msg"),
            "type": "message",
            "role": "assistant",
            "model": call.model,
            "content": signed,
            "stop_reason": stop_reason,
            "stop_sequence": None,
            "usage": usage_object(bill),
            "diagnostics": None,
        }
        if BINDING in betas:
            response["input_transformations"] = checked.report
        if "diagnostics" in request:
            asked = Asked(organization, [call.model, request.get("speed")], message_settings(request), blocks)
            previous = (request["diagnostics"] or {}).get("previous_message_id")
            if previous is not None:
                response["diagnostics"] = self._diagnose(self._asked.get(previous), asked)
            self._asked[response["id"]] = asked
        return Answer(response, bill, self._effective(call))

    def count_input(self, request: Mapping[str, Any], at: float, **caller: Any) -> int:
        """Count the input tokens; thinking is checked as in a request for a response."""
        defaults: Json = {"betas": (), "organization": "org", "workspace": "default", "is_batch": False}
        call = _Call(request, at, **{**defaults, **caller})
        self._check(call)
        return sum(block.tokens for block in self._render(call, self._check_thinking(call).dropped))

    # -- the request ------------------------------------------------------------------------------

    def _check(self, call: _Call) -> None:
        """Raise Refusal for what the request may not contain."""
        request, thinking = call.request, call.request.get("thinking") or {}
        if "block_binding" in thinking:
            require(call, BINDING, "thinking.block_binding")
            if thinking.get("type") == "disabled":
                raise Refusal("thinking.block_binding: not supported with thinking disabled.")
        for edit in context_edits(request):
            if edit["type"] not in EDITS:
                raise Refusal(f"context_management.edits: unknown type '{edit['type']}'.")
        self._check_messages(call)
        if "compaction" in request:
            require(call, COMPACT, "compaction")
            if "context_management" in request:
                raise Refusal("compaction: not supported with context_management.")
            self._check_can_compact(call)

    def _check_messages(self, call: _Call) -> None:
        roles = [message["role"] for message in call.messages]
        for number, message in enumerate(call.messages):
            place = f"messages.{number}"
            if message["role"] == "system":
                before = roles[number - 1] if number else None
                after = roles[number + 1] if number + 1 < len(roles) else "assistant"
                if call.family == ("sonnet", (5, 0)):
                    raise Refusal(f"{place}: system messages are not supported with this model.")
                if before not in ("user", "system") or after not in ("assistant", "system"):
                    raise Refusal(f"{place}: a system message follows a user turn and precedes an assistant's.")
            if "clear_at" in message:
                require(call, CLEAR_AT, f"{place}.clear_at")
            if "output_config" in message:
                require(call, MESSAGE_CONFIG, f"{place}.output_config")
            for block in message["content"]:
                if block["type"] in ("tool_addition", "tool_removal"):
                    require(call, TOOL_CHANGES, place)
                    if block["tool"]["type"] == "tool_definition":
                        require(call, INLINE_TOOLS, place)
        summaries = [
            (number, part, block)
            for number, message in enumerate(call.messages)
            for part, block in enumerate(message["content"])
            if block["type"] == "compaction" and self._compaction(block).messages is not None
        ]
        if len(summaries) > 1:
            raise compaction_refusal("ambiguous")
        for at, part, block in summaries:
            made = self._compaction(block).block
            if (at, part) != (0, 0):
                raise compaction_refusal("misplaced")
            if block.get("content") != made["content"]:
                raise compaction_refusal("content_mismatch")
            if block.get("tool_changes") != made["tool_changes"]:
                raise compaction_refusal("tool_changes_mismatch")

    def _compaction(self, block: Mapping[str, Any]) -> Compaction:
        if block.get("signature") not in self._compactions:
            raise compaction_refusal("signature_invalid")
        return self._compactions[str(block["signature"])]

    def _check_can_compact(self, call: _Call) -> None:
        if not self.compaction_available:
            raise compaction_refusal("unavailable", status=529, type="overloaded_error")
        blocks = [block for message in call.messages for block in message["content"]]
        if all(block["type"] == "compaction" for block in blocks):
            raise compaction_refusal("nothing_to_summarize")
        called = {block["id"] for block in blocks if block["type"] == "tool_use"}
        if called - {block["tool_use_id"] for block in blocks if block["type"] == "tool_result"}:
            raise compaction_refusal("incomplete_turn")

    def _effective(self, call: _Call) -> Json:
        effort, tools = request_effort(call.request), [tool.get("name") for tool in prefix_tools(call.request)]
        for message in call.messages:
            if message["role"] == "user" and any(block["type"] != "tool_result" for block in message["content"]):
                effort = request_effort(call.request)  # the setting of a message is for its turn
            effort = (message.get("output_config") or {}).get("effort", effort)
        for change in tool_changes(call.messages):
            is_added, name = change["type"] == "tool_addition", changed_tool(change)
            tools = [*(tool for tool in tools if tool != name), *([name] if is_added else [])]
        return {"effort": effort, "tools": tools}

    # -- signed thinking --------------------------------------------------------------------------

    def _check_thinking(self, call: _Call) -> Checked:
        seal, first_bound = self._binding_start(call)
        dropped: set[tuple[int, int]] = set()
        report: list[Json] = []
        before: dict[int, Seal] = {}
        behaviour = self._behaviour(call)
        for number, place, message, block in self._shown(call):
            before.setdefault(number, seal)
            if place == 0 and (extra := without(message, "role", "content")):
                seal = seal._replace(prefix=extend_digest(seal.prefix, canonical(extra)))
            if block["type"] in THINKING:
                path = f"messages.{number}.content.{place}"
                reason = self._mismatch(call, path, block, seal)
                if reason == PREFIX and behaviour == "error":
                    raise Refusal(BOUND_ELSEWHERE.format(path=path))
                if reason == PREFIX and behaviour == "allow":
                    report.append({"type": "thinking_mismatch_allowed", "path": path, "reason": reason})
                elif reason:
                    report.append({"type": "thinking_dropped", "path": path, "reason": reason})
                    dropped.add((number, place))
            if number >= first_bound:
                seal = self._extend(seal, message["role"], block)
        return Checked(dropped, report, seal, before)

    def _shown(self, call: _Call) -> Iterator[tuple[int, int, Json, Json]]:
        """The blocks with their places, from the latest compaction within a response on."""
        places = [(n, p, message, block) for n, message in enumerate(call.messages)
                  for p, block in enumerate(message["content"])]  # fmt: skip
        compacted = [
            position
            for position, (*_, block) in enumerate(places)
            if block["type"] == "compaction" and self._compaction(block).messages is None
        ]
        return iter(places[compacted[-1] if compacted else 0 :])

    def _binding_start(self, call: _Call) -> tuple[Seal, int]:
        """Return the prefix before the messages, and the number of the first message that adds to it.

        A tail that was kept unchanged behind the summary of what preceded it is still behind its own prefix.
        """
        system = [without(block, "cache_control") for block in system_blocks(call.request)]
        tools = [without(tool, "cache_control") for tool in prefix_tools(call.request)]
        start = extend_digest("", canonical([tools, system]))
        seal = Seal(call.organization, call.end_user, call.model, start, start)
        first = call.messages[0]["content"][0] if call.messages and call.messages[0]["content"] else {}
        made = self._compaction(first) if first.get("type") == "compaction" else None
        kept = call.messages[1:]
        if made is None or made.messages is None or made.start != start or not kept:
            return seal, 0
        both_check = call.family in CHECKED and model_family(made.model) in CHECKED
        if not both_check or kept[0]["role"] == call.messages[0]["role"]:
            return seal, 0
        for number in range(1, len(made.messages)):
            tail = made.messages[number:]
            if unmarked(kept[: len(tail)]) == unmarked(tail) and all(message["role"] != "system" for message in tail):
                before = made.before.get(number, seal)  # none, if a compaction within the tail starts it anew
                return seal._replace(prefix=before.prefix, earlier=before.earlier), 1
        return seal, 0

    def _extend(self, seal: Seal, role: str, block: Mapping[str, Any]) -> Seal:
        if block["type"] in THINKING:
            return seal._replace(earlier=(*seal.earlier, signature(block)))
        if block["type"] == "compaction":  # only what follows it binds
            seal = seal._replace(prefix=seal.start, earlier=())
        return seal._replace(prefix=extend_digest(seal.prefix, self._block_key(role, block)))

    def _block_key(self, role: str, block: Mapping[str, Any]) -> str:
        """The same bytes of an image under another URL are the same block."""
        block, source = without(block, "cache_control"), block.get("source") or {}
        if source.get("type") == "url":
            block["source"] = self.url_content.get(source["url"], source["url"])
        return canonical([role, block])

    def _behaviour(self, call: _Call) -> str:
        """Return the treatment of thinking after an edit: error, drop_block or allow."""
        binding = (call.request.get("thinking") or {}).get("block_binding") or {}
        asked = binding.get("prefix_mismatch_behavior")
        if asked:
            return str(asked)
        if call.is_batch:
            return "drop_block"
        is_new = self.account_created >= CHECKS_FROM
        return "error" if is_new or call.family[1] == (5, 2) else "allow"

    def _mismatch(self, call: _Call, path: str, block: Mapping[str, Any], present: Seal) -> str | None:
        seal = self._seals.get(signature(block))
        if seal is None:
            raise Refusal(f"{path}: Invalid `signature` in `thinking` block")
        if seal.organization != call.organization:
            return "organization_binding_mismatch"
        if seal.end_user != call.end_user:
            return "end_user_binding_mismatch"
        if not self._reads(seal.model, call.model):
            return "model_binding_mismatch"
        # Earlier thinking may be missing from the start only; thinking that was put back is not in the seal.
        kept_end = seal.earlier[len(seal.earlier) - len(present.earlier) :]
        is_same = (seal.prefix, kept_end) == (present.prefix, present.earlier)
        checks = call.family in CHECKED and model_family(seal.model) in CHECKED
        return PREFIX if checks and not is_same else None

    def _reads(self, made_by: str, asked: str) -> bool:
        (maker, version), (reader, own) = model_family(made_by), model_family(asked)
        rare = ("fable", "mythos")
        if made_by == asked:
            return True
        if maker in rare and version == (5, 2):
            return reader in rare and own == (5, 2)
        if (reader, own) == ("opus", (5, 5)) and maker not in rare and version <= (5, 0):
            return True
        if reader in rare and own == (5, 1) and (version < (5, 1) or (maker, version) == ("opus", (5, 5))):
            return self.platform == "claude"
        return self.unstated.reads(made_by, asked)

    def _content(
        self, call: _Call, reply: Sequence[Mapping[str, Any]] | None, tokens: int, checked: Checked
    ) -> tuple[list[Json], str]:
        """The content of the response, and its stop reason."""
        if "compaction" in call.request:
            return [self._compact(call, checked, call.messages)], "compaction"
        usual: list[Json] = [{"type": "text", "text": f"Answer {self._ids}."}]
        if (call.request.get("thinking") or {}).get("type") != "disabled":
            usual.insert(0, {"type": "thinking", "thinking": f"Thought {self._ids}.", "signature": ""})
        content = usual if reply is None else [dict(block) for block in reply]
        for edit in context_edits(call.request):
            trigger = (edit.get("trigger") or {}).get("value", COMPACTION_TRIGGER)
            if edit["type"] == "compact_20260112" and tokens > trigger:
                content.insert(0, self._compact(call, checked, None))
                if edit.get("pause_after_compaction"):
                    return content[:1], "compaction"
        return content, "tool_use" if any(block["type"] == "tool_use" for block in content) else "end_turn"

    def _compact(self, call: _Call, checked: Checked, summarized: list[Json] | None) -> Json:
        token, changes = self._new_id("compacted"), tool_changes(call.messages)
        block = {"type": "compaction", "content": f"Summary {token}.", "signature": token, "tool_changes": changes}
        self._compactions[token] = Compaction(block, call.model, checked.seal.start, summarized, checked.before)
        return block

    def _sign(self, block: Json, seal: Seal) -> Json:
        if block["type"] not in THINKING:
            return block
        token = self._new_id("signature")
        self._seals[token] = seal
        return {**block, "data" if block["type"] == "redacted_thinking" else "signature": token}

    def _new_id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}_{self._ids:06}"

    # -- the prompt and its cache -----------------------------------------------------------------

    def _render(self, call: _Call, dropped: Collection[tuple[int, int]]) -> list[Block]:
        """The prompt in order: tools, system, messages; before each, the settings whose change invalidates it."""
        request, content = call.request, [block for *_, block in self._shown(call)]
        tools = prefix_tools(request)
        blocks = [Block("", canonical(call.model))]
        blocks += [self._block("tools", "", tool) for tool in tools if not is_web_search(tool)]
        has_citations = any((block.get("citations") or {}).get("enabled") for block in content)
        blocks.append(Block("", canonical([request.get("speed"), has_citations])))
        blocks += [self._block("tools", "", tool) for tool in tools if is_web_search(tool)]
        blocks += [self._block("system", "", block) for block in system_blocks(request)]
        has_images = any('"type":"image"' in canonical(block) for block in content)
        blocks.append(Block("", canonical([has_images, message_settings(request)])))
        newest_user = max((n for n, message in enumerate(call.messages) if message["role"] == "user"), default=-1)
        for number, place, message, block in self._shown(call):
            is_cleared = message.get("clear_at") == "next_user_message" and number < newest_user
            if not is_cleared and (number, place) not in dropped:
                blocks.append(self._block("messages", message["role"], block))
        if automatic := request.get("cache_control"):
            last = max((n for n, block in enumerate(blocks) if block.tokens and block.is_cacheable), default=None)
            if last is not None and blocks[last].ttl is None:
                blocks[last] = blocks[last]._replace(ttl=automatic.get("ttl", "5m"))
        ttls = [block.ttl for block in blocks if block.ttl]
        if len(ttls) > MAX_BREAKPOINTS:
            raise Refusal(f"A maximum of 4 blocks with cache_control may be provided. Found {len(ttls)}.")
        if "5m" in ttls and "1h" in ttls[ttls.index("5m") :]:
            raise Refusal("cache_control: a ttl of '1h' must not come after a ttl of '5m'.")
        return blocks

    def _block(self, part: str, role: str, block: Mapping[str, Any]) -> Block:
        mark, content = block.get("cache_control"), without(block, "cache_control")
        tokens = self.count(without(content, "signature"))
        is_cacheable = block.get("type") not in THINKING
        ttl = mark.get("ttl", "5m") if mark else None
        return Block(part, self._block_key(role, block), max(1, tokens), ttl, is_cacheable)

    def _use_cache(self, call: _Call, blocks: Sequence[Block]) -> tuple[int, Json]:
        """The tokens read from the cache, and the tokens written, by ttl. The entries are updated."""
        scope = call.workspace if self.platform == "claude" else call.organization
        keys = [(scope, digest) for digest in accumulate((block.key for block in blocks), extend_digest)]
        tokens = list(accumulate(block.tokens for block in blocks))
        real = [number for number, block in enumerate(blocks) if block.tokens]
        marked = [place for place, number in enumerate(real) if blocks[number].ttl]
        minimum = MINIMUM_TOKENS.get(call.family, self.unstated.minimum_tokens)
        looked_at = {real[place] for mark in marked for place in range(max(0, mark - LOOKBACK), mark + 1)}
        cached = position = max((tokens[n] for n in looked_at if self._cache.find(keys[n], call.at)), default=0)
        for number in looked_at:
            if tokens[number] <= cached:
                self._cache.touch(keys[number], call.at)
        written: Json = {"5m": 0, "1h": 0}
        for number in (real[place] for place in marked):
            ttl = str(blocks[number].ttl)
            if tokens[number] < minimum or self._cache.find(keys[number], call.at):
                continue
            written[ttl] += max(0, tokens[number] - position)
            position = max(position, tokens[number])
            self._cache.write(keys[number], call.at, LIFE_S[ttl], self.response_begins_after_s)
        return cached, written

    def _bill(self, call: _Call, tokens: int, cached: int, written: Json, output: int) -> Bill:
        price = next(price for price in self.prices[call.model] if tokens <= price.up_to)
        uncached = tokens - cached - sum(written.values())
        inputs = uncached + cached * read_multiple(call) + sum(written[ttl] * WRITE[ttl] for ttl in written)
        cost = (inputs * price.input + output * price.output) / MILLION
        return Bill(uncached, cached, written["5m"], written["1h"], output, cost)

    def _diagnose(self, before: Asked | None, asked: Asked) -> Json | None:
        if self.unstated.pending:
            return {"cache_miss_reason": None}
        if before is None or before.organization != asked.organization:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        kind = None
        if before.model != asked.model:
            kind = "model"
        elif any(changed := [p for p in ("tools", "system") if before.keys(p) != asked.keys(p)]):
            kind = changed[0]
        elif before.settings != asked.settings:
            return {"cache_miss_reason": {"type": "unavailable"}}
        elif before.keys("messages") != asked.keys("messages")[: len(before.keys("messages"))]:
            kind = "messages"
        if kind is None:
            return None
        same = takewhile(lambda pair: pair[0].key == pair[1].key, zip(before.blocks, asked.blocks, strict=False))
        missed = sum(block.tokens for block in asked.blocks[len(list(same)) :])
        return {"cache_miss_reason": {"type": f"{kind}_changed", "cache_missed_input_tokens": missed}}


# -- the parts of a request -----------------------------------------------------------------------


def model_family(model: str) -> Family:
    match = re.search(r"claude-([a-z]+)-(\d+)(?:-(\d{1,2})(?!\d))?", model)
    return (match[1], (int(match[2]), int(match[3] or 0))) if match else ("", (0, 0))


def read_multiple(call: _Call) -> Decimal:
    name, version = call.family
    if name == "mythos" or (name == "fable" and version in ((5, 1), (5, 2))):
        return Decimal("0.025")
    is_cheaper = version == (5, 5) and name in ("opus", "sonnet") and call.at >= CHEAPER_READS_FROM
    return Decimal("0.05") if is_cheaper else Decimal("0.1")


def message_settings(request: Mapping[str, Any]) -> list[Any]:
    """The settings that are part of the prefix of the messages."""
    thinking = without(request.get("thinking") or {}, "block_binding")
    return [request.get("tool_choice"), thinking, request_effort(request)]


def blocks_of(message: Mapping[str, Any]) -> list[Json]:
    content = message.get("content") or []
    return [{"type": "text", "text": content}] if isinstance(content, str) else [dict(block) for block in content]


def system_blocks(request: Mapping[str, Any]) -> list[Json]:
    return blocks_of({"content": request.get("system")})


def prefix_tools(request: Mapping[str, Any]) -> list[Json]:
    """The tools in the prefix: a deferred one is not."""
    return [dict(tool) for tool in request.get("tools") or () if not tool.get("defer_loading")]


def context_edits(request: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (request.get("context_management") or {}).get("edits") or ()


def is_web_search(tool: Mapping[str, Any]) -> bool:
    return str(tool.get("type")).startswith("web_search")


def request_effort(request: Mapping[str, Any]) -> Any:
    return (request.get("output_config") or {}).get("effort", DEFAULT_EFFORT)


def tool_changes(messages: Sequence[Json]) -> list[Json]:
    """All additions and removals of tools, also those before a compaction."""
    blocks = [block for message in messages for block in message["content"]]
    changes = [block.get("tool_changes") or () if block["type"] == "compaction" else (block,) for block in blocks]
    return [change for some in changes for change in some if change["type"] in ("tool_addition", "tool_removal")]


def changed_tool(change: Mapping[str, Any]) -> Any:
    """The name of a tool that is added or removed, by reference or by definition."""
    tool = change["tool"]
    return tool["definition"]["name"] if tool["type"] == "tool_definition" else tool.get("name")


def signature(block: Mapping[str, Any]) -> str:
    return str(block.get("data") if block["type"] == "redacted_thinking" else block.get("signature"))


def unmarked(messages: Sequence[Json]) -> list[Json]:
    return [
        {**message, "content": [without(block, "cache_control") for block in message["content"]]}
        for message in messages
    ]


# -- refusals and the response --------------------------------------------------------------------


def require(call: _Call, beta: str, name: str) -> None:
    if beta not in call.betas:
        raise Refusal(f"{name}: Extra inputs are not permitted")


def compaction_refusal(code: str, **error: Any) -> Refusal:
    return Refusal(f"compaction: {code}", details={"error_code": f"compaction_{code}"}, **error)


def usage_object(bill: Bill) -> Json:
    return {
        "input_tokens": bill.uncached,
        "cache_read_input_tokens": bill.cached,
        "cache_creation_input_tokens": bill.written_5m + bill.written_1h,
        "cache_creation": {
            "ephemeral_5m_input_tokens": bill.written_5m,
            "ephemeral_1h_input_tokens": bill.written_1h,
        },
        "output_tokens": bill.output,
    }


def message_events(response: Json) -> list[Json]:
    """The events of a streamed response."""
    started = {**response, "content": [], "stop_reason": None, "usage": {**response["usage"], "output_tokens": 1}}
    events: list[Json] = [{"type": "message_start", "message": started}]
    for index, block in enumerate(response["content"]):
        deltas: list[Json] = []
        empty = block
        if block["type"] == "text":
            empty, deltas = {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]
        elif block["type"] == "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": f"{name}_delta", name: block[name]} for name in ("thinking", "signature")]
        elif block["type"] == "tool_use":
            empty = {**block, "input": {}}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        events.append({"type": "content_block_start", "index": index, "content_block": empty})
        events += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
        events.append({"type": "content_block_stop", "index": index})
    delta = {"stop_reason": response["stop_reason"], "stop_sequence": None}
    return [*events, {"type": "message_delta", "delta": delta, "usage": response["usage"]}, {"type": "message_stop"}]


def run_anthropic_server(rules: AnthropicRules, now: float) -> AbstractContextManager[RulesServer]:
    """Serve the model on loopback from the time `now` on. The API key is the organisation and the workspace."""

    def handle(server: RulesServer, received: Received, at: float) -> Json | Sequence[Json]:
        key = received.headers.get("x-api-key") or received.headers.get("authorization", "")
        caller: Json = {"organization": key, "workspace": key}
        caller["betas"] = received.headers.get("anthropic-beta", "").replace(" ", "").split(",")
        if received.path.endswith("/messages/count_tokens"):
            return {"input_tokens": rules.count_input(received.json, at, **caller)}
        if (received.method, received.path) != ("POST", "/v1/messages"):
            raise Refusal(f"Unknown route: {received.method} {received.path}", status=404, type="not_found_error")
        answer = rules.answer(received.json, at, reply=server.next_reply(), **caller)
        server.answers.append(answer)
        return message_events(answer.response) if received.json.get("stream") else answer.response

    return run_rules_server(handle, now)
