"""The next request of a view, and requests that were sent, rebuilt: whole bodies, and the errors."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

import pytest

from convo.chat.next_request import (
    build_next_request,
    find_current_link,
    get_instructions,
    get_repeated_parameters,
    make_continuation_state,
    measure_context_window,
    rebuild_link_request,
    rebuild_request,
    rebuild_request_fields,
    skip_remote_count,
)
from convo.chat.turn import RequestOptions
from convo.config.sections import ContextLimits
from convo.endpoints.base import Endpoint, HttpRequest
from convo.errors import ItemDeleted, NotFound
from convo.history.items import Item, Json, assistant_message, user_message
from convo.history.records import Link, Scope, Session, Strategy
from convo.history.tree import Path, root_key
from convo.inspect.context_window import ContextUsage
from convo.inspect.diff import SentRequest
from convo.inspect.view import ConversationView, PathIndex
from convo.strategies.strategy import ConversationState, RequestInput
from convo.usage.cost import Usage
from tests.inspect.conversation_builder import ROOT, USAGE, ConversationBuilder, build_chain

REMOTE = Scope("https://api.example.com/v1")
SESSION = Session(
    "ses_1", "mine", Strategy.CHAIN, "local/demo", ROOT, ROOT, 1.0, 1.0, handle="resp_9", instructions="Be brief."
)


# -- the state that the next request continues -----------------------------------------------------


def chain_view(**link_fields: Any) -> ConversationView:
    """The view of the second of two responses; `link_fields` are of its link."""
    builder = ConversationBuilder()
    builder.turn("resp_1", "one", "first")
    builder.turn("resp_2", "two", "second", after="resp_1", **link_fields)
    return builder.view("resp_2")


def test_a_session_continues_from_its_record() -> None:
    view = replace(chain_view(), session=SESSION, confirmed_head=ROOT)
    assert make_continuation_state(view) == ConversationState(Strategy.CHAIN, view.path, ROOT, "resp_9")


@pytest.mark.parametrize(
    ("strategy", "handle"),
    [(Strategy.CONVERSATION, "conv_1"), (Strategy.CHAIN, "conv_1"), (Strategy.REPLAY, None), (Strategy.SESSION, None)],
)
def test_only_an_owner_at_the_endpoint_is_continued_by_a_handle_without_a_response(
    strategy: Strategy, handle: str | None
) -> None:
    view = replace(chain_view(), handle="conv_1", strategy=strategy, current_link_id=None)
    assert make_continuation_state(view) == ConversationState(strategy, view.path, view.path.head, handle)


@pytest.mark.parametrize(
    ("strategy", "owner"),
    [
        (Strategy.CHAIN, Strategy.SESSION),
        (Strategy.CONVERSATION, Strategy.SESSION),
        (Strategy.REPLAY, Strategy.REPLAY),
        (Strategy.SESSION, Strategy.SESSION),
    ],
)
def test_a_response_that_is_not_stored_is_continued_by_the_client(strategy: Strategy, owner: Strategy) -> None:
    view = replace(chain_view(is_stored=False, strategy=strategy), confirmed_head=ROOT)
    assert make_continuation_state(view) == ConversationState(owner, view.path, view.path.head)


def test_the_conversation_of_a_response_is_continued_only_by_its_own_handle() -> None:
    view = chain_view(conversation_id="conv_1", strategy=Strategy.CONVERSATION)
    of_conversation = replace(view, handle="conv_1")
    assert make_continuation_state(of_conversation) == ConversationState(
        Strategy.CONVERSATION, view.path, view.path.head, "conv_1"
    )
    assert make_continuation_state(view) == ConversationState(Strategy.CHAIN, view.path, view.path.head, "resp_2")


def test_a_response_without_an_answer_is_continued_from_the_one_before_it() -> None:
    view = chain_view()
    unanswered = replace(view, path=view.path.first(3), confirmed_head=view.path.first(2).head)
    assert make_continuation_state(unanswered) == ConversationState(
        Strategy.CHAIN, view.path.first(3), view.path.first(2).head, "resp_1"
    )


def test_a_history_with_a_deleted_item_has_no_next_request() -> None:
    view = replace(chain_view(), unreadable_head=chain_view().path.head)
    with pytest.raises(ItemDeleted) as caught:
        make_continuation_state(view)
    assert caught.value.key == view.path.head


PARAMETERS: Mapping[str, Json] = {
    "instructions": "Be kind.",
    "temperature": 0.5,
    "generate": False,
    "background": True,
    "ignored": ["seed"],
    "convo.provider": "far",
}


def test_the_parameters_and_instructions_of_the_last_response_are_repeated() -> None:
    view = chain_view(parameters=PARAMETERS)
    assert (get_repeated_parameters(view), get_instructions(view)) == ({"temperature": 0.5}, "Be kind.")
    assert find_current_link(view) == view.links[1]


@pytest.mark.parametrize(
    ("view", "instructions"),
    [
        (replace(chain_view(parameters=PARAMETERS), session=SESSION), "Be brief."),
        (replace(chain_view(parameters=PARAMETERS), session=replace(SESSION, instructions=None)), None),
        (replace(chain_view(parameters=PARAMETERS), current_link_id=None), None),
        (chain_view(parameters={"instructions": [user_message("Be kind.")]}), None),
        (chain_view(), None),
    ],
)
def test_a_session_repeats_no_parameters(view: ConversationView, instructions: str | None) -> None:
    parameters = {name: value for name, value in get_repeated_parameters(view).items() if name != "instructions"}
    assert (parameters, get_instructions(view)) == ({}, instructions)


# -- the next request ------------------------------------------------------------------------------

TOOL = {"type": "function", "name": "tea", "parameters": {}}
OPTIONS = RequestOptions("openai/gpt-4o", "gpt-4o", "Be brief.", {"tools": [TOOL], "temperature": 0.5, "seed": 7})


class HttpEndpoint:
    """An endpoint at `url`; it runs in this process if that is None."""

    def __init__(self, url: str | None) -> None:
        self._url = url

    def build_http_request(self, body: Mapping[str, Json]) -> HttpRequest | None:
        return HttpRequest(self._url, {**body, "stream": True}, {"Authorization": "{key}"}) if self._url else None


def make_state(strategy: Strategy, handle: str | None = None) -> ConversationState:
    """Two confirmed items and an unconfirmed one."""
    path = Path(ROOT).append([user_message("one"), assistant_message("first"), user_message("two")])
    return ConversationState(strategy, path, path.first(2).head, handle)


class CountLog:
    """A counter of tokens; `bodies` are the requests that it counted."""

    def __init__(self, count: int | None = None) -> None:
        self.count, self.bodies = count, list[Mapping[str, Json]]()

    async def __call__(self, body: Mapping[str, Json]) -> int | None:
        self.bodies.append(body)
        return self.count


def part_rows(usage: ContextUsage) -> list[tuple[str, int]]:
    return [(part.name, part.item_count) for part in usage.parts]


async def test_the_next_request_of_a_chain_sends_only_new_items_to_a_server() -> None:
    state, counter = make_state(Strategy.CHAIN, "resp_1"), CountLog(77)
    request = await build_next_request(
        "mine",
        state,
        [user_message("three")],
        OPTIONS,
        cast(Endpoint, HttpEndpoint("https://a/v1/responses")),
        counter,
        key_env="A_KEY",
        windows={"openai/gpt-4o": ContextLimits(1000, 100)},
    )
    body = {
        "model": "gpt-4o",
        "instructions": "Be brief.",
        "input": [user_message("two"), user_message("three")],
        "previous_response_id": "resp_1",
        "tools": [TOOL],
        "temperature": 0.5,
        "seed": 7,
    }
    usage = request.context_usage
    assert (request.handle, request.strategy, request.owner_handle, request.prepended_nodes) == (
        "mine",
        Strategy.CHAIN,
        "resp_1",
        tuple(state.path.first(2).nodes),
    )
    assert (request.model, request.url, request.body, request.headers, request.key_env) == (
        "openai/gpt-4o",
        "https://a/v1/responses",
        {**body, "stream": True},
        {"Authorization": "{key}"},
        "A_KEY",
    )
    assert part_rows(usage) == [("tools", 1), ("instructions", 1), ("held by resp_1", 2), ("input", 2)]
    assert (usage.total, usage.free_tokens) == ((77, False), 923)
    assert counter.bodies == [{name: body[name] for name in body if name not in ("temperature", "seed")}]


async def test_the_next_request_of_a_session_has_the_whole_history_and_no_url() -> None:
    options = replace(OPTIONS, model="openai/gpt-4.1-mini")
    request = await build_next_request(
        "mine", make_state(Strategy.SESSION), [], options, cast(Endpoint, HttpEndpoint(None)), skip_remote_count
    )
    assert (request.owner_handle, request.prepended_nodes, request.url, request.headers, request.key_env) == (
        None,
        (),
        None,
        {},
        None,
    )
    assert request.body["input"] == [user_message("one"), assistant_message("first"), user_message("two")]
    assert request.body["store"] is False
    assert part_rows(request.context_usage) == [("tools", 1), ("instructions", 1), ("input", 3)]
    assert request.context_usage.window
    assert request.context_usage.window.context == 1_047_576


async def test_a_chain_that_has_no_response_yet_names_no_owner() -> None:
    state = replace(make_state(Strategy.CHAIN), confirmed_head=ROOT)
    request = await build_next_request(
        "mine", state, [], OPTIONS, cast(Endpoint, HttpEndpoint(None)), skip_remote_count
    )
    assert (request.owner_handle, request.prepended_nodes, len(request.body["input"])) == (None, (), 3)


async def test_an_input_that_the_agents_chose_is_sent_as_it_is() -> None:
    chosen = RequestInput([user_message("only this")], 1, {"store": False})
    request = await build_next_request(
        "mine",
        make_state(Strategy.SESSION),
        [user_message("three")],
        OPTIONS,
        cast(Endpoint, HttpEndpoint(None)),
        skip_remote_count,
        request_input=chosen,
    )
    assert request.body["input"] == [user_message("only this")]
    usage = await measure_context_window(make_state(Strategy.SESSION), OPTIONS, skip_remote_count, request_input=chosen)
    assert part_rows(usage) == [("tools", 1), ("instructions", 1), ("your messages", 1)]


@pytest.mark.parametrize("strategy", [Strategy.CHAIN, Strategy.SESSION])
async def test_the_context_window_has_the_items_of_the_owner_and_of_the_client(strategy: Strategy) -> None:
    counter = CountLog(50)
    usage = await measure_context_window(
        make_state(strategy, "resp_1"), OPTIONS, counter, {"openai/gpt-4o": ContextLimits(60, 10)}
    )
    assert part_rows(usage) == [("tools", 1), ("instructions", 1), ("your messages", 2), ("answers", 1)]
    assert (usage.total, usage.free_tokens, len(counter.bodies)) == ((50, False), 10, 1)
    assert "temperature" not in counter.bodies[0]


async def test_the_tokens_of_an_empty_conversation_are_not_counted_by_an_endpoint() -> None:
    counter = CountLog(50)
    usage = await measure_context_window(
        ConversationState(Strategy.SESSION, Path(ROOT), ROOT), RequestOptions("openai/gpt-4o", "gpt-4o"), counter
    )
    assert (usage.parts, usage.total.tokens, counter.bodies) == ((), 0, [])


# -- requests that were sent -----------------------------------------------------------------------


def test_a_request_of_a_chain_is_rebuilt_from_its_link() -> None:
    view = chain_view(parameters={**PARAMETERS, "include": ["x"]}, scope=REMOTE, model="openai/gpt-4o")
    assert rebuild_request(view, None) == SentRequest(
        name="resp_2",
        model="openai/gpt-4o",
        body={
            "model": "gpt-4o",
            "instructions": "Be kind.",
            "input": [user_message("two")],
            "previous_response_id": "resp_1",
            "temperature": 0.5,
            "generate": False,
            "background": True,
            "include": ["x"],
        },
        prepended_items=(user_message("one"), assistant_message("first")),
        usage=Usage.from_json(USAGE),
    )


def test_a_request_of_the_embedded_endpoint_names_the_provider() -> None:
    assert rebuild_request(chain_view(), 2).body == {
        "model": "local/demo",
        "input": [user_message("two")],
        "previous_response_id": "resp_1",
    }


@pytest.mark.parametrize(
    ("number", "name"), [(None, "resp_3"), (1, "resp_1"), (3, "resp_3"), (-1, "resp_3"), (-3, "resp_1"), (0, None)]
)
def test_requests_are_numbered_along_the_branch(number: int | None, name: str | None) -> None:
    builder = build_chain(3)
    builder.turn("resp_fork", "other", "x", after="resp_1")
    view = builder.view("resp_3")
    if name:
        assert rebuild_request(view, number).name == name
    else:
        with pytest.raises(NotFound):
            rebuild_request(view, number)


@pytest.mark.parametrize(("number", "shown"), [(4, 4), (-4, -4), (0, 1)])
def test_the_error_of_an_unknown_request_names_the_last_number(number: int, shown: int) -> None:
    with pytest.raises(NotFound) as caught:
        rebuild_request(build_chain(3).view("resp_3"), number)
    assert (caught.value.kind, caught.value.handle) == ("request", f"resp_3@{shown}")
    assert caught.value.hint == "choose a request number up to 3; a file has none"


def test_a_view_without_a_response_has_no_request() -> None:
    with pytest.raises(NotFound) as caught:
        rebuild_request(replace(build_chain(1).view("resp_1"), current_link_id=None, handle="a.json"), None)
    assert caught.value.handle == "a.json@1"
    assert caught.value.hint == "choose a request number up to 0; a file has none"


def test_a_request_whose_input_was_deleted_cannot_be_rebuilt() -> None:
    view = chain_view()
    lost = replace(view.links[1], input_head=view.path.append([user_message("lost")]).head)
    with pytest.raises(NotFound) as caught:
        rebuild_link_request(lost, view)
    assert caught.value.message == "no complete input of response 'resp_2'"
    assert caught.value.hint == "choose another response: an item of this input was deleted"


BASE = chain_view().links[1]
ENCRYPTED = {"include": ["reasoning.encrypted_content"]}


@pytest.mark.parametrize(
    ("link", "fields"),
    [
        (replace(BASE, strategy=Strategy.CONVERSATION, conversation_id="conv_1"), {"conversation": "conv_1"}),
        (replace(BASE, strategy=Strategy.CONVERSATION, previous_response_id=None), {}),
        (replace(BASE, previous_response_id=None), {}),
        (replace(BASE, strategy=Strategy.SESSION, is_stored=False), {"store": False}),
        (replace(BASE, strategy=Strategy.SESSION), {"store": True}),
        (
            replace(BASE, strategy=Strategy.SESSION, is_stored=False, scope=REMOTE, model="openai/gpt-5"),
            {"model": "gpt-5", "store": False, **ENCRYPTED},
        ),
        (
            replace(BASE, strategy=Strategy.SESSION, is_stored=False, scope=REMOTE, model="openai/gpt-4o"),
            {"model": "gpt-4o", "store": False},
        ),
        (
            replace(BASE, strategy=Strategy.SESSION, is_stored=False, model="openai/gpt-5"),
            {"model": "openai/gpt-5", "store": False},
        ),
        (
            replace(BASE, scope=REMOTE, model="far/vendor/model"),
            {"model": "vendor/model", "previous_response_id": "resp_1"},
        ),
        (
            replace(BASE, parameters={"instructions": "Hi.", "ignored": ["seed"], "seed": 7}),
            {"instructions": "Hi.", "previous_response_id": "resp_1", "seed": 7},
        ),
    ],
)
def test_the_fields_of_a_request_name_the_state_that_it_continued(link: Link, fields: dict[str, Json]) -> None:
    assert rebuild_request_fields(link, PathIndex(root_key("local"))) == {"model": "local/demo", **fields}


def test_a_request_of_a_client_has_the_whole_history_in_its_input() -> None:
    items: list[Item] = [user_message("one"), assistant_message("first"), user_message("two")]
    request = rebuild_request(chain_view(strategy=Strategy.SESSION, sent_count=3), None)
    assert (request.body["input"], request.prepended_items) == (items, ())
