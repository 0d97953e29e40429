"""Each screen of the inspector page fits a phone: no horizontal scrolling, and rows of at most three lines."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from convo.server.auth import KeysFile, create_api_key
from tests.docs.page_screens import SCREENS, PageStore
from tests.server.browser import accessibility, horizontal_overflow, open_page
from tests.server.gateway import RunningGateway, run_gateway

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]

WRAPPED_TEXTS_SCRIPT = """() => {
  const isWrapped = (node) => {
    const range = document.createRange();
    range.selectNodeContents(node);
    const tops = [...range.getClientRects()].filter((box) => box.width > 1).map((box) => box.top);
    return Math.max(...tops) - Math.min(...tops) > 0.9 * parseFloat(getComputedStyle(node).lineHeight);
  };
  const names =
    "#views a, body > header button, .tabs button, .facts, .facts > *, .status-label, td.number, .fact, .digest, " +
    "article > :is(h3, h4, h5)";
  return [...document.querySelectorAll(names)].filter(isWrapped).map((node) => node.textContent);
}"""
"""Returns the names of views and tabs, facts, figures, digests and headings of items that take more than one line."""


CUT_CHOICES_SCRIPT = """selects => selects.filter((select) => {
  const copy = select.cloneNode();
  copy.append(select.selectedOptions[0].cloneNode(true));
  copy.style.position = "absolute";
  copy.style.width = "max-content";
  select.after(copy);
  const isCut = copy.offsetWidth > select.offsetWidth;
  copy.remove();
  return isCut;
}).map((select) => select.id)"""
"""Returns the ids of fields that are narrower than their choice needs."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunningGateway, str]]:
    """Run a gateway with the store of the screenshots; also return its key."""
    folder = tmp_path_factory.mktemp("screens")
    key = create_api_key(folder / "keys", "local")
    with run_gateway(folder / "full", keys=KeysFile(folder / "keys")) as gateway:
        PageStore(gateway).write()
        yield gateway, key


def open_screen(page: Page, served: tuple[RunningGateway, str], name: str) -> None:
    """Open a screen of the screenshots with the key of the store."""
    gateway, key = served
    address, element, steps = SCREENS[name]
    page.add_init_script(f"sessionStorage.setItem('convo key', {json.dumps(key)})")
    page.goto(f"{gateway.root}/{address}")
    page.locator(element).first.wait_for(state="attached")
    steps(page)


@pytest.mark.parametrize("name", SCREENS)
def test_no_screen_scrolls_sideways_or_breaks_a_name_at_360_pixels(
    browser: Browser, served: tuple[RunningGateway, str], name: str
) -> None:
    with open_page(browser, width=360) as page:
        open_screen(page, served, name)
        assert horizontal_overflow(page) == 0
        assert page.evaluate(WRAPPED_TEXTS_SCRIPT) == []


@pytest.mark.parametrize("width", [360, 640])
def test_a_row_of_the_list_has_at_most_three_lines(
    browser: Browser, served: tuple[RunningGateway, str], width: int
) -> None:
    with open_page(browser, width=width) as page:
        open_screen(page, served, "home")
        rows = page.locator("#request-rows tbody tr")
        expect(rows).to_have_count(50)
        heights = rows.evaluate_all(
            "rows => rows.map((row) => row.clientHeight / parseFloat(getComputedStyle(row).lineHeight))"
        )
        assert max(heights) < 3.7  # three lines with their padding
        first_facts = page.locator("tbody .facts").first
        assert first_facts.evaluate("facts => facts.offsetHeight < 2 * parseFloat(getComputedStyle(facts).lineHeight)")
        clipped = page.locator("tbody .facts").evaluate_all(
            "all => all.filter((facts) => facts.getBoundingClientRect().right > innerWidth).length"
        )
        assert clipped == 0


def test_a_row_of_the_comparison_has_at_most_two_lines_at_360_pixels(
    browser: Browser, served: tuple[RunningGateway, str]
) -> None:
    with open_page(browser, width=360) as page:
        open_screen(page, served, "compare")
        rows = page.locator(".branches tbody tr")
        heights = rows.evaluate_all(
            "rows => rows.map((row) => row.clientHeight / parseFloat(getComputedStyle(row).lineHeight))"
        )
        assert len(heights) == 9
        assert max(heights) < 2.9  # two lines with their padding
        models = rows.nth(1).locator("td")
        assert models.all_text_contents() == ["openai/gpt-6.1-terra", "openai/gpt-5"]
        assert page.evaluate(WRAPPED_TEXTS_SCRIPT) == []
        assert accessibility(page) == []


@pytest.mark.parametrize("width", [360, 640])
def test_a_field_of_the_filters_shows_its_choice_in_full(
    browser: Browser, served: tuple[RunningGateway, str], width: int
) -> None:
    with open_page(browser, width=width) as page:
        open_screen(page, served, "home-filtered")
        assert page.locator("#filters select").evaluate_all(CUT_CHOICES_SCRIPT) == []


def test_conversations_are_a_table_that_is_sorted_and_searched_and_an_open_one_has_a_list_at_its_side(
    browser: Browser, served: tuple[RunningGateway, str]
) -> None:
    with open_page(browser) as page:
        open_screen(page, served, "conversations")
        titles, turns = page.locator("tbody th a"), page.get_by_role("columnheader", name="Turns")
        expect(titles.first).to_have_text("refund B7")
        turns.get_by_role("button").click()
        expect(turns).to_have_attribute("aria-sort", "descending")
        expect(titles.first).to_have_text("refunds")
        assert accessibility(page) == []
        page.get_by_role("searchbox").fill("oslo")
        expect(page.get_by_role("status").last).to_contain_text("searched the names and messages")
        expect(titles.first).to_have_text("oslo")
        page.get_by_role("link", name="oslo", exact=True).click()
        page.locator("#runs").wait_for()
        assert page.locator("#main").evaluate("main => main.offsetLeft") > 100
        assert horizontal_overflow(page) == 0


def test_the_list_shows_the_id_of_a_conversation_only_where_the_title_does_not_distinguish_it(
    browser: Browser, tmp_path: Path
) -> None:
    with run_gateway(tmp_path / "served") as gateway, open_page(browser) as page:
        texts = ("hi", "hi", "What is rain?")
        ids = [gateway.create_response({"model": "echo", "input": text}).json()["id"] for text in texts]
        page.goto(f"{gateway.root}/#conversations")
        expect(page.locator("tbody th a")).to_have_text(["What is rain?", "hi", "hi"])
        page.get_by_role("link", name="What is rain?").click()
        expect(page.locator("#list .id")).to_have_text([ids[1], ids[0]])
        expect(page.locator("#list").get_by_role("link", name="What is rain?")).to_have_attribute("title", ids[2])


def test_an_empty_result_offers_all_requests(browser: Browser, served: tuple[RunningGateway, str]) -> None:
    with open_page(browser, width=360) as page:
        open_screen(page, served, "home-nothing")
        page.get_by_role("button", name="Show all requests").click()
        expect(page.locator("#request-rows tbody tr")).to_have_count(50)
        expect(page.locator("#filters-toggle")).to_have_text("Filters")
        assert accessibility(page) == []
