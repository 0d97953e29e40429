"""A state as it is read: the document, and what it means.

The document is the truth and is kept as it came, whatever is in it; `State` is a view on it that
knows its label. What waits in agents used as tools is part of what waits. Nothing here changes a
document: a decision makes a new one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from convo.items import Json
from convo.runstate.identity import Call, call_of
from convo.runstate.nested import interruptions, states
from convo.runstate.paths import Steps, at
from convo.runstate.records import Kept, for_good, ids, message
from convo.runstate.version import Version
from convo.runstate.versions import BOUND, BY_LABEL, upto

USAGE = ("requests", "input_tokens", "output_tokens", "total_tokens")


@dataclass(frozen=True, slots=True)
class Pending:
    """A call that waits for a decision.

    call:    the call, as whoever asks shows it
    way:     the place of its approval item in the document
    holder:  the place of the state whose run asks: the outermost, or that of an agent used as a tool
    """

    call: Call
    way: Steps
    holder: Steps

    @property
    def id(self) -> str:
        """The provider's string; what was read has one."""
        assert self.call.id is not None
        return self.call.id

    @property
    def agent(self) -> str:
        """The name of the agent that made the call."""
        return str((self.call.agent or {}).get("name", ""))


@dataclass(frozen=True, slots=True)
class Decision:
    """A decision that the document holds.

    call_id:  the call it is about; None for one that is for good and covers no pending call
    tool:     the tool's key, as decisions name tools
    agent:    whose call or tool, where that is known
    bound:    whether the ledger binds it to what the call would do; never below 1.15
    """

    call_id: str | None
    tool: str
    approve: bool
    always: bool
    message: str | None
    agent: str | None
    bound: bool


@dataclass(frozen=True)
class State:
    """One RunState; `convo.runstate.reading` makes it, after it has looked at everything that is said here."""

    document: Json
    version: Version

    @property
    def label(self) -> str:
        return self.version.label

    @property
    def agent(self) -> str:
        """The name of the agent whose turn it is."""
        return str(self.document["current_agent"]["name"])

    @property
    def is_bound(self) -> bool:
        """Whether decisions count only with their entry in the ledger."""
        return self.version.number >= BOUND.number

    @cached_property
    def pending(self) -> tuple[Pending, ...]:
        """Every call that waits, those of agents used as tools included, in the order in which they are asked."""
        waiting: dict[str, Pending] = {}
        for holder, document in states(self.document):
            for way, item in interruptions(document):
                call = call_of(item.get("raw_item"), item)
                if call is not None and call.id is not None:
                    place = waiting[call.id].way if call.id in waiting else (*holder, *way)
                    waiting[call.id] = Pending(call, place, holder)
        return tuple(waiting.values())

    @cached_property
    def records(self) -> tuple[tuple[Steps, Kept], ...]:
        """Every record of decisions, with the place of the state that keeps it."""
        return tuple(
            (holder, kept)
            for holder, document in states(self.document)
            for version in reversed(upto(self.version))
            for kept in version.reads(document)
        )

    @cached_property
    def decisions(self) -> tuple[Decision, ...]:
        """Every decision: those by call, and those for good by the pending calls that they cover."""
        found = (one for holder, kept in self.records if not kept.echo for one in self._decided(holder, kept))
        return tuple(dict.fromkeys(found))

    @cached_property
    def verdicts(self) -> dict[str, bool]:
        """What is decided on each pending call: its own decision first, else the sticky one that covers it."""
        own, sticky = dict[str, bool](), dict[str, bool]()
        for one in self.decisions:
            if one.call_id is not None:
                found = sticky if one.always else own
                found[one.call_id] = one.approve and found.get(one.call_id, True)
        return {**sticky, **own}

    def undecided(self) -> tuple[Pending, ...]:
        """The pending calls on which nobody has decided."""
        return tuple(one for one in self.pending if one.id not in self.verdicts)

    @property
    def usage(self) -> dict[str, int]:
        """Requests and tokens so far."""
        usage = at(self.document, ("context", "usage")) or {}
        return {key: usage.get(key, 0) for key in USAGE}

    def _decided(self, holder: Steps, kept: Kept) -> Iterator[Decision]:
        agents = {one.id: one.agent for one in self.pending}
        ledger = at(self.document, (*holder, "context", "tool_invocations")) or {}
        by_call = [(call, side == "approved") for side in ("approved", "rejected") for call in ids(kept.record, side)]
        for call, approve in by_call:
            words = None if approve else message(kept.record, call)
            owner = (kept.agent or {}).get("name") or agents.get(call)
            yield Decision(call, kept.key, approve, False, words, owner, self.is_bound and call in ledger)
        verdict = for_good(kept.record)
        if verdict is not None:
            yield from self._for_good(holder, kept, verdict, {call for call, _ in by_call})

    def _for_good(self, holder: Steps, kept: Kept, verdict: bool, apart: set[str]) -> Iterator[Decision]:
        covered = [one for one in self.pending if one.id not in apart and self._covers(holder, kept, one)]
        bound = self.is_bound and isinstance(kept.record.get("sticky_scope"), str)
        owner = (kept.agent or {}).get("name")
        if not covered:
            yield Decision(None, kept.key, verdict, True, message(kept.record, None), owner, bound)
        for one in covered:
            yield Decision(one.id, kept.key, verdict, True, message(kept.record, one.id), owner or one.agent, bound)

    def _covers(self, holder: Steps, kept: Kept, one: Pending) -> bool:
        """Whether a record that is for good speaks of a pending call; before 1.15 the outermost speaks for all."""
        near = one.holder == holder or not self.is_bound
        mine = kept.agent is None or kept.agent == one.call.agent
        return near and mine and kept.key in one.call.keys and (not kept.hosted or one.call.is_hosted)


def view(document: Json) -> State:
    """The view on a document whose label is known; see `convo.runstate.reading` for one that may be anything."""
    return State(document, BY_LABEL[document["$schemaVersion"]])
