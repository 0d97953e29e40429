"""The rules that every store applies: expected heads, revisions, names, sequence numbers and ids."""

import pytest

from convo.errors import Conflict, NotCanonical, NotFound
from convo.history.items import user_message
from convo.history.records import AgentCall, AgentRun
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


def test_the_id_of_an_item_is_a_string() -> None:
    assert [base.own_item_id(item) for item in ({"id": "a"}, {"id": 7}, {"id": None}, {})] == ["a", "", "", ""]


def test_a_queued_link_is_replaced() -> None:
    new = link("resp_1", TWO, THREE, status="failed")
    assert base.merge_link(link("resp_1", ONE, TWO, status="queued"), new) == new
