"""Copies, files and forks from the inspector page in a real Chromium.

"Copy as" and "Edit and resend as a fork" of a request, "Export" of a conversation.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from convo.compaction.window import summary_message
from convo.history.items import item_text
from convo.server.auth import KeysFile, create_api_key
from tests.server.browser import HOSTILE_TEXT, MARKUP, accessibility, horizontal_overflow, open_page
from tests.server.gateway import RunningGateway, run_gateway

pytestmark = [pytest.mark.needs("chromium"), pytest.mark.browser]

CODE = "/inspect/api/requests/{}/code"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningGateway]:
    with run_gateway(tmp_path_factory.mktemp("copied") / "served") as running:
        yield running


@pytest.fixture(scope="module")
def response_id(gateway: RunningGateway) -> str:
    """A request in which every text is hostile."""
    tool = {"type": "function", "name": "f", "description": HOSTILE_TEXT, "parameters": {}}
    request = {"model": "echo", "input": HOSTILE_TEXT, "tools": [tool], "metadata": {"a": MARKUP}}
    return str(gateway.create_response(request).json()["id"])


@pytest.mark.parametrize("address", ["?request={0}", pytest.param("#/{0}/{0}", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("name", "language"),
    [
        pytest.param("curl", "curl", marks=pytest.mark.browser(by_default=True)),
        ("Python", "python"),
        ("JavaScript", "javascript"),
    ],
)
def test_a_request_is_copied_as_code(
    browser: Browser, gateway: RunningGateway, response_id: str, address: str, name: str, language: str
) -> None:
    with open_page(browser) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        page.goto(f"{gateway.root}/{address.format(response_id)}")
        page.get_by_role("region", name="Copy as").get_by_role("button", name=name, exact=True).click()
        expect(page.locator("#copy-status")).to_have_text(f"Copied as {name}")
        expect(page.locator("#copy-code")).to_have_count(0)
        code = gateway.http.get(CODE.format(response_id), params={"language": language}).text
        assert page.evaluate("navigator.clipboard.readText()") == code


@pytest.mark.parametrize("width", [1280, 360])
@pytest.mark.parametrize("clipboard", ["absent", "refused"])
def test_a_browser_that_does_not_copy_shows_the_selected_code(
    browser: Browser, gateway: RunningGateway, response_id: str, clipboard: str, width: int
) -> None:
    values = {"absent": "undefined", "refused": "{ writeText: () => Promise.reject(new Error('refused')) }"}
    with open_page(browser, width=width) as page:
        page.add_init_script(f"Object.defineProperty(navigator, 'clipboard', {{ value: {values[clipboard]} }})")
        page.goto(f"{gateway.root}/?request={response_id}")
        page.get_by_role("button", name="Python", exact=True).click()
        field = page.get_by_label("The request as Python")
        code = gateway.http.get(CODE.format(response_id), params={"language": "python"}).text
        expect(field).to_have_value(code)
        expect(field).to_be_focused()
        assert page.evaluate("document.activeElement.value.slice(0, document.activeElement.selectionEnd)") == code
        assert page.evaluate("document.activeElement.selectionStart") == 0
        expect(page.locator("#copy-status")).to_contain_text("copy the selected text")
        assert accessibility(page) == []
        assert horizontal_overflow(page) == 0


def test_a_refusal_of_the_server_is_shown_as_text(browser: Browser, gateway: RunningGateway, response_id: str) -> None:
    with open_page(browser) as page:
        error = {"error": {"message": MARKUP}}
        page.route(re.compile(r"/code\?"), lambda route: route.fulfill(status=404, body=json.dumps(error)))
        page.goto(f"{gateway.root}/?request={response_id}")
        page.get_by_role("button", name="curl", exact=True).click()
        expect(page.locator("#copy-status")).to_have_text(MARKUP)


def exported(page: Page, name: str) -> tuple[str, bytes]:
    """Follow a link to a file; returns its suggested name and its content."""
    with page.expect_download() as started:
        page.get_by_role("link", name=name, exact=True).click()
    return started.value.suggested_filename, Path(started.value.path()).read_bytes()


@pytest.mark.parametrize("name", ["JSON", "JSONL", "Markdown", "HTML"])
def test_a_conversation_is_downloaded_from_its_page(
    browser: Browser, gateway: RunningGateway, response_id: str, name: str
) -> None:
    with open_page(browser) as page:
        page.goto(f"{gateway.root}/#/{response_id}")
        file_name, content = exported(page, name)
        path = f"/inspect/api/conversations/{response_id}/export"
        got = gateway.http.get(path, params={"format": name.lower()})
        assert content == got.content
        assert got.headers["content-disposition"] == f'attachment; filename="{file_name}"'
        assert accessibility(page) == []


def test_with_keys_the_page_sends_its_key_for_code_and_files(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "keys"
    key = create_api_key(file, "alice")
    headers = {"authorization": f"Bearer {key}"}
    with run_gateway(tmp_path / "keyed", keys=KeysFile(file)) as gateway, open_page(browser) as page:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        mine = gateway.create_response({"model": "echo", "input": "mine"}, headers=headers).json()["id"]
        page.goto(f"{gateway.root}/#/{mine}/{mine}")
        page.get_by_label("Key").fill(key)
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Python", exact=True).click()
        expect(page.locator("#copy-status")).to_have_text("Copied as Python")
        code = page.evaluate("navigator.clipboard.readText()")
        assert ('os.environ["CONVO_KEY"]' in code, key in code) == (True, False)
        file_name, content = exported(page, "JSON")
        assert file_name == f"{mine}.json"
        assert json.loads(content)[0]["content"] == [{"type": "input_text", "text": "mine"}]


# -- forks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [1280, 360])
def test_a_request_is_edited_and_sent_again_as_a_fork(browser: Browser, tmp_path: Path, width: int) -> None:
    file = tmp_path / "keys"
    key = create_api_key(file, "alice")
    headers = {"authorization": f"Bearer {key}"}
    with run_gateway(tmp_path / "keyed", keys=KeysFile(file)) as gateway, open_page(browser, width=width) as page:
        first = gateway.create_response({"model": "echo", "input": "one"}, headers=headers).json()["id"]
        request = {"model": "echo", "input": "two", "instructions": HOSTILE_TEXT, "previous_response_id": first}
        second = gateway.create_response(request, headers=headers).json()["id"]
        page.goto(f"{gateway.root}/?request={second}")
        page.get_by_label("Key").fill(key)
        page.keyboard.press("Enter")
        page.get_by_text("Edit and resend as a fork").click()
        field = page.get_by_label("Last message of the user")
        expect(field).to_have_value("two")
        field.fill(HOSTILE_TEXT)
        page.get_by_role("tab", name="Raw").click()
        expect(field).to_have_value(HOSTILE_TEXT.replace("\r", ""))
        assert accessibility(page) == []
        assert horizontal_overflow(page) == 0
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator("tbody tr")).to_have_count(3)
        rows = gateway.http.get("/inspect/api/requests", headers=headers).json()["data"]
        forked = rows[0]["id"]
        expect(page.locator(f"#request-{forked}")).to_have_attribute("aria-current", "true")
        document = gateway.http.get(f"/inspect/api/conversations/{forked}", headers=headers).json()
        links = {link["response_id"]: link for link in document["links"]}
        assert links[forked]["previous_response_id"] == first
        assert links[forked]["request"] == links[second]["request"]
        sent = gateway.http.get(f"/v1/responses/{forked}/input_items?order=asc", headers=headers).json()["data"]
        assert sent[-1]["content"] == [{"type": "input_text", "text": HOSTILE_TEXT}]


def test_a_refused_fork_shows_the_error_and_keeps_the_text(browser: Browser, tmp_path: Path) -> None:
    with run_gateway(tmp_path / "served") as gateway, open_page(browser) as page:
        first = gateway.create_response({"model": "echo", "input": "one"}).json()["id"]
        second = gateway.create_response({"model": "echo", "input": "two", "previous_response_id": first}).json()["id"]
        page.goto(f"{gateway.root}/?request={second}")
        page.get_by_text("Edit and resend as a fork").click()
        field = page.get_by_label("Last message of the user")
        field.fill("three")
        gateway.http.delete(f"/v1/responses/{first}")
        page.get_by_role("button", name="Send", exact=True).click()
        expect(page.locator("#fork-status")).to_contain_text(first)
        expect(field).to_have_value("three")


@pytest.mark.browser
def test_a_summary_is_named_and_not_offered_as_the_last_message_of_the_user(
    browser: Browser, gateway: RunningGateway
) -> None:
    summary = {"role": "user", "content": item_text(summary_message("They talked."))}
    request = {"model": "echo", "input": [{"role": "user", "content": "one"}, summary]}
    response_id = gateway.create_response(request).json()["id"]
    with open_page(browser) as page:
        page.goto(f"{gateway.root}/?request={response_id}")
        page.get_by_text("Edit and resend as a fork").click()
        expect(page.get_by_label("Last message of the user")).to_have_value("one")
        expect(page.get_by_role("heading", name="2 · summary")).to_be_visible()


def test_a_request_in_a_conversation_cannot_be_a_fork(browser: Browser, gateway: RunningGateway) -> None:
    conversation_id = gateway.http.post("/v1/conversations", json={}).json()["id"]
    request = {"model": "echo", "input": "hi", "conversation": conversation_id}
    response_id = gateway.create_response(request).json()["id"]
    with open_page(browser) as page:
        page.goto(f"{gateway.root}/?request={response_id}")
        expect(page.get_by_role("button", name="curl", exact=True)).to_be_visible()
        expect(page.locator("#fork")).to_have_count(0)
