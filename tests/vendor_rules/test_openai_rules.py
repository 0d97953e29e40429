"""The enforcing OpenAI server does what each published rule says: one test a rule."""

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import httpx2
import pytest

from tests.vendor_rules.openai_server import (
    CONFIGURATION_REFUSED,
    Answer,
    OpenAIRules,
    Price,
    Unstated,
    run_openai_server,
)
from tests.vendor_rules.rules_server import Json, Refusal


def november(day: int) -> float:
    return datetime(2026, 11, day, tzinfo=UTC).timestamp()


NOW = november(28)
HOUR = 3600.0
SOL, OLDER, OLD = "gpt-6.2-sol", "gpt-5.6-sol", "gpt-5.4"
PRICES = {
    SOL: [Price(Decimal(2), Decimal(10))],
    "gpt-6.2-astra": [Price(Decimal(8), Decimal(40))],
    "gpt-6.1-terra": [Price(Decimal(1), Decimal(5))],
    "gpt-6-astra": [Price(Decimal(10), Decimal(50))],
    OLDER: [Price(Decimal(4), Decimal(20), date(2026, 11, 21)), Price(Decimal(5), Decimal(30))],
    "gpt-5.5": [Price(Decimal(2), Decimal(10))],
    OLD: [Price(Decimal(2), Decimal(10))],
    "gpt-5": [Price(Decimal(1), Decimal(10))],
    "o3-mini": [Price(Decimal(1), Decimal(4))],
}
TOOL = {"type": "function", "name": "look_up", "parameters": {"type": "object", "properties": {}}}
OTHER_TOOL = {**TOOL, "name": "other"}
SCHEMA = {"type": "json_schema", "name": "s", "schema": {"type": "object"}}
OUTPUT = {"type": "function_call_output", "call_id": "c", "output": "found"}
CALL = {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": "{}"}
EXPLICIT = {"mode": "explicit"}


def user(text: str = "", *, tokens: int = 1500) -> Json:
    return {"role": "user", "content": [{"type": "input_text", "text": text + "x" * 4 * tokens}]}


def developer(text: str = "", *, tokens: int = 10) -> Json:
    return {**user(text, tokens=tokens), "role": "developer"}


def marked(item: Json, **mark: Any) -> Json:
    """The message with a breakpoint at its last part."""
    *parts, last = item["content"]
    return {**item, "content": [*parts, {**last, "prompt_cache_breakpoint": {**EXPLICIT, **mark}}]}


class Conversation:
    """A client that sends all items of a conversation each time."""

    def __init__(self, model: str = SOL, *, unstated: Unstated | None = None, **options: Any) -> None:
        self.rules = OpenAIRules(PRICES, unstated=unstated, **options)
        self.settings: Json = {"model": model}
        self.items: list[Json] = []
        self.at = NOW

    def ask(self, *items: Json, after_s: float = 10.0, **settings: Any) -> Answer:
        """Append items and the output. `settings` hold for this request; `organization`, `region`, `reply` too."""
        self.items += items
        self.at += after_s
        caller = {name: settings.pop(name) for name in ("organization", "region", "reply") if name in settings}
        answer = self.rules.answer({**self.settings, "input": self.items, **settings}, self.at, **caller)
        self.items = [*self.items, *answer.response["output"]]
        return answer

    def asks(self, *items: Json, **settings: Any) -> tuple[int, int]:
        """The tokens read from the cache and those written."""
        bill = self.ask(*items, **settings).bill
        return bill.cached, bill.written_30m + bill.written_12h

    def compare(self, **settings: Any) -> Json:
        """The diagnostics of a request that differs in `settings` from the one before it."""
        first = self.ask(user()).response
        return diagnosis(self.ask(user(tokens=10), prompt_cache_options=compared(first), **settings))


def compared(response: Json) -> Json:
    return {"comparison_response_id": response["id"]}


def diagnosis(answer: Answer) -> Json:
    result: Json = answer.response["prompt_cache_diagnostics"]
    return result


def reasons(answer: Answer) -> list[str]:
    return [entry["reason"] for entry in answer.response["input_transformations"]]


# -- cache ----------------------------------------------------------------------------------------


def test_a_cache_entry_lives_for_its_ttl_which_is_a_minimum() -> None:  # rule 1
    for ttl, life_s in (("30m", HOUR / 2), ("12h", 12 * HOUR)):
        for after_s, is_hit in ((life_s - 20, True), (life_s + 20, False)):
            chat = Conversation()
            chat.ask(user(), prompt_cache_options={"ttl": ttl})
            assert bool(chat.asks(user(tokens=10), after_s=after_s)[0]) is is_hit
    kept = Conversation(unstated=Unstated(kept_beyond_ttl_s=HOUR))
    kept.ask(user())
    assert kept.asks(user(tokens=10), after_s=HOUR)[0]


def test_prewarm_writes_the_cache_without_an_output() -> None:  # rule 1
    chat = Conversation()
    warm = chat.ask(user(), prompt_cache_options={"prewarm": True})
    assert (warm.response["output"], bool(warm.bill.written_30m)) == ([], True)
    assert chat.asks(user(tokens=10))[0] == warm.bill.written_30m


def test_a_request_writes_four_breakpoints_and_explicit_mode_without_any_does_not_cache() -> None:  # rule 2
    chat = Conversation()
    assert chat.asks(user(), prompt_cache_options=EXPLICIT) == (0, 0)
    messages = [marked(user(str(number))) for number in range(6)]
    for mode, unwritten in (("explicit", 2), ("implicit", 3)):
        for count in range(1, 7):
            chat = Conversation()
            chat.ask(*messages, prompt_cache_options={"mode": mode})
            shorter = {"model": SOL, "input": messages[:count], "prompt_cache_options": EXPLICIT}
            assert bool(chat.rules.answer(shorter, chat.at + 1).bill.cached) is (count > unwritten)


@pytest.mark.parametrize(("considered", "is_hit"), [("latest", True), ("guide", False)])
def test_a_read_considers_the_latest_80_breakpoints_or_those_of_the_guide(considered: str, is_hit: bool) -> None:
    # rule 3
    chat = Conversation(unstated=Unstated(considered=considered))
    chat.ask(developer(), *(user(str(number), tokens=100) for number in range(20)))
    assert chat.asks(*(user(str(number), tokens=1) for number in range(10)))[0]
    assert bool(chat.asks(*(user(str(number), tokens=1) for number in range(40)))[0]) is is_hit
    chat = Conversation(unstated=Unstated(considered=considered))
    chat.ask(user())
    assert chat.asks(*(user(str(number), tokens=1) for number in range(90)))[0] == 0


def test_a_breakpoint_is_exact_and_only_on_parts_of_the_input() -> None:  # rule 4
    chat = Conversation()
    part = {"type": "input_text", "text": "more"}
    message = marked(user(tokens=1499))
    written = chat.asks(message, prompt_cache_options=EXPLICIT)[1]
    extended = {**message, "content": [*message["content"], part]}
    answer = chat.rules.answer({"model": SOL, "input": [extended], "prompt_cache_options": EXPLICIT}, chat.at + 1)
    assert answer.bill.cached == written
    mark = {"prompt_cache_breakpoint": EXPLICIT}
    tools = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}
    for wrong in ({**tools, **mark}, {**tools, "tools": [{**TOOL, **mark}]}, marked(user(), mode="implicit")):
        with pytest.raises(Refusal, match="prompt_cache_breakpoint"):
            Conversation().ask(wrong)


def test_the_response_repeats_the_cache_options() -> None:  # rule 5
    chat = Conversation()
    first = chat.ask(user()).response
    assert first["prompt_cache_options"] == {"mode": "implicit", "ttl": "30m"}
    second = chat.ask(user(), prompt_cache_options={"ttl": "12h", **compared(first)}).response
    assert second["prompt_cache_options"] == {"mode": "implicit", "ttl": "12h", **compared(first)}


def test_retention_in_memory_ends_with_gpt_5_5_and_is_the_default_without_data_retention() -> None:  # rule 6
    with pytest.raises(Refusal, match="prompt_cache_retention"):
        Conversation("gpt-5.5").ask(user(), prompt_cache_retention="in_memory")
    for model, zdr, is_hit in ((OLD, True, False), (OLD, False, True), ("gpt-5.5", True, True)):
        chat = Conversation(model, zdr=zdr)
        chat.ask(user(tokens=3000))
        assert bool(chat.asks(user(), after_s=900)[0]) is is_hit


def test_compact_takes_few_cache_options_and_tiers() -> None:  # rule 7
    rules = OpenAIRules(PRICES)
    body: Json = {"model": SOL, "input": [user()]}
    for options in ({"ttl": "12h"}, {"comparison_response_id": None}, {"prewarm": True}):
        with pytest.raises(Refusal, match="prompt_cache_options"):
            rules.compact({**body, "prompt_cache_options": options}, NOW)
    with pytest.raises(Refusal, match="service_tier"):
        rules.compact({**body, "service_tier": "ultrafast"}, NOW)
    assert rules.compact({**body, "prompt_cache_options": {"ttl": "30m"}}, NOW).bill.written_30m


def test_below_1024_visible_tokens_nothing_is_cached() -> None:  # rule 8
    for tokens, is_cached in ((1000, False), (1024, True)):
        assert bool(Conversation().asks(user(tokens=tokens))[1]) is is_cached
    hidden = Conversation()
    hidden.ask(user(tokens=100), reply=[{"type": "reasoning", "summary": [], "tokens": 5000}])
    assert hidden.asks(user(tokens=100)) == (0, 0)
    short = Conversation(unstated=Unstated(minimum_of="prefix"))
    body = {"model": SOL, "input": [marked(user(tokens=500)), user()], "prompt_cache_options": EXPLICIT}
    assert short.rules.answer(body, NOW).bill.written_30m == 0


def test_each_input_token_is_uncached_cached_or_written_and_a_write_costs_a_quarter_more() -> None:  # rule 9
    chat = Conversation()
    chat.ask(user())
    answer = chat.ask(user(), instructions="Be brief.")
    bill, usage = answer.bill, answer.response["usage"]
    assert min(bill.cached, bill.written_30m, bill.uncached) > 0
    assert bill.cached + bill.written_30m + bill.uncached == usage["input_tokens"]
    inputs = bill.uncached + bill.cached * Decimal("0.05") + bill.written_30m * Decimal("1.25")
    assert bill.cost == (inputs * 2 + bill.output * 10) / 1_000_000
    assert Conversation(OLD).asks(user()) == (0, 0)


@pytest.mark.parametrize(
    ("model", "read"), [(SOL, ".10"), ("gpt-6.1-terra", ".05"), ("gpt-6.2-astra", ".40"), ("gpt-6-astra", "1")]
)
def test_a_read_costs_a_tenth_and_from_gpt_6_1_on_a_twentieth(model: str, read: str) -> None:  # rule 10
    chat = Conversation(model)
    chat.ask(user())
    body = {"model": model, "input": chat.items[:1], "max_output_tokens": 0}
    bill = chat.rules.answer(body, chat.at + 1, reply=[]).bill
    assert (bill.uncached, bill.written_30m, bill.output) == (0, 0, 0)
    assert bill.cost == bill.cached * Decimal(read) / 1_000_000


def test_a_read_extends_the_life_of_an_entry_except_beyond_an_hour_in_memory() -> None:  # rule 11
    chat = Conversation()
    chat.ask(user())
    assert all(chat.asks(user(tokens=1), after_s=1500)[0] for _ in range(4))
    again = {"model": SOL, "input": [user()]}
    bills = [chat.rules.answer(again, NOW + after_s).bill for after_s in (9000, 10_500, 12_000, 13_801)]
    assert (
        [bill.written_30m > 0 for bill in bills] == [bill.cached == 0 for bill in bills] == [True, False, False, True]
    )
    old = Conversation(OLD, zdr=True)
    hits = [bool(old.rules.answer({"model": OLD, "input": [user()]}, NOW + n * 250).bill.cached) for n in range(16)]
    assert hits == [False, *[True] * 14, False]


def test_implicit_breakpoints_are_at_user_messages_tool_outputs_and_the_first_developer_block() -> None:  # rule 12
    first = [developer("a"), developer("b", tokens=1500)]
    places = [
        ([*first], True),
        ([*first, user(tokens=1), developer("later", tokens=5)], False),
        ([user(), CALL], False),
        ([user(), CALL, OUTPUT], True),
    ]
    for items, ends in places:
        rules = OpenAIRules(PRICES)
        bill = rules.answer({"model": SOL, "input": items}, NOW).bill
        assert (bill.uncached == 0) is ends
    chat = Conversation()
    chat.ask(user(), CALL, OUTPUT)
    del chat.items[3:]
    whole = chat.rules.answer({"model": SOL, "input": chat.items}, chat.at).bill.cached
    assert chat.asks({**OUTPUT, "call_id": "d"})[0] == 0 < whole  # the entry was at the end of a shorter group


def test_extending_a_message_or_leaving_the_implicit_mode_loses_the_prefix() -> None:  # rule 13
    chat = Conversation()
    chat.ask(user())
    longer = {"role": "user", "content": [*user()["content"], {"type": "input_text", "text": "more"}]}
    assert chat.rules.answer({"model": SOL, "input": [longer]}, chat.at + 1).bill.cached == 0
    body = {"model": SOL, "input": [marked(user()), user("next")], "prompt_cache_options": EXPLICIT}
    assert chat.rules.answer(body, chat.at + 1).bill.cached == 0


@pytest.mark.parametrize(("model", "step"), [(OLD, 128), ("gpt-5.5", 2048)])
def test_before_gpt_5_6_cached_tokens_are_visible_ones_rounded_down(model: str, step: int) -> None:  # rule 14
    chat = Conversation(model)
    first = chat.ask(user(tokens=2500), reply=[{"type": "reasoning", "summary": [], "tokens": 3000}, CALL])
    visible = first.response["usage"]["input_tokens"]
    again = chat.ask(OUTPUT).response["usage"]
    assert again["input_tokens"] > 5000
    assert again["input_tokens_details"]["cached_tokens"] == visible // step * step


def test_more_than_fifteen_requests_a_minute_overflow_and_an_older_key_chooses_the_machine() -> None:  # rule 15
    chat = Conversation(unstated=Unstated(overflow_per_minute=15))
    cached = [bool(chat.asks(user(tokens=1000), after_s=1)[0]) for _ in range(17)]
    assert cached == [False, False, *[True] * 13, False, False]
    for model, is_hit in ((OLD, False), (OLDER, True)):
        chat = Conversation(model)
        chat.ask(user(), prompt_cache_key="a")
        assert bool(chat.asks(user(), prompt_cache_key="b")[0]) is is_hit


def test_organizations_and_regions_share_no_cache() -> None:  # rule 16
    for other in ({"organization": "b"}, {"region": "eu"}):
        chat = Conversation()
        chat.ask(user())
        assert chat.asks(user(), **other)[0] == 0


@pytest.mark.parametrize(
    ("settings", "is_hit"),
    [
        ({"model": "gpt-6.2-astra"}, False),
        ({"tools": [OTHER_TOOL, TOOL]}, False),
        ({"parallel_tool_calls": False}, False),
        ({"text": {"format": SCHEMA}}, False),
        ({"text": {"verbosity": "low"}}, False),
        ({"reasoning": {"effort": "high"}}, False),
        ({"context_management": [{"type": "compaction"}]}, False),
        ({"tool_choice": "none"}, True),
        ({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}, True),
        ({"tools": [TOOL, OTHER_TOOL, {**TOOL, "name": "rare", "defer_loading": True}]}, True),
    ],
)
def test_settings_in_the_prefix_break_it_and_others_keep_it(settings: Json, is_hit: bool) -> None:  # rule 17
    chat = Conversation()
    chat.settings["tools"] = [TOOL, OTHER_TOOL]
    chat.ask(user())
    assert bool(chat.asks(user(tokens=1), **settings)[0]) is is_hit


def test_usage_splits_the_written_tokens_by_ttl() -> None:  # rule 18
    chat = Conversation()
    options = {"mode": "explicit", "ttl": "12h"}
    usage = chat.ask(marked(user()), marked(user(), ttl="30m"), prompt_cache_options=options).response["usage"]
    details = usage["input_tokens_details"]
    split = details["cache_write_tokens_details"]
    assert details["cached_tokens"] == 0
    assert 0 < split["ttl_30m_tokens"] == split["ttl_12h_tokens"] == details["cache_write_tokens"] / 2


# -- diagnostics ----------------------------------------------------------------------------------


def test_diagnostics_come_when_they_were_asked_for_and_are_enabled() -> None:  # rule 19
    for enabled in (True, False):
        chat = Conversation(diagnostics_enabled=enabled)
        first = chat.ask(user()).response
        assert "prompt_cache_diagnostics" not in first
        second = chat.ask(user(), prompt_cache_options=compared(first)).response
        assert ("prompt_cache_diagnostics" in second) is enabled


def test_diagnostics_are_a_hit_a_miss_with_counts_an_unknown_response_or_unavailable() -> None:  # rule 20
    assert Conversation().compare() == {"type": "cache_hit"}
    chat = Conversation()
    first = chat.ask(user(), user("cut")).response
    chat.items[1] = user("edit")
    answer = chat.ask(prompt_cache_options=compared(first))
    kept = chat.rules.count(user()["content"][0])
    miss = {"cache_missed_tokens": answer.response["usage"]["input_tokens"] - kept, "comparison_reusable_tokens": kept}
    assert diagnosis(answer) == {"type": "cache_miss", "reason": "input_changed", **miss}
    unknown = chat.ask(prompt_cache_options={"comparison_response_id": "resp_none"})
    assert diagnosis(unknown) == {"type": "comparison_response_not_found"}
    late = Conversation(unstated=Unstated(diagnostics_life_s=2 * HOUR))
    first = late.ask(user()).response
    assert diagnosis(late.ask(after_s=HOUR, prompt_cache_options=compared(first))) == {"type": "unavailable"}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"model": "gpt-6.2-astra"}, "model_changed"),
        ({"prompt_cache_key": "b"}, "prompt_cache_key_changed"),
        ({"tools": [TOOL]}, "tools_changed"),
        ({"text": {"format": SCHEMA}}, "text_format_changed"),
        ({"reasoning": {"effort": "high"}}, "reasoning_effort_changed"),
        ({"text": {"verbosity": "low"}}, "verbosity_changed"),
        ({"input": [user("other")]}, "input_changed"),
        ({"service_tier": "flex"}, "service_tier_changed"),
        ({"model": "gpt-6.2-astra", "tools": [TOOL], "service_tier": "flex"}, "model_changed"),
    ],
)
def test_a_miss_has_one_of_nine_reasons_and_the_first_one_is_reported(settings: Json, reason: str) -> None:
    # rules 21, 22
    assert Conversation().compare(**settings)["reason"] == reason


def test_a_compacted_input_is_its_own_reason() -> None:  # rule 21
    chat = Conversation()
    first = chat.ask(user()).response
    chat.items = chat.rules.compact({"model": SOL, "input": chat.items}, chat.at).response["output"]
    chat.items[0] = chat.items.pop()
    assert diagnosis(chat.ask(user(), prompt_cache_options=compared(first)))["reason"] == "context_compacted"


def test_diagnostics_compare_only_with_a_completed_response_of_the_organization() -> None:  # rule 22
    for settings in ({"max_output_tokens": 1}, {"organization": "b"}):
        chat = Conversation()
        first = chat.ask(user(), **settings).response
        result = diagnosis(chat.ask(prompt_cache_options=compared(first)))
        assert result["type"] == "comparison_response_not_found"


def test_the_record_of_a_response_expires_before_the_response() -> None:  # rule 23
    chat = Conversation(unstated=Unstated(diagnostics_life_s=60))
    first = chat.ask(user()).response
    again = {"model": SOL, "input": [user()], "previous_response_id": first["id"]}
    answer = chat.rules.answer({**again, "prompt_cache_options": compared(first)}, chat.at + 61)
    assert diagnosis(answer) == {"type": "comparison_response_not_found"}


def test_another_key_is_reported_without_a_miss_and_the_returned_tier_is_compared() -> None:  # rule 24
    chat = Conversation()
    first = chat.ask(user(), prompt_cache_key="a").response
    answer = chat.ask(user(), prompt_cache_key="b", prompt_cache_options=compared(first))
    assert (diagnosis(answer)["reason"], answer.bill.cached > 0) == ("prompt_cache_key_changed", True)
    served = Conversation(tiers={"flex": "default"})
    assert served.compare(service_tier="flex") == {"type": "cache_hit"}


def test_no_reason_exists_for_instructions_ttl_the_minimum_or_breakpoints() -> None:  # rule 25
    assert Conversation(OLDER).compare(instructions="Be brief.") == {"type": "unavailable"}
    chat = Conversation()
    first = chat.ask(user()).response
    result = diagnosis(chat.ask(user(), prompt_cache_options={**EXPLICIT, **compared(first)}))
    assert result == {"type": "unavailable"}
    short = Conversation()
    first = short.ask(user(tokens=5)).response
    assert diagnosis(short.ask(prompt_cache_options=compared(first))) == {"type": "unavailable"}


# -- reasoning bound to its prefix ----------------------------------------------------------------


def test_withheld_reasoning_is_reported_in_input_order_with_its_reason() -> None:  # rule 26
    chat = Conversation()
    sent = [chat.ask(user(str(number))).response["output"][0]["id"] for number in range(2)]
    chat.items[1] = {"type": "reasoning", "id": sent[0], "summary": []}  # a stored item is known by its id
    answer = chat.ask(user(), organization="b")
    entry = {"type": "reasoning", "action": "removed", "reason": "organization_mismatch"}
    assert answer.response["input_transformations"] == [{"id": item_id, **entry} for item_id in sent]
    assert reasons(chat.ask(user(), reasoning={"context": "current_turn"})) == ["turn_boundary"] * 2 + [
        "organization_mismatch"
    ]


@pytest.mark.parametrize(("model", "withheld"), [(SOL, ["prefix_mismatch"]), ("gpt-6.1-terra", [])])
def test_from_gpt_6_2_on_reasoning_after_an_edit_is_withheld_and_that_before_it_is_kept(
    model: str, withheld: list[str]
) -> None:  # rule 27
    chat = Conversation(model)
    chat.ask(user("a"))
    chat.ask(user("b"))
    edited = next(item for item in chat.items if item.get("role") == "user" and "b" in item["content"][0]["text"])
    chat.items[chat.items.index(edited)] = user("c")
    assert reasons(chat.ask(user())) == withheld


@pytest.mark.parametrize(
    ("edit", "is_edit"),
    [
        (lambda items: items.__setitem__(0, developer("other")), True),
        (lambda items: items.__setitem__(3, {**OUTPUT, "output": "f"}), True),
        (lambda items: items.__setitem__(slice(0, 4), [user("summary")]), True),
        (lambda items: items.append(developer("one more")), False),
        (lambda items: items.__setitem__(1, marked(items[1])), False),
    ],
)
def test_a_changed_item_is_an_edit_of_the_prefix(edit: Any, is_edit: bool) -> None:  # rule 28
    chat = Conversation()
    chat.ask(developer(), user(), CALL, OUTPUT)
    edit(chat.items)
    assert bool(reasons(chat.ask(user()))) is is_edit


@pytest.mark.parametrize(
    ("settings", "is_edit"),
    [
        ({"tools": [TOOL]}, True),
        ({"text": {"format": SCHEMA}}, True),
        ({"instructions": "Be brief."}, False),
        ({"tool_choice": "none", "text": {"verbosity": "low"}}, False),
    ],
)
def test_tools_and_format_are_in_the_prefix_that_binds_and_instructions_are_not(settings: Json, is_edit: bool) -> None:
    # rule 28
    chat = Conversation()
    chat.ask(user())
    assert bool(reasons(chat.ask(user(), **settings))) is is_edit


@pytest.mark.parametrize(("model", "is_hit"), [(SOL, True), ("gpt-6.1-terra", False)])
def test_from_gpt_6_2_on_instructions_follow_the_input_and_are_billed_uncached(model: str, is_hit: bool) -> None:
    # rule 29
    chat = Conversation(model)
    chat.ask(user(), instructions="one")
    answer = chat.ask(user(), instructions="two")
    assert bool(answer.bill.cached) is is_hit
    assert answer.bill.uncached == (chat.rules.count("two") if is_hit else 0)


def test_reasoning_is_lost_to_another_model_end_user_or_organization() -> None:  # rule 30
    changes: dict[str, Json] = {
        "model_mismatch": {"model": "gpt-6.2-astra"},
        "end_user_mismatch": {"safety_identifier": "b"},
        "organization_mismatch": {"organization": "b"},
    }
    for reason, settings in changes.items():
        chat = Conversation()
        chat.ask(user())
        assert reasons(chat.ask(user(), **settings)) == [reason]
        assert reasons(chat.ask()) == [reason]  # now of the reasoning that the other one made
    tolerant = Conversation(unstated=Unstated(reads=lambda made_by, asked: True, end_user_field="user"))
    tolerant.ask(user())
    assert reasons(tolerant.ask(user(), model="gpt-6.2-astra", safety_identifier="b")) == []


def test_configuration_updates_and_additional_tools_keep_prefix_and_reasoning() -> None:  # rule 31
    chat = Conversation()
    chat.ask(user())
    update = {"type": "configuration_update", "reasoning": {"effort": "high"}, "text": {"format": SCHEMA}}
    tools = {"type": "additional_tools", "role": "developer", "tools": [TOOL]}
    answer = chat.ask(update, tools, user())
    assert (reasons(answer), answer.bill.cached > 0) == ([], True)
    assert answer.effective == {"effort": "high", "format": SCHEMA, "tools": ["look_up"]}
    assert chat.ask(user()).effective == answer.effective
    chat.items.remove(tools)
    assert reasons(chat.ask(user())) == ["prefix_mismatch"] * 2
    with pytest.raises(Refusal, match="role"):
        chat.ask({**tools, "role": "user"})


def test_reasoning_after_the_servers_compaction_is_kept_and_after_ones_own_it_is_lost() -> None:  # rule 32
    chat = Conversation()
    chat.ask(user())
    chat.items = chat.rules.compact({"model": SOL, "input": chat.items}, chat.at).response["output"]
    chat.ask(user())
    del chat.items[0]  # before the compaction
    assert reasons(chat.ask(user())) == []
    own = Conversation()
    own.ask(user("a"))
    own.ask(user("b"))
    own.items[:3] = [user("summary")]
    assert reasons(own.ask(user())) == ["prefix_mismatch"]


def test_an_explicit_compaction_forgets_updates_and_context_management_keeps_them() -> None:  # rule 33
    update = {"type": "configuration_update", "reasoning": {"effort": "high"}}
    chat = Conversation()
    chat.ask(update, user())
    chat.items = chat.rules.compact({"model": SOL, "input": chat.items}, chat.at).response["output"]
    assert chat.ask(user()).effective["effort"] is None
    managed = Conversation()
    managed.settings["context_management"] = [{"type": "compaction", "compact_threshold": 1000}]
    managed.ask(update, user())
    managed.items = managed.items[2:]  # from the compaction on
    assert managed.items[0]["type"] == "compaction"
    assert managed.ask(user(tokens=10)).effective["effort"] == "high"


def test_configuration_updates_are_refused_in_pro_mode_and_the_response_reports_the_baseline() -> None:  # rule 34
    update = {"type": "configuration_update", "reasoning": {"effort": "high"}}
    with pytest.raises(Refusal) as refused:
        Conversation("gpt-6-astra").ask(update, user(), reasoning={"mode": "pro"})
    assert (refused.value.status, str(refused.value)) == (400, CONFIGURATION_REFUSED)
    answer = Conversation("gpt-6-astra").ask(update, user(), reasoning={"effort": "low"})
    assert (answer.response["reasoning"]["effort"], answer.effective["effort"]) == ("low", "high")


@pytest.mark.parametrize(
    ("model", "context", "withheld"),
    [
        (OLDER, "auto", []),
        (OLD, "auto", ["turn_boundary"]),
        (OLD, "all_turns", []),
        (SOL, "current_turn", ["turn_boundary"]),
    ],
)
def test_reasoning_of_earlier_turns_is_shown_by_its_context(model: str, context: str, withheld: list[str]) -> None:
    # rule 35
    chat = Conversation(model)
    chat.ask(user(), reasoning={"context": context})
    assert reasons(chat.ask(OUTPUT, reasoning={"context": context})) == []
    assert set(reasons(chat.ask(user(), reasoning={"context": context}))) == set(withheld)


def test_sealed_content_is_final_only_when_its_item_is_done() -> None:  # rules 36, 22
    with run_openai_server(OpenAIRules(PRICES), NOW) as server:
        body = {"model": SOL, "input": [user()], "stream": True}
        lines = httpx2.post(f"{server.url}/responses", json=body).text.splitlines()
        events = [httpx2.Response(200, text=line[6:]).json() for line in lines if line.startswith("data: ")]
        for kind, status in (("added", 400), ("done", 200)):
            item = next(event["item"] for event in events if event["type"] == f"response.output_item.{kind}")
            answer = httpx2.post(f"{server.url}/responses", json={"model": SOL, "input": [user(), item, user()]})
            assert answer.status_code == status, answer.text
        assert events[-1]["type"] == "response.completed"


@pytest.mark.parametrize(
    "settings",
    [
        {"reasoning": {"effort": "none"}},
        {"reasoning": {"effort": "minimal"}},
        {"temperature": 1},
        {"top_p": 1},
        {"top_logprobs": 2},
        {"max_output_tokens": 128_001},
        {"input": [{"type": "configuration_update", "reasoning": {"effort": "none"}}]},
        {"input": [user(tokens=922_001)]},
    ],
)
def test_gpt_6_2_refuses_effort_none_sampling_parameters_and_too_much_input(settings: Json) -> None:  # rule 37
    body = {"model": SOL, "input": [user()], **settings}
    with pytest.raises(Refusal):
        OpenAIRules(PRICES).answer(body, NOW)
    assert OpenAIRules(PRICES).answer({**body, "model": "gpt-6.1-terra"}, NOW).response["status"] == "completed"


# -- compaction, tiers, life of models ------------------------------------------------------------


def test_compaction_starts_above_its_threshold_or_at_a_trigger_at_the_end() -> None:  # rule 38
    manage = [{"type": "compaction", "compact_threshold": 2000}]
    kinds = [
        [item["type"] for item in Conversation().ask(user(tokens=n), context_management=manage).response["output"]]
        for n in (1500, 2500)
    ]
    assert kinds == [["reasoning", "message"], ["compaction", "reasoning", "message"]]
    trigger = {"type": "compaction_trigger"}
    assert [item["type"] for item in Conversation().ask(user(), trigger).response["output"]] == ["compaction"]
    with pytest.raises(Refusal, match="last input item"):
        Conversation().ask(trigger, user())
    rules, items = OpenAIRules(PRICES), [user("a"), CALL, OUTPUT, user("b")]
    compacted = rules.compact({"model": SOL, "input": items}, NOW).response["output"]
    assert (compacted[:-1], compacted[-1]["type"]) == ([items[0], items[3]], "compaction")


def test_items_before_the_latest_compaction_may_be_left_out() -> None:  # rule 39
    chat = Conversation()
    chat.settings["context_management"] = [{"type": "compaction", "compact_threshold": 2000}]
    chat.ask(user(tokens=2500))
    body = {**chat.settings, "store": False}
    whole, pruned = [[*chat.items, user("next")], [*chat.items[1:], user("next")]]
    usages = [chat.rules.answer({**body, "input": items}, NOW + 9).bill for items in (whole, pruned, pruned)]
    assert sum(usages[0][:4]) == sum(usages[1][:4]) == usages[2].cached
    assert reasons(chat.ask(user())) == []


def test_an_output_over_its_limit_is_incomplete() -> None:  # rule 40
    response = Conversation().ask(user(), max_output_tokens=5).response
    assert (response["status"], response["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})


def test_the_response_says_the_tier_that_served_it_and_is_billed_by_it() -> None:  # rules 41, 42
    rules = OpenAIRules(PRICES, tiers={"flex": "default"})
    body: Json = {"model": "gpt-6-astra", "input": [user()]}
    standard = rules.answer(body, NOW)
    for asked, served, multiple in (("fast", "priority", 2), ("ultrafast", "ultrafast", 6), ("flex", "default", 1)):
        fresh = OpenAIRules(PRICES, tiers=rules.tiers).answer({**body, "service_tier": asked}, NOW)
        assert (fresh.response["service_tier"], fresh.bill.cost) == (served, standard.bill.cost * multiple)
    assert OpenAIRules(PRICES).answer({**body, "service_tier": "flex"}, NOW).bill.cost * 2 == standard.bill.cost
    assert rules.compact({**body, "service_tier": "fast"}, NOW).bill.tier == "fast"


def test_above_272k_input_the_whole_request_costs_more() -> None:  # rule 42
    short, long = (Conversation().ask(user(tokens=n), prompt_cache_options=EXPLICIT).bill for n in (272_000, 271_000))
    assert long.cost == (long.uncached * Decimal(2) + long.output * 10) / 1_000_000
    assert short.cost == (short.uncached * Decimal(4) + short.output * 15) / 1_000_000


def test_background_options_need_background_the_standard_tier_and_no_stream() -> None:  # rule 43
    options: Json = {"background_options": {"completion_window": "8h"}, "background": True}
    half = Conversation(unstated=Unstated(background_multiple=Decimal("0.5"))).ask(user(), **options).bill.cost
    assert half * 2 == Conversation().ask(user()).bill.cost
    for wrong in ({"background": False}, {"stream": True}, {"service_tier": "flex"}):
        with pytest.raises(Refusal, match="background_options"):
            Conversation().ask(user(), **{**options, **wrong})


def test_a_promotion_ends_with_its_last_day() -> None:  # rule 44
    for day, written, output in ((21, 5, 20), (22, Decimal("6.25"), 30)):
        bill = OpenAIRules(PRICES).answer({"model": OLDER, "input": [user()]}, november(day)).bill
        assert bill.cost == (bill.written_30m * written + bill.output * output) / Decimal(1_000_000)


def test_a_model_is_gone_from_its_shutdown_date_on() -> None:  # rule 45
    december = november(30) + 11 * 24 * HOUR
    for model, at, exists in (("o3-mini", NOW, False), ("gpt-5", NOW, True), ("gpt-5", december, False)):
        rules = OpenAIRules(PRICES)
        assert (model in {row["id"] for row in rules.models(at)}) is exists
        if not exists:
            with pytest.raises(Refusal, match=model):
                rules.answer({"model": model, "input": [user()]}, at)
    rows = {row["id"]: row["shutdown_date"] for row in OpenAIRules(PRICES).models(NOW)}
    assert (rows["gpt-5"], rows[SOL]) == ("2026-12-11", None)


# -- what no source states ------------------------------------------------------------------------

PICTURE = {"type": "input_image", "image_url": "data:,", "detail": "low"}


LONG_LIFE: Json = {"prompt_cache_options": {"ttl": "12h"}}
HIGHER_DETAIL: Json = {"input": [user(), {"role": "user", "content": [{**PICTURE, "detail": "high"}]}]}


@pytest.mark.parametrize(
    ("choice", "first", "second", "hits"),
    [
        ({"readable_after_s": 20}, {}, {}, (True, False)),
        ({"state_fields": True}, {}, {"store": False}, (True, False)),
        ({"image_detail": False}, {}, HIGHER_DETAIL, (False, True)),
        ({"hidden_in_usage": False}, {}, {}, (True, True)),
        ({"write_12h": Decimal(2)}, LONG_LIFE, LONG_LIFE, (True, True)),
        ({"binding_settings": frozenset({"reasoning.effort"})}, {}, {"reasoning": {"effort": "high"}}, (False, False)),
    ],
)
def test_what_no_source_states_is_a_choice(choice: Json, first: Json, second: Json, hits: tuple[bool, bool]) -> None:
    outcomes = []
    for unstated, is_hit in zip((Unstated(), Unstated(**choice)), hits, strict=True):
        chat = Conversation(unstated=unstated)
        chat.ask(user(), {"role": "user", "content": [PICTURE]}, **first)
        answer = chat.ask(user(tokens=10), **second)
        assert bool(answer.bill.cached) is is_hit
        outcomes.append((answer.bill, reasons(answer)))
    assert outcomes[0] != outcomes[1]


def test_whether_removed_reasoning_is_an_edit_is_a_choice() -> None:
    for binds, withheld in ((False, []), (True, ["prefix_mismatch"])):
        chat = Conversation(unstated=Unstated(reasoning_binds=binds))
        chat.ask(user())
        chat.ask(user())
        chat.items = [item for item in chat.items if item.get("id") != chat.items[1]["id"]]
        assert reasons(chat.ask(user())) == withheld
