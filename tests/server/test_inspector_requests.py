"""The table of requests on the inspector page, in a real Chromium: order, filters, keys, the pane, live rows."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from convo.config.settings import BUILT_IN_MODEL
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.history.tree import Path as ItemPath
from convo.history.tree import root_key
from convo.server.auth import KeysFile, create_api_key
from convo.stores.base import AppendItems, Transaction
from tests.cli.stored_chats import ChatWriter
from tests.server.browser import (
    HOSTILE_TEXT,
    MAX_DELAY_MS,
    OBSERVE_ROWS,
    accessibility,
    horizontal_overflow,
    open_page,
    shortest_delay_ms,
    stop_clock,
)
from tests.server.gateway import (
    HELD_MODEL,
    RunningGateway,
    run_gateway,
    run_gateway_with_chats,
    run_gateway_with_upstream,
)
from tests.stores.chat_transactions import link

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]


async def write_conversations(writer: ChatWriter) -> None:
    """Write a chain with a fork by another client, and a session with hostile text."""
    await writer.chat(Strategy.CHAIN, "monads", "What is a monad?", "And in Haskell, a language with many monads?")
    await writer.other_client("And in Rust?", previous_response_id="resp_1")
    await writer.chat(Strategy.SESSION, HOSTILE_TEXT, HOSTILE_TEXT)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway_with_chats(tmp_path_factory.mktemp("inspected"), write_conversations) as running:
        yield running


@pytest.fixture
def page(page: Page, gateway: RunningGateway) -> Page:
    page.goto(gateway.root)
    expect(page.locator("tbody tr")).to_have_count(4)
    return page


def row_ids(page: Page) -> list[str]:
    ids: list[str] = page.eval_on_selector_all("tbody th a", "links => links.map(link => link.id)")
    return [row_id.removeprefix("request-") for row_id in ids]


def query_of(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


@pytest.mark.browser
def test_a_row_has_the_figures_of_its_request(page: Page) -> None:
    row = page.locator("tbody tr").nth(2)
    assert [" ".join(text.split()) for text in row.locator("th, td").all_inner_texts()] == [
        "thread 1 And in Haskell, a language with many monads? monads",
        row.locator("time").first.inner_text(),
        "scripted/echo",
        "● done",
        "0.0 s",
        "16",
        "0",
        "8",
        "-",
    ]
    assert row.locator("td time").get_attribute("title") == row.locator("td time").evaluate(
        "node => { const at = new Date(node.dateTime); const two = (n) => String(n).padStart(2, '0');"
        " return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())}"
        " ${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}` }"
    )
    expect(row.locator("td time")).to_contain_text("days ago")


def test_the_order_is_kept_in_the_address(page: Page) -> None:
    assert row_ids(page) == ["resp_4", "resp_3", "resp_2", "resp_1"]
    page.get_by_role("button", name="Input").click()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Input")
    by_input = row_ids(page)
    assert by_input != ["resp_4", "resp_3", "resp_2", "resp_1"]
    page.get_by_role("button", name="Input").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Input")
    assert row_ids(page) == by_input[::-1]
    assert query_of(page) == {"sort": ["input"], "order": ["asc"]}
    page.reload()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Input")
    assert row_ids(page) == by_input[::-1]
    page.go_back()
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Input")


def test_the_order_by_title_is_alphabetical_at_first(page: Page) -> None:
    page.get_by_role("button", name="Request").click()
    expect(page.locator("th[aria-sort=ascending]")).to_contain_text("Request")
    assert query_of(page) == {"sort": ["title"], "order": ["asc"]}
    titles = page.locator("tbody th a").all_inner_texts()
    assert titles[1:] == ["And in Haskell, a language with many monads?", "And in Rust?", "What is a monad?"]
    assert accessibility(page) == []


def test_the_filter_lists_each_model_once_and_finds_its_requests_under_both_names(
    browser: Browser, tmp_path: Path
) -> None:
    root = root_key("local")
    path = ItemPath(root).append([user_message("hail")])
    links = tuple(link(f"resp_{n}", path.head, model=name) for n, name in enumerate(("local", BUILT_IN_MODEL, "echo")))
    with run_gateway(tmp_path / "served") as gateway, open_page(browser) as page:
        gateway.run(gateway.store.commit(Transaction((AppendItems(root, path.items),), links)))
        page.goto(gateway.root)
        options = page.get_by_label("Model").locator("option")
        expect(options).to_have_text(["all", "echo", BUILT_IN_MODEL])
        page.get_by_label("Model").select_option(BUILT_IN_MODEL)
        expect(page.locator("tbody tr")).to_have_count(2)
        page.goto(f"{gateway.root}/?model=local")
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(options).to_have_text(["all", "echo", "local"])
        expect(page.get_by_label("Model")).to_have_value("local")


def test_in_a_narrow_window_one_button_shows_the_filters_and_counts_the_active_ones(
    browser: Browser, gateway: RunningGateway
) -> None:
    with open_page(browser, width=360) as page:
        page.goto(f"{gateway.root}/?q=monad&from=2020-01-01T00:00&to=2030-01-01T00:00&sort=title")
        button = page.get_by_role("button", name="Filters: 2 active")
        expect(button).to_have_attribute("aria-expanded", "false")
        expect(page.get_by_label("Search")).to_be_hidden()
        assert page.locator("tbody tr").first.bounding_box()["y"] < 300  # type: ignore[index]
        button.press("Enter")
        expect(button).to_have_attribute("aria-expanded", "true")
        expect(page.get_by_label("Search")).to_be_visible()
        assert accessibility(page) == []
        assert horizontal_overflow(page) == 0
        page.get_by_role("button", name="Clear filters").click()
        expect(page.get_by_role("button", name="Filters", exact=True)).to_be_visible()
        expect(page.get_by_label("Search")).to_be_visible()
        page.set_viewport_size({"width": 1280, "height": 900})
        expect(page.locator("#filters-toggle")).to_be_hidden()
        expect(page.get_by_label("Search")).to_be_visible()


def test_filters_are_combined_and_kept_in_the_address(page: Page) -> None:
    search = page.get_by_label("Search")
    search.press_sequentially("monad")
    expect(page.locator("tbody tr")).to_have_count(1)
    expect(search).to_be_focused()
    page.get_by_label("Session").select_option("monads")
    page.get_by_label("Status").select_option("completed")
    expect(page.locator("tbody tr")).to_have_count(1)
    assert query_of(page) == {"q": ["monad"], "session": ["monads"], "status": ["completed"]}
    page.reload()
    expect(page.locator("tbody tr")).to_have_count(1)
    assert [page.get_by_label(name).input_value() for name in ("Search", "Session", "Status", "Model")] == [
        "monad",
        "monads",
        "completed",
        "",
    ]
    page.get_by_label("Status").select_option("failed")
    expect(page.get_by_text("No requests match these filters.")).to_be_visible()
    assert accessibility(page) == []
    page.get_by_role("button", name="Clear filters").click()
    expect(page.locator("tbody tr")).to_have_count(4)
    assert (query_of(page), search.input_value()) == ({}, "")


def test_an_address_with_unknown_values_shows_the_table(page: Page, gateway: RunningGateway) -> None:
    page.goto(f"{gateway.root}/?sort=colour&order=up&status=x&model=missing")
    expect(page.get_by_text("No requests match these filters.")).to_be_visible()
    assert page.get_by_label("Model").input_value() == "missing"


@pytest.mark.browser(by_default=True)
def test_keys_move_open_and_close(page: Page) -> None:
    page.keyboard.press("j")
    expect(page.locator("#request-resp_4")).to_be_focused()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("#request-resp_2")).to_be_focused()
    page.keyboard.press("k")
    expect(page.locator("#request-resp_3")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#detail-title")).to_be_focused()
    expect(page.locator("#detail-title")).to_have_text("And in Rust?")
    expect(page.get_by_role("tabpanel")).to_contain_text("What is a monad?")
    page.keyboard.press("j")
    expect(page.locator("#request-resp_2")).to_be_focused()
    expect(page.locator("#detail-title")).to_contain_text("And in Haskell")
    assert query_of(page) == {"request": ["resp_2"]}
    page.keyboard.press("Escape")
    expect(page.locator("#request-resp_2")).to_be_focused()
    expect(page.locator("#detail")).to_be_hidden()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog", name="Shortcuts")
    expect(dialog).to_be_visible()
    assert accessibility(page) == []
    page.keyboard.press("j")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    expect(page.locator("#request-resp_2")).to_be_focused()
    page.get_by_label("Search").press_sequentially("jk?")
    assert page.get_by_label("Search").input_value() == "jk?"
    expect(page.get_by_role("dialog")).to_have_count(0)


@pytest.mark.parametrize("width", [1280, 360])
def test_the_slash_key_moves_to_the_search(width: int, page: Page) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    page.keyboard.press("/")
    search = page.locator("#filter-q")
    expect(search).to_be_focused()
    page.keyboard.type("a/b")
    expect(search).to_have_value("a/b")
    page.keyboard.press("Escape")
    page.get_by_role("link", name="Compare").click()
    expect(page.locator("#compare-a")).to_be_visible()
    page.keyboard.press("/")  # no search on this page: the key is left to the browser
    expect(page.locator("#compare-a")).to_have_value("")


def test_a_request_opens_without_the_list_and_the_rows_stay(page: Page) -> None:
    page.evaluate("window.rows = [...document.querySelectorAll('tbody tr')]")
    page.route("**/inspect/api/requests?*", lambda route: None)  # the list is never answered
    page.locator("#request-resp_2").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("And in Haskell")
    expect(page.locator("tr.selected a")).to_have_attribute("id", "request-resp_2")
    page.locator("#request-resp_3").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("And in Rust?")
    expect(page.locator("tr.selected a[aria-current=true]")).to_have_attribute("id", "request-resp_3")
    expect(page.locator("tr.selected")).to_have_count(1)
    assert page.evaluate("rows.every((row) => row.isConnected)")
    page.unroute("**/inspect/api/requests?*")


@pytest.mark.browser
def test_the_rows_stay_when_a_tab_is_chosen_and_the_pane_is_closed(page: Page) -> None:
    page.evaluate("window.rows = [...document.querySelectorAll('tbody tr')]")
    page.locator("#request-resp_2").click()
    page.locator("#tab-raw").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("Request as text")
    expect(page.locator("#request-resp_3")).to_have_attribute("href", "?request=resp_3&tab=raw")
    page.keyboard.press("Escape")
    expect(page.locator("#detail")).to_be_hidden()
    expect(page.locator("#request-resp_2")).to_be_focused()
    expect(page.locator("#request-resp_3")).to_have_attribute("href", "?request=resp_3")
    assert page.evaluate("rows.every((row) => row.isConnected)")


@pytest.mark.browser
def test_a_tab_is_marked_at_once_and_its_content_and_the_closed_pane_are_drawn_after_the_frame(page: Page) -> None:
    page.locator("#request-resp_2").click()
    expect(page.get_by_role("tabpanel")).to_contain_text("And in Haskell")
    expect(page.locator("#detail-title")).to_be_focused()
    raw, panel_text = "document.querySelector('#tab-raw')", "document.querySelector('#tab-panel').textContent"
    before = page.evaluate(panel_text)
    state = f"[{raw}.ariaSelected, {raw} === document.activeElement, {panel_text}]"
    assert page.evaluate(f"({raw}.click(), {state})") == ["true", True, before]
    expect(page.get_by_role("tabpanel")).to_contain_text("Request as text")
    expect(page.locator("#tab-raw")).to_be_focused()
    closed = "document.querySelector('#detail-close').click(), document.querySelector('#detail').hidden"
    assert page.evaluate(f"({closed})") is False
    expect(page.locator("#detail")).to_be_hidden()
    expect(page.locator("#request-resp_2")).to_be_focused()
    expect(page.locator("tr.selected")).to_have_count(0)


@pytest.mark.browser
def test_the_first_rows_are_requested_before_the_other_modules_are_loaded(
    browser: Browser, gateway: RunningGateway
) -> None:
    with open_page(browser) as page:
        calls, held = list[str](), list[Route]()
        page.on("request", lambda request: calls.append(request.url.removeprefix(gateway.root)))
        page.route("**/inspector/page.js", lambda route: held.append(route))
        with page.expect_response("**/inspect/api/requests?limit=50"):
            page.goto(gateway.root, wait_until="commit")
        expect(page.locator("tbody")).to_have_count(0)
        held[0].continue_()
        expect(page.locator("tbody tr")).to_have_count(4)
        files = ["/", "/inspector/inspector.css", "/inspector/page.js", "/inspector/source.js"]
        assert sorted(call for call in calls if "/api/" not in call) == files


def test_only_the_rows_of_the_address_are_requested_at_first(browser: Browser, gateway: RunningGateway) -> None:
    with open_page(browser) as page:
        calls = list[str]()
        page.on("request", lambda request: calls.append(urlsplit(request.url).query))
        page.goto(f"{gateway.root}/?status=failed")
        expect(page.get_by_text("No requests match these filters.")).to_be_visible()
        assert [call for call in calls if "limit=" in call and "status=failed" not in call] == []


def test_the_keys_of_the_table_work_in_the_tree_of_a_conversation(page: Page, gateway: RunningGateway) -> None:
    page.goto(f"{gateway.root}/#/monads")
    expect(page.locator("#link-resp_3")).to_be_visible()
    page.keyboard.press("j")
    page.keyboard.press("j")
    expect(page.locator("#link-resp_3")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#link-title")).to_have_text("resp_3")
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="History")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("heading", name="Requests")).to_be_focused()


@pytest.mark.browser(by_default=True)
def test_the_pane_has_six_tabs(page: Page) -> None:
    page.locator("#request-resp_2").click()
    tabs = page.get_by_role("tab")
    expect(tabs).to_have_count(6)
    assert tabs.all_inner_texts() == ["Conversation", "Request", "What the model saw", "Response", "Diff", "Raw"]
    panel = page.get_by_role("tabpanel")
    expect(panel.locator("article")).to_have_count(4)
    tabs.first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.get_by_role("tab", name="Request")).to_be_focused()
    expect(panel.locator("pre").first).to_contain_text('"previous_response_id": "resp_1"')
    expect(panel.locator("article")).to_have_count(1)
    page.keyboard.press("ArrowRight")
    expect(panel.locator("article")).to_have_count(3)
    expect(panel).to_contain_text("2 items by the server")
    page.get_by_role("tab", name="Diff").click()
    expect(panel).to_contain_text("Common prefix: 1 item.")
    page.get_by_label("Compare with").select_option("resp_4")
    expect(panel).to_contain_text("Common prefix: 0 items.")
    assert query_of(page) == {"request": ["resp_2"], "tab": ["diff"], "compare": ["resp_4"]}
    page.get_by_label("Compare with").select_option("resp_1")
    expect(panel).to_contain_text("Common prefix: 1 item.")
    page.get_by_role("tab", name="Raw").click()
    tree = page.get_by_label("the response as JSON")
    expect(tree).to_contain_text('"resp_2"')
    expect(tree.get_by_text('"assistant"')).to_be_visible()
    tree.locator("summary").filter(has_text="output:").last.click()
    expect(tree.get_by_text('"assistant"')).to_be_hidden()
    for text in ("Request as text", "Response as text"):
        panel.get_by_text(text).click()
    expect(panel.locator("pre")).to_have_count(2)
    request, response = (json.loads(text) for text in panel.locator("pre").all_inner_texts())
    assert request["input"][0]["role"] == "user"
    assert (response["id"], response["status"], len(response["output"])) == ("resp_2", "completed", 1)
    assert query_of(page) == {"request": ["resp_2"], "tab": ["raw"], "compare": ["resp_1"]}
    page.reload()
    expect(page.get_by_role("tab", name="Raw")).to_have_attribute("aria-selected", "true")
    page.get_by_role("tab", name="Response").click()
    expect(panel).to_contain_text("Owner")
    page.get_by_role("link", name="Open the conversation").click()
    expect(page.locator("#link-title")).to_have_text("resp_2")
    expect(page.locator("#conversation-title")).to_have_text("monads")


def test_the_pane_is_beside_the_table_on_a_wide_screen_and_in_its_place_on_a_narrow_one(
    browser: Browser, gateway: RunningGateway
) -> None:
    for width in (1000, 999, 360):
        with open_page(browser, width=width) as page:
            page.goto(gateway.root)
            page.locator("#request-resp_2").click()
            expect(page.get_by_role("tabpanel")).to_be_visible()
            assert page.locator("tbody").is_visible() is (width == 1000)
            assert horizontal_overflow(page) == 0
            page.get_by_role("tab", name="Diff").click()
            headings = page.get_by_role("tabpanel").locator("h5").filter(has_text="Only in")
            expect(headings).to_have_count(2)
            headings.last.evaluate("heading => { heading.textContent += '_0123456789abcdef'.repeat(2) }")
            assert headings.last.evaluate("heading => heading.scrollWidth <= heading.clientWidth")
            page.get_by_role("button", name="Close").click()
            expect(page.locator("#request-resp_2")).to_be_focused()
            assert horizontal_overflow(page) == 0
            if width == 360:
                expect(page.locator("tbody .facts").first).to_be_visible()
                page.get_by_role("button", name="Filters").click()
                page.get_by_label("Order").select_option("input asc")
                expect(page.locator("tbody tr").first).to_contain_text("What is a monad?")


def test_a_printed_page_has_the_table_or_the_whole_request(page: Page) -> None:
    page.emulate_media(media="print")
    expect(page.locator("tbody")).to_be_visible()
    expect(page.locator(".filters")).to_be_hidden()
    expect(page.locator("#views")).to_be_hidden()
    page.emulate_media(media="screen")
    page.locator("#request-resp_2").click()
    expect(page.get_by_role("tabpanel").locator("article")).to_have_count(4)
    page.emulate_media(media="print")
    expect(page.get_by_role("tabpanel")).to_be_visible()
    expect(page.locator("tbody")).to_be_hidden()


# -- live ------------------------------------------------------------------------------------------


def test_a_request_appears_within_a_second_of_its_start_and_changes_to_done(browser: Browser, tmp_path: Path) -> None:
    with run_gateway_with_upstream(tmp_path / "live") as (gateway, upstream), open_page(browser) as page:
        gateway.create_response({"model": "echo", "input": "hi"})
        page.goto(gateway.root)
        expect(page.locator("tbody tr")).to_have_count(1)
        page.evaluate(OBSERVE_ROWS)

        def measure(attempt: int) -> float:
            title = f"Count the words {attempt}."
            request = {"model": HELD_MODEL, "input": title, "stream": True}
            with (
                upstream.hold_answer("word0", " word29") as may_end,
                gateway.http.stream("POST", "/v1/responses", json=request) as got,
            ):
                lines = got.iter_lines()
                next(lines)
                started_ms = time.time() * 1000
                expect(page.locator("tbody tr").first).to_contain_text("streaming")
                page.locator("tbody tr").first.click()
                expect(page.locator("#detail-text")).to_contain_text("word0")
                expect(page.get_by_role("status")).to_have_text("1 request in progress")
                assert accessibility(page) == []
                may_end.set()
                list(lines)
            ended_ms = time.time() * 1000
            expect(page.locator("tbody tr").first).to_contain_text("done")
            expect(page.get_by_role("tabpanel")).to_contain_text("word29")
            expect(page.get_by_role("status")).to_have_text("Up to date")
            seen: dict[str, float] = page.evaluate("seen")
            return max(seen[f"{title} ◐ streaming"] - started_ms, seen[f"{title} ● done"] - ended_ms)

        assert shortest_delay_ms(measure) < MAX_DELAY_MS


@pytest.mark.browser
def test_a_background_request_of_the_store_appears_and_an_open_json_stays_open(
    browser: Browser, tmp_path: Path
) -> None:
    with run_gateway_with_upstream(tmp_path / "live") as (gateway, upstream), open_page(browser) as page:
        first = gateway.create_response({"model": "echo", "input": "hi"}).json()["id"]
        page.goto(f"{gateway.root}/?request={first}")
        page.get_by_role("tabpanel").locator("article > details > summary").first.click()
        with upstream.hold_answer("one two"):
            request = {"model": HELD_MODEL, "input": "Later.", "background": True}
            response_id = gateway.create_response(request).json()["id"]
            row = page.locator("tbody tr").first
            expect(row).to_contain_text("in progress")
            expect(page.get_by_role("tabpanel").locator("article > details[open]")).to_have_count(1)
            gateway.http.post(f"/v1/responses/{response_id}/cancel")
            expect(row).to_contain_text("cancelled")
        expect(page.get_by_role("tabpanel").locator("article > details[open]")).to_have_count(1)


PLACES = """() => [...document.querySelectorAll("header #views, thead th, tbody tr:last-child > *")].map((element) => {
  const { x, y, width, height } = element.getBoundingClientRect();
  return [element.className, x, y, width, height].join(" ");
})"""
"""Returns the places of the parts of the header and of the table, and of the cells in its last row."""


@pytest.mark.parametrize("width", [360, 640, 1280])
def test_nothing_moves_when_a_request_ends(width: int, browser: Browser, tmp_path: Path) -> None:
    with run_gateway_with_upstream(tmp_path / "live") as (gateway, upstream), open_page(browser) as page:
        page.set_viewport_size({"width": width, "height": 800})
        gateway.create_response({"model": "scripted/echo", "input": "an earlier request"})
        with upstream.hold_answer("Yes.") as may_end:
            body = {"model": HELD_MODEL, "input": "Is it?", "background": True}
            gateway.create_response(body)
            page.goto(gateway.root)
            expect(page.locator("tbody tr")).to_have_count(2)
            expect(page.get_by_role("status")).to_have_text("1 request in progress")
            places = page.evaluate(PLACES)
            may_end.set()
            expect(page.get_by_role("status")).to_have_text("Up to date")
            assert page.evaluate(PLACES) == places


def test_without_the_feed_the_table_is_polled_every_second(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "live") as gateway, open_page(browser) as page:
        stop_clock(page)
        page.route("**/inspect/api/changes", lambda route: route.fulfill(status=403, body="{}"))
        gateway.create_response({"model": "echo", "input": "number 1"})
        with page.expect_response("**/inspect/api/changes"):
            page.goto(gateway.root)
        expect(page.locator("tbody tr")).to_have_count(1)
        for count in (2, 3, 4):
            gateway.create_response({"model": "echo", "input": f"number {count}"})
            page.clock.run_for(1000)
            expect(page.locator("tbody tr")).to_have_count(count)


CONTROLLED_FEED = """
const fetchFromServer = window.fetch;
window.fetch = async (path, init) => {
  if (!String(path).endsWith("inspect/api/changes")) return fetchFromServer(path, init);
  const event = new TextEncoder().encode("event: inspector.changed\\n\\n");
  return new Response(new ReadableStream({ start: (feed) => (window.reportChange = () => feed.enqueue(event)) }));
};"""
"""A page with it has a feed of changes that reports one when a test calls `reportChange`."""


def test_a_slow_reply_is_drawn_although_more_changes_arrive_meanwhile(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "live") as gateway, open_page(browser) as page:
        stop_clock(page)
        page.add_init_script(CONTROLLED_FEED)
        gateway.create_response({"model": "echo", "input": "number 1"})
        page.goto(gateway.root)
        rows = page.locator("tbody tr")
        expect(rows).to_have_count(1)
        held = list[Route]()
        page.route("**/inspect/api/requests?*", lambda route: held.append(route))
        gateway.create_response({"model": "echo", "input": "number 2"})
        while not held:  # the feed is opened after the rows are drawn
            page.evaluate("window.reportChange?.()")
            page.clock.run_for(100)
        for _ in range(5):
            page.evaluate("reportChange()")
            page.clock.run_for(1000)
        assert len(held) == 1
        page.unroute("**/inspect/api/requests?*")  # sends the request that was held
        expect(rows).to_have_count(2)
        gateway.create_response({"model": "echo", "input": "number 3"})
        page.clock.run_for(1000)  # because of the changes meanwhile
        expect(rows).to_have_count(3)


def test_more_rows_are_added_and_stay_when_a_request_arrives(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "live") as gateway, open_page(browser) as page:
        for number in range(60):
            gateway.create_response({"model": "echo", "input": f"number {number}"})
        page.goto(gateway.root)
        expect(page.locator("tbody tr")).to_have_count(50)
        page.get_by_role("button", name="Show more").click()
        expect(page.locator("tbody tr")).to_have_count(60)
        expect(page.locator("tbody tr").nth(50).locator("a")).to_be_focused()
        expect(page.get_by_role("button", name="Show more")).to_have_count(0)
        gateway.create_response({"model": "echo", "input": "the newest"})
        expect(page.locator("tbody tr").first).to_contain_text("the newest")
        assert len(set(row_ids(page))) == len(row_ids(page)) >= 60


def test_with_keys_the_table_and_its_feed_use_the_key(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = create_api_key(file, "alice")
    with run_gateway(tmp_path / "keyed", keys=KeysFile(file)) as gateway, open_page(browser) as page:
        headers = {"authorization": f"Bearer {key}"}
        gateway.create_response({"model": "echo", "input": "one"}, headers=headers)
        page.goto(f"{gateway.root}/?q=one")
        page.get_by_label("Key").fill(key)
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        with page.expect_response("**/inspect/api/requests*"):
            gateway.create_response({"model": "echo", "input": "one more"}, headers=headers)
        expect(page.locator("tbody tr")).to_have_count(2)
        with page.expect_request("**/inspect/api/requests?limit=50") as first:
            page.goto(gateway.root)  # in the same tab, which keeps the key
        assert first.value.headers["authorization"] == f"Bearer {key}"
        expect(page.locator("tbody tr")).to_have_count(2)


# -- hostile text ----------------------------------------------------------------------------------


def test_an_attempt_without_a_response_can_be_opened(browser: Browser, tmp_path: Path) -> None:
    root = root_key("local")
    path = ItemPath(root).append([user_message("Are you there?")])
    request = link("try_1", path.head, status="failed", error={"message": "connection refused"})
    with run_gateway(tmp_path / "failed") as gateway, open_page(browser) as page:
        gateway.run(gateway.store.commit(Transaction((AppendItems(root, path.items),), (request,))))
        page.goto(f"{gateway.root}/?request=try_1&tab=response")
        expect(page.locator("tbody tr")).to_contain_text("✕ failed")
        expect(page.get_by_role("tabpanel")).to_contain_text("connection refused")
