"""What is done with a whole database, across its tenants.

A conversation never asks for it: whoever runs a database brings it up to date, looks at what it
holds, and takes away what is old. Every store gives it beside itself, as `Store.upkeep`.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

Progress: TypeAlias = Callable[[str, int, int], None]
"""Receives the name of a step, the rows or pages done, and how many there are."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One kind of damage.

    code:     "file", "unreadable", "reference", "tenant", "item", "node", "conversation", "record", "index" or "search"
    count:    how many rows it was found in
    example:  the first of them, in words
    """

    code: str
    count: int
    example: str


class NamedSession(NamedTuple):
    """A session, by its tenant and its name."""

    tenant: str
    name: str


class StoreCheck(NamedTuple):
    """The result of checking a whole database.

    rows:       how many were checked, by table
    problems:   empty where every check passed
    sessions:   those whose history cannot be read whole, or is not the history that was stored
    unchecked:  why some checks were left out; empty where none was
    """

    rows: Mapping[str, int]
    problems: Sequence[Problem] = ()
    sessions: Sequence[NamedSession] = ()
    unchecked: str = ""


class CutSession(NamedTuple):
    """A session of which a part is lost.

    items:       how many are left in it
    rest:        the name of the session that holds the items behind the break; empty where none is left
    rest_items:  how many those are
    """

    tenant: str
    name: str
    items: int
    rest: str
    rest_items: int


class Recovery(NamedTuple):
    """The result of copying what can be read of a damaged database.

    rows:   how many are in the new database, by table
    whole:  sessions with the whole history that they had
    cut:    sessions of which a part is left
    lost:   sessions of which only the record is left
    made:   sessions made of histories whose own record is lost
    """

    rows: Mapping[str, int]
    whole: Sequence[NamedSession]
    cut: Sequence[CutSession]
    lost: Sequence[NamedSession]
    made: Sequence[NamedSession]


class Problems:
    """Counts problems by code and keeps the first of each as the example."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, str]] = {}

    def add(self, code: str, example: str, count: int = 1) -> None:
        before, first = self._found.get(code, (0, example))
        self._found[code] = before + count, first

    def __bool__(self) -> bool:
        return bool(self._found)

    def __iter__(self) -> Iterator[Problem]:
        return (Problem(code, count, example) for code, (count, example) in self._found.items())


Observe: TypeAlias = Callable[[float], None]
"""Receives the seconds of one transaction, with the time that it waited for its turn."""


def not_observed(seconds: float) -> None:
    """Do not measure."""


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

    async def check_room(self) -> None:
        """Make sure that there is room for an answer, before a model is asked for one. raises: StoreFull"""
        ...

    async def holdings(self) -> Sequence[Holdings]:
        """What each tenant keeps, by name; one that keeps nothing is left out."""
        ...

    async def tenants(self) -> Sequence[str]:
        """The names of all tenants that ever kept something. Costs little, whatever they keep."""
        ...

    async def size(self) -> int | None:
        """Bytes on the disk, with indexes and logs; None where there is no disk. Reads no rows."""
        ...

    def observe(self, observe: Observe) -> None:
        """Call `observe` after every transaction of this process from now on."""
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
