"""Two branches are compared by their heads: over HTTP, and on the inspector page in a real Chromium."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from convo.history.items import assistant_message, user_message
from convo.history.records import Link, Strategy
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Transaction
from tests.server.browser import HOSTILE_TEXT, accessibility, horizontal_overflow
from tests.server.gateway import RunningGateway, run_gateway
from tests.stores.chat_transactions import NOW, link, session

COMPARE = "/inspect/api/compare"


def usage(input_tokens: int, cached: int = 0) -> dict[str, Any]:
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": cached},
        "output_tokens": 10,
        "output_tokens_details": {"reasoning_tokens": 0},
    }


def store_branches(gateway: RunningGateway) -> None:
    """Store a chain with two branches, and a session of another tree with the same first question."""
    root, model = root_key("local"), "openai/gpt-5-mini"
    start = Path(root).append([user_message("What is rain? " * 1000), assistant_message("Water.")])
    left = start.append([user_message("And snow in Oslo?"), assistant_message("Ice.")])
    right = start.append([user_message("And snow in Rome?"), assistant_message("Rare."), user_message(HOSTILE_TEXT)])
    other = Path(root).append([user_message("What is hail?")])
    links = (
        link("resp_start", start.first(1).head, start.head, model=model, usage=usage(4000), created_at=NOW),
        link(
            "resp_left",
            left.first(3).head,
            left.head,
            parent_id="resp_start",
            model=model,
            usage=usage(4020, 4000),
            created_at=NOW + 1,
            strategy=Strategy.CHAIN,
        ),
        link(
            "resp_right",
            right.first(3).head,
            right.head,
            parent_id="resp_start",
            model=model,
            usage=usage(4030),
            created_at=NOW + 2,
            strategy=Strategy.CHAIN,
        ),
        link("resp_hail", other.head, other.head, session_id="ses_hail", created_at=NOW + 3),
    )
    appends = (
        AppendItems(root, left.items),
        AppendItems(start.head, right.items[2:]),
        AppendItems(root, other.items),
    )
    record = session(id="ses_hail", name="hail", head=other.head, confirmed_head=other.head, link_id="resp_hail")
    gateway.run(gateway.store.commit(Transaction(appends, links, record)))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(tmp_path_factory.mktemp("compare")) as running:
        store_branches(running)
        yield running


def compare(gateway: RunningGateway, a: str, b: str) -> Any:
    got = gateway.http.get(COMPARE, params={"a": a, "b": b})
    assert got.status_code == 200, got.text
    return got.json()


def test_two_branches_of_a_tree_have_a_first_difference_own_items_and_own_cost(gateway: RunningGateway) -> None:
    data = compare(gateway, "resp_left", "resp_right")
    assert (data["same"], data["first"]["at"], data["first"]["path"]) == (2, 2, "content[0].text")
    assert [row["mark"] for row in data["rest"]] == ["changed", "changed", "only b"]
    assert list(data["items"]["a"]) == ["2", "3"]
    assert list(data["items"]["b"]) == ["2", "3", "4"]
    assert [data[side]["requests"] for side in "ab"] == [2, 2]
    assert [data[side]["own_requests"] for side in "ab"] == [1, 1]
    assert [data[side]["own_usage"]["cached_tokens"] for side in "ab"] == [4000, 0]
    assert 0 < data["a"]["own_cost_usd"] < data["b"]["own_cost_usd"]
    assert data["tokens"]["same"] > 2000 > data["tokens"]["b"] > 0


def test_a_cache_that_was_missed_has_its_cost(gateway: RunningGateway) -> None:
    missed = compare(gateway, "resp_left", "resp_right")["request"]
    assert missed["requests"] == ["resp_left", "resp_right"]
    assert missed["expected_cached_tokens"] > 1024
    assert (missed["reported_cached_tokens"], missed["reported_input_tokens"]) == (0, 4030)
    assert missed["missed_cost_usd"] > 0
    assert compare(gateway, "resp_right", "resp_left")["request"]["missed_cost_usd"] == 0


def test_two_conversations_are_compared_by_content_and_a_branch_with_itself_is_equal(gateway: RunningGateway) -> None:
    data = compare(gateway, "hail", "resp_left")
    assert (data["same"], data["a"]["name"], data["a"]["items"]) == (0, "hail", 1)
    equal = compare(gateway, "resp_left", "resp_left")
    assert (equal["same"], equal["first"], equal["rest"], equal["omitted"]) == (4, None, [], 0)


@pytest.fixture(scope="module")
def long_branches(gateway: RunningGateway) -> None:
    """Store a chain of 2,003 requests, long_0 and so on, and a fork of its request long_1500."""
    root = root_key("local")
    path = Path(root).append([user_message("hi")])

    def request(name: str, parent: str | None, number: int) -> Link:
        return link(name, path.head, path.head, parent_id=parent, created_at=NOW + 10 + number, usage=usage(10))

    chain = [request(f"long_{number}", f"long_{number - 1}" if number else None, number) for number in range(2003)]
    requests = (*chain, request("long_fork", "long_1500", 3000))
    gateway.run(gateway.store.commit(Transaction((AppendItems(root, path.items),), requests)))


def test_a_branch_with_more_requests_than_are_read_is_partial(gateway: RunningGateway, long_branches: None) -> None:
    data = compare(gateway, "long_2002", "long_fork")
    assert [(data[side]["requests"], data[side]["is_partial"]) for side in "ab"] == [(2000, True), (1502, False)]
    assert [data[side]["own_requests"] for side in "ab"] == [502, 1]
    complete = compare(gateway, "long_1999", "long_fork")
    assert [(complete[side]["requests"], complete[side]["is_partial"]) for side in "ab"] == [
        (2000, False),
        (1502, False),
    ]


@pytest.mark.needs("chromium")
@pytest.mark.browser
def test_the_page_says_that_only_the_last_requests_of_a_branch_are_counted(
    page: Page, gateway: RunningGateway, long_branches: None
) -> None:
    page.goto(f"{gateway.root}/#compare/long_2002/long_fork")
    expect(page.locator("#compare-partial")).to_have_text("A has more requests: only its last 2,000 are counted.")
    page.goto(f"{gateway.root}/#compare/resp_left/resp_right")
    expect(page.locator("#compare-cache")).to_be_visible()
    expect(page.locator("#compare-partial")).to_have_count(0)


def test_a_long_difference_is_shown_in_part(gateway: RunningGateway) -> None:
    root = root_key("local")
    long = Path(root).append([user_message(f"line {number}") for number in range(250)])
    new_link = link("resp_long", long.head, long.head, created_at=NOW + 9)
    gateway.run(gateway.store.commit(Transaction((AppendItems(root, long.items),), (new_link,))))
    data = compare(gateway, "hail", "resp_long")
    assert (len(data["rest"]), data["omitted"], len(data["items"]["b"])) == (200, 50, 200)


@pytest.mark.parametrize(
    ("query", "status"),
    [({"a": "resp_left"}, 400), ({"a": "resp_left", "b": "resp_9"}, 404), ({"a": "", "b": ""}, 400)],
)
def test_a_comparison_needs_two_stored_branches(gateway: RunningGateway, query: dict[str, str], status: int) -> None:
    assert gateway.http.get(COMPARE, params=query).status_code == status


@pytest.mark.needs("chromium")
@pytest.mark.browser(by_default=True)
def test_two_checked_requests_of_the_tree_are_compared_at_an_address(page: Page, gateway: RunningGateway) -> None:
    page.goto(f"{gateway.root}/#/resp_left")
    button = page.get_by_role("button", name="Compare the two branches")
    expect(button).to_be_disabled()
    for name in ("resp_start", "resp_left", "resp_right"):  # a third box replaces the first
        page.get_by_role("checkbox", name=f"Compare {name}").check()
    assert not page.get_by_role("checkbox", name="Compare resp_start").is_checked()
    button.click()
    expect(page.locator("#compare-start")).to_contain_text("Common start: 2 items")
    assert page.url.endswith("#compare/resp_left/resp_right")
    expect(page.locator("#compare-start")).to_contain_text("The first difference is item 3, at content[0].text.")
    expect(page.locator("#compare-cache")).to_contain_text(
        "resp_right reported 0 cached of 4,030 input tokens. The missed"
    )
    assert [page.locator(f"section[aria-labelledby=only-{side}-title] article").count() for side in "ab"] == [2, 3]
    expect(page.locator(".changed del")).to_have_text("Oslo?")
    assert page.evaluate("document.activeElement.id") == "conversation-title"
    assert accessibility(page) == []
    page.set_viewport_size({"width": 360, "height": 900})
    assert horizontal_overflow(page) == 0
    page.get_by_role("button", name="Swap").click()
    expect(page.locator("#compare-cache")).to_contain_text("resp_left reported 4,000 cached")
    assert page.url.endswith("#compare/resp_right/resp_left")


@pytest.mark.needs("chromium")
@pytest.mark.browser
def test_two_conversations_are_compared_by_name_and_an_unknown_one_is_reported(
    page: Page, gateway: RunningGateway
) -> None:
    page.goto(gateway.root)
    page.get_by_role("link", name="Compare").click()
    page.get_by_role("textbox", name="A", exact=True).fill("hail")
    page.get_by_role("textbox", name="B", exact=True).fill("resp_nowhere")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("resp_nowhere")
    page.get_by_role("textbox", name="B", exact=True).fill("resp_left")
    page.get_by_role("button", name="Compare", exact=True).click()
    expect(page.locator("#compare-start")).to_contain_text("Common start: 0 items")
    page.reload()
    expect(page.locator("#compare-start")).to_contain_text("Common start: 0 items")
    assert page.get_by_role("textbox", name="A", exact=True).input_value() == "hail"
