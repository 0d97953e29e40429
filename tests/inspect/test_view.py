"""The view of a conversation: its owner's file, its model and its open run."""

from dataclasses import replace

import pytest

from convo.history.items import user_message
from convo.history.records import Session, Strategy
from convo.history.tree import root_key
from convo.inspect.view import OpenRun, PathIndex, compute_link_stats
from tests.inspect.conversation_builder import ROOT, ConversationBuilder, build_chain

SESSION = Session(
    "ses_1", "mine", Strategy.REPLAY, "openai/gpt-5", ROOT, ROOT, created_at=0.0, used_at=0.0, handle="/a"
)


@pytest.mark.parametrize(
    ("strategy", "session", "file"),
    [
        (Strategy.REPLAY, None, "resp_1"),
        (Strategy.REPLAY, SESSION, "/a"),
        (Strategy.REPLAY, replace(SESSION, handle=None), "resp_1"),
        (Strategy.SESSION, SESSION, None),
        (Strategy.CHAIN, None, None),
    ],
)
def test_a_replay_has_the_file_of_its_record_or_of_its_handle(
    strategy: Strategy, session: Session | None, file: str | None
) -> None:
    view = build_chain(1).view("resp_1", strategy=strategy, session=session)
    assert view.replay_file == file


def test_the_model_is_that_of_the_record_or_of_the_links() -> None:
    builder = build_chain(1)
    builder.turn("resp_2", "more", "yes", after="resp_1", model="x/two")
    assert builder.view("resp_2", session=SESSION).model == "openai/gpt-5"
    assert builder.view("resp_2").model == "x/two"
    assert builder.view("resp_1").model == "local/demo"
    assert builder.view("resp_2", current_link_id=None).model == "x/two"
    assert builder.view("resp_2", current_link_id="resp_9").model is None


def test_the_nodes_after_the_confirmed_head_are_unconfirmed() -> None:
    builder = build_chain(2)
    view = builder.view("resp_2", confirmed_head=builder.paths["resp_1"].head)
    assert view.unconfirmed_nodes == builder.paths["resp_2"].nodes[2:]
    assert view.head == builder.paths["resp_2"].head
    assert replace(view, unreadable_head=root_key("lost")).head == root_key("lost")


@pytest.mark.parametrize(
    ("run", "is_orphaned"),
    [
        (OpenRun("run_1"), True),
        (OpenRun("run_1", is_paused=True), False),
        (OpenRun("run_1", process="process 7"), False),
        (OpenRun("run_1", is_paused=True, process="process 7"), False),
    ],
)
def test_a_run_is_orphaned_if_its_process_ended_while_it_worked(run: OpenRun, is_orphaned: bool) -> None:
    assert run.is_orphaned is is_orphaned


def test_a_link_whose_output_is_unknown_has_the_preview_of_its_error() -> None:
    builder = ConversationBuilder()
    path = builder.turn("resp_1", "hi", "there", error={"message": "lost"})
    index = PathIndex(ROOT)
    index.add(path.first(1))
    stats = compute_link_stats(builder.links[0], index)
    assert (stats.input_preview, stats.output_preview, stats.input_count) == ("hi", "lost", 1)
    assert compute_link_stats(builder.links[0], PathIndex(ROOT)).output_preview == "lost"
    assert index.item(path.first(1).head) == user_message("hi")
