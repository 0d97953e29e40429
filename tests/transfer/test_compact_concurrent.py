"""Compaction with concurrent writers, and failures at each step: the history is the one before or the one after."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from convo.compaction.planning import CompactionOptions
from convo.errors import Conflict, NotFound, StoreFault, Unreachable
from convo.history.items import assistant_message, item_text, user_message
from convo.history.records import Strategy
from convo.stores.factory import open_store
from convo.transfer.compact import apply_compaction, prepare_compaction
from tests.transfer.compaction_cases import (
    ANSWER,
    NAME,
    CompactionCase,
    change_endpoint,
    compact,
    first_words,
    read_items,
)
from tests.transfer.faults import StepFault


def make_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


# -- concurrent writers ---------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_turns_added_during_a_compaction_follow_the_compacted_history(
    case: CompactionCase, strategy: Strategy
) -> None:
    chat = await case.start_chat(strategy)
    one = await prepare_compaction(chat, CompactionOptions(keep_turns=1), confirmed=True)
    await case.send(await case.open(), "meanwhile")
    result = await apply_compaction(chat, one, confirmed=True)
    assert first_words(chat.state.path.items)[-1] == "meanwhile"
    assert item_text(chat.state.path.items[-1]) == ANSWER
    assert result.later_count == 2
    if strategy is Strategy.SESSION:
        assert first_words((await case.open(handle=str(result.old_handle))).state.path.items)[-1] == "meanwhile"
    again = await case.open()
    await case.send(again, "5")
    assert first_words(again.state.path.items)[-2:] == ["meanwhile", "5"]


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN])
async def test_a_head_that_moves_just_before_the_commit_is_read_again(case: CompactionCase, strategy: Strategy) -> None:
    """Another writer commits after the compaction reads the head and before it commits."""
    chat = await case.start_chat(strategy)
    one = await prepare_compaction(chat, CompactionOptions())
    other, has_moved = await case.open(), False

    async def change_before_refresh() -> None:
        nonlocal has_moved
        if not has_moved:
            has_moved = True
            await case.send(other, "meanwhile")

    refresh = chat.refresh

    async def late() -> None:
        await refresh()
        await change_before_refresh()

    chat.refresh = late  # type: ignore[method-assign]
    await apply_compaction(chat, one)
    assert first_words(chat.state.path.items)[-1] == "meanwhile"


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.REPLAY, Strategy.CHAIN])
async def test_a_history_that_was_undone_during_a_compaction_is_unchanged(
    case: CompactionCase, strategy: Strategy
) -> None:
    chat = await case.start_chat(strategy)
    one = await prepare_compaction(chat, CompactionOptions())
    other = await case.open()
    await other.undo()
    with pytest.raises(Conflict, match="changed during the compaction"):
        await apply_compaction(chat, one)
    assert (await case.open()).state.path == other.state.path
    assert len(await case.store.sessions()) == 1
    assert not (case.folder / "talk-before.json").exists()


async def test_a_replay_file_that_is_edited_during_a_compaction_keeps_the_added_items(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.REPLAY)
    one = await prepare_compaction(chat, CompactionOptions())
    added = [*read_items(case.file), user_message("by hand"), assistant_message("yes")]
    case.file.write_text(json.dumps(added))
    await apply_compaction(chat, one)
    assert [item_text(item) for item in read_items(case.file)][-2:] == ["by hand", "yes"]
    assert len(read_items(case.file)) == 6


@pytest.mark.parametrize("strategy", Strategy)
async def test_unconfirmed_input_stays_unconfirmed_after_the_compacted_history(
    case: CompactionCase, strategy: Strategy
) -> None:
    chat = await case.start_chat(strategy)
    await chat.record.commit(replace(chat.state, path=chat.state.path.append([user_message("waiting")])))
    await chat.write_replay_file()
    await compact(chat)
    assert first_words(chat.state.path.items)[-1] == "waiting"
    assert first_words(tuple(node.item for node in chat.state.unconfirmed_nodes))[-1] == "waiting"


# -- failures at each step ------------------------------------------------------------------------

OPTIONS = [(strategy, CompactionOptions()) for strategy in Strategy] + [
    (Strategy.CONVERSATION, CompactionOptions(keep_turns=1))
]


async def record_steps(
    folder: Path, strategy: Strategy, options: CompactionOptions
) -> tuple[list[str], list[str], list[str]]:
    """Return the steps of an undisturbed compaction, and the user messages before and after it."""
    store = open_store("memory")
    case = CompactionCase(store, make_folder(folder))
    chat = await case.start_chat(strategy)
    before = first_words(chat.state.path.items)
    case.fault.armed = True
    await compact(chat, options)
    await store.aclose()
    return case.fault.steps, before, first_words(chat.state.path.items)


@pytest.mark.parametrize(("strategy", "options"), OPTIONS, ids=lambda value: str(value))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_at_any_step_leaves_the_history_before_or_after_the_compaction(
    tmp_path: Path, strategy: Strategy, options: CompactionOptions, when: str
) -> None:
    steps, before, after = await record_steps(tmp_path / "undisturbed", strategy, options)
    assert steps
    for step in range(len(steps)):
        folder = make_folder(tmp_path / f"{step}")
        store = open_store(f"sqlite:{folder / 'convo.db'}")
        case = CompactionCase(store, folder, StepFault(lambda: Unreachable("struck"), step, when))  # type: ignore[arg-type]
        chat = await case.start_chat(strategy)
        case.fault.armed = True
        with suppress(Unreachable):
            await compact(chat, options)
        case.fault.armed = False
        again = await case.open()
        assert first_words(again.state.path.items) in (before, after), (steps[step], when)
        await case.send(again, "4")
        assert first_words(again.state.path.items)[-1] == "4", (steps[step], when)
        others = [one for one in await store.sessions() if one.name != NAME]
        if first_words(again.state.path.items)[:-1] == after and strategy is Strategy.SESSION:
            assert [one.name for one in others] == [f"{NAME}-before"]
        await store.aclose()


async def test_a_new_conversation_is_deleted_if_the_session_is_not_changed(
    case: CompactionCase, tmp_path: Path
) -> None:
    options, created = CompactionOptions(keep_turns=1), list[str]()
    steps, _, _ = await record_steps(tmp_path / "undisturbed", Strategy.CONVERSATION, options)
    chat = await case.start_chat(Strategy.CONVERSATION)
    old, create_conversation = chat.session.handle, chat.deps.endpoint.create_conversation

    async def record_conversation(*arguments: Any) -> Any:
        conversation = await create_conversation(*arguments)
        created.append(str(conversation["id"]))
        return conversation

    change_endpoint(chat, create_conversation=record_conversation)
    case.fault.at, case.fault.armed = steps.index("commit"), True
    with pytest.raises(StoreFault, match="struck"):
        await compact(chat, options)
    with pytest.raises(NotFound):
        await case.deps.endpoint.retrieve_conversation(created[0])
    assert (await case.open()).session.handle == old
