"""Forecasts of the losses of a request; one that only appends loses nothing."""

import random
from dataclasses import replace
from typing import Any

import pytest

from convo.history.records import Scope
from convo.history.tree import Path
from tests.prompt_cache.branches import Branch, message, reasoning

TOOL = {"type": "function", "name": "add", "parameters": {"type": "object"}}
USAGE = {
    "input_tokens": 10_000,
    "input_tokens_details": {"cached_tokens": 2_000, "cache_write_tokens": 8_000},
    "output_tokens": 400,
    "output_tokens_details": {"reasoning_tokens": 300},
}
FIRST_USAGE = {**USAGE, "input_tokens": 5_000, "input_tokens_details": {"cache_write_tokens": 5_000}}
NEWEST = {"openai": "openai/gpt-6.2-sol", "anthropic": "anthropic/claude-fable-5-2"}


def two_turns(model: str) -> Branch:
    """Return a branch with two answered turns, each with a reasoning item before its answer."""
    branch = Branch(model, {"tools": [TOOL], "instructions": "Be brief.", "reasoning": {"effort": "low"}})
    for turn in range(2):
        branch.path = branch.path.append([message(f"question {turn} " + "word " * 2_000)])
        output = [reasoning(f"seal {turn}"), message(f"answer {turn}", "assistant")]
        branch.answer(output, USAGE if turn else FIRST_USAGE)
    branch.path = branch.path.append([message("next")])
    return branch


def edit(branch: Branch, index: int, item: Any) -> None:
    items = list(branch.path.items)
    branch.path = Path(branch.path.root).append([*items[:index], *([item] if item else []), *items[index + 1 :]])


def change_tools(branch: Branch) -> None:
    branch.parameters = {**branch.parameters, "tools": [TOOL, {**TOOL, "name": "subtract"}]}


def reorder_tools(branch: Branch) -> None:
    branch.links = []
    branch.path = Path(branch.path.root)
    branch.parameters = {"tools": [TOOL, {**TOOL, "name": "subtract"}]}
    branch.path = branch.path.append([message("one")])
    branch.answer([reasoning("seal 0"), message("two", "assistant")], USAGE)
    branch.path = branch.path.append([message("next")])
    branch.parameters = {"tools": [{**TOOL, "name": "subtract"}, TOOL]}


def change_instructions(branch: Branch) -> None:
    branch.parameters = {**branch.parameters, "instructions": "Be long."}


def change_effort(branch: Branch) -> None:
    branch.parameters = {**branch.parameters, "reasoning": {"effort": "high"}}


def change_format(branch: Branch) -> None:
    branch.parameters = {**branch.parameters, "text": {"format": {"type": "json_object"}}}


def set_defaults(branch: Branch) -> None:
    text = {"format": {"type": "text"}, "verbosity": "medium"}
    branch.parameters = {**branch.parameters, "text": text, "parallel_tool_calls": True, "tool_choice": "auto"}


def change_key(branch: Branch) -> None:
    branch.parameters = {**branch.parameters, "prompt_cache_key": "other"}


def edit_last_question(branch: Branch) -> None:
    edit(branch, 3, message("shorter"))


def remove_first_reasoning(branch: Branch) -> None:
    edit(branch, 1, None)


def summarize(branch: Branch) -> None:
    items = list(branch.path.items)
    heading = "Summary of the conversation up to here, in place of its earlier messages:"
    branch.compact([message(f"{heading}\nHi."), *items[3:]])


def compact_at_vendor(branch: Branch) -> None:
    items = list(branch.path.items)
    branch.compact([{"type": "compaction", "encrypted_content": "sealed"}, *items[3:]])


def change_organisation(branch: Branch) -> None:
    branch.links[:] = [replace(link, scope=Scope("u", "org_a")) for link in branch.links]
    branch.scope = Scope("u", "org_b")


CHANGES: dict[Any, dict[str, Any]] = {
    change_tools: {
        "openai": ("tools_changed", "yes", ["yes", "yes"], "additional_tools"),
        "anthropic": ("tools_changed", "yes", ["yes", "yes"], "tool_addition"),
    },
    reorder_tools: {
        "openai": ("tools_reordered", "yes", ["yes"], "keep the order"),
        "anthropic": ("tools_reordered", "yes", ["yes"], "keep the order"),
    },
    change_instructions: {
        "openai": None,
        "anthropic": ("instructions_changed", "yes", ["yes", "yes"], "system message"),
    },
    change_effort: {
        "openai": ("reasoning_effort_changed", "yes", [], "configuration_update"),
        "anthropic": ("reasoning_effort_changed", "yes", [], None),
    },
    change_format: {
        "openai": ("text_format_changed", "yes", ["yes", "yes"], "configuration_update"),
        "anthropic": None,
    },
    set_defaults: dict.fromkeys(NEWEST),
    change_key: {"openai": ("prompt_cache_key_changed", "may", [], None), "anthropic": None},
    edit_last_question: dict.fromkeys(NEWEST, ("item_edited", "yes", ["yes"], "fork at the end of a turn")),
    remove_first_reasoning: dict.fromkeys(NEWEST, ("item_removed", "may", ["may"], "fork at the end of a turn")),
    summarize: dict.fromkeys(NEWEST, ("context_compacted", "yes", ["yes"], None)),
    compact_at_vendor: dict.fromkeys(NEWEST, ("context_compacted", "yes", ["may"], None)),
    change_organisation: dict.fromkeys(NEWEST, ("setting_changed", "yes", ["yes", "yes"], None)),
}


@pytest.mark.parametrize("vendor", NEWEST)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_change_of_the_prefix_says_what_is_lost(change: Any, vendor: str) -> None:
    branch = two_turns(NEWEST[vendor])
    change(branch)
    forecast, expected = branch.forecast(), CHANGES[change][vendor]
    if expected is None:
        assert forecast is None
        return
    assert forecast is not None
    name, cache_loss, reasoning_losses, instead = expected
    assert (forecast.change.change, forecast.cache_loss) == (name, cache_loss)
    assert [item.certainty for item in forecast.lost_reasoning] == reasoning_losses
    assert {item.tokens for item in forecast.lost_reasoning} <= {300}
    assert (instead or "") in (forecast.append_instead or "")
    assert "lose" in str(forecast) or "lost" in str(forecast)


@pytest.mark.parametrize(
    ("maker", "reader", "loss"),
    [
        ("openai/gpt-6.2-sol", "openai/gpt-6.1-sol", "may"),
        ("openai/gpt-6.2-sol", "anthropic/claude-opus-5-5", "yes"),
        ("anthropic/claude-opus-5", "anthropic/claude-opus-5-5", None),
        ("anthropic/claude-opus-5-5", "anthropic/claude-mythos-5-1", None),
        ("anthropic/claude-fable-5-2", "anthropic/claude-mythos-5-2", None),
        ("anthropic/claude-fable-5-2", "anthropic/claude-opus-5-5", "yes"),
        ("anthropic/claude-fable-5-1", "anthropic/claude-opus-5-5", "may"),
        ("anthropic/claude-opus-5", "anthropic/claude-sonnet-5", "may"),
    ],
)
def test_a_model_that_does_not_read_the_reasoning_of_another_one_loses_it(
    maker: str, reader: str, loss: str | None
) -> None:
    branch = two_turns(maker)
    branch.model = reader
    forecast = branch.forecast()
    assert forecast is not None
    assert forecast.change.change == "model_changed"
    assert [item.certainty for item in forecast.lost_reasoning] == ([loss] * 2 if loss else [])


def test_the_cached_tokens_and_their_money_are_those_after_the_difference() -> None:
    branch = two_turns(NEWEST["openai"])
    change_tools(branch)
    everything: Any = branch.forecast()
    branch.parameters = branch.links[-1].parameters  # type: ignore[assignment]
    edit_last_question(branch)
    half: Any = branch.forecast()
    branch.now += 7_200
    later: Any = branch.forecast()
    branch.now += 86_400
    expired: Any = branch.forecast()
    assert None not in (everything, half, later, expired)
    assert everything.lost_tokens == 10_000
    assert everything.lost_usd == pytest.approx(10_000 * (2.00 * 1.25 - 0.10) / 1e6)
    assert half.lost_tokens == pytest.approx(5_000, rel=0.1)
    assert (later.cache_loss, later.lost_tokens) == ("may", half.lost_tokens)
    assert (expired.cache_loss, expired.lost_tokens) == ("no", 0)


def use_another_model(branch: Branch) -> None:
    branch.model = "openai/gpt-6-luna"


@pytest.mark.parametrize(
    ("age_s", "older_age_s", "expected"),
    [
        (10, 20, (1_000, "yes")),
        (10, 3_600, (11_000, "may")),
        (3_600, 3_610, (1_000, "may")),
        (10, 90_000, (11_000, "yes")),
    ],
)
@pytest.mark.parametrize("change", [change_effort, change_tools, use_another_model])
def test_a_return_to_an_earlier_prefix_loses_what_was_added_since(
    change: Any, age_s: float, older_age_s: float, expected: Any
) -> None:
    branch = two_turns("openai/gpt-6.1-sol")
    parameters, model = branch.parameters, branch.model
    change(branch)
    branch.answer(
        [message("answer", "assistant")],
        {"input_tokens": 11_000, "input_tokens_details": {"cache_write_tokens": 11_000}},
    )
    branch.parameters, branch.model = parameters, model
    branch.path = branch.path.append([message("again")])
    branch.now = 100_000
    *older, newest = branch.links
    branch.links = [
        *(replace(link, created_at=branch.now - older_age_s) for link in older),
        replace(newest, created_at=branch.now - age_s),
    ]
    forecast = branch.forecast()
    assert forecast is not None
    assert (forecast.lost_tokens, forecast.cache_loss) == expected


APPENDED: list[Any] = [
    message("and then?"),
    message("now in French", "developer"),
    {"type": "configuration_update", "reasoning": {"effort": "high"}},
    {"type": "additional_tools", "role": "developer", "tools": [{**TOOL, "name": "later"}]},
]


@pytest.mark.parametrize("seed", range(30))
def test_requests_that_only_append_have_no_forecast(seed: int) -> None:
    choose = random.Random(seed)
    model = choose.choice([*NEWEST.values(), "openai/gpt-5.5", "deepseek/deepseek-chat", "anthropic/claude-opus-5-5"])
    branch = Branch(model, {"tools": [TOOL], "instructions": "Be brief."})
    ends = [(branch.path, list(branch.links))]
    for turn in range(20):
        if choose.random() < 0.2:  # a fork at the end of a turn
            branch.path, links = choose.choice(ends)
            branch.links = list(links)
        branch.path = branch.path.append(choose.choices(APPENDED, k=choose.randint(1, 3)))
        if choose.random() < 0.3:
            branch.parameters = {**branch.parameters, "temperature": choose.random()}
        assert branch.forecast() is None
        call = {"type": "function_call", "call_id": f"call_{turn}", "name": "add", "arguments": "{}"}
        branch.answer([reasoning(f"seal {turn} a"), call], USAGE)
        branch.path = branch.path.append([{"type": "function_call_output", "call_id": f"call_{turn}", "output": "3"}])
        assert branch.forecast() is None
        compaction = {"type": "compaction", "encrypted_content": f"sealed {turn}"}
        reply = [reasoning(f"seal {turn} b"), message("done", "assistant")]
        branch.answer([*([compaction] if choose.random() < 0.1 else []), *reply], USAGE)
        ends.append((branch.path, list(branch.links)))
