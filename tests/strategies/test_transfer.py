"""The losses of a transfer to another owner, each with its code."""

from typing import Any

import pytest

from convo.history.items import Item, assistant_message, user_message
from convo.history.records import EMBEDDED_SCOPE, Scope, Strategy
from convo.strategies.conversion import ItemOrigin, TransferItem, TransferPlan, TransferTarget, plan_transfer

OPENAI = Scope("https://api.openai.com/v1")
OTHER = Scope("https://api.openai.com/v1", "org-other")
MODEL = "openai/gpt-5-mini"
MADE = ItemOrigin(OPENAI, MODEL)

SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
OPEN = {"type": "reasoning", "id": "rs_1", "summary": []}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}
REFERENCE = {"type": "item_reference", "id": "msg_1"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
UPLOADED = {"type": "input_file", "file_id": "file-1"}


def over(to: Strategy, scope: Scope, *items: Item, maker: ItemOrigin = MADE, model: str = MODEL) -> TransferPlan:
    return plan_transfer([TransferItem(item, maker) for item in items], TransferTarget(to, scope, model))


def told(carried: TransferPlan) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(loss.code, str(loss.effect), loss.positions) for loss in carried.losses]


@pytest.mark.parametrize("to", Strategy)
def test_messages_calls_and_images_are_transferred_unchanged(to: Strategy) -> None:
    image = user_message("look", {"type": "input_image", "image_url": "data:image/png;base64,AA=="})
    items = [image, {**CALL, "id": None}, OUTPUT, assistant_message("4")]
    del items[1]["id"]
    carried = over(to, EMBEDDED_SCOPE, *items, maker=ItemOrigin())
    assert (list(carried.items), carried.losses, carried.confirmed_count) == (items, (), 4)


LOST: list[tuple[str, Item, Scope, str]] = [
    ("reasoning_elsewhere", SEALED, OTHER, MODEL),
    ("reasoning_elsewhere", SEALED, EMBEDDED_SCOPE, MODEL),
    ("reasoning_elsewhere", SEALED, OPENAI, "openai/o3"),
    ("reasoning_unsealed", OPEN, OPENAI, MODEL),
    ("compaction_elsewhere", COMPACTION, EMBEDDED_SCOPE, MODEL),
    ("hosted_elsewhere", SEARCH, EMBEDDED_SCOPE, MODEL),
    ("reference_elsewhere", REFERENCE, EMBEDDED_SCOPE, MODEL),
]


@pytest.mark.parametrize(("code", "item", "scope", "model"), LOST)
@pytest.mark.parametrize("to", [Strategy.CHAIN, Strategy.CONVERSATION])
def test_items_that_only_their_server_can_use_are_omitted(
    to: Strategy, code: str, item: Item, scope: Scope, model: str
) -> None:
    carried = over(to, scope, user_message("hi"), item, assistant_message("yes"), model=model)
    assert told(carried) == [(code, "left out", (2,))]
    assert list(carried.items) == [user_message("hi"), assistant_message("yes")]


@pytest.mark.parametrize("item", [SEALED, COMPACTION, SEARCH, REFERENCE])
@pytest.mark.parametrize("to", Strategy)
def test_items_that_return_to_their_maker_are_transferred(to: Strategy, item: Item) -> None:
    carried = over(to, OPENAI, item)
    assert "left out" not in [effect for _, effect, _ in told(carried)]
    assert [one["type"] for one in carried.items] == [item["type"]]


def test_unencrypted_reasoning_stays_in_a_record_and_is_not_sent() -> None:
    carried = over(Strategy.SESSION, OPENAI, user_message("hi"), OPEN)
    assert told(carried) == [("reasoning_unsealed", "not sent", (2,))]
    assert list(carried.items) == [user_message("hi"), OPEN]


def test_encrypted_content_names_its_maker() -> None:
    named = {**SEALED, "encrypted_content": "convo1:openai%2Fo3:0123456789ab:gAAAA"}
    assert told(over(Strategy.CHAIN, EMBEDDED_SCOPE, named, maker=ItemOrigin(), model="openai/o3")) == [
        ("item_ids", "changed", (1,))
    ]
    lost = over(Strategy.CHAIN, EMBEDDED_SCOPE, named, maker=ItemOrigin(), model=MODEL)
    assert told(lost) == [("reasoning_elsewhere", "left out", (1,))]
    assert "openai/o3" in lost.losses[0].reason


def test_encrypted_content_of_a_gateway_is_transferred_to_that_gateway() -> None:
    gateway = Scope("http://127.0.0.1:8788/v1")
    named = {**SEALED, "encrypted_content": "convo1:openai%2Fo3:0123456789ab:gAAAA"}
    carried = over(Strategy.CHAIN, gateway, named, maker=ItemOrigin(gateway, "gw/o3"), model="gw/o3")
    assert told(carried) == [("item_ids", "changed", (1,))]


def test_hosted_tool_items_stay_with_the_reasoning_before_them() -> None:
    carried = over(
        Strategy.CONVERSATION, OPENAI, OPEN, SEARCH, assistant_message("found"), user_message("more"), SEARCH
    )
    assert told(carried) == [
        ("reasoning_unsealed", "left out", (1,)),
        ("hosted_without_reasoning", "left out", (2,)),
    ]
    assert list(carried.items) == [assistant_message("found"), user_message("more"), SEARCH]


def test_a_compaction_that_a_gateway_encrypted_is_not_transferred_to_another_server() -> None:
    window = {**COMPACTION, "encrypted_content": "convoseal1:AAAA"}
    assert told(over(Strategy.CHAIN, OPENAI, window, maker=ItemOrigin()))[0][0] == "compaction_elsewhere"
    assert told(over(Strategy.SESSION, EMBEDDED_SCOPE, window, maker=ItemOrigin())) == []


@pytest.mark.parametrize(
    ("to", "code", "effect"),
    [(Strategy.CHAIN, "reasoning_unknown", "left out"), (Strategy.SESSION, "seal_unknown", "kept")],
)
def test_the_maker_of_encrypted_items_in_a_file_is_unknown(to: Strategy, code: str, effect: str) -> None:
    assert told(over(to, OPENAI, SEALED, maker=ItemOrigin())) == [(code, effect, (1,))]


def test_ids_are_assigned_by_the_new_owner() -> None:
    answer = {**assistant_message("yes"), "id": "msg_1"}
    carried = over(Strategy.CONVERSATION, OPENAI, answer)
    assert told(carried) == [("item_ids", "changed", (1,))]
    assert "id" not in carried.items[0]


def test_an_uploaded_file_stays_where_it_was_uploaded() -> None:
    carried = over(Strategy.SESSION, EMBEDDED_SCOPE, user_message("read", UPLOADED), user_message("", UPLOADED))
    assert told(carried) == [("file_elsewhere", "changed", (1,)), ("file_elsewhere", "left out", (2,))]
    assert list(carried.items) == [user_message("read")]
    assert over(Strategy.SESSION, OPENAI, user_message("read", UPLOADED)).losses == ()


@pytest.mark.parametrize(
    ("item", "left"), [({**assistant_message("ha"), "status": "incomplete"}, [assistant_message("ha")])]
)
def test_of_a_partial_answer_a_conversation_keeps_the_text(item: dict[str, Any], left: list[Item]) -> None:
    carried = over(Strategy.CONVERSATION, OPENAI, item, {**CALL, "status": "incomplete"})
    assert told(carried)[0] == ("cut_off", "changed", (1,))
    assert list(carried.items) == left
    assert over(Strategy.SESSION, OPENAI, item).losses == ()


def test_an_output_without_its_call_is_omitted_and_a_pending_call_is_reported() -> None:
    carried = over(Strategy.CHAIN, EMBEDDED_SCOPE, OUTPUT, {key: CALL[key] for key in CALL if key != "id"})
    assert told(carried) == [("orphan_output", "left out", (1,)), ("open_call", "kept", (2,))]
    assert [item["type"] for item in carried.items] == ["function_call"]


def test_unconfirmed_items_are_counted_separately() -> None:
    said = [
        TransferItem(user_message("hi")),
        TransferItem(assistant_message("yes")),
        TransferItem(user_message("lost?"), is_confirmed=False),
    ]
    carried = plan_transfer(said, TransferTarget(Strategy.CONVERSATION, EMBEDDED_SCOPE, MODEL))
    assert (len(carried.items), carried.confirmed_count) == (3, 2)


FIELDS_OF_A_CALL = {key: CALL[key] for key in CALL if key != "id"}
NAMED = {**SEALED, "encrypted_content": "convo1:openai%2Fo3:0123456789ab:gAAAA"}
INCOMPLETE = {"status": "incomplete"}
BY_SCOPE, BY_MODEL, UNKNOWN = ItemOrigin(OPENAI), ItemOrigin(None, MODEL), ItemOrigin()


@pytest.mark.parametrize(
    ("to", "scope", "maker", "item", "reason"),
    [
        (
            Strategy.SESSION,
            OTHER,
            MADE,
            SEALED,
            "reasoning that only openai/gpt-5-mini at https://api.openai.com/v1 can decrypt",
        ),
        (Strategy.SESSION, OTHER, BY_SCOPE, SEALED, "reasoning that only https://api.openai.com/v1 can decrypt"),
        (Strategy.SESSION, OTHER, UNKNOWN, NAMED, "reasoning that only openai/o3 at embedded can decrypt"),
        (
            Strategy.SESSION,
            EMBEDDED_SCOPE,
            MADE,
            COMPACTION,
            "a summary of the earlier history that only openai/gpt-5-mini at https://api.openai.com/v1 can decrypt",
        ),
        (Strategy.CHAIN, OPENAI, UNKNOWN, SEALED, "encrypted reasoning of unknown origin"),
        (
            Strategy.CHAIN,
            OPENAI,
            UNKNOWN,
            {"type": "compaction", "encrypted_content": "gAAAA"},
            "encrypted content of unknown origin; other models and endpoints reject it",
        ),
        (Strategy.CHAIN, OPENAI, MADE, OPEN, "reasoning without encrypted content exists only on its server"),
        (
            Strategy.SESSION,
            EMBEDDED_SCOPE,
            MADE,
            SEARCH,
            "the call of a hosted tool that https://api.openai.com/v1 ran",
        ),
        (Strategy.SESSION, OPENAI, UNKNOWN, REFERENCE, "a reference to an item that another server stores"),
        (
            Strategy.SESSION,
            OTHER,
            MADE,
            user_message("", UPLOADED),
            "a file that was uploaded to https://api.openai.com/v1",
        ),
        (Strategy.CHAIN, OPENAI, MADE, {**assistant_message("a"), "id": "m"}, "the new owner assigns its own ids"),
        (
            Strategy.CONVERSATION,
            OPENAI,
            MADE,
            {**assistant_message("a"), **INCOMPLETE},
            "incomplete, so only its text can be sent again",
        ),
        (Strategy.CONVERSATION, OPENAI, MADE, {**assistant_message(""), **INCOMPLETE}, "incomplete and without text"),
        (Strategy.SESSION, OPENAI, MADE, OUTPUT, "an output whose call is not in this history"),
        (
            Strategy.SESSION,
            OPENAI,
            MADE,
            FIELDS_OF_A_CALL,
            "a call without an output: send the output first, or use convo repair",
        ),
    ],
)
def test_a_loss_has_its_reason(to: Strategy, scope: Scope, maker: ItemOrigin, item: Item, reason: str) -> None:
    (loss,) = over(to, scope, item, maker=maker).losses
    assert loss.reason == reason


def test_a_hosted_call_is_left_out_because_of_its_reasoning() -> None:
    _, loss = over(Strategy.CHAIN, OPENAI, OPEN, SEARCH).losses
    assert loss.reason == "the call of a hosted tool that needs the reasoning before it"


@pytest.mark.parametrize("to", [Strategy.SESSION, Strategy.CHAIN])
@pytest.mark.parametrize(
    ("item", "maker"),
    [
        (SEARCH, UNKNOWN),
        (SEARCH, MADE),
        (user_message("read", UPLOADED), UNKNOWN),
        (user_message("read", {"type": "input_file", "file_id": None}), ItemOrigin(OTHER)),
        ({"role": "user", "content": ["odd"]}, ItemOrigin(OTHER)),
        ({"role": "user", "content": "text"}, ItemOrigin(OTHER)),
        ({"type": "compaction", "encrypted_content": ""}, ItemOrigin(OTHER)),
        ({"type": "reasoning", "summary": [], "encrypted_content": 7}, ItemOrigin(OTHER)),
        ({"type": "compaction", "encrypted_content": "gAAAA"}, ItemOrigin(OPENAI, "openai/o3")),
        ({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}, BY_SCOPE),
        ({"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}, BY_MODEL),
    ],
)
def test_an_item_without_a_loss_is_unchanged(to: Strategy, item: Item, maker: ItemOrigin) -> None:
    carried = over(to, OPENAI, item, maker=maker)
    assert (carried.items, carried.losses) == ((item,), ())


@pytest.mark.parametrize(
    ("items", "left_out"),
    [
        ([OPEN, assistant_message("a"), SEARCH], [1, 3]),
        ([OPEN, user_message("a"), SEARCH], [1]),
        ([OPEN, SEALED, SEARCH], [1]),
        ([SEALED, SEARCH, OPEN], [3]),
        ([OPEN, FIELDS_OF_A_CALL, OUTPUT, SEARCH], [1]),
        ([OPEN, SEARCH, SEARCH], [1, 2, 3]),
    ],
)
def test_reasoning_counts_up_to_the_next_input(items: list[Item], left_out: list[int]) -> None:
    carried = over(Strategy.CHAIN, OPENAI, *items)
    positions = [place for loss in carried.losses if str(loss.effect) == "left out" for place in loss.positions]
    assert sorted(positions) == left_out
    assert len(carried.items) == len(items) - len(left_out)


def test_a_hosted_call_of_another_server_is_lost_once() -> None:
    assert told(over(Strategy.CHAIN, EMBEDDED_SCOPE, OPEN, SEARCH)) == [
        ("reasoning_unsealed", "left out", (1,)),
        ("hosted_elsewhere", "left out", (2,)),
    ]


@pytest.mark.parametrize(
    ("items", "losses"),
    [
        ([FIELDS_OF_A_CALL, OUTPUT, OUTPUT], []),
        ([OUTPUT, FIELDS_OF_A_CALL], [("orphan_output", "left out", (1,)), ("open_call", "kept", (2,))]),
        ([FIELDS_OF_A_CALL, FIELDS_OF_A_CALL], [("open_call", "kept", (2,))]),
        ([FIELDS_OF_A_CALL, OUTPUT, FIELDS_OF_A_CALL], [("open_call", "kept", (3,))]),
        ([OUTPUT, OUTPUT], [("orphan_output", "left out", (1, 2))]),
        ([{"type": "function_call", "name": "f"}], []),
        ([{"type": "function_call_output", "output": "4"}], []),
        ([{"type": "tool_search_output", "call_id": "s", "tools": []}], []),
        ([user_message("hi"), OUTPUT], [("orphan_output", "left out", (2,))]),
    ],
)
def test_an_output_needs_its_call_before_it(items: list[Item], losses: list[tuple[str, str, tuple[int, ...]]]) -> None:
    assert told(over(Strategy.SESSION, OPENAI, *items)) == losses


def test_items_that_the_old_owner_has_not_confirmed_are_converted_by_their_turn() -> None:
    partial = {**assistant_message("ha"), **INCOMPLETE}
    entries = [TransferItem(user_message("hi")), TransferItem(partial, MADE, is_confirmed=False)]
    carried = plan_transfer(entries, TransferTarget(Strategy.CONVERSATION, OPENAI, MODEL))
    assert (carried.items, carried.confirmed_count, carried.losses) == ((user_message("hi"), partial), 1, ())


def test_only_a_conversation_needs_complete_items() -> None:
    partial = {**assistant_message("ha"), **INCOMPLETE}
    assert over(Strategy.CHAIN, OPENAI, partial).items == (partial,)
    assert told(over(Strategy.CONVERSATION, OPENAI, {**FIELDS_OF_A_CALL, **INCOMPLETE})) == [
        ("cut_off", "left out", (1,))
    ]


@pytest.mark.parametrize("to", Strategy)
def test_a_message_that_is_only_an_uploaded_file_is_left_out(to: Strategy) -> None:
    carried = over(to, OTHER, {**user_message("", UPLOADED), "id": "msg_1"})
    assert (carried.items, told(carried)) == ((), [("file_elsewhere", "left out", (1,))])
