"""Parts of a turn: the start of a stream, recovered responses and the errors of a response."""

from collections.abc import AsyncGenerator

import pytest

from convo.chat.turn import (
    make_incomplete_error,
    make_recovered_events,
    make_recovered_link,
    make_response_fault,
    open_with_retry,
    trim_to_last_input,
)
from convo.errors import StreamBroken, TryLater
from convo.history.items import Item, StreamEvent, assistant_message, user_message
from convo.history.records import Link, Scope, Session, Strategy
from convo.history.tree import Path, root_key
from tests.clock import FixedClock

CREATED: StreamEvent = {"type": "response.created"}
ADDED: StreamEvent = {"type": "response.output_item.added"}
ROOT = Path(root_key("local"))
CALL: Item = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
OUTPUT: Item = {"type": "function_call_output", "call_id": "c", "output": "1"}
APPROVAL: Item = {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True}
REMOTE = Scope("https://api.example.com/v1")


async def read_first_events(*events: StreamEvent) -> list[StreamEvent]:
    """The first events of a stream of `events`, as a turn reads them."""

    async def stream() -> AsyncGenerator[StreamEvent, None]:
        for event in events:
            yield event

    async def open_stream() -> AsyncGenerator[StreamEvent, None]:
        return stream()

    started = await open_with_retry(
        open_stream, Strategy.SESSION, FixedClock(), check_tail=pytest.fail, notify=pytest.fail
    )
    assert started
    await started.stream.aclose()
    return started.first_events


async def test_a_thousand_events_are_enough_to_begin_a_response() -> None:
    assert len(await read_first_events(*[CREATED] * 999, ADDED)) == 1000
    with pytest.raises(StreamBroken, match=r"^the endpoint sent only start events, and too many of them$"):
        await read_first_events(*[CREATED] * 1000, ADDED)


@pytest.mark.parametrize(("wait_s", "sleeps_s"), [(60.0, [60.0]), (60.5, [])])
async def test_a_wait_of_a_minute_is_kept_and_a_longer_one_is_an_error(wait_s: float, sleeps_s: list[float]) -> None:
    clock, failures = FixedClock(), [TryLater("slow down", status=429, retry_after_s=wait_s)]

    async def open_stream() -> AsyncGenerator[StreamEvent, None] | None:
        if failures:
            raise failures.pop()
        return None

    try:
        assert (
            await open_with_retry(open_stream, Strategy.SESSION, clock, check_tail=pytest.fail, notify=lambda _: None)
            is None
        )
    except TryLater:
        assert not sleeps_s
    assert clock.sleeps_s == sleeps_s


@pytest.mark.parametrize(
    ("items", "length"),
    [
        ([], 0),
        ([assistant_message("a")], 0),
        ([user_message("a"), assistant_message("b")], 1),
        ([user_message("a"), CALL, OUTPUT, assistant_message("b")], 3),
        ([user_message("a"), assistant_message("b"), APPROVAL], 3),
        ([user_message("a"), CALL], 1),
    ],
)
def test_the_input_of_a_response_ends_with_a_message_an_output_or_an_approval(items: list[Item], length: int) -> None:
    assert trim_to_last_input(ROOT.append(items)).items == tuple(items[:length])


def session(**fields: object) -> Session:
    return Session(
        id="ses_1",
        name="mine",
        strategy=Strategy.CONVERSATION,
        model="openai/gpt-5",
        head=ROOT.root,
        confirmed_head=ROOT.root,
        created_at=1.0,
        used_at=1.0,
        scope=REMOTE,
        handle="conv_1",
        link_id="resp_0",
        **fields,  # type: ignore[arg-type]
    )


def recovered_link(*items: Item, confirmed_count: int = 0) -> Link | None:
    return make_recovered_link(
        ROOT.append(items), confirmed_count, session(), link_id="try_1", model="openai/gpt-5-mini", recovered_at=7.0
    )


def test_a_recovered_response_has_a_link_like_any_other() -> None:
    items = [user_message("a"), assistant_message("b"), user_message("c"), assistant_message("d")]

    link = recovered_link(*items, confirmed_count=2)

    assert link == Link(
        id="try_1",
        input_head=ROOT.append(items[:3]).head,
        sent_count=1,
        head=ROOT.append(items).head,
        model="openai/gpt-5-mini",
        strategy=Strategy.CONVERSATION,
        status="completed",
        created_at=7.0,
        parent_id="resp_0",
        session_id="ses_1",
        scope=REMOTE,
        conversation_id="conv_1",
    )


@pytest.mark.parametrize(
    ("items", "confirmed_count"),
    [
        ([user_message("a")], 0),
        ([user_message("a"), assistant_message("b")], 1),
        ([user_message("a"), assistant_message("b"), assistant_message("c")], 2),
    ],
)
def test_input_alone_and_confirmed_input_have_no_recovered_link(items: list[Item], confirmed_count: int) -> None:
    assert recovered_link(*items, confirmed_count=confirmed_count) is None


@pytest.mark.parametrize("link_id", ["resp_1", "try_1", None])
def test_the_events_of_a_recovered_response_are_its_items_and_its_end(link_id: str | None) -> None:
    path = ROOT.append([user_message("a"), CALL, assistant_message("b")])
    usage = {"input_tokens": 1}
    link = link_id and Link(
        link_id, path.first(1).head, path.head, 1, "m", Strategy.CHAIN, "incomplete", 1.0, usage=usage
    )

    *items, end = make_recovered_events(path, link or None)

    assert items == [
        {"type": "response.output_item.done", "output_index": 0, "item": CALL},
        {"type": "response.output_item.done", "output_index": 1, "item": assistant_message("b")},
    ]
    has_response = link_id == "resp_1"
    assert end == {
        "type": "response.completed",
        "response": {
            "id": "resp_1" if has_response else None,
            "status": "incomplete" if has_response else "completed",
            "output": [CALL, assistant_message("b")],
            "usage": usage if has_response else None,
        },
    }


def test_a_failed_response_is_an_error_with_the_code_of_the_endpoint() -> None:
    fault = make_response_fault({"error": {"code": "server_error", "message": "Oh."}})
    unknown = make_response_fault({"error": None})

    assert (fault.code, fault.message, fault.hint) == ("server_error", "Oh.", "repeat the command")
    assert (unknown.code, unknown.message) == ("endpoint_fault", "the model failed")


@pytest.mark.parametrize(
    ("details", "error"),
    [
        ({"reason": "content_filter"}, {"code": "content_filter", "message": "the response is incomplete"}),
        ({}, None),
        (None, None),
    ],
)
def test_an_incomplete_response_is_stored_with_its_reason(
    details: dict[str, str] | None, error: dict[str, str] | None
) -> None:
    assert make_incomplete_error({"incomplete_details": details}) == error
