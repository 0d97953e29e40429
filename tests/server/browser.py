"""A page in a real Chromium; scripts that ran and policy violations fail the test.

with chromium() as browser, open_page(browser) as page: ...
"""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, sync_playwright

WATCH_SCRIPT = """
window.planted = [];
window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""
"""Stands in the page before its own script. Words that were taken for a script say so in `planted`."""

MARKUP = "<img src=x onerror=planted.push(1)><svg onload=planted.push(2)></svg>"
HOSTILE_TEXT = (
    f"</script><script>planted.push(3)</script>{MARKUP}\" onfocus=planted.push(4) autofocus x='&amp; \x1b[31m\u202e"
)
"""Words that would run wherever they were taken for markup or for part of a tag."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Debian's Chromium; as root it runs without its sandbox, which would not start."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(
    browser: Browser, *, wide: int = 1280, scheme: Literal["light", "dark"] = "light", forbidden: bool = False
) -> Iterator[Page]:
    """An empty page of its own; afterwards nothing ran in it, and without `forbidden` nothing was forbidden either."""
    context = browser.new_context(viewport={"width": wide, "height": 900}, color_scheme=scheme, reduced_motion="reduce")
    context.set_default_timeout(20_000)
    page, problems = context.new_page(), list[str]()
    page.add_init_script(WATCH_SCRIPT)
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
    try:
        yield page
        assert page.evaluate("planted") == []
        assert bool(page.evaluate("violations")) is forbidden
        assert forbidden or [words for words in problems if not is_expected(words)] == []
    finally:
        context.close()


def is_expected(words: str) -> bool:
    """Whether a browser says so by itself: of a refusal, and of a question that nobody waits for any more."""
    return "responded with a status of 40" in words or words.startswith("failed: http://127.0.0.1")


def accessibility(page: Page) -> list[str]:
    """What axe finds, by rule: what cannot be seen, heard or reached by everybody."""
    page.evaluate(AXE_SCRIPT)
    found: dict[str, Any] = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [f"{rule['id']}: {node['html']}" for rule in found["violations"] for node in rule["nodes"]]


def horizontal_overflow(page: Page) -> int:
    """How many pixels of the page lie beyond its right edge."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
