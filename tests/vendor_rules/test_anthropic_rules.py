"""The enforcing Anthropic server does what each published rule says: one test a rule."""

import json
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import httpx2
import pytest

from tests.vendor_rules.anthropic_server import (
    BINDING,
    CLEAR_AT,
    COMPACT,
    INLINE_TOOLS,
    MESSAGE_CONFIG,
    TOOL_CHANGES,
    Answer,
    AnthropicRules,
    Price,
    Unstated,
    run_anthropic_server,
)
from tests.vendor_rules.rules_server import Json, Refusal

NOW = datetime(2026, 11, 28, tzinfo=UTC).timestamp()
NEW_ACCOUNT = datetime(2026, 8, 31, tzinfo=UTC).timestamp()
OPUS, OPUS_5, FABLE, FABLE_NEW, HAIKU = (
    "claude-opus-5-5",
    "claude-opus-5-20260701",
    "claude-fable-5-1",
    "claude-fable-5-2",
    "claude-haiku-5-5",
)
PRICE = [Price(Decimal(4), Decimal(20))]
PRICES = {
    **dict.fromkeys((OPUS, OPUS_5, FABLE, FABLE_NEW, "claude-sonnet-5-5", "claude-sonnet-5"), PRICE),
    **dict.fromkeys(("claude-mythos-5", "claude-mythos-5-1", "claude-mythos-5-2"), PRICE),
    **dict.fromkeys(("claude-opus-4-8", "claude-opus-4-7", "claude-opus-4-6", "claude-sonnet-4-6"), PRICE),
    HAIKU: [Price(Decimal("0.10"), Decimal("0.50"), 100_000), Price(Decimal("0.50"), Decimal("2.50"))],
}
ALL_BETAS = (BINDING, CLEAR_AT, COMPACT, INLINE_TOOLS, MESSAGE_CONFIG, TOOL_CHANGES)
MARK: Json = {"cache_control": {"type": "ephemeral"}}
HOUR: Json = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
DROP: Json = {"thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
TOOL = {"name": "look_up", "input_schema": {"type": "object"}}
RARE = {"name": "rare", "input_schema": {"type": "object"}, "defer_loading": True}
CALL = {"type": "tool_use", "id": "t", "name": "look_up", "input": {"word": "a"}}
RESULT = {"type": "tool_result", "tool_use_id": "t", "content": "found"}
PREFIX = "prefix_binding_mismatch"


def text(words: str = "", *, tokens: int = 5000, **mark: Any) -> Json:
    return {"type": "text", "text": words + "x" * 4 * tokens, **mark}


def user(*blocks: Json | str, **fields: Any) -> Json:
    return {"role": "user", "content": [text(b, tokens=10) if isinstance(b, str) else b for b in blocks], **fields}


def system(words: str, **fields: Any) -> Json:
    return {"role": "system", "content": words, **fields}


SCOPED = system("x" * 4000, clear_at="next_user_message")


class Conversation:
    """A client that sends all messages of a conversation each time, with automatic caching and all betas."""

    def __init__(self, model: str = OPUS, *, settings: Json | None = None, **options: Any) -> None:
        self.rules = AnthropicRules(PRICES, **options)
        self.settings: Json = {"model": model, "max_tokens": 100, **MARK, **(settings or {})}
        self.messages: list[Json] = []
        self.at = NOW

    def ask(self, *messages: Json, after_s: float = 10.0, **settings: Any) -> Answer:
        """Append messages and the answer. `settings` hold for this request; those of the caller too."""
        names = ("organization", "workspace", "reply", "is_batch", "betas")
        caller = {"betas": ALL_BETAS} | {name: settings.pop(name) for name in names if name in settings}
        self.at += after_s
        request = {**self.settings, "messages": [*self.messages, *messages], **settings}
        answer = self.rules.answer(request, self.at, **caller)
        self.messages += [*messages, {"role": "assistant", "content": answer.response["content"]}]
        return answer

    def reads(self, *messages: Json, **settings: Any) -> int:
        return self.ask(*messages, **settings).bill.cached

    def compact(self) -> None:
        """Replace all messages by a summary."""
        block = self.ask(compaction={"type": "summarize"}).response["content"]
        self.messages = [{"role": "assistant", "content": block}]


def spoken(model: str = OPUS, **options: Any) -> Conversation:
    """A conversation of two answered turns, the first with a tool call."""
    chat = Conversation(model, **options)
    called = chat.ask(user(text("a")), reply=[{"type": "thinking", "thinking": "Hm.", "signature": ""}, CALL])
    assert called.response["stop_reason"] == "tool_use"
    chat.ask(user(RESULT))
    chat.ask(user("b"))
    return chat


def report(answer: Answer) -> list[tuple[str, str]]:
    return [(entry["path"], entry["reason"]) for entry in answer.response["input_transformations"]]


def thinking_of(chat: Conversation) -> list[tuple[int, int]]:
    return [
        (number, place)
        for number, message in enumerate(chat.messages)
        for place, block in enumerate(message["content"])
        if message["role"] == "assistant" and block["type"] == "thinking"
    ]


# -- cache ----------------------------------------------------------------------------------------


def test_the_prefix_is_tools_then_system_then_messages_with_four_breakpoints_and_a_lookback_of_20_blocks() -> None:
    # rule 47
    body: Json = {"model": OPUS, "tools": [{**TOOL, **MARK}], "system": [text("s", **MARK)]}
    for change, kept in (({"tools": [TOOL | {"name": "other"} | MARK]}, 0), ({"system": [text("t", **MARK)]}, 1)):
        rules = AnthropicRules(PRICES)
        first = rules.answer({**body, "tools": [TOOL, text_tool(**MARK)], "messages": [user(text())]}, NOW)
        changed = {**body, "tools": [TOOL, text_tool(**MARK)], "messages": [user(text())], **change}
        assert bool(rules.answer(changed, NOW + 9).bill.cached) is bool(kept)
        assert first.bill.written_5m
    Conversation().ask(user(*(text(**MARK) for _ in range(4))))
    with pytest.raises(Refusal, match=r"maximum of 4 .* Found 5"):
        Conversation().ask(user(*(text(**MARK) for _ in range(4)), text()))
    with pytest.raises(Refusal, match="1h"):
        Conversation().ask(user(text(**MARK), text(**HOUR)))
    for blocks, is_hit in ((20, True), (21, False)):
        chat = Conversation()
        chat.ask(user(text()), reply=[])
        assert bool(chat.reads(user(*(text(str(n), tokens=1) for n in range(blocks))))) is is_hit


def text_tool(**mark: Any) -> Json:
    return {"name": "long", "description": "x" * 4000, "input_schema": {"type": "object"}, **mark}


def test_automatic_caching_marks_the_last_cacheable_block_and_usage_splits_writes_by_ttl() -> None:  # rule 48
    chat = Conversation(settings={"system": [text("s", **HOUR)]})
    usage = chat.ask(user(text())).response["usage"]
    split = usage["cache_creation"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"]) == (0, 0)
    assert min(split.values()) > 0
    assert sum(split.values()) == usage["cache_creation_input_tokens"]
    thought = chat.ask(user("more"), reply=[{"type": "thinking", "thinking": "x" * 400, "signature": ""}])
    bill = chat.ask().bill  # the last block is thinking, which cannot be marked
    assert (bill.written_5m, bill.uncached) == (0, thought.bill.output)
    plain = {"model": OPUS, "messages": [user(text(**MARK), text())]}
    usage = AnthropicRules(PRICES).answer(plain, NOW).response["usage"]
    assert usage["input_tokens"] == usage["cache_creation_input_tokens"]  # only the rest behind the breakpoint


@pytest.mark.parametrize(
    ("model", "day", "multiple"),
    [
        (OPUS_5, 28, "0.1"),
        (OPUS, 28, "0.05"),
        (OPUS, -60, "0.1"),
        ("claude-sonnet-5-5", 28, "0.05"),
        (HAIKU, 28, "0.1"),
        (FABLE, 28, "0.025"),
        (FABLE_NEW, 28, "0.025"),
        ("claude-mythos-5", 28, "0.025"),
    ],
)
def test_writes_cost_more_for_an_hour_and_reads_a_part_by_model(model: str, day: int, multiple: str) -> None:  # rule 49
    rules, at = AnthropicRules(PRICES), NOW + (day - 28) * 86_400
    body: Json = {"model": model, "system": [text("s", **HOUR)], "messages": [user(text(**MARK))]}
    price = PRICES[model][0].input / 1_000_000
    first, second = (rules.answer(body, at + after, reply=[]).bill for after in (0, 9))
    assert first.cost == price * (first.written_1h * 2 + first.written_5m * Decimal("1.25"))
    assert second.cost == price * second.cached * Decimal(multiple) > 0


def test_haiku_5_5_is_billed_by_the_size_of_the_prompt() -> None:  # rule 50
    for tokens, price in ((99_000, Decimal("0.125")), (100_001, Decimal("0.625"))):
        bill = Conversation(HAIKU).ask(user(text(tokens=tokens)), reply=[]).bill
        assert bill.cost == bill.written_5m * price / 1_000_000


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        (OPUS, 512),
        (FABLE, 512),
        ("claude-opus-4-8", 1024),
        ("claude-sonnet-4-6", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-opus-4-6", 4096),
        (FABLE_NEW, 1500),
    ],
)
def test_below_the_minimum_of_the_model_nothing_is_cached_and_nothing_refused(model: str, minimum: int) -> None:
    # rule 51
    for tokens, is_written in ((minimum - 20, False), (minimum, True)):
        chat = Conversation(model, unstated=Unstated(minimum_tokens=1500))
        assert bool(chat.ask(user(text(tokens=tokens))).bill.written_5m) is is_written


def test_an_entry_can_be_read_once_the_first_response_begins_and_reads_extend_its_life() -> None:  # rule 52
    chat = Conversation(response_begins_after_s=2.0)
    body = {**chat.settings, "messages": [user(text())]}
    hits = [bool(chat.rules.answer(body, NOW + at_s).bill.cached) for at_s in (0, 1, 2, 250, 500, 801)]
    assert hits == [False, False, True, True, True, False]
    late = Conversation(response_begins_after_s=100.0)  # life counts from the start of the request
    assert [bool(late.rules.answer(body, NOW + at_s).bill.cached) for at_s in (0, 301)] == [False, False]


@pytest.mark.parametrize(
    ("change", "kept"),
    [
        ({"tools": [{**TOOL, "description": "new"}]}, ""),
        ({"tools": [text_tool(**MARK), {"type": "web_search_20250305", "name": "web_search"}]}, "tools"),
        ({"speed": "fast"}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tools system"),
        ({"thinking": {"type": "disabled"}}, "tools system"),
        ({"output_config": {"effort": "low"}}, "tools system"),
        ({"output_config": {"effort": "high"}}, "tools system messages"),
    ],
)
def test_a_change_invalidates_its_level_and_those_after_it(change: Json, kept: str) -> None:  # rule 53
    settings = {"tools": [text_tool(**MARK)], "system": [text("s", **MARK)]}
    rules, message = AnthropicRules(PRICES), user(text())
    body = {"model": OPUS, **MARK, **settings, "messages": [message]}
    rules.answer(body, NOW)
    sizes = {"tools": text_tool(), "system": text("s"), "messages": message["content"][0]}
    expected = sum(rules.count(sizes[level]) for level in kept.split())
    assert rules.answer({**body, **change}, NOW + 9).bill.cached == expected


def test_images_and_citations_invalidate_and_caches_are_isolated() -> None:  # rule 53
    picture = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aaaa"}}
    document = {"type": "document", "source": {"type": "text", "data": "d"}, "citations": {"enabled": True}}
    for block, is_system_kept in ((picture, True), (document, False)):
        chat = Conversation(settings={"system": [text("s", **MARK)]})
        chat.ask(user(text()))
        assert chat.reads(user(block)) == chat.rules.count(text("s")) * is_system_kept
    for platform, other, is_shared in (
        ("claude", {"workspace": "w"}, False),
        ("bedrock", {"workspace": "w"}, True),
        ("google", {"organization": "o"}, False),
    ):
        chat = Conversation(platform=platform)
        chat.ask(user(text()))
        assert bool(chat.reads(user("more"), **other)) is is_shared


# -- diagnostics ----------------------------------------------------------------------------------


def diagnose(change: Json, chat: Conversation | None = None) -> Any:
    """The diagnostics of a request that differs in `change` from the one before it."""
    chat = chat or Conversation(settings={"tools": [TOOL], "system": "s"})
    first = chat.ask(user(text()), diagnostics={"previous_message_id": None}).response
    assert first["diagnostics"] is None
    diagnostics = {"previous_message_id": first["id"]}
    return chat.ask(user("more"), **{"diagnostics": diagnostics, **change}).response["diagnostics"]


def test_diagnostics_are_null_unless_asked_for_and_diverged_and_their_reason_is_null_while_pending() -> None:  # rule 54
    assert diagnose({}) is None
    chat = Conversation(unstated=Unstated(pending=True))
    assert diagnose({"system": "t"}, chat) == {"cache_miss_reason": None}


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        ({"model": OPUS_5}, "model_changed"),
        ({"speed": "fast"}, "model_changed"),
        ({"tools": []}, "tools_changed"),
        ({"system": "t"}, "system_changed"),
        ({"messages": [user("other")]}, "messages_changed"),
        ({"thinking": {"type": "disabled"}}, "unavailable"),
        ({"tool_choice": {"type": "none"}, "messages": [user("other")]}, "unavailable"),
        ({"diagnostics": {"previous_message_id": "msg_none"}}, "previous_message_not_found"),
    ],
)
def test_a_miss_has_one_of_six_types(change: Json, kind: str) -> None:  # rule 55
    reason = diagnose(change)["cache_miss_reason"]
    assert reason["type"] == kind
    assert ("cache_missed_input_tokens" in reason) is kind.endswith("_changed")


def test_only_a_request_that_asked_can_be_compared_with() -> None:  # rule 56
    chat = Conversation()
    first = chat.ask(user(text())).response
    answer = chat.ask(user("more"), diagnostics={"previous_message_id": first["id"]})
    assert answer.response["diagnostics"] == {"cache_miss_reason": {"type": "previous_message_not_found"}}


# -- thinking bound to its prefix -----------------------------------------------------------------


def test_block_binding_needs_its_beta_and_thinking() -> None:  # rule 57
    chat = spoken(account_created=NEW_ACCOUNT)
    chat.messages[0] = user("edit")
    dropped = chat.ask(user("more"), **DROP)
    assert [reason for _, reason in report(dropped)] == [PREFIX] * 3
    wrong_settings: list[Json] = [{"betas": (), **DROP}, {"thinking": {**DROP["thinking"], "type": "disabled"}}]
    for wrong in wrong_settings:
        with pytest.raises(Refusal, match="block_binding"):
            Conversation().ask(user("hi"), **wrong)


def test_each_block_reports_its_path_and_the_first_reason_in_precedence() -> None:  # rule 58
    chat = spoken()
    paths = [f"messages.{number}.content.{place}" for number, place in thinking_of(chat)]
    edited = [user("edit"), *chat.messages[1:]]
    changes: list[tuple[str, Json]] = [
        ("organization", {"organization": "b", "metadata": {"user_id": "b"}, "model": FABLE_NEW}),
        ("end_user", {"metadata": {"user_id": "b"}, "model": FABLE_NEW}),
        ("model", {"model": FABLE_NEW}),
        ("prefix", DROP),
    ]
    for reason, settings in changes:
        caller = {"organization": settings.get("organization", "org")}
        body = {**chat.settings, "messages": [*edited, user("more")], **settings}
        body.pop("organization", None)
        answer = chat.rules.answer(body, NOW + 99, betas=ALL_BETAS, **caller)
        assert report(answer) == [(path, f"{reason}_binding_mismatch") for path in paths]
        assert {entry["type"] for entry in answer.response["input_transformations"]} == {"thinking_dropped"}
    assert "input_transformations" not in chat.ask(user("more"), betas=()).response


@pytest.mark.parametrize(
    ("model", "account", "setting", "outcome"),
    [
        (OPUS, 0.0, None, "thinking_mismatch_allowed"),
        (OPUS, NEW_ACCOUNT, None, "error"),
        (OPUS, NEW_ACCOUNT - 1, "error", "error"),
        (OPUS, NEW_ACCOUNT, "drop_block", "thinking_dropped"),
        (FABLE, NEW_ACCOUNT, None, "error"),
        (FABLE_NEW, 0.0, None, "error"),
        (FABLE_NEW, 0.0, "drop_block", "thinking_dropped"),
        (OPUS_5, NEW_ACCOUNT, None, ""),
    ],
)
def test_an_edited_prefix_is_refused_by_model_age_of_the_account_and_setting(
    model: str, account: float, setting: str | None, outcome: str
) -> None:  # rule 59
    chat = spoken(model, account_created=account)
    chat.messages[0] = user("edit")
    binding = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": setting}}
    settings: Json = {"thinking": binding} if setting else {}
    if outcome == "error":
        with pytest.raises(Refusal, match="bound to a different conversation"):
            chat.ask(user("more"), **settings)
        return
    kinds = {entry["type"] for entry in chat.ask(user("more"), **settings).response["input_transformations"]}
    assert kinds == ({outcome} if outcome else set())


def test_a_block_of_a_model_that_does_not_check_is_not_checked_by_one_that_does() -> None:  # rule 59
    chat = spoken(OPUS_5, account_created=NEW_ACCOUNT)
    chat.messages[0] = user("edit")
    assert report(chat.ask(user("more"), model=OPUS)) == []


@pytest.mark.parametrize(
    ("made_by", "asked", "platform", "is_read"),
    [
        (FABLE_NEW, FABLE, "claude", False),
        (FABLE_NEW, "claude-mythos-5-2", "claude", True),
        (OPUS_5, FABLE_NEW, "claude", False),
        ("claude-mythos-5-1", FABLE, "claude", False),
        (FABLE_NEW, OPUS, "claude", False),
        (OPUS_5, OPUS, "claude", True),
        ("claude-sonnet-4-6", OPUS, "claude", True),
        ("claude-sonnet-5-5", OPUS, "claude", False),
        (OPUS, FABLE, "claude", True),
        (OPUS_5, FABLE, "claude", True),
        (OPUS, FABLE, "bedrock", False),
    ],
)
def test_unreadable_thinking_is_dropped_unbilled_and_readable_again_later(
    made_by: str, asked: str, platform: str, is_read: bool
) -> None:  # rule 60
    chat = Conversation(made_by, platform=platform)
    thought = [{"type": "thinking", "thinking": "x" * 4000, "signature": ""}, text("done", tokens=10)]
    chat.ask(user(text("a")), reply=thought)
    tokens = chat.rules.count_input({**chat.settings, "messages": chat.messages}, chat.at)
    there = chat.ask(user("b"), model=asked)
    assert [reason for _, reason in report(there)] == ([] if is_read else ["model_binding_mismatch"])
    assert (sum(there.bill[:4]) < tokens) is not is_read
    back = chat.ask(user("c"))
    assert ("messages.1.content.0", "model_binding_mismatch") not in report(back)


Edit = Callable[[Conversation], Any]


def remove_thinking(which: slice) -> Edit:
    def edit(chat: Conversation) -> None:
        for number, place in thinking_of(chat)[which][::-1]:
            content = chat.messages[number]["content"]
            chat.messages[number] = {"role": "assistant", "content": content[:place] + content[place + 1 :]}

    return edit


def rewrite(number: int, **fields: Any) -> Edit:
    """Change fields of the first block of a message."""

    def edit(chat: Conversation) -> None:
        message = chat.messages[number]
        first, *rest = message["content"]
        chat.messages[number] = {**message, "content": [{**first, **fields}, *rest]}

    return edit


def set_field(**settings: Any) -> Edit:
    return lambda chat: chat.settings.update(settings)


VALID: dict[str, Edit] = {
    "append": lambda chat: chat.ask(user("c")),
    "add a deferred tool": set_field(tools=[TOOL, RARE]),
    "remove thinking from the start": remove_thinking(slice(0, 1)),
    "remove thinking from the end": remove_thinking(slice(-1, None)),
    "remove all thinking": remove_thinking(slice(None)),
    "change parameters": set_field(max_tokens=9, output_config={"effort": "low"}, tool_choice={"type": "none"}),
    "move the breakpoint": rewrite(0, **HOUR),
    "another URL of the same image": rewrite(6, source={"type": "url", "url": "b"}),
    "edit the context": set_field(context_management={"edits": [{"type": "clear_thinking_20251015"}]}),
    "leave a cleared system message": lambda chat: chat.ask(user("d"), system("for now", clear_at="next_user_message")),
}
INVALID: dict[str, Edit] = {
    "edit": rewrite(0, text="other"),
    "reorder": lambda chat: chat.messages.insert(0, chat.messages.pop(4)),
    "delete": lambda chat: chat.messages.pop(4),
    "shorten a tool result": rewrite(2, content="f"),
    "encode an image again": rewrite(6, source={"type": "url", "url": "other"}),
    "change the input of a call": lambda chat: chat.messages[1]["content"].__setitem__(1, {**CALL, "input": {}}),
    "add text in an earlier turn": lambda chat: chat.messages[0]["content"].append(text("more")),
    "change the system prompt": set_field(system="other"),
    "add a tool": set_field(tools=[TOOL, {**TOOL, "name": "second"}]),
    "remove a tool": set_field(tools=[]),
    "edit a tool": set_field(tools=[{**TOOL, "description": "new"}]),
    "remove thinking from the middle": remove_thinking(slice(1, 2)),
    "delete a turn-scoped message": lambda chat: chat.messages.pop(7),
    "edit the scope of a message": lambda chat: chat.messages.__setitem__(7, system("now")),
    "reword a turn-scoped message": lambda chat: chat.messages.__setitem__(
        7, system("x", clear_at="next_user_message")
    ),
}


def illustrated() -> Conversation:
    """A conversation with a tool, a tool call, an image by URL and a turn-scoped system message."""
    chat = spoken(account_created=NEW_ACCOUNT, url_content={"a": "same", "b": "same"}, settings={"tools": [TOOL]})
    picture = {"type": "image", "source": {"type": "url", "url": "a"}}
    chat.ask(user(picture), system("now", clear_at="next_user_message"))
    return chat


@pytest.mark.parametrize("name", VALID)
def test_an_edit_that_is_valid_keeps_all_thinking(name: str) -> None:  # rule 61
    chat = illustrated()
    VALID[name](chat)
    assert report(chat.ask(user("more"))) == []


@pytest.mark.parametrize("name", INVALID)
def test_an_edit_that_is_invalid_is_refused(name: str) -> None:  # rule 62
    chat = illustrated()
    INVALID[name](chat)
    with pytest.raises(Refusal, match="bound to a different conversation"):
        chat.ask(user("more"))


def test_removed_thinking_cannot_be_put_back() -> None:  # rule 62
    chat = illustrated()
    whole = [dict(message) for message in chat.messages]
    remove_thinking(slice(None))(chat)
    chat.ask(user("more"))
    chat.messages[: len(whole)] = whole
    with pytest.raises(Refusal, match="bound to a different conversation"):
        chat.ask(user("more"))


def test_the_refusal_names_the_block_batches_drop_and_counting_checks_too() -> None:  # rule 63
    chat = spoken(account_created=NEW_ACCOUNT)
    chat.messages[0] = user("edit")
    message = (
        "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
    )
    body = {**chat.settings, "messages": [*chat.messages, user("more")]}
    for ask in (chat.rules.answer, chat.rules.count_input):
        with pytest.raises(Refusal) as refused:
            ask(body, NOW + 99)
        assert str(refused.value).startswith(message)
        assert (refused.value.status, "set `thinking" in str(refused.value)) == (400, True)
    assert [reason for _, reason in report(chat.ask(user("more"), is_batch=True))] == [PREFIX] * 3
    forged = {"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "forged"}]}
    with pytest.raises(Refusal, match="Invalid `signature`"):
        Conversation().ask(user("a"), forged, user("b"))


def test_system_messages_tool_changes_and_effort_are_appended_with_their_betas() -> None:  # rule 64
    chat = spoken(account_created=NEW_ACCOUNT, settings={"tools": [TOOL, RARE]})
    added = {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "rare"}}
    defined = {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": {"name": "inline"}}}
    removed = {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "look_up"}}
    changes = {"role": "system", "content": [added, defined, removed], "output_config": {"effort": "low"}}
    answer = chat.ask(user("c"), changes, reply=[{**CALL, "id": "u"}])
    assert (report(answer), answer.bill.cached > 0) == ([], True)
    offered = {"effort": "low", "tools": ["rare", "inline"]}
    assert answer.effective == chat.ask(user({**RESULT, "tool_use_id": "u"})).effective == offered
    assert chat.ask(user("d")).effective == {**offered, "effort": "high"}
    Conversation().ask(user("a"), {"role": "system", "content": [added]}, betas=[TOOL_CHANGES])
    scoped = Conversation(settings={"cache_control": None})
    sizes = [sum(scoped.ask(*messages).bill[:4]) for messages in ([user("a"), SCOPED], [user("b")])]
    assert sizes[0] > 1000 > sizes[1]  # the text is shown for one turn
    for beta in (TOOL_CHANGES, INLINE_TOOLS, MESSAGE_CONFIG, CLEAR_AT):
        limited = {**changes, "clear_at": "next_user_message"}
        with pytest.raises(Refusal, match="not permitted"):
            Conversation().ask(user("a"), limited, betas=[name for name in ALL_BETAS if name != beta])
    for wrong in ([system("a"), user("b")], [user("a"), system("b"), user("c")]):
        with pytest.raises(Refusal, match="system message"):
            Conversation().ask(*wrong)
    with pytest.raises(Refusal, match="not supported with this model"):
        Conversation("claude-sonnet-5").ask(user("a"), system("b"))


# -- compaction -----------------------------------------------------------------------------------


def test_a_summary_comes_alone_and_edits_compact_above_their_trigger() -> None:  # rule 65
    chat = spoken(account_created=NEW_ACCOUNT)
    answer = chat.ask(compaction={"type": "summarize"}).response
    assert ([block["type"] for block in answer["content"]], answer["stop_reason"]) == (["compaction"], "compaction")
    not_allowed: list[Json] = [{"betas": ()}, {"context_management": {"edits": []}}]
    for wrong in not_allowed:
        with pytest.raises(Refusal, match="compaction"):
            chat.ask(compaction={"type": "summarize"}, **wrong)
    chat.messages = chat.messages[-1:]
    assert chat.ask(user("next")).bill.written_5m == 0  # a short prompt now
    for tokens, extra, kinds in (
        (149_000, {}, ["thinking", "text"]),
        (151_000, {}, ["compaction", "thinking", "text"]),
        (151_000, {"pause_after_compaction": True}, ["compaction"]),
    ):
        managed = Conversation(account_created=NEW_ACCOUNT)
        managed.settings["context_management"] = {"edits": [{"type": "compact_20260112", **extra}]}
        content = managed.ask(user(text(tokens=tokens))).response["content"]
        assert [block["type"] for block in content] == kinds
        after = managed.ask(user("next"))
        assert (report(after), sum(after.bill[:4]) < tokens) == ([], "compaction" in kinds)
        pruned = managed.messages[1 if "compaction" in kinds else 0 :]
        managed.messages = pruned
        assert report(managed.ask(user("next"))) == []


@pytest.mark.parametrize(
    ("code", "edit"),
    [
        ("ambiguous", lambda block: [block, block]),
        ("misplaced", lambda block: [text("first", tokens=1), block]),
        ("content_mismatch", lambda block: [{**block, "content": "edited"}]),
        ("signature_invalid", lambda block: [{**block, "signature": "forged"}]),
        ("tool_changes_mismatch", lambda block: [{**block, "tool_changes": [CALL]}]),
    ],
)
def test_a_summary_that_was_edited_is_refused_with_its_code(code: str, edit: Callable[[Json], list[Json]]) -> None:
    # rule 66
    chat = spoken()
    chat.compact()
    chat.messages[0] = {"role": "assistant", "content": edit(chat.messages[0]["content"][0])}
    with pytest.raises(Refusal) as refused:
        chat.ask(user("next"))
    assert refused.value.error["details"] == {"error_code": f"compaction_{code}"}


def test_what_cannot_be_compacted_is_refused_and_an_unavailable_compaction_can_be_retried() -> None:  # rule 66
    chat = spoken()
    chat.messages.append({"role": "assistant", "content": [{**CALL, "id": "open"}]})
    empty, unavailable = spoken(), spoken()
    empty.compact()
    unavailable.rules.compaction_available = False
    codes = []
    for one in (chat, empty, unavailable):
        with pytest.raises(Refusal) as refused:
            one.compact()
        codes.append((refused.value.status, refused.value.error["details"]["error_code"]))
    names = ("incomplete_turn", "nothing_to_summarize", "unavailable")
    assert codes == [(status, f"compaction_{name}") for status, name in zip((400, 400, 529), names, strict=True)]


@pytest.mark.parametrize(
    ("edit", "start", "is_valid"),
    [
        (set_field(), 4, True),
        (set_field(tools=[RARE]), 4, True),
        (set_field(tools=[TOOL]), 4, False),
        (set_field(system="other"), 4, False),
        (rewrite(1, text="other"), 4, False),
        (set_field(), 5, False),  # the summary and the first kept message have one role
        (set_field(), 6, False),  # a system message is kept
    ],
)
def test_a_tail_that_was_kept_behind_its_summary_stays_valid(edit: Edit, start: int, is_valid: bool) -> None:  # rule 67
    chat = spoken(account_created=NEW_ACCOUNT)
    if start == 6:
        chat.ask(user("c"), system("d"))
    tail = chat.messages[start:]
    chat.compact()
    chat.messages += tail
    edit(chat)
    for _ in range(2):
        if is_valid:
            assert report(chat.ask(user("next"))) == []
        else:
            with pytest.raises(Refusal, match="different conversation"):
                chat.ask(user("next"))


def test_a_kept_tail_may_hold_a_compaction_of_its_own() -> None:  # rule 67
    chat = spoken(account_created=NEW_ACCOUNT)
    edits = {"edits": [{"type": "compact_20260112", "trigger": {"type": "input_tokens", "value": 10}}]}
    chat.ask(user("c"), context_management=edits)
    tail = chat.messages[2:]
    chat.compact()
    chat.messages += tail
    assert report(chat.ask(user("next"))) == []


def test_over_http_the_same_rules_hold_with_and_without_streaming() -> None:
    with run_anthropic_server(AnthropicRules(PRICES, account_created=NEW_ACCOUNT), NOW) as server:
        headers = {"x-api-key": "k", "anthropic-beta": BINDING}
        body: Json = {"model": OPUS, **MARK, "messages": [user(text("a"))]}
        whole = httpx2.post(f"{server.url}/messages", json=body, headers=headers).json()
        lines = httpx2.post(f"{server.url}/messages", json={**body, "stream": True}, headers=headers).text.splitlines()
        events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        assert events[0]["message"]["usage"]["cache_read_input_tokens"] == whole["usage"]["cache_creation_input_tokens"]
        signed = next(event["delta"]["signature"] for event in events if "signature" in event.get("delta", {}))
        block = {"type": "thinking", "thinking": "", "signature": signed}
        body["messages"] = [user("edit"), {"role": "assistant", "content": [block]}, user("b")]
        refused = httpx2.post(f"{server.url}/messages", json=body, headers=headers)
        assert (refused.status_code, "messages.1.content.0" in refused.json()["error"]["message"]) == (400, True)
