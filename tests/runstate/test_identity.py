"""The identity of a call: its type, id, name and lookup, the keys of its decisions and its digests."""

import json
import re
from hashlib import sha256
from typing import Any

import pytest

from convo.history.items import MCP_APPROVAL_REQUEST
from convo.runstate.identity import ARGUMENT_FIELDS, StateCall, make_lookup_key, parse_state_call

CALL = {"type": "function_call", "call_id": "c1", "name": "close", "arguments": '{"b": 1, "a": [2]}'}
REQUEST = {"type": MCP_APPROVAL_REQUEST, "id": "m1", "name": "search", "server_label": "docs", "arguments": "{}"}
BARE, SPACED, DEFERRED = ("bare", "close"), ("namespaced", "crm", "close"), ("deferred_top_level", "close")


def parsed(raw: Any, **run_item: Any) -> StateCall:
    call = parse_state_call(raw, run_item)
    assert call
    return call


def hashed(value: Any) -> str:
    return sha256(json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()).hexdigest()


@pytest.mark.parametrize(
    ("raw", "run_item", "lookup", "keys"),
    [
        (CALL, {}, BARE, ("close",)),
        (CALL | {"namespace": "crm"}, {}, SPACED, ("crm.close",)),
        (CALL, {"tool_namespace": "crm", "allow_bare_name_alias": True}, SPACED, ("close", "crm.close")),
        (CALL, {"allow_bare_name_alias": True}, BARE, ("close",)),
        (CALL, {"allow_bare_name_alias": 1, "tool_namespace": "crm"}, SPACED, ("crm.close",)),
        (CALL | {"namespace": "close"}, {}, None, ("close.close",)),
        (
            CALL | {"namespace": "close"},
            {"tool_lookup_key": {"kind": "deferred_top_level", "name": "close"}},
            DEFERRED,
            ("deferred_top_level:close",),
        ),
        (CALL, {"tool_lookup_key": {"kind": "bare", "name": "other"}}, ("bare", "other"), ("close",)),
        (
            CALL,
            {"tool_lookup_key": {"kind": "namespaced", "namespace": "crm", "name": "close"}},
            SPACED,
            ("crm.close",),
        ),
        (CALL, {"tool_lookup_key": {"kind": "namespaced", "name": "close"}}, BARE, ("close",)),
        (CALL, {"tool_lookup_key": {"kind": "unknown", "name": "close"}}, BARE, ("close",)),
        (CALL, {"tool_lookup_key": "bare"}, BARE, ("close",)),
        (CALL | {"name": ""}, {"tool_name": "shown"}, ("bare", "shown"), ("shown",)),
        (CALL | {"name": None}, {}, None, ("function_call",)),
        (REQUEST, {}, None, ("search",)),
        ({"type": "shell_call", "call_id": "s1", "action": {}}, {}, None, ("shell_call",)),
    ],
)
def test_a_decision_is_stored_under_the_lookup_of_its_tool(
    raw: dict[str, Any], run_item: dict[str, Any], lookup: object, keys: tuple[str, ...]
) -> None:
    call = parsed(raw, **run_item)
    assert (call.lookup, call.record_keys) == (lookup, keys)
    assert call.record_keys_for(always=False) == keys
    assert call.record_keys_for(always=True) == keys[-1:]


@pytest.mark.parametrize(
    ("name", "namespace", "lookup"),
    [(None, "crm", None), ("close", None, BARE), ("close", "crm", SPACED), ("close", "close", DEFERRED)],
)
def test_a_namespace_equal_to_the_name_means_a_deferred_tool(
    name: str | None, namespace: str | None, lookup: object
) -> None:
    assert make_lookup_key(name, namespace) == lookup


@pytest.mark.parametrize("kind", ARGUMENT_FIELDS)
def test_the_arguments_are_in_the_field_of_the_type(kind: str) -> None:
    call = parsed({"type": kind, ARGUMENT_FIELDS[kind]: "x", "id": "m1", "call_id": "c1"})
    assert (call.type, call.arguments) == (kind, "x")
    assert (call.is_function, call.is_hosted) == (kind == "function_call", kind == MCP_APPROVAL_REQUEST)
    assert call.id == ("m1" if kind == MCP_APPROVAL_REQUEST else "c1")


def test_several_operations_are_the_arguments_of_a_patch_without_one() -> None:
    assert parsed({"type": "apply_patch_call", "operations": [1]}).arguments == [1]
    assert parsed({"type": "shell_call", "operations": [1]}).arguments is None


@pytest.mark.parametrize("raw", [None, [], {}, {"type": "message"}, {"type": ["function_call"]}, {"type": 1}])
def test_other_items_are_no_calls(raw: Any) -> None:
    assert parse_state_call(raw) is None


@pytest.mark.parametrize("call_id", [None, "", 1, ["c1"]])
def test_an_id_that_is_no_text_is_missing(call_id: Any) -> None:
    assert parsed(CALL | {"call_id": call_id}).id is None


def test_the_agent_is_that_of_the_run_item_if_it_is_an_object() -> None:
    assert parsed(CALL, agent={"name": "desk"}).agent == {"name": "desk"}
    assert parsed(CALL, agent="desk").agent is None


@pytest.mark.parametrize(
    ("wrapper", "inner", "name", "call_id"),
    [
        ({}, REQUEST, "search", "m1"),
        ({"name": "outer"}, {**REQUEST, "name": None}, "outer", "m1"),
        ({"call_id": "w1", "id": "x"}, {key: REQUEST[key] for key in ("type", "name")}, "search", "w1"),
        ({"id": "x"}, {key: REQUEST[key] for key in ("type", "name")}, "search", "x"),
    ],
)
def test_a_wrapped_approval_request_is_unwrapped(
    wrapper: dict[str, Any], inner: dict[str, Any], name: str, call_id: str
) -> None:
    call = parsed({"type": "hosted_tool_call", "status": "completed", **wrapper, "provider_data": inner})
    assert (call.type, call.name, call.id) == (MCP_APPROVAL_REQUEST, name, call_id)
    assert call.raw["status"] == "completed"


@pytest.mark.parametrize("data", [None, "x", {"type": "function_call"}, {}])
def test_a_wrapper_of_anything_else_is_no_call(data: Any) -> None:
    assert parse_state_call({"type": "hosted_tool_call", "name": "search", "provider_data": data}) is None


def test_the_digests_of_a_function_call_name_its_lookup_and_its_arguments() -> None:
    scope = hashed({"type": "function_call", "tool_lookup_key": ["bare", "close"]})
    binding = parsed(CALL).binding()
    assert binding
    assert binding.scope == parsed(CALL).scope_digest() == scope
    meaning = {"approval_scope": scope, "type": "function_call", "arguments": {"a": [2], "b": 1}}
    assert binding.fingerprint == hashed(meaning)
    handoff = {"type": "function_call", "invocation_role": "handoff", "tool_lookup_key": ["bare", "close"]}
    assert parsed(CALL).scope_digest("handoff") == hashed(handoff)


def test_the_digests_of_a_hosted_request_name_its_server() -> None:
    scope = hashed({"type": MCP_APPROVAL_REQUEST, "name": "search", "server_label": "docs"})
    binding = parsed(REQUEST).binding()
    assert binding
    assert binding.scope == scope
    fields = {"type": MCP_APPROVAL_REQUEST, "name": "search", "server_label": "docs", "arguments": {}}
    assert binding.fingerprint == hashed({"approval_scope": scope, **fields})


def test_other_calls_are_identified_by_their_type_and_name_without_nulls() -> None:
    raw = {"type": "shell_call", "call_id": "s1", "action": {"command": ["ls"], "timeout_ms": None}, "status": "done"}
    scope = hashed({"type": "shell_call"})
    binding = parsed(raw).binding()
    assert binding
    assert binding.scope == scope
    meaning = {"approval_scope": scope, "type": "shell_call", "action": {"command": ["ls"]}}
    assert binding.fingerprint == hashed(meaning)


@pytest.mark.parametrize(
    "raw",
    [
        CALL | {"call_id": None},
        {"type": "function_call", "call_id": "c1", "name": "close"},
        CALL | {"name": None},
        REQUEST | {"server_label": None},
        REQUEST | {"name": ""},
        REQUEST | {"id": None},
    ],
)
def test_a_call_that_lacks_data_has_no_digests(raw: dict[str, Any]) -> None:
    assert parsed(raw).binding() is None


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ('"\\ud800"', "its arguments contain a lone surrogate (half a character)"),
        ("[" * 100_000, "its arguments are nested too deep"),
    ],
    ids=["surrogate", "deep"],
)
def test_arguments_that_cannot_be_hashed_are_a_value_error(arguments: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(problem)}$"):
        parsed(CALL | {"arguments": arguments}).binding()


@pytest.mark.parametrize("arguments", ["not json", "", "NaN", "{'a': 1}", {"q": 1}, [1], 7])
def test_arguments_that_are_not_json_are_hashed_as_they_are(arguments: Any) -> None:
    call = parsed(CALL | {"arguments": arguments})
    binding = call.binding()
    assert binding
    meaning = {"approval_scope": call.scope_digest(), "type": "function_call", "arguments": arguments}
    assert binding.fingerprint == hashed(meaning)
