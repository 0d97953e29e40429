"""The inspector page in a real Chromium, with 100,000 requests in the store.

    python -m tests.bench.page [REQUESTS] [--rounds N] [--store URL]

Measures in the page itself. "first content" is the time from the navigation to the first contentful paint and to the
first drawn row. Each interaction is a real key or click: the time from its event to the next frame, as the Event Timing
API reports it (in steps of 8 ms, 0 below 16 ms), its longest task, the time until its result is drawn, which includes
the call of the server, and the processor time of the page's main thread, which does not depend on other processes. The
table has the median and the worst of all rounds. Without a URL the store is SQLite in a temporary folder; a URL of a
store that `tests.bench.requests` filled is read as it is.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from playwright.sync_api import Browser, CDPSession, Page

from convo.stores.factory import open_store
from tests.bench.requests import fill_store
from tests.server.browser import chromium
from tests.server.gateway import run_gateway

WATCH_TIMES = """
window.times = { events: [], tasks: [], rowAt: null };
const keep = (kept) => (list) => kept.push(...list.getEntries());
new PerformanceObserver(keep(times.events)).observe({ type: "event", durationThreshold: 16, buffered: true });
new PerformanceObserver(keep(times.tasks)).observe({ type: "longtask", buffered: true });
new MutationObserver((changes, observer) => {
    if (!document.querySelector("tbody tr")) return;
    observer.disconnect();
    requestAnimationFrame(() => setTimeout(() => (times.rowAt = performance.now())));
}).observe(document, { childList: true, subtree: true });
"""

READ_TIMES = """
(startedAt) => {
    const longest = (entries) =>
        Math.max(0, ...entries.filter((entry) => entry.startTime >= startedAt).map((entry) => entry.duration));
    return { event: longest(times.events.filter((entry) => entry.interactionId)), task: longest(times.tasks) };
}
"""

HEADING = "{:<34}{:>10}{:>8}{:>14}{:>8}{:>8}{:>8}"
ROW = "{:<34}{:>10.0f}{:>8.0f}{:>14.0f}{:>8.0f}{:>8.0f}{:>8.0f}"


def wait_until(page: Page, condition: str) -> float:
    """Return the page's clock in the frame after the condition holds, without polling from outside."""
    script = f"""() => new Promise((resolve) => {{
        const done = () => resolve(performance.now());
        const check = () => requestAnimationFrame(({condition}) ? done : check);
        check();
    }})"""
    return float(page.evaluate(script))


def press(key: str) -> Callable[[Page], None]:
    return lambda page: page.keyboard.press(key)


def click(selector: str) -> Callable[[Page], None]:
    return lambda page: page.locator(selector).first.click()


def choose(selector: str, value: str) -> Callable[[Page], None]:
    def choose_option(page: Page) -> None:
        page.locator(selector).focus()
        page.keyboard.press("ArrowDown")
        page.locator(selector).select_option(value)

    return choose_option


INTERACTIONS: Sequence[tuple[str, Callable[[Page], None], str]] = (
    ("j: next row", press("j"), "document.activeElement.matches('tbody th a')"),
    ("Enter: open the request", press("Enter"), "document.querySelector('#tab-panel')"),
    ("j: next request in the pane", press("j"), "document.querySelectorAll('#tab-panel article').length"),
    ("tab: Raw", click("#tab-raw"), "document.querySelector('#tab-panel .json')"),
    ("Esc: close the request", press("Escape"), "document.querySelector('#detail').hidden"),
    ("?: show the keys", press("?"), "document.querySelector('dialog[open]')"),
    ("Esc: close the keys", press("Escape"), "!document.querySelector('dialog')"),
    ("sort by cost", click("#sort-cost"), "document.querySelector('th.cost[aria-sort=descending]')"),
    ("sort by title", click("#sort-title"), "document.querySelector('th.title[aria-sort=ascending]')"),
    ("sort by time", click("#sort-created_at"), "document.querySelector('th.time[aria-sort=descending]')"),
    ("filter: failed", choose("#filter-status", "failed"), "document.querySelector('tbody tr td .failed')"),
    ("clear the filters", click("#filter-clear"), "document.querySelector('#filter-clear').hidden"),
    ("show 50 more", click("#requests-more"), "document.querySelectorAll('tbody tr').length > 50"),
    ("open the charts", click("#charts-summary"), "document.querySelector('#charts[data-state=done]')"),
)
"""By name: what the user does, and the condition in the page that its result is drawn."""

Figures = dict[str, list[tuple[float, float, float, float]]]


def processor_ms(client: CDPSession) -> float:
    """Return the processor time of the page's main thread so far."""
    metrics: Any = client.send("Performance.getMetrics")["metrics"]
    return next(float(metric["value"]) for metric in metrics if metric["name"] == "TaskDuration") * 1000


def measure_round(browser: Browser, root: str, first: list[tuple[float, ...]], figures: Figures) -> None:
    """Open the page once, and perform each interaction."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    page.add_init_script(WATCH_TIMES)
    client = context.new_cdp_session(page)
    client.send("Performance.enable", {"timeDomain": "threadTicks"})
    server_before = time.process_time()
    page.goto(root)
    wait_until(page, "times.rowAt !== null")
    paint: Any = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? NaN")
    server_ms = (time.process_time() - server_before) * 1000
    first.append((float(paint), float(page.evaluate("times.rowAt")), processor_ms(client), server_ms))
    page.wait_for_timeout(500)
    for name, act, condition in INTERACTIONS:
        started_at, processor_before = float(page.evaluate("performance.now()")), processor_ms(client)
        act(page)
        drawn_at = wait_until(page, condition)
        processor = processor_ms(client) - processor_before
        page.wait_for_timeout(100)  # the observers report after the frame
        times: Any = page.evaluate(READ_TIMES, started_at)
        figures.setdefault(name, []).append((times["event"], times["task"], drawn_at - started_at, processor))
    context.close()


def measure(root: str, rounds: int) -> None:
    first: list[tuple[float, ...]] = []
    figures: Figures = {}
    with chromium() as browser:
        for _ in range(rounds):
            measure_round(browser, root, first, figures)
    print(f"\n{'first content, ms':<34}{'median':>12}{'worst':>10}")
    names = ("first contentful paint", "first row drawn", "CPU of the page until then", "CPU of the server until then")
    for name, times in zip(names, zip(*first, strict=True), strict=True):
        print(f"{name:<34}{statistics.median(times):>12.0f}{max(times):>10.0f}")
    print("\n" + HEADING.format("interaction, ms", "event", "worst", "longest task", "drawn", "CPU", "worst"))
    for name, rows in figures.items():
        events, tasks, drawn, cpu = zip(*rows, strict=True)
        middle = statistics.median
        print(ROW.format(name, middle(events), max(events), max(tasks), middle(drawn), middle(cpu), max(cpu)))


async def fill(url: str, count: int) -> None:
    store = open_store(url)
    await store.admin.migrate()
    await fill_store(store, count)
    await store.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the inspector page in Chromium.")
    parser.add_argument("requests", type=int, nargs="?", default=100_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", metavar="URL")
    options = parser.parse_args()
    with TemporaryDirectory() as temporary:
        url = options.store or f"sqlite:{Path(temporary) / 'convo.db'}"
        if not options.store:
            asyncio.run(fill(url, options.requests))
            print(f"{options.requests:,} requests stored")
        with run_gateway(Path(temporary) / "served", url) as gateway:
            measure(gateway.root, options.rounds)


if __name__ == "__main__":
    main()
