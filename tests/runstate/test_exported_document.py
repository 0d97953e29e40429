"""The whole document of an exported run: of a new run, and of one that continues an imported state."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from convo.agents.agent import Agent
from convo.history.items import Item
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided, HandoffCompleted, Run, RunResumed, RunStarted, ToolReturned
from convo.runstate.export import export_run_state, total_usage
from convo.runstate.import_ import ImportedRun, import_run_state
from convo.runstate.reader import run_state_from_json
from convo.runstate.run_items import ModelCall, RunTranscript
from convo.runstate.run_state import RunState
from convo.tools.tool import Namespace
from tests.runs.run_steps import FREE, GUARDED, apply_events, call, make_run, make_tool, model_response

CLOSE = make_tool("close", needs_approval=True, namespace=Namespace("crm", "customers"))
CLOSER = Agent("closer", "Close it.", tools=(CLOSE, FREE, {"type": "mcp", "server_label": "docs"}))
DESK = Agent("desk", tools=(GUARDED,), handoffs=(CLOSER,))

REASONING: Item = {"type": "reasoning", "id": "rs_1", "summary": []}
HANDOFF = call("h1", "transfer_to_closer", "{}", id="fc_h")
HANDOFF_OUTPUT: Item = {"type": "function_call_output", "call_id": "h1", "output": '{"assistant": "closer"}'}
CLOSE_CALL = call("c1", "close", namespace="crm")
FREE_CALL = call("c2")
FREE_OUTPUT: Item = {"type": "function_call_output", "call_id": "c2", "output": "two"}
REQUEST: Item = {
    "type": "mcp_approval_request",
    "id": "m1",
    "name": "search",
    "server_label": "docs",
    "arguments": "{}",
}
USAGE = {
    "input_tokens": 10,
    "output_tokens": 2,
    "total_tokens": 12,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens_details": {"reasoning_tokens": 1, "x": 2},
}
USER: Item = {"role": "user", "content": "hi"}
MODEL_CALLS = [
    ModelCall("desk", [REASONING, HANDOFF], [HANDOFF_OUTPUT], "resp_1", USAGE),
    ModelCall("closer", [CLOSE_CALL, FREE_CALL, REQUEST], (), "resp_2"),
]

# -- the parts of the expected document ----------------------------------------------------------------

AT_DESK, AT_CLOSER = {"agent": {"name": "desk"}}, {"agent": {"name": "closer"}}
LOOKUP = {"kind": "namespaced", "namespace": "crm", "name": "close"}
ORIGIN = {"tool_origin": {"type": "function"}}
DESCRIPTION = {"description": "A tool that needs no approval."}
PARAMETERS = {
    "type": "object",
    "properties": {"text": {"type": "string"}},
    "required": ["text"],
    "additionalProperties": False,
}
RESPONSE_ITEMS = [
    {"type": "tool_call_item", "raw_item": CLOSE_CALL, **AT_CLOSER, "tool_name": "close", **DESCRIPTION, **ORIGIN},
    {"type": "tool_call_item", "raw_item": FREE_CALL, **AT_CLOSER, "tool_name": "free", **DESCRIPTION, **ORIGIN},
    {"type": "mcp_approval_request_item", "raw_item": REQUEST, **AT_CLOSER},
]
RUN_ITEMS = [
    {"type": "reasoning_item", "raw_item": REASONING, **AT_DESK},
    {"type": "handoff_call_item", "raw_item": HANDOFF, **AT_DESK},
    {
        "type": "handoff_output_item",
        "raw_item": HANDOFF_OUTPUT,
        **AT_DESK,
        "source_agent": {"name": "desk"},
        "target_agent": {"name": "closer"},
    },
    *RESPONSE_ITEMS,
    {"type": "tool_call_output_item", "raw_item": FREE_OUTPUT, **AT_CLOSER, "output": "two"},
]
INTERRUPTIONS = [
    {
        "type": "tool_approval_item",
        "raw_item": CLOSE_CALL,
        **AT_CLOSER,
        "tool_name": "close",
        "tool_namespace": "crm",
        "tool_lookup_key": LOOKUP,
        **ORIGIN,
    },
    {"type": "tool_approval_item", "raw_item": REQUEST, **AT_CLOSER, "tool_name": "search"},
]
COUNTS = {
    "requests": 1,
    "input_tokens": 10,
    "output_tokens": 2,
    "total_tokens": 12,
    "input_tokens_details": [{"cache_write_tokens": 0, "cached_tokens": 4}],
    "output_tokens_details": [{"reasoning_tokens": 1, "x": 2}],
    "request_usage_entries": [],
}
NO_COUNTS = {
    "requests": 1,
    "input_tokens": 0,
    "output_tokens": 0,
    "total_tokens": 0,
    "input_tokens_details": [{"cache_write_tokens": 0, "cached_tokens": 0}],
    "output_tokens_details": [{"reasoning_tokens": 0}],
    "request_usage_entries": [],
}
USAGE_ENTRY = {
    "input_tokens": 10,
    "output_tokens": 2,
    "total_tokens": 12,
    "input_tokens_details": {"cache_write_tokens": 0, "cached_tokens": 4},
    "output_tokens_details": {"reasoning_tokens": 1, "x": 2},
}
RESPONSES = [
    {"usage": COUNTS, "output": [REASONING, HANDOFF], "response_id": "resp_1", "request_id": None},
    {"usage": NO_COUNTS, "output": [CLOSE_CALL, FREE_CALL, REQUEST], "response_id": "resp_2", "request_id": None},
]
LEDGER = {
    "h1": {
        "type": "function_call",
        "approval_scope": "feb1dc9fdf01cdf9445feac40c476b59af22466c30832b6a6937f5861c6db48e",
        "fingerprint": "436128ab50e5271a3e11767447dcc98781b4421b3e95e79ccff662425ab16dab",
        "executed": True,
        "completed": True,
    },
    "c1": {
        "type": "function_call",
        "approval_scope": "f5a8b9a0a10ac72d8330805c0d8d3f5eb05c554f289193d585fe1bf6881ee4a1",
        "fingerprint": "75335e8b4fdeb6c8158a4cc5d52e961021e1087c0a455adbff6697ed5fd63053",
        "executed": False,
        "completed": False,
    },
    "c2": {
        "type": "function_call",
        "approval_scope": "9fdb79402cd9624b181437c07d0b4c702d2408b8f9b04aee653e1de54e209d45",
        "fingerprint": "18c165201a3092c2d71a88e976ddc883cd2869dff2c93dbe41f24ceeb0df1f22",
        "executed": True,
        "completed": True,
    },
    "m1": {
        "type": "mcp_approval_request",
        "approval_scope": "28fdd6e54548c32e0ea5f733c1d0e21951351db4324ce5faaf5c41ef8ed505f1",
        "fingerprint": "483e0a9e608495a144af6c706fed0e23c800b4d29e6933c3b192d3f94679a67a",
        "executed": False,
        "completed": False,
    },
}
DOCUMENT: dict[str, Any] = {
    "$schemaVersion": "1.21",
    "input_guardrail_results": [],
    "output_guardrail_results": [],
    "tool_input_guardrail_results": [],
    "tool_output_guardrail_results": [],
    "trace": None,
    "current_turn": 2,
    "current_agent": {"name": "closer"},
    "original_input": [USER],
    "pending_input": [],
    "model_responses": RESPONSES,
    "context": {
        "approvals": {},
        "usage": {**COUNTS, "requests": 2, "request_usage_entries": [USAGE_ENTRY]},
        "tool_invocations": LEDGER,
        "context": {"user": "kim"},
        "context_meta": {
            "original_type": "mapping",
            "serialized_via": "mapping",
            "requires_deserializer": False,
            "omitted": False,
        },
    },
    "tool_use_tracker": {"desk": ["transfer_to_closer"], "closer": ["crm.close", "free"]},
    "max_turns": 7,
    "no_active_agent_run": True,
    "conversation_id": None,
    "previous_response_id": "resp_2",
    "auto_previous_response_id": True,
    "generated_prompt_cache_key": None,
    "reasoning_item_id_policy": None,
    "generated_items": [*RUN_ITEMS, *INTERRUPTIONS],
    "session_items": [*RUN_ITEMS, *INTERRUPTIONS],
    "generated_session_item_indexes": [0, 1, 2, 3, 4, 5, 6, 7, 8],
    "nested_history_owned_session_item_refs": [],
    "current_step": {
        "type": "next_step_interruption",
        "data": {"interruptions": INTERRUPTIONS, "response_accepted": False, "llm_end_hooks_started": True},
    },
    "last_model_response": RESPONSES[1],
    "last_processed_response": {
        "new_items": RESPONSE_ITEMS,
        "tools_used": ["crm.close", "free", "search"],
        "functions": [
            {
                "tool_call": CLOSE_CALL,
                "tool": {
                    "name": "close",
                    "namespace": "crm",
                    "qualifiedName": "crm.close",
                    "lookupKey": LOOKUP,
                    **DESCRIPTION,
                    "paramsJsonSchema": PARAMETERS,
                },
            },
            {
                "tool_call": FREE_CALL,
                "tool": {
                    "name": "free",
                    "lookupKey": {"kind": "bare", "name": "free"},
                    **DESCRIPTION,
                    "paramsJsonSchema": PARAMETERS,
                },
            },
        ],
        "computer_actions": [],
        "custom_tool_actions": [],
        "local_shell_actions": [],
        "shell_actions": [],
        "apply_patch_actions": [],
        "handoffs": [],
        "mcp_approval_requests": [
            {
                "request_item": {"raw_item": REQUEST},
                "mcp_tool": {"name": "hosted_mcp", "tool_config": {"type": "mcp", "server_label": "docs"}},
            }
        ],
        "interruptions": INTERRUPTIONS,
        "mcp_tool_bindings": {},
    },
}


def paused_run() -> Run:
    """A run that was handed off to `closer`; of its three calls one has run, and two are pending."""
    run, _ = apply_events(make_run(DESK, max_turns=7), RunStarted())
    run, _ = apply_events(run, model_response(run, REASONING, HANDOFF), HandoffCompleted())
    run, _ = apply_events(run, model_response(run, CLOSE_CALL, FREE_CALL, REQUEST), ToolReturned("c2", "two"))
    return run


def transcript(**members: Any) -> RunTranscript:
    owner = {"strategy": Strategy.CHAIN, "handle": "resp_2", "context_values": {"user": "kim"}}
    return RunTranscript([USER], MODEL_CALLS, **{**owner, **members})


def test_a_paused_run_is_written_with_all_members_that_the_sdk_needs() -> None:
    document = export_run_state(paused_run(), transcript()).document
    assert list(document) == list(DOCUMENT)
    assert document == DOCUMENT


def test_a_conversation_or_a_history_of_the_client_has_no_response_to_continue() -> None:
    keys = ("conversation_id", "previous_response_id", "auto_previous_response_id")
    owned = export_run_state(paused_run(), transcript(strategy=Strategy.CONVERSATION, handle="conv_1")).document
    assert [owned[key] for key in keys] == ["conv_1", None, False]
    of_client = export_run_state(paused_run(), transcript(strategy=Strategy.SESSION, handle=None, context_values={}))
    assert [of_client.document[key] for key in keys] == [None, None, False]
    assert of_client.document["context"]["context"] is None
    assert of_client.document["context"]["context_meta"] == {
        "original_type": "none",
        "serialized_via": "none",
        "requires_deserializer": False,
        "omitted": False,
    }


EARLIER = {"type": "message_output_item", "raw_item": {"type": "message", "content": []}, **AT_DESK}


CONTEXT = {**DOCUMENT["context"], "context_meta": {**DOCUMENT["context"]["context_meta"], "x": 1}}


def base_document() -> dict[str, Any]:
    """The document above with a longer session than the generated items, and members of the last response."""
    return {
        **DOCUMENT,
        "context": CONTEXT,
        "auto_previous_response_id": False,
        "generated_prompt_cache_key": "key",
        "reasoning_item_id_policy": "omit",
        "session_items": [EARLIER, INTERRUPTIONS[0], *RUN_ITEMS, INTERRUPTIONS[1]],
        "nested_history_owned_session_item_refs": [{"index": 0, "x": 1}, {"index": 3}],
        "current_turn_persisted_item_count": 1,
        "trace": {"id": "trace_1"},
    }


def changed_members(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    return {key: after.get(key, "removed") for key in {**before, **after} if before.get(key) != after.get(key)}


def continued_transcript(found: ImportedRun, model_calls: Sequence[ModelCall], base: RunState) -> RunTranscript:
    handle = model_calls[-1].response_id if model_calls else found.handle
    return RunTranscript((), model_calls, found.strategy, handle, context_values=found.context_values, base=base)


SESSION_ITEMS = [EARLIER, *RUN_ITEMS]
SESSION_REFS = [{"index": 0, "x": 1}, {"index": 2}]


def test_an_imported_run_without_changes_is_written_as_it_was_read() -> None:
    """Only the approval items move to the end of the session, and the indexes follow."""
    base = run_state_from_json(base_document())
    found = import_run_state(base, paused_run().graph)
    assert (found.strategy, found.handle, found.confirmed_count) == (Strategy.CHAIN, "resp_2", 7)
    assert dict(found.context_values) == {"user": "kim"}
    again = export_run_state(found.run, continued_transcript(found, (), base))
    assert changed_members(base.document, again.document) == {
        "session_items": [*SESSION_ITEMS, *INTERRUPTIONS],
        "generated_session_item_indexes": [1, 2, 3, 4, 5, 6, 7, 8, 9],
        "nested_history_owned_session_item_refs": SESSION_REFS,
    }


NEXT_CALL = call("c3", "close", namespace="crm", id="fc_3")
NEXT_INTERRUPTION = {**INTERRUPTIONS[0], "raw_item": NEXT_CALL}
NEXT_ITEM = {**RESPONSE_ITEMS[0], "raw_item": NEXT_CALL}
NEXT_RESPONSE = {"usage": COUNTS, "output": [NEXT_CALL], "response_id": "resp_3", "request_id": None}
CLOSE_OUTPUT: Item = {"type": "function_call_output", "call_id": "c1", "output": "closed"}
REFUSAL: Item = {"type": "mcp_approval_response", "approval_request_id": "m1", "approve": False, "reason": "no"}
ADDED_ITEMS = [
    {"type": "tool_call_output_item", "raw_item": CLOSE_OUTPUT, **AT_CLOSER, "output": "closed"},
    {"type": "mcp_approval_response_item", "raw_item": REFUSAL, **AT_CLOSER},
    NEXT_ITEM,
    NEXT_INTERRUPTION,
]


@pytest.mark.parametrize(
    ("earlier_calls", "output"),
    [([], MODEL_CALLS[1].output), (MODEL_CALLS[:1], MODEL_CALLS[1].output), ([], ())],
    ids=["from the last response on", "with an earlier call", "without the last response"],
)
def test_a_run_that_continued_is_written_after_the_state_that_it_came_from(
    earlier_calls: list[ModelCall], output: Sequence[Item]
) -> None:
    base = run_state_from_json(base_document())
    found = import_run_state(base, paused_run().graph)
    decisions = (ApprovalDecided("c1", approve=True), ApprovalDecided("m1", approve=False, message="no"))
    run, _ = apply_events(found.run, *decisions, RunResumed())
    run, _ = apply_events(run, ToolReturned("c1", "closed"))
    run, _ = apply_events(run, model_response(run, NEXT_CALL))
    model_calls = [
        *earlier_calls,
        replace(MODEL_CALLS[1], output=output, added_items=[CLOSE_OUTPUT, FREE_OUTPUT, REFUSAL]),
        ModelCall("closer", [NEXT_CALL], (), "resp_3", USAGE),
    ]
    later = export_run_state(run, continued_transcript(found, model_calls, base)).document
    done = {"executed": True, "completed": True}
    (function, _) = DOCUMENT["last_processed_response"]["functions"]
    assert changed_members(base.document, later) == {
        "current_turn": 3,
        "model_responses": [*RESPONSES, NEXT_RESPONSE],
        "context": {
            **CONTEXT,
            "usage": {
                "requests": 3,
                "input_tokens": 20,
                "output_tokens": 4,
                "total_tokens": 24,
                "input_tokens_details": [{"cache_write_tokens": 0, "cached_tokens": 8}],
                "output_tokens_details": [{"reasoning_tokens": 2, "x": 4}],
                "request_usage_entries": [USAGE_ENTRY, USAGE_ENTRY],
            },
            "tool_invocations": {**LEDGER, "c1": {**LEDGER["c1"], **done}, "c3": LEDGER["c1"]},
        },
        "previous_response_id": "resp_3",
        "generated_items": [*RUN_ITEMS, *ADDED_ITEMS],
        "session_items": [*SESSION_ITEMS, *ADDED_ITEMS],
        "generated_session_item_indexes": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11],
        "nested_history_owned_session_item_refs": SESSION_REFS,
        "current_step": {
            "type": "next_step_interruption",
            "data": {"interruptions": [NEXT_INTERRUPTION], "response_accepted": False, "llm_end_hooks_started": True},
        },
        "last_model_response": NEXT_RESPONSE,
        "last_processed_response": {
            **DOCUMENT["last_processed_response"],
            "new_items": [NEXT_ITEM],
            "tools_used": ["crm.close"],
            "functions": [{**function, "tool_call": NEXT_CALL}],
            "mcp_approval_requests": [],
            "interruptions": [NEXT_INTERRUPTION],
        },
        "current_turn_persisted_item_count": "removed",
    }


@pytest.mark.parametrize(
    ("details", "cached"),
    [([{"cached_tokens": 1}, {"cached_tokens": 2}], 7), ({"cached_tokens": 1}, 5), ([None, 3], 4), ("x", 4), (None, 4)],
)
def test_the_details_of_tokens_are_added_in_each_form(details: Any, cached: int) -> None:
    total = total_usage({"requests": 2, "other": 1, "input_tokens_details": details}, [USAGE, None])
    assert total == {
        "requests": 4,
        "other": 1,
        "input_tokens": 10,
        "output_tokens": 2,
        "total_tokens": 12,
        "input_tokens_details": [{"cache_write_tokens": 0, "cached_tokens": cached}],
        "output_tokens_details": [{"reasoning_tokens": 1, "x": 2}],
        "request_usage_entries": [USAGE_ENTRY],
    }


def test_an_explicit_response_is_chained_automatically_only_if_the_state_says_so() -> None:
    for is_automatic in (False, True):
        base = run_state_from_json({**base_document(), "auto_previous_response_id": is_automatic})
        found = import_run_state(base, paused_run().graph)
        again = export_run_state(found.run, continued_transcript(found, (), base)).document
        assert again["auto_previous_response_id"] is is_automatic
