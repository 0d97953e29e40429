"""Broken and hostile files are parsed, or refused with one sentence and its JSON path.

The tables list all 76 files. A file that is parsed is valid: a state may have unknown keys and items, may
lack members that every reader can create again, and may be large.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

from convo.errors import InvalidRunState, UnknownSchema
from convo.runstate.document import MAX_DEPTH, MAX_MEMBERS, format_path, replace_path
from convo.runstate.reader import parse_run_state
from convo.runstate.versions import LABELS
from tests.command_runner import Convo
from tests.runstate.snapshots import document, malformed, snapshot

UNKNOWN = ", which this version of convo does not support"
NEVER_WRITTEN = ", because no release of openai-agents wrote it"
SUPPORTED = "; supported: 1.0, 1.1, 1.2, 1.4, 1.5, 1.6, 1.9, 1.10, 1.11, 1.12, 1.13, 1.15, 1.16, 1.17, 1.18, 1.21"
NOT_THERE = "is missing; every release needs it"
NO_ID = "has no call id, so it cannot be approved or rejected"
NOT_THE_AGENTS = "is not the current agent, and not the agent of a nested state"
NOT_WHAT_RUNS = "; the approved call must be the call that runs"
NO_PAUSE = "is missing or empty, and a paused run cannot be resumed without it"
STEP = "$.current_step.data.interruptions"
PLAN = "$.last_processed_response"
LEDGER = "$.context.tool_invocations"

VALID = {
    "21_missing_session_items.json": "every reader makes them again from the generated items",
    "51_ledger_dropped.json": "no decision leans on it, and deciding writes the entry that is needed",
    "55_unknown_item_type.json": "an item that nobody knows travels on untouched",
    "57_extra_unknown_keys.json": "keys that nobody knows travel on untouched",
    "62_nul_and_controls.json": "control characters are escaped in JSON and legal in a string",
    "76_2MB_context_string.json": "a large state is a state",
}
"""The files that are parsed, and the reasons."""

INVALID = {
    "01_truncated_half.json": (
        "$.session_items[2]",
        "has a JSON syntax error: expecting property name enclosed in double quotes (line 368, column 39)",
    ),
    "02_empty_file.json": ("$", "is empty; a state must be one JSON object"),
    "03_bom_prefix.json": ("$", "begins with a UTF-8 byte order mark, which no release supports"),
    "04_trailing_garbage.json": ("$", "has a JSON syntax error: extra data (line 740, column 1)"),
    "05_root_is_list.json": ("$", "is a list, not an object"),
    "06_root_is_null.json": ("$", "is null, not an object"),
    "07_root_is_string.json": ("$", "is a string, not an object"),
    "08_missing_version.json": ("$.$schemaVersion", "is missing; it must be the schema version of the RunState"),
    "09_version_9_9.json": ("$.$schemaVersion", f"is '9.9'{UNKNOWN}{SUPPORTED}"),
    "10_version_number.json": ("$.$schemaVersion", "must be a string, not a number"),
    "11_version_1_3_never_released.json": ("$.$schemaVersion", f"is '1.3'{UNKNOWN}{NEVER_WRITTEN}{SUPPORTED}"),
    "12_version_downlabel_1_0.json": (
        "$.reasoning_item_id_policy",
        "needs label 1.2 or later, but the label is 1.0; this could bypass the approval checks of newer readers",
    ),
    "13_version_int_like.json": ("$.$schemaVersion", f"is '1.021'{UNKNOWN}{NEVER_WRITTEN}{SUPPORTED}"),
    "14_missing_current_agent.json": ("$.current_agent", NOT_THERE),
    "15_missing_original_input.json": ("$.original_input", NOT_THERE),
    "16_missing_context.json": ("$.context", NOT_THERE),
    "17_missing_max_turns.json": ("$.max_turns", NOT_THERE),
    "18_missing_current_turn.json": ("$.current_turn", NOT_THERE),
    "19_missing_model_responses.json": ("$.model_responses", NO_PAUSE),
    "20_missing_generated_items.json": ("$.generated_items", NO_PAUSE),
    "22_missing_last_processed_response.json": (PLAN, NO_PAUSE),
    "23_missing_current_step.json": (
        "$.current_step",
        "is missing; readers would continue and lose the pending calls (null means none)",
    ),
    "24_agent_unknown.json": (f"{STEP}[0].agent", NOT_THE_AGENTS),
    "25_agent_identity_unknown.json": (f"{STEP}[0].agent", NOT_THE_AGENTS),
    "26_agent_as_string.json": ("$.current_agent", "must be an object with the agent's name, not 'Fulfilment'"),
    "27_agent_null.json": ("$.current_agent", "must be an object with the agent's name, not null"),
    "28_wrong_agent_root.json": (f"{STEP}[0].agent", NOT_THE_AGENTS),
    "29_interruption_agent_unknown.json": (f"{STEP}[0].agent", NOT_THE_AGENTS),
    "30_nested_100k_arrays_in_context.json": ("$.context.deep[0][0][0][0][0][0]…", "is nested deeper than 400 levels"),
    "31_nested_100k_root.json": ("$[0][0][0][0][0][0][0][0]…", "is nested deeper than 400 levels"),
    "32_nested_100k_objects_in_input.json": ("$.original_input.a.a.a.a.a.a.a…", "is nested deeper than 400 levels"),
    "33_huge_int_current_turn.json": ("$.current_turn", "must be a number of turns, not a number"),
    "34_int_5000_digits.json": ("$.current_turn", "is a number with too many digits"),
    "35_nan_usage.json": ("$.model_responses[0].usage.total_tokens", "is NaN, which is not JSON"),
    "36_infinity_max_turns.json": ("$.max_turns", "is Infinity, which is not JSON"),
    "37_negative_max_turns.json": ("$.max_turns", "must be a number of turns, or null for no limit, not -5"),
    "38_max_turns_string.json": ("$.max_turns", "must be a number of turns, or null for no limit, not '10'"),
    "39_duplicate_keys.json": ("$.$schemaVersion", "is a duplicate key; readers differ on which value counts"),
    "40_duplicate_pending_call_id_other_args.json": (
        f"{STEP}[1].raw_item",
        "is the second pending call with id 'fc-call-wlgeejvJmGJCeP23ibC7G96p'; a decision would be ambiguous",
    ),
    "41_duplicate_pending_identical.json": (
        f"{STEP}[1].raw_item",
        "is the second pending call with id 'fc-call-wlgeejvJmGJCeP23ibC7G96p'; a decision would be ambiguous",
    ),
    "42_call_ids_are_ints.json": (f"{STEP}[0].raw_item", NO_ID),
    "43_pending_call_id_null.json": (f"{STEP}[0].raw_item", NO_ID),
    "44_pending_call_id_empty.json": (f"{STEP}[0].raw_item", NO_ID),
    "45_args_tampered_pending_only.json": (
        f"{PLAN}.functions[1].tool_call",
        f"differs from {STEP}[0].raw_item in its arguments{NOT_WHAT_RUNS}",
    ),
    "46_args_tampered_execution_only.json": (
        f"{PLAN}.functions[1].tool_call",
        f"differs from {STEP}[0].raw_item in its arguments{NOT_WHAT_RUNS}",
    ),
    "47_injected_sticky_approval.json": (
        "$.context.approvals.publish_card",
        "has a permanent decision without the tool's digest, which 1.15 and later need",
    ),
    "48_fingerprint_flipped.json": (
        f"{LEDGER}.fc-call-wlgeejvJmGJCeP23ibC7G96p",
        "is the entry of another call; the tool or the arguments of the call in this state were changed",
    ),
    "49_fingerprint_bad_hex.json": (
        f"{LEDGER}.call_E48dAF",
        "must be a call type, two digests, and consistent flags, not an object",
    ),
    "50_completed_without_executed.json": (
        f"{LEDGER}.call_E48dAF",
        "must be a call type, two digests, and consistent flags, not an object",
    ),
    "52_approvals_list.json": ("$.context.approvals", "must be an object, not a list"),
    "53_generated_items_null.json": ("$.generated_items", "must be a list of run items, not null"),
    "54_generated_items_object.json": ("$.generated_items", "must be a list of run items, not an object"),
    "56_item_without_raw.json": ("$.generated_items[0]", "must be a run item with its raw_item"),
    "58_tool_unknown_in_functions.json": (
        f"{PLAN}.functions[1].tool_call",
        f"differs from {STEP}[0].raw_item in its tool{NOT_WHAT_RUNS}",
    ),
    "59_conv_and_prev_both.json": (
        "$.previous_response_id",
        "is set together with conversation_id; a history has one owner",
    ),
    "60_conversation_id_number.json": ("$.conversation_id", "must be an id or null, not 42"),
    "61_lone_surrogate_args.json": (
        f"{LEDGER}.fc-call-wlgeejvJmGJCeP23ibC7G96p",
        "is the entry of a call that cannot have one: its arguments contain a lone surrogate (half a character)",
    ),
    "63_invalid_utf8.json": ("$.original_input", "is not UTF-8 at byte 116"),
    "64_utf16.json": ("$", "begins with a UTF-16 byte order mark; a state is UTF-8"),
    "65_nested_state_bad_version.json": (
        f"{PLAN}.functions[0].agent_run_state.$schemaVersion",
        f"is '9.9'{UNKNOWN}{SUPPORTED}",
    ),
    "66_nested_state_removed.json": (f"{STEP}[0].agent", NOT_THE_AGENTS),
    "67_last_processed_null_pending_kept.json": (PLAN, NO_PAUSE),
    "68_step_type_unknown.json": (
        "$.current_step.type",
        "must be one of next_step_interruption, next_step_run_again, not 'next_step_teleport'",
    ),
    "69_decision_both.json": (
        "$.context.function_tool_approvals[0].decision",
        "approves and rejects 'toolu_DedkrgCtnz' at once",
    ),
    "70_pending_input_object.json": ("$.pending_input", "must be a list of items, not an object"),
    "71_persisted_count_string.json": ("$.current_turn_persisted_item_count", "must be a number of items, not 'many'"),
    "72_usage_strings.json": ("$.context.usage.input_tokens", "must be a number of tokens or requests, not '12'"),
    "73_guardrail_boundary_bad.json": (f"{PLAN}.tool_output_guardrail_result_start", "is more than the 0 results"),
    "74_terminal_false.json": ("$.terminal_unrecoverable", "must be true or missing, not a boolean"),
    "75_pending_session_write_extra_key.json": (
        "$.pending_session_write",
        "must be a session write with items and no unknown keys, not an object",
    ),
}
"""The files that are refused: the path and the rest of the message."""

NEWER, UTF8 = "upgrade convo-state if a newer release wrote it", "save the file as UTF-8 without a byte order mark"
WRITE_AGAIN = "write the state again with a release of openai-agents"
HINTS = {
    "03_bom_prefix.json": UTF8,
    "09_version_9_9.json": NEWER,
    "11_version_1_3_never_released.json": WRITE_AGAIN,
    "13_version_int_like.json": WRITE_AGAIN,
    "64_utf16.json": UTF8,
    "65_nested_state_bad_version.json": NEWER,
}
"""The hints that differ from that of the other files."""


def refusal(data: bytes) -> InvalidRunState:
    with pytest.raises(InvalidRunState) as error:
        parse_run_state(data)
    return error.value


def encode_document(broken: Any) -> bytes:
    return json.dumps(broken).encode()


def test_the_tables_cover_every_file() -> None:
    assert {*VALID, *INVALID} == set(malformed())


@pytest.mark.parametrize("name", VALID)
def test_valid_files_are_read(name: str) -> None:
    assert len(parse_run_state(malformed()[name]).pending) == 1


def test_invalid_files_are_refused_with_one_sentence_and_the_path() -> None:
    for name, path, text in [(name, *reason) for name, reason in INVALID.items()]:
        error = refusal(malformed()[name])
        assert (error.path, error.message) == (path, f"{path} {text}")
        assert error.hint == HINTS.get(name, "use the original file; this one may have been edited or truncated")


def test_an_unknown_label_is_a_compatibility_error_that_lists_the_readable_ones() -> None:
    error = refusal(malformed()["09_version_9_9.json"])
    assert isinstance(error, UnknownSchema)
    assert (error.known_labels, error.hint) == (LABELS, "upgrade convo-state if a newer release wrote it")


@pytest.mark.parametrize(
    "label", ["1.3", "1.7", "1.8", "1.14", "1.19", "1.20", "1", "1.22", "2.0", "", "1.21 ", "x" * 99]
)
def test_only_labels_that_a_release_wrote_are_read(label: str) -> None:
    broken = document("single_approval", "1.21") | {"$schemaVersion": label}
    assert isinstance(refusal(encode_document(broken)), UnknownSchema)


# -- a newer state under an older label ---------------------------------------------------------------


@pytest.mark.parametrize("newer", [label for label in LABELS[1:] if label != "1.12"])
def test_a_state_relabelled_as_older_is_refused_or_means_the_same(newer: str) -> None:
    """A relabelled state is parsed only if its release wrote nothing that the older label does not have."""
    refused_labels = set()
    for older in LABELS[: LABELS.index(newer)]:
        try:
            parse_run_state(encode_document(document("single_approval", newer) | {"$schemaVersion": older}))
        except InvalidRunState:
            refused_labels.add(older)
    expected = {older for older in LABELS[: LABELS.index(newer)] if FORMS.get(older) != FORMS[newer]}
    assert refused_labels == expected


FORMS = {
    **dict.fromkeys(("1.0", "1.1"), 0),
    "1.2": 2,
    "1.4": 4,
    **dict.fromkeys(("1.5", "1.6"), 5),
    **dict.fromkeys(("1.9", "1.10", "1.11"), 9),
    "1.13": 13,
    **dict.fromkeys(("1.15", "1.16"), 15),
    "1.17": 17,
    **dict.fromkeys(("1.18", "1.21"), 18),
}
"""Labels with the same number have the same form of a state with one pending call."""


def test_an_approval_injected_under_an_older_label_is_refused() -> None:
    broken = document("single_approval", "1.21") | {"$schemaVersion": "1.13"}
    call = broken["current_step"]["data"]["interruptions"][0]["raw_item"]
    del broken["context"]["tool_invocations"]
    broken["context"]["approvals"] = {call["name"]: {"approved": [call["call_id"]], "rejected": []}}
    assert "bypass the approval checks" in refusal(encode_document(broken)).message


def test_a_call_by_a_program_is_refused_under_a_label_without_programs() -> None:
    """Older readers would treat it as a call of the model."""
    older = document("single_approval", "1.11")
    older["generated_items"][0]["raw_item"]["caller"] = {"type": "program", "caller_id": "call_1"}
    error = refusal(encode_document(older))
    assert error.path == "$.generated_items[0].raw_item"
    assert "needs label 1.13 or later, but the label is 1.11" in error.message


@pytest.mark.parametrize("label", ["1.1", "1.21"])
def test_a_pending_call_that_nothing_would_run_is_refused_from_1_1_on(label: str) -> None:
    """1.0 does not store the state of an agent used as a tool, and only that state plans its calls."""
    broken = document("single_approval", label)
    broken["last_processed_response"]["functions"] = []
    error = refusal(encode_document(broken))
    assert "is pending, but is not a call in last_processed_response" in error.message


def test_a_state_of_an_older_label_inside_a_newer_one_is_refused() -> None:
    broken = document("nested_agent_tool_approval", "1.21")
    inner = broken["last_processed_response"]["functions"][0]
    inner["agent_run_state"] = document("single_approval", "1.0")
    assert "bypass the approval checks" in refusal(encode_document(broken)).message


def test_a_decision_without_its_ledger_entry_is_refused_from_1_15_on() -> None:
    broken = document("parallel_mixed_decided", "1.21")
    broken["context"]["tool_invocations"] = {}
    error = refusal(encode_document(broken))
    assert error.path == "$.context.function_tool_approvals[0].decision.approved"
    assert "without its entry in tool_invocations" in error.message


FUNCTION = ("last_processed_response", "functions", 0)
INTERRUPTION = ("current_step", "data", "interruptions", 0)
NAMED = "an object with the agent's name"
RECORD: dict[str, Any] = {"approved": [], "rejected": []}
ENTRY = {"type": "function_call", "approval_scope": "0" * 64, "fingerprint": "f" * 64, "executed": True}
UNOWNED: tuple[dict[str, Any], ...] = ({"tool_key": 1}, {"agent": {}}, {"decision": None})
UNWRITABLE: tuple[dict[str, Any], ...] = ({"session_id": 1}, {"items": []}, {"persisted_count": -1}, {"other": 1})
WRITE: dict[str, Any] = {"session_id": "s", "items": [{}], "before": None, "persisted_count": 0}


@pytest.mark.parametrize(
    ("member", "broken", "expected"),
    [
        (("original_input",), 7, "a string or a list of items, not 7"),
        (("original_input",), ["x"], "a string or a list of items, not a list"),
        (("context",), [], "an object, not a list"),
        (("max_turns",), 2**53, "a number of turns, or null for no limit, not 9007199254740992"),
        (("current_turn",), True, "a number of turns, not a boolean"),
        (("current_turn",), None, "a number of turns, not null"),
        (("current_turn",), 1.5, "a number of turns, not 1.5"),
        (("current_turn",), -1, "a number of turns, not -1"),
        (("conversation_id",), "x" * 22, None),
        (("conversation_id",), "", "an id or null, not ''"),
        (("conversation_id",), "a b" + "x" * 20, "an id or null, not a string"),
        (("previous_response_id",), 1, "an id or null, not 1"),
        (("auto_previous_response_id",), None, "true or false, not null"),
        (("auto_previous_response_id",), 1, "true or false, not 1"),
        (("pending_input",), [[]], "a list of items, not a list"),
        (("current_turn_persisted_item_count",), -2, "a number of items, not -2"),
        (("current_turn_persisted_item_count",), 0, None),
        (("tool_use_tracker",), [], "an object, not a list"),
        (("model_responses",), {}, "a list of responses, not an object"),
        (("model_responses", 0, "output"), "x", "a list of items, not 'x'"),
        (("last_processed_response",), [], "an object or null, not a list"),
        (("last_processed_response", "functions"), [{}], "a list of actions, each with its call, not a list"),
        (("last_processed_response", "functions"), {}, "a list of actions, each with its call, not an object"),
        (("last_processed_response", "handoffs"), [1], "a list of actions, each with its call, not a list"),
        ((*FUNCTION, "agent_run_state"), None, "a state, not null"),
        (("current_step",), "next", "an object or null, not 'next'"),
        (("current_step", "data"), None, "an object, not null"),
        (("current_step", "data", "interruptions"), {}, "a list, not an object"),
        ((*INTERRUPTION, "agent"), "desk", f"{NAMED}, not 'desk'"),
        (("current_agent",), {"name": 1}, f"{NAMED}, not an object"),
        (("current_agent",), {"name": "a", "identity": 2}, f"{NAMED}, not an object"),
        (("context", "context_meta"), [1], "an object or null, not a list"),
        (("context", "context_meta"), "x", "an object or null, not 'x'"),
        (("context", "context_meta"), None, None),
        (("context", "approvals"), None, "an object, not null"),
        (("context", "approvals", "t"), [], "a record of decisions, not a list"),
        (("context", "approvals", "t"), {"approved": 1}, "a record of decisions, not an object"),
        (("context", "approvals", "t"), {"rejected": [1]}, "a record of decisions, not an object"),
        (("context", "approvals", "t"), {"rejection_messages": ["x"]}, "a record of decisions, not an object"),
        (("context", "approvals", "t"), {"rejection_messages": None}, None),
        (("context", "approvals", "t"), {"approved": False, "rejected": []}, None),
        (("context", "tool_invocations"), [], "an object, not a list"),
        (
            ("context", "tool_invocations", "c"),
            ENTRY,
            "a call type, two digests, and consistent flags, not an object",
        ),
        (("context", "tool_invocations", "c"), ENTRY | {"completed": True}, None),
        (("context", "tool_invocations", "c"), ENTRY | {"completed": False}, None),
        (
            ("context", "tool_invocations", "c"),
            ENTRY | {"completed": True, "type": "message"},
            "a call type, two digests, and consistent flags, not an object",
        ),
        (
            ("context", "tool_invocations", "c"),
            ENTRY | {"completed": True, "approval_scope": "0" * 65},
            "a call type, two digests, and consistent flags, not an object",
        ),
        (
            ("context", "tool_invocations", "c"),
            ENTRY | {"completed": True, "executed": False},
            "a call type, two digests, and consistent flags, not an object",
        ),
        (("context", "hosted_mcp_approvals"), {}, "a list, not an object"),
        (("context", "hosted_mcp_approvals"), [{"identity": {}, "decision": RECORD}], None),
        (
            ("context", "hosted_mcp_approvals", 0),
            {"identity": "x", "decision": RECORD},
            "a record of decisions on a hosted tool, not an object",
        ),
        (
            ("context", "hosted_mcp_approvals", 0),
            {"identity": {}},
            "a record of decisions on a hosted tool, not an object",
        ),
        (("context", "function_tool_approvals"), {}, "a list, not an object"),
        (
            ("context", "function_tool_approvals"),
            [{"tool_key": "t", "agent": {"name": "a"}, "decision": RECORD}],
            None,
        ),
        *(
            (
                ("context", "function_tool_approvals", 0),
                {"tool_key": "t", "agent": {"name": "a"}, "decision": RECORD} | fault,
                "a record of decisions with its agent and tool, not an object",
            )
            for fault in UNOWNED
        ),
        (("context", "usage"), [], "an object, not a list"),
        (("context", "usage", "request_usage_entries"), 5, "a list or null, not 5"),
        (("context", "usage", "request_usage_entries"), None, None),
        (("context", "usage", "requests"), 1.5, "a number of tokens or requests, not 1.5"),
        (("context", "usage", "output_tokens"), None, "a number of tokens or requests, not null"),
        (("model_responses", 0, "usage"), None, "an object, not null"),
        (("model_responses", 0, "usage", "total_tokens"), -1, "a number of tokens or requests, not -1"),
        (("pending_session_write",), None, None),
        (("pending_session_write",), WRITE, None),
        (("pending_session_write",), WRITE | {"held": True, "store": None}, None),
        *(
            (
                ("pending_session_write",),
                WRITE | fault,
                "a session write with items and no unknown keys, not an object",
            )
            for fault in UNWRITABLE
        ),
        (
            ("pending_session_write",),
            {"session_id": "s", "items": [{}], "persisted_count": 0},
            "a session write with items and no unknown keys, not an object",
        ),
        (("terminal_unrecoverable",), True, None),
        (("generated_items",), "x", "a list of run items, not a string"),
        (("generated_items", 0), "x", "a run item with its raw_item"),
        (("generated_items", 0, "agent"), {}, NAMED),
        (("generated_items", 0, "agent"), "desk", None),
        (("generated_items", 0, "source_agent"), 1, NAMED),
        (("generated_items", 0, "target_agent"), 1, NAMED),
        (("session_items", 1, "agent"), [], NAMED),
        (("generated_items", 0, "raw_item", "name"), [], "a string, not a list"),
        (("generated_items", 0, "raw_item", "namespace"), 1, "a string, not a number"),
        (("generated_items", 0, "raw_item", "namespace"), None, None),
        (("model_responses", 0, "output", 0, "name"), ["x"], "a string, not a list"),
        ((*FUNCTION, "tool_call", "arguments"), {}, "a string, not an object"),
        (("last_processed_response", "tool_output_guardrail_result_start"), None, None),
        (("last_processed_response", "tool_output_guardrail_result_start"), 0, None),
    ],
)
def test_the_type_of_each_member_is_validated(member: tuple[str | int, ...], broken: Any, expected: str | None) -> None:
    base = document("single_approval", "1.21")
    base["context"] |= {"hosted_mcp_approvals": [{}], "function_tool_approvals": [{}]}
    for key in ("hosted_mcp_approvals", "function_tool_approvals"):
        if member[1:2] != (key,):
            del base["context"][key]
    changed = replace_path(base, member, broken)
    if expected is None:
        parse_run_state(encode_document(changed))
        return
    error = refusal(encode_document(changed))
    path = format_path(member)
    assert (error.path, error.message) == (path, f"{path} must be {expected}")


def changed_state(label: str = "1.21", **members: Any) -> Any:
    return document("single_approval", label) | members


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (
            changed_state("1.9", max_turns=None),
            "$.max_turns is null, which needs label 1.10 or later; the label is 1.9",
        ),
        (
            changed_state(current_step={"data": {}}),
            "$.current_step.type is missing; readers would lose the pending calls",
        ),
        (
            changed_state(conversation_id="conv_1", auto_previous_response_id=True),
            "$.previous_response_id is set together with conversation_id; a history has one owner",
        ),
        (
            replace_path(changed_state(), (*INTERRUPTION, "raw_item"), {"type": "message"}),
            f"{STEP}[0].raw_item is not a call that can be approved or rejected",
        ),
        (
            replace_path(changed_state(), ("last_processed_response", "tool_output_guardrail_result_start"), 1),
            f"{PLAN}.tool_output_guardrail_result_start is more than the 0 results",
        ),
        (
            replace_path(changed_state(), (*FUNCTION, "agent_run_state"), document("single_approval", "1.0")),
            f"{PLAN}.functions[0].agent_run_state.$schemaVersion is 1.0 inside a state of 1.21; releases write the "
            "same label in both; this could bypass the approval checks of newer readers",
        ),
        (
            {"currentAgent": {}, "$schemaVersion": "1.0" + "x" * 30},
            "$ is a RunState of the JavaScript SDK, @openai/agents (label 1.0xxxxxxxxxxxxxxxxx); convo shows it "
            "and decides its calls",
        ),
        (
            {"originalInput": [], "$schemaVersion": 1},
            "$ is a RunState of the JavaScript SDK, @openai/agents; convo shows it and decides its calls",
        ),
        (
            {"currentTurn": 1, "current_turn": 1},
            "$.$schemaVersion is missing; it must be the schema version of the RunState",
        ),
        ({"$schemaVersion": "x" * 21}, f"$.$schemaVersion is '{'x' * 19}…'{UNKNOWN}{SUPPORTED}"),
        ({"$schemaVersion": "x" * 20}, f"$.$schemaVersion is '{'x' * 20}'{UNKNOWN}{SUPPORTED}"),
    ],
)
def test_a_state_that_readers_would_misunderstand_is_refused(broken: Any, message: str) -> None:
    assert refusal(encode_document(broken)).message == message


def test_states_are_nested_in_at_most_sixteen_others() -> None:
    inner = changed_state(current_step=None)
    for _ in range(16):
        inner = replace_path(changed_state(current_step=None), (*FUNCTION, "agent_run_state"), inner)
    parse_run_state(encode_document(inner))
    outer = replace_path(changed_state(current_step=None), (*FUNCTION, "agent_run_state"), inner)
    assert refusal(encode_document(outer)).message == (
        "$.last_processed_response.functions[0].agent_run_state.last_processed_response.functions…"
        "[0].agent_run_state.last_processed_response.functions[0].agent_run_state is a state inside 16 others; "
        "that is the limit"
    )


@pytest.mark.parametrize(
    ("steps", "text"),
    [
        ((), "$"),
        (tuple("abcdefghijkl"), "$.a.b.c.d.e.f.g.h.i.j.k.l"),
        (tuple("abcdefghijklm"), "$.a.b.c.d.e.f….h.i.j.k.l.m"),
        (("x" * 60, 0), f"$.{'x' * 60}[0]"),
        (("x" * 61, 0), f'$["{"x" * 60}…"][0]'),
        (('a"b', "", "1a", "$a-1"), '$["a\\u0022b"][""]["1a"].$a-1'),
    ],
)
def test_a_long_path_is_shown_without_its_middle(steps: tuple[str | int, ...], text: str) -> None:
    assert format_path(steps) == text


# -- hostile bytes -------------------------------------------------------------------------------------

STATE = snapshot("0.24.0__schema1.21__single_approval.json")

HOSTILE = {
    "nested duplicate key": (
        b'{"a": [{"b": 1, "c": {"d": 1, "d": 2}}]}',
        "$.a[0].c.d",
        "is a duplicate key; readers differ on which value counts",
    ),
    "duplicate key with an escape": (
        b'{"a": 1, "\\u0061": 2}',
        "$.a",
        "is a duplicate key; readers differ on which value counts",
    ),
    "negative infinity": (b'{"a": [1, {"b": -Infinity}]}', "$.a[1].b", "is -Infinity, which is not JSON"),
    "rounded to infinity": (b'{"a": [1e999]}', "$.a[0]", "is a number that is too large"),
    "digits": (b'{"a": ' + b"9" * 5000 + b"}", "$.a", "is a number with too many digits"),
    "truncated in a string": (
        b'{"a": {"b": "cd',
        "$.a.b",
        "has a JSON syntax error: unterminated string starting at (line 1, column 13)",
    ),
    "truncated in a key": (
        b'{"a": {"b',
        "$.a",
        "has a JSON syntax error: unterminated string starting at (line 1, column 8)",
    ),
    "escaped key in the path": (b'{"a b\\n": [NaN]}', '$["a b\\u000a"][0]', "is NaN, which is not JSON"),
    "deep": (
        b'{"a":' + b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1) + b"}",
        "$.a[0][0][0][0][0][0][0]…",
        "is nested deeper than 400 levels",
    ),
    "many": (
        b"[" + b"[]," * MAX_MEMBERS + b"[]]",
        "$",
        "has more than 750,000 members of objects and lists, which is too many",
    ),
    "only spaces": (b" \n\t ", "$", "is empty; a state must be one JSON object"),
    "raw newline in a string": (
        b'{"a": "b\nc"}',
        "$.a",
        "has a JSON syntax error: invalid control character at (line 1, column 9)",
    ),
}


@pytest.mark.parametrize("what", HOSTILE)
def test_invalid_bytes_are_refused_with_their_position(what: str) -> None:
    data, path, text = HOSTILE[what]
    error = refusal(data)
    assert (error.path, error.message) == (path, f"{path} {text}")


def test_a_truncated_state_is_refused() -> None:
    for end in range(0, len(STATE.rstrip()), 37):
        assert refusal(STATE[:end]).path.startswith("$")


@pytest.mark.parametrize("shift", range(5))
def test_the_contents_of_strings_are_ignored(shift: int) -> None:
    """A tool may return a table with many commas and brackets and with escaped quotes."""
    large = document("single_approval", "1.21")
    large["context"]["context"] = {"table": "a" * shift + '[\\",' * MAX_MEMBERS}
    assert len(parse_run_state(encode_document(large)).pending) == 1


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_CPU, (1, 1))
resource.setrlimit(resource.RLIMIT_AS, (200_000_000, 200_000_000))
from convo.errors import InvalidRunState
from convo.runstate.reader import parse_run_state
data = sys.stdin.buffer.read()
try:
    parse_run_state(data)
except InvalidRunState as wrong:
    print(wrong)
"""


@pytest.mark.needs("linux")
@pytest.mark.parametrize("what", ["deep", "twice", "cut", "keys", "numbers", "records"])
def test_a_refusal_takes_less_than_a_second_and_200_megabytes(what: str) -> None:
    """The kernel kills a process that needs more."""
    large = b'{"a": [' + b'{"b": "' + b"x" * 60 + b'"}, ' * 100_000
    data = {
        "deep": b"[" * 20_000_000,
        "twice": large + b'{"c": 1, "c": 2}]}',
        "cut": large,
        "keys": b'{"a": {' + b"".join(b'"%d": 0, ' % key for key in range(1_500_000)) + b'"a": 0}}',
        "numbers": b'{"a": [' + b"0, " * 15_000_000 + b"0]}",
        "records": b'{"a": [' + b'{"approved": ["c"], "rejected": ["d"]}, ' * 500_000 + b"{}]}",
    }[what]
    result = subprocess.run([sys.executable, "-c", LIMITED], input=data, capture_output=True, timeout=60, check=False)
    assert (result.returncode, result.stderr) == (0, b"")
    assert result.stdout.startswith(b"$")


@pytest.mark.parametrize("label", ["1.3", "1.14", "1.20"])
def test_a_label_that_no_release_wrote_is_named_as_one(label: str) -> None:
    with pytest.raises(UnknownSchema) as error:
        parse_run_state(json.dumps({"$schemaVersion": label}).encode())
    assert "no release of openai-agents wrote it" in error.value.message
    assert "openai-agents" in error.value.hint


@pytest.mark.parametrize("command", ["resume", "export"])
def test_help_lists_the_labels_that_no_release_wrote(command: str, convo: Convo) -> None:
    numbers = [f"1.{minor}" for minor in range(22)]
    missing_labels = [label for label in numbers if label not in LABELS]
    help_text = " ".join(convo(command, "--help").out.split())
    assert f"except {', '.join(missing_labels)}." in help_text
