"""The contract, over one PostgreSQL.

Each method is one job on a connection of the pool, over one tenant's rows. What a job does stands
in the module that it names here. A change is tried beside others first, and alone where that cannot
be.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from convo.history import Key, Link, Path, Session
from convo.items import Event, Item
from convo.stores.contract import AgentCall, AgentRun, Change, Conversation, Found, Hit, Lease, Outline
from convo.stores.postgres import agents, changing, leases, links, records, removing, runs, searching, tree
from convo.stores.postgres.database import Database
from convo.stores.postgres.planning import Plan, plan
from convo.stores.postgres.tenant import Tenant
from convo.stores.postgres.upkeep import PostgresUpkeep

P = ParamSpec("P")
Result = TypeVar("Result")


class PostgresStore:
    """Keeps histories in a database, for every process of every machine that reaches it."""

    def __init__(self, database: Database, tenant: str = "local") -> None:
        self.tenant = tenant
        self.database = database

    def of(self, tenant: str) -> "PostgresStore":
        return PostgresStore(self.database, tenant)

    @property
    def upkeep(self) -> PostgresUpkeep:
        return PostgresUpkeep(self.database)

    async def commit(self, change: Change) -> None:
        planned = plan(change)
        if change.erase or not await self._commit(planned, alone=False):
            await self._commit(planned, alone=True)

    async def _commit(self, planned: Plan, *, alone: bool) -> bool:
        tenants, name = self.database.tenants, self.tenant
        done = await self._run(lambda t: changing.commit(t, planned, alone=alone, known=name in tenants))
        if done:
            tenants.add(name)
        return done

    async def path(self, head: Key) -> Path:
        return await self._run(tree.path, head)

    async def tail(self, head: Key, after: Key) -> Sequence[Item]:
        return await self._run(tree.tail, head, after)

    async def session(self, name_or_id: str) -> Session | None:
        return await self._run(records.session, name_or_id)

    async def sessions(self, *, limit: int | None = None) -> Sequence[Session]:
        return await self._run(records.sessions, limit)

    async def outline(self, session_id: str) -> Outline:
        return await self._run(records.outline, session_id)

    async def link(self, link_id: str) -> Link | None:
        return await self._run(links.link, link_id)

    async def links(self, session_id: str) -> Sequence[Link]:
        return await self._run(links.of_session, session_id)

    async def answers(self, *saw: Key) -> Sequence[Link]:
        return await self._run(links.answers, saw)

    async def family(self, link_id: str) -> Sequence[Link]:
        return await self._run(links.family, link_id)

    async def conversation(self, conversation_id: str) -> Conversation | None:
        return await self._run(records.conversation, conversation_id)

    async def conversation_links(self, conversation_id: str) -> Sequence[Link]:
        return await self._run(links.of_conversation, conversation_id)

    async def item(self, item_id: str) -> Item | None:
        return await self._run(tree.item, item_id)

    async def append(self, response_id: str, events: Sequence[Event]) -> None:
        await self._run(runs.append, response_id, events)

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[Event]:
        return await self._run(runs.events, response_id, after)

    async def agent_run(self, run_id: str) -> AgentRun | None:
        return await self._run(agents.run, run_id)

    async def agent_runs(
        self, *, session: str | None = None, state: str | None = None, status: str | None = None, limit: int = 100
    ) -> Sequence[AgentRun]:
        return await self._run(agents.runs, session, state, status, limit)

    async def calls(self, run_id: str) -> Sequence[AgentCall]:
        return await self._run(agents.calls, run_id)

    async def find(self, prefix: str, *, limit: int = 20) -> Sequence[Found]:
        return await self._run(searching.find, prefix, limit)

    async def search(self, words: str, *, limit: int = 20) -> Sequence[Hit]:
        return await self._run(searching.search, words, limit)

    async def remove_session(self, session_id: str) -> None:
        await self._run(removing.remove_session, session_id)

    async def remove_link(self, link_id: str) -> None:
        await self._run(removing.remove_link, link_id)

    async def remove_conversation(self, conversation_id: str) -> None:
        await self._run(removing.remove_conversation, conversation_id)

    async def lease(self, name: str, holder: str, ttl_s: float, *, instead_of: str | None = None) -> Lease:
        return await self._run(leases.take, name, holder, ttl_s, instead_of)

    async def release(self, lease: Lease) -> None:
        await self._run(leases.release, lease)

    async def holder(self, name: str) -> str | None:
        return await self._run(leases.holder, name)

    async def revision(self) -> str:
        """Which transactions are done: it moves when one begins to write, and when it ends."""
        return str(await self._run(lambda t: t.one("SELECT txid_current_snapshot()::text, $1::bigint")))

    async def aclose(self) -> None:
        await self.database.aclose()

    async def _run(
        self, job: Callable[Concatenate[Tenant, P], Awaitable[Result]], *args: P.args, **named: P.kwargs
    ) -> Result:
        """What `job` does on a connection; all of it again where another writer came between."""
        return await self.database.run(lambda db: job(Tenant.of(db, self.tenant), *args, **named))
