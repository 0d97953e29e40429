"""Approve and Reject on the inspector page, in a real Chromium, followed by a real `convo resume`."""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from convo.history.records import AgentRun
from convo.runs.serialize import run_to_json
from convo.server.auth import KeysFile, create_api_key
from convo.stores.base import Transaction
from tests.cli.agent_files import LOOK_UP, PAID_BACK, REFUND, agent_flags, tool_runs
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Launch
from tests.runs.run_steps import call
from tests.runs.test_stored_approvals import paused
from tests.server.api_keys import bearer
from tests.server.browser import HOSTILE_TEXT, accessibility, horizontal_overflow, open_page
from tests.server.gateway import RunningGateway, run_gateway
from tests.stores.chat_transactions import NOW, session

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]


OpenDesk = Callable[..., tuple[RunningGateway, Page]]


@pytest.fixture
def open_desk(browser: Browser, home: Path, tmp_path: Path) -> Iterator[OpenDesk]:
    """Return a function that serves the store of the command line with a key, and opens the page with it."""
    with ExitStack() as stack:

        def start(**more: Any) -> tuple[RunningGateway, Page]:
            key = create_api_key(tmp_path / "keys", "local")
            keys = KeysFile(tmp_path / "keys")
            gateway = stack.enter_context(run_gateway(tmp_path / "served", f"sqlite:{home / DATABASE}", keys=keys))
            gateway.create_response({"model": "echo", "input": "hi"}, headers=bearer(key))
            page = stack.enter_context(open_page(browser, **more))
            page.goto(gateway.root)
            page.get_by_label("Key", exact=True).fill(key)
            page.get_by_role("button", name="Open").click()
            return gateway, page

        yield start


def open_dialog(page: Page, name: str) -> Locator:
    page.get_by_role("button", name=name).click()
    return page.get_by_role("dialog")


@pytest.mark.browser(by_default=True)
def test_an_approved_call_runs_once_when_the_run_is_resumed(open_desk: OpenDesk, launch: Launch) -> None:
    model = scripted_flags(LOOK_UP, REFUND, PAID_BACK)
    assert launch("chat", *agent_flags(), *model, "-n", "refunds", "pay A1 back").exit == 3
    _, page = open_desk(width=360)
    page.get_by_role("button", name="Approve refund (c1)").press("Enter")
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading")).to_have_text("Approve refund?")
    expect(dialog.get_by_role("heading")).to_be_focused()
    expect(dialog.locator("pre")).to_have_text('{"order": "A1", "cents": 500}')
    digest = dialog.locator(".digest")
    expect(digest).to_have_text(re.compile("^sha256:[0-9a-f]{64}$"))
    assert digest.evaluate("node => node.offsetHeight < 2 * parseFloat(getComputedStyle(node).lineHeight)")
    assert accessibility(page) == []
    assert horizontal_overflow(page) == 0
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    assert page.locator("#state").evaluate("node => node.clientWidth") > 200
    expect(page.get_by_role("button", name="Approve refund (c1)")).to_be_focused()

    open_dialog(page, "Approve refund (c1)").get_by_role("button", name="Approve", exact=True).press("Enter")
    status = page.locator("#decision-status[aria-live=polite]")
    expect(status).to_have_text("Approved refund (c1). To continue the run: convo resume refunds")
    expect(page.get_by_role("region", name="Paused: 1 agent run")).to_contain_text("all calls are decided")
    expect(page.locator("#main")).to_be_focused()
    assert tool_runs() == ["look_up A1"]
    assert launch("resume", "refunds", *agent_flags(), *model).exit == 0
    assert tool_runs() == ["look_up A1", "refund A1 500"]
    assert launch("resume", "refunds", *agent_flags(), *model).exit != 0
    assert tool_runs() == ["look_up A1", "refund A1 500"]

    page.get_by_role("button", name="Approvals").click()
    expect(page.get_by_role("dialog").locator("li")).to_contain_text("Approved: refund")
    expect(page.get_by_role("dialog").locator("li")).to_contain_text("by local · desk · c1 · run_")
    assert accessibility(page) == []
    assert horizontal_overflow(page) == 0
    log = launch("approvals", "log", "--json").json()
    assert [(one["decision"], one["decided_by"], one["source"], one["arguments"]) for one in log] == [
        ("approve", "local", "page", '{"order": "A1", "cents": 500}')
    ]


def test_a_rejected_call_never_runs_and_the_model_gets_the_reason(open_desk: OpenDesk, launch: Launch) -> None:
    model = scripted_flags(REFUND, {"text": "Sorry."})
    assert launch("chat", *agent_flags(), *model, "-n", "refunds", "pay A1 back").exit == 3
    _, page = open_desk()
    page.get_by_role("link", name="refunds").click()
    dialog = open_dialog(page, "Reject refund (c1)")
    dialog.get_by_label("Reason for the model (optional)").fill("not on a Friday")
    dialog.get_by_label("Always").check()
    assert accessibility(page) == []
    dialog.get_by_role("button", name="Reject", exact=True).click()
    expect(page.locator("#decision-status")).to_contain_text("Rejected refund (c1).")
    expect(page.get_by_text("all calls are decided")).to_be_visible()
    assert launch("resume", "refunds", *agent_flags(), *model).exit == 0
    assert tool_runs() == []
    outputs = [
        one["output"] for one in launch("inspect", "refunds", "--json").json()["items"].values() if "output" in one
    ]
    assert outputs == ["not on a Friday"]
    (entry,) = launch("approvals", "log", "--json").json()
    assert (entry["decision"], entry["always"], entry["reason"]) == ("reject", True, "not on a Friday")


def test_hostile_arguments_are_shown_as_text_and_a_second_decider_sees_the_first(open_desk: OpenDesk) -> None:
    gateway, page = open_desk(width=360, scheme="dark")
    long_text = f"{HOSTILE_TEXT}\u2066\u200b" + "x" * 1_000_000
    arguments = json.dumps({"text": long_text}, ensure_ascii=False)
    run = paused(call(HOSTILE_TEXT, "guarded", arguments), call("g2", "guarded"))
    row = AgentRun("run_1", "ses_1", 1, "paused", run_to_json(run), NOW, NOW)
    record = session(id="ses_1", name=HOSTILE_TEXT)
    gateway.run(gateway.store.commit(Transaction(session=record, agent_run=row)))
    buttons = page.get_by_role("button", name="Approve guarded (")
    expect(buttons).to_have_count(2)
    buttons.first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog.locator("pre")).to_contain_text("</script><script>planted.push(3)</script>")
    shown = dialog.locator("pre").inner_text()
    assert shown == arguments.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066").replace("\u200b", "\\u200b")
    expect(dialog).to_contain_text("3 characters that would be invisible or change the direction of the text")
    assert horizontal_overflow(page) == 0

    gateway.run(decide_elsewhere(gateway))
    dialog.get_by_role("button", name="Approve", exact=True).click()
    expect(dialog.get_by_role("alert")).to_contain_text("is already rejected by bob")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Approvals (1)").click()
    expect(page.get_by_role("dialog").locator(".decision-log li")).to_have_count(1)
    expect(page.get_by_role("dialog").locator(".decision-log code")).to_contain_text("…")
    assert accessibility(page) == []


async def decide_elsewhere(gateway: RunningGateway) -> None:
    """Reject the first call as another key does."""
    from convo.chat.run_decisions import save_decisions
    from convo.runs.state import ApprovalDecided

    row = await gateway.store.agent_run("run_1")
    assert row
    event = ApprovalDecided(HOSTILE_TEXT, approve=False)
    await save_decisions(gateway.store, row, [event], now=NOW, decided_by="bob", source="page")


def test_without_keys_the_page_says_how_to_set_one_up(
    browser: Browser, launch: Launch, home: Path, tmp_path: Path
) -> None:
    model = scripted_flags(REFUND, PAID_BACK)
    assert launch("chat", *agent_flags(), *model, "-n", "refunds", "pay A1 back").exit == 3
    with run_gateway(tmp_path / "served", f"sqlite:{home / DATABASE}") as gateway, open_page(browser) as page:
        page.goto(gateway.root)
        dialog = open_dialog(page, "Approve refund (c1)")
        expect(dialog.get_by_role("alert")).to_contain_text("convo serve --new-key local --keys FILE")
        expect(dialog.get_by_role("button")).to_have_text(["Close"])
        assert accessibility(page) == []
