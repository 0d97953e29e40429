"""Forecasts agree with servers that enforce the vendors' published rules, in random sequences of requests.

Each drop and each refusal is forecast; what is forecast as certain happens; a request that only appends has none. This
is agreement with the pages of the vendors, not with the vendors.
"""

import json
import random
from collections.abc import Callable, Sequence
from copy import copy
from decimal import Decimal
from typing import Any

import pytest

from convo.history.items import SUMMARY_HEADING
from convo.history.records import Scope
from convo.history.tree import Path
from convo.prompt_cache.forecast import PrefixForecast
from tests.prompt_cache.branches import Branch, message
from tests.vendor_rules import anthropic_server, openai_server
from tests.vendor_rules.anthropic_server import AnthropicRules
from tests.vendor_rules.openai_server import OpenAIRules
from tests.vendor_rules.rules_server import Refusal

NOVEMBER_28 = 1_795_824_000.0
TOOLS = [{"type": "function", "name": name, "parameters": {"type": "object"}} for name in ("add", "subtract", "divide")]
SCHEMA = {"type": "json_schema", "name": "s", "schema": {"type": "object"}}
OPENAI_MODELS = ["gpt-6.2-sol", "gpt-6.2-astra", "gpt-6.1-terra", "gpt-5.6-sol"]
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
        self.rules = AnthropicRules(prices, account_created=created, unstated=anthropic_server.Unstated(reads=reads))
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
        return request, places

    def send(self, branch: Branch, reply: Any = None) -> tuple[list[Any], Drops, Any]:
        request, places = self._request(branch)
        organisation, betas = str(branch.scope.organisation), (anthropic_server.BINDING,)
        response, self.bill, _ = self.rules.answer(
            request, branch.now, betas=betas, organization=organisation, reply=reply and list(map(to_reply, reply))
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
    }
    if vendor.provider == "openai":
        values |= {
            "text": [{}, {"format": SCHEMA}],
            "reasoning": [{"effort": "low"}, {"effort": "high"}],
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


def replace_items(branch: Branch, items: Sequence[Any]) -> None:
    branch.path = Path(branch.path.root).append(items)


APPENDS = [append_message, append_message, append_tool_turn, append_update]
CHANGES = [
    *(change_parameter, change_model, change_organisation, edit_message, remove_reasoning, drop_oldest),
    *(summarize, compact_at_vendor),
]
MANY = pytest.param(range(30, 1_000), marks=pytest.mark.full, id="1000 sequences")


@pytest.mark.parametrize("vendor_type", [OpenAI, Anthropic], ids=["openai", "anthropic"])
@pytest.mark.parametrize("seeds", [pytest.param(range(30), id="30 sequences"), MANY])
def test_each_drop_and_refusal_is_forecast_and_no_request_that_only_appends(seeds: range, vendor_type: Any) -> None:
    counts = {"lost": 0, "refused": 0, "appended": 0}
    for seed in seeds:
        run_sequence(random.Random(seed), vendor_type, counts)
    assert min(counts["lost"], counts["appended"]) > 0
    assert counts["refused"] or vendor_type is OpenAI


def run_sequence(choose: random.Random, vendor_type: Any, counts: dict[str, int]) -> None:
    vendor = vendor_type(choose)
    model = f"{vendor.provider}/{choose.choice(vendor.models)}"
    branch = Branch(model, {"tools": TOOLS[:2]}, scope=Scope("url", "org_a"), now=NOVEMBER_28)
    earlier_drops: Drops = set()
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
        check_drops(branch, forecast, earlier_drops, drops)
        counts["lost"] += bool(drops)
        branch.answer(output, usage)
        earlier_drops = drops


def check_drops(branch: Branch, forecast: PrefixForecast | None, earlier: Drops, seals: Drops) -> None:
    """Compare the dropped items with the forecast; those of the request before are no new loss."""
    items = branch.path.items
    lost = forecast.lost_reasoning if forecast else ()
    forecast_seals = {items[item.item_index]["encrypted_content"] for item in lost}
    certain_seals = {items[item.item_index]["encrypted_content"] for item in lost if item.certainty == "yes"}
    assert seals - earlier <= forecast_seals
    assert certain_seals <= seals
