"""Hostile text in every field that the inspector page shows runs nothing, in a real Chromium."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, expect

from convo.history.items import Item, assistant_message, user_message
from convo.history.records import RECORDING_PARAMETER, AgentCall, AgentRun, Strategy
from convo.history.tree import Path, root_key
from convo.runs.serialize import run_to_json
from convo.stores.base import AppendItems, Transaction
from tests.runs.run_steps import call
from tests.runs.test_stored_approvals import paused
from tests.server.browser import HOSTILE_TEXT, MARKUP, accessibility, horizontal_overflow, open_page
from tests.server.gateway import RunningGateway, run_gateway
from tests.stores.chat_transactions import NOW, USAGE, link, session

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]

FIRST, SECOND = (f"resp_{text}".replace("/", "") for text in (HOSTILE_TEXT, MARKUP))
IMAGES = ("javascript:planted.push(5)", f"https://tracker.invalid/{MARKUP}", "data:image/svg+xml;base64,PHN2Zz4=")
CONTENT = [{"type": "input_text", "text": HOSTILE_TEXT}, *({"type": "input_image", "image_url": url} for url in IMAGES)]
CALL: Item = {"type": "function_call", "call_id": HOSTILE_TEXT, "name": HOSTILE_TEXT, "arguments": HOSTILE_TEXT}
ITEMS: list[Item] = [
    {"role": "user", "content": CONTENT},
    CALL,
    {"type": "function_call_output", "call_id": HOSTILE_TEXT, "output": HOSTILE_TEXT},
    {"type": "mcp_call", "name": HOSTILE_TEXT, "server_label": HOSTILE_TEXT, "error": HOSTILE_TEXT},
    {**assistant_message(f"[a](javascript:planted.push(6)) ![b]({IMAGES[1]}) {HOSTILE_TEXT}"), "id": HOSTILE_TEXT},
]
PARAMETERS = {
    "instructions": HOSTILE_TEXT,
    "metadata": {HOSTILE_TEXT: HOSTILE_TEXT},
    "tools": [{"type": "function", "name": HOSTILE_TEXT[:90]}, {"type": HOSTILE_TEXT[:90], "server_label": MARKUP}],
    RECORDING_PARAMETER: {"client": HOSTILE_TEXT, "version": MARKUP, "protocol": "messages", "notes": [MARKUP]},
}
RUN_DOCUMENT = {
    "agent": HOSTILE_TEXT,
    "turn": 1,
    "used": {HOSTILE_TEXT: [HOSTILE_TEXT]},
    "guards": [{"name": HOSTILE_TEXT}],
    "failure": {"message": HOSTILE_TEXT},
}


def store_hostile_text(gateway: RunningGateway) -> None:
    """Store a session, two requests that it and another client made, a finished run and a paused run."""
    root = root_key("local")
    path = Path(root).append(ITEMS)
    fork = path.first(1).append([user_message(MARKUP)])
    error = {"code": HOSTILE_TEXT, "message": HOSTILE_TEXT}
    fields = {"model": HOSTILE_TEXT, "session_id": "ses_1", "parameters": PARAMETERS, "usage": USAGE}
    links = (
        link(FIRST, path.first(1).head, path.head, strategy=Strategy.CHAIN, **fields),
        link(SECOND, fork.head, fork.head, status="failed", error=error, parent_id=FIRST, **fields),
    )
    record = session(name=HOSTILE_TEXT, head=path.head, confirmed_head=path.head, link_id=FIRST)
    run = AgentRun("run_1", "ses_1", 1, "failed", RUN_DOCUMENT, NOW - 5, NOW + 5)
    appends = (AppendItems(root, path.items), AppendItems(path.first(1).head, fork.items[1:]))
    gateway.run(gateway.store.commit(Transaction(appends, links, record, agent_run=run)))
    logged = AgentCall("run_1", f"1/{HOSTILE_TEXT}", NOW, has_ended=True, output=HOSTILE_TEXT)
    gateway.run(gateway.store.commit(Transaction(agent_calls=(logged,))))
    document = run_to_json(paused(call(HOSTILE_TEXT, "guarded")))
    paused_run = AgentRun("run_2", "ses_2", 1, "paused", document, NOW, NOW)
    record = session(id="ses_2", name=MARKUP)
    gateway.run(gateway.store.commit(Transaction(session=record, agent_run=paused_run)))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(tmp_path_factory.mktemp("hostile")) as running:
        store_hostile_text(running)
        yield running


def test_the_table_its_filters_and_every_tab_show_hostile_text_as_text(
    browser: Browser, gateway: RunningGateway
) -> None:
    requested: list[str] = []
    with open_page(browser) as page:
        page.on("request", lambda request: requested.append(request.url))
        page.goto(f"{gateway.root}/?charts=open")
        expect(page.locator("tbody th a")).not_to_have_count(0)
        expect(page.locator("#charts[data-state=done]")).to_be_visible()
        expect(page.locator("#filter-tool option")).to_have_count(3)
        expect(page.locator(".paused")).to_contain_text("<img src=x onerror=planted.push(1)>")
        for request in (FIRST, SECOND):
            for tab in ("conversation", "request", "seen", "response", "diff", "raw"):
                page.goto(f"{gateway.root}/?request={quote(request)}&tab={tab}&compare={quote(SECOND)}")
                expect(page.get_by_role("tabpanel")).to_contain_text("onerror=planted.push(1)")
        assert accessibility(page) == []
        assert page.locator("main :is(img, script, [onload], [onerror], [onfocus])").count() == 0
    assert [url for url in requested if not url.startswith((gateway.root, "data:"))] == []


def test_the_conversation_its_runs_and_the_comparison_show_hostile_text_as_text(
    browser: Browser, gateway: RunningGateway
) -> None:
    with open_page(browser, width=360) as page:
        page.goto(f"{gateway.root}/#/ses_1/{quote(FIRST, safe='')}")
        expect(page.locator("#link-title")).to_contain_text("onerror=planted.push(1)")
        page.locator("#runs > summary").click()
        expect(page.locator(".run")).to_contain_text("guardrails running: </script>")
        expect(page.locator(".run")).to_contain_text("failed: </script>")
        page.locator(".timeline summary").first.click()
        expect(page.locator(".timeline .json").first).to_contain_text("onerror=planted.push(1)")
        page.locator(".usage-bar").first.click()
        assert horizontal_overflow(page) == 0
        page.goto(f"{gateway.root}/#compare/ses_1/{quote(HOSTILE_TEXT, safe='')}")
        expect(page.locator("#compare-start")).to_contain_text("The histories are equal: 5 items.")
        expect(page.locator(".branches")).to_contain_text("onerror=planted.push(1)")
        page.get_by_role("textbox", name="B").fill("ses_2")
        page.get_by_role("button", name="Compare", exact=True).click()
        expect(page.locator("#compare-start")).to_contain_text("Common start: 0 items")
        expect(page.locator("section[aria-labelledby=only-a-title] article")).to_have_count(5)
        page.get_by_role("textbox", name="B").fill(SECOND)
        page.get_by_role("button", name="Compare", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("is not the id of a response")
        assert horizontal_overflow(page) == 0
        assert page.locator("main :is(img, script, [onload], [onerror], [onfocus])").count() == 0
