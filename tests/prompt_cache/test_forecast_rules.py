"""Forecasts agree with servers that enforce the vendors' published rules, in random sequences of requests.

Each drop, each refusal and each loss of cached tokens is forecast; what is forecast as certain happens; a request that
only appends has none. This is agreement with the pages of the vendors, not with the vendors.
"""

import json
import random
from collections.abc import Callable, Sequence
from copy import copy
from decimal import Decimal
from typing import Any

import pytest

from convo.history.items import SUMMARY_HEADING
from convo.history.records import Scope, is_compaction_link
from convo.history.tree import Key, Path
from convo.prompt_cache.forecast import PrefixForecast
from convo.usage.cache_rules import CacheRules, find_cache_rules
from convo.usage.cost import Usage
from tests.prompt_cache.branches import Branch, message
from tests.vendor_rules import anthropic_server, openai_server
from tests.vendor_rules.anthropic_server import AnthropicRules
from tests.vendor_rules.openai_server import OpenAIRules
from tests.vendor_rules.rules_server import Refusal

NOVEMBER_28 = 1_795_824_000.0
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("add", "subtract", "divide")]
SCHEMA = {"type": "json_schema", "name": "s", "schema": {"type": "object"}}
OPENAI_MODELS = ["gpt-6.2-sol", "gpt-6.2-astra", "gpt-6.1-terra", "gpt-5.6-sol", "gpt-5.5", "gpt-5.4"]
CLAUDE_MODELS = [
    f"claude-{name}" for name in ("fable-5-2", "mythos-5-2", "fable-5-1", "opus-5-5", "opus-5", "sonnet-5-5")
]

Drops = set[str]
"""The seals of the reasoning items of the input that the model did not receive."""


class OpenAI:
    """Sends the requests of a branch to the enforcing model of OpenAI."""

    models = OPENAI_MODELS
    provider = "openai"

    def __init__(self, choose: random.Random) -> None:
        unstated = openai_server.Unstated(
            reasoning_binds=choose.random() < 0.5,
            reads=choose.choice([lambda made_by, asked: made_by == asked, lambda made_by, asked: True]),
            end_user_field=choose.choice(["safety_identifier", "user"]),
            minimum_of=choose.choice(["prompt", "prefix"]),
            kept_beyond_ttl_s=choose.choice([0.0, 3_600.0]),
            hidden_in_usage=choose.random() < 0.5,
        )
        prices = {model: [openai_server.Price(Decimal(2), Decimal(10))] for model in OPENAI_MODELS}
        self.rules = OpenAIRules(prices, unstated=unstated)

    def send(self, branch: Branch, reply: Any = None) -> tuple[list[Any], Drops, Any]:
        items = [dict(item) for item in branch.path.items]
        request = {**branch.parameters, "model": branch.model.partition("/")[2], "input": items, "store": False}
        answer = self.rules.answer(request, branch.now, organization=str(branch.scope.organisation), reply=reply)
        self.bill = answer.bill
        removed = [each for each in answer.response["input_transformations"] if each["reason"] != "turn_boundary"]
        ids = {each["id"] for each in removed}
        drops = {item["encrypted_content"] for item in items if item["type"] == "reasoning" and item["id"] in ids}
        return answer.response["output"], drops, answer.response["usage"]

    def compact(self, branch: Branch) -> list[Any]:
        items = [dict(item) for item in branch.path.items]
        request = {**branch.parameters, "model": branch.model.partition("/")[2], "input": items}
        answer = self.rules.compact(request, branch.now, organization=str(branch.scope.organisation))
        output: list[Any] = answer.response["output"]
        return output


class Anthropic:
    """Sends the requests of a branch to the enforcing model of Anthropic, which drops or refuses."""

    models = CLAUDE_MODELS
    provider = "anthropic"

    def __init__(self, choose: random.Random) -> None:
        prices = {model: [anthropic_server.Price(Decimal(2), Decimal(10))] for model in CLAUDE_MODELS}
        reads: Callable[[str, str], bool] = choose.choice([lambda made_by, asked: False, lambda made_by, asked: True])
        created = choose.choice([0.0, NOVEMBER_28])
        unstated = anthropic_server.Unstated(reads=reads, minimum_tokens=choose.choice([512, 1024]))
        self.rules = AnthropicRules(prices, account_created=created, unstated=unstated)
        self.behavior = choose.choice([{}, {"prefix_mismatch_behavior": "drop_block"}])

    def _request(self, branch: Branch) -> tuple[dict[str, Any], dict[str, int]]:
        """Return the request, and the index of the item of each thinking block by its path."""
        messages: list[dict[str, Any]] = []
        places = {}
        for index, item in enumerate(branch.path.items):
            block, role = to_block(item)
            if not messages or messages[-1]["role"] != role:
                messages.append({"role": role, "content": []})
            messages[-1]["content"].append(block)
            places[f"messages.{len(messages) - 1}.content.{len(messages[-1]['content']) - 1}"] = index
        parameters = branch.parameters
        request = {
            "model": branch.model.partition("/")[2],
            "messages": messages,
            "system": parameters.get("instructions") or "",
            "tools": parameters.get("tools") or [],
            "tool_choice": parameters.get("tool_choice"),
            "metadata": {"user_id": parameters.get("user")},
            "thinking": {"type": "adaptive", "block_binding": self.behavior},
            "cache_control": {"type": "ephemeral"},
        }
        if effort := (parameters.get("reasoning") or {}).get("effort"):
            request["output_config"] = {"effort": effort}
        return request, places

    def send(self, branch: Branch, reply: Any = None) -> tuple[list[Any], Drops, Any]:
        request, places = self._request(branch)
        organisation, betas = str(branch.scope.organisation), (anthropic_server.BINDING,)
        # A workspace, whose cache is its own, belongs to one organisation.
        response, self.bill, _ = self.rules.answer(
            request,
            branch.now,
            betas=betas,
            organization=organisation,
            workspace=organisation,
            reply=reply and list(map(to_reply, reply)),
        )
        dropped = [each for each in response["input_transformations"] if each["type"] == "thinking_dropped"]
        drops = {branch.path.items[places[each["path"]]]["encrypted_content"] for each in dropped}
        return [to_item(block) for block in response["content"]], drops, to_usage(response["usage"])

    def compact(self, branch: Branch) -> list[Any]:
        request, _ = self._request(branch)
        betas = (anthropic_server.BINDING, anthropic_server.COMPACT)
        answer = self.rules.answer(
            {**request, "compaction": {"type": "summarize"}},
            branch.now,
            betas=betas,
            organization=str(branch.scope.organisation),
        )
        return [{"type": "compaction", "encrypted_content": json.dumps(answer.response["content"][0])}]


def to_usage(usage: Any) -> dict[str, Any]:
    cached, written = usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]
    return {
        "input_tokens": usage["input_tokens"] + cached + written,
        "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": written},
        "output_tokens": usage["output_tokens"],
    }


def to_block(item: Any) -> tuple[dict[str, Any], str]:
    match item["type"]:
        case "reasoning":
            thinking = "".join(part["text"] for part in item["summary"])
            return {"type": "thinking", "thinking": thinking, "signature": item["encrypted_content"]}, "assistant"
        case "function_call":
            return {"type": "tool_use", "id": item["call_id"], "name": item["name"], "input": {}}, "assistant"
        case "function_call_output":
            block = {"type": "tool_result", "tool_use_id": item["call_id"], "content": item["output"]}
            return block, "user"
        case "compaction":
            return json.loads(item["encrypted_content"]), "assistant"
        case _:
            return {"type": "text", "text": item["content"]}, item["role"]


def to_reply(item: Any) -> dict[str, Any]:
    """The block of an output item of OpenAI; thinking is text."""
    match item["type"]:
        case "reasoning":
            return {"type": "thinking", "thinking": "so " * item["tokens"], "signature": ""}
        case "message":
            return {"type": "text", "text": item["content"][0]["text"]}
        case _:
            return to_block(item)[0]


def to_item(block: Any) -> dict[str, Any]:
    if block["type"] == "thinking":
        summary = [{"type": "summary_text", "text": block["thinking"]}]
        return {"type": "reasoning", "summary": summary, "encrypted_content": block["signature"]}
    if block["type"] == "tool_use":
        return {"type": "function_call", "call_id": block["id"], "name": block["name"], "arguments": "{}"}
    return {"type": "message", "role": "assistant", "content": block["text"]}


# -- steps ----------------------------------------------------------------------------------------


def append_message(branch: Branch, choose: random.Random, vendor: Any) -> None:
    branch.path = branch.path.append([message(f"and {choose.random()}? {'word ' * 400}")])


def append_tool_turn(branch: Branch, choose: random.Random, vendor: Any) -> None:
    call_id = f"call_{choose.random()}"
    call = {"type": "function_call", "call_id": call_id, "name": "add", "arguments": "{}"}
    append_message(branch, choose, vendor)
    branch.path = branch.path.append([call, {"type": "function_call_output", "call_id": call_id, "output": "3"}])


def append_update(branch: Branch, choose: random.Random, vendor: Any) -> None:
    if vendor.provider == "openai":
        updates: list[Any] = [
            {"type": "configuration_update", "reasoning": {"effort": "high"}},
            {"type": "additional_tools", "role": "developer", "tools": [TOOLS[2]]},
            message("now in French", "developer"),
        ]
        branch.path = branch.path.append([choose.choice(updates)])
    append_message(branch, choose, vendor)


def change_parameter(branch: Branch, choose: random.Random, vendor: Any) -> None:
    values: dict[str, list[Any]] = {
        "tools": [None, TOOLS[:1], TOOLS[:2], TOOLS[1::-1]],
        "instructions": ["Be brief.", "Be long."],
        "user": ["alice", "bob"],
        "tool_choice": [None, {"type": "auto"}],
        "reasoning": [{"effort": "low"}, {"effort": "high"}],
    }
    if vendor.provider == "openai":
        values |= {
            "text": [{}, {"format": SCHEMA}, {"verbosity": "low"}],
            "parallel_tool_calls": [True, False],
            "prompt_cache_key": ["a", "b"],
            "safety_identifier": ["alice", "bob"],
            "tool_choice": ["auto"],
        }
    name = choose.choice(list(values))
    branch.parameters = {**branch.parameters, name: choose.choice(values[name])}
    append_message(branch, choose, vendor)


def change_model(branch: Branch, choose: random.Random, vendor: Any) -> None:
    branch.model = f"{vendor.provider}/{choose.choice(vendor.models)}"
    append_message(branch, choose, vendor)


def change_organisation(branch: Branch, choose: random.Random, vendor: Any) -> None:
    branch.scope = Scope("url", choose.choice(["org_a", "org_b"]))
    append_message(branch, choose, vendor)


def edit_message(branch: Branch, choose: random.Random, vendor: Any) -> None:
    items = list(branch.path.items)
    indexes = [index for index, item in enumerate(items) if item["type"] == "message"]
    index = choose.choice(indexes or [0])
    items[index : index + 1] = [] if choose.random() < 0.3 else [{**items[index], "content": f"edit {choose.random()}"}]
    replace_items(branch, items)
    append_message(branch, choose, vendor)


def remove_reasoning(branch: Branch, choose: random.Random, vendor: Any) -> None:
    indexes = [index for index, item in enumerate(branch.path.items) if item["type"] == "reasoning"]
    left_out = set(choose.sample(indexes, choose.randint(0, len(indexes))))
    replace_items(branch, [item for index, item in enumerate(branch.path.items) if index not in left_out])
    append_message(branch, choose, vendor)


def drop_oldest(branch: Branch, choose: random.Random, vendor: Any) -> None:
    turns = [index for index, item in enumerate(branch.path.items) if item.get("role") == "user"]
    replace_items(branch, list(branch.path.items)[choose.choice(turns or [0]) :])
    append_message(branch, choose, vendor)


def summarize(branch: Branch, choose: random.Random, vendor: Any) -> None:
    tail = list(branch.path.items)[-choose.choice([2, 4]) :]
    branch.compact([message(f"{SUMMARY_HEADING}\nSummary {choose.random()}"), *tail])
    append_message(branch, choose, vendor)


def compact_at_vendor(branch: Branch, choose: random.Random, vendor: Any) -> None:
    items = list(branch.path.items)
    if items and not any(item["type"] == "compaction" for item in items):
        starts = [index for index, item in enumerate(items) if item.get("role") == "user"]
        kept = items[starts[-1] :] if len(starts) > 1 and choose.random() < 0.5 else []
        branch.compact([*vendor.compact(branch), *kept])
    append_message(branch, choose, vendor)


def hand_off(branch: Branch, choose: random.Random, vendor: Any) -> None:
    """Change to another agent, or back, with the whole history, a filtered one, or one message that quotes it."""
    is_first = branch.parameters["instructions"] == "Hand over."
    branch.parameters = {
        **branch.parameters,
        "tools": TOOLS[2:] if is_first else TOOLS[:2],
        "instructions": "Refund." if is_first else "Hand over.",
    }
    items = list(branch.path.items)
    history = choose.choice(["whole", "without tools", "nested"])
    if history == "without tools":
        replace_items(branch, [item for item in items if not item["type"].startswith("function_call")])
    elif history == "nested":
        replace_items(branch, [message(f"The conversation so far: {json.dumps(items)}")])
    append_message(branch, choose, vendor)


def return_settings(branch: Branch, choose: random.Random, vendor: Any) -> None:
    """Use the model and the settings of an earlier request again."""
    links = [link for link in branch.links if not is_compaction_link(link)]
    if links:
        link = choose.choice(links)
        branch.model, branch.parameters = link.model, dict(link.parameters)
    append_message(branch, choose, vendor)


def replace_items(branch: Branch, items: Sequence[Any]) -> None:
    branch.path = Path(branch.path.root).append(items)


def wait(branch: Branch, choose: random.Random, vendor: Any) -> None:
    branch.now += choose.choice([200.0, 400.0, 4_000.0, 100_000.0])
    append_message(branch, choose, vendor)


def fork(branch: Branch, choose: random.Random, vendor: Any) -> None:
    """Continue after an earlier response, with its settings."""
    indexes = [index for index, link in enumerate(branch.links) if not is_compaction_link(link)]
    if indexes:
        end = choose.choice(indexes)
        link = branch.links[end]
        branch.links = branch.links[: end + 1]
        branch.model, branch.parameters, branch.scope = link.model, dict(link.parameters), link.scope
        keys = branch.index.last_keys(link.head, branch.index.depth(link.head))
        replace_items(branch, [branch.index.item(key) for key in keys])
    append_message(branch, choose, vendor)


APPENDS = [append_message, append_message, append_message, append_tool_turn, append_update, fork, wait]
CHANGES = [
    *(change_parameter, change_parameter, change_model, change_organisation, edit_message, remove_reasoning),
    *(drop_oldest, summarize, compact_at_vendor, hand_off, hand_off, return_settings),
]
MANY = pytest.param(range(30, 1_000), marks=pytest.mark.full, id="1000 sequences")


@pytest.mark.parametrize("vendor_type", [OpenAI, Anthropic], ids=["openai", "anthropic"])
@pytest.mark.parametrize("seeds", [pytest.param(range(30), id="30 sequences"), MANY])
def test_each_drop_and_refusal_is_forecast_and_no_request_that_only_appends(seeds: range, vendor_type: Any) -> None:
    counts = {"lost": 0, "refused": 0, "appended": 0, "missed": 0}
    for seed in seeds:
        run_sequence(random.Random(seed), vendor_type, counts)
    assert min(counts["lost"], counts["appended"], counts["missed"]) > 0
    assert counts["refused"] or vendor_type is OpenAI


def run_sequence(choose: random.Random, vendor_type: Any, counts: dict[str, int]) -> None:
    vendor = vendor_type(choose)
    model = f"{vendor.provider}/{choose.choice(vendor.models)}"
    parameters = {"tools": TOOLS[:2], "instructions": "Hand over."}
    branch = Branch(model, parameters, scope=Scope("url", "org_a"), now=NOVEMBER_28)
    drops_by_head: dict[Key, Drops] = {}
    for number in range(16):
        step = choose.choice(APPENDS if number == 0 or choose.random() < 0.6 else CHANGES)
        before = copy(branch)
        before.links = list(branch.links)
        step(branch, choose, vendor)
        forecast = branch.forecast()
        if step in APPENDS:
            counts["appended"] += 1
            assert forecast is None
        try:
            output, drops, usage = vendor.send(branch)
        except Refusal as refused:
            refusal: str | None = str(refused)
        else:
            refusal = None
        if refusal is not None:
            counts["refused"] += 1
            assert forecast is not None
            assert forecast.lost_reasoning or "signature" not in refusal  # else an edit moved a compaction
            branch = before
            continue
        heads = [link.head for link in branch.links if not is_compaction_link(link)]
        check_drops(branch, forecast, drops_by_head[heads[-1]] if heads else set(), drops)
        counts["lost"] += bool(drops)
        # The cache also has prefixes of requests that a fork left behind, which the forecast does not know.
        is_whole = len(heads) == len(drops_by_head)
        counts["missed"] += check_cache(branch, forecast, Usage.from_json(usage), is_whole=is_whole)
        branch.answer(output, usage)
        drops_by_head[branch.path.head] = drops


def check_cache(branch: Branch, forecast: PrefixForecast | None, usage: Usage | None, *, is_whole: bool) -> bool:
    """Compare the cached tokens with the forecast. Returns whether less was read than was cached before.

    is_whole:  the branch has all requests that were sent
    """
    links = [link for link in branch.links if not is_compaction_link(link)]
    before = Usage.from_json(links[-1].usage) if links else None
    if usage is None or before is None:
        return False
    rules = find_cache_rules(links[-1].model, links[-1].parameters)
    lost = count_cached(before, rules) - usage.cached_tokens
    tolerance = 50 + 0.1 * max(lost, 0)
    if rules.step_tokens > 1:  # they round, and do not count reasoning
        tolerance += rules.step_tokens + 100 * sum(item["type"] == "reasoning" for item in branch.path.items)
    if forecast is None:
        assert lost <= tolerance or branch.now - links[-1].created_at >= (rules.ttl_s or 0.0)
        return False
    assert lost <= forecast.lost_tokens + tolerance
    if forecast.cache_loss == "yes" and is_whole:
        assert lost >= forecast.lost_tokens - tolerance
    return lost > 0


def count_cached(usage: Usage, rules: CacheRules) -> int:
    """Return the tokens that are cached after a request; older models of OpenAI do not report what they wrote."""
    if rules.step_tokens == 1:
        return usage.cached_tokens + usage.cache_write_tokens
    is_cached = usage.input_tokens >= (rules.min_tokens or 0)
    return usage.input_tokens // rules.step_tokens * rules.step_tokens if is_cached else 0


def check_drops(branch: Branch, forecast: PrefixForecast | None, earlier: Drops, seals: Drops) -> None:
    """Compare the dropped items with the forecast; those of the request before are no new loss."""
    items = branch.path.items
    lost = forecast.lost_reasoning if forecast else ()
    forecast_seals = {items[item.item_index]["encrypted_content"] for item in lost}
    certain_seals = {items[item.item_index]["encrypted_content"] for item in lost if item.certainty == "yes"}
    assert seals - earlier <= forecast_seals
    assert certain_seals <= seals
    # What `lint` says of all reasoning that the same model made, and not only of what is lost now.
    index, own = branch.index, (branch.model, branch.scope)
    links = [link for link in branch.links if (link.model, link.scope) == own and not is_compaction_link(link)]
    outputs = [index.last_keys(link.head, index.depth(link.head) - index.depth(link.input_head)) for link in links]
    own_seals = {(index.item(key) or {}).get("encrypted_content") for keys in outputs for key in keys}
    described = branch.describe_changed_reasoning()
    assert seals & own_seals <= described.keys()
    assert {seal for seal, text in described.items() if "does not receive" in text} <= seals
