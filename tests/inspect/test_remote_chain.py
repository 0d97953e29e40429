"""A chain is built from its responses and the input of the last one."""

from typing import Any

from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Link, Scope, Strategy
from convo.history.tree import Path
from convo.inspect.tree import build_remote_chain
from convo.inspect.view import compute_link_stats
from tests.inspect.conversation_builder import ROOT

REMOTE_SCOPE = Scope("https://api.example.com/v1")


def response(id_: str, before: str | None, *output: Item, **fields: Any) -> dict[str, Any]:
    return {
        "id": id_,
        "previous_response_id": before,
        "model": "gpt-x",
        "status": "completed",
        "created_at": 1_700_000_000,
        "output": list(output),
        "usage": None,
        **fields,
    }


def answer(id_: str, text: str) -> dict[str, Any]:
    return {**assistant_message(text), "id": id_, "status": "completed"}


def test_the_items_between_two_outputs_are_the_input_of_the_second() -> None:
    one, two, three = answer("msg_1", "yes"), answer("msg_2", "yes"), answer("msg_3", "yes")
    context = [user_message("a"), one, user_message("b"), user_message("c"), two, user_message("d")]
    responses = [response("resp_1", None, one), response("resp_2", "resp_1", two), response("resp_3", "resp_2", three)]

    chain = build_remote_chain(responses, context, ROOT, REMOTE_SCOPE, "openai")

    assert chain.path.items == (*context, three)
    stats = [compute_link_stats(link, chain.path_index) for link in chain.links]
    assert [(one.sent_count, one.input_count, one.input_preview) for one in stats] == [
        (1, 1, "a"),
        (2, 4, "c"),
        (1, 6, "d"),
    ]
    assert [link.head for link in chain.links] == [chain.path.nodes[index].key for index in (1, 4, 6)]
    assert [(link.parent_id, link.model, link.scope) for link in chain.links[1:]] == [
        ("resp_1", "openai/gpt-x", REMOTE_SCOPE),
        ("resp_2", "openai/gpt-x", REMOTE_SCOPE),
    ]


def test_an_answer_without_its_id_is_found_by_its_content() -> None:
    chain = build_remote_chain(
        [response("resp_1", None, answer("msg_1", "yes")), response("resp_2", "resp_1", answer("msg_2", "no"))],
        [user_message("a"), {"role": "assistant", "content": "yes"}, user_message("b")],
        ROOT,
        REMOTE_SCOPE,
        "openai",
    )
    assert [link.sent_count for link in chain.links] == [1, 1]


def test_reasoning_that_is_not_in_the_next_input_is_omitted() -> None:
    reasoning_item = {"type": "reasoning", "id": "rs_1", "summary": []}
    chain = build_remote_chain(
        [
            response("resp_1", None, reasoning_item, answer("msg_1", "yes")),
            response("resp_2", "resp_1", answer("msg_2", "no")),
        ],
        [user_message("a"), answer("msg_1", "yes"), user_message("b")],
        ROOT,
        REMOTE_SCOPE,
        "openai",
    )
    assert [link.sent_count for link in chain.links] == [1, 1]
    assert chain.links[0].head == chain.path.nodes[1].key


def test_an_output_that_the_endpoint_no_longer_lists_is_outside_of_the_path() -> None:
    chain = build_remote_chain(
        [response("resp_1", None, answer("msg_1", "yes")), response("resp_2", "resp_1", answer("msg_2", "no"))],
        [user_message("a"), user_message("b")],
        ROOT,
        REMOTE_SCOPE,
        "openai",
    )
    first, second = chain.links
    assert not chain.path.contains(first.head)
    assert compute_link_stats(first, chain.path_index).output_preview == "yes"
    assert (second.sent_count, chain.path.items[-1]["id"]) == (2, "msg_2")


def test_a_response_of_a_conversation_is_marked_as_such() -> None:
    chain = build_remote_chain(
        [response("resp_1", None, answer("msg_1", "yes"), conversation={"id": "conv_1"}, completed_at=1_700_000_003)],
        [user_message("a")],
        ROOT,
        REMOTE_SCOPE,
        "openai",
    )
    link = chain.links[0]
    assert (link.strategy, link.conversation_id, link.duration_s) == (Strategy.CONVERSATION, "conv_1", 3)


def test_a_long_chain_is_built_without_rereading_it_for_each_link() -> None:
    answers = [answer(f"msg_{number}", "yes") for number in range(3_000)]
    context: list[Item] = [user_message("0")]
    for number, one in enumerate(answers[:-1], 1):
        context += [one, user_message(str(number))]
    responses = [response(f"resp_{number}", None, one) for number, one in enumerate(answers)]
    chain = build_remote_chain(responses, context, ROOT, REMOTE_SCOPE, "openai")
    assert {link.sent_count for link in chain.links} == {1}
    assert len(chain.path) == 6_000


def test_a_response_becomes_a_link_with_its_fields() -> None:
    usage = {"input_tokens": 3}
    fields = {
        "created_at": 1_700_000_010,
        "completed_at": 1_700_000_012.5,
        "instructions": "Be brief.",
        "usage": usage,
        "error": {"code": "x"},
        "status": "incomplete",
        "store": False,
    }
    responses = [response("resp_1", None, answer("msg_1", "yes")), response("resp_2", "resp_1", **fields)]
    context = [user_message("a"), answer("msg_1", "yes"), user_message("b")]
    first, second = build_remote_chain(responses, context, ROOT, REMOTE_SCOPE, "openai").links
    path = Path(ROOT).append(context)
    assert second == Link(
        id="resp_2",
        input_head=path.head,
        head=path.head,
        sent_count=1,
        model="openai/gpt-x",
        strategy=Strategy.CHAIN,
        status="incomplete",
        created_at=1_700_000_010,
        parent_id="resp_1",
        scope=REMOTE_SCOPE,
        previous_response_id="resp_1",
        duration_s=2.5,
        parameters={"instructions": "Be brief."},
        usage=usage,
        error={"code": "x"},
        is_stored=False,
    )
    assert (first.parent_id, first.parameters, first.duration_s, first.is_stored) == (None, {}, None, True)


def test_missing_fields_of_a_response_have_defaults() -> None:
    (link,) = build_remote_chain([{"id": "resp_1"}], [user_message("a")], ROOT, REMOTE_SCOPE, "openai").links
    assert (link.model, link.status, link.created_at, link.conversation_id) == ("openai/unknown", "completed", 0, None)


def test_an_output_of_several_items_ends_where_its_items_end() -> None:
    call = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "c", "output": "4"}
    one, two = answer("msg_1", "let me see"), answer("msg_2", "yes")
    context = [user_message("a"), one, call, output, {**user_message("yes"), "id": "msg_x"}]
    responses = [response("resp_1", None, one, call), response("resp_2", "resp_1", two)]
    chain = build_remote_chain(responses, context, ROOT, REMOTE_SCOPE, "openai")
    assert [chain.path_index.depth(link.head) for link in chain.links] == [3, 6]
    assert [link.sent_count for link in chain.links] == [1, 2]
