"""Ids of calls as servers accept them, in requests and in answers."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.history.call_ids import ANY_SERVER, CallIdForm, CallIdRenamer, call_id_form, unique_call_ids
from convo.history.items import Item, StreamEvent
from convo.history.pairing import call_index_by_output

KIMI, MISTRAL = call_id_form("moonshotai/kimi-k2", is_chat=True), call_id_form("mistral-small-latest", is_chat=True)


def call(call_id: str, **more: Any) -> Item:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more}


def output(call_id: str, text: str = "ok") -> Item:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def sent_ids(form: CallIdForm, *call_ids: str) -> list[str]:
    """Return the ids that are sent for calls of one model call each, all with an output."""
    items = unique_call_ids([item for call_id in call_ids for item in (call(call_id), output(call_id))], form)
    assert [item["call_id"] for item in items[::2]] == [item["call_id"] for item in items[1::2]]
    return [item["call_id"] for item in items[::2]]


LONG, HASHED = "call_" + "x" * 100, "call_754c49a5f29fcc1e4af383658141c426"


@pytest.mark.parametrize(
    ("form", "call_ids", "sent"),
    [
        (ANY_SERVER, ["c1", "c1", "c2", "c1"], ["c1", "c1_2", "c2", "c1_3"]),
        (ANY_SERVER, ["c1", "c1_2", "c1", "c1_2"], ["c1", "c1_2", "c1_3", "c1_2_2"]),
        (ANY_SERVER, ["c1", "c1", "c1_2"], ["c1", "c1_2", "c1_2_2"]),
        (ANY_SERVER, ["x" * 64, "x" * 64], ["x" * 64, "call_a5be7f8764a52480a3f237176753cd08"]),
        (ANY_SERVER, [LONG, LONG], [HASHED, f"{HASHED}_2"]),
        (ANY_SERVER, ["a b", ""], ["call_c8687a08aa5d6ed2044328fa6a697ab8", "call_e3b0c44298fc1c149afbf4c8996fb924"]),
        (ANY_SERVER, ["functions.f:0"], ["call_d6bdd4de328a22edd610f9548b4f419f"]),
        (
            KIMI,
            ["functions.f:0", "functions.f:0", "functions.g:0"],
            ["functions.f:0", "functions.f:1", "functions.g:0"],
        ),
        (MISTRAL, ["b9mgIC84m", "b9mgIC84m"], ["b9mgIC84m", "e1f1ed930"]),
        (MISTRAL, ["call_1"], ["74196fe72"]),
    ],
)
def test_the_first_use_keeps_its_id_and_later_ones_get_a_number(
    form: CallIdForm, call_ids: list[str], sent: list[str]
) -> None:
    assert sent_ids(form, *call_ids) == sent


def test_only_ids_of_calls_that_the_client_runs_are_replaced() -> None:
    search = {"type": "tool_search_call", "call_id": "c1", "execution": "server", "arguments": {}}
    program = {"type": "program", "call_id": "c1", "code": "f()"}
    items = [call("c1"), output("c1"), search, program, {"type": "message", "id": "c1", "role": "user", "content": ""}]
    assert unique_call_ids(items) == tuple(items)
    assert unique_call_ids([output(LONG)]) == (output(LONG),)  # the server has its call
    shell = {"type": "local_shell_call", "call_id": "c1", "action": {}}
    printed = {"type": "local_shell_call_output", "id": "c1", "output": "x"}
    assert unique_call_ids([*items, shell, printed])[-2:] == ({**shell, "call_id": "c1_2"}, {**printed, "id": "c1_2"})


IDS = some.sampled_from(["c1", "c1_2", "c2", "a.b", "", "x" * 65, "functions.f:0", "functions.f:1", "b9mgIC84m"])
TURNS = some.lists(some.lists(IDS, min_size=1, max_size=3), max_size=6)


def history(turns: list[list[str]]) -> list[Item]:
    """Return a history in which each output has the text of its call's name."""
    items: list[Item] = []
    for number, ids in enumerate(turns):
        items += [call(one, name=f"{number}.{index}") for index, one in enumerate(ids)]
        items += [output(one, f"{number}.{index}") for index, one in enumerate(ids)]
    return items


@given(TURNS, some.sampled_from([ANY_SERVER, KIMI, MISTRAL]))
def test_sent_ids_are_unique_and_valid_and_stay_as_the_history_grows(turns: list[list[str]], form: CallIdForm) -> None:
    items = history(turns)
    sent = unique_call_ids(items, form)

    ids = [item["call_id"] for item in sent if item["type"] == "function_call"]
    assert len(set(ids)) == len(ids)
    assert all(form.pattern.fullmatch(one) and len(one) <= 64 for one in ids)
    assert all(sent[made]["name"] == sent[at]["output"] for at, made in call_index_by_output(sent).items())
    assert all(sent[made]["call_id"] == sent[at]["call_id"] for at, made in call_index_by_output(sent).items())
    assert unique_call_ids(sent, form) == sent
    for end in range(len(turns)):
        shorter = history(turns[:end])
        assert sent[: len(shorter)] == unique_call_ids(shorter, form)


@given(TURNS, some.lists(IDS, min_size=1, max_size=4), some.sampled_from([ANY_SERVER, KIMI, MISTRAL]))
def test_an_answer_has_no_id_of_its_input_and_is_sent_as_the_client_saw_it(
    turns: list[list[str]], answered: list[str], form: CallIdForm
) -> None:
    items = history(turns)
    renamer = CallIdRenamer(items, form)
    seen = answer(renamer, [call(one, id=f"fc_{index}") for index, one in enumerate(answered)])

    used = {item["call_id"] for item in (*items, *renamer.input)}
    assert used.isdisjoint(seen)
    assert len(set(seen)) == len(seen)
    sent = unique_call_ids([*items, *map(call, seen)], form)
    assert [item["call_id"] for item in sent[len(items) :]] == [form.fit(one) for one in seen]


def answer(renamer: CallIdRenamer, items: list[Item]) -> list[str]:
    """Return the ids of the calls of an answer as a client sees them, the same in all of its events."""
    done = []
    for index, item in enumerate(items):
        for kind in ("added", "done"):
            event = {"type": f"response.output_item.{kind}", "output_index": index, "item": item}
            done.append(renamer.rename_event(event)["item"]["call_id"])
    final = renamer.rename_event({"type": "response.completed", "response": {"output": items}})
    ids = [item["call_id"] for item in final["response"]["output"]]
    assert done == [one for one in ids for _ in range(2)]
    return ids


def test_the_final_answer_may_leave_out_or_move_items() -> None:
    renamer = CallIdRenamer([])
    first, second = call("c1", name="a"), call("c1", name="b")
    for index, item in ((1, first), (3, second)):
        renamer.rename_event({"type": "response.output_item.done", "output_index": index, "item": item})
    message = {"type": "message", "role": "assistant", "content": []}
    final = {"type": "response.completed", "response": {"output": [message, first, second, call("c1", name="c")]}}
    output_items = renamer.rename_event(final)["response"]["output"]
    assert output_items == [message, first, {**second, "call_id": "c1_2"}, call("c1_3", name="c")]


@pytest.mark.parametrize(
    "event",
    [
        {"type": "response.output_text.delta", "delta": "c1"},
        {"type": "response.output_item.added", "output_index": 0, "item": None},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "function_call", "call_id": 7}},
        {"type": "response.output_item.done", "output_index": 0, "item": {"type": "program", "call_id": "c1"}},
        {"type": "response.completed", "response": {"output": None}},
        {"type": "response.failed", "response": None},
    ],
)
def test_other_events_stay_as_they_are(event: StreamEvent) -> None:
    assert CallIdRenamer([call("c1")]).rename_event(event) == event


def test_the_models_of_mistral_are_known_by_their_names() -> None:
    names = ["mistral-large-latest", "mistralai/Ministral-8B", "open-mixtral-8x7b", "Devstral-Small", "pixtral-12b"]
    assert {call_id_form(name, is_chat=True) for name in names} == {MISTRAL}
    assert call_id_form("gpt-4.1", is_chat=True) == call_id_form("llama-3", is_chat=True) == KIMI
    assert call_id_form("mistral-large-latest", is_chat=False) == ANY_SERVER
    assert re.fullmatch(MISTRAL.pattern, MISTRAL.fit("call_1"))
