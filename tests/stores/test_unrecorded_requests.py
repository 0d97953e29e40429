"""Rows of requests without a response: those that a server could have recorded, on every store, and damaged ones."""

import json

from convo.stores.base import Store
from convo.stores.request_list import RequestQuery
from convo.stores.unstored_requests import DEFAULT_RETENTION, UnstoredRequest
from tests.stores.test_damaged_rows import execute

NOW = 1_700_000_000.0


async def test_completed_requests_of_known_clients_are_counted_most_first(store: Store) -> None:
    await store.admin.migrate()
    assert list(await store.count_unrecorded()) == []
    rows = [
        UnstoredRequest("req_1", NOW, "responses", "m", "completed", client="codex 0.171.0", count=11),
        UnstoredRequest("req_2", NOW + 9, "chat_completions", "m", "completed", client="codex 0.171.0"),
        UnstoredRequest("req_3", NOW, "messages", "m", "completed", client="claude-code 2.1.330", count=3),
        UnstoredRequest("req_4", NOW, "responses", "m", "failed", code="x", client="codex 0.171.0"),
        UnstoredRequest("req_5", NOW, "embeddings", "m", "completed", client="codex 0.171.0"),
        UnstoredRequest("req_6", NOW, "responses", "m", "completed"),
    ]
    await store.add_unstored_requests(rows, DEFAULT_RETENTION)
    assert list(await store.count_unrecorded()) == [("codex 0.171.0", 12), ("claude-code 2.1.330", 3)]
    assert list(await store.for_tenant("other").count_unrecorded()) == []


DAMAGED_BODIES = (
    "{",
    "[]",
    "[" * 100_000,
    '{"model": "a\\q", "client": "b\\q", "api": "responses", "count": 1}',
    *(
        json.dumps({"id": "req_x", "created_at": NOW, "api": "responses", "model": "m", "status": "completed", **wrong})
        for wrong in (
            {"id": None},
            {"created_at": 1e15},
            {"created_at": float("inf")},
            {"created_at": None},
            {"status": ["completed"]},
            {"model": 1},
            {"client": {"name": "x"}},
            {"latency_s": float("nan")},
            {"input_tokens": "1"},
            {"output_tokens": 10**400},
            {"request_bytes": None},
            {"count": 0},
        )
    ),
)


async def test_a_damaged_row_is_left_out_of_the_list_the_charts_and_the_counts(store: Store) -> None:
    await store.admin.migrate()
    rows = [
        UnstoredRequest(f"req_{number}", NOW + number, "responses", "m", "completed", client="codex", count=3)
        for number in range(len(DAMAGED_BODIES) + 1)
    ]
    await store.add_unstored_requests(rows, DEFAULT_RETENTION)
    for number, body in enumerate(DAMAGED_BODIES):
        await execute(store, f"UPDATE @unstored_requests SET body = '{body}' WHERE id = 'req_{number}'")
    query = RequestQuery(find_price=lambda _: None)
    assert list((await store.list_requests(query)).rows) == rows[-1:]
    assert [bucket.requests for bucket in (await store.chart_requests(query)).buckets] == [3]
    assert list(await store.count_unrecorded()) == [("codex", 3)]
    assert list(await store.request_models()) == ["m"]
