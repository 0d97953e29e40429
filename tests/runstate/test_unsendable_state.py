"""Import refuses a state whose next request no server accepts, before a tool runs; parsing still accepts it."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from convo.errors import InvalidRunState
from convo.history.items import is_client_output
from convo.runs.state import Stage
from convo.runstate.import_ import ImportedRun, import_run_state
from convo.runstate.reader import build_state_report, parse_run_state, run_state_from_json
from tests.runstate import snapshots
from tests.runstate.scenario_runs import scenario_graph
from tests.runstate.snapshots import entries_of_label, load_scenario

PARALLEL = "streamed_approval"
"""A scenario of three calls, the first and the last with outputs; the client stores the history."""

SERVER_OWNED = "server_parallel_partial"
"""A scenario of two calls, the first with an output; a conversation stores the history."""

NESTED = "nested_agent_tool_approval"
NESTED_PATH = "$.last_processed_response.functions[0].agent_run_state"

Break = Callable[[Any], None]


def import_broken(scenario: str, broken: Break) -> ImportedRun:
    """Change the newest snapshot of a scenario and import it; its summary does not depend on the change."""
    (entry,) = (one for one in entries_of_label("1.21") if one["scenario"] == scenario)
    document = snapshots.document(scenario, "1.21")
    broken(document)
    state = run_state_from_json(document)
    assert (
        build_state_report(state).pending == build_state_report(parse_run_state(json.dumps(document).encode())).pending
    )
    return import_run_state(state, scenario_graph(load_scenario(entry["file"])))


def refusal(scenario: str, broken: Break) -> tuple[str, str]:
    with pytest.raises(InvalidRunState) as error:
        import_broken(scenario, broken)
    assert "\n" not in error.value.message
    return error.value.path, error.value.message.removeprefix(f"{error.value.path} ")


def remove_items(document: Any, kind: str, index: int) -> None:
    """Remove the call at this index in the last response, or its output, from the items."""
    calls = [item["call_id"] for item in document["model_responses"][-1]["output"] if "call_id" in item]
    for key in ("generated_items", "session_items"):
        raws = [(item["raw_item"].get("type"), item["raw_item"].get("call_id")) for item in document[key]]
        pairs = zip(document[key], raws, strict=True)
        document[key] = [item for item, raw in pairs if raw != (kind, calls[index])]


def add_unplanned_call(document: Any) -> None:
    call = document["last_processed_response"]["functions"][0]["tool_call"]
    document["model_responses"][-1]["output"].append({**call, "call_id": "zz", "id": "fc_zz"})


def add_output_without_call(document: Any) -> None:
    raw = {"type": "function_call_output", "call_id": "call_9", "output": "made up"}
    agent = document["current_agent"]
    document["generated_items"].append(
        {"type": "tool_call_output_item", "raw_item": raw, "agent": agent, "output": "made up"}
    )


def empty_first_item(document: Any) -> None:
    document["generated_items"][0]["raw_item"] = {}


def stage_message_without_role(document: Any) -> None:
    document["pending_input"] = [{"type": "message", "content": "whose?"}]


def add_unanswered_call(document: Any) -> None:
    document["original_input"] = [
        {"role": "user", "content": "hello"},
        {"type": "function_call", "call_id": "call_0", "name": "echo", "arguments": "{}"},
    ]


UNPLANNED = "is a call without an output that last_processed_response does not contain"
NOT_GENERATED = "is a call that is not in generated_items, so its output would have no call"
OUTPUT_PATH = "$.model_responses[0].output"

BROKEN = {
    "an unplanned call": (add_unplanned_call, f"{OUTPUT_PATH}[4]", UNPLANNED),
    "a missing pending call": (
        lambda document: remove_items(document, "function_call", 1),
        f"{OUTPUT_PATH}[2]",
        NOT_GENERATED,
    ),
    "a missing finished call": (
        lambda document: remove_items(document, "function_call", 0),
        f"{OUTPUT_PATH}[1]",
        NOT_GENERATED,
    ),
    "an output without a call": (
        add_output_without_call,
        "$.generated_items[7].raw_item.call_id",
        "cannot be sent: this function call output has no earlier call call_9",
    ),
    "an item without a type": (
        empty_first_item,
        "$.generated_items[0].raw_item",
        "cannot be sent: the item has neither a type nor a role",
    ),
    "staged input without a role": (
        stage_message_without_role,
        "$.pending_input[0].role",
        "cannot be sent: message has no role",
    ),
    "a call in the input without an output": (
        add_unanswered_call,
        "$.original_input[1].call_id",
        "cannot be sent: function call call_0 has no output",
    ),
}


@pytest.mark.parametrize("what", BROKEN)
def test_items_that_no_server_accepts_are_refused_with_their_path(what: str) -> None:
    broken, path, text = BROKEN[what]
    assert refusal(PARALLEL, broken) == (path, text)


def test_a_server_that_stores_the_history_gets_only_outputs_of_its_own_calls() -> None:
    """The server's own items may be missing from the state; an output to send must belong to one of its calls."""
    found = import_broken(SERVER_OWNED, lambda document: remove_items(document, "function_call", 1))
    assert [call.stage for call in found.run.calls] == [Stage.DONE, Stage.PENDING]
    path, text = refusal(SERVER_OWNED, add_output_without_call)
    assert path.startswith("$.generated_items[")
    assert text.startswith("cannot be sent: this function call output has no earlier call call_9")
    assert refusal(SERVER_OWNED, add_unplanned_call)[1] == UNPLANNED


def test_an_error_in_an_agent_tool_has_its_path_in_the_whole_document() -> None:
    def broken(document: Any) -> None:
        add_output_without_call(document["last_processed_response"]["functions"][0]["agent_run_state"])

    path, text = refusal(NESTED, broken)
    assert path == f"{NESTED_PATH}.generated_items[2].raw_item.call_id"
    assert text == "cannot be sent: this function call output has no earlier call call_9"


def test_a_started_tool_without_a_result_is_not_run_again_unasked() -> None:
    def broken(document: Any) -> None:
        remove_items(document, "function_call_output", 0)

    found = import_broken(PARALLEL, broken)
    assert [call.stage for call in found.run.calls] == [Stage.OUTCOME_UNKNOWN, Stage.PENDING, Stage.DONE]
    assert not any(is_client_output(item) for item in found.items)
