"""The losses of a transfer to another owner, each with its code."""

from typing import Any

import pytest

from convo.history.items import Item, assistant_message, user_message
from convo.history.records import EMBEDDED_SCOPE, Scope, Strategy
from convo.strategies.conversion import ItemOrigin, TransferItem, TransferPlan, TransferTarget, plan_transfer

OPENAI = Scope("https://api.openai.com/v1")
OTHER = Scope("https://api.openai.com/v1", "org-other")
MODEL = "openai/gpt-5-mini"
ORIGIN = ItemOrigin(OPENAI, MODEL)

ENCRYPTED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
UNENCRYPTED = {"type": "reasoning", "id": "rs_1", "summary": []}
SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {}}
COMPACTION = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAAA"}
REFERENCE = {"type": "item_reference", "id": "msg_1"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "4"}
UPLOADED = {"type": "input_file", "file_id": "file-1"}


def plan_items(
    target: Strategy, scope: Scope, *items: Item, maker: ItemOrigin = ORIGIN, model: str = MODEL
) -> TransferPlan:
    return plan_transfer([TransferItem(item, maker) for item in items], TransferTarget(target, scope, model))


def loss_rows(plan: TransferPlan) -> list[tuple[str, str, tuple[int, ...]]]:
    return [(loss.code, str(loss.effect), loss.positions) for loss in plan.losses]


@pytest.mark.parametrize("target", Strategy)
def test_messages_calls_and_images_are_transferred_unchanged(target: Strategy) -> None:
    image = user_message("look", {"type": "input_image", "image_url": "data:image/png;base64,AA=="})
    items = [image, {**CALL, "id": None}, OUTPUT, assistant_message("4")]
    del items[1]["id"]
    plan = plan_items(target, EMBEDDED_SCOPE, *items, maker=ItemOrigin())
    assert (list(plan.items), plan.losses, plan.confirmed_count) == (items, (), 4)


LOSSES: list[tuple[str, Item, Scope, str]] = [
    ("reasoning_elsewhere", ENCRYPTED, OTHER, MODEL),
    ("reasoning_elsewhere", ENCRYPTED, EMBEDDED_SCOPE, MODEL),
    ("reasoning_elsewhere", ENCRYPTED, OPENAI, "openai/o3"),
    ("reasoning_unsealed", UNENCRYPTED, OPENAI, MODEL),
    ("compaction_elsewhere", COMPACTION, EMBEDDED_SCOPE, MODEL),
    ("hosted_elsewhere", SEARCH, EMBEDDED_SCOPE, MODEL),
    ("reference_elsewhere", REFERENCE, EMBEDDED_SCOPE, MODEL),
]


@pytest.mark.parametrize(("code", "item", "scope", "model"), LOSSES)
@pytest.mark.parametrize("target", [Strategy.CHAIN, Strategy.CONVERSATION])
def test_items_that_only_their_server_can_use_are_omitted(
    target: Strategy, code: str, item: Item, scope: Scope, model: str
) -> None:
    plan = plan_items(target, scope, user_message("hi"), item, assistant_message("yes"), model=model)
    assert loss_rows(plan) == [(code, "left out", (2,))]
    assert list(plan.items) == [user_message("hi"), assistant_message("yes")]


@pytest.mark.parametrize("item", [ENCRYPTED, COMPACTION, SEARCH, REFERENCE])
@pytest.mark.parametrize("target", Strategy)
def test_items_that_return_to_their_maker_are_transferred(target: Strategy, item: Item) -> None:
    plan = plan_items(target, OPENAI, item)
    assert "left out" not in [effect for _, effect, _ in loss_rows(plan)]
    assert [one["type"] for one in plan.items] == [item["type"]]


def test_unencrypted_reasoning_stays_in_a_record_and_is_not_sent() -> None:
    plan = plan_items(Strategy.SESSION, OPENAI, user_message("hi"), UNENCRYPTED)
    assert loss_rows(plan) == [("reasoning_unsealed", "not sent", (2,))]
    assert list(plan.items) == [user_message("hi"), UNENCRYPTED]


def test_encrypted_content_names_its_maker() -> None:
    item = {**ENCRYPTED, "encrypted_content": "convo1:openai%2Fo3:0123456789ab:gAAAA"}
    assert loss_rows(plan_items(Strategy.CHAIN, EMBEDDED_SCOPE, item, maker=ItemOrigin(), model="openai/o3")) == [
        ("item_ids", "changed", (1,))
    ]
    lost = plan_items(Strategy.CHAIN, EMBEDDED_SCOPE, item, maker=ItemOrigin(), model=MODEL)
    assert loss_rows(lost) == [("reasoning_elsewhere", "left out", (1,))]
    assert "openai/o3" in lost.losses[0].reason


def test_encrypted_content_of_a_gateway_is_transferred_to_that_gateway() -> None:
    gateway = Scope("http://127.0.0.1:8788/v1")
    item = {**ENCRYPTED, "encrypted_content": "convo1:openai%2Fo3:0123456789ab:gAAAA"}
    plan = plan_items(Strategy.CHAIN, gateway, item, maker=ItemOrigin(gateway, "gw/o3"), model="gw/o3")
    assert loss_rows(plan) == [("item_ids", "changed", (1,))]


def test_hosted_tool_items_stay_with_the_reasoning_before_them() -> None:
    plan = plan_items(
        Strategy.CONVERSATION, OPENAI, UNENCRYPTED, SEARCH, assistant_message("found"), user_message("more"), SEARCH
    )
    assert loss_rows(plan) == [
        ("reasoning_unsealed", "left out", (1,)),
        ("hosted_without_reasoning", "left out", (2,)),
    ]
    assert list(plan.items) == [assistant_message("found"), user_message("more"), SEARCH]


def test_a_compaction_that_a_gateway_encrypted_is_not_transferred_to_another_server() -> None:
    window = {**COMPACTION, "encrypted_content": "convoseal1:AAAA"}
    assert loss_rows(plan_items(Strategy.CHAIN, OPENAI, window, maker=ItemOrigin()))[0][0] == "compaction_elsewhere"
    assert loss_rows(plan_items(Strategy.SESSION, EMBEDDED_SCOPE, window, maker=ItemOrigin())) == []


@pytest.mark.parametrize(
    ("target", "code", "effect"),
    [(Strategy.CHAIN, "reasoning_unknown", "left out"), (Strategy.SESSION, "seal_unknown", "kept")],
)
def test_the_maker_of_encrypted_items_in_a_file_is_unknown(target: Strategy, code: str, effect: str) -> None:
    assert loss_rows(plan_items(target, OPENAI, ENCRYPTED, maker=ItemOrigin())) == [(code, effect, (1,))]


def test_ids_are_assigned_by_the_new_owner() -> None:
    answer = {**assistant_message("yes"), "id": "msg_1"}
    plan = plan_items(Strategy.CONVERSATION, OPENAI, answer)
    assert loss_rows(plan) == [("item_ids", "changed", (1,))]
    assert "id" not in plan.items[0]


def test_an_uploaded_file_stays_where_it_was_uploaded() -> None:
    plan = plan_items(Strategy.SESSION, EMBEDDED_SCOPE, user_message("read", UPLOADED), user_message("", UPLOADED))
    assert loss_rows(plan) == [("file_elsewhere", "changed", (1,)), ("file_elsewhere", "left out", (2,))]
    assert list(plan.items) == [user_message("read")]
    assert plan_items(Strategy.SESSION, OPENAI, user_message("read", UPLOADED)).losses == ()


@pytest.mark.parametrize(
    ("item", "expected"), [({**assistant_message("ha"), "status": "incomplete"}, [assistant_message("ha")])]
)
def test_of_a_partial_answer_a_conversation_keeps_the_text(item: dict[str, Any], expected: list[Item]) -> None:
    plan = plan_items(Strategy.CONVERSATION, OPENAI, item, {**CALL, "status": "incomplete"})
    assert loss_rows(plan)[0] == ("cut_off", "changed", (1,))
    assert list(plan.items) == expected
    assert plan_items(Strategy.SESSION, OPENAI, item).losses == ()


def test_an_output_without_its_call_is_omitted_and_a_pending_call_is_reported() -> None:
    plan = plan_items(Strategy.CHAIN, EMBEDDED_SCOPE, OUTPUT, {key: CALL[key] for key in CALL if key != "id"})
    assert loss_rows(plan) == [("orphan_output", "left out", (1,)), ("open_call", "kept", (2,))]
    assert [item["type"] for item in plan.items] == ["function_call"]


def test_unconfirmed_items_are_counted_separately() -> None:
    entries = [
        TransferItem(user_message("hi")),
        TransferItem(assistant_message("yes")),
        TransferItem(user_message("lost?"), is_confirmed=False),
    ]
    plan = plan_transfer(entries, TransferTarget(Strategy.CONVERSATION, EMBEDDED_SCOPE, MODEL))
    assert (len(plan.items), plan.confirmed_count) == (3, 2)


CALL_FIELDS = {key: CALL[key] for key in CALL if key != "id"}
NAMED = {**ENCRYPTED, "encrypted_content": "convo1:openai%2Fo3:0123456789ab:gAAAA"}
INCOMPLETE = {"status": "incomplete"}
BY_SCOPE, BY_MODEL, UNKNOWN = ItemOrigin(OPENAI), ItemOrigin(None, MODEL), ItemOrigin()


@pytest.mark.parametrize(
    ("target", "scope", "maker", "item", "reason"),
    [
        (
            Strategy.SESSION,
            OTHER,
            ORIGIN,
            ENCRYPTED,
            "reasoning that only openai/gpt-5-mini at https://api.openai.com/v1 can decrypt",
        ),
        (Strategy.SESSION, OTHER, BY_SCOPE, ENCRYPTED, "reasoning that only https://api.openai.com/v1 can decrypt"),
        (Strategy.SESSION, OTHER, UNKNOWN, NAMED, "reasoning that only openai/o3 at embedded can decrypt"),
        (
            Strategy.SESSION,
            EMBEDDED_SCOPE,
            ORIGIN,
            COMPACTION,
            "a summary of the earlier history that only openai/gpt-5-mini at https://api.openai.com/v1 can decrypt",
        ),
        (Strategy.CHAIN, OPENAI, UNKNOWN, ENCRYPTED, "encrypted reasoning of unknown origin"),
        (
            Strategy.CHAIN,
            OPENAI,
            UNKNOWN,
            {"type": "compaction", "encrypted_content": "gAAAA"},
            "encrypted content of unknown origin; other models and endpoints reject it",
        ),
        (Strategy.CHAIN, OPENAI, ORIGIN, UNENCRYPTED, "reasoning without encrypted content exists only on its server"),
        (
            Strategy.SESSION,
            EMBEDDED_SCOPE,
            ORIGIN,
            SEARCH,
            "the call of a hosted tool that https://api.openai.com/v1 ran",
        ),
        (Strategy.SESSION, OPENAI, UNKNOWN, REFERENCE, "a reference to an item that another server stores"),
        (
            Strategy.SESSION,
            OTHER,
            ORIGIN,
            user_message("", UPLOADED),
            "a file that was uploaded to https://api.openai.com/v1",
        ),
        (Strategy.CHAIN, OPENAI, ORIGIN, {**assistant_message("a"), "id": "m"}, "the new owner assigns its own ids"),
        (
            Strategy.CONVERSATION,
            OPENAI,
            ORIGIN,
            {**assistant_message("a"), **INCOMPLETE},
            "incomplete, so only its text can be sent again",
        ),
        (Strategy.CONVERSATION, OPENAI, ORIGIN, {**assistant_message(""), **INCOMPLETE}, "incomplete and without text"),
        (Strategy.SESSION, OPENAI, ORIGIN, OUTPUT, "an output whose call is not in this history"),
        (
            Strategy.SESSION,
            OPENAI,
            ORIGIN,
            CALL_FIELDS,
            "a call without an output: send the output first, or use convo repair",
        ),
    ],
)
def test_a_loss_has_its_reason(target: Strategy, scope: Scope, maker: ItemOrigin, item: Item, reason: str) -> None:
    (loss,) = plan_items(target, scope, item, maker=maker).losses
    assert loss.reason == reason


def test_a_hosted_call_is_left_out_because_of_its_reasoning() -> None:
    _, loss = plan_items(Strategy.CHAIN, OPENAI, UNENCRYPTED, SEARCH).losses
    assert loss.reason == "the call of a hosted tool that needs the reasoning before it"


@pytest.mark.parametrize("target", [Strategy.SESSION, Strategy.CHAIN])
@pytest.mark.parametrize(
    ("item", "maker"),
    [
        (SEARCH, UNKNOWN),
        (SEARCH, ORIGIN),
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
def test_an_item_without_a_loss_is_unchanged(target: Strategy, item: Item, maker: ItemOrigin) -> None:
    plan = plan_items(target, OPENAI, item, maker=maker)
    assert (plan.items, plan.losses) == ((item,), ())


@pytest.mark.parametrize(
    ("items", "omitted"),
    [
        ([UNENCRYPTED, assistant_message("a"), SEARCH], [1, 3]),
        ([UNENCRYPTED, user_message("a"), SEARCH], [1]),
        ([UNENCRYPTED, ENCRYPTED, SEARCH], [1]),
        ([ENCRYPTED, SEARCH, UNENCRYPTED], [3]),
        ([UNENCRYPTED, CALL_FIELDS, OUTPUT, SEARCH], [1]),
        ([UNENCRYPTED, SEARCH, SEARCH], [1, 2, 3]),
    ],
)
def test_reasoning_counts_up_to_the_next_input(items: list[Item], omitted: list[int]) -> None:
    plan = plan_items(Strategy.CHAIN, OPENAI, *items)
    positions = [position for loss in plan.losses if str(loss.effect) == "left out" for position in loss.positions]
    assert sorted(positions) == omitted
    assert len(plan.items) == len(items) - len(omitted)


def test_a_hosted_call_of_another_server_is_lost_once() -> None:
    assert loss_rows(plan_items(Strategy.CHAIN, EMBEDDED_SCOPE, UNENCRYPTED, SEARCH)) == [
        ("reasoning_unsealed", "left out", (1,)),
        ("hosted_elsewhere", "left out", (2,)),
    ]


@pytest.mark.parametrize(
    ("items", "losses"),
    [
        ([CALL_FIELDS, OUTPUT, OUTPUT], []),
        ([OUTPUT, CALL_FIELDS], [("orphan_output", "left out", (1,)), ("open_call", "kept", (2,))]),
        ([CALL_FIELDS, CALL_FIELDS], [("open_call", "kept", (1, 2))]),
        ([CALL_FIELDS, OUTPUT, CALL_FIELDS], [("open_call", "kept", (3,))]),
        ([OUTPUT, OUTPUT], [("orphan_output", "left out", (1, 2))]),
        ([{"type": "function_call", "name": "f"}], []),
        ([{"type": "function_call_output", "output": "4"}], []),
        ([{"type": "tool_search_output", "call_id": "s", "tools": []}], []),
        ([user_message("hi"), OUTPUT], [("orphan_output", "left out", (2,))]),
    ],
)
def test_an_output_needs_its_call_before_it(items: list[Item], losses: list[tuple[str, str, tuple[int, ...]]]) -> None:
    assert loss_rows(plan_items(Strategy.SESSION, OPENAI, *items)) == losses


@pytest.mark.parametrize("strategy", Strategy)
def test_a_server_that_stores_the_history_gets_each_call_id_once(strategy: Strategy) -> None:
    """Later requests name its calls, so the new ids are the record's, too."""
    plan = plan_items(strategy, OPENAI, CALL_FIELDS, OUTPUT, CALL_FIELDS, OUTPUT)
    call_id = CALL_FIELDS["call_id"]
    is_server_side = strategy in (Strategy.CHAIN, Strategy.CONVERSATION)
    later_id = f"{call_id}_2" if is_server_side else call_id
    assert [item["call_id"] for item in plan.items] == [call_id, call_id, later_id, later_id]
    assert loss_rows(plan) == ([("call_ids", "changed", (3, 4))] if is_server_side else [])


def test_items_that_the_old_owner_has_not_confirmed_are_converted_by_their_turn() -> None:
    partial = {**assistant_message("ha"), **INCOMPLETE}
    entries = [TransferItem(user_message("hi")), TransferItem(partial, ORIGIN, is_confirmed=False)]
    plan = plan_transfer(entries, TransferTarget(Strategy.CONVERSATION, OPENAI, MODEL))
    assert (plan.items, plan.confirmed_count, plan.losses) == ((user_message("hi"), partial), 1, ())


def test_only_a_conversation_needs_complete_items() -> None:
    partial = {**assistant_message("ha"), **INCOMPLETE}
    assert plan_items(Strategy.CHAIN, OPENAI, partial).items == (partial,)
    assert loss_rows(plan_items(Strategy.CONVERSATION, OPENAI, {**CALL_FIELDS, **INCOMPLETE})) == [
        ("cut_off", "left out", (1,))
    ]


@pytest.mark.parametrize("target", Strategy)
def test_a_message_that_is_only_an_uploaded_file_is_left_out(target: Strategy) -> None:
    plan = plan_items(target, OTHER, {**user_message("", UPLOADED), "id": "msg_1"})
    assert (plan.items, loss_rows(plan)) == ((), [("file_elsewhere", "left out", (1,))])
