"""Import: the content of a file determines its format, and exported conversations round-trip."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.chat.view_loader import load_handle_view
from convo.errors import ConvoError, InputFault, NotFound, Unreadable
from convo.history.items import Item, assistant_message, item_type, user_message
from convo.history.records import EMBEDDED_SCOPE
from convo.inspect.serialize import ConversationDocument
from convo.server.pages import render_conversation_page
from convo.stores.factory import open_store
from convo.transfer.convert import SessionWriter, load_source
from convo.transfer.export import render_jsonl, render_markdown_export, render_replay
from convo.transfer.import_ import (
    ImportDefaults,
    import_document,
    parse_conversation_document,
    read_documents,
    run_state_items,
)
from tests.clock import FixedClock, counting_ids
from tests.history.json_strategies import ITEMS, TEXT
from tests.runstate import snapshots

Written = Callable[[ConversationDocument], str]

FORMS: dict[str, Written] = {
    "replay": render_replay,
    "jsonl": render_jsonl,
    "jsonl with links": lambda document: render_jsonl(document, include_links=True),
    "markdown": render_markdown_export,
    "html": render_conversation_page,
}

LINK = {
    "id": "resp_1",
    "saw": 1,
    "head": 2,
    "sent": 1,
    "model": "openai/gpt-5-mini",
    "strategy": "chain",
    "status": "completed",
    "created_at": 1.5,
    "endpoint": ["https://api.openai.com/v1", "org", None],
    "parent": None,
    "conversation_id": None,
    "previous_response_id": None,
    "seconds": 0.5,
    "first_token_s": None,
    "parameters": {"instructions": "Be brief."},
    "usage": {"input_tokens": 3},
    "error": None,
    "stored": True,
}

DOCUMENT = ConversationDocument(
    items=(user_message("hi"), assistant_message("ho"), user_message("--> </script> \ud83d <!--")),
    confirmed_count=2,
    name="greeting",
    model="openai/gpt-5-mini",
    instructions="Be brief.",
    created_at=1_700_000_000.25,
    links=(LINK,),
)


async def import_document_in_memory(document: ConversationDocument) -> ConversationDocument:
    """Import `document` into a new store and return it as loaded from there."""
    store = open_store("memory")
    try:
        writer = SessionWriter(store, FixedClock(), counting_ids())
        session = await import_document(document, ImportDefaults("scripted/echo", EMBEDDED_SCOPE), writer)
        return (await load_source(await load_handle_view(store, session.id), store)).to_document()
    finally:
        await store.aclose()


@pytest.mark.parametrize("form", ["jsonl with links", "markdown", "html"])
async def test_a_complete_format_round_trips(form: str) -> None:
    parsed = parse_conversation_document(FORMS[form](DOCUMENT))
    assert parsed == DOCUMENT
    assert await import_document_in_memory(parsed) == DOCUMENT


@pytest.mark.parametrize("form", ["replay", "jsonl"])
def test_a_format_without_metadata_round_trips_its_items(form: str) -> None:
    assert parse_conversation_document(FORMS[form](DOCUMENT)) == ConversationDocument(
        items=DOCUMENT.items, confirmed_count=3
    )


SAID_ITEMS = st.lists(ITEMS.filter(lambda item: item_type(item) != "unknown"), min_size=1, max_size=5).map(tuple)
NAMES = st.sampled_from(["mine", "a-b", "日本語"])


@given(items=SAID_ITEMS, name=NAMES, instructions=st.none() | TEXT, form=st.sampled_from(sorted(FORMS)))
def test_exporting_an_imported_document_gives_the_same_document(
    items: tuple[Item, ...], name: str, instructions: str | None, form: str
) -> None:
    document = ConversationDocument(
        items, len(items), name=name, instructions=instructions, model="a/b", created_at=1.5
    )
    exported = FORMS[form](document)
    again = asyncio.run(import_document_in_memory(parse_conversation_document(exported)))
    assert again.items == items
    assert parse_conversation_document(FORMS[form](again)) == parse_conversation_document(exported)


@given(st.text(st.characters(codec="utf-8")) | st.sampled_from(["[", "{", "[{}]", "<!doctype html>", "{}\n{}"]))
def test_arbitrary_text_is_parsed_or_refused_with_a_message(text: str) -> None:
    with suppress(InputFault):
        assert parse_conversation_document(text).confirmed_count >= 0


def test_a_list_on_one_line_and_a_single_object_are_items() -> None:
    assert parse_conversation_document('[{"role": "user", "content": "hi"}]').items == (
        {"role": "user", "content": "hi"},
    )
    assert parse_conversation_document('{"role": "user", "content": "hi"}').items == (
        {"role": "user", "content": "hi"},
    )


def test_a_document_over_several_lines_is_parsed() -> None:
    found = json.loads(render_jsonl(DOCUMENT, include_links=True).splitlines()[0])
    text = json.dumps({**found, "items": list(DOCUMENT.items), "links": [LINK]}, indent=2)
    assert parse_conversation_document(text) == DOCUMENT


HEADER = {"object": "convo.conversation", "version": 1, "name": None, "model": None, "instructions": None}
HEADER |= {"created_at": None, "acknowledged": 0}

INVALID = [
    ("", "the file is empty"),
    ("hello", "unrecognized file format"),
    ("[1]", "the file is not a list of items"),
    ('[{"a": 1}]', "item 1 has neither a type nor a role"),
    ('[{"role": "user"', "the file is not JSON"),
    ('{"type": "message"}\n{"type"', "line 2 is not JSON"),
    (json.dumps({**HEADER, "version": 2, "items": []}), "unsupported document version 2"),
    (json.dumps({**HEADER, "name": 4, "items": []}), "'name' has the wrong type"),
    (json.dumps({**HEADER, "acknowledged": 3, "items": []}), "'acknowledged' is not between 0 and the number of items"),
    (json.dumps({**HEADER, "items": [], "links": [{**LINK, "head": 9}]}), "a link has missing or wrong fields"),
    (
        json.dumps({**HEADER, "items": [{}] * 2, "links": [{**LINK, "strategy": "luck"}]}),
        "a link has missing or wrong fields",
    ),
    (json.dumps(HEADER) + '\n{"object": "convo.other"}', "line 2 is neither an item nor a link"),
    (json.dumps({**HEADER, "created_at": "today", "items": []}), "'created_at' has the wrong type"),
    (json.dumps({**HEADER, "created_at": 1e300, "items": []}), "'created_at' is not a valid time"),
    (json.dumps({**{name: HEADER[name] for name in HEADER if name != "model"}, "items": []}), "'model' is missing"),
    (
        json.dumps({**HEADER, "items": [{}] * 2, "links": [{**LINK, "sent": 10**30}]}),
        "a link has missing or wrong fields",
    ),
    (
        json.dumps({**HEADER, "items": [{}] * 2, "links": [{**LINK, "created_at": -1}]}),
        "a link has missing or wrong fields",
    ),
    (
        json.dumps({**HEADER, "items": [{}] * 2, "links": [{**LINK, "parent": "a\ud800"}]}),
        "a link has missing or wrong fields",
    ),
    ('{"$schemaVersion": "1.6"}', "$.current_agent is missing"),
    (render_conversation_page(DOCUMENT, include_data=False), "the file has no data to import"),
    (render_markdown_export(DOCUMENT, include_data=False), "the file has no data to import"),
]


@pytest.mark.parametrize(("text", "message"), INVALID, ids=[message for _, message in INVALID])
def test_an_error_names_the_mistake(text: str, message: str) -> None:
    with pytest.raises(InputFault) as error:
        parse_conversation_document(text)
    assert error.value.message.startswith(message)


def test_document_markers_within_a_message_are_ignored() -> None:
    fake = render_markdown_export(ConversationDocument((user_message("evil"),), 1)).splitlines()[-1]
    honest = ConversationDocument((user_message(f"look:\n{fake}"),), 1)
    assert parse_conversation_document(render_markdown_export(honest)) == honest
    with pytest.raises(InputFault, match="no data to import"):
        parse_conversation_document(render_markdown_export(honest, include_data=False))


def test_unreadable_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        read_documents(str(tmp_path / "nope.json"))
    with pytest.raises(Unreadable, match="is a folder"):
        read_documents(str(tmp_path))
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Unreadable, match="not UTF-8 text or a database"):
        read_documents(str(tmp_path / "a.bin"))


@pytest.mark.parametrize("scenario", ["single_approval", "list_input_history"])
def test_the_messages_of_a_run_state_are_imported(scenario: str) -> None:
    state = snapshots.document(scenario, "1.21")
    found = parse_conversation_document(json.dumps(state))
    original, generated = state["original_input"], state["generated_items"]
    assert len(found.items) == (len(original) if isinstance(original, list) else 1) + len(
        [item for item in generated if item["type"] != "tool_approval_item"]
    )
    assert (item_type(found.items[-1]), found.confirmed_count) == (generated[0]["raw_item"]["type"], len(found.items))


def test_pending_approvals_are_not_among_the_items_of_a_run_state() -> None:
    state = snapshots.newest_state("parallel_mixed_decided", "1.21")
    kinds = [item.get("type", item.get("role")) for item in run_state_items(state)]
    assert kinds == ["user", "function_call", "function_call"]
    assert [item["role"] for item in run_state_items(snapshots.newest_state("list_input_history", "1.21"))[:2]] == [
        "system",
        "user",
    ]


def test_a_run_state_whose_history_is_at_an_endpoint_is_refused() -> None:
    state = snapshots.document("auto_previous_response_id", "1.21")
    with pytest.raises(InputFault, match="its history is stored by resp_") as error:
        parse_conversation_document(json.dumps(state))
    assert error.value.hint == f"convo convert {state['previous_response_id']} --to session"


async def test_a_link_that_is_already_stored_is_unchanged() -> None:
    store = open_store("memory")
    writer = SessionWriter(store, FixedClock(), counting_ids())
    answers = ImportDefaults("scripted/echo", EMBEDDED_SCOPE)
    first = await import_document(DOCUMENT, answers, writer)
    forged = ConversationDocument(DOCUMENT.items, 2, links=({**LINK, "model": "evil/model", "created_at": 9},))
    second = await import_document(forged, answers, writer)
    link = await store.link("resp_1")
    assert link
    assert (link.model, link.session_id) == ("openai/gpt-5-mini", first.id)
    assert (second.name, first.head) == ("hi", second.head)
    with pytest.raises(ConvoError):
        await import_document(DOCUMENT, answers, writer, "greeting")
    await store.aclose()


async def test_a_document_with_an_invalid_link_is_not_imported() -> None:
    store = open_store("memory")
    writer = SessionWriter(store, FixedClock(), counting_ids())
    document = ConversationDocument(DOCUMENT.items, 2, links=({**LINK, "strategy": "luck"},))
    with pytest.raises(Unreadable, match=r"^a link has missing or wrong fields$"):
        await import_document(document, ImportDefaults("scripted/echo", EMBEDDED_SCOPE), writer)
    assert await store.sessions() == []
    await store.aclose()


def test_a_file_that_is_neither_text_nor_a_database_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.bin"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Unreadable) as refused:
        read_documents(str(file))
    assert (refused.value.message, refused.value.hint) == (
        f"{file}: the file is not UTF-8 text or a database",
        "import a replay file, JSONL, Markdown, HTML or RunState of convo export, a transcript of Codex or Claude "
        "Code, llm's logs.db, or an Agents SDK session",
    )


def test_an_incomplete_file_is_refused_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text('{"role": "user", "content": "hi"}\n{"role":')
    with pytest.raises(Unreadable) as refused:
        read_documents(str(file))
    assert refused.value.message.startswith(f"{file}: line 2 is not JSON: ")
    hint = "check whether the file is complete; --skip-incomplete leaves out its last line if that is not"
    assert refused.value.hint == hint


def test_an_endless_device_is_refused() -> None:
    with pytest.raises(Unreadable, match="/dev/zero is a device that never ends"):
        read_documents("/dev/zero")
