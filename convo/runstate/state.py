"""A parsed RunState of the Agents SDK: its document, pending calls and decisions.

`RunState.document` is kept exactly as it was read; `RunState` is a view of it that knows the label. Pending calls of
agents used as tools are included. Use `runstate.reader` to read an untrusted document.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from convo.history.items import Json
from convo.runstate.document import PathSteps, get_path
from convo.runstate.format import (
    LocatedRecord,
    Version,
    get_rejection_message,
    get_sticky_decision,
    iter_interruptions,
    iter_states,
    list_decided_call_ids,
)
from convo.runstate.identity import StateCall, parse_state_call
from convo.runstate.versions import LEDGER_SINCE, VERSION_BY_LABEL, list_versions_up_to

USAGE_FIELDS = ("requests", "input_tokens", "output_tokens", "total_tokens")


@dataclass(frozen=True, slots=True)
class PendingCall:
    """A call that waits for a decision.

    call:    the call, as whoever asks shows it
    way:     the place of its approval item in the document
    holder:  the place of the state whose run asks: the outermost, or that of an agent used as a tool
    """

    call: StateCall
    way: PathSteps
    holder: PathSteps

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
class StateDecision:
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
class RunState:
    """One RunState; `convo.runstate.reader` makes it, after it has looked at everything that is said here."""

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
        return self.version.number >= LEDGER_SINCE.number

    @cached_property
    def pending(self) -> tuple[PendingCall, ...]:
        """Every call that waits, those of agents used as tools included, in the order in which they are asked."""
        waiting: dict[str, PendingCall] = {}
        for holder, document in iter_states(self.document):
            for way, item in iter_interruptions(document):
                call = parse_state_call(item.get("raw_item"), item)
                if call is not None and call.id is not None:
                    place = waiting[call.id].way if call.id in waiting else (*holder, *way)
                    waiting[call.id] = PendingCall(call, place, holder)
        return tuple(waiting.values())

    @cached_property
    def records(self) -> tuple[tuple[PathSteps, LocatedRecord], ...]:
        """Every record of decisions, with the place of the state that keeps it."""
        return tuple(
            (holder, kept)
            for holder, document in iter_states(self.document)
            for version in reversed(list_versions_up_to(self.version))
            for kept in version.reads(document)
        )

    @cached_property
    def decisions(self) -> tuple[StateDecision, ...]:
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

    def undecided(self) -> tuple[PendingCall, ...]:
        """The pending calls on which nobody has decided."""
        return tuple(one for one in self.pending if one.id not in self.verdicts)

    @property
    def usage(self) -> dict[str, int]:
        """Requests and tokens so far."""
        usage = get_path(self.document, ("context", "usage")) or {}
        return {key: usage.get(key, 0) for key in USAGE_FIELDS}

    def _decided(self, holder: PathSteps, kept: LocatedRecord) -> Iterator[StateDecision]:
        agents = {one.id: one.agent for one in self.pending}
        ledger = get_path(self.document, (*holder, "context", "tool_invocations")) or {}
        by_call = [
            (call, side == "approved")
            for side in ("approved", "rejected")
            for call in list_decided_call_ids(kept.record, side)
        ]
        for call, approve in by_call:
            words = None if approve else get_rejection_message(kept.record, call)
            owner = (kept.agent or {}).get("name") or agents.get(call)
            yield StateDecision(call, kept.key, approve, False, words, owner, self.is_bound and call in ledger)
        verdict = get_sticky_decision(kept.record)
        if verdict is not None:
            yield from self._for_good(holder, kept, verdict, {call for call, _ in by_call})

    def _for_good(
        self, holder: PathSteps, kept: LocatedRecord, verdict: bool, apart: set[str]
    ) -> Iterator[StateDecision]:
        covered = [one for one in self.pending if one.id not in apart and self._covers(holder, kept, one)]
        bound = self.is_bound and isinstance(kept.record.get("sticky_scope"), str)
        owner = (kept.agent or {}).get("name")
        if not covered:
            yield StateDecision(None, kept.key, verdict, True, get_rejection_message(kept.record, None), owner, bound)
        for one in covered:
            yield StateDecision(
                one.id, kept.key, verdict, True, get_rejection_message(kept.record, one.id), owner or one.agent, bound
            )

    def _covers(self, holder: PathSteps, kept: LocatedRecord, one: PendingCall) -> bool:
        """Whether a record that is for good speaks of a pending call; before 1.15 the outermost speaks for all."""
        near = one.holder == holder or not self.is_bound
        mine = kept.agent is None or kept.agent == one.call.agent
        return near and mine and kept.key in one.call.keys and (not kept.hosted or one.call.is_hosted)


def wrap_document(document: Json) -> RunState:
    """The view on a document whose label is known; see `convo.runstate.reader` for one that may be anything."""
    return RunState(document, VERSION_BY_LABEL[document["$schemaVersion"]])
