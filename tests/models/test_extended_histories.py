"""A request for a history that grew turn by turn equals one for the same items in a list of their own."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.errors import ConvoError
from convo.history.call_ids import CHAT_SERVER, CallIdRenamer
from convo.history.items import Item, assistant_message, user_message
from convo.history.tree import JoinedList, Path, Prefix, root_key
from convo.models.base import ModelRequest, make_issuer_tag
from convo.models.chat_completions import ChatDialect, build_chat_body, list_ignored_chat_fields
from convo.models.chat_messages import encode_returned_fields
from convo.models.http import encode_request_body
from convo.models.responses import build_responses_body, list_ignored_responses_fields
from convo.responses_api.history import check_call_pairs, remove_incomplete_items, select_new_items
from convo.responses_api.validation import parse_response_request

ISSUER = make_issuer_tag("up", "m", "http://up")
THOUGHT = encode_returned_fields(message={"reasoning_content": "Hm."})

CALL_IDS = some.sampled_from(["a", "b", "functions.f:0"])
CALLS = some.builds(
    lambda call_id, **more: {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}", **more},
    CALL_IDS,
    status=some.sampled_from(["completed", "completed", "incomplete"]),
)
OUTPUTS = some.builds(lambda call_id: {"type": "function_call_output", "call_id": call_id, "output": "1"}, CALL_IDS)
OTHERS = some.sampled_from(
    [
        user_message("hi"),
        {"role": "user", "content": "hi"},
        assistant_message("hello"),
        {**assistant_message("cut"), "status": "incomplete"},
        {"role": "developer", "content": "Be brief."},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": ISSUER + THOUGHT},
        {"type": "reasoning", "id": "rs_2", "summary": []},
        {"type": "custom_tool_call", "call_id": "c", "name": "g", "input": "x"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "x"},
    ]
)
HISTORIES = some.lists(some.one_of(OTHERS, CALLS, OUTPUTS), max_size=20)


def outcomes(items: Any) -> list[Any]:
    """Return the new history of a request with `items`, and the bodies and reports of adapters, or the errors."""

    def attempt(make: Any) -> Any:
        try:
            return make()
        except ConvoError as error:
            return type(error), str(error)

    complete = remove_incomplete_items(items)
    renamer = CallIdRenamer(complete, CHAT_SERVER)
    call: Item = {"type": "function_call", "call_id": "a", "name": "f"}
    request, dialect = ModelRequest("m", renamer.input, "Be brief."), ChatDialect(has_thinking=True)

    def new_history() -> Any:
        parsed = parse_response_request({"model": "m", "input": JoinedList(items), "store": False})
        path = Path(root_key("")).append(select_new_items(parsed.items, (), {}))
        return path.keys, tuple(path.items)

    return [
        attempt(new_history),
        attempt(lambda: check_call_pairs(items)),
        renamer.rename_event({"type": "response.output_item.added", "output_index": 0, "item": call}),
        encode_request_body(build_responses_body(request, ISSUER, "up/m")),
        list_ignored_responses_fields(request, ISSUER),
        attempt(lambda: encode_request_body(build_chat_body(request, "up/m", dialect, ISSUER))),
        list_ignored_chat_fields(request, dialect, ISSUER),
    ]


@given(HISTORIES, some.lists(some.integers(0, 20), max_size=4))
def test_a_history_that_grew_gives_the_same_requests(items: list[Item], lengths: list[int]) -> None:
    grown: Prefix[Item] = Prefix()
    for length in sorted(lengths):
        grown = grown.append(items[len(grown) : length])
        assert outcomes(grown) == outcomes(list(grown))
    if lengths:  # another continuation, and a part of it
        assert outcomes(grown.first(lengths[0]).append(items)) == outcomes([*items[: lengths[0]], *items])
        assert outcomes(grown.first(lengths[0])) == outcomes(items[: min(lengths[0], len(grown))])


@pytest.mark.parametrize(
    "parts", [(), ([],), ([1],), (Prefix(["é\n"]),), ([1], Prefix[Any](), [2]), ([], Prefix([{"a": None}, 2]), [3, 4])]
)
def test_a_list_in_parts_is_encoded_as_one(parts: tuple[Any, ...]) -> None:
    body = {"model": "m", "input": JoinedList(*parts), "stream": True}

    assert json.loads(encode_request_body(body)) == body
    assert encode_request_body(body) == encode_request_body({**body, "input": list(body["input"])})  # type: ignore[call-overload]
