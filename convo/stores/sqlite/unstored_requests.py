"""The rows of requests that left no response."""

from collections.abc import Sequence

from convo.stores.request_list import RequestQuery, filter_unstored
from convo.stores.sqlite.tenant_rows import TenantConnection, to_query_name
from convo.stores.unstored_requests import (
    MAX_TIME,
    MAX_UNRECORDED_CLIENTS,
    RECORDED_APIS,
    Retention,
    UnstoredRequest,
    decode_unstored_requests,
    encode_unstored_request,
)

INSERT = "INSERT INTO unstored_requests (tenant, id, created_at, status, body) VALUES (?, ?, ?, ?, ?)"

DELETE_OLD = "DELETE FROM unstored_requests WHERE tenant = ? AND created_at < ?"

DELETE_OVER_LIMIT = """
DELETE FROM unstored_requests WHERE n IN (
    SELECT n FROM unstored_requests WHERE tenant = ? ORDER BY created_at DESC LIMIT -1 OFFSET ?
)
"""

SELECT_BODIES = "SELECT body FROM unstored_requests WHERE tenant = ? AND created_at >= ? AND created_at < ?"

READABLE = "(SELECT tenant, status, iif(json_valid(body), body, '{}') AS body FROM unstored_requests)"
"""The rows without the bodies that are not JSON. Decoding 10,000 rows instead took 8 to 15 times as long."""

COUNT_UNRECORDED = f"""
SELECT json_extract(body, '$.client') AS client, sum(json_extract(body, '$.count')) AS requests FROM {READABLE}
WHERE tenant = ? AND status = 'completed' AND json_type(body, '$.client') = 'text'
    AND json_extract(body, '$.count') BETWEEN 1 AND {MAX_TIME} AND json_extract(body, '$.api') IN (?, ?, ?)
GROUP BY client ORDER BY requests DESC, client LIMIT ?
"""  # noqa: S608 - constant names

SELECT_MODELS = f"""
SELECT DISTINCT json_extract(body, '$.model') FROM {READABLE} WHERE tenant = ? AND json_type(body, '$.model') = 'text'
"""  # noqa: S608 - constant names


def insert_unstored(t: TenantConnection, requests: Sequence[UnstoredRequest], retention: Retention) -> None:
    """Insert rows, and delete those that are too old or too many."""
    rows = [
        (t.tenant_number, each.id, each.created_at, each.status, encode_unstored_request(each)) for each in requests
    ]
    t.db.executemany(INSERT, rows)
    t.execute(DELETE_OLD, t.tenant_number, max(each.created_at for each in requests) - retention.max_age_s)
    t.execute(DELETE_OVER_LIMIT, t.tenant_number, retention.max_rows)


def select_unstored(t: TenantConnection, query: RequestQuery) -> list[UnstoredRequest]:
    """Return the rows that pass the filters, with those that are not written yet."""
    if query.session is not None:  # none has a session
        return []
    begin, end = query.begin or 0.0, float("inf") if query.end is None else query.end
    bodies = t.fetch_records(SELECT_BODIES, t.tenant_number, begin, end)
    return list(filter_unstored([*decode_unstored_requests(body for (body,) in bodies), *query.recent], query))


def select_unstored_request(t: TenantConnection, request_id: str) -> UnstoredRequest | None:
    sql = "SELECT body FROM unstored_requests WHERE tenant = ? AND id = ?"
    bodies = t.fetch_records(sql, t.tenant_number, to_query_name(request_id))
    return next(decode_unstored_requests(body for (body,) in bodies), None)


def count_unrecorded(t: TenantConnection) -> list[tuple[str, int]]:
    """Return the clients of completed requests of `RECORDED_APIS`, and their number, most first."""
    rows = t.fetch_all(COUNT_UNRECORDED, t.tenant_number, *RECORDED_APIS, MAX_UNRECORDED_CLIENTS)
    return [(client, int(count)) for client, count in rows]


def select_unstored_models(t: TenantConnection) -> list[str]:
    """Return the models that the requests named."""
    return [model for (model,) in t.fetch_all(SELECT_MODELS, t.tenant_number) if model]
