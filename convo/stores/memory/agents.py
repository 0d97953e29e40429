"""One tenant's runs of agents, and the ledger of the calls that each made.

Documents and outputs are copied on their way in and out, so that nobody who was handed one can change it.
"""

from collections.abc import Container, Iterator
from dataclasses import replace

from convo.errors import NotFound
from convo.items import Json
from convo.stores import rules
from convo.stores.contract import KEPT, AgentCall, AgentRun, Change
from convo.stores.verbatim import dumps, loads


class AgentRuns:
    """The runs of agents of one tenant, with their calls in the order in which each was first written."""

    def __init__(self) -> None:
        self.runs: dict[str, AgentRun] = {}
        self._calls: dict[str, dict[str, AgentCall]] = {}

    def expect(self, new: AgentRun) -> None:
        """Make sure that a run follows the revision that is there. raises: Conflict"""
        there = self.runs.get(new.id)
        rules.expect_revision(new, there.revision if there else 0)

    def check(self, change: Change, sessions: Container[str]) -> None:
        """Make sure that a run and calls may be written. raises: NotFound, NotCanonical

        sessions:  the ids of those that are there
        """
        new = change.agent_run
        if new:
            if new.session not in sessions and not (change.session and change.session.id == new.session):
                raise NotFound("session", new.session)
            dumps(dict(new.document))
        for call in change.calls:
            if call.run not in self.runs and not (new and call.run == new.id):
                raise rules.no_agent_run(call.run)
            dumps(call.output if call.ended else None)

    def make(self, change: Change) -> None:
        new = change.agent_run
        if new:
            there = self.runs.get(new.id)
            self.runs[new.id] = replace(new, document=there.document) if there and new.document is KEPT else _own(new)
        for call in change.calls:
            ledger = self._calls.setdefault(call.run, {})
            if call.call_id not in ledger or not ledger[call.call_id].ended:
                ledger[call.call_id] = call._replace(output=_copy(call.output) if call.ended else None)

    def run(self, run_id: str) -> AgentRun | None:
        found = self.runs.get(run_id)
        return found and _own(found)

    def newest_first(self) -> Iterator[AgentRun]:
        yield from map(_own, sorted(self.runs.values(), key=lambda run: run.changed_at)[::-1])

    def calls(self, run_id: str) -> list[AgentCall]:
        ledger = sorted(self._calls.get(run_id, {}).values(), key=lambda call: call.started_at)
        return [call._replace(output=_copy(call.output)) for call in ledger]

    def drop(self, session_id: str) -> None:
        """Take the runs of a session, and their calls."""
        for run in [run.id for run in self.runs.values() if run.session == session_id]:
            del self.runs[run]
            self._calls.pop(run, None)

    def texts(self) -> Iterator[str]:
        """Every document and every output that is kept."""
        yield from (dumps(dict(run.document)) for run in self.runs.values())
        yield from (dumps(call.output) for ledger in self._calls.values() for call in ledger.values())


def _own(run: AgentRun) -> AgentRun:
    """A copy that shares nothing that could be changed."""
    return replace(run, document=_copy(dict(run.document)))


def _copy(value: Json) -> Json:
    return loads(dumps(value))
