"""Recorded requests on the inspector page, in a real Chromium: of `convo serve --record` and of `convo tap`."""

import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.fork_server import ConvoProcess
from tests.models.chat_server import ChatServer
from tests.server.browser import MAX_DELAY_MS, OBSERVE_ROWS, accessibility, open_page, shortest_delay_ms
from tests.server.gateway import HELD_MODEL, HTTP_TIMEOUT_S, run_gateway_with_upstream

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]


@contextmanager
def run_tap(upstream: str, file: Path) -> Iterator[str]:
    """Run `convo tap` without a command; yield its base URL for clients of OpenAI."""
    argv = ["tap", "--upstream", upstream, "--store", f"sqlite:{file}"]
    with ConvoProcess(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout
        try:
            yield process.stdout.readline().strip().partition("=")[2]
        finally:
            process.terminate()
            errors = process.communicate(timeout=30)[1]
            assert f"while they run: convo serve --store sqlite:{file}\n" in errors
            assert "lost" not in errors


def check_live_row(page: Page, upstream: ChatServer, base_url: str, model: str, title: str) -> None:
    """Send requests until the row of one appears and changes to done, each within a second."""

    def measure(attempt: int) -> float:
        return live_row_delay_ms(page, upstream, base_url, model, f"{title} {attempt}")

    assert shortest_delay_ms(measure) < MAX_DELAY_MS


def live_row_delay_ms(page: Page, upstream: ChatServer, base_url: str, model: str, title: str) -> float:
    """Send a request and open its row. Return the longer delay: until the row appears, and until it changes to done."""
    body = {"model": model, "stream": True, "messages": [{"role": "user", "content": title}]}
    headers = {"user-agent": "OpenAI/Python 3.54.0"}
    with (
        upstream.hold_answer("Once") as may_end,
        httpx2.stream(
            "POST", f"{base_url}/chat/completions", json=body, headers=headers, timeout=HTTP_TIMEOUT_S, trust_env=False
        ) as response,
    ):
        lines = response.iter_lines()
        assert "Once" in next(lines)
        started_ms = time.time() * 1000
        row = page.locator("tbody tr", has_text=title)
        expect(row).to_contain_text("streaming")
        row.click()
        expect(page.locator("#detail-text")).to_have_text("Once")
        page.get_by_role("tab", name="Request", exact=True).click()
        expect(page.get_by_role("tabpanel")).to_contain_text("As sent: POST /chat/completions")
        may_end.set()
        list(lines)
        ended_ms = time.time() * 1000
    expect(row).to_contain_text("done")
    seen = page.evaluate("seen")
    page.get_by_role("tab", name="Response", exact=True).click()  # the pane follows the request to its final id
    pane = page.get_by_role("tabpanel")
    expect(pane).to_contain_text("openai-python 3.54.0")
    expect(page.locator("#detail-text")).to_have_count(0)
    expect(pane).to_contain_text("sent to Chat Completions; shown in the form of the Responses API")
    request_id = page.url.partition("request=")[2].partition("&")[0]
    code = f"/inspect/api/requests/{request_id}/code?language=python"
    assert "client.chat.completions.create(" in page.evaluate("(url) => fetch(url).then((got) => got.text())", code)
    return float(max(seen[f"{title} ◐ streaming"] - started_ms, seen[f"{title} ● done"] - ended_ms))


def test_recorded_requests_are_live_on_the_page_of_the_server_and_of_tap_beside_it(
    browser: Browser, tmp_path: Path
) -> None:
    file = tmp_path / "convo.db"
    with (
        run_gateway_with_upstream(tmp_path / "served", f"sqlite:{file}", record=True) as (gateway, upstream),
        open_page(browser) as page,
    ):
        page.goto(gateway.root)
        expect(page.locator("#recording")).to_contain_text("Requests that are not stored are recorded")
        expect(page.get_by_role("heading", name="curl")).to_be_visible()  # the store is empty
        page.evaluate(OBSERVE_ROWS)
        check_live_row(page, upstream, gateway.url, HELD_MODEL, "To the server.")
        expect(page.locator("#recording")).to_be_visible()
        with run_tap(upstream.url, file) as base_url:
            check_live_row(page, upstream, base_url, "m", "Through the relay.")
        assert accessibility(page) == []
