"""A parsed RunState of the Agents SDK: its document, pending calls and decisions.

`RunState.document` is exactly the JSON that was read; `RunState` is a view of it that knows the label. Pending calls of
agents used as tools are included. Use `runstate.reader` to read an untrusted document.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from convo.history.items import Json
from convo.runstate.document import PathSteps, get_path
from convo.runstate.format import (
    LEDGER_PATH,
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
    """A call that needs a decision.

    call:        the call as in its approval item
    item_path:   the path of the approval item in the document
    state_path:  the path of the state with the pending call: the outermost, or that of an agent used as a tool
    """

    call: StateCall
    item_path: PathSteps
    state_path: PathSteps

    @property
    def id(self) -> str:
        """The provider's string; a validated state has one."""
        assert self.call.id is not None
        return self.call.id

    @property
    def agent(self) -> str:
        """The name of the agent that made the call."""
        return str((self.call.agent or {}).get("name", ""))


@dataclass(frozen=True, slots=True)
class StateDecision:
    """A decision in the document.

    call_id:   the call; None for a sticky decision that covers no pending call
    tool:      the tool's key in decisions
    agent:     the name of the agent, if known
    is_bound:  the ledger binds the decision to the call's effect; always False below 1.15
    """

    call_id: str | None
    tool: str
    approve: bool
    always: bool
    message: str | None
    agent: str | None
    is_bound: bool


@dataclass(frozen=True)
class RunState:
    """A view of a RunState document, which `convo.runstate.reader` has validated."""

    document: Json
    version: Version

    @property
    def label(self) -> str:
        return self.version.label

    @property
    def agent(self) -> str:
        """The name of the current agent."""
        return str(self.document["current_agent"]["name"])

    @property
    def is_bound(self) -> bool:
        """Whether decisions count only with a ledger entry."""
        return self.version.number >= LEDGER_SINCE.number

    @cached_property
    def pending(self) -> tuple[PendingCall, ...]:
        """All pending calls, with those of agents used as tools, in the order of the interruptions."""
        waiting: dict[str, PendingCall] = {}
        for holder, document in iter_states(self.document):
            for way, item in iter_interruptions(document):
                call = parse_state_call(item.get("raw_item"), item)
                if call is not None and call.id is not None:
                    place = waiting[call.id].item_path if call.id in waiting else (*holder, *way)
                    waiting[call.id] = PendingCall(call, place, holder)
        return tuple(waiting.values())

    @cached_property
    def records(self) -> tuple[tuple[PathSteps, LocatedRecord], ...]:
        """All decision records, each with the path of the state that contains it."""
        return tuple(
            (holder, kept)
            for holder, document in iter_states(self.document)
            for version in reversed(list_versions_up_to(self.version))
            for kept in version.find_records(document)
        )

    @cached_property
    def decisions(self) -> tuple[StateDecision, ...]:
        """All decisions: those on a call, and sticky ones once for each pending call they cover."""
        found = (
            one for holder, kept in self.records if not kept.is_duplicate for one in self._iter_decisions(holder, kept)
        )
        return tuple(dict.fromkeys(found))

    @cached_property
    def verdicts(self) -> dict[str, bool]:
        """The decision on each pending call: its own one, else the sticky one that covers it."""
        own, sticky = dict[str, bool](), dict[str, bool]()
        for one in self.decisions:
            if one.call_id is not None:
                found = sticky if one.always else own
                found[one.call_id] = one.approve and found.get(one.call_id, True)
        return {**sticky, **own}

    def list_undecided(self) -> tuple[PendingCall, ...]:
        """Return the pending calls without a decision."""
        return tuple(one for one in self.pending if one.id not in self.verdicts)

    @property
    def usage(self) -> dict[str, int]:
        """Requests and tokens of the run so far."""
        usage = get_path(self.document, ("context", "usage")) or {}
        return {key: usage.get(key, 0) for key in USAGE_FIELDS}

    def _iter_decisions(self, holder: PathSteps, kept: LocatedRecord) -> Iterator[StateDecision]:
        agents = {one.id: one.agent for one in self.pending}
        ledger = get_path(self.document, (*holder, *LEDGER_PATH)) or {}
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
            yield from self._iter_sticky_decisions(holder, kept, verdict, {call for call, _ in by_call})

    def _iter_sticky_decisions(
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
        """Return whether a sticky record covers a pending call; before 1.15 outermost ones cover nested states too."""
        near = one.state_path == holder or not self.is_bound
        mine = kept.agent is None or kept.agent == one.call.agent
        return near and mine and kept.key in one.call.record_keys and (not kept.is_hosted or one.call.is_hosted)


def wrap_document(document: Json) -> RunState:
    """Return the view of a document with a known label; use `convo.runstate.reader` for an untrusted document."""
    return RunState(document, VERSION_BY_LABEL[document["$schemaVersion"]])
