"""The number of requests that a server could have recorded, by client, on every store."""

from convo.stores.base import Store
from convo.stores.unstored_requests import DEFAULT_RETENTION, UnstoredRequest

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
