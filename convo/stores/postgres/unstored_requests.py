"""The rows of requests that left no response."""

import json
from collections.abc import Sequence

from convo.stores.postgres.commit import INSERT_ROOT, INSERT_TENANT
from convo.stores.postgres.tenant_rows import (
    BEGIN,
    COMMIT,
    TenantConnection,
    escape_name,
    node_id,
    node_rest,
    to_columns,
)
from convo.stores.request_list import RequestQuery, filter_unstored
from convo.stores.unstored_requests import (
    MAX_UNRECORDED_CLIENTS,
    RECORDED_APIS,
    Retention,
    UnstoredRequest,
    decode_unstored_requests,
    encode_unstored_request,
)

INSERT = """
INSERT INTO convo.unstored_requests (tenant, id, created_at, status, body)
SELECT $1, * FROM unnest($2::text[], $3::double precision[], $4::text[], $5::text[]) ON CONFLICT DO NOTHING
"""

DELETE_OLD = "DELETE FROM convo.unstored_requests WHERE tenant = $1 AND created_at < $2"

DELETE_OVER_LIMIT = """
DELETE FROM convo.unstored_requests WHERE tenant = $1 AND id IN (
    SELECT id FROM convo.unstored_requests WHERE tenant = $1 ORDER BY created_at DESC OFFSET $2
)
"""

SELECT_BODIES = """
SELECT body FROM convo.unstored_requests WHERE tenant = $1 AND created_at >= $2::double precision AND created_at < $3
"""

JSON_TEXT = r'("(?:[^"\\[:cntrl:]]|\\["\\/bfnrt]|\\u[0-9a-fA-F]{4})*")'
"""The regular expression of a JSON string. A cast to JSON fails if one row is damaged."""

COUNT_UNRECORDED = f"""
SELECT client, sum(count) AS requests FROM (
    SELECT substring(body FROM '"client": {JSON_TEXT}') AS client, substring(body FROM '"api": "(\\w+)"') AS api,
        substring(body FROM '"count": (\\d{{1,12}})[,}}]')::bigint AS count
    FROM convo.unstored_requests WHERE tenant = $1 AND status = 'completed'
) AS requests WHERE client IS NOT NULL AND count > 0 AND api = ANY($2::text[])
GROUP BY client ORDER BY requests DESC, client LIMIT $3
"""

SELECT_MODELS = f"""
SELECT DISTINCT substring(body FROM '"model": {JSON_TEXT}') FROM convo.unstored_requests WHERE tenant = $1
"""


async def insert_unstored(t: TenantConnection, requests: Sequence[UnstoredRequest], retention: Retention) -> None:
    """Insert rows, and delete those that are too old or too many."""
    rows = [(escape_name(each.id), each.created_at, each.status, encode_unstored_request(each)) for each in requests]
    await t.run_pipeline(
        BEGIN,
        t.statement(INSERT_TENANT, escape_name(t.name)),
        t.statement(INSERT_ROOT, node_id(t.root), node_rest(t.root)),
        t.statement(INSERT, *to_columns(rows, 4)),
        t.statement(DELETE_OLD, max(each.created_at for each in requests) - retention.max_age_s),
        t.statement(DELETE_OVER_LIMIT, retention.max_rows),
        COMMIT,
    )


async def select_unstored(t: TenantConnection, query: RequestQuery) -> list[UnstoredRequest]:
    """Return the rows that pass the filters, with those that are not written yet."""
    if query.session is not None:  # none has a session
        return []
    begin, end = query.begin or 0.0, float("inf") if query.end is None else query.end
    bodies = await t.fetch_all(SELECT_BODIES, begin, end)
    return list(filter_unstored([*decode_unstored_requests(body for (body,) in bodies), *query.recent], query))


async def select_unstored_request(t: TenantConnection, request_id: str) -> UnstoredRequest | None:
    sql = "SELECT body FROM convo.unstored_requests WHERE tenant = $1 AND id = $2"
    bodies = await t.fetch_all(sql, escape_name(request_id))
    return next(decode_unstored_requests(body for (body,) in bodies), None)


async def count_unrecorded(t: TenantConnection) -> list[tuple[str, int]]:
    """Return the clients of completed requests of `RECORDED_APIS`, and their number, most first."""
    rows = await t.fetch_all(COUNT_UNRECORDED, list(RECORDED_APIS), MAX_UNRECORDED_CLIENTS)
    return [(json.loads(client), int(count)) for client, count in rows]


async def select_unstored_models(t: TenantConnection) -> list[str]:
    """Return the models that the requests named."""
    return [json.loads(model) for (model,) in await t.fetch_all(SELECT_MODELS) if model not in (None, '""')]
