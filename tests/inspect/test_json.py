"""The documented JSON of views, links and items."""

import json

import pytest

from convo.config.sections import Price
from convo.history.records import Scope, Strategy
from convo.inspect.report import MAX_INLINE_PATH_KEYS, build_conversation_report
from convo.report import to_json
from tests.inspect.conversation_builder import START_TIME, USAGE, ConversationBuilder, build_chain, keys


def test_links_and_items_have_the_documented_json() -> None:
    builder = build_chain(2)
    builder.turn("resp_b", "other", "way", after="resp_1")
    view = builder.view("resp_2")
    path, fork = builder.paths["resp_2"], builder.paths["resp_b"]

    assert to_json(build_conversation_report(view)) == {
        "handle": "resp_2",
        "strategy": "chain",
        "endpoint": "embedded",
        "head": path.head,
        "items": {node.key: node.item for node in (*path.nodes, *fork.nodes[2:])},
        "links": [
            {
                "response_id": "resp_1",
                "previous_response_id": None,
                "conversation_id": None,
                "model": "local/demo",
                "provider": "local",
                "status": "completed",
                "created_at": START_TIME,
                "sent": keys(path, 1),
                "saw": keys(path, 1),
                "output": keys(path, 2),
                "usage": USAGE,
                "resent_tokens": None,
                "cost_usd": None,
                "children": ["resp_2", "resp_b"],
            },
            {
                "response_id": "resp_2",
                "previous_response_id": "resp_1",
                "conversation_id": None,
                "model": "local/demo",
                "provider": "local",
                "status": "completed",
                "created_at": START_TIME + 60,
                "sent": keys(path, 3),
                "saw": keys(path, 1, 2, 3),
                "output": keys(path, 4),
                "usage": USAGE,
                "resent_tokens": 12,
                "cost_usd": None,
                "children": [],
            },
            {
                "response_id": "resp_b",
                "previous_response_id": "resp_1",
                "conversation_id": None,
                "model": "local/demo",
                "provider": "local",
                "status": "completed",
                "created_at": START_TIME + 120,
                "sent": keys(fork, 3),
                "saw": keys(fork, 1, 2, 3),
                "output": keys(fork, 4),
                "usage": USAGE,
                "resent_tokens": 12,
                "cost_usd": None,
                "children": [],
            },
        ],
        "total": {
            "requests": 2,
            "input_tokens": 24,
            "cached_tokens": 8,
            "output_tokens": 18,
            "reasoning_tokens": 4,
            "resent_tokens": 12,
            "cost_usd": None,
            "known_cost_usd": None,
            "unpriced": 2,
        },
        "other_requests": {
            "requests": 1,
            "input_tokens": 12,
            "cached_tokens": 4,
            "output_tokens": 9,
            "reasoning_tokens": 2,
            "resent_tokens": 12,
            "cost_usd": None,
            "known_cost_usd": None,
            "unpriced": 1,
        },
    }


def test_requests_without_a_price_do_not_hide_the_cost_of_the_others() -> None:
    builder = build_chain(2)
    builder.turn("resp_3", "more", "answer", after="resp_2", model="nobody/knows")
    total = build_conversation_report(builder.view("resp_3", prices={"local/demo": Price(1.0, 10.0, 0.5)})).total
    cost = 2 * (8 * 1.0 + 4 * 0.5 + 9 * 10.0) / 1_000_000
    assert total
    assert (total.cost_usd, total.unpriced_count) == (None, 1)
    assert total.known_cost_usd == pytest.approx(cost)


def test_children_are_null_if_forks_may_be_unknown() -> None:
    report = build_conversation_report(build_chain(2).view("resp_2", has_all_forks=False))
    assert [link.children for link in report.links] == [None, None]


def test_a_remote_endpoint_is_named_with_its_organization_and_project() -> None:
    scope = Scope("https://api.example.com/v1", "org", "proj")
    assert (
        build_conversation_report(build_chain(1).view("resp_1", scope=scope)).endpoint
        == "https://api.example.com/v1 (org, proj)"
    )
    assert build_conversation_report(build_chain(1).view("resp_1", scope=None)).endpoint is None


def test_a_long_history_is_named_by_its_last_key_and_can_be_resolved_through_parents() -> None:
    turns = MAX_INLINE_PATH_KEYS // 2 + 2
    builder = build_chain(turns)
    shape = to_json(build_conversation_report(builder.view(f"resp_{turns}")))
    path = builder.paths[f"resp_{turns}"]
    last = shape["links"][-1]

    assert last["saw"] == {"through": path.nodes[-2].key}
    assert last["sent"] == [path.nodes[-2].key]
    assert shape["links"][0]["saw"] == [path.nodes[0].key]
    keys = [last["saw"]["through"]]
    while shape["parents"][keys[-1]]:
        keys.append(shape["parents"][keys[-1]])
    assert keys[::-1] == list(path.keys[:-1])


def test_a_short_history_is_listed_without_parents() -> None:
    assert "parents" not in to_json(build_conversation_report(build_chain(3).view("resp_3")))


def test_output_grows_only_with_new_items_for_clients_that_resend_everything() -> None:
    def size(turns: int) -> int:
        builder = ConversationBuilder(Strategy.SESSION)
        for number in range(1, turns + 1):
            builder.turn(f"resp_{number}", "question", "answer", after=f"resp_{number - 1}" if number > 1 else None)
        return len(json.dumps(to_json(build_conversation_report(builder.view(f"resp_{turns}")))))

    assert size(800) < 2.2 * size(400)


def test_a_link_whose_history_lost_an_item_names_only_its_last_key() -> None:
    builder = build_chain(1)
    view = builder.view(None)
    empty = to_json(build_conversation_report(builder.view(None, path_index=type(view.path_index)(view.path.root))))
    link = empty["links"][0]
    assert link["saw"] == link["sent"] == {"through": builder.links[0].input_head}
    assert link["output"] == []
