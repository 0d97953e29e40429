"""`Store` over one PostgreSQL database.

Each method is one job on a pooled connection, over the rows of one tenant. A commit is tried with a shared lock
first, then with an exclusive one. Commits of a tenant that arrive while another one of it runs share the next
transaction; if that fails, each is tried in its own. A single commit never waits.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Concatenate, ParamSpec, TypeVar

from convo.config.settings import LOCAL_TENANT, expand_built_in_name
from convo.errors import ConvoError, DamagedRow, StoreFault
from convo.history.items import Item, StreamEvent
from convo.history.records import AgentCall, AgentRun, ApprovalDecision, Link, Session
from convo.history.tree import Key, Path
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
from convo.stores.postgres import (
    commit,
    files,
    gc,
    leases,
    records,
    request_charts,
    request_list,
    runs,
    search,
    tree,
    unstored_requests,
)
from convo.stores.postgres import records as links
from convo.stores.postgres import runs as agents
from convo.stores.postgres.admin import PostgresAdmin
from convo.stores.postgres.commit import CommitPlan, can_merge, merge_plans, plan_commit
from convo.stores.postgres.connection import PostgresDatabase
from convo.stores.postgres.plano import has_plano_table, select_plano_response
from convo.stores.postgres.tenant_rows import DatabaseConnection, TenantConnection
from convo.stores.request_charts import UNITS_PER_BATCH, RequestCharts
from convo.stores.request_list import RequestPage, RequestQuery
from convo.stores.unstored_requests import Retention, UnstoredRequest

P = ParamSpec("P")
Result = TypeVar("Result")


MAX_COMMITS_PER_BATCH = 64
"""In a larger batch the first commit would only wait longer."""


@dataclass(slots=True, eq=False)
class QueuedCommit:
    """A commit that has waited since `queued_at`; `is_committed` is False if it must be committed alone."""

    plan: CommitPlan
    queued_at: float
    is_committed: asyncio.Future[bool]


@dataclass(slots=True)
class CommitQueue:
    """The commits of a tenant that wait for a running one. `task` is its task: asyncio keeps only a weak reference."""

    waiting: list[QueuedCommit] = field(default_factory=list)
    task: asyncio.Task[bool] | None = None


class PostgresStore:
    """`Store` over one PostgreSQL database, for every process of every machine that can connect to it."""

    def __init__(self, database: PostgresDatabase, tenant: str = "local") -> None:
        self.tenant = tenant
        self.database = database
        self._commit_queues: dict[str, CommitQueue] = {}

    def for_tenant(self, tenant: str) -> "PostgresStore":
        store = PostgresStore(self.database, tenant)
        store._commit_queues = self._commit_queues
        return store

    @property
    def admin(self) -> PostgresAdmin:
        return PostgresAdmin(self.database)

    def report_damaged_row(self, error: DamagedRow) -> None:
        self.database.damaged_row_observer(error)

    async def commit(self, transaction: Transaction) -> None:
        plan = plan_commit(transaction)
        if not can_merge(plan):
            await self._commit_alone(plan)
        elif queue := self._commit_queues.get(self.tenant):
            loop = asyncio.get_running_loop()
            queued = QueuedCommit(plan, loop.time(), loop.create_future())
            queue.waiting.append(queued)
            try:
                is_committed = await asyncio.shield(queued.is_committed)
            except asyncio.CancelledError:
                if queued in queue.waiting:
                    queue.waiting.remove(queued)
                else:  # a transaction that could still be committed later would, for example, undo a deletion
                    await asyncio.wait([queued.is_committed])
                raise
            if not is_committed:
                await self._commit_alone(plan)
        else:
            self._commit_queues[self.tenant] = CommitQueue()
            try:
                await self._commit_alone(plan)
            finally:
                self._start_next_batch()

    def _start_next_batch(self) -> None:
        """Commit the waiting transactions in a separate task: a caller that is cancelled does not affect the others."""
        queue = self._commit_queues[self.tenant]
        batch, queue.waiting = queue.waiting[:MAX_COMMITS_PER_BATCH], queue.waiting[MAX_COMMITS_PER_BATCH:]
        if batch:
            queue.task = asyncio.create_task(self._commit_batch(batch))
            queue.task.add_done_callback(lambda task: self._end_batch(batch, task))
        else:
            del self._commit_queues[self.tenant]

    async def _commit_batch(self, batch: Sequence[QueuedCommit]) -> bool:
        plan = merge_plans([queued.plan for queued in batch])
        with suppress(ConvoError):  # each is tried again alone, and raises its own error
            return plan is not None and await self._try_commit(plan, queued_at=batch[0].queued_at)
        return False

    def _end_batch(self, batch: Sequence[QueuedCommit], task: asyncio.Task[bool]) -> None:
        is_committed = not task.cancelled() and task.exception() is None and task.result()
        for queued in batch:
            queued.is_committed.set_result(is_committed)
        self._start_next_batch()

    async def _commit_alone(self, plan: CommitPlan) -> None:
        change = plan.transaction
        needs_exclusive = bool(change.erased_nodes or change.removed_link_id)
        if needs_exclusive or not await self._try_commit(plan):
            await self._try_commit(plan, exclusive=True)

    async def _try_commit(self, plan: CommitPlan, *, exclusive: bool = False, queued_at: float | None = None) -> bool:
        known_tenants, tenant = self.database.known_tenants, self.tenant

        async def apply(db: DatabaseConnection) -> bool:
            t, is_known = TenantConnection.from_name(db, tenant), tenant in known_tenants
            return await commit.apply_transaction(t, plan, exclusive=exclusive, tenant_exists=is_known)

        is_committed = await self.database.run(apply, queued_at=queued_at)
        if is_committed:
            known_tenants.add(tenant)
        return is_committed

    async def path(self, head: Key, known: Path | None = None) -> Path:
        return await self._run(tree.select_path, head, known)

    async def items_after(self, head: Key, after: Key) -> Sequence[Item]:
        return await self._run(tree.select_items_after, head, after)

    async def first_items(self, head: Key, limit: int) -> Sequence[Item]:
        return self._report(await self._run(tree.select_first_items, head, limit))

    async def session(self, name_or_id: str) -> Session | None:
        return await self._run(records.select_session, name_or_id)

    async def sessions(self, *, limit: int | None = None, strict: bool = False) -> Sequence[Session]:
        return self._report(await self._run(records.select_sessions, limit), strict=strict)

    async def session_stats(self, session_id: str) -> SessionStats:
        return self._report(await self._run(records.select_session_stats, session_id))[0]

    async def link(self, link_id: str) -> Link | None:
        """Return a link; a response of Plano in the same database is copied when its id is first read."""
        return await self._run(links.select_link, link_id) or await self._copy_plano_response(link_id)

    async def links(self, session_id: str, *, strict: bool = False, limit: int | None = None) -> Sequence[Link]:
        return self._report(await self._run(links.select_session_links, session_id, limit), strict=strict)

    async def responses_to(self, *input_heads: Key) -> Sequence[Link]:
        return self._report(await self._run(links.select_responses_to, input_heads), strict=True)

    async def related_links(self, link_id: str, *, limit: int | None = None) -> Sequence[Link]:
        return self._report(await self._run(links.select_related_links, link_id, limit))

    async def child_links(self, link_id: str, *, limit: int) -> Sequence[Link]:
        return self._report(await self._run(links.select_child_links, link_id, limit))

    async def conversation(self, conversation_id: str, known: Conversation | None = None) -> Conversation | None:
        return await self._run(records.select_conversation, conversation_id, known)

    async def conversation_links(self, conversation_id: str) -> Sequence[Link]:
        return self._report(await self._run(links.select_conversation_links, conversation_id))

    async def item(self, item_id: str) -> Item | None:
        return await self._run(tree.select_item, item_id)

    async def append_events(self, response_id: str, events: Sequence[StreamEvent]) -> None:
        await self._run(runs.insert_events, response_id, events)

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[StreamEvent]:
        return await self._run(runs.select_events, response_id, after)

    async def agent_run(self, run_id: str) -> AgentRun | None:
        return await self._run(agents.select_agent_run, run_id)

    async def agent_runs(
        self,
        *,
        session_id: str | None = None,
        source_state_hash: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> Sequence[AgentRun]:
        read = await self._run(agents.select_agent_runs, session_id, source_state_hash, status, limit)
        return self._report(read, strict=session_id is not None or source_state_hash is not None)

    async def agent_calls(self, run_id: str) -> Sequence[AgentCall]:
        return await self._run(agents.select_agent_calls, run_id)

    async def approval_decisions(self, run_id: str | None = None, *, limit: int = 100) -> Sequence[ApprovalDecision]:
        return self._report(await self._run(agents.select_approval_decisions, run_id, limit))

    async def find_handles(self, prefix: str, *, limit: int = 20) -> Sequence[HandleMatch]:
        found = self._report(await self._run(search.find_handles, prefix, limit))
        if not found and await self._copy_plano_response(prefix) is not None:
            found = self._report(await self._run(search.find_handles, prefix, limit))
        return found

    async def search_items(self, query: str, *, limit: int = 20) -> SearchResult:
        result, damaged = await self._run(search.search_items, query, limit)
        self._report(ReadRows([], damaged))
        return result

    async def list_requests(self, query: RequestQuery) -> RequestPage:
        await request_list.complete_links(self.database, self.tenant, list_incomplete=True)
        page = await self._run(request_list.select_requests, query)
        self._report(ReadRows(list(page.requests), list(page.damaged)))
        return page

    async def chart_requests(self, query: RequestQuery) -> RequestCharts:
        await request_list.complete_links(self.database, self.tenant, list_incomplete=True)
        units = await self._run(request_charts.select_changed_units)
        with suppress(StoreFault):  # the store cannot be written now: the links of these units are read below
            for first in range(0, len(units), UNITS_PER_BATCH):
                await self._run(request_charts.sum_units, units[first : first + UNITS_PER_BATCH])
        return await self._run(request_charts.select_charts, query)

    async def add_unstored_requests(self, requests: Sequence[UnstoredRequest], retention: Retention) -> None:
        await self._run(unstored_requests.insert_unstored, requests, retention)

    async def unstored_request(self, request_id: str) -> UnstoredRequest | None:
        return await self._run(unstored_requests.select_unstored_request, request_id)

    async def count_unrecorded(self) -> Sequence[tuple[str, int]]:
        return await self._run(unstored_requests.count_unrecorded)

    async def request_models(self, expand_model_name: Callable[[str], str] = expand_built_in_name) -> Sequence[str]:
        return await self._run(request_list.select_models, expand_model_name)

    async def request_tools(self) -> Sequence[str]:
        return await self._run(request_list.select_tools)

    async def remove_session(self, session_id: str) -> None:
        await self._run(gc.remove_session, session_id)

    async def remove_link(self, link_id: str) -> None:
        """Delete a response. For one of Plano an empty, unstored link remains, so that it is not copied again."""
        await self._run(gc.remove_link, link_id)
        change = await self._find_plano_response(link_id)
        if change is not None:
            root = change.appends[0].after
            link = replace(change.links[0], input_head=root, head=root, sent_count=0, is_stored=False)
            await self.commit(Transaction(links=(link,)))

    async def remove_conversation(self, conversation_id: str) -> None:
        await self._run(gc.remove_conversation, conversation_id)

    async def add_file(self, file: StoredFile, content: bytes, quota: FileQuota) -> bool:
        return await self._run(files.insert_file, file, content, quota)

    async def file(self, file_id: str) -> StoredFile | None:
        return await self._run(files.select_file, file_id)

    async def files(self) -> Sequence[StoredFile]:
        return await self._run(files.select_files)

    async def file_content(self, file_id: str) -> bytes | None:
        return await self._run(files.select_file_content, file_id)

    async def remove_file(self, file_id: str) -> None:
        await self._run(files.remove_file, file_id)

    async def acquire_lease(self, name: str, holder: str, ttl_s: float, *, dead_holder: str | None = None) -> Lease:
        return await self._run(leases.acquire_lease, name, holder, ttl_s, dead_holder)

    async def release_lease(self, lease: Lease) -> None:
        await self._run(leases.release_lease, lease)

    async def held_leases(self) -> Sequence[str]:
        return await self._run(leases.select_held_leases)

    async def lease_holder(self, name: str) -> str | None:
        return await self._run(leases.select_lease_holder, name)

    async def data_version(self) -> str:
        """Return the server's transaction snapshot: it changes when a transaction begins to write, and when it ends."""
        return str(await self._run(lambda t: t.fetch_value("SELECT txid_current_snapshot()::text, $1::bigint")))

    async def aclose(self) -> None:
        await self.database.aclose()

    async def _copy_plano_response(self, response_id: str) -> Link | None:
        """Store a copy of a response of Plano and return its link; None if there is none for this tenant."""
        change = await self._find_plano_response(response_id)
        if change is None:
            return None
        await self.commit(change)
        return change.links[0]

    async def _find_plano_response(self, response_id: str) -> Transaction | None:
        if self.tenant != LOCAL_TENANT:  # Plano has no tenants: its rows belong to the user of this machine
            return None
        if self.database.has_plano_table is None:
            self.database.has_plano_table = await self._run(has_plano_table)
        if not self.database.has_plano_table:
            return None
        return await self._run(select_plano_response, response_id)

    def _report(self, read: ReadRows[Result], *, strict: bool = False) -> list[Result]:
        return read.report(self.database.damaged_row_observer, strict=strict)

    async def _run(
        self, job: Callable[Concatenate[TenantConnection, P], Awaitable[Result]], *args: P.args, **kwargs: P.kwargs
    ) -> Result:
        """Run `job` on a pooled connection; after a conflict with another writer all of it is repeated."""
        return await self.database.run(lambda db: job(TenantConnection.from_name(db, self.tenant), *args, **kwargs))
