"""The run of agents that is open in a session, and whether anybody performs it.

A run that was killed says "running" for good: its row cannot know. Whether somebody performs it is
known by the right to write its session, which a living process holds and renews.
"""

from collections.abc import Mapping

from convo.engine.lease import writer
from convo.errors import BadState
from convo.history import Session
from convo.inspection.open_run import OpenRun
from convo.items import Json
from convo.stores.contract import AgentRun, Store

OPEN = ("running", "paused")
"""How a run stands that has not ended."""

AGAIN = "again"
"""The member of a row's document that names the calls that had started when it was written, and may run again."""


def entry(turn: int, call_id: str) -> str:
    """A call's name in the ledger: a model may use an id again, in another answer of the same run."""
    return f"{turn}/{call_id}"


async def open_run(store: Store, session: Session) -> OpenRun | None:
    """The run of a session whose calls have no output yet."""
    newest = await store.agent_runs(session=session.id, limit=1)
    return await _as_open(store, session, newest[0]) if newest else None


async def _as_open(store: Store, session: Session, row: AgentRun) -> OpenRun | None:
    if row.status not in OPEN or not row.document.get("batch"):
        return None
    if row.status == "paused":
        return OpenRun(row.id, _waits(row.document), paused=True)
    return OpenRun(row.id, by=await writer(store, session))


def _waits(document: Mapping[str, Json]) -> tuple[str, ...]:
    """The ids of the calls that wait; none where another convo kept the run, in a form that is not known here."""
    from convo.run.inbox import waiting  # where no run is open, nobody waits for that to be loaded

    try:
        return tuple(call.call_id for call in waiting(document))
    except BadState:
        return ()
