"""A state that is parsed and serialized is unchanged, including unknown keys and items."""

import json
from contextlib import suppress
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from convo.errors import ConvoError
from convo.runstate.approvals import apply_verdict
from convo.runstate.document import parse_document
from convo.runstate.format import ApprovalVerdict
from convo.runstate.reader import parse_run_state, run_state_from_json
from convo.runstate.run_state import RunState
from convo.runstate.versions import LABELS
from convo.runstate.writer import serialize_run_state
from tests.runstate import snapshots

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
LEAVES = st.none() | st.booleans() | NUMBERS | st.text(st.characters(), max_size=20)
JSON = st.recursive(
    LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
"""Any JSON value, including strings with lone surrogates."""

STATES = [
    snapshots.document(scenario, label)
    for scenario, label in (
        ("single_approval", "1.0"),
        ("parallel_mixed_decided", "1.6"),
        ("nested_agent_tool_approval", "1.13"),
        ("hosted_mcp_approval", "1.15"),
        ("nested_agent_tool_approval", "1.21"),
    )
]


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a state of a release with random additions: unknown keys, items, context."""
    document: dict[str, Any] = json.loads(json.dumps(draw(st.sampled_from(STATES))))
    unknown = draw(st.dictionaries(st.text(min_size=1, max_size=6).map(lambda key: f"x-{key}"), JSON, max_size=3))
    document["context"]["context"] = draw(JSON)
    document["trace"] = draw(JSON)
    document["generated_items"] = [
        *document["generated_items"],
        *(
            {"type": f"x_{kind}", "raw_item": raw}
            for kind, raw in draw(
                st.dictionaries(st.text(), st.just({}) | st.dictionaries(st.text(), JSON, max_size=2), max_size=2)
            ).items()
        ),
    ]
    return {**document, **unknown}


@given(documents())
def test_parsing_and_serializing_a_state_is_the_identity(document: dict[str, Any]) -> None:
    state = run_state_from_json(document)
    again = parse_run_state(serialize_run_state(state).encode())
    assert again == state
    assert again.document == document
    assert serialize_run_state(again) == serialize_run_state(state)


@given(documents(), st.booleans(), st.booleans())
def test_a_decision_keeps_unknown_members(document: dict[str, Any], approve: bool, always: bool) -> None:
    state = run_state_from_json(document)
    after = parse_run_state(
        serialize_run_state(apply_verdict(state, state.pending, ApprovalVerdict(approve, always=always))).encode()
    )
    spared = ("context", "last_processed_response")
    assert {k: v for k, v in after.document.items() if k not in spared} == {
        k: v for k, v in document.items() if k not in spared
    }
    assert after.document["context"]["context"] == document["context"]["context"]
    assert after.list_undecided() == ()


@given(JSON)
def test_any_json_object_round_trips(value: Any) -> None:
    document = {"a": value}
    assert parse_document(json.dumps(document).encode()) == document


@given(st.sampled_from(STATES), st.data())
def test_a_state_with_random_values_is_read_or_refused_with_one_sentence(
    document: dict[str, Any], data: st.DataObject
) -> None:
    """One value of the state is replaced by any other; the only errors are those of convo."""
    broken = json.loads(json.dumps(document))
    holder: Any = broken
    for _ in range(data.draw(st.integers(0, 6))):
        inner = [
            value
            for value in (holder.values() if isinstance(holder, dict) else holder)
            if value and isinstance(value, dict | list)
        ]
        if not inner:
            break
        holder = data.draw(st.sampled_from(inner))
    key = data.draw(st.sampled_from(list(holder) if isinstance(holder, dict) else range(len(holder))))
    holder[key] = data.draw(JSON)
    with suppress(ConvoError):
        state = parse_run_state(json.dumps(broken).encode())
        assert apply_verdict(state, state.pending, ApprovalVerdict(approve=True)).list_undecided() == ()


def test_a_state_is_its_document_and_its_label() -> None:
    assert {run_state_from_json(document).label for document in STATES} <= set(LABELS)
    assert run_state_from_json(STATES[0]) == RunState(STATES[0], run_state_from_json(STATES[0]).version)
