"""The contract, over one SQLite file.

Each method is one job on the thread that owns the connection, over one tenant's rows. What a job
does stands in the module that it names here; jobs that come together share a transaction.
"""

from collections.abc import Callable, Sequence
from typing import Concatenate, ParamSpec, TypeVar

from convo.history import Key, Link, Path, Session
from convo.items import Event, Item
from convo.stores.contract import AgentCall, AgentRun, Change, Conversation, Found, Hit, Lease, Outline
from convo.stores.sqlite import agents, changing, leases, links, names, records, removing, runs, searching, tree
from convo.stores.sqlite.database import Database
from convo.stores.sqlite.tenant import Tenant
from convo.stores.sqlite.upkeep import SqliteUpkeep

P = ParamSpec("P")
Result = TypeVar("Result")


class SqliteStore:
    """Keeps histories in a file, for every process of this machine that opens it."""

    def __init__(self, database: Database, tenant: str = "local") -> None:
        self.tenant = tenant
        self.database = database
        self.upkeep = SqliteUpkeep(database)

    def of(self, tenant: str) -> "SqliteStore":
        return SqliteStore(self.database, tenant)

    async def commit(self, change: Change) -> None:
        await self._write(changing.commit, change)

    async def path(self, head: Key) -> Path:
        return await self._read(tree.path, head)

    async def tail(self, head: Key, after: Key) -> Sequence[Item]:
        return await self._read(tree.tail, head, after)

    async def session(self, name_or_id: str) -> Session | None:
        return await self._read(records.session, name_or_id)

    async def sessions(self, *, limit: int | None = None) -> Sequence[Session]:
        return await self._read(records.sessions, limit)

    async def outline(self, session_id: str) -> Outline:
        return await self._read(records.outline, session_id)

    async def link(self, link_id: str) -> Link | None:
        return await self._read(links.link, link_id)

    async def links(self, session_id: str) -> Sequence[Link]:
        return await self._read(links.of_session, session_id)

    async def answers(self, *saw: Key) -> Sequence[Link]:
        return await self._read(links.answers, saw)

    async def family(self, link_id: str) -> Sequence[Link]:
        return await self._read(links.family, link_id)

    async def conversation(self, conversation_id: str) -> Conversation | None:
        return await self._read(records.conversation, conversation_id)

    async def conversation_links(self, conversation_id: str) -> Sequence[Link]:
        return await self._read(links.of_conversation, conversation_id)

    async def item(self, item_id: str) -> Item | None:
        return await self._read(names.item, item_id)

    async def append(self, response_id: str, events: Sequence[Event]) -> None:
        await self._write(runs.append, response_id, events)

    async def events(self, response_id: str, *, after: int = -1) -> Sequence[Event]:
        return await self._read(runs.events, response_id, after)

    async def agent_run(self, run_id: str) -> AgentRun | None:
        return await self._read(agents.run, run_id)

    async def agent_runs(
        self, *, session: str | None = None, state: str | None = None, status: str | None = None, limit: int = 100
    ) -> Sequence[AgentRun]:
        return await self._read(agents.runs, session, state, status, limit)

    async def calls(self, run_id: str) -> Sequence[AgentCall]:
        return await self._read(agents.calls, run_id)

    async def find(self, prefix: str, *, limit: int = 20) -> Sequence[Found]:
        return await self._read(searching.find, prefix, limit)

    async def search(self, words: str, *, limit: int = 20) -> Sequence[Hit]:
        return await self._read(searching.search, words, limit)

    async def remove_session(self, session_id: str) -> None:
        await self._remove(removing.remove_session, session_id)

    async def remove_link(self, link_id: str) -> None:
        await self._remove(removing.remove_link, link_id)

    async def remove_conversation(self, conversation_id: str) -> None:
        await self._remove(removing.remove_conversation, conversation_id)

    async def lease(self, name: str, holder: str, ttl_s: float, *, instead_of: str | None = None) -> Lease:
        return await self._write(leases.take, name, holder, ttl_s, instead_of)

    async def release(self, lease: Lease) -> None:
        await self.database.write(lambda db: leases.release(Tenant.known(db, self.tenant), lease), create=False)

    async def holder(self, name: str) -> str | None:
        return await self._read(leases.holder, name)

    async def revision(self) -> str:
        """SQLite counts what other connections commit; this one's own changes are counted by rows."""
        return await self.database.read(
            lambda db: f"{db.execute('PRAGMA data_version').fetchone()[0]}-{db.total_changes}"
        )

    async def aclose(self) -> None:
        await self.database.aclose()

    async def _read(self, job: Callable[Concatenate[Tenant, P], Result], *args: P.args, **named: P.kwargs) -> Result:
        return await self.database.read(lambda db: job(Tenant.known(db, self.tenant), *args, **named))

    async def _write(self, job: Callable[Concatenate[Tenant, P], Result], *args: P.args, **named: P.kwargs) -> Result:
        return await self.database.write(lambda db: job(Tenant.made(db, self.tenant), *args, **named))

    async def _remove(self, job: Callable[[Tenant, str], None], name: str) -> None:
        await self.database.write(lambda db: job(Tenant.known(db, self.tenant), name), create=False)
