"""What PostgreSQL, its driver and the network say when they cannot, in our words.

A message never holds the URL, and of what the server says only its first line: what stands behind
that may repeat what was stored.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import errors
from psycopg_pool import PoolClosed, PoolTimeout

from convo.errors import ConvoError, InputFault, StoreFault, StoreFull, StoreReadOnly, StoreUnavailable
from convo.stores.postgres.reaching import MIGRATE, REACH, shortened, step

REPEATABLE = (
    errors.SerializationFailure,
    errors.DeadlockDetected,
    errors.UniqueViolation,
    errors.ForeignKeyViolation,
)
"""Two writers met: whoever is told so did nothing yet, and finds it decided when it comes again."""

UNMIGRATED = (errors.UndefinedTable, errors.UndefinedColumn, errors.InvalidSchemaName)
NOT_ALLOWED = (errors.InsufficientPrivilege, errors.ReadOnlySqlTransaction)


@contextmanager
def translated(place: str) -> Iterator[None]:
    """Let nothing foreign out. raises: ConvoError"""
    try:
        yield
    except psycopg.Error as wrong:
        raise fault(wrong, place) from wrong
    except OSError as wrong:
        raise StoreUnavailable(f"{place} cannot be reached: {wrong.strerror or wrong}", hint=REACH) from wrong


def fault(wrong: psycopg.Error, place: str) -> ConvoError:
    said = _said(wrong)
    if isinstance(wrong, UNMIGRATED):
        return unmigrated(place)
    if isinstance(wrong, NOT_ALLOWED):
        return StoreReadOnly(f"{place} may not be written: {said}", hint="ask whoever runs the database for the right")
    if isinstance(wrong, errors.ProgramLimitExceeded):
        return InputFault("a name or an id is too long for an index")
    return _store_fault(wrong, place, said)


def _store_fault(wrong: psycopg.Error, place: str, said: str) -> StoreFault:
    if isinstance(wrong, errors.DiskFull):
        return StoreFull(f"there is no room left at {place}")
    if isinstance(wrong, PoolTimeout):
        return StoreUnavailable(f"{place} gave no connection in time", hint=REACH)
    if isinstance(wrong, PoolClosed):
        return StoreUnavailable(f"{place} was closed")
    if isinstance(wrong, REPEATABLE):
        return StoreUnavailable(f"{place} has too many writers at once: {said}", hint="try again")
    return StoreUnavailable(f"{place} cannot be used: {said}", hint=step(str(wrong), place))


def unmigrated(place: str) -> StoreUnavailable:
    return StoreUnavailable(f"{place} lacks tables of this convo", hint=MIGRATE)


def _said(wrong: psycopg.Error) -> str:
    """The first line of what the server or the driver says."""
    return shortened(wrong.diag.message_primary or str(wrong))
