"""What another owner can be given: each kind of loss, by its code."""

from typing import Any

import pytest

from convo.history import HERE, Scope, Strategy
from convo.items import Item, assistant, user
from convo.strategies.carrying import Carried, Maker, Said, Target, carry

OPENAI = Scope("https://api.openai.com/v1")
OTHER = Scope("https://api.openai.com/v1", "org-other")
MODEL = "openai/gpt-5-mini"
MADE = Maker(OPENAI, MODEL)

SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
OPEN = {"type": "reasoning", "id": "rs_1", "summary": []}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}
REFERENCE = {"type": "item_reference", "id": "msg_1"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
UPLOADED = {"type": "input_file", "file_id": "file-1"}


def over(to: Strategy, scope: Scope, *items: Item, maker: Maker = MADE, model: str = MODEL) -> Carried:
    return carry([Said(item, maker) for item in items], Target(to, scope, model))


def told(carried: Carried) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(loss.code, str(loss.effect), loss.places) for loss in carried.losses]


@pytest.mark.parametrize("to", Strategy)
def test_words_calls_and_images_go_anywhere_as_they_are(to: Strategy) -> None:
    image = user("look", {"type": "input_image", "image_url": "data:image/png;base64,AA=="})
    items = [image, {**CALL, "id": None}, OUTPUT, assistant("4")]
    del items[1]["id"]
    carried = over(to, HERE, *items, maker=Maker())
    assert (list(carried.items), carried.losses, carried.confirmed) == (items, (), 4)


LOST: list[tuple[str, Item, Scope, str]] = [
    ("reasoning_elsewhere", SEALED, OTHER, MODEL),
    ("reasoning_elsewhere", SEALED, HERE, MODEL),
    ("reasoning_elsewhere", SEALED, OPENAI, "openai/o3"),
    ("reasoning_unsealed", OPEN, OPENAI, MODEL),
    ("compaction_elsewhere", COMPACTION, HERE, MODEL),
    ("hosted_elsewhere", SEARCH, HERE, MODEL),
    ("reference_elsewhere", REFERENCE, HERE, MODEL),
]


@pytest.mark.parametrize(("code", "item", "scope", "model"), LOST)
@pytest.mark.parametrize("to", [Strategy.CHAIN, Strategy.CONVERSATION])
def test_what_only_its_own_server_can_use_stays_behind(
    to: Strategy, code: str, item: Item, scope: Scope, model: str
) -> None:
    carried = over(to, scope, user("hi"), item, assistant("yes"), model=model)
    assert told(carried) == [(code, "left out", (2,))]
    assert list(carried.items) == [user("hi"), assistant("yes")]


@pytest.mark.parametrize("item", [SEALED, COMPACTION, SEARCH, REFERENCE])
@pytest.mark.parametrize("to", Strategy)
def test_what_comes_back_to_its_maker_goes_over(to: Strategy, item: Item) -> None:
    carried = over(to, OPENAI, item)
    assert "left out" not in [effect for _, effect, _ in told(carried)]
    assert [one["type"] for one in carried.items] == [item["type"]]


def test_thoughts_that_are_not_sealed_stay_in_a_record_and_are_not_sent() -> None:
    carried = over(Strategy.SESSION, OPENAI, user("hi"), OPEN)
    assert told(carried) == [("reasoning_unsealed", "not sent", (2,))]
    assert list(carried.items) == [user("hi"), OPEN]


def test_a_seal_says_itself_who_made_it() -> None:
    named = {**SEALED, "encrypted_content": "convo1:openai%2Fo3:0123456789ab:gAAAA"}
    assert told(over(Strategy.CHAIN, HERE, named, maker=Maker(), model="openai/o3")) == [("item_ids", "changed", (1,))]
    lost = over(Strategy.CHAIN, HERE, named, maker=Maker(), model=MODEL)
    assert told(lost) == [("reasoning_elsewhere", "left out", (1,))]
    assert "openai/o3" in lost.losses[0].why


def test_a_seal_of_a_gateway_comes_back_to_that_gateway() -> None:
    gateway = Scope("http://127.0.0.1:8788/v1")
    named = {**SEALED, "encrypted_content": "convo1:openai%2Fo3:0123456789ab:gAAAA"}
    carried = over(Strategy.CHAIN, gateway, named, maker=Maker(gateway, "gw/o3"), model="gw/o3")
    assert told(carried) == [("item_ids", "changed", (1,))]


def test_the_trace_of_a_tool_stays_with_the_thought_before_it() -> None:
    carried = over(Strategy.CONVERSATION, OPENAI, OPEN, SEARCH, assistant("found"), user("more"), SEARCH)
    assert told(carried) == [
        ("reasoning_unsealed", "left out", (1,)),
        ("hosted_without_reasoning", "left out", (2,)),
    ]
    assert list(carried.items) == [assistant("found"), user("more"), SEARCH]


def test_a_window_that_a_gateway_sealed_is_not_taken_to_another_server() -> None:
    window = {**COMPACTION, "encrypted_content": "convoseal1:AAAA"}
    assert told(over(Strategy.CHAIN, OPENAI, window, maker=Maker()))[0][0] == "compaction_elsewhere"
    assert told(over(Strategy.SESSION, HERE, window, maker=Maker())) == []


@pytest.mark.parametrize(
    ("to", "code", "effect"),
    [(Strategy.CHAIN, "reasoning_unknown", "left out"), (Strategy.SESSION, "seal_unknown", "kept")],
)
def test_of_a_bare_file_nobody_knows_who_sealed_it(to: Strategy, code: str, effect: str) -> None:
    assert told(over(to, OPENAI, SEALED, maker=Maker())) == [(code, effect, (1,))]


def test_ids_are_left_to_the_new_owner() -> None:
    answer = {**assistant("yes"), "id": "msg_1"}
    carried = over(Strategy.CONVERSATION, OPENAI, answer)
    assert told(carried) == [("item_ids", "changed", (1,))]
    assert "id" not in carried.items[0]


def test_an_uploaded_file_stays_where_it_was_uploaded() -> None:
    carried = over(Strategy.SESSION, HERE, user("read", UPLOADED), user("", UPLOADED))
    assert told(carried) == [("file_elsewhere", "changed", (1,)), ("file_elsewhere", "left out", (2,))]
    assert list(carried.items) == [user("read")]
    assert over(Strategy.SESSION, OPENAI, user("read", UPLOADED)).losses == ()


@pytest.mark.parametrize(("item", "left"), [({**assistant("ha"), "status": "incomplete"}, [assistant("ha")])])
def test_of_what_was_cut_off_a_conversation_keeps_the_words(item: dict[str, Any], left: list[Item]) -> None:
    carried = over(Strategy.CONVERSATION, OPENAI, item, {**CALL, "status": "incomplete"})
    assert told(carried)[0] == ("cut_off", "changed", (1,))
    assert list(carried.items) == left
    assert over(Strategy.SESSION, OPENAI, item).losses == ()


def test_an_output_without_its_call_stays_behind_and_a_call_that_waits_is_told() -> None:
    carried = over(Strategy.CHAIN, HERE, OUTPUT, {key: CALL[key] for key in CALL if key != "id"})
    assert told(carried) == [("orphan_output", "left out", (1,)), ("open_call", "kept", (2,))]
    assert [item["type"] for item in carried.items] == ["function_call"]


def test_what_waits_for_its_owner_is_counted_apart() -> None:
    said = [Said(user("hi")), Said(assistant("yes")), Said(user("lost?"), confirmed=False)]
    carried = carry(said, Target(Strategy.CONVERSATION, HERE, MODEL))
    assert (len(carried.items), carried.confirmed) == (3, 2)
