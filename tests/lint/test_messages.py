"""The exact text and the location of each finding and each change."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from convo.history.items import Item
from convo.history.records import Scope
from convo.lint.model import LintView, lint_view_of_file
from convo.lint.repair import repair_for_file, repair_for_session
from convo.lint.rules import lint_history, list_unchecked_rules
from tests.lint.lint_views import (
    APPROVAL_REQUEST,
    APPROVAL_RESPONSE,
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

SEARCH, FOUND = {"type": "tool_search_call", "call_id": None}, {"type": "tool_search_output", "call_id": None}
DEEP = '{"a": ' + "[" * 500_000

Finding = tuple[str, int | None, str, str | None, tuple[int, ...]]


def view_with_items(*items: Item) -> LintView:
    return lint_view_of_file([user(), *items, answer(id="msg_9")])


def findings(view: LintView) -> list[Finding]:
    return [
        (one.issue.message, one.issue.item_index, one.issue.field, one.issue.link_id, one.issue.related_indexes)
        for one in lint_history(view)
    ]


CHAINS: list[tuple[LintView, list[tuple[str, int | None, str]]]] = [
    (
        make_lint_view(CHAIN, turn([user()], [answer()]), turn([user()], [answer(), answer()], is_stored=False)),
        [("resp_2 was sent with store=false, so no request can continue from it", 4, "resp_2")],
    ),
    (
        make_lint_view(CHAIN, turn([user()], [answer()]), scope=OPENAI, age_s=31.4 * DAY_S),
        [("resp_1 is 31 days old; its endpoint may delete it after 30", 1, "resp_1")],
    ),
    (
        make_lint_view(CHAIN, turn([user()], [answer()]), unconfirmed=[user()], scope=OPENAI, age_s=27.5 * DAY_S),
        [("resp_1 may be deleted in 2.5 days", 1, "resp_1")],
    ),
    (
        make_lint_view(
            CHAIN,
            turn([user()], [answer()], **INSTRUCTED),
            turn([user()], [answer()]),
            turn([user()], [answer()], **INSTRUCTED),
            turn([user()], [answer()]),
        ),
        [
            ("resp_2 has no instructions; resp_1 has some, but responses do not inherit them", 3, "resp_2"),
            ("resp_4 has no instructions; resp_3 has some, but responses do not inherit them", 7, "resp_4"),
        ],
    ),
    (
        make_lint_view(
            CHAIN, turn([user()], [answer()], **INSTRUCTED), turn([user()], [answer()]), turn([user()], [answer()])
        ),
        [
            ("resp_2 has no instructions; resp_1 has some, but responses do not inherit them", 3, "resp_2"),
            ("resp_3 has no instructions; resp_1 has some, but responses do not inherit them", 5, "resp_3"),
        ],
    ),
]


@pytest.mark.parametrize(("view", "found"), CHAINS)
def test_a_finding_about_a_response_names_it(view: LintView, found: list[tuple[str, int | None, str]]) -> None:
    assert findings(view) == [(message, index, "", link, ()) for message, index, link in found]


def test_an_anchor_without_items_has_no_index() -> None:
    """A chain can begin with the response of another session."""
    view = make_lint_view(CHAIN, turn([user()], [answer()]), scope=OPENAI, age_s=31 * DAY_S)
    for age_s, text in [(31 * DAY_S, "is 31 days old"), (28 * DAY_S, "may be deleted in 2.0 days")]:
        assert view.anchor
        empty = replace(view, items=(), server_count=0, source_indexes=(), output_spans=())
        (found,) = lint_history(replace(empty, now=view.anchor.created_at + age_s))
        assert (found.issue.item_index, text in found.issue.message) == (None, True)


SEALED_WITHOUT_ID = {"type": "reasoning", "summary": [], "encrypted_content": "gAAAAAB"}

ITEMS: list[tuple[Sequence[Item], list[tuple[str, int, str]]]] = [
    ([SEALED_WITHOUT_ID, user()], [("a reasoning item is not followed by an item of the model", 1, "")]),
    ([{**SEALED_WITHOUT_ID, "summary": "none"}, answer()], [("a reasoning item has no summary list", 1, ".summary")]),
    (
        [{"type": "item_reference", "id": "rs_1"}, answer()],
        [("item reference rs_1 is only an id, and its server may not have stored it", 1, ".id")],
    ),
    ([{"text": "hi"}], [("the item has neither a type nor a role", 1, "")]),
    ([{"id": "x", "text": "hi"}], [("the item has neither a type nor a role", 1, "")]),
    ([{"type": "message", "content": "a"}], [("message has no role", 1, ".role")]),
    ([{"role": "tool", "content": "a"}], [("message has the invalid role 'tool'", 1, ".role")]),
    ([{"role": 7, "content": "a"}], [("message has a value of the wrong type in role", 1, ".role")]),
    ([{"role": "user"}], [("message has no content", 1, ".content")]),
    ([{"role": "user", "content": [7]}], [("message has a value of the wrong type in content", 1, ".content")]),
    ([{"role": "user", "content": 7}], [("message has a value of the wrong type in content", 1, ".content")]),
    ([{"type": "function_call", "name": "f", "arguments": "{}"}], [("function call has no call_id", 1, ".call_id")]),
    (
        [{"type": "function_call", "call_id": "c", "arguments": "{}"}, output("c")],
        [("function call has no name", 1, ".name")],
    ),
    (
        [call(), {"type": "function_call_output", "call_id": "c1"}],
        [("function call output has no output", 2, ".output")],
    ),
    ([{"type": "function_call_output", "output": "a"}], [("function call output has no call_id", 1, ".call_id")]),
    (
        [
            {"type": "custom_tool_call", "call_id": "c", "name": "f"},
            {"type": "custom_tool_call_output", "call_id": "c", "output": 7},
        ],
        [
            ("custom tool call has no input", 1, ".input"),
            ("custom tool call output has a value of the wrong type in output", 2, ".output"),
        ],
    ),
    ([{"type": "custom_tool_call", "name": "f", "input": ""}], [("custom tool call has no call_id", 1, ".call_id")]),
    (
        [
            {"type": "custom_tool_call", "call_id": "c", "input": ""},
            {"type": "custom_tool_call_output", "call_id": "c", "output": ""},
        ],
        [("custom tool call has no name", 1, ".name")],
    ),
    (
        [{"type": "custom_tool_call_output", "output": "a"}],
        [("custom tool call output has no call_id", 1, ".call_id")],
    ),
    ([{"type": "computer_call"}], [("computer call has no call_id", 1, ".call_id")]),
    (
        [{"type": "computer_call", "call_id": "c"}, {"type": "computer_call_output", "call_id": "c"}],
        [("computer call output has no output", 2, ".output")],
    ),
    (
        [{"type": "computer_call_output", "output": {}}],
        [("computer call output has no call_id", 1, ".call_id")],
    ),
    ([{"type": "compaction"}], [("compaction has no encrypted_content", 1, ".encrypted_content")]),
    ([{"type": "item_reference"}], [("item reference has no id", 1, ".id")]),
    ([call(arguments=None), output()], [("the arguments of weather are missing", 1, ".arguments")]),
    ([call(arguments={"a": 1}), output()], [("the arguments of weather are not a string", 1, ".arguments")]),
    ([call(arguments="[1]"), output()], [("the arguments of weather are not a JSON object", 1, ".arguments")]),
    ([call(arguments='{"a": '), output()], [("the arguments of weather are truncated", 1, ".arguments")]),
    ([call(arguments='{"a": "b'), output()], [("the arguments of weather are truncated", 1, ".arguments")]),
    ([call(arguments="{"), output()], [("the arguments of weather are truncated", 1, ".arguments")]),
    ([call(arguments='{"a": 1 '), output()], [("the arguments of weather are truncated", 1, ".arguments")]),
    ([call(arguments="{} x"), output()], [("the arguments of weather are not JSON: extra data", 1, ".arguments")]),
    ([call(arguments=DEEP), output()], [("the arguments of weather cannot be parsed as JSON", 1, ".arguments")]),
    ([call()], [("function call c1 has no output", 1, ".call_id")]),
    ([APPROVAL_REQUEST], [("mcp approval request mcpr_1 has no response", 1, ".id")]),
    ([SEARCH], [("tool search call has no output", 1, ".call_id")]),
    ([{"type": "program", "call_id": "p1", "code": ""}], [("program p1 has no output", 1, ".call_id")]),
    ([output()], [("this function call output has no earlier call c1", 1, ".call_id")]),
    ([APPROVAL_RESPONSE], [("this mcp approval response has no earlier request mcpr_1", 1, ".approval_request_id")]),
    ([FOUND], [("this tool search output has no earlier call", 1, ".call_id")]),
    (
        [SEARCH, FOUND, FOUND, SEARCH, FOUND],
        [("this tool search output has no earlier call", 3, ".call_id")],
    ),
    ([call(), output(), output()], [("call c1 also has a later output", 2, ".call_id")]),
    (
        [APPROVAL_REQUEST, APPROVAL_RESPONSE, APPROVAL_RESPONSE],
        [("request mcpr_1 also has a later response", 2, ".approval_request_id")],
    ),
    ([sealed_reasoning(), user()], [("reasoning rs_1 is not followed by an item of the model", 1, "")]),
    (
        [{"type": "reasoning", "summary": [], "encrypted_content": "x"}, user()],
        [("a reasoning item is not followed by an item of the model", 1, "")],
    ),
    (
        [unsealed_reasoning()],
        [("reasoning rs_1 is only an id, and its server may not have stored it", 1, ".id")],
    ),
    (
        [{"type": "item_reference", "id": "rs_1"}],
        [("item reference rs_1 is only an id, and its server may not have stored it", 1, ".id")],
    ),
    ([sealed_reasoning(summary=None)], [("reasoning rs_1 has no summary list", 1, ".summary")]),
    ([{"type": "compaction_trigger"}], [("a compaction_trigger must be the last item of a request", 1, "")]),
    (
        [answer(), user(), answer(phase="final_answer"), user(), answer(phase="commentary"), user()],
        [
            ("this assistant message has no phase, although others have one", 1, ".phase"),
            ("this assistant message has no phase, although others have one", 7, ".phase"),
        ],
    ),
]


@pytest.mark.parametrize(("items", "found"), ITEMS)
def test_a_finding_about_an_item_names_its_field(items: list[Item], found: list[tuple[str, int, str]]) -> None:
    assert findings(view_with_items(*items)) == [(message, index, field, None, ()) for message, index, field in found]


@pytest.mark.parametrize(
    ("items", "message", "index", "field", "related"),
    [
        ([answer(id="m"), user(), answer(id="m")], "m is the id of an earlier item", 3, ".id", (1,)),
        ([call(), COMPACTION, output()], "the compaction item is between call c1 and its output", 2, "", (1, 3)),
        (
            [COMPACTION, call(), COMPACTION, COMPACTION, output()],
            "the compaction item is between call c1 and its output",
            4,
            "",
            (2, 5),
        ),
    ],
)
def test_a_finding_about_several_items_names_them(
    items: list[Item], message: str, index: int, field: str, related: tuple[int, ...]
) -> None:
    assert findings(view_with_items(*items)) == [(message, index, field, None, related)]


ELSEWHERE = Scope("https://elsewhere")
SEALED_BY_CONVO = {**COMPACTION, "encrypted_content": "convoseal1:x"}


@pytest.mark.parametrize(
    ("view", "message"),
    [
        (
            make_lint_view(REPLAY, turn([user()], [unsealed_reasoning(), answer()]), scope=OPENAI),
            "reasoning rs_1 is only an id, and resp_1 was sent with store=false",
        ),
        (
            make_lint_view(
                REPLAY, turn([user()], [unsealed_reasoning(), answer()], is_stored=True, scope=OPENAI), scope=ELSEWHERE
            ),
            "reasoning rs_1 is only an id, stored at https://api.openai.com/v1 and not at https://elsewhere",
        ),
        (
            make_lint_view(SESSION, turn([user()], [SEALED_BY_CONVO, answer()], scope=ELSEWHERE), scope=OPENAI),
            "the compaction was encrypted by the gateway at https://elsewhere, but the next request goes to "
            "https://api.openai.com/v1",
        ),
        (
            make_lint_view(SESSION, turn([SEALED_BY_CONVO, user()], [answer()], scope=OPENAI), scope=OPENAI),
            "the compaction was encrypted by the gateway at embedded, but the next request goes to "
            "https://api.openai.com/v1",
        ),
        (
            make_lint_view(
                SESSION, turn([user()], [sealed_reasoning(encrypted_content="convo1:anthropic%2Fclaude:0:x"), answer()])
            ),
            f"the reasoning was encrypted by anthropic/claude, but the next request goes to {GPT}",
        ),
        (
            make_lint_view(
                SESSION, turn([sealed_reasoning(encrypted_content="convo1:openai%2Fo3:0:x"), answer()], [answer()])
            ),
            f"the reasoning was encrypted by openai/o3, but the next request goes to {GPT}",
        ),
        (
            make_lint_view(CHAIN, turn([user()], [answer()]), unconfirmed=[COMPACTION, user()]),
            "the server already has the history that this item replaces, so the model would read it twice",
        ),
    ],
)
def test_a_finding_names_the_server_and_the_model(view: LintView, message: str) -> None:
    (found,) = findings(view)
    field = "" if message.startswith("the server") else ".id" if "only an id" in message else ".encrypted_content"
    assert (found[0], found[2]) == (message, field)


@pytest.mark.parametrize(
    ("view", "sentences"),
    [
        (
            view_with_items(sealed_reasoning()),
            ["1 encrypted item not checked: its origin or the next model is unknown"],
        ),
        (
            view_with_items(sealed_reasoning(1), sealed_reasoning(2)),
            ["2 encrypted items not checked: their origin or the next model is unknown"],
        ),
        (
            replace(make_lint_view(SESSION, turn([user()], [sealed_reasoning(), answer()])), scope=None),
            ["1 encrypted item not checked: its origin or the next model is unknown"],
        ),
        (
            replace(make_lint_view(SESSION, turn([user()], [sealed_reasoning(), answer()])), model=None),
            ["1 encrypted item not checked: its origin or the next model is unknown"],
        ),
        (
            make_lint_view(SESSION, turn([sealed_reasoning(), answer()], [answer()])),
            ["1 encrypted item not checked: its origin or the next model is unknown"],
        ),
        (
            make_lint_view(
                SESSION, turn([sealed_reasoning(encrypted_content=f"convo1:{GPT}:0:x"), answer()], [answer()])
            ),
            [],
        ),
        (make_lint_view(SESSION, turn([SEALED_BY_CONVO], [answer()])), []),
        (
            lint_view_of_file([user()], {"previous_response_id": "resp_1"}),
            ["age of the previous response not checked: its creation time is unknown"],
        ),
        (
            replace(make_lint_view(CHAIN, turn([user()], [answer()])), anchor=None),
            ["age of the previous response not checked: its creation time is unknown"],
        ),
        (replace(make_lint_view(CHAIN, unconfirmed=[user()]), anchor=None), []),
        (lint_view_of_file([user()], {"conversation": "conv_1"}), []),
    ],
)
def test_a_rule_that_could_not_be_checked_says_why(view: LintView, sentences: list[str]) -> None:
    assert [reason for _, reason in list_unchecked_rules(view)] == sentences


def test_a_secret_is_named_with_its_path() -> None:
    view = replace(lint_view_of_file([user()]), exposed_secrets=((".context.api_key", "an API key"),))
    assert findings(view) == [("the file seems to contain an API key", None, ".context.api_key", None, ())]
    (change,) = repair_for_session(view).changes[1:]
    assert change.reason == (
        "the file seems to contain an API key: the repaired history has no context; texts of messages are not changed"
    )


# -- changes --------------------------------------------------------------------------------------

REPAIRED: list[tuple[list[Any], list[tuple[str, str, int | None]]]] = [
    ([{"text": "hi"}], [("dropped", "the item has neither a type nor a role", 1)]),
    ([call()], [("added", "function call c1 has no output: an 'interrupted' output was added", 1)]),
    ([SEARCH], [("dropped", "tool search call has no output, and none can be created", 1)]),
    ([output()], [("dropped", "this function call output has no earlier call c1", 1)]),
    (
        [call(arguments='{"a": "' + "x" * 51 + '"'), output()],
        [("replaced", 'the arguments of weather are truncated: they are now {"a": "' + "x" * 51 + '"}', 1)],
    ),
    (
        [call(arguments='{"a": "' + "x" * 52 + '"'), output()],
        [("replaced", 'the arguments of weather are truncated: they are now {"a": "' + "x" * 52 + '"...', 1)],
    ),
    (
        [answer(id="m"), user(), answer(id="m"), answer("b", id="m")],
        [
            ("dropped", "m is the id of an earlier item", 3),
            ("replaced", "m is the id of an earlier item with other content: the id was removed", 4),
        ],
    ),
    (
        [call(), COMPACTION, output()],
        [
            ("dropped", "a compaction item is between the call and its output", 1),
            ("dropped", "a compaction item is between the call and its output", 3),
        ],
    ),
    (
        [{"type": "compaction_trigger"}],
        [("dropped", "a compaction_trigger must be the last item of a request", 1)],
    ),
    ([sealed_reasoning(summary=None)], [("replaced", "an empty summary was added", 1)]),
    ([sealed_reasoning(), user()], [("dropped", "reasoning rs_1 is not followed by an item of the model", 1)]),
    (
        [answer(), user(), answer(phase="final_answer"), answer(id="m"), call(), output()],
        [
            ("replaced", "its position in the turn implies final_answer", 1),
            ("replaced", "its position in the turn implies commentary", 4),
            ("replaced", "its position in the turn implies final_answer", 7),
        ],
    ),
]


@pytest.mark.parametrize(("items", "changes"), REPAIRED)
def test_a_change_of_a_file_has_its_reason(items: list[Item], changes: list[tuple[str, str, int | None]]) -> None:
    repaired = repair_for_file(view_with_items(*items))
    assert [(change.action, change.reason, change.source_index) for change in repaired.changes] == changes
    assert len({change.code for change in repaired.changes}) == 1


@pytest.mark.parametrize(
    ("view", "changes"),
    [
        (
            make_lint_view(
                CHAIN, turn([user()], [answer()]), turn([user()], [answer()], is_stored=False), unconfirmed=[user("3")]
            ),
            [
                (
                    "store-false-in-chain",
                    "anchor",
                    "resp_2 was sent with store=false, so no request can continue from it: the chain continues from "
                    "resp_1",
                ),
                ("store-false-in-chain", "dropped", "it comes after resp_1"),
                ("store-false-in-chain", "dropped", "it comes after resp_1"),
            ],
        ),
        (
            make_lint_view(CHAIN, turn([user()], [answer()]), scope=OPENAI, age_s=31 * DAY_S),
            [
                (
                    "anchor-expired",
                    "owner",
                    "resp_1 is 31 days old; its endpoint may delete it after 30: the local store owns the history now",
                )
            ],
        ),
        (
            make_lint_view(CHAIN, turn([user()], [answer()]), scope=OPENAI, age_s=28 * DAY_S),
            [
                (
                    "anchor-expires-soon",
                    "owner",
                    "resp_1 may be deleted in 2.0 days: the local store owns the history now",
                )
            ],
        ),
        (
            make_lint_view(CHAIN, turn([user()], [answer()], **INSTRUCTED), turn([user()], [answer()])),
            [("instructions-absent", "instructions", "every turn sends the last known instructions from now on")],
        ),
        (
            make_lint_view(CONVERSATION, turn([user()], [answer()])),
            [
                (
                    "",
                    "owner",
                    "the conversation at its endpoint does not change: the local store has the repaired history",
                )
            ],
        ),
        (
            lint_view_of_file([user()]),
            [("", "owner", "the file does not change: the local store has the repaired history")],
        ),
    ],
)
def test_a_change_of_the_record_has_its_reason(view: LintView, changes: list[tuple[str, str, str]]) -> None:
    assert [(change.code, change.action, change.reason) for change in repair_for_session(view).changes] == changes
