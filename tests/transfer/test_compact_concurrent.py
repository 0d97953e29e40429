"""Compaction while others write, and what a failure at any step leaves: the history before, or the one after."""

import json
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from convo.compaction.planning import CompactionOptions
from convo.errors import Conflict, Unreachable
from convo.history.items import assistant_message, item_text, user_message
from convo.history.records import Strategy
from convo.stores.factory import open_store
from convo.transfer.compact import apply_compaction, prepare_compaction
from tests.transfer.faults import Strikes
from tests.transfer.talks import ANSWER, NAME, Talk, asked, compact, read


def made_folder(folder: Path) -> Path:
    folder.mkdir()
    return folder


# -- others write meanwhile -----------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
async def test_what_was_said_meanwhile_stands_behind_the_window(talk: Talk, strategy: Strategy) -> None:
    chat = await talk.begun(strategy)
    one = await prepare_compaction(chat, CompactionOptions(keep_turns=1), confirmed=True)
    await talk.say(await talk.open(), "meanwhile")
    done = await apply_compaction(chat, one, confirmed=True)
    assert asked(chat.state.path.items)[-1] == "meanwhile"
    assert item_text(chat.state.path.items[-1]) == ANSWER
    assert done.later_count == 2
    if strategy is Strategy.SESSION:
        assert asked((await talk.open(handle=str(done.old_handle))).state.path.items)[-1] == "meanwhile"
    again = await talk.open()
    await talk.say(again, "5")
    assert asked(again.state.path.items)[-2:] == ["meanwhile", "5"]


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN])
async def test_a_head_that_moves_in_the_last_moment_is_read_again(talk: Talk, strategy: Strategy) -> None:
    """Another writer commits between our reading of the head and our own commit."""
    chat = await talk.begun(strategy)
    one = await prepare_compaction(chat, CompactionOptions())
    other, moved = await talk.open(), False

    async def meddle() -> None:
        nonlocal moved
        if not moved:
            moved = True
            await talk.say(other, "meanwhile")

    catch_up = chat.refresh

    async def late() -> None:
        await catch_up()
        await meddle()

    chat.refresh = late  # type: ignore[method-assign]
    await apply_compaction(chat, one)
    assert asked(chat.state.path.items)[-1] == "meanwhile"


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.REPLAY, Strategy.CHAIN])
async def test_a_history_that_was_cut_back_meanwhile_is_left_as_it_is(talk: Talk, strategy: Strategy) -> None:
    chat = await talk.begun(strategy)
    one = await prepare_compaction(chat, CompactionOptions())
    other = await talk.open()
    await other.undo()
    with pytest.raises(Conflict, match="changed during the compaction"):
        await apply_compaction(chat, one)
    assert (await talk.open()).state.path == other.state.path
    assert len(await talk.store.sessions()) == 1
    assert not (talk.folder / "talk-before.json").exists()


async def test_a_file_that_is_edited_meanwhile_keeps_what_was_added(talk: Talk) -> None:
    chat = await talk.begun(Strategy.REPLAY)
    one = await prepare_compaction(chat, CompactionOptions())
    added = [*read(talk.file), user_message("by hand"), assistant_message("yes")]
    talk.file.write_text(json.dumps(added))
    await apply_compaction(chat, one)
    assert [item_text(item) for item in read(talk.file)][-2:] == ["by hand", "yes"]
    assert len(read(talk.file)) == 6


@pytest.mark.parametrize("strategy", Strategy)
async def test_unacknowledged_input_stays_unacknowledged_behind_the_window(talk: Talk, strategy: Strategy) -> None:
    chat = await talk.begun(strategy)
    await chat.record.commit(replace(chat.state, path=chat.state.path.append([user_message("waiting")])))
    await chat.write_replay_file()
    await compact(chat)
    assert asked(chat.state.path.items)[-1] == "waiting"
    assert asked(tuple(node.item for node in chat.state.unconfirmed_nodes))[-1] == "waiting"


# -- whatever fails -------------------------------------------------------------------------------

WISHES = [(strategy, CompactionOptions()) for strategy in Strategy] + [
    (Strategy.CONVERSATION, CompactionOptions(keep_turns=1))
]


async def steps_of(folder: Path, strategy: Strategy, wish: CompactionOptions) -> tuple[list[str], list[str], list[str]]:
    """The steps of a compaction nobody disturbs, and what is said before it and after it."""
    store = open_store("memory")
    talk = Talk(store, made_folder(folder))
    chat = await talk.begun(strategy)
    before = asked(chat.state.path.items)
    talk.strikes.armed = True
    await compact(chat, wish)
    await store.aclose()
    return talk.strikes.taken, before, asked(chat.state.path.items)


@pytest.mark.parametrize(("strategy", "wish"), WISHES, ids=lambda value: str(value))
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_failure_at_any_step_leaves_the_history_before_or_after(
    tmp_path: Path, strategy: Strategy, wish: CompactionOptions, when: str
) -> None:
    steps, before, after = await steps_of(tmp_path / "undisturbed", strategy, wish)
    assert steps
    for at in range(len(steps)):
        folder = made_folder(tmp_path / f"{at}")
        store = open_store(f"sqlite:{folder / 'convo.db'}")
        talk = Talk(store, folder, Strikes(lambda: Unreachable("struck"), at, when))  # type: ignore[arg-type]
        chat = await talk.begun(strategy)
        talk.strikes.armed = True
        with suppress(Unreachable):
            await compact(chat, wish)
        talk.strikes.armed = False
        again = await talk.open()
        assert asked(again.state.path.items) in (before, after), (steps[at], when)
        await talk.say(again, "4")
        assert asked(again.state.path.items)[-1] == "4", (steps[at], when)
        others = [one for one in await store.sessions() if one.name != NAME]
        if asked(again.state.path.items)[:-1] == after and strategy is Strategy.SESSION:
            assert [one.name for one in others] == [f"{NAME}-before"]
        await store.aclose()
