"""The time to list requests and to chart them, with many of them in the store.

    python -m tests.bench.requests [REQUESTS] [--postgres URL]

Fills a database with chains of ten requests and with sessions, then prints the median time of one page of 50 rows in
milliseconds, on the clock and of this process: for each order, filter and a search, and for the page after 1,000
rows; then of the charts for each filter, whose rows are buckets of time. Without a URL the store is SQLite in a
temporary folder; the tenant "local" at a URL must be empty.
"""

import argparse
import asyncio
import random
import statistics
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path as File
from tempfile import TemporaryDirectory

from convo.history.items import assistant_message, called_tools, request_title, user_message
from convo.history.records import Link
from convo.history.tree import Path, root_key
from convo.stores.base import AppendItems, Store, Transaction
from convo.stores.factory import open_store
from convo.stores.request_list import REQUEST_SORTS, RequestQuery
from convo.usage.model_info import find_price
from tests.stores.chat_transactions import NOW, link, prose, session

ROW = "{:<24}{:>8.1f}{:>8.1f}{:>6}"
CHAIN, ROUNDS, REQUESTS_PER_TRANSACTION = 10, 5, 1000
MODELS = ("openai/gpt-6.1-terra", "openai/gpt-5", "anthropic/claude-sonnet-4-5", "local/demo")
TOOLS = ("seldom", "often")  # functions that one request in 50 calls, and one in 6


async def fill_store(store: Store, count: int) -> None:
    """Store `count` requests in chains; every second chain belongs to a session."""
    rng, root = random.Random(1), root_key(store.tenant)
    for first in range(0, count, REQUESTS_PER_TRANSACTION):
        appends, links = list[AppendItems](), list[Link]()
        for chain in range(first, first + REQUESTS_PER_TRANSACTION, CHAIN):
            path = Path(root)
            for number in range(chain, chain + CHAIN):
                message = user_message(f"{prose(rng, 80)} question{number}")
                input_path = path.append([message])
                call = {
                    "type": "function_call",
                    "name": TOOLS[number % 50 > 0],
                    "call_id": f"c{number}",
                    "arguments": "{}",
                }
                answer = assistant_message(prose(rng, 200))
                output = [answer, call] if number % 5 == 0 else [answer]
                path = input_path.append(output)
                tokens = rng.randrange(100, 100_000)
                usage = {
                    "input_tokens": tokens,
                    "input_tokens_details": {"cached_tokens": tokens // 2},
                    "output_tokens": rng.randrange(2000),
                    "output_tokens_details": {"reasoning_tokens": 0},
                }
                links.append(
                    link(
                        f"resp_{rng.getrandbits(128):032x}",
                        input_path.head,
                        path.head,
                        model=rng.choice(MODELS),
                        status="completed" if rng.random() < 0.98 else "failed",
                        created_at=NOW + number,
                        duration_s=rng.random() * 10,
                        session_id=f"ses_{chain // 1000}" if chain % 20 else None,
                        parent_id=links[-1].id if number > chain else None,
                        usage=usage,
                        parameters={"tools": [{"type": "web_search"}]} if number % 7 == 0 else {},
                        title=request_title([message]),
                        tools=called_tools(output),
                    )
                )
            appends.append(AppendItems(root, path.items))
        record = session(id=f"ses_{first // 1000}", name=f"session {first // 1000}", head=path.head)
        await store.commit(Transaction(tuple(appends), tuple(links), replace(record, confirmed_head=path.head)))


def queries() -> Mapping[str, RequestQuery]:
    def price_of(model: str) -> object:
        return find_price(model, {})

    priced = RequestQuery(find_price=price_of)  # type: ignore[arg-type]
    orders = {f"order by {sort}": replace(priced, sort=sort) for sort in REQUEST_SORTS}
    return {
        **orders,
        "status failed": replace(priced, status="failed"),
        "one model": replace(priced, model=MODELS[0]),
        "one session": replace(priced, session="session 3"),
        "search, one match": replace(priced, text="question777"),
        "search, 1,000 matches": replace(priced, text="token"),
        "seldom called tool": replace(priced, tool="seldom"),
        "often called tool": replace(priced, tool="often"),
        "offered tool": replace(priced, tool="web_search"),
        "1,000 newest by time": replace(priced, begin=NOW + 99_000),
        "all at once": replace(priced, sort="cost", status="failed", model=MODELS[0], text="token"),
    }


async def measure_ms(store: Store, query: RequestQuery) -> tuple[float, float, int]:
    """Return the median times of a page in milliseconds, of the clock and of the processor, and its number of rows."""
    times, processor_times = list[float](), list[float]()
    for _ in range(ROUNDS):
        started_at, processor_at = time.perf_counter(), time.process_time()
        page = await store.list_requests(query)
        times.append((time.perf_counter() - started_at) * 1000)
        processor_times.append((time.process_time() - processor_at) * 1000)
    return statistics.median(times), statistics.median(processor_times), len(page.requests)


async def measure_charts_ms(store: Store, query: RequestQuery) -> tuple[float, float, int]:
    """Return the same for the charts, with their number of buckets."""
    times, processor_times = list[float](), list[float]()
    for _ in range(ROUNDS):
        started_at, processor_at = time.perf_counter(), time.process_time()
        charts = await store.chart_requests(query)
        times.append((time.perf_counter() - started_at) * 1000)
        processor_times.append((time.process_time() - processor_at) * 1000)
    return statistics.median(times), statistics.median(processor_times), len(charts.buckets)


async def measure(store: Store, count: int) -> None:
    await store.admin.migrate()
    started_at = time.perf_counter()
    await fill_store(store, count)
    print(f"{count:,} requests stored in {time.perf_counter() - started_at:.0f} s\n")
    print(f"{'page of 50':<24}{'ms':>8}{'CPU ms':>8}{'rows':>6}")
    for name, query in queries().items():
        print(ROW.format(name, *await measure_ms(store, query)))
    query = RequestQuery(limit=1000)
    after = (await store.list_requests(query)).next_cursor
    print(ROW.format("after 1,000 rows", *await measure_ms(store, replace(query, limit=50, after=after))))
    print(f"\n{'charts':<24}{'ms':>8}{'CPU ms':>8}{'rows':>6}")
    for name, query in queries().items():
        if not name.startswith("order by"):
            print(ROW.format(name, *await measure_charts_ms(store, query)))
    print(ROW.format("all requests", *await measure_charts_ms(store, RequestQuery(find_price=query.find_price))))
    await store.aclose()


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the list of requests.")
    parser.add_argument("requests", type=int, nargs="?", default=100_000)
    parser.add_argument("--postgres", metavar="URL")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        store = open_store(options.postgres or f"sqlite:{File(folder) / 'convo.db'}")
        asyncio.run(measure(store, options.requests))


if __name__ == "__main__":
    main()
