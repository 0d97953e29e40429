"""The export document: its JSON form, its lines, and the errors of an invalid one."""

import json
from typing import Any

import pytest

from convo.errors import InputFault
from convo.history.items import assistant_message, user_message
from convo.history.records import Link, Scope, Strategy, get_link_provider
from convo.history.tree import Path
from convo.inspect.serialize import (
    ConversationDocument,
    document_from_json,
    document_from_lines,
    document_header,
    document_to_embedded_json,
    document_to_json,
    document_to_lines,
    format_json_line,
    is_document,
    link_from_json,
    links_to_json,
)
from tests.inspect.conversation_builder import ROOT, START_TIME, build_chain

ITEMS = (user_message("hi"), assistant_message("hello"))
PATH = Path(ROOT).append(ITEMS)
KEYS = dict(enumerate([ROOT, *PATH.keys]))
HEADER: dict[str, Any] = {
    "object": "convo.conversation",
    "version": 1,
    "name": "monads",
    "model": "openai/gpt-5",
    "instructions": "Be brief.",
    "created_at": START_TIME,
    "acknowledged": 1,
}
LINK: dict[str, Any] = {
    "id": "resp_1",
    "saw": 1,
    "head": 2,
    "strategy": "chain",
    "endpoint": ["https://api.example.com", "org", "proj"],
    "sent": 1,
    "model": "openai/gpt-5",
    "status": "incomplete",
    "created_at": START_TIME,
    "parent": "resp_0",
    "conversation_id": "conv_1",
    "previous_response_id": "resp_0",
    "seconds": 1.5,
    "first_token_s": 0.5,
    "parameters": {"top_p": 1},
    "usage": {"input_tokens": 1},
    "error": {"code": "x"},
    "stored": False,
}
RECORD = Link(
    id="resp_1",
    input_head=PATH.first(1).head,
    head=PATH.head,
    sent_count=1,
    model="openai/gpt-5",
    strategy=Strategy.CHAIN,
    status="incomplete",
    created_at=START_TIME,
    parent_id="resp_0",
    session_id="ses_1",
    scope=Scope("https://api.example.com", "org", "proj"),
    conversation_id="conv_1",
    previous_response_id="resp_0",
    duration_s=1.5,
    first_token_s=0.5,
    parameters={"top_p": 1},
    usage={"input_tokens": 1},
    error={"code": "x"},
    is_stored=False,
)
WHOLE = {**HEADER, "items": list(ITEMS), "links": [LINK]}
DOCUMENT = ConversationDocument(ITEMS, 1, "monads", "openai/gpt-5", "Be brief.", START_TIME, (LINK,))


def test_a_document_is_one_object() -> None:
    assert document_header(DOCUMENT) == HEADER
    assert document_to_json(DOCUMENT) == WHOLE
    assert document_from_json(WHOLE) == DOCUMENT


def test_a_document_is_a_header_and_a_line_for_each_item_and_link() -> None:
    first = {**LINK, "id": "resp_0", "saw": 0, "head": 0}
    document = ConversationDocument(ITEMS, 2, links=(first, LINK))
    lines = [
        {**HEADER, "name": None, "model": None, "instructions": None, "created_at": None, "acknowledged": 2},
        {"object": "convo.link", **first},
        {"object": "convo.item", "item": ITEMS[0]},
        {"object": "convo.item", "item": ITEMS[1]},
        {"object": "convo.link", **LINK},
    ]
    assert list(document_to_lines(document)) == lines
    assert document_from_lines(lines) == document


def test_links_are_optional_in_one_object() -> None:
    without_links = {name: value for name, value in WHOLE.items() if name != "links"}
    assert document_from_json(without_links).links == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [(WHOLE, True), ({"object": "convo.conversation"}, True), ({"object": "convo.item"}, False), ([], False)],
)
def test_a_document_names_its_kind(value: Any, expected: bool) -> None:
    assert is_document(value) is expected


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"object": "x"}, "not a convo conversation"),
        ({"version": 2}, "unsupported document version 2"),
        ({"version": None}, "unsupported document version None"),
        *(({name: 7}, f"{name!r} has the wrong type") for name in ("name", "model", "instructions")),
        ({"created_at": "x"}, "'created_at' has the wrong type"),
        ({"acknowledged": "1"}, "'acknowledged' has the wrong type"),
        ({"created_at": -1}, "'created_at' is not a valid time"),
        ({"created_at": 253_402_300_800}, "'created_at' is not a valid time"),
        ({"acknowledged": -1}, "'acknowledged' is not between 0 and the number of items"),
        ({"acknowledged": 3}, "'acknowledged' is not between 0 and the number of items"),
        ({"items": {}}, "'items' and 'links' must be lists"),
        ({"links": {}}, "'items' and 'links' must be lists"),
        ({"items": [{}, 7]}, "item 2 is not an object"),
        ({"links": [7]}, "a link has missing or wrong fields"),
    ],
)
def test_the_error_names_the_invalid_field(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputFault) as error:
        document_from_json({**WHOLE, **changed})
    assert error.value.message == message


@pytest.mark.parametrize("name", ["name", "model", "instructions", "created_at", "acknowledged"])
def test_each_header_field_is_required(name: str) -> None:
    with pytest.raises(InputFault) as error:
        document_from_json({field: value for field, value in WHOLE.items() if field != name})
    assert error.value.message == f"{name!r} is missing"


def test_a_newer_document_needs_a_newer_convo() -> None:
    with pytest.raises(InputFault) as error:
        document_from_json({**WHOLE, "version": 2})
    assert error.value.hint == "upgrade convo-state"


@pytest.mark.parametrize("time", [0, 1.5, 253_402_300_799, None])
def test_a_time_is_between_1970_and_the_year_9999(time: float | None) -> None:
    assert document_from_json({**WHOLE, "created_at": time}).created_at == time


@pytest.mark.parametrize("confirmed", [0, 2])
def test_none_or_all_items_may_be_confirmed(confirmed: int) -> None:
    assert document_from_json({**WHOLE, "acknowledged": confirmed}).confirmed_count == confirmed


@pytest.mark.parametrize(
    "changed",
    [
        *({name: 7} for name in ("id", "model", "strategy", "status", "parent", "conversation_id")),
        *({name: "7"} for name in ("saw", "head", "sent", "seconds", "first_token_s", "created_at")),
        *({name: None} for name in ("id", "saw", "parameters", "stored", "endpoint", "created_at")),
        {"previous_response_id": 7},
        *({name: "x"} for name in ("parameters", "usage", "error", "stored", "endpoint")),
        *({name: "\ud800"} for name in ("id", "model", "parent", "conversation_id", "previous_response_id")),
        {"endpoint": ["\ud800", None, None]},
        {"endpoint": ["x", None]},
        {"endpoint": ["x", None, None, None]},
        {"endpoint": ["x", None, 7]},
        {"strategy": "luck"},
        {"status": "unknown"},
        {"created_at": -1},
        {"created_at": 253_402_300_800},
        {"saw": -1},
        {"saw": 3, "head": 3},
        {"saw": 2, "head": 1},
        {"sent": -1},
        {"sent": 3},
    ],
)
def test_an_invalid_link_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(InputFault) as error:
        document_from_json({**WHOLE, "links": [LINK, {**LINK, **changed}]})
    assert error.value.message == "a link has missing or wrong fields"


@pytest.mark.parametrize("name", ["id", "saw", "head", "strategy", "endpoint", "sent", "model", "status", "created_at"])
def test_a_link_needs_its_fields(name: str) -> None:
    link = {field: value for field, value in LINK.items() if field != name}
    with pytest.raises(InputFault) as error:
        document_from_json({**WHOLE, "links": [link]})
    assert error.value.message == "a link has missing or wrong fields"
    with pytest.raises(InputFault) as error:
        link_from_json(link, KEYS, "ses_1")
    assert error.value.message == "a link has missing or wrong fields"


@pytest.mark.parametrize(
    "changed",
    [
        {"saw": 0, "head": 0, "sent": 0},
        {"saw": 2, "head": 2, "sent": 2},
        {"created_at": 0},
        {"seconds": None, "first_token_s": 1, "parent": None, "conversation_id": None, "previous_response_id": None},
        {"usage": None, "error": None, "endpoint": ["\u65e5\u672c", None, None], "model": "\u65e5/\u672c"},
        *({"status": status} for status in ("queued", "in_progress", "completed", "failed", "cancelled")),
        *({"strategy": str(strategy)} for strategy in Strategy),
    ],
)
def test_a_valid_link_passes(changed: dict[str, Any]) -> None:
    link = {**LINK, **changed}
    assert document_from_json({**WHOLE, "links": [link]}).links == (link,)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ({"object": "x"}, "line 3 is neither an item nor a link"),
        ([], "line 3 is neither an item nor a link"),
        ({"object": "convo.item"}, "item 2 is not an object"),
    ],
)
def test_a_line_is_an_item_or_a_link(line: Any, message: str) -> None:
    with pytest.raises(InputFault) as error:
        document_from_lines([HEADER, {"object": "convo.item", "item": ITEMS[0]}, line])
    assert error.value.message == message


# -- links ----------------------------------------------------------------------------------------


def test_a_link_keeps_every_field_in_a_document() -> None:
    assert links_to_json([RECORD], PATH) == (LINK,)
    assert link_from_json(LINK, KEYS, "ses_1") == RECORD


def test_a_link_of_an_older_document_may_lack_the_optional_fields() -> None:
    required = ("id", "saw", "head", "strategy", "endpoint", "sent", "model", "status", "created_at")
    link = link_from_json({name: LINK[name] for name in required}, KEYS, "ses_1")
    assert (link.parent_id, link.conversation_id, link.previous_response_id, link.duration_s) == (None,) * 4
    assert (link.first_token_s, link.usage, link.error, link.parameters, link.is_stored) == (None, None, None, {}, True)


def test_only_links_on_the_path_are_in_a_document_in_the_order_of_their_answers() -> None:
    builder = build_chain(3)
    builder.turn("resp_b", "other", "way", after="resp_1")
    path = builder.paths["resp_3"]
    found = links_to_json([*reversed(builder.links), builder.links[0]], path)
    assert [(link["id"], link["saw"], link["head"]) for link in found] == [
        ("resp_1", 1, 2),
        ("resp_2", 3, 4),
        ("resp_3", 5, 6),
    ]


@pytest.mark.parametrize(
    ("model", "parameters", "provider"),
    [
        ("openai/gpt-5", {}, "openai"),
        ("gpt-5", {}, None),
        ("gpt-5", {"convo.provider": "azure"}, "azure"),
        ("openai/gpt-5", {"convo.provider": "azure"}, "azure"),
    ],
)
def test_a_link_names_its_provider(model: str, parameters: dict[str, str], provider: str | None) -> None:
    builder = build_chain(0)
    builder.turn("resp_1", "hi", "hello", model=model, parameters=parameters)
    assert get_link_provider(builder.links[0]) == provider


# -- text -----------------------------------------------------------------------------------------


def test_a_line_has_spaces_and_only_ascii() -> None:
    assert format_json_line({"a": ["\u00fc", 1]}) == '{"a": ["\\u00fc", 1]}'


def test_a_document_in_a_page_has_no_character_of_html_and_no_two_dashes() -> None:
    text = "<!-- a---b --> </script> & \u2028"
    embedded = document_to_embedded_json(ConversationDocument((user_message(text),), 1))
    assert not {"<", ">", "&", "\u2028"} & set(embedded)
    assert "--" not in embedded
    assert json.loads(embedded)["items"] == [user_message(text)]
