"""Compaction for each strategy: the compacted history, the previous history, refusals and undo."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from convo.chat.view_loader import load_handle_view
from convo.compaction.planning import CompactionMethod, CompactionMode, CompactionOptions
from convo.endpoints.base import Endpoint
from convo.errors import EndpointFault, InvalidUsage, RequestRefused, StateFault, StoreFull
from convo.history.items import Json, StreamEvent, item_text
from convo.history.records import Scope, Strategy
from convo.stores.base import Transaction
from convo.transfer.compact import apply_compaction, prepare_compaction
from convo.usage.counting import count_tokens
from tests.transfer.compaction_cases import (
    CLIENT_STRATEGIES,
    LONG,
    NAME,
    SUMMARY,
    CompactionCase,
    change_endpoint,
    compact,
    first_words,
    read_items,
)


@pytest.mark.parametrize("strategy", CLIENT_STRATEGIES)
async def test_a_history_stored_at_the_client_is_compacted_to_a_summary_item(
    case: CompactionCase, strategy: Strategy
) -> None:
    chat = await case.start_chat(strategy)
    result = await compact(chat)
    assert first_words(chat.state.path.items) == ["1", "2", "3", "Summary"]
    assert item_text(chat.state.path.items[-1]).endswith(SUMMARY)
    assert result.prepared.plan.method is CompactionMethod.SUMMARY
    assert result.count_after.tokens < result.prepared.count_before.tokens
    assert not chat.state.unconfirmed_nodes


async def test_a_chain_is_compacted_by_its_response_id_and_starts_again(case: CompactionCase) -> None:
    """All items of the new chain are unconfirmed, so the next turn sends all of them."""
    chat = await case.start_chat(Strategy.CHAIN)
    old = chat.session.handle
    result = await compact(chat)
    assert (result.prepared.plan.method, result.old_handle) == (CompactionMethod.PREVIOUS, old)
    assert chat.session.handle is None
    assert chat.state.confirmed_head == chat.state.path.root
    await case.send(chat, "4")
    assert chat.turn
    assert chat.turn.link
    assert chat.turn.link.previous_response_id is None
    assert (await case.deps.endpoint.retrieve(str(old)))["id"] == old


async def test_a_conversation_is_compacted_in_its_own_items(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.CONVERSATION)
    handle = chat.session.handle
    result = await compact(chat)
    assert (result.prepared.plan.method, result.old_handle, chat.session.handle) == (
        CompactionMethod.IN_PLACE,
        None,
        handle,
    )
    assert [item["type"] for item in chat.state.path.items][-1] == "compaction"
    assert result.count_after.tokens < result.prepared.count_before.tokens
    step = (await load_handle_view(case.store, NAME)).links[-1]
    assert (step.head, step.input_head) == (chat.state.path.head, chat.state.path.first(len(chat.state.path) - 1).head)
    assert (step.conversation_id, step.is_stored) == (handle, True)
    assert (step.id[:5], step.status, step.sent_count) == ("resp_", "completed", 0)
    assert (step.usage or {})["output_tokens"]
    assert (step.usage or {})["input_tokens"] > len(LONG.split())
    await case.send(chat, "4")
    assert not chat.state.unconfirmed_nodes


async def test_a_conversation_that_keeps_turns_continues_as_a_new_conversation(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.CONVERSATION)
    old = chat.session.handle
    with pytest.raises(InvalidUsage) as refused:
        await prepare_compaction(chat, CompactionOptions(keep_turns=1))
    assert (refused.value.message, refused.value.hint) == (
        f"{old} would continue as a new conversation with the compacted history; the old one does not change",
        "pass --yes to confirm",
    )
    result = await compact(chat, CompactionOptions(keep_turns=1))
    assert result.old_handle == old != chat.session.handle
    endpoint_items = (await case.deps.endpoint.list_conversation_items(str(chat.session.handle), order="asc")).items
    assert first_words(tuple(endpoint_items)) == first_words(chat.state.path.items)
    assert len((await case.deps.endpoint.list_conversation_items(str(old))).items) == 6


@pytest.mark.parametrize("strategy", Strategy)
async def test_after_a_compaction_the_conversation_continues_and_the_model_gets_the_compacted_history(
    case: CompactionCase, strategy: Strategy
) -> None:
    chat = await case.start_chat(strategy)
    await compact(chat)
    again = await case.open()
    await case.send(again, "4")
    assert first_words(again.state.path.items)[-1] == "4"
    assert again.turn
    assert again.turn.link
    assert (again.turn.link.usage or {})["input_tokens"] < 4 * len(LONG.split())


async def test_the_history_before_the_compaction_stays_as_a_separate_session(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.SESSION)
    before = chat.state.path
    result = await compact(chat)
    assert result.old_handle == f"{NAME}-before"
    previous = await case.open(handle=f"{NAME}-before")
    assert previous.state.path == before
    assert previous.session.id.startswith("ses_")
    assert previous.session.created_at == case.deps.clock.now()
    await case.send(previous, "4")
    assert first_words((await case.open()).state.path.items)[-1] == "Summary"


async def test_compacting_a_replay_file_keeps_a_copy_of_the_file(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.REPLAY)
    before = read_items(case.file)
    result = await compact(chat)
    assert result.old_handle == str(case.folder / "talk-before.json")
    assert read_items(Path(result.old_handle)) == before
    assert len(read_items(case.file)) == 4


async def test_a_copy_with_the_first_items_of_the_replay_file_is_replaced(case: CompactionCase) -> None:
    """An interrupted compaction left the copy; the history has more items since."""
    chat = await case.start_chat(Strategy.REPLAY)
    before = read_items(case.file)
    interrupted = case.folder / "talk-before.json"
    interrupted.write_text(json.dumps(before[:2]))
    result = await compact(chat)
    assert result.old_handle == str(interrupted)
    assert read_items(interrupted) == before
    assert sorted(file.name for file in case.folder.glob("talk*")) == ["talk-before.json", "talk.json"]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", "not JSON", "[" * 100_000, '[{"role": "user", "content": "other"}]'],
    ids=lambda text: text[:8],
)
async def test_another_file_with_the_name_of_the_copy_stays_unchanged(case: CompactionCase, content: str) -> None:
    chat = await case.start_chat(Strategy.REPLAY)
    before = read_items(case.file)
    other = case.folder / "talk-before.json"
    other.write_text(content)
    result = await compact(chat)
    assert (result.old_handle, other.read_text()) == (str(case.folder / "talk-before-2.json"), content)
    assert read_items(Path(str(result.old_handle))) == before


@pytest.mark.parametrize("strategy", [*CLIENT_STRATEGIES, Strategy.CHAIN])
@pytest.mark.parametrize("keep", [1, 2])
async def test_kept_turns_are_unchanged(case: CompactionCase, strategy: Strategy, keep: int) -> None:
    chat = await case.start_chat(strategy)
    last = [item_text(item) for item in chat.state.path.items[-2 * keep :]]
    result = await compact(chat, CompactionOptions(keep_turns=keep))
    assert [item_text(item) for item in chat.state.path.items[-2 * keep :]] == last
    assert len(result.prepared.plan.compacted_items) == 6 - 2 * keep


async def test_the_focus_is_sent_to_the_model(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.SESSION)
    one = await prepare_compaction(chat, CompactionOptions(focus="the file names"))
    assert one.plan.focus == "the file names"
    assert one.plan.method is CompactionMethod.SUMMARY


async def test_a_preview_of_a_compaction_changes_nothing(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.CONVERSATION)
    session, path = chat.session, chat.state.path
    one = await prepare_compaction(chat, CompactionOptions(), preview=True)
    again = await case.open()
    assert (again.session, again.state.path) == (session, path)
    assert one.replacement
    assert len(await case.store.sessions()) == 1


# -- refusals -------------------------------------------------------------------------------------


async def test_a_compacted_history_that_is_not_smaller_is_refused(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.SESSION)
    other = await (wordy := CompactionCase(case.store, case.folder)).open()
    wordy.script.write_text(json.dumps({"replies": [{"text": LONG * 50}]}))
    with pytest.raises(StateFault) as refused:
        await compact(other)
    assert refused.value.message.startswith("the compacted history would not be smaller: ")
    assert refused.value.message.endswith(" after; nothing was changed")
    assert refused.value.hint == "compact a longer history, or use a model that writes shorter summaries"
    assert (await case.open()).state.path == chat.state.path


async def saved_by(case: CompactionCase, word_count: int) -> int | None:
    """Return the number of tokens that a summary of `word_count` words saves, or None if the compaction is refused."""
    wordy = CompactionCase(case.store, case.folder)
    wordy.script.write_text(json.dumps({"replies": [{"text": "word " * word_count}]}))
    with suppress(StateFault):
        one = await prepare_compaction(await wordy.open(), CompactionOptions())
        return one.count_before.tokens - one.count_after.tokens
    return None


async def test_a_compacted_history_of_equal_length_is_refused_too(case: CompactionCase) -> None:
    """A summary that is one word longer saves no tokens."""
    await case.start_chat(Strategy.SESSION, turns=1)
    saved_tokens = await saved_by(case, 1)
    assert saved_tokens
    assert [await saved_by(case, saved_tokens), await saved_by(case, saved_tokens + 1)] == [1, None]


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_history_with_a_call_without_output_is_not_compacted(case: CompactionCase, strategy: Strategy) -> None:
    chat = await case.start_chat(strategy)
    call = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": "{}"}
    if strategy is Strategy.CONVERSATION:
        await case.deps.endpoint.add_conversation_items(str(chat.session.handle), [call])
    else:
        path = chat.state.path.append([call])
        await chat.record.commit(replace(chat.state, path=path, confirmed_head=path.head))
        await chat.write_replay_file()
    with pytest.raises(StateFault, match="call_1 of weather has no output"):
        await compact(chat)


async def test_without_turns_to_compact_the_compaction_is_refused(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.SESSION, turns=2)
    with pytest.raises(InvalidUsage, match="nothing to compact"):
        await compact(chat, CompactionOptions(keep_turns=2))
    await compact(chat)
    with pytest.raises(InvalidUsage, match="nothing to compact"):
        await compact(chat)


async def test_responses_sent_with_store_false_cannot_be_compacted_by_id(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.SESSION)
    with pytest.raises(InvalidUsage, match="store=false"):
        await compact(chat, CompactionOptions(mode=CompactionMode.PREVIOUS))


async def test_responses_stored_at_the_endpoint_can_be_compacted_by_id(case: CompactionCase) -> None:
    chat = await case.open(Strategy.SESSION)
    chat.options = replace(chat.options, store=True)
    for number in range(3):
        await case.send(chat, f"{number} {LONG}")
    result = await compact(chat, CompactionOptions(mode=CompactionMode.PREVIOUS))
    assert result.prepared.plan.method is CompactionMethod.PREVIOUS
    assert chat.turn
    assert chat.turn.response
    assert result.prepared.plan.previous_response_id == chat.turn.response["id"]


class OtherScopeEndpoint:
    """The same endpoint with another scope."""

    scope = Scope("https://elsewhere.example")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def __getattr__(self, name: str) -> Any:
        return getattr(self.endpoint, name)


async def refuse_request(*_: Any) -> Any:
    raise RequestRefused("no such method")


async def test_without_a_token_counter_of_the_endpoint_both_histories_are_counted_locally(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.SESSION)
    change_endpoint(chat, count_input_tokens=refuse_request)
    prepared = await prepare_compaction(chat, CompactionOptions())
    assert (prepared.count_before, prepared.count_after) == (
        count_tokens(chat.state.path.items),
        count_tokens(prepared.replacement),
    )


async def test_a_conversation_that_the_endpoint_cannot_compact_continues_as_a_new_one_after_consent(
    case: CompactionCase,
) -> None:
    chat = await case.start_chat(Strategy.CONVERSATION)
    old = chat.session.handle
    prepared, create = await prepare_compaction(chat, CompactionOptions()), chat.deps.endpoint.create

    def refuse_trigger(body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        if "conversation" in body:
            raise RequestRefused("no compaction here")
        return create(body)

    change_endpoint(chat, create=refuse_trigger)
    with pytest.raises(InvalidUsage) as refused:
        await apply_compaction(chat, prepared)
    assert (refused.value.message, refused.value.hint) == (
        f"{old} would continue as a new conversation with the compacted history; the old one does not change",
        "pass --yes to confirm",
    )
    assert chat.session.handle == old
    result = await apply_compaction(chat, prepared, confirmed=True)
    assert (result.old_handle, result.prepared.plan.method, result.later_count) == (old, CompactionMethod.SUMMARY, 0)
    assert chat.session.handle != old


async def answer_without_compaction(_: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
    output = [{"id": "msg_1", "type": "message"}, {"id": "msg_2", "type": "message"}]
    yield {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": output}}


@pytest.mark.parametrize(
    ("is_deletable", "outcome"),
    [(True, "nothing was changed"), (False, "2 items of its response could not be deleted from {handle}")],
)
async def test_an_answer_without_a_compaction_is_deleted_from_the_conversation(
    case: CompactionCase, is_deletable: bool, outcome: str
) -> None:
    chat = await case.start_chat(Strategy.CONVERSATION)
    handle, deleted = chat.session.handle, list[tuple[str, str]]()

    async def delete(conversation_id: str, item_id: str) -> None:
        deleted.append((conversation_id, item_id))
        if not is_deletable:
            raise RequestRefused("no")

    prepared = await prepare_compaction(chat, CompactionOptions())
    change_endpoint(chat, create=answer_without_compaction, delete_conversation_item=delete)
    with pytest.raises(EndpointFault) as caught:
        await apply_compaction(chat, prepared)
    assert (caught.value.message, caught.value.code, caught.value.hint) == (
        f"the response has no compaction item; {outcome.format(handle=handle)}",
        "not_compacted",
        f"convo compact {handle} --mode input --yes, for a new conversation",
    )
    assert deleted == [(handle, "msg_1"), (handle, "msg_2")]


async def test_the_request_that_compacts_a_conversation_has_the_instructions_if_there_are_any(
    case: CompactionCase,
) -> None:
    chat = await case.start_chat(Strategy.CONVERSATION)
    prepared, bodies = await prepare_compaction(chat, CompactionOptions()), list[Mapping[str, Json]]()

    async def record_request(body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        bodies.append(body)
        raise RequestRefused("only recorded")
        yield {}

    change_endpoint(chat, create=record_request)
    for instructions in ("Be brief.", None):
        chat.options = replace(chat.options, instructions=instructions)
        with pytest.raises(InvalidUsage):
            await apply_compaction(chat, prepared)
    trigger = {
        "model": case.model,
        "input": [{"type": "compaction_trigger"}],
        "conversation": chat.session.handle,
    }
    assert bodies == [{**trigger, "instructions": "Be brief."}, trigger]


async def test_responses_stored_at_another_endpoint_cannot_be_compacted_by_id(case: CompactionCase) -> None:
    chat = await case.open(Strategy.SESSION)
    chat.options = replace(chat.options, store=True)
    await case.send(chat, LONG)
    chat.deps = chat.deps._replace(endpoint=cast(Endpoint, OtherScopeEndpoint(chat.deps.endpoint)))
    with pytest.raises(InvalidUsage, match="the endpoint stores no response at the end"):
        await prepare_compaction(chat, CompactionOptions(mode=CompactionMode.PREVIOUS))


async def test_a_branch_of_an_interrupted_compaction_is_reused(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.SESSION)
    branch = replace(chat.session, id="ses_branch", name=f"{NAME}-before", use_order=0)
    await case.store.commit(Transaction(session=branch, expected_session_head=None))
    result = await compact(chat)
    assert result.old_handle == f"{NAME}-before"
    assert sorted(one.name for one in await case.store.sessions()) == [NAME, f"{NAME}-before"]


async def test_a_chain_that_its_endpoint_lost_is_compacted_from_its_items(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.CHAIN)
    case.fault.make_error = lambda: RequestRefused("gone", code="previous_response_not_found")
    case.fault.at, case.fault.armed = 0, True
    one = await prepare_compaction(chat, CompactionOptions())
    assert one.plan.method is CompactionMethod.SUMMARY
    assert one.notes == ("gone; compacted by summary instead",)


# -- undo and inspect -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.REPLAY, Strategy.CHAIN])
async def test_undo_stops_at_the_compacted_history(case: CompactionCase, strategy: Strategy) -> None:
    chat = await case.start_chat(strategy)
    await compact(chat)
    window = first_words(chat.state.path.items)
    await case.send(chat, "4")
    await chat.undo()
    assert first_words(chat.state.path.items) == window
    with pytest.raises(InvalidUsage, match="since the compaction"):
        await chat.undo()
    assert first_words(chat.state.path.items) == window


async def test_inspect_shows_the_compaction_as_a_separate_request(case: CompactionCase) -> None:
    chat = await case.start_chat(Strategy.SESSION)
    await compact(chat)
    await case.send(chat, "4")
    view = await load_handle_view(case.store, NAME)
    step = next(link for link in view.links if "context_management" in link.parameters)
    assert view.links[-1].parent_id == step.id
    assert step.usage


@pytest.mark.parametrize("strategy", Strategy)
async def test_a_compaction_without_room_on_the_disk_is_refused_before_any_request(
    case: CompactionCase, strategy: Strategy, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat = await case.start_chat(strategy)

    async def raise_store_full(self: object) -> None:
        raise StoreFull("no disk space is left")

    monkeypatch.setattr(type(case.store.admin), "check_disk_space", raise_store_full)
    case.fault.armed = True
    with pytest.raises(StoreFull):
        await compact(chat)
    assert "compact" not in case.fault.steps
    assert (await prepare_compaction(chat, CompactionOptions(), preview=True)).replacement
