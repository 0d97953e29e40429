"""Requests of every outcome on the inspector page: rows, panes, charts and approvals, in a real Chromium."""

import asyncio
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, expect

from convo.history.items import assistant_message, user_message
from convo.history.records import AgentRun, ApprovalDecision
from convo.history.tree import Path as ItemPath
from convo.history.tree import root_key
from convo.runs.serialize import run_to_json
from convo.stores.base import AppendItems, Transaction
from tests.models.chat_server import ChatServer
from tests.prompt_cache.stored_requests import OPENAI, Request, make_transaction
from tests.runs.run_steps import call
from tests.runs.test_stored_approvals import paused
from tests.server.browser import accessibility, horizontal_overflow, open_page
from tests.server.gateway import HELD_MODEL, RunningGateway, run_gateway, run_gateway_with_upstream
from tests.stores.chat_transactions import NOW, link, session

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]

CODEX = {"user-agent": "codex_exec/0.171.0 (Debian)"}
UNSTORED = {"model": "echo", "input": "hi", "store": False}


@contextmanager
def waiting_request(gateway: RunningGateway, upstream: ChatServer, title: str) -> Iterator[threading.Event]:
    """Send a request whose model answers "one two three" when the event is set."""
    may_answer = threading.Event()
    with upstream.hold_answer("one two three") as may_end:
        hold = upstream.answers.pop()

        async def wait_and_answer(receive: Any, send: Any) -> None:
            await asyncio.to_thread(may_answer.wait)
            await hold(receive, send)

        upstream.answers.append(wait_and_answer)
        body = {"model": HELD_MODEL, "input": title, "stream": True}
        client = threading.Thread(target=lambda: gateway.create_response(body))
        client.start()
        try:
            yield may_answer
        finally:
            may_answer.set()
            may_end.set()
            client.join()


# -- rows ------------------------------------------------------------------------------------------


@pytest.mark.browser(by_default=True)
def test_a_row_waits_streams_and_ends_in_its_place_and_its_pane_stays_open(browser: Browser, tmp_path: Path) -> None:
    with run_gateway_with_upstream(tmp_path / "live") as (gateway, upstream), open_page(browser) as page:
        gateway.create_response({"model": "echo", "input": "an earlier request"})
        page.goto(gateway.root)
        row = page.locator("tbody tr").first
        with waiting_request(gateway, upstream, "Think long") as may_answer:
            expect(row).to_contain_text("◌ waiting")
            expect(row.locator("td.latency")).to_have_text(re.compile(r"^[1-9]\d* s$"))  # it counts up
            row.locator("a").click()
            expect(page.locator("#detail-status")).to_contain_text("waiting req_")
            expect(page.locator("#detail-figures")).to_contain_text(f"Model{HELD_MODEL}")
            row.locator("a").focus()
            may_answer.set()
            expect(row).to_contain_text("◐ streaming")
            expect(page.locator("#detail-text")).to_have_text("one two three")
            expect(page.locator("#detail-status")).to_contain_text("streaming resp_")
            expect(row.locator("a")).to_be_focused()
            expect(page).to_have_url(re.compile(r"request=resp_"))
            assert accessibility(page) == []
        expect(row).to_contain_text("● done")
        expect(page.get_by_role("tabpanel")).to_contain_text("one two three")
        expect(page.locator("tbody tr")).to_have_count(2)


def test_a_refused_request_and_one_that_is_not_stored_open_a_pane_of_figures(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "served") as gateway, open_page(browser) as page:
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url))
        for _ in range(3):
            gateway.create_response({"model": "nope/x", "input": "hi"}, headers=CODEX)
        gateway.create_response(UNSTORED, headers=CODEX)
        gateway.http.post("/v1/chat/completions", json={"model": "nope/y", "messages": []}, headers=CODEX)
        page.goto(f"{gateway.root}/?status=failed")
        rows = page.locator("tbody tr")
        expect(rows.filter(has_text="nope/y")).to_contain_text("Chat Completions request codex 0.171.0")
        assert sum(row["count"] for row in failed_rows(gateway)) == 4
        row = rows.filter(has_text="nope/x").first
        expect(row.locator("td.status")).to_contain_text("✕ failed")
        expect(row.locator(".code").last).to_have_text("model_not_found")
        row.click()
        pane = page.locator("#detail")
        expect(pane).to_contain_text("Codemodel_not_found")
        expect(pane).to_contain_text("Clientcodex 0.171.0")
        expect(page.locator("#detail-unstored")).to_have_text("The content of this request is not stored.")
        assert accessibility(page) == []
        page.goto(f"{gateway.root}/?status=completed")
        rows.first.click()
        expect(page.locator("#detail-unstored")).to_contain_text("convo serve --record records such requests.")
        expect(page.locator("#detail-figures")).to_contain_text("Input1")
        page.set_viewport_size({"width": 360, "height": 800})
        assert horizontal_overflow(page) == 0
        assert [url for url in asked if "/inspect/api/requests/" in url] == []


def failed_rows(gateway: RunningGateway) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = gateway.http.get("/inspect/api/requests?status=failed").json()["data"]
    return rows


def test_the_list_its_filter_and_the_charts_count_the_same_failures(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "served") as gateway, open_page(browser) as page:
        for number in range(12):
            gateway.create_response({"model": "nope/x" if number % 3 else "echo", "input": "hi"}, headers=CODEX)
        page.goto(f"{gateway.root}/?charts=open")
        expect(page.locator("#charts-total")).to_contain_text("12 requests · 8 failed")
        assert sum(row["count"] for row in failed_rows(gateway)) == 8
        page.get_by_role("combobox", name="Model").select_option("nope/x")
        expect(page.locator("#charts-total")).to_contain_text("8 requests · 8 failed")


def test_requests_that_were_not_recorded_are_counted_by_client(browser: Browser, tmp_path: Path) -> None:
    file = f"sqlite:{tmp_path}/convo.db"
    with run_gateway(tmp_path / "g", file) as gateway, open_page(browser) as page:
        for _ in range(12):
            gateway.create_response(UNSTORED, headers=CODEX)
        gateway.create_response({"model": "nope/x", "input": "hi"}, headers=CODEX)
        page.goto(gateway.root)
        text = "12 requests of codex 0.171.0 were not recorded: convo serve --record"
        expect(page.locator("#not-recorded")).to_have_text(text)
    with run_gateway(tmp_path / "g", file, record=True) as gateway:
        assert gateway.http.get("/inspect/api/requests").json()["not_recorded"] == []


# -- one request -----------------------------------------------------------------------------------


def store_chain(gateway: RunningGateway, answer: str) -> None:
    """Store a chain of two requests with figures, and a request beside it."""
    root = root_key("local")
    path = ItemPath(root).append([user_message("What is rain?"), assistant_message(answer)])
    longer = path.append([user_message("And snow?"), assistant_message("Ice.")])
    usage = {"input_tokens": 120, "input_tokens_details": {"cached_tokens": 64}, "output_tokens": 2}
    fields: dict[str, Any] = {"model": "openai/gpt-6-luna", "usage": usage, "duration_s": 3.25, "first_token_s": 0.5}
    links = (
        link("resp_rain", path.first(1).head, path.head, **fields),
        link("resp_snow", longer.first(3).head, longer.head, parent_id="resp_rain", **fields),
        link("resp_other", path.first(1).head, path.head, **fields),
    )
    gateway.run(gateway.store.commit(Transaction((AppendItems(root, longer.items),), links)))


@pytest.mark.browser
def test_a_request_that_missed_the_prompt_cache_is_marked_in_all_lists_and_explained_where_it_is_opened(
    browser: Browser, tmp_path: Path
) -> None:
    first = Request()
    changed = {**first.parameters, "instructions": "Today is 2026-11-28. Be careful."}
    requests = [
        first._replace(parameters={**first.parameters, "instructions": "Today is 2026-11-27. Be careful."}),
        first.next(user_message("And in Oslo?"))._replace(parameters=changed),
    ]
    with run_gateway(tmp_path / "served") as gateway, open_page(browser) as page:
        gateway.run(gateway.store.commit(make_transaction(requests, OPENAI)))
        page.goto(gateway.root)
        expect(page.locator("td.cached")).to_have_text(["missed 0", "0"])
        page.locator("#request-resp_2").click()
        expect(page.locator("#detail-figures")).to_contain_text("Cached0 (missed)")
        explanation = page.locator("#cache-miss")
        expect(explanation).to_contain_text("missed: 0 of 12,000 reusable tokens were read from it")
        expect(explanation).to_contain_text('instructions changed: instructions, byte 18: "Today is 2026-11-27.')
        expect(explanation).to_contain_text(re.compile(r"Cost of the miss\$0\.\d+ for 12,000 tokens not reused"))
        expect(explanation).to_contain_text("Fixkeep the date out of the instructions")
        assert accessibility(page) == []
        page.locator("#detail-open").click()
        expect(page.locator("table.tree tbody tr")).to_have_count(2)
        expect(page.locator("table.tree tbody tr").nth(1)).to_contain_text("cache missed")
        expect(page.locator("table.tree tbody tr").first).not_to_contain_text("cache missed")
        expect(explanation).to_contain_text("Fixkeep the date out of the instructions")
        assert accessibility(page) == []


def test_an_opened_request_has_its_figures_and_collapses_an_answer_from_4_000_characters(
    browser: Browser, tmp_path: Path
) -> None:
    with run_gateway(tmp_path / "served") as gateway, open_page(browser) as page:
        store_chain(gateway, "rain " * 800)
        page.goto(gateway.root)
        marks = page.locator("tbody th > .thread")
        expect(marks).to_have_text(["thread 1", "thread 1"])
        page.locator("#request-resp_rain").click()
        shown = page.locator("#detail-figures > div")
        expect(shown.nth(1)).to_have_text("First token0.5 s")  # the list has not this one: it comes with the request
        figures = shown.all_text_contents()
        assert figures[:6] == [
            "Modelopenai/gpt-6-luna",
            "First token0.5 s",
            "Duration3.3 s",
            "Input120",
            "Cached64",
            "Output2",
        ]
        assert re.fullmatch(r"Cost\$0\.00000?[1-9]\d?", figures[6])
        panel = page.get_by_role("tabpanel")
        expect(panel.get_by_role("button", name="Show all (4,000 characters)")).to_have_count(1)
        assert accessibility(page) == []
        page.locator("#detail-close").click()
        store_answer = gateway.create_response({"model": "echo", "input": "snow " * 799}).json()["id"]
        page.locator(f"#request-{store_answer}").click()
        expect(panel.locator("article.assistant")).to_contain_text("snow")
        expect(panel.locator("article.assistant .more")).to_have_count(0)


def test_a_click_on_a_bar_and_a_link_of_the_table_show_the_requests_of_its_time(
    browser: Browser, tmp_path: Path
) -> None:
    root = root_key("local")
    path = ItemPath(root).append([user_message("hi")])
    links = tuple(link(f"resp_{n}", path.head, created_at=NOW + 7 * n) for n in range(12))
    with run_gateway(tmp_path / "served") as gateway, open_page(browser) as page:
        gateway.run(gateway.store.commit(Transaction((AppendItems(root, path.items),), links)))
        page.goto(f"{gateway.root}/?charts=open")
        rows = page.locator(".requests-table tbody tr")
        expect(rows).to_have_count(12)
        page.locator("#chart-0 .chart-bar").first.click()
        expect(rows).to_have_count(1)
        expect(page.locator("#charts-total")).to_contain_text("1 request ·")
        expect(page.get_by_role("textbox", name="From")).to_be_visible()
        page.go_back()
        expect(rows).to_have_count(12)
        page.locator("#chart-0-table summary").click()
        page.locator("#chart-0-table a").last.press("Enter")
        expect(rows).to_have_count(1)
        expect(page.locator("#request-resp_11")).to_be_visible()
        expect(page.locator("#charts-summary")).to_be_focused()


# -- approvals and the comparison ------------------------------------------------------------------


def test_pending_and_past_approvals_are_in_one_place_with_decoded_arguments(browser: Browser, tmp_path: Path) -> None:
    arguments = json.dumps({"text": "Zürich \u202e"})
    assert "Z\\u00fcrich" in arguments
    run = paused(call("c1", "guarded", arguments))
    row = AgentRun("run_1", "ses_1", 1, "paused", run_to_json(run), NOW, NOW)
    past = ApprovalDecision("run_1", "c0", "shop", "guarded", arguments, False, NOW, "bob")
    with run_gateway(tmp_path / "served") as gateway, open_page(browser, width=360) as page:
        record = session(id="ses_1", name="trip")
        gateway.run(gateway.store.commit(Transaction(session=record, agent_run=row, approval_decisions=(past,))))
        gateway.create_response({"model": "echo", "input": "hi"})
        shown = '{"text": "Zürich \\u202e"}'
        for address in ("", "#conversations", "#/trip", "#compare"):
            page.goto(f"{gateway.root}/{address}")
            expect(page.locator("#approvals")).to_have_text("Approvals (1)")
        page.goto(gateway.root)
        expect(page.locator(".paused .pending code")).to_have_text(shown)
        page.get_by_role("button", name="Approvals (1)").click()
        dialog = page.get_by_role("dialog", name="Approvals")
        expect(dialog.locator(".pending code")).to_have_text(shown)
        expect(dialog.locator(".decision-log li")).to_contain_text("Rejected: guarded")
        expect(dialog.locator(".decision-log code")).to_have_text(shown)
        assert accessibility(page) == []
        assert horizontal_overflow(page) == 0
        dialog.get_by_role("button", name="Reject guarded (c1)").click()
        confirmation = page.get_by_role("dialog", name="Reject guarded?")
        expect(confirmation.locator("pre")).to_have_text(shown)
        expect(confirmation).to_contain_text("shown decoded")
        page.keyboard.press("Escape")
        expect(page.get_by_role("button", name="Approvals (1)")).to_be_focused()


def test_the_comparison_has_a_picker_of_recent_requests(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "served") as gateway, open_page(browser) as page:
        ids = [gateway.create_response({"model": "echo", "input": text}).json()["id"] for text in ("rain", "snow")]
        gateway.create_response(UNSTORED)
        page.goto(f"{gateway.root}/#compare")
        for name, request_id in zip("AB", ids, strict=True):
            picker = page.get_by_label(f"Recent requests and conversations for {name}")
            recent = picker.locator("optgroup[label='Recent requests'] option")
            expect(recent).to_have_count(2)
            picker.select_option(request_id)
            expect(page.get_by_role("textbox", name=name, exact=True)).to_have_value(request_id)
        assert accessibility(page) == []
        page.get_by_role("button", name="Compare", exact=True).click()
        expect(page.locator("#compare-start")).to_contain_text("Common start: 0 items")


def test_with_200_live_rows_a_growing_text_draws_no_row_again(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "live") as gateway, open_page(browser) as page:
        gateway.create_response({"model": "echo", "input": "hi"})
        live = [
            {**gateway.http.get("/inspect/api/requests").json()["data"][0], "id": f"resp_live{n}", "text": "",
             "request_id": f"req_{n}", "status": "in_progress", "phase": "streaming", "latency_s": None}
            for n in range(200)
        ]  # fmt: skip
        polls = 0

        def answer(route: Any) -> None:
            nonlocal polls
            polls += 1
            document = route.fetch().json()
            rows = [{**row, "text": "word " * polls} for row in live]
            if polls > 5:
                rows[0]["phase"] = "waiting"
            route.fulfill(json={**document, "running": rows})

        page.route("**/inspect/api/requests?*", answer)
        page.goto(f"{gateway.root}/?request=resp_live7")
        expect(page.locator("tbody tr")).to_have_count(201)
        page.evaluate("window.kept = [...document.querySelectorAll('tbody tr')]")
        expect(page.locator("tbody tr").first).to_contain_text("waiting")
        kept = page.evaluate("kept.map((row) => row.isConnected)")
        assert kept == [False, *[True] * 200]
