"""The rules that every store applies: expected heads, revisions, names, sequence numbers and ids."""

from dataclasses import replace

import pytest

from convo.errors import Conflict, InputFault, NotCanonical, NotFound
from convo.history.items import user_message
from convo.history.records import AgentCall, AgentRun, Link
from convo.history.tree import Key, Path, root_key
from convo.stores import base
from convo.stores.base import ANY_HEAD, Conversation, ExpectedHead, ProblemCounter, StoreProblem, Transaction
from tests.stores.chat_transactions import NOW, link, session

ROOT = root_key("local")
PATH = Path(ROOT).append([user_message("one"), user_message("two"), user_message("three")])
ONE, TWO, THREE = PATH.keys
RUN = AgentRun("run_1", "ses_1", 1, "running", {}, NOW, NOW, "hash_1")

APPROVALS = "convo approvals"
RELOAD = "reload the conversation, then retry"
CHANGED = Conflict("it changed since it was read")


@pytest.mark.parametrize(
    ("expected", "stored", "error"),
    [
        (ANY_HEAD, None, None),
        (ANY_HEAD, ONE, None),
        (None, None, None),
        (ONE, ONE, None),
        (ONE, TWO, CHANGED),
        (ONE, None, Conflict("it no longer exists", hint="convo sessions")),
        (None, ONE, Conflict("it already exists")),
    ],
)
def test_a_head_must_be_the_expected_one(expected: ExpectedHead, stored: Key | None, error: Conflict | None) -> None:
    if error is None:
        base.check_expected_head("it", expected, stored)
        return
    with pytest.raises(Conflict) as caught:
        base.check_expected_head("it", expected, stored)
    assert (caught.value.message, caught.value.hint) == (error.message, error.hint)


@pytest.mark.parametrize(
    ("revision", "stored", "error"),
    [
        (1, 0, None),
        (8, 7, None),
        (2, 0, Conflict("run_1 no longer exists", hint=APPROVALS)),
        (1, 1, Conflict("run_1 already exists")),
        (2, 2, Conflict("run_1 changed since it was read")),
        (4, 2, Conflict("run_1 changed since it was read")),
    ],
)
def test_a_run_has_the_revision_after_the_stored_one(revision: int, stored: int, error: Conflict | None) -> None:
    run = RUN._replace(revision=revision)
    if error is None:
        base.check_next_revision(run, stored)
        return
    with pytest.raises(Conflict) as caught:
        base.check_next_revision(run, stored)
    assert (caught.value.message, caught.value.hint) == (error.message, error.hint)


FINAL = link("resp_1", ONE, TWO, duration_s=1.0)
NEW = link("resp_1", TWO, THREE, session_id="ses_2", parent_id="resp_0", first_token_s=0.25, status="failed")
COMPLETE = replace(FINAL, session_id="ses_1", parent_id="resp_a", first_token_s=0.0)


@pytest.mark.parametrize(
    ("stored", "merged"),
    [
        (None, NEW),
        (replace(FINAL, status="in_progress"), NEW),
        (replace(FINAL, status="queued"), NEW),
        (FINAL, replace(FINAL, session_id="ses_2", parent_id="resp_0", first_token_s=0.25)),
        (COMPLETE, COMPLETE),
    ],
)
def test_a_final_link_keeps_its_values_and_gains_missing_ones(stored: Link | None, merged: Link) -> None:
    assert base.merge_link(stored, NEW) == merged


def test_every_referenced_node_and_every_stored_name_of_a_transaction() -> None:
    first = link("resp_1", ONE, TWO, parent_id="resp_0", session_id="ses_1")
    record = session(head=TWO, confirmed_head=ONE, file_head=THREE, link_id="resp_1")
    conversation = Conversation("conv_1", THREE, NOW, ("a",))
    transaction = Transaction(
        (),
        (first, link("resp_2", TWO)),
        record,
        conversation=conversation,
        agent_run=RUN,
        agent_calls=(AgentCall("run_1", "call_1", NOW),),
    )

    assert list(base.iter_referenced_keys(transaction)) == [ONE, TWO, TWO, TWO, TWO, ONE, THREE, THREE]
    assert list(base.iter_referenced_keys(Transaction(session=session()))) == [ROOT, ROOT]
    assert list(base.iter_stored_names(transaction)) == [
        "resp_1", "resp_0", "ses_1", "resp_2", "ses_1", "one", "resp_1", "conv_1", "run_1", "ses_1", "hash_1",
        "run_1", "call_1",
    ]  # fmt: skip
    assert list(base.iter_stored_names(Transaction())) == list(base.iter_referenced_keys(Transaction())) == []


INVALID = "\ud800"


@pytest.mark.parametrize(
    "transaction",
    [
        Transaction((), (link(INVALID, ONE),)),
        Transaction((), (link("a", ONE), link("b", ONE, parent_id=INVALID))),
        Transaction((), (link("a", ONE, session_id=INVALID),)),
        Transaction(session=session(id=INVALID)),
        Transaction(session=session(name=INVALID)),
        Transaction(session=session(link_id=INVALID)),
        Transaction(conversation=Conversation(INVALID, ONE, NOW, ())),
        Transaction(agent_run=RUN._replace(id=INVALID)),
        Transaction(agent_run=RUN._replace(session_id=INVALID)),
        Transaction(agent_run=RUN._replace(source_state_hash=INVALID)),
        Transaction(agent_calls=(AgentCall(INVALID, "call_1", NOW),)),
        Transaction(agent_calls=(AgentCall("run_1", INVALID, NOW),)),
    ],
)
def test_a_name_with_half_a_surrogate_pair_is_refused(transaction: Transaction) -> None:
    with pytest.raises(NotCanonical) as caught:
        base.check_stored_names(transaction)
    assert caught.value.message == r"'\ud800' cannot be used as a name"


def test_a_conversation_needs_one_id_for_each_item() -> None:
    conversation = Conversation("conv_1", TWO, NOW, ("a", "b"))
    base.check_item_ids(conversation, 2)
    for length in (1, 3):
        with pytest.raises(InputFault) as caught:
            base.check_item_ids(conversation, length)
        assert caught.value.message == f"conv_1 has {length} items, but 2 ids for them"


@pytest.mark.parametrize(
    ("numbers", "last", "result"),
    [
        ([], 5, 5),
        ([6, 9], 5, 9),
        ([0], -1, 0),
        ([2**63 - 1], 0, 2**63 - 1),
        ([5], 5, Conflict("event 5 does not follow event 5")),
        ([6, 6], 5, Conflict("event 6 does not follow event 6")),
        ([7, 6], 5, Conflict("event 6 does not follow event 7")),
        ([-1], -5, InputFault("an event has no sequence number")),
        ([2**63], 0, InputFault("an event has no sequence number")),
        ([True], 0, InputFault("an event has no sequence number")),
        (["1"], 0, InputFault("an event has no sequence number")),
        ([None], 0, InputFault("an event has no sequence number")),
    ],
)
def test_events_have_increasing_numbers(numbers: list[object], last: int, result: int | Conflict | InputFault) -> None:
    events = [{"sequence_number": number} if number is not None else {} for number in numbers]
    if isinstance(result, int):
        assert base.check_sequence_numbers(events, last) == result
        return
    with pytest.raises(type(result)) as caught:
        base.check_sequence_numbers(events, last)
    assert caught.value.message == result.message


def test_the_id_of_an_item_is_a_string() -> None:
    assert [base.own_item_id(item) for item in ({"id": "a"}, {"id": ""}, {"id": 7}, {"id": None}, {})] == [
        "a", "", "", "", "",
    ]  # fmt: skip


DIGITS = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("item_id", "digits"),
    [
        (DIGITS, DIGITS),
        (f"msg_{DIGITS}", DIGITS),
        (f"msg_{DIGITS[:32]}", DIGITS[:32]),
        (f"msg_{DIGITS[:31]}", ""),
        (f"msg_{DIGITS}0", ""),
        (f"msg_{DIGITS[:32]}g", ""),
        (f"msg_{DIGITS[:32]}\n", ""),
        (f"msg_{DIGITS[:32].upper()}", ""),
        ("", ""),
    ],
)
def test_an_id_may_end_with_the_first_digits_of_a_node(item_id: str, digits: str) -> None:
    assert base.parse_key_prefix(item_id) == digits


def test_the_errors_about_records_have_messages_and_hints() -> None:
    errors = [
        base.run_not_open_error("resp_ä"),
        base.node_not_found_error(ONE),
        base.not_on_path_error(ONE),
        base.session_name_taken_error("one"),
        base.agent_run_not_found_error("run_1"),
    ]
    assert [(type(error), error.message, error.hint) for error in errors] == [
        (Conflict, r"'resp_\xe4' is not running", RELOAD),
        (NotFound, f"no node {ONE[:12]!r}", "convo sessions"),
        (Conflict, f"this history does not pass through {ONE[:12]!r}", RELOAD),
        (Conflict, "another session has the name 'one'", "choose another name"),
        (NotFound, "no run 'run_1'", APPROVALS),
    ]


def test_problems_are_counted_by_code_with_the_first_as_the_example() -> None:
    problems = ProblemCounter()
    assert not problems
    problems.add("item", "first")
    problems.add("node", "other", 3)
    problems.add("item", "second", 2)
    assert problems
    assert list(problems) == [StoreProblem("item", 3, "first"), StoreProblem("node", 3, "other")]


def test_the_lease_of_a_run_has_its_name() -> None:
    assert base.run_lease_name("resp_1") == "running resp_1"
