"""A Responses server that enforces OpenAI's published rules: prompt cache, sealed reasoning, compaction, bills.

`OpenAIRules` is the pure model: a request and its time give a response and its bill, or a Refusal. `run_openai_server`
puts HTTP around it. What no source states is a choice in `Unstated`, so that a test can run each possibility.
Tool outputs, images and files are data: the server counts and compares them, and calls nothing.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
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

Version = tuple[int, int]
Items = Sequence[Mapping[str, Any]]

MINIMUM_TOKENS = 1024
CONSIDERED = 80
LONG_INPUT = 272_000
MAX_INPUT, MAX_OUTPUT = 922_000, 128_000
LIFE_S = {"30m": 1800.0, "12h": 43_200.0}
IN_MEMORY_MAX_S = 3600.0
MODES = ("implicit", "explicit")
CAN_END_PREFIX = {"input_text", "input_image", "input_file"}
TIER_MULTIPLES = {"batch": Decimal("0.5"), "flex": Decimal("0.5"), "priority": Decimal(2), "fast": Decimal(2),
                  "ultrafast": Decimal(6)}  # fmt: skip
COMPACT_TIERS = {"auto", "default", "fast", "flex", "priority"}
INVALID_SEAL = "invalid_encrypted_content"
INSTRUCTIONS = '{"instructions":'
CONFIGURATION_REFUSED = "The 'configuration_update' item type is not supported with pro or tournament models."

_DEAD, _DECEMBER, _JANUARY, _APRIL = date(2026, 10, 23), date(2026, 12, 11), date(2027, 1, 14), date(2027, 4, 1)
SHUTDOWN = {
    **dict.fromkeys(
        ("gpt-4.1-nano", "o1", "o1-pro", "o3-mini", "o4-mini", "gpt-4", "gpt-4-turbo", "gpt-3.5-turbo"), _DEAD
    ),
    **dict.fromkeys(("gpt-5", "gpt-5-mini", "gpt-5-nano", "o3", "o3-pro", "gpt-5-pro"), _DECEMBER),
    **dict.fromkeys(("gpt-4o", "gpt-4o-mini", "gpt-4.1", "gpt-4.1-mini"), _JANUARY),
    **dict.fromkeys(("gpt-5.1", "gpt-5.4-nano"), _APRIL),
}


class Price(NamedTuple):
    """Dollars for a million tokens; cache reads and writes are multiples of `input`. A promotion lasts `until`."""

    input: Decimal
    output: Decimal
    until: date | None = None


@dataclass(frozen=True)
class Unstated:
    """Behaviour that no source states. The defaults are the simplest interpretation.

    considered:           breakpoints that a read considers: the latest 80, or those that the guide lists
    minimum_of:           whether the whole prompt or the prefix that is cached must have the minimum size
    readable_after_s:     from the request until its entry can be read by parallel requests
    kept_beyond_ttl_s:    the ttl is a minimum: how much longer entries live
    write_12h:            price of a write for 12 hours, as a multiple of input
    older_minimum:        minimum size before GPT-5.6, 1,024 to 2,048
    in_memory_idle_s:     life of an unused entry in memory before GPT-5.6, 5 to 10 minutes
    overflow_per_minute:  requests for one prefix after which the next ones reach another machine and miss
    diagnostics_life_s:   how long a response can be compared with
    binding_settings:     request settings whose change withholds later reasoning
    reasoning_binds:      whether removing an earlier reasoning item is an edit of the prefix
    reads:                whether a model is shown the reasoning of another one: (made by, asked) -> bool
    end_user_field:       the request field that names the end user
    hidden_in_usage:      whether the tokens of earlier reasoning are in the input count
    image_detail:         whether the detail of an image is in the cached prefix
    state_fields:         whether `store` and the use of `previous_response_id` are in it
    background_multiple:  the discount of `background_options`
    """

    considered: str = "latest"
    minimum_of: str = "prompt"
    readable_after_s: float = 0.0
    kept_beyond_ttl_s: float = 0.0
    write_12h: Decimal = Decimal("1.25")
    older_minimum: int = 1024
    in_memory_idle_s: float = 300.0
    overflow_per_minute: int | None = None
    diagnostics_life_s: float = 3600.0
    binding_settings: frozenset[str] = frozenset({"tools", "text.format"})
    reasoning_binds: bool = False
    reads: Callable[[str, str], bool] = lambda made_by, asked: made_by == asked
    end_user_field: str = "safety_identifier"
    hidden_in_usage: bool = True
    image_detail: bool = True
    state_fields: bool = False
    background_multiple: Decimal = Decimal(1)


class Bill(NamedTuple):
    """Tokens of one request by price, and what it costs in dollars. Each input token is in exactly one count."""

    uncached: int
    cached: int
    written_30m: int
    written_12h: int
    output: int
    tier: str
    cost: Decimal


class Answer(NamedTuple):
    """`effective`: the effort, text format and names of additional tools in force for this response."""

    response: Json
    bill: Bill
    effective: Json


class Piece(NamedTuple):
    """A part of the rendered prompt. `place`: it may end a cached prefix, explicit or implicit."""

    key: str
    tokens: int = 0
    hidden: bool = False
    place: str = ""
    ttl: str | None = None
    ends_first_developer_block: bool = False


class Boundary(NamedTuple):
    """The end of a piece: the digest and the tokens of the prompt up to it."""

    digest: str
    tokens: int
    visible: int
    piece: Piece


class Seal(NamedTuple):
    """The prefix and the settings to which a reasoning item is bound."""

    organization: str
    end_user: str | None
    model: str
    prefix: str
    tokens: int


class Compaction(NamedTuple):
    """`in_place`: made within a response. The items before it are not shown, and their updates stay in force."""

    in_place: bool
    updates: Json


class Sent(NamedTuple):
    """The parts of a response that diagnostics compare; `settings` in the order in which they are reported."""

    organization: str
    at: float
    completed: bool
    settings: Mapping[str, Any]
    pieces: Sequence[Piece]
    compactions: frozenset[str]
    tier: str


@dataclass
class _Call:
    """One request while it is answered."""

    request: Mapping[str, Any]
    at: float
    organization: str
    region: str
    items: list[Json]
    model: str = field(init=False)
    version: Version = field(init=False)

    def __post_init__(self) -> None:
        self.model = str(self.request.get("model"))
        self.version = model_version(self.model)


class OpenAIRules:
    """The server's state: cache entries, sealed items, stored responses.

    prices:  for each model, its prices in order of their end
    tiers:   the tier that serves a requested one, also a lower one; "auto" is the setting of the project
    zdr:     whether the organisation retains no data
    """

    def __init__(
        self, prices: Mapping[str, Sequence[Price]], *, count: Tokenizer = count_tokens,
        unstated: Unstated | None = None, tiers: Mapping[str, str] | None = None, zdr: bool = False,
        diagnostics_enabled: bool = True,
    ) -> None:  # fmt: skip
        self.prices, self.count, self.unstated = prices, count, unstated or Unstated()
        self.tiers = {"auto": "default", "fast": "priority", **(tiers or {})}
        self.zdr, self.diagnostics_enabled = zdr, diagnostics_enabled
        self._cache = PromptCache()
        self._seals: dict[str, Seal] = {}
        self._compactions: dict[str, Compaction] = {}
        self._stored: dict[str, tuple[str, list[Json]]] = {}
        self._sent: dict[str, Sent] = {}
        self._request_times: dict[tuple[str, ...], list[float]] = {}
        self._ids = 0

    def models(self, at: float) -> list[Json]:
        """The rows of the model list, with the date on which a model is shut down."""
        names = [name for name in {**self.prices, **SHUTDOWN} if not is_shut_down(name, at)]
        dates = {name: SHUTDOWN[name].isoformat() if name in SHUTDOWN else None for name in names}
        return [{"id": name, "object": "model", "shutdown_date": dates[name]} for name in names]

    def answer(
        self, request: Mapping[str, Any], at: float, *, organization: str = "org", region: str = "us",
        reply: Items | None = None,
    ) -> Answer:  # fmt: skip
        """Answer a request made at `at` (seconds). `reply`: output items; a reasoning item may say its `tokens`."""
        call = self._receive(request, at, organization, region)
        options = request.get("prompt_cache_options") or {}
        kept, removed, prefix = self._check_reasoning(call)
        pieces = self._render(call, kept)
        tier = self._served_tier(request)
        cached, written = self._use_cache(call, pieces, options)
        updates = self._updates(call)
        tokens = sum(piece.tokens for piece in pieces)
        if call.version >= (6, 2) and tokens > MAX_INPUT:
            raise Refusal("Your input exceeds the context window of this model.", code="context_length_exceeded")
        output = self._output(call, reply, tokens, updates)
        sealed = self._seal(call, output, prefix)
        counts = sum(self._tokens_of(item) for item in sealed)
        limit = request.get("max_output_tokens")
        billed = counts if limit is None else min(counts, limit)
        completed = billed == counts
        bill = self._bill(call, tokens, cached, written, billed, tier)
        sent = self._record(call, pieces, tier, completed=completed)
        response: Json = {
            **echo(request),
            "id": self._new_id("resp"),
            "object": "response",
            "created_at": int(at),
            "status": "completed" if completed else "incomplete",
            "error": None,
            "incomplete_details": None if completed else {"reason": "max_output_tokens"},
            "output": sealed,
            "service_tier": tier,
            "input_transformations": removed,
            "usage": usage_object(call, bill, sealed, self._tokens_of),
        }
        if call.version >= (5, 6):
            applied = {"mode": options.get("mode", "implicit"), "ttl": options.get("ttl", "30m")}
            compared = options.get("comparison_response_id")
            response["prompt_cache_options"] = applied | ({"comparison_response_id": compared} if compared else {})
            if compared and self.diagnostics_enabled:
                response["prompt_cache_diagnostics"] = self._diagnose(self._sent.get(compared), sent, cached)
        self._sent[response["id"]] = sent
        if request.get("store", True):
            self._stored[response["id"]] = (organization, [*call.items, *sealed])
        effective = {"effort": effort(request), "format": text_format(request), "tools": [], **updates}
        return Answer(response, bill, effective)

    def compact(
        self, request: Mapping[str, Any], at: float, *, organization: str = "org", region: str = "us"
    ) -> Answer:
        """Compact a history: the user messages, then one compaction item."""
        options = request.get("prompt_cache_options") or {}
        for name in {*options} - {"mode", "ttl"}:
            raise Refusal(f"Unknown parameter: 'prompt_cache_options.{name}'.", code="unknown_parameter")
        if options.get("ttl", "30m") != "30m":
            raise Refusal("Invalid value: 'prompt_cache_options.ttl'. Supported values are: '30m'.")
        if request.get("service_tier", "auto") not in COMPACT_TIERS:
            raise Refusal("Invalid value: 'service_tier'.")
        call = self._receive(request, at, organization, region)
        kept, _, _ = self._check_reasoning(call)
        pieces = self._render(call, kept)
        asked = request.get("service_tier", "auto")
        tier = "fast" if asked == "fast" else self._served_tier(request)
        cached, written = self._use_cache(call, pieces, options)
        item = self._compaction_item(in_place=False, updates={})
        output = [dict(item) for item in kept if item.get("role") == "user"] + [item]
        tokens = sum(piece.tokens for piece in pieces)
        bill = self._bill(call, tokens, cached, written, self._tokens_of(item), tier)
        usage = usage_object(call, bill, [item], self._tokens_of)
        response = {"id": self._new_id("resp"), "object": "response.compaction", "created_at": int(at)}
        return Answer({**response, "output": output, "usage": usage}, bill, {})

    def count_input(self, request: Mapping[str, Any], at: float, *, organization: str = "org") -> int:
        call = self._receive(request, at, organization, "us")
        kept, _, _ = self._check_reasoning(call)
        return sum(piece.tokens for piece in self._render(call, kept))

    # -- the request ------------------------------------------------------------------------------

    def _receive(self, request: Mapping[str, Any], at: float, organization: str, region: str) -> _Call:
        given = request.get("input") or []
        items = [{"role": "user", "content": given}] if isinstance(given, str) else [dict(item) for item in given]
        previous = request.get("previous_response_id")
        if previous is not None:
            owner, history = self._stored.get(previous, ("", []))
            if owner != organization:
                raise Refusal(f"Previous response with id '{previous}' not found.", code="previous_response_not_found")
            items = [*history, *items]
        call = _Call(request, at, organization, region, self._shown_items(items))
        if call.model not in self.prices or is_shut_down(call.model, at):
            raise Refusal(f"The model '{call.model}' does not exist.", status=404, code="model_not_found")
        check_request(call)
        return call

    def _shown_items(self, items: Sequence[Json]) -> list[Json]:
        """The items from the latest compaction within a response on: those before it may be left out."""
        in_place = [number for number, item in enumerate(items) if self._compaction(item).in_place]
        return list(items[in_place[-1] :]) if in_place else list(items)

    def _compaction(self, item: Mapping[str, Any]) -> Compaction:
        if item.get("type") != "compaction":
            return Compaction(in_place=False, updates={})
        if item.get("encrypted_content") not in self._compactions:
            raise Refusal("The encrypted content of a compaction could not be verified.", code=INVALID_SEAL)
        return self._compactions[item["encrypted_content"]]

    def _updates(self, call: _Call) -> Json:
        """Return the settings after all configuration updates and additional tools; the request has the baseline."""
        updates: Json = {}
        for item in call.items:
            if item.get("type") == "configuration_update":
                updates |= {"effort": item["reasoning"].get("effort")} if "reasoning" in item else {}
                updates |= {"format": item["text"]["format"]} if "text" in item else {}
            elif item.get("type") == "additional_tools":
                updates["tools"] = [*updates.get("tools", ()), *(tool.get("name") for tool in item["tools"])]
            elif self._compaction(item).in_place:
                updates = dict(self._compaction(item).updates)
        return updates

    def _served_tier(self, request: Mapping[str, Any]) -> str:
        asked = request.get("service_tier") or "auto"
        return self.tiers.get(asked, asked)

    # -- sealed reasoning -------------------------------------------------------------------------

    def _check_reasoning(self, call: _Call) -> tuple[list[Json], list[Json], str]:
        """The items that the model is shown, the report of those that it is not, and the digest of the prefix."""
        removed, kept, prefix = [], [], self._binding_start(call)
        newest_user = max((n for n, item in enumerate(call.items) if item.get("role") == "user"), default=-1)
        for number, item in enumerate(call.items):
            reason = None
            if item.get("type") == "reasoning":
                reason = self._mismatch(call, item, prefix, is_earlier_turn=number < newest_user)
            if reason:
                entry = {"id": item.get("id"), "type": "reasoning", "action": "removed", "reason": reason}
                removed.append(entry)
            else:
                kept.append(item)
            prefix = self._extend_binding(call, prefix, item)
        return kept, removed, prefix

    def _mismatch(self, call: _Call, item: Json, prefix: str, *, is_earlier_turn: bool) -> str | None:
        seal = self._seals.get(item.get("encrypted_content") or str(item.get("id")))
        if seal is None:
            raise Refusal(f"The encrypted content for item {item.get('id')} could not be verified.", code=INVALID_SEAL)
        if seal.organization != call.organization:
            return "organization_mismatch"
        if seal.end_user != call.request.get(self.unstated.end_user_field):
            return "end_user_mismatch"
        if seal.model != call.model and not self.unstated.reads(seal.model, call.model):
            return "model_mismatch"
        if call.version >= (6, 2) and seal.prefix != prefix:
            return "prefix_mismatch"
        return "turn_boundary" if is_earlier_turn and reasoning_context(call) == "current_turn" else None

    def _binding_start(self, call: _Call) -> str:
        settings = prefix_settings(call.request)
        return canonical({name: settings[name] for name in sorted(self.unstated.binding_settings)})

    def _extend_binding(self, call: _Call, prefix: str, item: Json) -> str:
        if item.get("type") == "compaction":  # reasoning after OpenAI's own compaction is kept: only what follows binds
            prefix = self._binding_start(call)
        if item.get("type") == "reasoning" and not self.unstated.reasoning_binds:
            return prefix
        return extend_digest(prefix, canonical(normal_item(item)))

    def _output(self, call: _Call, reply: Items | None, tokens: int, updates: Json) -> list[Json]:
        if (call.request.get("prompt_cache_options") or {}).get("prewarm"):
            return []
        managed = call.request.get("context_management") or ()
        triggered = bool(call.items) and call.items[-1].get("type") == "compaction_trigger"
        compaction: list[Json] = []
        if triggered or any(tokens > entry.get("compact_threshold", MAX_INPUT) for entry in managed):
            compaction = [self._compaction_item(in_place=True, updates=updates)]
        if triggered:
            return compaction
        text = [{"type": "output_text", "text": f"Answer {self._ids}.", "annotations": []}]
        usual: list[Json] = [{"type": "message", "role": "assistant", "status": "completed", "content": text}]
        if updates.get("effort", effort(call.request)) not in ("none", "minimal"):
            usual.insert(0, {"type": "reasoning", "summary": []})
        return [*compaction, *(dict(item) for item in (usual if reply is None else reply))]

    def _seal(self, call: _Call, output: Sequence[Json], prefix: str) -> list[Json]:
        """Give each item its id, and bind each reasoning item to what precedes it."""
        sealed = []
        for item in output:
            kind = {"message": "msg", "reasoning": "rs", "function_call": "fc", "compaction": "cmp"}
            own = {**without(item, "tokens"), "id": self._new_id(kind.get(item["type"], "item"))}
            if item["type"] == "reasoning":
                end_user = call.request.get(self.unstated.end_user_field)
                seal = Seal(call.organization, end_user, call.model, prefix, item.get("tokens", 100))
                own["encrypted_content"] = f"sealed-{own['id']}"
                self._seals[own["encrypted_content"]] = self._seals[own["id"]] = seal
            prefix = self._extend_binding(call, prefix, own)
            sealed.append(own)
        return sealed

    def _compaction_item(self, *, in_place: bool, updates: Json) -> Json:
        token = self._new_id("compacted")
        self._compactions[token] = Compaction(in_place, updates)
        return {"type": "compaction", "id": f"cmp_{token}", "encrypted_content": token}

    def _new_id(self, kind: str) -> str:
        self._ids += 1
        return f"{kind}_{self._ids:06}"

    # -- the prompt and its cache -----------------------------------------------------------------

    def _render(self, call: _Call, items: Sequence[Json]) -> list[Piece]:
        """The prompt in order: settings, tools, instructions (from GPT-6.2 on last), items."""
        settings = {"model": call.model, **without(prefix_settings(call.request), "tools")}
        if self.unstated.state_fields:
            settings["state"] = [call.request.get("store", True), "previous_response_id" in call.request]
        pieces = [Piece(canonical(settings))]
        tools = prefix_tools(call.request)
        pieces += [Piece(canonical(tool), self.count(tool)) for tool in tools]
        instructions = call.request.get("instructions")
        own = [Piece(canonical({"instructions": instructions}), self.count(instructions))] if instructions else []
        if call.version < (6, 2):
            pieces += own
        first_developer = next((n for n, item in enumerate(items) if is_developer(item)), -1)
        while 0 <= first_developer < len(items) - 1 and is_developer(items[first_developer + 1]):
            first_developer += 1
        for number, item in enumerate(items):
            following = items[number + 1] if number + 1 < len(items) else {}
            ends_outputs = is_tool_output(item) and not is_tool_output(following)
            is_place = item.get("role") == "user" or ends_outputs or number == first_developer
            pieces += self._item_pieces(item, is_place, number == first_developer)
        return pieces if call.version < (6, 2) else pieces + own

    def _item_pieces(self, item: Json, is_place: bool, ends_first_developer_block: bool) -> list[Piece]:
        place, normal = "implicit" if is_place else "", normal_item(item)
        if item.get("type") == "reasoning":
            return [Piece(canonical(normal), self._tokens_of(item) * self.unstated.hidden_in_usage, hidden=True)]
        name = "output" if is_tool_output(item) else "content"
        end = Piece(canonical(normal), self.count(normal), False, place, None, ends_first_developer_block)
        if not isinstance(normal.get(name), list):
            return [end]
        head, pieces = canonical(without(normal, name)), []
        marks = [part.get("prompt_cache_breakpoint") for part in item[name]] if isinstance(item[name], list) else [None]
        for part, mark in zip(normal[name], marks, strict=True):
            if part.get("type") == "input_image" and not self.unstated.image_detail:
                part = without(part, "detail")
            key = head + canonical(part)
            pieces.append(Piece(key, self.count(part), False, "explicit" if mark else "", (mark or {}).get("ttl")))
        return [*pieces, end._replace(key=f"{head} end", tokens=0)]

    def _tokens_of(self, item: Mapping[str, Any]) -> int:
        if item.get("type") == "reasoning":
            return self._seals[item.get("encrypted_content") or item["id"]].tokens
        return self.count(without(item, "id", "encrypted_content"))

    def _use_cache(self, call: _Call, pieces: Sequence[Piece], options: Mapping[str, Any]) -> tuple[int, Json]:
        """The tokens read from the cache, and the tokens written, by ttl. The entries are updated."""
        boundaries = prompt_boundaries(pieces)
        visible = boundaries[-1].visible
        key = str(call.request.get("prompt_cache_key")) if call.version < (5, 6) else ""
        scope = (call.organization, call.region, key)
        overflows = self._overflows((*scope, call.model), call.at)
        if call.version < (5, 6):
            return self._use_older_cache(call, scope, boundaries, overflows), {}
        places = [
            b for b in boundaries if b.piece.place == "explicit" or (b.piece.place and not explicit_mode(options))
        ]
        if self.unstated.minimum_of == "prefix":
            places = [place for place in places if place.visible >= MINIMUM_TOKENS]
        elif visible < MINIMUM_TOKENS:
            return 0, {}
        readable = [place for place in self._considered(places) if self._cache.find((*scope, place.digest), call.at)]
        cached = position = 0 if overflows else max((place.tokens for place in readable), default=0)
        for place in places:
            if place.tokens <= cached:
                self._cache.touch((*scope, place.digest), call.at)
        written: Json = {"30m": 0, "12h": 0}
        for place in written_places(places, explicit_mode(options)):
            ttl = place.piece.ttl or options.get("ttl") or "30m"
            written[ttl] += max(0, place.tokens - position)
            position = max(position, place.tokens)
            if place.tokens > cached or not self._cache.find((*scope, place.digest), call.at):
                life_s = LIFE_S[ttl] + self.unstated.kept_beyond_ttl_s
                self._cache.write((*scope, place.digest), call.at, life_s, self.unstated.readable_after_s)
        return cached, written

    def _use_older_cache(
        self, call: _Call, scope: tuple[str, ...], boundaries: Sequence[Boundary], overflows: bool
    ) -> int:
        """Before GPT-5.6 each prefix is an entry, writes are free, and the count of cached tokens is rounded down."""
        if boundaries[-1].visible < self.unstated.older_minimum:
            return 0
        retention = call.request.get("prompt_cache_retention") or ("in_memory" if self.zdr else "24h")
        in_memory = retention == "in_memory" and call.version < (5, 5)
        matched = 0
        for place in boundaries:
            key = (*scope, place.digest)
            if self._cache.find(key, call.at):
                matched = place.visible
                self._cache.touch(key, call.at, IN_MEMORY_MAX_S if in_memory else math.inf)
            else:
                life_s = self.unstated.in_memory_idle_s if in_memory else LIFE_S["30m"]
                self._cache.write(key, call.at, life_s, self.unstated.readable_after_s)
        step = 2048 if call.version == (5, 5) else 128
        return 0 if overflows else matched // step * step

    def _considered(self, places: Sequence[Boundary]) -> list[Boundary]:
        if self.unstated.considered == "latest":
            return list(places[-CONSIDERED:])
        explicit = [place for place in places if place.piece.place == "explicit"]
        implicit = [place for place in places if place.piece.place == "implicit"]
        first_block = [place for place in implicit if place.piece.ends_first_developer_block]
        return [*explicit[:2], *explicit[-50:], *implicit[-21:], *first_block]

    def _overflows(self, machine: tuple[str, ...], at: float) -> bool:
        times = [time for time in self._request_times.get(machine, ()) if time > at - 60] + [at]
        self._request_times[machine] = times
        return self.unstated.overflow_per_minute is not None and len(times) > self.unstated.overflow_per_minute

    # -- diagnostics and the bill -----------------------------------------------------------------

    def _record(self, call: _Call, pieces: Sequence[Piece], tier: str, *, completed: bool) -> Sent:
        settings = prefix_settings(call.request)
        compared = {
            "model_changed": call.model,
            "prompt_cache_key_changed": call.request.get("prompt_cache_key"),
            "tools_changed": settings["tools"],
            "text_format_changed": settings["text.format"],
            "reasoning_effort_changed": settings["reasoning.effort"],
            "verbosity_changed": settings["text.verbosity"],
        }
        compactions = frozenset(i["encrypted_content"] for i in call.items if i.get("type") == "compaction")
        prefix = [piece for piece in pieces if not piece.key.startswith(INSTRUCTIONS)]  # no reason exists for them
        return Sent(call.organization, call.at, completed, compared, prefix, compactions, tier)

    def _diagnose(self, before: Sent | None, sent: Sent, cached: int) -> Json:
        if (
            before is None
            or not before.completed
            or before.organization != sent.organization
            or sent.at - before.at > self.unstated.diagnostics_life_s
        ):
            return {"type": "comparison_response_not_found"}
        same = takewhile(lambda pair: pair[0].key == pair[1].key, zip(before.pieces, sent.pieces, strict=False))
        common = len(list(same))
        reasons = [name for name, value in sent.settings.items() if before.settings[name] != value]
        if not reasons and 0 < common < len(before.pieces):
            reasons = ["context_compacted" if sent.compactions - before.compactions else "input_changed"]
        if before.tier != sent.tier:
            reasons.append("service_tier_changed")
        if not reasons:
            # No reason exists for instructions, ttl, a prompt below the minimum, breakpoints or another machine.
            return {"type": "cache_hit" if cached else "unavailable"}
        reusable = sum(piece.tokens for piece in before.pieces[:common])
        missed = sum(piece.tokens for piece in sent.pieces) - reusable
        counts = {"cache_missed_tokens": missed, "comparison_reusable_tokens": reusable}
        return {"type": "cache_miss", "reason": reasons[0], **counts}

    def _bill(self, call: _Call, tokens: int, cached: int, written: Json, output: int, tier: str) -> Bill:
        """The whole request has one tier, and above the limit of long inputs one higher price."""
        price = next(p for p in self.prices[call.model] if p.until is None or utc_date(call.at) <= p.until)
        read = Decimal("0.05") if call.version >= (6, 1) else Decimal("0.1")
        soon, late = written.get("30m", 0), written.get("12h", 0)
        uncached = tokens - cached - soon - late
        inputs = uncached + cached * read + soon * Decimal("1.25") + late * self.unstated.write_12h
        is_long = tokens > LONG_INPUT
        dollars = inputs * price.input * (2 if is_long else 1)
        dollars += output * price.output * (Decimal("1.5") if is_long else 1)
        dollars *= TIER_MULTIPLES.get(tier, Decimal(1))
        if "background_options" in call.request:
            dollars *= self.unstated.background_multiple
        return Bill(uncached, cached, soon, late, output, tier, dollars / MILLION)


# -- the parts of a request -----------------------------------------------------------------------


def model_version(model: str) -> Version:
    match = re.match(r"gpt-(\d+)(?:\.(\d+))?", model)
    return (int(match[1]), int(match[2] or 0)) if match else (0, 0)


def utc_date(at: float) -> date:
    return datetime.fromtimestamp(at, UTC).date()


def is_shut_down(model: str, at: float) -> bool:
    return model in SHUTDOWN and utc_date(at) >= SHUTDOWN[model]


def effort(request: Mapping[str, Any]) -> Any:
    return (request.get("reasoning") or {}).get("effort")


def text_format(request: Mapping[str, Any]) -> Any:
    return (request.get("text") or {}).get("format") or {"type": "text"}


def reasoning_context(call: _Call) -> str:
    asked = (call.request.get("reasoning") or {}).get("context", "auto")
    usual = "all_turns" if call.version >= (5, 6) else "current_turn"
    return usual if asked == "auto" else str(asked)


def prefix_tools(request: Mapping[str, Any]) -> list[Json]:
    """The tools in the prefix: a deferred one is not."""
    return [dict(tool) for tool in request.get("tools") or () if not tool.get("defer_loading")]


def prefix_settings(request: Mapping[str, Any]) -> Json:
    """The settings that are part of the prefix; `tool_choice` is not."""
    return {
        "tools": prefix_tools(request),
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "text.format": text_format(request),
        "reasoning.effort": effort(request),
        "text.verbosity": (request.get("text") or {}).get("verbosity", "medium"),
        "context_management": request.get("context_management") or [],
    }


def explicit_mode(options: Mapping[str, Any]) -> bool:
    return options.get("mode") == "explicit"


def is_developer(item: Mapping[str, Any]) -> bool:
    return item.get("role") in ("developer", "system")


def is_tool_output(item: Mapping[str, Any]) -> bool:
    return str(item.get("type")).endswith("_output")


def normal_item(item: Mapping[str, Any]) -> Json:
    """The item without what the model is not shown: two items with the same normal form are the same prompt."""
    normal = {"type": "message", **without(item, "id", "status")}
    if isinstance(normal.get("content"), str):
        kind = "output_text" if normal.get("role") == "assistant" else "input_text"
        normal["content"] = [{"type": kind, "text": normal["content"]}]
    for name in ("content", "output"):
        if isinstance(normal.get(name), list):
            parts = normal[name]
            normal[name] = [without(part, "annotations", "logprobs", "prompt_cache_breakpoint") for part in parts]
    return normal


def prompt_boundaries(pieces: Sequence[Piece]) -> list[Boundary]:
    digests = accumulate((piece.key for piece in pieces), extend_digest)
    tokens = accumulate(piece.tokens for piece in pieces)
    visible = accumulate(0 if piece.hidden else piece.tokens for piece in pieces)
    return [Boundary(*one) for one in zip(digests, tokens, visible, pieces, strict=True)]


def written_places(places: Sequence[Boundary], explicit_only: bool) -> list[Boundary]:
    """Four writes a request: the latest four explicit ones, or the last implicit and the latest three explicit ones."""
    explicit = [place for place in places if place.piece.place == "explicit"]
    if explicit_only:
        return explicit[-4:]
    implicit = [place for place in places if place.piece.place == "implicit"]
    return sorted([*implicit[-1:], *explicit[-3:]], key=lambda place: place.tokens)


def check_request(call: _Call) -> None:
    """Raise Refusal for what the model does not accept."""
    request, options = call.request, call.request.get("prompt_cache_options")
    if request.get("conversation") is not None:
        raise Refusal("This server has no conversations.", param="conversation")
    if options is not None and call.version < (5, 6):
        raise Refusal("Unsupported parameter: 'prompt_cache_options' is not supported with this model.")
    if options and (options.get("ttl", "30m") not in LIFE_S or options.get("mode", "implicit") not in MODES):
        raise Refusal("Invalid value: 'prompt_cache_options'.")
    if request.get("prompt_cache_retention") == "in_memory" and call.version >= (5, 5):
        raise Refusal("Invalid value: 'prompt_cache_retention'. Supported values are: '24h'.")
    if any(entry.get("type") != "compaction" for entry in request.get("context_management") or ()):
        raise Refusal("Invalid value: 'context_management'. Supported types are: 'compaction'.")
    if "background_options" in request:
        standard = request.get("service_tier", "default") in ("auto", "default")
        if not request.get("background") or request.get("stream") or not standard:
            raise Refusal("'background_options' requires 'background', the standard tier and no streaming.")
    check_items(call)
    if call.version >= (6, 2):
        check_6_2(call)


def check_items(call: _Call) -> None:
    is_pro = (call.request.get("reasoning") or {}).get("mode") == "pro"
    for number, item in enumerate(call.items):
        kind = item.get("type")
        if kind == "configuration_update" and is_pro:
            raise Refusal(CONFIGURATION_REFUSED)
        if kind == "additional_tools" and item.get("role") != "developer":
            raise Refusal(f"Invalid value: 'input[{number}].role'. Supported values are: 'developer'.")
        if kind == "compaction_trigger" and number < len(call.items) - 1:
            raise Refusal(f"'input[{number}]': a 'compaction_trigger' must be the last input item.")
        content = item.get("output" if is_tool_output(item) else "content")
        parts = content if isinstance(content, list) else []
        for part in (item, *parts, *item.get("tools", ())):
            mark = part.get("prompt_cache_breakpoint")
            if mark and (part.get("type") not in CAN_END_PREFIX or mark.get("mode") != "explicit"):
                raise Refusal(f"'input[{number}]': invalid 'prompt_cache_breakpoint'.")


def check_6_2(call: _Call) -> None:
    request = call.request
    updates = [item for item in call.items if item.get("type") == "configuration_update"]
    for one in (request, *updates):
        if effort(one) in ("none", "minimal"):
            raise Refusal(f"Unsupported value: 'reasoning.effort' does not support '{effort(one)}' with this model.")
    for name in ("temperature", "top_p", "top_logprobs"):
        if request.get(name) is not None:
            raise Refusal(f"Unsupported parameter: '{name}' is not supported with this model.", param=name)
    if "message.output_text.logprobs" in (request.get("include") or ()):
        raise Refusal("Unsupported parameter: 'include' of logprobs is not supported with this model.")
    if (request.get("max_output_tokens") or 0) > MAX_OUTPUT:
        raise Refusal(f"'max_output_tokens' is above {MAX_OUTPUT}.", param="max_output_tokens")


# -- the response ---------------------------------------------------------------------------------


def echo(request: Mapping[str, Any]) -> Json:
    """The fields that a response repeats. Effort and format are the baseline, whatever an item has updated."""
    usual: Json = dict.fromkeys(("instructions", "previous_response_id", "prompt_cache_key", "temperature", "top_p"))
    usual |= {"metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    reasoning = {"effort": None, "summary": None, **(request.get("reasoning") or {})}
    text = {"format": text_format(request), **(request.get("text") or {})}
    given = {name: request[name] for name in (*usual, "model", "store", "background") if name in request}
    return {**usual, **given, "reasoning": reasoning, "text": text}


def usage_object(call: _Call, bill: Bill, output: Items, tokens_of: Callable[[Mapping[str, Any]], int]) -> Json:
    written = bill.written_30m + bill.written_12h
    inputs = bill.uncached + bill.cached + written
    details: Json = {"cached_tokens": bill.cached, "cache_write_tokens": written}
    if call.version >= (5, 6):
        split = {"ttl_30m_tokens": bill.written_30m, "ttl_12h_tokens": bill.written_12h}
        details["cache_write_tokens_details"] = split
    reasoning = sum(tokens_of(item) for item in output if item["type"] == "reasoning")
    return {
        "input_tokens": inputs,
        "input_tokens_details": details,
        "output_tokens": bill.output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": inputs + bill.output,
    }


def response_events(response: Json) -> list[Json]:
    """The events of a streamed response. The sealed content is final only in `output_item.done`."""
    started = {**response, "status": "in_progress", "output": [], "usage": None, "completed_at": None}
    started = without(started, "prompt_cache_diagnostics")
    events: list[Json] = [{"type": f"response.{name}", "response": started} for name in ("created", "in_progress")]
    for index, item in enumerate(response["output"]):
        place = {"item_id": item["id"], "output_index": index}
        early = {**item, "status": "in_progress"}
        if item["type"] == "message":
            early["content"] = []
        if "encrypted_content" in item:
            early["encrypted_content"] = f"{item['encrypted_content']}-unfinished"
        events.append({"type": "response.output_item.added", "output_index": index, "item": early})
        for number, part in enumerate(item["content"] if item["type"] == "message" else ()):
            at = {**place, "content_index": number}
            events += [
                {"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
                {"type": "response.output_text.delta", **at, "delta": part["text"], "logprobs": []},
                {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []},
                {"type": "response.content_part.done", **at, "part": part},
            ]
        if item["type"] == "function_call":
            early["arguments"] = ""
            events += [
                {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]},
                {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]},
            ]
        events.append({"type": "response.output_item.done", "output_index": index, "item": item})
    events.append({"type": f"response.{response['status']}", "response": response})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def run_openai_server(rules: OpenAIRules, now: float) -> AbstractContextManager[RulesServer]:
    """Serve the model on loopback from the time `now` on. The organisation is the header, or the API key."""

    def handle(server: RulesServer, received: Received, at: float) -> Json | Sequence[Json]:
        headers = received.headers
        organization = headers.get("openai-organization") or headers.get("authorization", "")
        if received.path.endswith("/models"):
            return {"object": "list", "data": rules.models(at)}
        if received.path.endswith("/responses/compact"):
            answer = rules.compact(received.json, at, organization=organization)
        elif (received.method, received.path) == ("POST", "/v1/responses"):
            answer = rules.answer(received.json, at, organization=organization, reply=server.next_reply())
        elif received.path.endswith("/responses/input_tokens"):
            tokens = rules.count_input(received.json, at, organization=organization)
            return {"object": "response.input_tokens", "input_tokens": tokens}
        else:
            raise Refusal(f"Unknown route: {received.method} {received.path}", status=404)
        server.answers.append(answer)
        return response_events(answer.response) if received.json.get("stream") else answer.response

    return run_rules_server(handle, now)
