"""`Store` over one SQLite file.

Each method is one job for the connection, over the rows of one tenant. `apply_transaction` compares the heads
first, so an outdated writer gets `Conflict` before anything is written, and deletes unreferenced nodes last.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Concatenate, ParamSpec, TypeVar

from convo.config.settings import expand_built_in_name
from convo.errors import DamagedRow, NotFound, StoreFault
from convo.history.items import Item, StreamEvent
from convo.history.records import AgentCall, AgentRun, ApprovalDecision, Link, Session
from convo.history.tree import Key, Path
from convo.stores import base
from convo.stores.base import (
    Conversation,
    FileQuota,
    HandleMatch,
    Lease,
    SearchResult,
    SessionStats,
    StoredFile,
    Transaction,
)
from convo.stores.codec import ReadRows
from convo.stores.sqlite import (
    connection,
    files,
    gc,
    leases,
    records,
    runs,
    search,
    tenant_rows,
    tree,
)
from convo.stores.sqlite import records as links
from convo.stores.sqlite import runs as agents
from convo.stores.sqlite.admin import SqliteAdmin
from convo.stores.sqlite.connection import SqliteDatabase
from convo.stores.sqlite.tenant_rows import TenantConnection

if TYPE_CHECKING:
    from convo.stores.request_charts import RequestCharts
    from convo.stores.request_list import RequestPage, RequestQuery
    from convo.stores.unstored_requests import Retention, UnstoredRequest

P = ParamSpec("P")
Result = TypeVar("Result")


class SqliteStore:
    """`Store` over one SQLite file, for every process of this machine that opens it."""

    def __init__(self, database: SqliteDatabase, tenant: str = "local") -> None:
        self.tenant = tenant
        self.database = database
        self.admin = SqliteAdmin(database)

    def for_tenant(self, tenant: str) -> "SqliteStore":
        return SqliteStore(self.database, tenant)

    def report_damaged_row(self, error: DamagedRow) -> None:
        self.database.damaged_row_observer(error)

    async def commit(self, transaction: Transaction) -> None:
        await self._write(apply_transaction, transaction)

    async def path(self, head: Key, known: Path | None = None) -> Path:
        return await self._read(tree.select_path, head, known)

    async def items_after(self, head: Key, after: Key) -> Sequence[Item]:
        return await self._read(tree.select_items_after, head, after)

    async def first_items(self, head: Key, limit: int) -> Sequence[Item]:
        return self._report(await self._read(tree.select_first_items, head, limit))

    async def session(self, name_or_id: str) -> Session | None:
        return await self._read(records.select_session, name_or_id)

    async def sessions(self, *, limit: int | None = None, strict: bool = False) -> Sequence[Session]:
        return self._report(await self._read(records.select_sessions, limit), strict=strict)

    async def session_stats(self, session_id: str) -> SessionStats:
        return self._report(await self._read(records.select_session_stats, session_id))[0]

    async def link(self, link_id: str) -> Link | None:
        return await self._read(links.select_link, link_id)

    async def links(self, session_id: str, *, strict: bool = False, limit: int | None = None) -> Sequence[Link]:
        return self._report(await self._read(links.select_session_links, session_id, limit), strict=strict)

    async def responses_to(self, *input_heads: Key) -> Sequence[Link]:
        return self._report(await self._read(links.select_responses_to, input_heads), strict=True)

    async def related_links(self, link_id: str, *, limit: int | None = None) -> Sequence[Link]:
        return self._report(await self._read(links.select_related_links, link_id, limit))

    async def child_links(self, link_id: str, *, limit: int) -> Sequence[Link]:
        return self._report(await self._read(links.select_child_links, link_id, limit))

    async def conversation(self, conversation_id: str, known: Conversation | None = None) -> Conversation | None:
        return await self._read(records.select_conversation, conversation_id, known)

    async def conversation_links(self, conversation_id: str) -> Sequence[Link]:
        return self._report(await self._read(links.select_conversation_links, conversation_id))

    async def item(self, item_id: str) -> Item | None:
        return await self._read(tenant_rows.select_item, item_id)

    async def append_events(self, response_id: str, events: Sequence[StreamEvent]) -> None:
        await self._write(runs.insert_events, response_id, events)

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[StreamEvent]:
        return await self._read(runs.select_events, response_id, after)

    async def agent_run(self, run_id: str) -> AgentRun | None:
        return await self._read(agents.select_agent_run, run_id)

    async def agent_runs(
        self,
        *,
        session_id: str | None = None,
        source_state_hash: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> Sequence[AgentRun]:
        read = await self._read(agents.select_agent_runs, session_id, source_state_hash, status, limit)
        return self._report(read, strict=session_id is not None or source_state_hash is not None)

    async def agent_calls(self, run_id: str) -> Sequence[AgentCall]:
        return await self._read(agents.select_agent_calls, run_id)

    async def approval_decisions(self, run_id: str | None = None, *, limit: int = 100) -> Sequence[ApprovalDecision]:
        return self._report(await self._read(agents.select_approval_decisions, run_id, limit))

    async def find_handles(self, prefix: str, *, limit: int = 20) -> Sequence[HandleMatch]:
        return self._report(await self._read(search.find_handles, prefix, limit))

    async def search_items(self, query: str, *, limit: int = 20) -> SearchResult:
        result, damaged = await self._read(search.search_items, query, limit)
        self._report(ReadRows([], damaged))
        return result

    async def list_requests(self, query: "RequestQuery") -> "RequestPage":
        from convo.stores.sqlite import request_list  # only the page of the gateway lists requests

        await request_list.complete_links(self.database, self.tenant, list_incomplete=True)
        page = await self._read(request_list.select_requests, query)
        self._report(ReadRows(list(page.requests), list(page.damaged)))
        return page

    async def chart_requests(self, query: "RequestQuery") -> "RequestCharts":
        from convo.stores.request_charts import UNITS_PER_BATCH
        from convo.stores.sqlite import request_charts, request_list

        await request_list.complete_links(self.database, self.tenant, list_incomplete=True)
        units = await self._read(request_charts.select_changed_units)
        with suppress(StoreFault):  # the store cannot be written now: the links of these units are read below
            for first in range(0, len(units), UNITS_PER_BATCH):
                await self._write(request_charts.sum_units, units[first : first + UNITS_PER_BATCH])
        return await self._read(request_charts.select_charts, query)

    async def add_unstored_requests(self, requests: "Sequence[UnstoredRequest]", retention: "Retention") -> None:
        from convo.stores.sqlite import unstored_requests

        await self._write(unstored_requests.insert_unstored, requests, retention)

    async def unstored_request(self, request_id: str) -> "UnstoredRequest | None":
        from convo.stores.sqlite import unstored_requests

        return await self._read(unstored_requests.select_unstored_request, request_id)

    async def count_unrecorded(self) -> Sequence[tuple[str, int]]:
        from convo.stores.sqlite import unstored_requests

        return await self._read(unstored_requests.count_unrecorded)

    async def request_models(self, expand_model_name: Callable[[str], str] = expand_built_in_name) -> Sequence[str]:
        from convo.stores.sqlite import request_list

        return await self._read(request_list.select_models, expand_model_name)

    async def request_tools(self) -> Sequence[str]:
        from convo.stores.sqlite import request_list

        return await self._read(request_list.select_tools)

    async def remove_session(self, session_id: str) -> None:
        await self._remove(gc.remove_session, session_id)

    async def remove_link(self, link_id: str) -> None:
        await self._remove(gc.remove_link, link_id)

    async def remove_conversation(self, conversation_id: str) -> None:
        await self._remove(gc.remove_conversation, conversation_id)

    async def add_file(self, file: StoredFile, content: bytes, quota: FileQuota) -> bool:
        return await self._write(files.insert_file, file, content, quota)

    async def file(self, file_id: str) -> StoredFile | None:
        return await self._read(files.select_file, file_id)

    async def files(self) -> Sequence[StoredFile]:
        return await self._read(files.select_files)

    async def file_content(self, file_id: str) -> bytes | None:
        return await self._read(files.select_file_content, file_id)

    async def remove_file(self, file_id: str) -> None:
        await self._remove(files.remove_file, file_id)

    async def acquire_lease(self, name: str, holder: str, ttl_s: float, *, dead_holder: str | None = None) -> Lease:
        return await self._write(leases.acquire_lease, name, holder, ttl_s, dead_holder)

    async def release_lease(self, lease: Lease) -> None:
        await self.database.write(
            lambda db: leases.release_lease(TenantConnection.find(db, self.tenant), lease), create=False
        )

    async def held_leases(self) -> Sequence[str]:
        return await self._read(leases.select_held_leases)

    async def lease_holder(self, name: str) -> str | None:
        return await self._read(leases.select_lease_holder, name)

    async def data_version(self) -> str:
        """Return SQLite's counter of other connections' commits, and the number of rows that this one changed."""
        return await self.database.read(
            lambda db: f"{db.execute('PRAGMA data_version').fetchone()[0]}-{db.total_changes}"
        )

    async def aclose(self) -> None:
        await self.database.aclose()

    def _report(self, read: ReadRows[Result], *, strict: bool = False) -> list[Result]:
        return read.report(self.database.damaged_row_observer, strict=strict)

    async def _read(
        self, job: Callable[Concatenate[TenantConnection, P], Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        return await self.database.read(lambda db: job(TenantConnection.find(db, self.tenant), *args, **kwargs))

    async def _write(
        self, job: Callable[Concatenate[TenantConnection, P], Result], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        return await self.database.write(
            lambda db: job(TenantConnection.find_or_create(db, self.tenant), *args, **kwargs)
        )

    async def _remove(self, job: Callable[[TenantConnection, str], None], name: str) -> None:
        await self.database.write(lambda db: job(TenantConnection.find(db, self.tenant), name), create=False)


def apply_transaction(t: TenantConnection, transaction: Transaction) -> None:
    """Apply a transaction. Raises the errors of `Store.commit`; the caller rolls back."""
    base.check_stored_names(transaction)
    if transaction.required_link_id and records.select_link(t, transaction.required_link_id) is None:
        raise NotFound("response", transaction.required_link_id)
    session_row = (
        records.check_stored_session(t, transaction.session, transaction.expected_session_head)
        if transaction.session
        else None
    )
    conversation_row = (
        records.check_stored_conversation(t, transaction.conversation, transaction.expected_conversation_head)
        if transaction.conversation
        else None
    )
    run_row = agents.check_agent_run_revision(t, transaction.agent_run) if transaction.agent_run else None
    ended_response = runs.require_open_run(t, transaction.ended_run_id) if transaction.ended_run_id else None
    detached_nodes = [tree.insert_missing_nodes(t, append) for append in transaction.appends]
    for link in transaction.links:
        detached_nodes += links.upsert_link(t, link)
    if transaction.session:
        detached_nodes += records.upsert_session(t, transaction.session, session_row)
    if transaction.conversation:
        detached_nodes += records.upsert_conversation(t, transaction.conversation, conversation_row)
    for n in _nodes_to_erase(t, transaction):
        tree.erase_item(t, n)
    if transaction.started_run_id:
        runs.start_response_run(t, transaction.started_run_id)
    if ended_response is not None:
        runs.end_response_run(t, ended_response)
    if transaction.agent_run:
        agents.upsert_agent_run(t, transaction.agent_run, run_row)
    for call in transaction.agent_calls:
        agents.upsert_agent_call(t, call)
    for decision in transaction.approval_decisions:
        agents.insert_approval_decision(t, decision)
    tree.delete_unreferenced_nodes(t, set(detached_nodes) - _referenced_nodes(t, transaction))
    if transaction.removed_link_id:
        gc.remove_link_if_stored(t, transaction.removed_link_id)
    if transaction.erased_nodes:
        connection.request_vacuum(t.db)


def _referenced_nodes(t: TenantConnection, transaction: Transaction) -> set[int]:
    """Return nodes that are certainly referenced: by a record of this transaction, or as the start of an append.

    If such a start is unreferenced after all, deleting the node after it checks it too.
    """
    heads = [append.after for append in transaction.appends if append.items]
    if transaction.session:
        heads += [transaction.session.head, transaction.session.confirmed_head]
    if transaction.conversation:
        heads.append(transaction.conversation.head)
    return {tree.node_rowid(t, key) for key in heads}


def _nodes_to_erase(t: TenantConnection, transaction: Transaction) -> set[int]:
    """Return the nodes whose items are erased. Raises NotFound."""
    erased_nodes = [tree.node_rowid(t, key) for key in transaction.erased_nodes]
    if not erased_nodes or not transaction.conversation:
        return set(erased_nodes)
    routes, head = (
        tenant_rows.select_route_rowids(t, transaction.conversation.id),
        tree.node_rowid(t, transaction.conversation.head),
    )
    return {
        *erased_nodes,
        *(n for node in erased_nodes for n in tree.select_other_nodes_of_item(t, node, routes, head)),
    }
