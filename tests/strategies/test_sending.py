"""The table of the design: what each owner is sent, turn by turn."""

from dataclasses import replace

import pytest

from convo.errors import Conflict
from convo.history import Path, Strategy, root
from convo.items import Item, assistant, user
from convo.strategies import Held, body, confirm, interrupt, send

CLIENTS = [Strategy.REPLAY, Strategy.SESSION]
ENDPOINTS = [Strategy.CONVERSATION, Strategy.CHAIN]
HANDLES = {Strategy.CONVERSATION: "conv_1"}


def answer(words: str, number: int = 1) -> dict[str, Item]:
    return {**assistant(words), "id": f"msg_{number}", "status": "completed"}


def response(*output: Item, number: int = 1) -> dict[str, object]:
    return {"id": f"resp_{number}", "status": "completed", "output": list(output)}


def held(strategy: Strategy, *items: Item) -> Held:
    empty = Path(root("local"))
    return Held(strategy, empty.grow(items), empty.root, HANDLES.get(strategy))


def said(now: Held, *items: Item) -> Held:
    return replace(now, path=now.path.grow(items))


def after_one_turn(strategy: Strategy) -> Held:
    first = held(strategy, user("hi"))
    return confirm(first, send(first), response(answer("hello")))


@pytest.mark.parametrize("strategy", Strategy)
def test_a_first_turn_sends_the_input_to_every_owner(strategy: Strategy) -> None:
    assert send(held(strategy, user("hi"))).items == (user("hi"),)


@pytest.mark.parametrize("strategy", CLIENTS)
def test_a_client_owner_sends_the_whole_path_without_ids_and_asks_that_nothing_be_kept(strategy: Strategy) -> None:
    now = said(after_one_turn(strategy), user("more"))
    sent = send(now)

    assert [item.get("id") for item in sent.items] == [None, None, None]
    assert [item["content"][0]["text"] for item in sent.items] == ["hi", "hello", "more"]
    assert sent.state == {"store": False}


@pytest.mark.parametrize(
    ("strategy", "state"),
    [(Strategy.CONVERSATION, {"conversation": "conv_1"}), (Strategy.CHAIN, {"previous_response_id": "resp_1"})],
)
def test_an_endpoint_owner_is_sent_only_what_it_lacks(strategy: Strategy, state: dict[str, str]) -> None:
    sent = send(said(after_one_turn(strategy), user("more")))

    assert sent.items == (user("more"),)
    assert sent.state == state


@pytest.mark.parametrize("strategy", Strategy)
def test_a_failed_turn_changes_nothing_so_that_a_retry_sends_the_same(strategy: Strategy) -> None:
    now = said(after_one_turn(strategy), user("more"))
    assert send(now) == send(interrupt(now, []))


@pytest.mark.parametrize("strategy", Strategy)
def test_after_an_interruption_the_partial_goes_as_plain_words_between_old_and_new_input(strategy: Strategy) -> None:
    partial = {**answer("half an ans", 2), "status": "in_progress"}
    stopped = interrupt(said(after_one_turn(strategy), user("more")), [partial])

    tail = send(said(stopped, user("never mind"))).items[-3:]

    assert stopped.path.items[-1] == {**partial, "status": "incomplete"}
    assert tail == (user("more"), assistant("half an ans"), user("never mind"))


@pytest.mark.parametrize("strategy", Strategy)
def test_a_partial_without_words_is_not_kept(strategy: Strategy) -> None:
    call = {
        "type": "function_call",
        "id": "fc_1",
        "call_id": "c",
        "name": "f",
        "arguments": '{"a',
        "status": "in_progress",
    }
    now = said(after_one_turn(strategy), user("more"))
    assert interrupt(now, [call]) == now


def test_the_chain_keeps_its_id_when_a_response_has_none() -> None:
    now = said(after_one_turn(Strategy.CHAIN), user("more"))
    assert confirm(now, send(now), {"status": "completed", "output": [answer("yes", 2)]}).handle == "resp_1"


def test_a_response_id_never_becomes_the_handle_of_a_conversation() -> None:
    assert after_one_turn(Strategy.CONVERSATION).handle == "conv_1"


@pytest.mark.parametrize("strategy", ENDPOINTS)
def test_a_path_that_no_longer_passes_through_the_mark_is_refused(strategy: Strategy) -> None:
    now = replace(after_one_turn(strategy), path=held(strategy, user("other")).path)
    with pytest.raises(Conflict):
        send(now)


def test_what_a_server_owner_confirmed_stands_in_the_form_in_which_it_travelled() -> None:
    stopped = interrupt(
        said(after_one_turn(Strategy.CHAIN), user("more")), [{**answer("half", 2), "status": "in_progress"}]
    )
    now = said(stopped, user("go on"))

    confirmed = confirm(now, send(now), response(answer("done", 3), number=2))

    assert confirmed.path.items[2:5] == (user("more"), assistant("half"), user("go on"))
    assert confirmed.mark == confirmed.path.head


@pytest.mark.parametrize("strategy", CLIENTS)
def test_reasoning_travels_again_only_when_it_is_sealed(strategy: Strategy) -> None:
    bare = {"type": "reasoning", "id": "rs_1", "summary": []}
    sealed = {**bare, "id": "rs_2", "encrypted_content": "gAAAA"}
    first = held(strategy, user("hi"))
    now = confirm(first, send(first), response(bare, sealed, answer("hello")))

    assert [item for item in send(now).items if item.get("type") == "reasoning"] == [
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAAA"}
    ]
    assert now.path.items[1:3] == (bare, sealed)


@pytest.mark.parametrize("strategy", CLIENTS)
def test_sealed_reasoning_is_asked_for_only_where_the_model_has_it_and_nothing_is_stored(strategy: Strategy) -> None:
    now = held(strategy, user("hi"))
    assert send(now, seal=True).state["include"] == ["reasoning.encrypted_content"]
    assert send(now, store=True, seal=True).state == {"store": True}


def test_a_long_history_is_sent_whole_however_it_grew_and_wherever_it_forked() -> None:
    """What was worked out for one turn serves the next, and never another history."""
    said = [user("hi"), {**assistant("yes"), "id": "msg_1", "status": "completed"}] * 200
    whole = held(Strategy.SESSION, *said)
    for end in (1, 2, 399, 400, 3):
        assert len(send(replace(whole, path=whole.path.first(end))).items) == end
    forked = replace(whole, path=whole.path.first(200).grow([user("other")]))

    assert send(forked).items == (*send(replace(whole, path=whole.path.first(200))).items, user("other"))
    assert all("id" not in item for item in send(whole).items)


def test_what_an_agent_asks_to_be_included_does_not_replace_the_sealed_reasoning() -> None:
    sent = send(held(Strategy.SESSION, user("hi")), seal=True)
    made = body(sent, model="m", instructions=None, parameters={"include": ["file_search_call.results"]})
    assert made["include"] == ["reasoning.encrypted_content", "file_search_call.results"]
