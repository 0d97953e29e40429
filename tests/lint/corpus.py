"""Broken histories with their expected findings and whether a strict server refuses them.

Contains at least one history for each rule, and failures that users reported: see each title.
"""

from dataclasses import dataclass, replace

from convo.lint.model import LintView, lint_view_of_file
from tests.lint.lint_views import (
    ACME,
    CHAIN,
    CONVERSATION,
    DAY_S,
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


@dataclass(frozen=True)
class BrokenHistory:
    """A broken history.

    found:    the codes of its findings with item numbers, in the order of the items
    refused:  a strict endpoint refuses the next turn; others fail at another server, or lose input of the model
    """

    title: str
    view: LintView
    found: tuple[tuple[str, int | None], ...]
    refused: bool = True


def _compaction(seal: str = "convo1:openai/gpt-5-mini:0:x") -> dict[str, object]:
    return {"type": "compaction", "id": "cmp_1", "encrypted_content": seal}


CORPUS = [
    # -- states -----------------------------------------------------------------------------------
    BrokenHistory(
        "a paused run whose context holds the key of a provider",
        replace(lint_view_of_file([user(), answer()]), exposed_secrets=((".context.context.api_key", "an API key"),)),
        (("secret-in-state", None),),
        refused=False,
    ),
    # -- pairs ------------------------------------------------------------------------------------
    BrokenHistory(
        "a call stored without its output, so that every later turn is refused",
        lint_view_of_file([user(), call(), user("and now?")]),
        (("call-without-output", 1),),
    ),
    BrokenHistory(
        "a tool was interrupted and the session closed",
        make_lint_view(SESSION, turn([user()], [call()])),
        (("call-without-output", 1),),
    ),
    BrokenHistory(
        "a tool was interrupted on a chain, whose server has the call",
        make_lint_view(CHAIN, turn([user()], [answer()]), turn([user()], [call("c1"), call("c2")])),
        (("call-without-output", 3), ("call-without-output", 4)),
    ),
    BrokenHistory(
        "a tool was interrupted in a conversation, and another message followed",
        make_lint_view(CONVERSATION, turn([user()], [call()]), unconfirmed=[user("and now?")]),
        (("call-without-output", 1),),
    ),
    BrokenHistory(
        "a fork dropped the output of one of three parallel calls",
        lint_view_of_file([user(), call("c1"), call("c2"), call("c3"), output("c1"), output("c3"), answer()]),
        (("call-without-output", 2),),
    ),
    BrokenHistory(
        "a fork dropped one of two parallel calls and kept its output",
        lint_view_of_file([user(), call("c1"), output("c1"), output("c2"), answer()]),
        (("output-without-call", 3),),
    ),
    BrokenHistory(
        "trimming kept the output of a removed call",
        lint_view_of_file([output("c0"), answer(), user()]),
        (("output-without-call", 0),),
    ),
    BrokenHistory(
        "a tool ran although its response was cut in the call, and a session sends neither",
        make_lint_view(SESSION, turn([user()], [call(status="incomplete")]), unconfirmed=[output(), user()]),
        (("output-without-call", 2),),
        refused=False,
    ),
    BrokenHistory(
        "a tool ran although its response was cut in the call, in a file that is sent as it is",
        lint_view_of_file([user(), call(status="incomplete"), output(), user()]),
        (("output-without-call", 2),),
        refused=False,
    ),
    BrokenHistory(
        "an output precedes its call",
        lint_view_of_file([user(), output("c1"), call("c1"), answer()]),
        (("output-without-call", 1), ("call-without-output", 2)),
    ),
    BrokenHistory(
        "an output was added to a chain after its call was undone",
        make_lint_view(CHAIN, turn([user()], [answer()]), unconfirmed=[output("c9")]),
        (("output-without-call", 2),),
    ),
    BrokenHistory(
        "a requested screenshot was never taken",
        lint_view_of_file([user(), {"type": "computer_call", "call_id": "c1", "id": "cu_1", "action": {}}, user()]),
        (("call-without-output", 1),),
    ),
    BrokenHistory(
        "client-side calls of every other type were interrupted",
        lint_view_of_file(
            [
                user(),
                {"type": "custom_tool_call", "call_id": "c1", "name": "sed", "input": "s/a/b/"},
                {"type": "local_shell_call", "id": "lsh_1", "call_id": "c2", "action": {}, "status": "completed"},
                {"type": "shell_call", "call_id": "c3", "action": {"commands": ["ls"]}},
                {"type": "apply_patch_call", "call_id": "c4", "operation": {}, "status": "completed"},
            ]
        ),
        tuple(("call-without-output", at) for at in (1, 2, 3, 4)),
    ),
    # -- other APIs -------------------------------------------------------------------------------
    BrokenHistory(
        "a message with the parts of Chat Completions",
        lint_view_of_file(
            [
                {"role": "user", "content": [{"type": "text", "text": "?"}]},
                {
                    "role": "user",
                    "content": [{"type": "input_image", "image_url": {"url": "data:image/png;base64,AA"}}],
                },
            ]
        ),
        (("foreign-part", 0), ("foreign-part", 1)),
    ),
    # -- reasoning --------------------------------------------------------------------------------
    BrokenHistory(
        "reasoning behind an edited message, which the provider removes itself",
        replace(
            make_lint_view(SESSION, turn([user()], [sealed_reasoning(), answer()])),
            changed_prefixes={1: ("this reasoning was made with another prefix", "resp_1")},
        ),
        (("changed-prefix", 1),),
        refused=False,
    ),
    BrokenHistory(
        "reasoning without the item after it, at the end",
        lint_view_of_file([user(), sealed_reasoning()]),
        (("reasoning-without-follower", 1),),
    ),
    BrokenHistory(
        "two reasoning items whose answer was trimmed",
        lint_view_of_file([user(), sealed_reasoning(1), sealed_reasoning(2), user("again"), answer()]),
        (("reasoning-without-follower", 1), ("reasoning-without-follower", 2)),
    ),
    BrokenHistory(
        "reasoning whose next item a session lost, which the session does not send",
        make_lint_view(SESSION, turn([user()], [sealed_reasoning()]), turn([user()], [answer()])),
        (("reasoning-without-follower", 1),),
        refused=False,
    ),
    BrokenHistory(
        "the answer after encrypted reasoning lost its id, and the reasoning has one",
        lint_view_of_file([user(), sealed_reasoning(1), sealed_reasoning(2), answer()]),
        (("reasoning-without-follower", 1), ("reasoning-without-follower", 2)),
        refused=False,
    ),
    BrokenHistory(
        "a replayed reasoning id that no longer exists",
        lint_view_of_file([user(), unsealed_reasoning(), answer(id="msg_1")]),
        (("reasoning-id-replayed", 1),),
    ),
    BrokenHistory(
        "a replayed reasoning id of a response with store=false",
        make_lint_view(REPLAY, turn([user()], [unsealed_reasoning(), answer(id="msg_1")]), scope=OPENAI),
        (("reasoning-id-replayed", 1),),
    ),
    BrokenHistory(
        "a reasoning id replayed to another organisation",
        make_lint_view(
            REPLAY, turn([user()], [unsealed_reasoning(), answer()], is_stored=True, scope=OPENAI), scope=ACME
        ),
        (("reasoning-id-replayed", 1),),
    ),
    BrokenHistory(
        "a reference to reasoning",
        lint_view_of_file([user(), {"type": "item_reference", "id": "rs_1"}, answer()]),
        (("reasoning-id-replayed", 1),),
    ),
    BrokenHistory(
        "an empty summary was dropped",
        lint_view_of_file(
            [user(), {key: value for key, value in sealed_reasoning().items() if key != "summary"}, answer(id="msg_1")]
        ),
        (("missing-summary", 1),),
    ),
    BrokenHistory(
        "a summary is null",
        make_lint_view(SESSION, turn([user()], [sealed_reasoning(summary=None), answer()])),
        (("missing-summary", 1),),
    ),
    BrokenHistory(
        "an answer lost its phase",
        lint_view_of_file(
            [user(), answer(phase="commentary"), call(), output(), answer(), user(), answer(phase="final_answer")]
        ),
        (("missing-phase", 4),),
        refused=False,
    ),
    # -- call arguments ---------------------------------------------------------------------------
    BrokenHistory(
        "incomplete arguments were saved, and the call has an output",
        lint_view_of_file([user(), call(arguments='{"city": "Bo'), output(), answer()]),
        (("invalid-arguments", 1),),
    ),
    BrokenHistory(
        "an incomplete call was saved when its stream broke",
        lint_view_of_file([user(), call(arguments='{"city": "Bonn", "da', status="incomplete")]),
        (("invalid-arguments", 1), ("call-without-output", 1)),
    ),
    BrokenHistory(
        "arguments were streamed twice",
        lint_view_of_file([user(), call(arguments='{"city": "Bonn"}{"city": "Bonn"}'), output()]),
        (("invalid-arguments", 1),),
    ),
    BrokenHistory(
        "arguments were stored as an object, as an empty string, and as a list",
        lint_view_of_file(
            [
                user(),
                call("c1", arguments={"city": "Bonn"}),
                call("c2", arguments=""),
                call("c3", arguments="[]"),
                output("c1"),
                output("c2"),
                output("c3"),
            ]
        ),
        tuple(("invalid-arguments", at) for at in (1, 2, 3)),
    ),
    # -- ids and shapes ---------------------------------------------------------------------------
    BrokenHistory(
        "two owners of one history: an answer was added again with its id",
        lint_view_of_file([user(), answer(id="msg_1"), user(), answer(id="msg_1")]),
        (("duplicate-item-id", 3),),
    ),
    BrokenHistory(
        "two answers have one id",
        lint_view_of_file([user(), answer("one", id="msg_1"), user(), answer("two", id="msg_1")]),
        (("duplicate-item-id", 3),),
    ),
    BrokenHistory(
        "a batch was written twice",
        lint_view_of_file(
            [
                user(),
                *[call(id="fc_1"), output(id="fco_1")],
                *[call(id="fc_1"), output(id="fco_1")],
                answer(),
            ]
        ),
        (("duplicate-item-id", 3), ("duplicate-item-id", 4)),
    ),
    BrokenHistory(
        "a chain is sent an item that it has",
        make_lint_view(CHAIN, turn([user()], [answer(id="msg_1")]), unconfirmed=[answer(id="msg_1"), user()]),
        (("duplicate-item-id", 2),),
    ),
    BrokenHistory(
        "messages of Chat Completions, and something without a type",
        lint_view_of_file([user(), {"role": "tool", "tool_call_id": "c1", "content": "sunny"}, {"text": "hi"}]),
        (("malformed-item", 1), ("malformed-item", 2)),
    ),
    BrokenHistory(
        "a call and its output without a call id",
        lint_view_of_file([user(), {"type": "function_call", "name": "f", "arguments": "{}"}, output()]),
        (("malformed-item", 1), ("output-without-call", 2)),
    ),
    # -- encrypted content ------------------------------------------------------------------------
    BrokenHistory(
        "encrypted content replayed to another model",
        make_lint_view(SESSION, turn([user()], [sealed_reasoning(), answer()], model="openai/o3"), scope=OPENAI),
        (("sealed-elsewhere", 1),),
        refused=False,
    ),
    BrokenHistory(
        "encrypted content replayed to another organisation",
        make_lint_view(SESSION, turn([user()], [sealed_reasoning(), answer(id="msg_1")], scope=OPENAI), scope=ACME),
        (("sealed-elsewhere", 1),),
        refused=False,
    ),
    BrokenHistory(
        "encrypted content replayed to another base URL, prefixed with the name of its issuer",
        make_lint_view(
            SESSION, turn([user()], [sealed_reasoning(encrypted_content="convo1:anthropic/claude:0:x"), answer()])
        ),
        (("sealed-elsewhere", 1),),
        refused=False,
    ),
    # -- compaction -------------------------------------------------------------------------------
    BrokenHistory(
        "a compaction between a call and its output",
        lint_view_of_file([user(), call(), _compaction(), output(), answer()]),
        (("misplaced-compaction", 2),),
    ),
    BrokenHistory(
        "a local compaction is sent to an owner that stores the history",
        make_lint_view(CHAIN, turn([user()], [answer()]), unconfirmed=[_compaction(), user()]),
        (("misplaced-compaction", 2),),
    ),
    BrokenHistory(
        "a compaction trigger before another message",
        lint_view_of_file([user(), {"type": "compaction_trigger"}, user()]),
        (("misplaced-compaction", 1),),
    ),
    # -- chains -----------------------------------------------------------------------------------
    BrokenHistory(
        "store=false inside a chain",
        make_lint_view(
            CHAIN,
            turn([user()], [answer("one")]),
            turn([user()], [answer("two")], is_stored=False),
            turn([user()], [answer("three")]),
        ),
        (("store-false-in-chain", 3),),
        refused=False,
    ),
    BrokenHistory(
        "a chain that was never stored",
        make_lint_view(
            CHAIN, turn([user()], [unsealed_reasoning(), answer(id="msg_1")], is_stored=False), scope=OPENAI
        ),
        (("store-false-in-chain", 2),),
        refused=False,
    ),
    BrokenHistory(
        "an anchor older than thirty days",
        make_lint_view(CHAIN, turn([user()], [answer()]), scope=OPENAI, age_s=31 * DAY_S),
        (("anchor-expired", 1),),
        refused=False,
    ),
    BrokenHistory(
        "an anchor that expires in two days",
        make_lint_view(CHAIN, turn([user()], [answer()]), scope=OPENAI, age_s=28 * DAY_S),
        (("anchor-expires-soon", 1),),
        refused=False,
    ),
    BrokenHistory(
        "instructions lost on a link of a chain",
        make_lint_view(CHAIN, turn([user()], [answer()], **INSTRUCTED), turn([user()], [answer()])),
        (("instructions-absent", 3),),
        refused=False,
    ),
    # -- several faults ---------------------------------------------------------------------------
    BrokenHistory(
        "an expired chain with an open call and reasoning",
        make_lint_view(CHAIN, turn([user()], [unsealed_reasoning(), call()]), scope=OPENAI, age_s=40 * DAY_S),
        (("anchor-expired", 2), ("call-without-output", 2)),
    ),
    BrokenHistory(
        "nearly every fault",
        lint_view_of_file(
            [
                {"role": "user", "content": "hi"},
                unsealed_reasoning(1),
                call("c1", arguments='{"a": [1', id="fc_1"),
                call("c2", id="fc_1"),
                _compaction(),
                output("c1"),
                output("c3"),
                {"type": "reasoning", "id": "rs_2", "encrypted_content": "x"},
            ]
        ),
        (
            ("reasoning-id-replayed", 1),
            ("invalid-arguments", 2),
            ("duplicate-item-id", 3),
            ("call-without-output", 3),
            ("misplaced-compaction", 4),
            ("output-without-call", 6),
            ("reasoning-without-follower", 7),
            ("missing-summary", 7),
        ),
    ),
]
