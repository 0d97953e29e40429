"""The charts above the table of requests, in a real Chromium: state, filters, figures, live changes, hostile names."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

import pytest
from playwright.sync_api import Browser, Page, expect

from convo.history.items import user_message
from convo.history.tree import Path as ItemPath
from convo.history.tree import root_key
from convo.server.auth import KeysFile, create_api_key
from convo.stores.base import AppendItems, Transaction
from tests.server.browser import HOSTILE_TEXT, accessibility, open_page, stop_clock
from tests.server.gateway import RunningGateway, run_gateway
from tests.stores.chat_transactions import NOW, link, session

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]

CHART_TITLES = ["Requests", "Latency", "Tokens", "Cache hit rate", "Cost by model", "Cost by session"]

PRICED_MODEL = "openai/gpt-5-mini"


def store_samples(gateway: RunningGateway) -> None:
    """Store forty requests over forty minutes, every fourth of them failed, of a priced model and a hostile one."""
    root = root_key("local")
    path = ItemPath(root).append([user_message("hail")])
    requests = [
        link(
            f"resp_{number}",
            path.head,
            model=HOSTILE_TEXT if number % 2 else PRICED_MODEL,
            status="failed" if number % 4 == 0 else "completed",
            created_at=NOW + number * 60,
            duration_s=number / 4,
            session_id="ses_1" if number % 3 else None,
            usage={"input_tokens": 1000, "input_tokens_details": {"cached_tokens": 250}, "output_tokens": 10},
        )
        for number in range(40)
    ]
    record = session(name=HOSTILE_TEXT, head=path.head, confirmed_head=path.head)
    gateway.run(gateway.store.commit(Transaction((AppendItems(root, path.items),), tuple(requests), record)))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(tmp_path_factory.mktemp("charted") / "served") as running:
        store_samples(running)
        yield running


def open_charts(page: Page, address: str) -> None:
    page.goto(address)
    page.locator("#charts-summary").click()
    expect(page.locator("#charts .chart").first).to_be_visible()


def query_of(page: Page) -> dict[str, list[str]]:
    return parse_qs(urlsplit(page.url).query)


def test_the_section_is_closed_at_first_and_its_state_is_kept_in_the_address(
    browser: Browser, gateway: RunningGateway
) -> None:
    with open_page(browser) as page:
        fetched: list[str] = []
        page.on("request", lambda request: fetched.append(urlsplit(request.url).path))
        page.goto(gateway.root)
        expect(page.locator(".requests-table tbody tr")).to_have_count(40)
        assert page.locator("#charts").get_attribute("open") is None
        assert "/inspect/api/charts" not in fetched
        page.locator("#charts-summary").click()
        expect(page.locator("#charts svg.chart")).to_have_count(6)
        assert query_of(page) == {"charts": ["open"]}
        page.reload()
        expect(page.locator("#charts svg.chart")).to_have_count(6)
        page.locator("#charts-summary").click()
        expect(page.locator("#charts svg.chart").first).to_be_hidden()
        expect(page).to_have_url(f"{gateway.root}/")
        page.goto(f"{gateway.root}/?charts=yes")
        expect(page.locator(".requests-table tbody tr")).to_have_count(40)
        assert page.locator("#charts").get_attribute("open") is None


def table_texts(page: Page, chart_id: str) -> list[str]:
    """Return the rows of the table of a chart, each as one text."""
    rows: list[str] = page.eval_on_selector_all(
        f"#{chart_id}-table tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent).join('|'))"
    )
    return rows


@pytest.mark.browser(by_default=True)
def test_each_chart_has_a_title_axes_a_table_and_tooltips(browser: Browser, gateway: RunningGateway) -> None:
    with open_page(browser) as page:
        open_charts(page, gateway.root)
        assert page.locator("#charts figcaption").all_inner_texts() == CHART_TITLES
        assert page.get_by_role("img").count() == 6
        for name in CHART_TITLES:
            expect(page.get_by_role("img", name=name)).to_be_visible()
        requests = table_texts(page, "chart-0")
        assert len(requests) == 40 == page.locator("#chart-0 .chart-tip title").count()
        assert [row.partition("|")[2] for row in requests[:5]] == ["0|1", "1|0", "1|0", "1|0", "0|1"]
        assert [row.partition("|")[2] for row in table_texts(page, "chart-1")[:2]] == ["0.00 s|0.00 s", "0.25 s|0.25 s"]
        assert table_texts(page, "chart-2")[0].partition("|")[2] == "750|250|10"
        assert table_texts(page, "chart-3")[0].partition("|")[2] == "25 %"
        cost = 20 * (750 * 0.25 + 250 * 0.025 + 10 * 2) / 1e6
        assert f"{PRICED_MODEL}|${cost:.4f}|20|0" in table_texts(page, "chart-models")
        assert f"no session|at least ${7 * cost / 20:.4f}|14|7" in table_texts(page, "chart-sessions")
        tip = page.locator("#chart-2 .chart-tip title").first.text_content() or ""
        assert tip.endswith(": uncached input 750, cached input 250, output 10")
        labels = page.locator("#chart-0 text").all_text_contents()
        assert {"requests", "start of the request, in steps of 1 minute"} <= set(labels)
        assert page.locator("#chart-0 rect.chart-requests").count() == 30
        assert page.locator("#chart-0 rect.chart-errors").count() == 10
        expect(page.locator("#charts-total")).to_have_text(
            f"40 requests · 10 failed · 40,000 input · 25 % cached · 400 output · ${cost:.4f} · 20 without a price"
        )
        table = page.locator("#chart-0-table")
        table.locator("summary").click()
        expect(page.get_by_role("table", name="Requests", exact=True)).to_be_visible()


def test_the_charts_follow_the_filters(browser: Browser, gateway: RunningGateway) -> None:
    with open_page(browser) as page:
        open_charts(page, gateway.root)
        page.get_by_label("Status").select_option("failed")
        expect(page.locator("#charts-total")).to_contain_text("10 requests · 10 failed")
        assert query_of(page) == {"status": ["failed"], "charts": ["open"]}
        page.get_by_label("Search").fill("nothing of this")
        expect(page.locator("#charts-total")).to_have_text("No requests to chart.")
        assert accessibility(page) == []
        page.get_by_role("button", name="Clear filters").click()
        expect(page.locator("#charts-total")).to_contain_text("40 requests")


LUMINANCES_SCRIPT = """() => {
  const pixel = Object.assign(document.createElement("canvas"), { width: 1, height: 1 });
  const context = pixel.getContext("2d", { willReadFrequently: true });
  const luminance = (color) => {
    context.fillStyle = color;
    context.fillRect(0, 0, 1, 1);
    const parts = [...context.getImageData(0, 0, 1, 1).data].slice(0, 3).map((part) => part / 255);
    const [r, g, b] = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const names = ["requests", "errors", "p50", "p95", "input", "cached", "output", "cost"];
  const marks = names.map((name) => document.querySelector(`#charts .chart-${name}:not(.chart-path)`));
  const texts = [document.querySelector("#charts .chart text")];
  const fills = (nodes) => nodes.map((node) => luminance(getComputedStyle(node).fill));
  const canvas = luminance(getComputedStyle(document.body).backgroundColor);
  return { canvas, marks: fills(marks), texts: fills(texts) };
}"""


def contrast(first: float, second: float) -> float:
    return (max(first, second) + 0.05) / (min(first, second) + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_colours_have_contrast_and_axe_finds_nothing(
    browser: Browser, gateway: RunningGateway, scheme: Literal["light", "dark"]
) -> None:
    with open_page(browser, scheme=scheme) as page:
        open_charts(page, gateway.root)
        for summary in page.locator(".chart-figure summary").all():
            summary.click()
        assert accessibility(page) == []
        colours: Any = page.evaluate(LUMINANCES_SCRIPT)
        assert len(colours["marks"]) == 8
        assert min(contrast(mark, colours["canvas"]) for mark in colours["marks"]) >= 3
        assert min(contrast(text, colours["canvas"]) for text in colours["texts"]) >= 4.5


def test_a_new_request_appears_and_an_open_table_stays_open_with_the_focus(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "live") as gateway, open_page(browser) as page:
        gateway.create_response({"model": "echo", "input": "one"})
        open_charts(page, gateway.root)
        page.locator("#chart-0-summary").click()
        for number in range(2, 12):
            gateway.create_response({"model": "echo", "input": f"number {number}"})
        expect(page.locator("#charts-total")).to_contain_text("11 requests")
        expect(page.locator("#chart-0-table")).to_have_attribute("open", "")
        expect(page.locator("#chart-0-summary")).to_be_focused()
        starts: list[float] = page.evaluate(
            "performance.getEntriesByType('resource').filter(({ name }) => name.includes('/api/charts'))"
            ".map(({ startTime }) => startTime)"
        )
        assert len(starts) >= 2
        assert min(later - earlier for earlier, later in pairwise(starts)) >= 1000


def test_after_a_slow_reply_a_filter_is_charted_at_once_and_a_change_within_ten_seconds(
    browser: Browser, tmp_path: Path
) -> None:
    with run_gateway(tmp_path / "live") as gateway, open_page(browser) as page:
        stop_clock(page)
        store_samples(gateway)
        page.route("**/inspect/api/charts*", lambda _: None)
        page.goto(gateway.root)
        expect(page.locator(".requests-table tbody tr")).to_have_count(40)
        page.locator("#charts-summary").click()
        expect(page).to_have_url(re.compile("charts=open"))  # now the timer of the request is set
        with page.expect_request("**/inspect/api/charts*"):
            page.clock.run_for(1)
        page.clock.run_for(5000)
        page.unroute("**/inspect/api/charts*")  # sends the request that was held
        total = page.locator("#charts-total")
        expect(total).to_contain_text("40 requests")
        page.get_by_label("Status").select_option("failed")
        expect(page.locator(".requests-table tbody tr")).to_have_count(10)
        page.clock.run_for(1)
        expect(total).to_contain_text("10 requests")
        page.get_by_label("Status").select_option("")
        expect(page.locator(".requests-table tbody tr")).to_have_count(40)
        page.route("**/inspect/api/charts*", lambda _: None)
        with page.expect_request("**/inspect/api/charts*"):
            page.clock.run_for(1)
        page.clock.run_for(5000)
        page.unroute("**/inspect/api/charts*")
        expect(total).to_contain_text("40 requests")
        gateway.create_response({"model": "echo", "input": "one more"})
        expect(page.get_by_role("status")).to_have_text("Up to date")
        page.clock.run_for(2000)  # the table
        expect(page.locator(".requests-table tbody tr")).to_have_count(41)
        page.clock.run_for(10_000)
        expect(total).to_contain_text("41 requests")


def test_with_keys_the_charts_use_the_key(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob = (create_api_key(file, name) for name in ("alice", "bob"))
    with run_gateway(tmp_path / "keyed", keys=KeysFile(file)) as gateway, open_page(browser) as page:
        for key, count in ((alice, 2), (bob, 1)):
            for number in range(count):
                request = {"model": "echo", "input": f"number {number}"}
                gateway.create_response(request, headers={"authorization": f"Bearer {key}"})
        page.goto(f"{gateway.root}/?charts=open")
        for key, text in ((alice, "2 requests"), (bob, "1 request ")):
            page.get_by_label("Key").fill(key)
            page.keyboard.press("Enter")
            expect(page.locator("#charts-total")).to_contain_text(text)
            page.get_by_role("button", name="Forget the key").click()


def test_an_error_of_the_charts_is_shown_and_the_table_stays(browser: Browser, gateway: RunningGateway) -> None:
    with open_page(browser) as page:
        body = json.dumps({"error": {"message": "The store is not available."}})
        page.route("**/inspect/api/charts*", lambda route: route.fulfill(status=403, body=body))
        page.goto(f"{gateway.root}/?charts=open")
        expect(page.locator("#charts")).to_contain_text("The store is not available.")
        expect(page.locator(".requests-table tbody tr")).to_have_count(40)
