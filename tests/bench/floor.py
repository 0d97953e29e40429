"""The floor: a server that does only what every gateway with a store must do.

    python -m tests.bench.floor PORT UPSTREAM_PORT STORE

Starlette on uvicorn reads POST /v1/responses, aiohttp asks the upstream for a stream, and one durable INSERT
stores input and output before the response is sent. STORE is none, a file of SQLite or a URL of PostgreSQL.
Requests that wait at the same time share one commit.
"""

import asyncio
import json
import sqlite3
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

import aiohttp
import psycopg
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

encode = json.JSONEncoder(ensure_ascii=False, check_circular=False, separators=(",", ":")).encode

StoredRow: TypeAlias = tuple[str, str]


class Group:
    """Commits the rows of all callers that wait, in one transaction."""

    def __init__(self, commit: Callable[[list[StoredRow]], Awaitable[object]]) -> None:
        self._commit, self._is_busy = commit, False
        self._waiting: list[tuple[StoredRow, asyncio.Future[None]]] = []

    async def put(self, row: StoredRow) -> None:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((row, future))
        if not self._is_busy:
            self._is_busy = True
            self._task = asyncio.create_task(self._drain())
        await future

    async def _drain(self) -> None:
        while self._waiting:
            waiting, self._waiting = self._waiting, []
            await self._commit([row for row, _ in waiting])
            for _, future in waiting:
                future.set_result(None)
        self._is_busy = False


async def sqlite(file: str) -> Group:
    db = sqlite3.connect(file, isolation_level=None, check_same_thread=False)
    db.executescript(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE responses (id PRIMARY KEY, body)"
    )

    def insert(rows: list[StoredRow]) -> None:
        db.execute("BEGIN IMMEDIATE")
        db.executemany("INSERT INTO responses VALUES (?, ?)", rows)
        db.execute("COMMIT")

    return Group(lambda rows: asyncio.get_running_loop().run_in_executor(None, insert, rows))


async def postgresql(url: str) -> Group:
    db = await psycopg.AsyncConnection.connect(url, autocommit=True, prepare_threshold=1)
    await db.execute("CREATE TABLE responses (id text PRIMARY KEY, body text)")
    insert = "INSERT INTO responses SELECT * FROM unnest(%s::text[], %s::text[])"
    return Group(lambda rows: db.execute(insert, [list(column) for column in zip(*rows, strict=True)]))


def application(upstream: int, store: str) -> Starlette:
    state: dict[str, Any] = {}

    async def ask(body: bytes) -> Any:
        if "session" not in state:
            headers = {"authorization": "Bearer sk-1234", "content-type": "application/json"}
            state["session"] = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0), headers=headers)
        last, buffer = None, b""
        async with state["session"].post(f"http://127.0.0.1:{upstream}/v1/responses", data=body) as response:
            async for piece in response.content.iter_any():
                *events, buffer = (buffer + piece).split(b"\n\n")
                for event in events:
                    last = json.loads(event.partition(b"data: ")[2])
        assert last
        return last["response"]

    async def post(request: Request) -> Response:
        body = json.loads(await request.body())
        response = await ask(encode({**body, "stream": True}).encode())
        if store != "none":
            if "group" not in state:
                state["group"] = asyncio.ensure_future((postgresql if "://" in store else sqlite)(store))
            await (await state["group"]).put((response["id"], encode([body["input"], response["output"]])))
        return Response(encode(response), media_type="application/json")

    return Starlette(routes=[Route("/v1/responses", post, methods=["POST"])])


if __name__ == "__main__":
    uvicorn.run(
        application(int(sys.argv[2]), sys.argv[3]),
        port=int(sys.argv[1]),
        http="httptools",
        loop="asyncio",
        lifespan="off",
        ws="none",
        log_level="error",
        access_log=False,
    )
