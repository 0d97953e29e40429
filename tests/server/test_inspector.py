"""The inspector page in a real Chromium: served by a gateway, and as a file."""

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import pytest
from playwright.sync_api import Browser, Page, expect

from convo.compaction.window import summary_message
from convo.config.sections import Price
from convo.history.items import user_message
from convo.history.records import COMPACTION_CONTEXT_MANAGEMENT, Strategy
from convo.history.tree import Path as ItemPath
from convo.server.auth import KeysFile, create_api_key
from convo.server.inspector_data import build_inspector_data
from convo.server.pages import render_inspector_page
from tests.cli.agent_files import LOOK_UP, PAID_BACK, REFUND, agent_flags
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import DATABASE, ChatWriter, write_chats
from tests.command_runner import Launch
from tests.inspect.conversation_builder import ROOT, ConversationBuilder, build_chain
from tests.models.chat_server import ChatServer
from tests.server.browser import HOSTILE_TEXT, MARKUP, accessibility, horizontal_overflow, open_page, stop_clock
from tests.server.gateway import (
    HELD_MODEL,
    RunningGateway,
    run_gateway,
    run_gateway_with_chats,
    run_gateway_with_upstream,
)

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]


async def write_conversations(writer: ChatWriter) -> None:
    """Write a chain with a fork by another client, and a session with hostile text."""
    await writer.chat(Strategy.CHAIN, "monads", "What is a monad?", "And in Haskell?")
    await writer.other_client("And in Rust?", previous_response_id="resp_1")
    await writer.chat(Strategy.SESSION, HOSTILE_TEXT, HOSTILE_TEXT)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway_with_chats(tmp_path_factory.mktemp("inspected"), write_conversations) as running:
        yield running


@pytest.fixture
def page(page: Page, gateway: RunningGateway) -> Page:
    """The page of the server, with its list of conversations rendered."""
    page.goto(f"{gateway.root}/#conversations")
    expect(page.get_by_role("link", name="monads")).to_be_visible()
    return page


def open_as_file(folder: Path, data: Any, page: Page) -> None:
    file = folder / "page.html"
    file.write_text(render_inspector_page(data), encoding="utf-8")
    page.goto(file.as_uri())


def focused_id(page: Page) -> str:
    return str(page.evaluate("document.activeElement.id"))


# -- content --------------------------------------------------------------------------------------


@pytest.mark.browser(by_default=True)
def test_a_session_shows_its_owner_and_its_requests_as_a_tree(page: Page) -> None:
    page.get_by_role("link", name="monads").click()
    expect(page.get_by_role("heading", name="monads")).to_be_focused()
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(3)
    heads = [" ".join(text.split()) for text in rows.locator("th").all_inner_texts()]
    assert heads == [
        "● resp_1 What is a monad? → What is a monad?",
        "├─● resp_3 fork And in Rust? → And in Rust?",
        "@ resp_2 head And in Haskell? → And in Haskell?",
    ]
    cells = [row.locator("td").all_inner_texts()[:6] for row in rows.all()]
    assert [cell[:3] for cell in cells] == [
        ["chain", "full 1", "1"],
        ["chain", "delta 1", "3"],
        ["chain", "delta 1", "3"],
    ]
    expect(page.locator("dl").first).to_contain_text("the endpoint's Responses API")
    expect(page.locator("dl").first).to_contain_text("Total2 requests")
    expect(page.locator("dl").first).to_contain_text("Other requests1 request")
    widths = [float(bar.get_attribute("width") or 0) for bar in rows.first.locator("rect").all()]
    assert (len(widths), widths[2], min(widths[0], widths[1], widths[3]) > 0) == (4, 0, True)


def test_a_request_is_shown_beside_the_input_of_its_model_and_can_be_compared(
    page: Page, gateway: RunningGateway
) -> None:
    page.goto(f"{gateway.root}/#/monads/resp_2")
    expect(page.locator("#list [aria-current=page]")).to_have_text("monads")
    sent, model_input = (page.get_by_role("region", name=name) for name in ("Sent", "Model input"))
    expect(sent.locator("article")).to_have_count(1)
    expect(sent.locator("pre").first).to_contain_text('"previous_response_id": "resp_1"')
    notes = model_input.locator("article .note").all_inner_texts()
    assert [note.strip() for note in notes] == ["prepended by the server", "prepended by the server", "sent"]

    expect(page.get_by_text("Common prefix: 1 item.")).to_be_visible()
    page.get_by_label("Other request").select_option("resp_3")
    expect(page.get_by_text("Common prefix: 2 items.")).to_be_visible()
    expect(page.get_by_text("The request fields are equal.")).to_be_visible()
    assert [page.locator(f".changed {tag}").inner_text() for tag in ("del", "ins")] == ["Rust?", "Haskell?"]
    model_input.locator("summary").last.click()
    expect(model_input.locator(".json")).to_contain_text('text: "And in Haskell?"')


# -- keyboard and accessibility -------------------------------------------------------------------


def test_every_control_can_be_reached_with_the_keyboard(page: Page) -> None:
    skip = page.get_by_role("link", name="Skip to the content")
    for _ in range(10):
        page.keyboard.press("Shift+Tab")
        if skip.evaluate("link => link === document.activeElement"):
            break
    expect(skip).to_be_focused()
    monads = page.get_by_role("link", name="monads")
    for _ in range(20):
        page.keyboard.press("Tab")
        if focused_id(page) == monads.get_attribute("id"):
            break
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="monads")).to_be_focused()
    for _ in range(3):  # the chart, the tree, its first row
        page.keyboard.press("Tab")
    assert focused_id(page) == "link-resp_1"
    for key, response_id in (
        ("ArrowDown", "resp_3"),
        ("End", "resp_2"),
        ("ArrowUp", "resp_3"),
        ("Home", "resp_1"),
        ("End", "resp_2"),
    ):
        page.keyboard.press(key)
        assert focused_id(page) == f"link-{response_id}"
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="resp_2", exact=True)).to_be_focused()
    for _ in range(30):
        page.keyboard.press("Tab")
        if focused_id(page) == "other":
            break
    page.keyboard.press("ArrowDown")
    expect(page.get_by_text("Common prefix: 2 items.")).to_be_visible()
    assert focused_id(page) == "other"
    page.go_back()
    expect(page.get_by_role("heading", name="History")).to_be_visible()


COLOR_SCHEMES: list[tuple[Literal["light", "dark"], int, str, str]] = [
    ("light", 1280, "rgb(0, 0, 0)", "rgb(11, 87, 164)"),
    ("dark", 360, "rgb(255, 255, 255)", "rgb(138, 184, 240)"),
]


@pytest.mark.parametrize(
    ("address", "visible_text"),
    [
        ("", "And in Haskell?"),
        ("?request=resp_2", "prepended by the server"),
        ("?request=resp_2&tab=response", "Created by"),
        ("?request=resp_2&tab=raw", "created_at"),
        ("#conversations", "monads"),
        ("#/monads", "History"),
        ("#/monads/resp_2", "Common prefix"),
    ],
)
@pytest.mark.parametrize(("scheme", "width", "text_color", "outline_color"), COLOR_SCHEMES)
def test_the_page_is_accessible_in_light_and_dark_wide_and_narrow(
    browser: Browser,
    gateway: RunningGateway,
    scheme: Literal["light", "dark"],
    width: int,
    text_color: str,
    outline_color: str,
    address: str,
    visible_text: str,
) -> None:
    with open_page(browser, scheme=scheme, width=width) as page:
        page.goto(f"{gateway.root}/{address}")
        expect(page.get_by_text(visible_text).locator("visible=true").first).to_be_visible()
        assert accessibility(page) == []
        assert horizontal_overflow(page) == 0
        assert page.evaluate("getComputedStyle(document.body).color") == text_color
        page.keyboard.press("Tab")
        assert page.evaluate("getComputedStyle(document.activeElement).outlineColor") == outline_color


def test_a_conversation_of_long_items_is_compact_and_a_heading_has_no_ring(browser: Browser, tmp_path: Path) -> None:
    client = ConversationBuilder()
    long_text = "\n".join("many words in a line " * 8 for _ in range(60))
    for number in range(1, 10):
        client.turn(f"resp_{number}", long_text, long_text, after=f"resp_{number - 1}" if number > 1 else None)
    with open_page(browser) as page:
        open_as_file(tmp_path, build_inspector_data({"long": client.view("resp_9")}), page)
        expect(page.locator("main article")).to_have_count(18)
        assert page.evaluate("document.documentElement.scrollHeight") < 5_000
        heading = page.locator("#conversation-title")
        expect(heading).to_be_focused()
        assert heading.evaluate("node => getComputedStyle(node).outlineStyle") == "none"


def test_a_long_text_is_collapsed_and_stays_open_when_the_page_is_drawn_again(browser: Browser, tmp_path: Path) -> None:
    long_text = "\n".join(f"line {number}" for number in range(500))
    with run_gateway(tmp_path / "served") as running, open_page(browser) as page:
        first = running.create_response({"model": "echo", "input": long_text}).json()["id"]
        page.goto(f"{running.root}/#/{first}")
        last_line = page.get_by_text("line 499").first
        expect(page.get_by_role("button", name="Show all")).to_have_count(2)
        assert last_line.evaluate("node => node.parentElement.clientHeight") < 250
        assert page.evaluate("document.documentElement.scrollHeight") < 1_500
        assert accessibility(page) == []
        page.get_by_role("button", name="Show all (4,389 characters) of item 1").click()
        expect(page.get_by_role("button", name="Show less of item 1")).to_have_attribute("aria-expanded", "true")
        assert last_line.evaluate("node => node.parentElement.clientHeight") > 2_000
        running.create_response({"model": "echo", "input": "more", "previous_response_id": first})
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(page.get_by_role("button", name="Show less of item 1")).to_be_visible()
        expect(page.get_by_role("button", name="Show all")).to_have_count(1)
        page.emulate_media(media="print")
        assert page.locator(".collapsed").first.evaluate("node => node.clientHeight") > 2_000


@pytest.mark.needs("curl")
def test_an_empty_store_shows_how_to_send_the_first_request(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "served") as empty, open_page(browser, width=360) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto(empty.root)
        expect(page.get_by_text("No conversations yet. A conversation")).to_be_visible()
        assert accessibility(page) == []
        assert horizontal_overflow(page) == 0
        copied = {}
        for name in ("Base URL", "curl", "Python"):
            page.get_by_role("button", name=f"Copy {name}").click()
            expect(page.get_by_text("Copied").last).to_be_visible()
            copied[name] = page.evaluate("navigator.clipboard.readText()")
            assert copied[name] == page.get_by_role("group", name=name).inner_text()
        assert copied["Base URL"] == empty.url
        command = copied["curl"].replace('"local"', '"echo"')
        response = json.loads(subprocess.run(["sh", "-c", command], capture_output=True, check=True).stdout)
        assert response["output"][0]["content"][0]["text"] == "Say hello in French."
        program = copied["Python"].replace('"local"', '"echo"')
        printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        assert printed == "Say hello in French.\n"
        expect(page.locator("tbody tr")).to_have_count(2)
        expect(page.get_by_role("button", name="Copy curl")).to_have_count(0)


# -- responses in progress ------------------------------------------------------------------------


FIRST_TEXT, REST = "word0 word1", " word2 word3"
"""The answer of `continue_chain` while it is held, and the rest of it."""

USAGE = {"prompt_tokens": 12, "completion_tokens": 3}
"""The usage of `continue_chain`."""


@dataclass(frozen=True)
class LiveChain:
    """A gateway with a chain of one response, and the page of this response."""

    gateway: RunningGateway
    upstream: ChatServer
    page: Page
    response_id: str

    @property
    def address(self) -> str:
        return f"{self.gateway.root}/#/{self.response_id}"

    def answer(self, **more: Any) -> str:
        """Send a request that is answered at once; returns the id of its response."""
        return str(self.gateway.create_response({"model": "echo", "input": "more", **more}).json()["id"])

    def newest_id(self) -> str:
        return str(self.gateway.http.get("/inspect/api/requests").json()["data"][0]["id"])

    @contextmanager
    def continue_chain(self, **more: Any) -> Iterator[Callable[[], None]]:
        """Continue the chain by an answer of another client; the function ends the answer."""
        request = {"model": HELD_MODEL, "input": "go on", "previous_response_id": self.response_id, "stream": True}
        if not more.get("stream", True):
            with self.upstream.hold_answer(FIRST_TEXT, REST, usage=USAGE) as may_end, ThreadPoolExecutor(1) as pool:
                sent = pool.submit(self.gateway.create_response, {**request, **more})

                def end_unstreamed() -> None:
                    may_end.set()
                    assert sent.result().json()["status"] == "completed"

                try:
                    yield end_unstreamed
                finally:
                    may_end.set()
            return
        with (
            self.upstream.hold_answer(FIRST_TEXT, REST, usage=USAGE) as may_end,
            self.gateway.http.stream("POST", "/v1/responses", json={**request, **more}) as got,
        ):
            lines = got.iter_lines()
            next(lines)

            def end() -> None:
                may_end.set()
                assert list(lines)

            yield end


@pytest.fixture
def live(browser: Browser, tmp_path: Path) -> Iterator[LiveChain]:
    with run_gateway_with_upstream(tmp_path / "live") as (gateway, upstream), open_page(browser) as page:
        first = gateway.create_response({"model": "echo", "input": "hi"}).json()["id"]
        yield LiveChain(gateway, upstream, page, first)


def test_a_streamed_answer_grows_while_it_arrives_and_then_appears_in_the_tree(live: LiveChain) -> None:
    page = live.page
    page.goto(live.address)
    expect(page.locator("tbody tr")).to_have_count(1)
    running = page.locator("#running article")
    with live.continue_chain() as end:
        expect(running).to_contain_text(FIRST_TEXT)
        expect(running).not_to_contain_text(REST)
        expect(page.get_by_role("status")).to_have_text("1 response in progress")
        end()
    expect(page.locator("tbody tr.completed")).to_have_count(2)
    expect(page.locator("tbody tr").last).to_contain_text(f"go on → {FIRST_TEXT}{REST}")
    expect(running).to_have_count(0)
    expect(page.get_by_role("status")).to_contain_text("Up to date")


def test_the_page_of_a_conversation_shows_its_own_answers_and_no_fork_that_would_vanish(live: LiveChain) -> None:
    page = live.page
    conversation = live.gateway.http.post("/v1/conversations", json={}).json()["id"]
    first = live.answer(conversation=conversation)
    page.goto(f"{live.gateway.root}/#/{conversation}")
    expect(page.locator("main article")).to_have_count(2)
    with (
        live.continue_chain(previous_response_id=first),
        live.continue_chain(previous_response_id=None, conversation=conversation) as end,
    ):
        expect(page.locator("#running article")).to_contain_text(FIRST_TEXT)
        expect(page.get_by_role("status")).to_have_text("1 response in progress")
        end()
        expect(page.locator("main article").last).to_contain_text(f"{FIRST_TEXT}{REST}")
        expect(page.locator("#running article")).to_have_count(0)
        expect(page.locator("tbody tr")).to_have_count(2)


def test_a_background_answer_is_shown_as_far_as_it_is_stored_until_it_ends(live: LiveChain) -> None:
    page = live.page
    page.goto(live.address)
    with live.continue_chain(background=True):
        expect(page.locator("tbody tr.in_progress")).to_contain_text("in progress")
        expect(page.locator("#running article")).to_contain_text(FIRST_TEXT)
        response_id = live.gateway.http.get("/inspect/api/requests").json()["data"][0]["id"]
        live.gateway.http.post(f"/v1/responses/{response_id}/cancel")
        expect(page.locator("tbody tr.cancelled")).to_contain_text("go on")
        expect(page.locator("#running article")).to_have_count(0)


def test_each_status_has_one_word_on_all_parts_of_the_page(live: LiveChain) -> None:
    page = live.page
    page.goto(live.address)
    page.locator("tbody a").first.click()
    expect(page.locator("section dl")).to_contain_text("Status● done")
    with live.continue_chain(background=True):
        running = page.locator("tbody tr.in_progress")
        expect(running.locator("th")).to_contain_text("in progress")
        expect(page.locator("#running article")).to_contain_text("in progress · ")
        running.locator("a").click()
        expect(page.locator("section dl")).to_contain_text("Status◐ in progress")
        assert "in_progress" not in page.locator("body").inner_text()
        page.goto(f"{live.gateway.root}/?status=in_progress")
        expect(page.locator("tbody td.status")).to_have_text("◐ in progress")
        page.locator("tbody th a").click()
        page.get_by_role("tab", name="Response").click()
        expect(page.locator("#tab-panel dl")).to_contain_text("Status◐ in progress")
        response_id = live.gateway.http.get("/inspect/api/requests").json()["data"][0]["id"]
        live.gateway.http.post(f"/v1/responses/{response_id}/cancel")


@pytest.mark.parametrize("is_background", [False, True])
def test_an_answer_of_another_client_stays_when_it_has_ended(live: LiveChain, is_background: bool) -> None:
    page = live.page
    page.goto(live.address)
    expect(page.locator("main article")).to_have_count(2)
    with live.continue_chain(background=is_background) as end:
        expect(page.locator("#running article")).to_contain_text(FIRST_TEXT)
        end()
    expect(page.locator("#running article")).to_have_count(0)
    second = live.gateway.http.get("/inspect/api/requests").json()["data"][0]["id"]
    expect(page.get_by_text(f"This page follows the conversation: continued in {second}")).to_be_visible()
    expect(page.locator("main article").last).to_contain_text(f"{FIRST_TEXT}{REST}")
    expect(page.locator("main article")).to_have_count(4)
    assert accessibility(page) == []
    page.reload()
    expect(page.get_by_text(f"Continued in {second}")).to_be_visible()
    expect(page.locator("main article")).to_have_count(2)
    page.locator(f"#continued-{second}").click()
    expect(page.locator("main article")).to_have_count(4)
    expect(page.get_by_text("Continued in")).to_have_count(0)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_chain_is_followed_with_its_tree_bars_head_and_totals(live: LiveChain, is_streamed: bool) -> None:
    page = live.page
    page.goto(live.address)
    expect(page.locator("tbody tr")).to_have_count(1)
    with live.continue_chain(stream=is_streamed) as end:
        expect(page.locator("#running article")).to_contain_text(FIRST_TEXT)
        expect(page.locator("tbody tr")).to_have_count(1)
        end()
    facts = page.locator("dl").first
    expect(facts).to_contain_text("Total2 requests")
    expect(facts).not_to_contain_text("Other requests")
    second = live.newest_id()
    expect(facts).to_contain_text(f"4 items, @ {second}")
    expect(page.locator("#list [aria-current=page]")).to_have_attribute("id", f"open-{second}")
    expect(page.locator(".tree-lines")).to_have_text(["● ", "@ "])
    expect(page.locator(".usage-bar")).to_have_count(2)
    expect(page.locator("#main article").last).to_contain_text(f"{FIRST_TEXT}{REST}")
    assert page.url == live.address
    third = live.answer(previous_response_id=second)
    fork = live.answer(previous_response_id=live.response_id)
    expect(facts).to_contain_text("Other requests1 request")
    expect(facts).to_contain_text(f"6 items, @ {third}")
    expect(facts).to_contain_text("Total3 requests")
    expect(page.locator(".tree-lines")).to_have_text(["● ", "├─● ", "● ", "@ "])
    expect(page.locator("tbody th").nth(1)).to_contain_text("fork")
    expect(page.get_by_text(f"This page follows the conversation: continued in {third}")).to_be_visible()
    assert page.locator(f"#link-{fork}").get_attribute("href") == f"#/{live.response_id}/{fork}"


def test_a_shown_request_stays_in_its_place_when_its_chain_continues(live: LiveChain) -> None:
    page = live.page
    page.set_viewport_size({"width": 1280, "height": 300})
    page.goto(f"{live.address}/{live.response_id}")
    output = page.locator("#output-2")
    expect(output).to_contain_text("hi")
    output.evaluate("node => scrollTo(0, node.offsetTop + 20)")
    top = output.evaluate("node => node.getBoundingClientRect().top")
    second = live.answer(previous_response_id=live.response_id)
    expect(page.locator(".tree tbody tr")).to_have_count(2)
    assert abs(output.evaluate("node => node.getBoundingClientRect().top") - top) <= 1
    expect(page.locator("#link-title")).to_have_text(live.response_id)
    expect(page.locator("tbody [aria-current=true]")).to_have_attribute("id", f"link-{live.response_id}")
    expect(page.get_by_text(f"Continued in {second}")).to_be_attached()
    page.locator(f"#continued-{second}").click()
    expect(page.locator("#link-title")).to_have_text(second)
    expect(page.locator("dl").first).to_contain_text("Total2 requests")


def test_the_pane_and_opened_json_stay_as_they_are_when_a_request_is_continued(live: LiveChain) -> None:
    page = live.page
    page.goto(f"{live.gateway.root}/?request={live.response_id}")
    page.locator("#fork summary").click()
    page.locator("#detail article summary").first.click()
    expect(page.locator("#detail article .json")).to_have_count(1)
    page.locator("#fork-text").evaluate("node => { node.focus(); node.setSelectionRange(1, 1); }")
    second = live.answer(previous_response_id=live.response_id)
    expect(page.locator("#detail-continued")).to_have_text(f"Continued in {second}")
    expect(page.locator("#fork-text")).to_be_visible()
    assert page.evaluate("[document.activeElement.id, document.activeElement.selectionStart]") == ["fork-text", 1]
    expect(page.locator("#detail article .json")).to_have_count(1)
    page.goto(f"{live.address}/{second}")
    page.locator("#input-1 summary").click()
    expect(page.locator("main article .json")).to_have_count(1)
    live.answer(previous_response_id=second)
    expect(page.locator(".tree tbody tr")).to_have_count(3)
    expect(page.locator("#input-1 .json")).to_be_visible()


def test_a_retry_replaces_a_failed_answer_and_a_deleted_one_is_left(live: LiveChain) -> None:
    page = live.page
    page.goto(live.address)
    expect(page.locator("main article")).to_have_count(2)
    with live.continue_chain(background=True):
        expect(page.locator("#running article")).to_contain_text(FIRST_TEXT)
        live.gateway.http.post(f"/v1/responses/{live.newest_id()}/cancel")
        expect(page.get_by_text("This page follows the conversation")).to_be_visible()
    expect(page.locator("main article").last).to_contain_text(FIRST_TEXT)
    retried = live.answer(previous_response_id=live.response_id)
    expect(page.get_by_text(f"This page follows the conversation: continued in {retried}")).to_be_visible()
    expect(page.locator("dl").first).to_contain_text(f"4 items, @ {retried}")
    live.gateway.http.delete(f"/v1/responses/{retried}")
    expect(page.locator("dl").first).to_contain_text(f"2 items, @ {live.response_id}")
    expect(page.locator("main article")).to_have_count(2)


def test_a_conversation_is_followed_by_its_own_head(live: LiveChain) -> None:
    page, http = live.page, live.gateway.http
    conversation = http.post("/v1/conversations", json={}).json()["id"]
    live.answer(conversation=conversation)
    page.goto(f"{live.gateway.root}/#/{conversation}")
    facts = page.locator("dl").first
    expect(facts).to_contain_text("Total1 request")
    for count, is_streamed in ((2, True), (3, False)):
        with live.continue_chain(previous_response_id=None, conversation=conversation, stream=is_streamed) as end:
            expect(page.locator("#running article")).to_contain_text(FIRST_TEXT)
            end()
        expect(facts).to_contain_text(f"Total{count} requests")
        expect(facts).to_contain_text(f"{2 * count} items, @ {live.newest_id()}")
        expect(facts).not_to_contain_text("Other requests")
        expect(page.locator("main article")).to_have_count(2 * count)


def test_a_session_keeps_its_head_and_totals_when_another_client_continues_its_chain(
    browser: Browser, tmp_path: Path
) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(write_chats, tmp_path, write_conversations).result()
    served = run_gateway_with_upstream(tmp_path / "served", f"sqlite:{tmp_path / DATABASE}")
    with served as (gateway, upstream), open_page(browser) as page:
        page.goto(f"{gateway.root}/#/monads")
        facts = page.locator("dl").first
        expect(facts).to_contain_text("Other requests1 request")
        other = LiveChain(gateway, upstream, page, "resp_2")
        with other.continue_chain() as end:
            expect(page.locator("#running article")).to_contain_text(FIRST_TEXT)
            end()
        expect(facts).to_contain_text("Other requests2 requests")
        expect(facts).to_contain_text("Total2 requests")
        expect(facts).to_contain_text("4 items, @ resp_2")
        expect(page.locator("main article").last).to_contain_text(f"{FIRST_TEXT}{REST}")
        third = other.newest_id()
        expect(page.get_by_text(f"This page follows the conversation: continued in {third}")).to_be_visible()
        other.answer(previous_response_id=third)
        expect(facts).to_contain_text("Other requests3 requests")
        expect(page.locator("main article")).to_have_count(6)


def test_an_answer_is_shown_while_it_grows_after_a_slow_first_reply_of_the_server(live: LiveChain) -> None:
    page = live.page
    stop_clock(page)
    page.route("**/inspect/api/conversations/*", lambda _: None)
    with page.expect_request("**/inspect/api/conversations/*"):
        page.goto(live.address)
    page.clock.run_for(1500)
    page.unroute("**/inspect/api/conversations/*")  # sends the request that was held
    expect(page.locator("main article")).to_have_count(2)
    with live.continue_chain():
        page.clock.run_for(2000)
        expect(page.locator("#running article")).to_contain_text(FIRST_TEXT)


def test_a_paused_run_names_the_calls_that_need_approval(
    browser: Browser, launch: Launch, home: Path, tmp_path: Path
) -> None:
    model = scripted_flags(LOOK_UP, REFUND, PAID_BACK)
    assert launch("chat", *agent_flags(), *model, "-n", "refunds", "pay A1 back").exit == 3
    with run_gateway(tmp_path / "served", f"sqlite:{home / DATABASE}") as gateway, open_page(browser) as page:
        page.goto(gateway.root)
        paused = page.get_by_role("region", name="Paused: 1 agent run")
        expect(paused).to_contain_text("refunds: 1 tool call needs approval")
        expect(paused).to_contain_text('refund (c1) {"order": "A1", "cents": 500}')
        assert accessibility(page) == []
        paused.get_by_role("link", name="refunds").click()
        facts = page.locator("dl").first
        expect(facts).to_contain_text("paused: 1 tool call needs approval")
        (item,) = facts.locator("li").all_inner_texts()
        assert item == 'refund (c1) {"order": "A1", "cents": 500} Approve… Reject…'
        assert accessibility(page) == []
        assert launch("resume", "refunds", *agent_flags(), *model, "--approve", "c1").exit == 0
        expect(page.get_by_text("Paid back.").last).to_be_visible()
        expect(facts.locator("li")).to_have_count(0)
        page.get_by_role("link", name="Requests").click()
        expect(page.locator("tbody tr")).to_have_count(3)
        expect(paused).to_have_count(0)


# -- hostile text ---------------------------------------------------------------------------------


def hostile_inspector_data() -> dict[str, Any]:
    """Return inspector data in which every text is hostile."""
    client = ConversationBuilder(Strategy.CHAIN)
    client.turn(
        HOSTILE_TEXT,
        HOSTILE_TEXT,
        HOSTILE_TEXT,
        model=HOSTILE_TEXT,
        parameters={"instructions": HOSTILE_TEXT, HOSTILE_TEXT: HOSTILE_TEXT},
        conversation_id=HOSTILE_TEXT,
    )
    client.turn(
        f"{HOSTILE_TEXT}2",
        HOSTILE_TEXT,
        None,
        after=HOSTILE_TEXT,
        error={"code": HOSTILE_TEXT, "message": HOSTILE_TEXT},
    )
    image = {"type": "input_image", "image_url": "javascript:planted.push(5)"}
    vector = {"type": "input_image", "image_url": "data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9YWxlcnQoMSk+"}
    items: list[dict[str, Any]] = [
        {
            "role": HOSTILE_TEXT,
            "content": [image, vector, {"type": "input_file", "filename": HOSTILE_TEXT}, {"type": HOSTILE_TEXT}],
        },
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": HOSTILE_TEXT}]},
        {"type": "function_call", "call_id": HOSTILE_TEXT, "name": HOSTILE_TEXT, "arguments": HOSTILE_TEXT},
        {"type": "function_call_output", "call_id": HOSTILE_TEXT, "output": HOSTILE_TEXT},
        {"type": HOSTILE_TEXT, HOSTILE_TEXT: HOSTILE_TEXT},
    ]
    path = client.paths[HOSTILE_TEXT].append(items)
    view = client.view(HOSTILE_TEXT, handle=HOSTILE_TEXT, notes=(HOSTILE_TEXT,), path=path)
    view.path_index.add(path)
    return build_inspector_data({HOSTILE_TEXT: view})


def test_hostile_text_stays_text_in_a_file(browser: Browser, tmp_path: Path) -> None:
    with open_page(browser) as page:
        open_as_file(tmp_path, hostile_inspector_data(), page)
        expect(page.locator("main article")).to_have_count(7)
        assert page.locator("main").inner_text().count("<script>planted.push(3)</script>") >= 12
        page.locator("tbody a").last.click()
        expect(page.locator("#link-title")).to_be_focused()
        assert page.locator("main img, main script, main svg[onload], [onfocus], [onerror]").count() == 0
        for summary in page.locator("summary").all():
            if summary.is_visible():
                summary.click()
        assert accessibility(page) == []


TRY_SCRIPT = """([how, markup]) => {
  try {
    if (how === "innerHTML") document.body.innerHTML = markup;
    else if (how === "onclick") document.body.setAttribute(how, "planted.push(6)");
    else document.createElement("script").src = "data:text/javascript,planted.push(7)";
    return "done";
  } catch (error) { return error.name }
}"""
"""Tries a forbidden operation in the page; returns the name of the error."""


@pytest.mark.parametrize("source", ["server", "file"])
def test_the_content_security_policy_forbids_other_scripts_and_requests(
    browser: Browser, gateway: RunningGateway, tmp_path: Path, source: str
) -> None:
    with open_page(browser, expects_violation=True) as page:
        if source == "server":
            page.goto(gateway.root)
        else:
            open_as_file(tmp_path, build_inspector_data({}), page)
        results = [page.evaluate(TRY_SCRIPT, [how, MARKUP]) for how in ("innerHTML", "onclick", "script")]
        assert results == ["TypeError"] * 3


# -- a file, and keys -----------------------------------------------------------------------------


@pytest.mark.browser(by_default=True)
def test_a_file_needs_no_network(browser: Browser, tmp_path: Path) -> None:
    view = build_chain(3).view("resp_3")
    with open_page(browser) as page:
        requested_urls: list[str] = []
        page.on("request", lambda request: requested_urls.append(request.url))
        page.context.set_offline(True)
        open_as_file(tmp_path, build_inspector_data({"talk": view}), page)
        expect(page.locator("tbody tr")).to_have_count(3)
        page.locator("tbody a").last.click()
        expect(page.get_by_text("Common prefix: 3 items.")).to_be_visible()
        expect(page.get_by_role("status")).to_have_text("Loaded from a file")
        assert {url.partition("#")[0] for url in requested_urls} == {(tmp_path / "page.html").as_uri()}


def test_the_list_has_names_of_sessions_and_first_words_of_other_conversations(
    browser: Browser, tmp_path: Path
) -> None:
    view = build_chain(2).view("resp_2")
    with open_page(browser) as page:
        open_as_file(tmp_path, build_inspector_data({"oslo": replace(view, handle="oslo"), "resp_2": view}), page)
        expect(page.locator("#list a")).to_have_text(["oslo", "question 1"])
        page.get_by_role("link", name="question 1").click()
        expect(page.locator("#conversation-title")).to_have_text("question 1")
        expect(page.locator("#conversation-title")).to_be_focused()


def test_usage_and_cost_are_shown_for_each_request_and_in_total(browser: Browser, tmp_path: Path) -> None:
    view = build_chain(3).view("resp_3", prices={"local/demo": Price(100, 200, cached=25)})
    with open_page(browser) as page:
        open_as_file(tmp_path, build_inspector_data({"talk": view}), page)
        expect(page.locator("dl").first).to_contain_text("36 input (12 cached) · 27 output")
        expect(page.locator("dl").first).to_contain_text("$0.0081")
        expect(page.locator("dl").first).to_contain_text("24 re-sent (16 uncached)")
        sums = page.get_by_role("list", name="Tokens of all requests").get_by_role("listitem").all_inner_texts()
        assert [text.strip() for text in sums[:4]] == ["cached 12", "re-sent uncached 16", "new 8", "output 27"]
        bars = page.locator("tbody tr").last.locator("rect").all()
        _, input_width, cached_width, output_width = (int(bar.get_attribute("width") or 0) for bar in bars)
        assert (cached_width * 3, output_width * 4) == (input_width, input_width * 3)
        page.locator("tbody a").last.click()
        expect(page.locator("section dl")).to_contain_text("12 input (4 cached) · 9 output")
        expect(page.locator("section dl")).to_contain_text("$0.0027")
        expect(page.locator("section dl")).to_contain_text("Re-sent12 of the input")


def test_the_facts_of_a_request_have_the_time_to_its_first_token(browser: Browser, tmp_path: Path) -> None:
    chain = build_chain(1)
    chain.turn("resp_2", "again", "yes", after="resp_1", first_token_s=0.42)
    with open_page(browser) as page:
        open_as_file(tmp_path, build_inspector_data({"talk": chain.view("resp_2")}), page)
        page.locator("tbody a").last.click()
        expect(page.locator("section dl")).to_contain_text(re.compile(r":\d\dFirst token0\.4 sDuration1\.3 s"))
        page.locator("tbody a").first.click()
        expect(page.locator("#link-title")).to_have_text("resp_1")
        expect(page.locator("section dl")).not_to_contain_text("First token")


def test_after_a_compaction_the_bars_and_the_total_have_the_summary_as_new_input(
    browser: Browser, tmp_path: Path
) -> None:
    chain = build_chain(2)
    window = ItemPath(ROOT).append([summary_message("They talked about rain."), user_message("question 1")])
    chain.turn("try_1", "", None, after="resp_2", status="completed")
    compaction = replace(chain.links[-1], parameters={"context_management": COMPACTION_CONTEXT_MANAGEMENT})
    chain.links[-1] = replace(compaction, input_head=window.head, head=window.head, sent_count=0)
    chain.paths["try_1"] = window
    chain.turn("resp_3", "question 3", "answer 3", after="try_1")
    with open_page(browser) as page:
        open_as_file(tmp_path, build_inspector_data({"talk": chain.view("resp_3")}), page)
        # question 1 is a third of the 12 input tokens of resp_2; the 4 cached tokens of resp_3 are those
        expect(page.locator("dl").first).to_contain_text("16 re-sent (8 uncached)")
        title = page.locator(".usage-bar").last.locator("title").text_content() or ""
        assert title.startswith("resp_3: cached 4 · re-sent uncached 0 · new 8 · output 9")


def test_the_total_says_how_many_requests_reported_their_usage(browser: Browser, tmp_path: Path) -> None:
    chain = build_chain(2)
    chain.turn("resp_3", "again", "yes", after="resp_2", usage=None)
    with open_page(browser) as page:
        open_as_file(tmp_path, build_inspector_data({"talk": chain.view("resp_3")}), page)
        expect(page.locator("dl").first).to_contain_text("Total2 of 3 requests reported usage · 24 input")


def test_with_keys_the_page_asks_for_a_key_and_shows_the_data_of_that_key(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    alice, bob, carol = (create_api_key(file, name) for name in ("alice", "bob", "carol"))
    with run_gateway(tmp_path / "keyed", keys=KeysFile(file)) as gateway, open_page(browser) as page:
        response_ids = [
            gateway.create_response(
                {"model": "echo", "input": text}, headers={"authorization": f"Bearer {key}"}
            ).json()["id"]
            for key, text in ((alice, "of Alice"), (bob, "of Bob"))
        ]
        page.goto(gateway.root)
        field = page.get_by_label("Key")
        expect(field).to_be_focused()
        assert accessibility(page) == []
        field.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.get_by_role("status")).to_have_text("Incorrect API key provided.")
        expect(field).to_be_focused()
        field.fill(bob)
        page.keyboard.press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.locator("tbody")).to_contain_text("of Bob")
        page.goto(f"{gateway.root}/#/{response_ids[0]}")
        expect(page.get_by_role("heading", name="Cannot show the conversation")).to_be_focused()
        assert "of Alice" not in page.content()
        page.goto(f"{gateway.root}/#/%E0%A4%A")
        expect(page.get_by_role("status")).to_contain_text("%E0%A4%A")
        assert page.evaluate("[localStorage.length, document.cookie, location.href.includes('convo_')]") == [
            0,
            "",
            False,
        ]
        page.reload()
        expect(page.locator("#list")).to_contain_text("of Bob")
        page.get_by_role("button", name="Forget the key").click()
        expect(field).to_be_focused()
        expect(page.locator("#list li")).to_have_count(0)
        expect(page.locator("tbody tr")).to_have_count(0)
        assert page.evaluate("sessionStorage.length") == 0
        field.fill(carol)
        page.keyboard.press("Enter")
        expect(page.get_by_label("Key")).to_have_count(0)
        page.goto(f"{gateway.root}/")
        expect(page.get_by_text("The key named local sees the chats of this machine.")).to_be_visible()


def test_deleted_items_are_shown_as_deleted(browser: Browser, tmp_path: Path) -> None:
    client = build_chain(2)
    client.turn("resp_3", "lost", "lost", after="resp_2", input_head="0" * 64, head="1" * 64)
    with open_page(browser) as page:
        open_as_file(tmp_path, build_inspector_data({"talk": client.view("resp_2")}), page)
        page.locator("#link-resp_3").click()
        expect(page.get_by_role("heading", name="Model input: no longer available")).to_be_visible()
        expect(page.get_by_text("the model input of one of them was deleted")).to_be_visible()
        expect(page.locator("tr.completed").last.locator("td").nth(2)).to_have_text("-")


# -- long conversations ---------------------------------------------------------------------------


@pytest.mark.parametrize("turns", [250, pytest.param(5_000, marks=pytest.mark.full)])
def test_a_long_conversation_is_rendered_in_parts(browser: Browser, tmp_path: Path, turns: int) -> None:
    with open_page(browser) as page:
        open_as_file(tmp_path, build_inspector_data({"long": build_chain(turns).view(f"resp_{turns}")}), page)
        expect(page.locator("tbody tr")).to_have_count(100)
        expect(page.locator("main article")).to_have_count(20)
        assert page.evaluate("document.querySelectorAll('*').length") < 5_000
        bars, last_bar = page.locator(".usage .scrollable"), page.locator(".usage-bar").last
        is_visible = "([box, bar]) => bar.getBoundingClientRect().right <= box.getBoundingClientRect().right + 1"
        assert page.evaluate(is_visible, [bars.element_handle(), last_bar.element_handle()])
        page.locator("#tree-earlier").click()
        expect(page.locator("tbody tr")).to_have_count(200)
        page.locator("#path-earlier").click()
        expect(page.locator("main article")).to_have_count(40)
        page.goto(page.url.partition("#")[0] + "#/long/resp_20")
        expect(page.locator("#link-title")).to_have_text("resp_20")
        expect(page.locator("[aria-current=true]")).to_have_text("resp_20")
        expect(page.get_by_role("region", name="Model input").locator("article")).to_have_count(20)
