"""What is done with a whole database, across its tenants.

A conversation never asks for it: whoever runs a database brings it up to date, looks at what it
holds, and takes away what is old. Every store gives it beside itself, as `Store.upkeep`.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol


class Abandoned(NamedTuple):
    """An open run that nobody carries out any more: no lease of its name is alive."""

    tenant: str
    response_id: str


class Holdings(NamedTuple):
    """What one tenant keeps.

    rows:            by kind: "sessions", "responses", "conversations", "items", "places" (the root is none),
                     "events", "runs" (of agents)
    bytes:           of its items, documents and what the tables hold around them, about; without indexes
    oldest, newest:  when its first and its last response or conversation was made, seconds since 1970
    """

    tenant: str
    rows: Mapping[str, int]
    bytes: int
    oldest: float | None
    newest: float | None


class Pruned(NamedTuple):
    """What a pruning took, or would take: how many of each."""

    sessions: int
    responses: int
    conversations: int


class Upkeep(Protocol):
    """What whoever runs a database does with it, across all tenants."""

    async def migrate(self) -> Sequence[int]:
        """Bring the schema up to this convo's, whoever else tries at the same time.

        returns:  the numbers of the migrations that this call ran; none when it was up to date
        raises:   StoreTooNew, StoreFault
        """
        ...

    async def check(self) -> None:
        """Ask the database for something. raises: StoreFault  it cannot be reached, or lacks a migration"""
        ...

    async def holdings(self) -> Sequence[Holdings]:
        """What each tenant keeps, by name; one that keeps nothing is left out."""
        ...

    async def prune(self, tenant: str, before: float, *, dry: bool) -> Pruned:
        """Remove what was last used, or made, before this moment (seconds since 1970), as the `remove_` methods do.

        Sessions go by when they were used last; conversations and responses that no session holds by when
        they were made or last answered. A session holds the links that it made, those that its chain goes
        back to, and the conversation that is its handle. A response in an open run stays, and the
        session or conversation that it belongs to.

        dry:  only count
        """
        ...

    async def abandoned(self) -> Sequence[Abandoned]:
        """The open runs whose lease has run out, on the database's own clock; in any order."""
        ...

    async def forget_events(self, older_than_s: float) -> int:
        """Drop the events of runs that ended longer ago than this, and leases that ran out as long ago.

        returns:  of how many responses events were dropped
        """
        ...

    async def secret(self, name: str, fresh: bytes) -> bytes:
        """The database's own secret of this name; `fresh` becomes it where there is none yet."""
        ...
