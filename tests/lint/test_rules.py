"""Valid histories that resemble broken ones have no findings, and unchecked rules are reported."""

from importlib.resources import files
from typing import Any

import pytest

from convo.history.records import Scope
from convo.lint.model import LintView, Severity, lint_view_of_file
from convo.lint.rules import LINT_RULE_BY_CODE, LINT_RULES, lint_history, list_unchecked_rules
from tests.lint.lint_views import (
    ACME,
    CHAIN,
    COMPACTION,
    CONVERSATION,
    DAY_S,
    GPT,
    INSTRUCTED,
    OPENAI,
    REPLAY,
    SESSION,
    answer,
    call,
    make_lint_view,
    output,
    sealed_reasoning,
    turn,
    unsealed_reasoning,
    user,
)

LOCAL_SHELL = {"type": "local_shell_call", "id": "lsh_1", "call_id": "c1", "action": {}, "status": "completed"}

VALID: dict[str, LintView] = {
    "an empty history": lint_view_of_file([]),
    "messages in the short form": lint_view_of_file(
        [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    ),
    "a pair with a message between": lint_view_of_file([user(), call(), user("wait"), output(), answer()]),
    "parallel calls and their outputs in another order": lint_view_of_file(
        [call("a"), call("b"), output("b"), output("a")]
    ),
    "an output for a call of the request's previous response": lint_view_of_file(
        [output()], {"previous_response_id": "resp_1"}
    ),
    "an output for a call in the request's conversation": lint_view_of_file([output()], {"conversation": "conv_1"}),
    "an output for a call in a chain": make_lint_view(CHAIN, turn([user()], [call()]), unconfirmed=[output()]),
    "an output for a call in a conversation": make_lint_view(
        CONVERSATION, turn([user()], [call()]), unconfirmed=[output()]
    ),
    "an incomplete call that a session does not send": make_lint_view(
        SESSION, turn([user()], [answer()]), unconfirmed=[call(arguments='{"c', status="incomplete")]
    ),
    "an incomplete call at the end of a chain's response": make_lint_view(
        CHAIN, turn([user()], [call(arguments='{"c', status="incomplete")])
    ),
    "a call of a hosted tool": lint_view_of_file([user(), {"type": "web_search_call", "id": "ws_1"}, answer()]),
    "a local shell output with the id of its call": lint_view_of_file(
        [LOCAL_SHELL, {"type": "local_shell_call_output", "id": "c1", "output": "{}"}, answer(id="c1")]
    ),
    "consecutive reasoning items before one answer": lint_view_of_file(
        [user(), sealed_reasoning(1), sealed_reasoning(2), answer(id="msg_1")]
    ),
    "reasoning before a call without an id": lint_view_of_file([user(), sealed_reasoning(), call(), output()]),
    "reasoning before a search": lint_view_of_file(
        [user(), sealed_reasoning(), {"type": "web_search_call", "id": "ws_1"}, answer()]
    ),
    "reasoning at the end of a conversation": make_lint_view(
        CONVERSATION, turn([user()], [sealed_reasoning(summary=None)])
    ),
    "a reasoning id that a session does not send": make_lint_view(
        SESSION, turn([user()], [unsealed_reasoning(), answer()])
    ),
    "a reasoning id at the server that stores it": make_lint_view(
        REPLAY, turn([user()], [unsealed_reasoning(), answer()], is_stored=True), scope=OPENAI
    ),
    "a reasoning id in a request to its issuer": lint_view_of_file(
        [unsealed_reasoning(), answer()], {"conversation": "conv_1"}
    ),
    "reasoning as text": lint_view_of_file(
        [user(), unsealed_reasoning(content=[{"type": "reasoning_text", "text": "hm"}]), answer()]
    ),
    "a reference to an answer": lint_view_of_file([user(), {"id": "msg_1"}, {"type": "item_reference", "id": "msg_1"}]),
    "no phases": lint_view_of_file([user(), answer(), user(), answer()]),
    "a phase beside an answer of a model without phases": make_lint_view(
        SESSION,
        turn([user()], [answer()], model="openai/gpt-4.1"),
        turn([user()], [answer(phase="final_answer")]),
    ),
    "an incomplete answer without a phase": lint_view_of_file(
        [answer("half", status="incomplete"), user(), answer(phase="final_answer")]
    ),
    "arguments with surrounding whitespace": lint_view_of_file(
        [call(arguments=' {"a": {"b": [1, null]}}\n'), output()]
    ),
    "arguments of a call that the server stores": make_lint_view(
        CHAIN, turn([user()], [call(arguments="{")]), unconfirmed=[output()]
    ),
    "an id that the server has twice": make_lint_view(
        CHAIN, turn([user()], [answer(id="m")]), turn([user()], [answer(id="m")])
    ),
    "an item of an unknown type": lint_view_of_file([{"type": "moon_call", "phase_of": "moon"}]),
    "encrypted content of the same model under its snapshot name": make_lint_view(
        SESSION, turn([user()], [sealed_reasoning(), answer()], model=f"{GPT}-2025-08-07"), scope=OPENAI
    ),
    "encrypted content with the name of its model": make_lint_view(
        SESSION, turn([user()], [sealed_reasoning(encrypted_content="convo1:openai/gpt-5-mini:0:x"), answer()])
    ),
    "encrypted content of the same gateway, for any model": make_lint_view(
        SESSION, turn([user()], [{**COMPACTION, "encrypted_content": "convoseal1:x"}, answer()], model="local/a")
    ),
    "encrypted content that the server stores": make_lint_view(
        CHAIN, turn([user()], [sealed_reasoning(), answer()], model="openai/o3"), scope=OPENAI
    ),
    "a compaction at the beginning, and one after complete pairs": lint_view_of_file(
        [COMPACTION, user(), call(), output(), answer(), {**COMPACTION, "id": "cmp_2"}, user()]
    ),
    "a compaction of the server": make_lint_view(CONVERSATION, turn([user()], [COMPACTION, answer()])),
    "a compaction trigger at the end": lint_view_of_file([user(), {"type": "compaction_trigger"}]),
    "store=false where the client owns the history": make_lint_view(
        SESSION, turn([user()], [answer()], is_stored=False)
    ),
    "an old chain of our own endpoint": make_lint_view(CHAIN, turn([user()], [answer()]), age_s=400 * DAY_S),
    "an old conversation": make_lint_view(CONVERSATION, turn([user()], [answer()]), scope=OPENAI, age_s=400 * DAY_S),
    "a chain in its fourth week": make_lint_view(CHAIN, turn([user()], [answer()]), scope=OPENAI, age_s=26.9 * DAY_S),
    "a recent chain from an old response": make_lint_view(
        CHAIN, turn([user()], [answer()], created_at=0.0), turn([user()], [answer()]), scope=OPENAI
    ),
    "instructions of the session that are sent again": make_lint_view(
        CHAIN, turn([user()], [answer()], **INSTRUCTED), turn([user()], [answer()]), instructions="Be brief."
    ),
    "instructions that were added later": make_lint_view(
        CHAIN, turn([user()], [answer()]), turn([user()], [answer()], **INSTRUCTED)
    ),
}


@pytest.mark.parametrize("title", VALID)
def test_a_valid_history_has_no_findings(title: str) -> None:
    assert lint_history(VALID[title]) == ()


@pytest.mark.parametrize(
    ("age_days", "found"),
    [(26.99, []), (27.0, ["anchor-expires-soon"]), (29.99, ["anchor-expires-soon"]), (30.0, ["anchor-expired"])],
)
def test_a_response_is_expiring_for_three_days(age_days: float, found: list[str]) -> None:
    view = make_lint_view(CHAIN, turn([user()], [answer()]), scope=OPENAI, age_s=age_days * DAY_S)
    assert [one.code for one in lint_history(view)] == found


@pytest.mark.parametrize("owner", [{"previous_response_id": "resp_1"}, {"conversation": "conv_1"}])
def test_a_request_with_a_compaction_item_for_a_server_owner_is_reported(owner: dict[str, str]) -> None:
    items = [COMPACTION, user()]
    assert [(one.code, one.issue.item_index) for one in lint_history(lint_view_of_file(items, owner))] == [
        ("misplaced-compaction", 0)
    ]
    assert lint_history(lint_view_of_file(items)) == ()


def test_reasoning_of_an_unknown_maker_is_a_warning_and_of_another_maker_an_error() -> None:
    unknown = lint_history(lint_view_of_file([user(), unsealed_reasoning(), answer()]))
    known = lint_history(make_lint_view(REPLAY, turn([user()], [unsealed_reasoning(), answer()]), scope=OPENAI))
    assert [one.severity for one in (*unknown, *known)] == [Severity.WARNING, Severity.ERROR]


def test_the_maker_of_encrypted_items_in_a_file_is_not_checked_and_that_is_reported() -> None:
    ((code, reason),) = list_unchecked_rules(
        lint_view_of_file([user(), sealed_reasoning(), answer(), {**COMPACTION, "id": "cmp_1"}])
    )
    assert code == "sealed-elsewhere"
    assert reason.startswith("2 encrypted items not checked: their origin")
    assert list_unchecked_rules(lint_view_of_file([user(), answer()])) == ()
    assert (
        list_unchecked_rules(make_lint_view(SESSION, turn([user()], [sealed_reasoning(), answer()]), scope=OPENAI))
        == ()
    )


def test_the_age_of_the_previous_response_of_a_request_is_not_checked_and_that_is_reported() -> None:
    ((code, reason),) = list_unchecked_rules(lint_view_of_file([user()], {"previous_response_id": "resp_1"}))
    assert (code, reason.endswith("its creation time is unknown")) == ("anchor-expired", True)


@pytest.mark.parametrize(
    ("scope", "model", "text"),
    [
        (ACME, GPT, f"https://api.openai.com/v1, but the next request goes to {ACME}"),
        (Scope("https://eu"), GPT, "https://api.openai.com/v1, but the next request goes to https://eu"),
        (OPENAI, "openai/o3", f"{GPT}, but the next request goes to openai/o3"),
    ],
)
def test_foreign_encrypted_content_names_its_maker_and_the_current_model(scope: Scope, model: str, text: str) -> None:
    turns: Any = turn([user()], [sealed_reasoning(), answer()], scope=OPENAI, model=GPT)
    (one,) = lint_history(make_lint_view(SESSION, turns, scope=scope, model=model))
    assert one.issue.message == f"the reasoning was encrypted by {text}"


def test_the_rules_have_a_fixed_order_severity_and_summary() -> None:
    error, warning = Severity.ERROR, Severity.WARNING
    assert [(rule.code, rule.severity, rule.summary) for rule in LINT_RULES] == [
        ("store-false-in-chain", error, "a chain continues from a response that was not stored (store=false)"),
        ("anchor-expired", error, "a chain continues from a response older than 30 days"),
        ("anchor-expires-soon", warning, "a chain continues from a response that may expire within 3 days"),
        ("instructions-absent", warning, "a turn without the instructions of an earlier turn"),
        ("malformed-item", error, "an item with a required field missing or invalid"),
        ("duplicate-item-id", error, "an item with the id of an earlier item"),
        ("misplaced-compaction", error, "a compaction item or trigger in an invalid position"),
        ("sealed-elsewhere", error, "encrypted content of another model, organisation or base URL"),
        ("changed-prefix", warning, "reasoning that was made with another prefix than it has now"),
        ("reasoning-id-replayed", error, "reasoning that is only an id, sent to a server that did not store it"),
        ("invalid-arguments", error, "a function call whose arguments are not a JSON object"),
        ("output-without-call", error, "an output without an earlier call"),
        ("call-without-output", error, "a call without an output"),
        ("reasoning-without-follower", error, "reasoning without its required following item"),
        ("missing-summary", error, "reasoning without its required summary list"),
        ("missing-phase", warning, "an assistant message without a phase, although others have one"),
        ("foreign-part", error, "a part, field or item of Chat Completions or Anthropic's Messages"),
        ("secret-in-state", warning, "a RunState that seems to contain a key, a token or a password"),
    ]
    assert [rule.code for rule in LINT_RULES if rule.keeps_server_items] == [
        *("store-false-in-chain", "anchor-expired", "anchor-expires-soon", "instructions-absent"),
        *("changed-prefix", "call-without-output", "secret-in-state"),
    ]


BARE_REASONING = unsealed_reasoning()
PARTIAL_ANSWER, PARTIAL_CALL = answer("half", status="incomplete"), call(status="incomplete")
UNCONFIRMED = [BARE_REASONING, sealed_reasoning(2), PARTIAL_ANSWER, PARTIAL_CALL, output()]


@pytest.mark.parametrize(
    ("view", "flags"),
    [
        (lint_view_of_file(UNCONFIRMED), (True,) * 5),
        (lint_view_of_file(UNCONFIRMED, {"conversation": "conv_1"}), (True,) * 5),
        (lint_view_of_file(UNCONFIRMED, {"model": "m", "conversation": None}), (True,) * 5),
        (make_lint_view(REPLAY, unconfirmed=UNCONFIRMED), (True,) * 5),
        (make_lint_view(SESSION, unconfirmed=UNCONFIRMED), (False, True, True, False, True)),
        (
            make_lint_view(CHAIN, turn([user()], [answer()]), unconfirmed=UNCONFIRMED),
            (False, False, True, True, True, False, True),
        ),
        (
            make_lint_view(CONVERSATION, turn([user()], [answer()]), unconfirmed=UNCONFIRMED),
            (False, False, True, True, True, False, True),
        ),
        (
            make_lint_view(SESSION, turn([user()], [answer()]), unconfirmed=UNCONFIRMED),
            (True, True, False, True, True, False, True),
        ),
    ],
)
def test_the_owner_of_the_state_decides_which_items_are_sent(view: LintView, flags: tuple[bool, ...]) -> None:
    assert view.sent_flags == flags


@pytest.mark.parametrize(
    ("view", "properties"),
    [
        (lint_view_of_file([]), (False, False, True)),
        (lint_view_of_file([], {"previous_response_id": "resp_1"}), (True, True, True)),
        (lint_view_of_file([], {"conversation": {"id": "conv_1"}}), (True, False, True)),
        (make_lint_view(REPLAY), (False, False, True)),
        (make_lint_view(SESSION), (False, False, False)),
        (make_lint_view(CHAIN), (True, True, False)),
        (make_lint_view(CONVERSATION), (True, False, False)),
    ],
)
def test_the_owner_of_the_state_is_a_server_a_chain_or_a_file(
    view: LintView, properties: tuple[bool, bool, bool]
) -> None:
    assert (view.is_server_side, view.is_chain, view.is_sent_verbatim) == properties


def test_every_page_belongs_to_a_rule() -> None:
    pages = files("convo.lint").joinpath("pages").iterdir()
    assert {page.name for page in pages} == {f"{code}.md" for code in LINT_RULE_BY_CODE}
