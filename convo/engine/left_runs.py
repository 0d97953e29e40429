"""Runs of agents that were left in the middle of their calls: whoever performed them is gone.

They wait for a person as much as paused ones do, and cannot say so themselves: nobody was there to
write it. Going on with one finds out which of its calls have to be decided on.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from convo.engine.open_runs import AGAIN, entry, open_run
from convo.history import Session
from convo.run.inbox import Waiting, named
from convo.run.keeping import STAGE_WORDS
from convo.run.state import Stage
from convo.stores.contract import AgentCall, AgentRun, Store

MANY = 10_000
"""Runs that are looked at."""


class Left(NamedTuple):
    """A run that nobody performs any more.

    calls:  those that had started and left no result
    """

    run: AgentRun
    session: Session
    calls: tuple[Waiting, ...]


async def left_runs(store: Store) -> list[Left]:
    """The runs that were left in the middle of their calls, changed last first."""
    return [left for row in await store.agent_runs(status="running", limit=MANY) if (left := await _left(store, row))]


async def _left(store: Store, row: AgentRun) -> Left | None:
    session = await store.session(row.session)
    run = await open_run(store, session) if session else None
    if session is None or run is None or run.id != row.id or not run.left:
        return None
    return Left(row, session, tuple(_cut_off(row.document, await store.calls(row.id))))


def _cut_off(document: Mapping[str, Any], ledger: Sequence[AgentCall]) -> Iterator[Waiting]:
    """The calls that had started and left no result; a ledger may know more than the document."""
    ended, again = {call.call_id: call.ended for call in ledger}, document.get(AGAIN, ())
    for call in document["batch"]:
        name = entry(document["turn"], call["id"])
        begun = call["stage"] == STAGE_WORDS[Stage.READY] and name in ended and call["id"] not in again
        if (begun or call["stage"] == STAGE_WORDS[Stage.STARTED]) and not ended.get(name):
            yield Waiting(call["id"], named(call["lookup"]), call["arguments"], document["agent"], unknown=True)
