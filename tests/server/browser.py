"""A page in a real Chromium; injected scripts that run and policy violations fail the test.

with chromium() as browser, open_page(browser) as page: ...
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from axe_playwright_python.base import AXE_SCRIPT
from playwright.sync_api import Browser, Page, expect, sync_playwright

TIMEOUT_MS = 60_000
"""Only rules out a hang: a busy machine takes many seconds for a page."""

expect.set_options(timeout=TIMEOUT_MS)

WATCH_SCRIPT = """
window.planted = [];
window.violations = [];
addEventListener("securitypolicyviolation", (event) => violations.push(event.violatedDirective));
"""
"""Runs before the scripts of the page. Injected scripts append to `planted`, policy violations to `violations`."""

MARKUP = "<img src=x onerror=planted.push(1)><svg onload=planted.push(2)></svg>"
HOSTILE_TEXT = (
    f"</script><script>planted.push(3)</script>{MARKUP}\" onfocus=planted.push(4) autofocus x='&amp; \x1b[31m\u202e"
)
"""Text that would run as a script if a page inserted it as markup or into an attribute."""


MAX_DELAY_MS = 1000
"""Milliseconds until a change in the store is on the page."""

OBSERVE_ROWS = """() => { window.seen = {}; new MutationObserver(() => {
    for (const row of document.querySelectorAll("tbody tr")) {
      const [title, status] = ["th a", ".status-label"].map((name) => row.querySelector(name).textContent);
      window.seen[`${title} ${status}`] ??= Date.now();
    } }).observe(document.body, { childList: true, subtree: true }); }"""
"""Writes the time at which each title with each status is shown for the first time into `seen`."""


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start Debian's Chromium, without its sandbox: the sandbox does not start for root."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def open_page(
    browser: Browser, *, width: int = 1280, scheme: Literal["light", "dark"] = "light", expects_violation: bool = False
) -> Iterator[Page]:
    """Open an empty page in its own browser context, and check it when the block ends.

    Fails if an injected script ran. Fails on a policy violation, console error, dialog or failed request that is
    not expected; with `expects_violation` a policy violation is required and the other problems are ignored.
    """
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(TIMEOUT_MS)
    page, problems = context.new_page(), list[str]()
    page.add_init_script(WATCH_SCRIPT)
    page.on("console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on("dialog", lambda dialog: problems.append(f"dialog: {dialog.message}"))
    page.on("requestfailed", lambda request: problems.append(f"failed: {request.url}"))
    try:
        yield page
        assert page.evaluate("planted") == []
        assert bool(page.evaluate("violations")) is expects_violation
        assert expects_violation or [problem for problem in problems if not is_expected(problem)] == []
    finally:
        context.close()


def stop_clock(page: Page) -> None:
    """Stop the time of the page, before it is opened: its timers run only in `page.clock.run_for`."""
    page.clock.install()
    page.clock.pause_at(page.evaluate("Date.now() / 1000 + 3600"))


def is_expected(problem: str) -> bool:
    """Return whether a browser reports this problem for a refused request (status 40x) or an aborted one."""
    return "responded with a status of 40" in problem or problem.startswith("failed: http://127.0.0.1")


def shortest_delay_ms(measure: Callable[[int], float], attempts: int = 10) -> float:
    """Return the first delay of `measure(attempt)` below `MAX_DELAY_MS`, or the shortest of `attempts`.

    Other processes share the machine: a single delay may be theirs.
    """
    delays: list[float] = []
    while len(delays) < attempts and min(delays, default=MAX_DELAY_MS) >= MAX_DELAY_MS:
        delays.append(measure(len(delays)))
    return min(delays)


def accessibility(page: Page) -> list[str]:
    """Return the accessibility violations that axe finds, each with its rule."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE_SCRIPT)
    options = "{ resultTypes: ['violations'], selectors: false }"  # the markup of a node names it
    results: dict[str, Any] = page.evaluate(f"axe.run(document, {options})")
    return [f"{rule['id']}: {node['html']}" for rule in results["violations"] for node in rule["nodes"]]


def horizontal_overflow(page: Page) -> int:
    """Return the width in pixels by which the page is wider than the viewport."""
    return int(page.evaluate("document.documentElement.scrollWidth - innerWidth"))
