"""One tenant's runs: which are open, and the events that each kept.

Events are kept as the text that was written, so that what comes back is what went in, as with every
other store.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from convo.items import Event
from convo.stores import rules
from convo.stores.verbatim import dumps, loads


@dataclass(slots=True)
class Run:
    """A run: `events` are numbers with their texts, `ended_at` is None while it is open."""

    ended_at: float | None = None
    events: list[tuple[int, str]] = field(default_factory=list)


class Runs:
    """The runs of one tenant, by response."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}

    def open(self) -> list[str]:
        """The responses whose run is open, first begun first."""
        return [name for name, run in self._runs.items() if run.ended_at is None]

    def start(self, response_id: str) -> None:
        self._runs.setdefault(response_id, Run()).ended_at = None

    def one(self, response_id: str) -> Run:
        """The open run of a response. raises: Conflict"""
        found = self._runs.get(response_id)
        if found is None or found.ended_at is not None:
            raise rules.not_running(response_id)
        return found

    def end(self, response_id: str, now: float) -> None:
        run = self._runs[response_id]
        run.ended_at = now
        if not run.events:
            self.drop(response_id)

    def drop(self, response_id: str) -> None:
        self._runs.pop(response_id, None)

    def append(self, response_id: str, events: Sequence[Event]) -> None:
        """Keep events behind those that are there. raises: Conflict, InputFault"""
        run = self.one(response_id)
        rules.last_number(events, run.events[-1][0] if run.events else -1)
        run.events += [(event["sequence_number"], dumps(event)) for event in events]

    def events(self, response_id: str, after: int) -> list[Event]:
        run = self._runs.get(response_id, Run())
        return [loads(text) for number, text in run.events if number > after]

    def texts(self) -> list[str]:
        """Every event that is kept."""
        return [text for run in self._runs.values() for _, text in run.events]

    def forget(self, before: float) -> int:
        """Drop the runs that ended before this moment; returns how many."""
        old = [name for name, run in self._runs.items() if run.ended_at is not None and run.ended_at < before]
        for name in old:
            self.drop(name)
        return len(old)
