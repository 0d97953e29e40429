"""The parts of the inspector page that are loaded when they are opened, in a real Chromium.

Markdown of answers, token bars, compaction preview, agent runs, filters by tool and time.
"""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from convo.history.items import assistant_message, user_message
from convo.history.records import Strategy
from convo.history.tree import Path as ItemPath
from convo.history.tree import root_key
from convo.stores.base import AppendItems, Transaction
from tests.cli.agent_files import LOOK_UP, PAID_BACK, PAYMENTS_HANDOFF, REFUND, agent_flags
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import DATABASE, ChatWriter
from tests.command_runner import Launch
from tests.server.browser import HOSTILE_TEXT, accessibility, horizontal_overflow, open_page
from tests.server.gateway import (
    HELD_MODEL,
    RunningGateway,
    run_gateway,
    run_gateway_with_chats,
    run_gateway_with_upstream,
)
from tests.stores.chat_transactions import link

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]

MARKDOWN = f"""# Rain

Water that *falls*, see [NOAA](https://noaa.example/rain?a=1) or [this](javascript:planted.push(9)).
![pixel](http://tracker.invalid/x.png) `code` <b>bold</b> {HOSTILE_TEXT}

| kind | size |
|------|------|
| hail | 5 mm |

1. one
2. two

```python
print("rain")
```
"""


async def write_conversations(writer: ChatWriter) -> None:
    await writer.chat(Strategy.CHAIN, "rain", "What is rain?", "And snow?", "And hail?")
    await writer.other_client("And fog?", previous_response_id="resp_1")


def store_samples(gateway: RunningGateway) -> None:
    """Store an answer in Markdown, a call of a function now, and a request that offers a hosted tool."""
    root, now = root_key("local"), time.time()
    path = ItemPath(root).append([user_message("**Rain?**"), assistant_message(MARKDOWN)])
    call = {"type": "function_call", "name": "look_up", "call_id": "call_1", "arguments": "{}"}
    called = path.append([user_message("Look it up"), call])
    links = (
        link("resp_markdown", path.first(1).head, path.head, parameters={"tools": [{"type": "web_search"}]}),
        link("resp_call", called.first(3).head, called.head, parent_id="resp_markdown", created_at=now - 60),
    )
    gateway.run(gateway.store.commit(Transaction((AppendItems(root, called.items),), links)))


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway_with_chats(tmp_path_factory.mktemp("details"), write_conversations) as running:
        store_samples(running)
        yield running


@pytest.mark.browser(by_default=True)
def test_an_answer_is_markdown_without_html_images_or_unsafe_links(page: Page, gateway: RunningGateway) -> None:
    requested: list[str] = []
    page.on("request", lambda request: requested.append(request.url))
    page.goto(f"{gateway.root}/?request=resp_markdown")
    answer = page.locator("#detail article.assistant .markdown")
    expect(answer.locator("p.heading")).to_have_text("Rain")
    expect(answer.locator("em")).to_have_text("falls")
    expect(answer.locator("td")).to_have_text(["hail", "5 mm"])
    expect(answer.locator("ol li")).to_have_text(["one", "two"])
    expect(answer.locator("pre")).to_have_text('print("rain")')
    anchor = answer.locator("a")
    expect(anchor).to_have_count(1)
    assert anchor.get_attribute("href") == "https://noaa.example/rain?a=1"
    assert "noopener" in str(anchor.get_attribute("rel"))
    expect(answer).to_contain_text("[this](javascript:planted.push(9))")
    expect(answer).to_contain_text("[image: pixel]")
    expect(answer).to_contain_text("<b>bold</b>")
    assert answer.locator("img, b, script, svg").count() == 0
    expect(page.locator("#detail article.user")).to_contain_text("**Rain?**")
    assert [url for url in requested if not url.startswith((gateway.root, "data:"))] == []
    assert accessibility(page) == []


def test_markdown_is_plain_when_it_is_too_long_or_the_server_refuses(page: Page, gateway: RunningGateway) -> None:
    page.route("**/inspect/api/markdown", lambda route: route.fulfill(status=403, body='{"error": {"message": "no"}}'))
    page.goto(f"{gateway.root}/?request=resp_markdown")
    expect(page.locator("#detail article.assistant")).to_contain_text("# Rain")
    assert page.locator("#detail .markdown").count() == 0


def test_requests_are_filtered_by_tool_and_time_in_the_address(page: Page, gateway: RunningGateway) -> None:
    rows = page.locator("tbody tr")
    page.goto(gateway.root)
    expect(rows).to_have_count(6)
    page.get_by_role("combobox", name="Tool").select_option("web_search")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("**Rain?**")
    assert page.url.endswith("?tool=web_search")
    page.goto(f"{gateway.root}/?tool=look_up")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("Look it up")
    assert page.get_by_role("combobox", name="Tool").input_value() == "look_up"
    page.get_by_role("button", name="Clear filters").click()
    expect(rows).to_have_count(6)
    page.get_by_role("combobox", name="Time").select_option("hour")
    expect(rows).to_have_count(1)
    assert page.url.endswith("?time=hour")
    page.get_by_role("combobox", name="Time").select_option("between")
    page.get_by_label("From").fill("2001-01-01T00:00")
    page.get_by_label("To", exact=True).fill("2024-01-01T00:00")
    expect(rows).to_have_count(5)
    page.reload()
    expect(rows).to_have_count(5)
    assert page.get_by_label("From").input_value() == "2001-01-01T00:00"
    assert accessibility(page) == []


def test_a_bar_of_tokens_opens_its_request(page: Page, gateway: RunningGateway) -> None:
    page.goto(f"{gateway.root}/#/rain")
    bars = page.locator(".usage-bar")
    expect(bars).to_have_count(4)
    legend = page.get_by_role("list", name="Tokens of the requests of this branch")
    expect(page.locator("figcaption")).to_contain_text("sums of this branch")
    total = page.locator("dl").first.inner_text()
    output_tokens = legend.get_by_role("listitem").filter(has_text="output").inner_text().split()[-1]
    assert f" {output_tokens} output" in total[: total.index("Other requests")]
    expect(legend).to_contain_text("re-sent")
    assert "re-sent 0" not in legend.inner_text()
    bars.nth(1).locator(".usage-target").click()
    expect(page.locator("#link-title")).to_have_text("resp_2")
    expect(page.locator(".usage-bar.selected")).to_have_count(1)


@pytest.mark.parametrize("address", ["?request=resp_3", "#/rain"])
def test_a_compaction_is_previewed_without_a_model(page: Page, gateway: RunningGateway, address: str) -> None:
    page.goto(f"{gateway.root}/{address}")
    page.get_by_text("Compaction preview").click()
    result = page.locator("#compaction-result")
    expect(result).to_contain_text("6 of 6 items")
    expect(result).to_contain_text("What is rain?")
    page.get_by_label("Turns to keep").fill("2")
    page.get_by_label("Turns to keep").press("Tab")
    expect(result).to_contain_text("2 of 6 items")
    expect(result).to_contain_text("4 items")
    page.get_by_label("Turns to keep").fill("9")
    page.get_by_label("Turns to keep").press("Tab")
    expect(result).to_contain_text("nothing to compact before the kept turns")
    assert accessibility(page) == []
    assert horizontal_overflow(page) == 0


def test_agent_runs_are_shown_on_a_time_line(
    browser: Browser, launch: Launch, home: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = scripted_flags(LOOK_UP, REFUND, PAID_BACK)
    assert launch("chat", *agent_flags(), *model, "-n", "refunds", "pay A1 back").exit == 3
    assert launch("resume", "refunds", *agent_flags(), *model, "--approve", "c1").exit == 0
    folder = tmp_path_factory.mktemp("runs")
    with run_gateway(folder / "served", f"sqlite:{home}/{DATABASE}") as running, open_page(browser, width=360) as page:
        page.goto(f"{running.root}/#/refunds")
        page.get_by_text("Agent runs").click()
        events = page.locator(".timeline > li")
        expect(events).to_have_count(5)
        expect(page.locator(".run")).to_contain_text("desk")
        assert events.locator("summary").all_inner_texts() == ["tool look_up", "tool refund"]
        page.locator(".timeline summary").last.click()
        expect(page.locator(".timeline .json").last).to_contain_text("paid 500 cents back for A1")
        assert accessibility(page) == []
        assert horizontal_overflow(page) == 0


def test_the_time_line_has_ended_guardrails_and_handoffs(
    browser: Browser, launch: Launch, home: object, tmp_path_factory: pytest.TempPathFactory
) -> None:
    model = scripted_flags(PAYMENTS_HANDOFF, LOOK_UP, {"text": "You fool."})
    assert launch("chat", *agent_flags("gate"), *model, "-n", "mine", "hello").exit == 1
    folder = tmp_path_factory.mktemp("runs")
    with run_gateway(folder / "served", f"sqlite:{home}/{DATABASE}") as running, open_page(browser, width=360) as page:
        (run,) = running.http.get("/inspect/api/conversations/mine/runs").json()["data"]
        assert [(one["kind"], one["outcome"], one["target"]) for one in run["timeline"]] == [
            ("guardrail", "passed", None),
            ("handoff", None, "payments"),
            ("guardrail", "tripped", None),
        ]
        assert (run["open_guardrails"], run["timeline_omitted"]) == ([], 0)
        page.goto(f"{running.root}/#/mine")
        page.get_by_text("Agent runs").click()
        expect(page.locator(".timeline > li.guardrail")).to_have_text(
            [
                re.compile("input guardrail no_insults of gate: passed"),
                re.compile("no_debts of payments: tripped.*an insult"),
            ]
        )
        expect(page.locator(".timeline > li.handoff")).to_have_text([re.compile("handoff gate → payments")])
        expect(page.locator(".timeline > li.call summary")).to_have_text("tool look_up")
        assert accessibility(page) == []
        assert horizontal_overflow(page) == 0


def test_the_text_of_a_stream_stays_in_the_pane_until_the_response_is_there(page: Page, tmp_path: Path) -> None:
    request = {"model": HELD_MODEL, "input": "Count", "stream": True}
    with run_gateway_with_upstream(tmp_path / "live") as (gateway, upstream):
        gateway.create_response({"model": "echo", "input": "hi"})
        page.goto(gateway.root)
        row = page.locator("tbody tr").first
        with (
            upstream.hold_answer("one two three", " four five six") as may_end,
            gateway.http.stream("POST", "/v1/responses", json=request) as stream,
        ):
            expect(row).to_contain_text("streaming")
            page.route("**/inspect/api/requests/resp_*", lambda _: None)
            row.click()
            expect(page.locator("#detail-text")).to_have_text("one two three")
            with page.expect_request("**/inspect/api/requests/resp_*"):
                may_end.set()
                stream.read()
        expect(row).to_contain_text("done")
        expect(page.locator("#detail-text")).to_contain_text("one two three")
        page.unroute("**/inspect/api/requests/resp_*")  # sends the request that was held
        expect(page.get_by_role("tabpanel")).to_contain_text("one two three four five six")


@pytest.mark.parametrize("filters", ["", "q=begin&", "status=failed&"])
def test_the_pane_follows_a_chain_that_continues_whatever_the_filters_are(
    filters: str, page: Page, gateway: RunningGateway
) -> None:
    first = gateway.create_response({"model": "echo", "input": "begin"}).json()["id"]
    page.goto(f"{gateway.root}/?{filters}request={first}")
    expect(page.get_by_role("tabpanel")).to_be_visible()
    assert page.locator("#detail-continued").count() == 0
    second = gateway.create_response({"model": "echo", "input": "more", "previous_response_id": first}).json()["id"]
    expect(page.locator("#detail-continued")).to_have_text(f"Continued in {second}")
    page.locator("#detail-continued a").click()
    expect(page.locator("#detail-title")).to_have_text("more")
