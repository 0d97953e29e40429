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
    def description(self) -> str:
        """The label, and the release that wrote it."""
        return f"RunState {self.label}, written by {self.version.release} or later: {self.version.summary}"

    @property
    def written_document(self) -> Json:
        """The document as it is stored."""
        return self.document

    @property
    def binding_note(self) -> str | None:
        """A note that decisions of this label do not name the call's tool and arguments."""
        note = "a decision is not bound to its call: before 1.15 it names only the call id, not the tool or arguments"
        return None if self.is_bound else note

    def format_member_path(self, path: str) -> str:
        """Return a path in `document` as a path in `written_document`."""
        return path

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
        calls: dict[str, PendingCall] = {}
        for state_path, document in iter_states(self.document):
            for steps, item in iter_interruptions(document):
                call = parse_state_call(item.get("raw_item"), item)
                if call is not None and call.id is not None:
                    item_path = calls[call.id].item_path if call.id in calls else (*state_path, *steps)
                    calls[call.id] = PendingCall(call, item_path, state_path)
        return tuple(calls.values())

    @cached_property
    def records(self) -> tuple[tuple[PathSteps, LocatedRecord], ...]:
        """All decision records, each with the path of the state that contains it."""
        return tuple(
            (state_path, located)
            for state_path, document in iter_states(self.document)
            for version in reversed(list_versions_up_to(self.version))
            for located in version.find_records(document)
        )

    @cached_property
    def decisions(self) -> tuple[StateDecision, ...]:
        """All decisions: those on a call, and sticky ones once for each pending call they cover."""
        all_decisions = (
            decision
            for state_path, located in self.records
            if not located.is_duplicate
            for decision in self._iter_decisions(state_path, located)
        )
        return tuple(dict.fromkeys(all_decisions))

    @cached_property
    def verdicts(self) -> dict[str, bool]:
        """The decision on each pending call: its own one, else the sticky one that covers it."""
        own_verdicts, sticky_verdicts = dict[str, bool](), dict[str, bool]()
        for decision in self.decisions:
            if decision.call_id is not None:
                verdicts = sticky_verdicts if decision.always else own_verdicts
                verdicts[decision.call_id] = decision.approve and verdicts.get(decision.call_id, True)
        return {**sticky_verdicts, **own_verdicts}

    def list_undecided(self) -> tuple[PendingCall, ...]:
        """Return the pending calls without a decision."""
        return tuple(call for call in self.pending if call.id not in self.verdicts)

    @property
    def usage(self) -> dict[str, int]:
        """Requests and tokens of the run so far."""
        usage = get_path(self.document, ("context", "usage")) or {}
        return {key: usage.get(key, 0) for key in USAGE_FIELDS}

    def _iter_decisions(self, state_path: PathSteps, located_record: LocatedRecord) -> Iterator[StateDecision]:
        agents = {call.id: call.agent for call in self.pending}
        ledger = get_path(self.document, (*state_path, *LEDGER_PATH)) or {}
        by_call = [
            (call_id, side == "approved")
            for side in ("approved", "rejected")
            for call_id in list_decided_call_ids(located_record.record, side)
        ]
        for call_id, approve in by_call:
            message = None if approve else get_rejection_message(located_record.record, call_id)
            agent_name = (located_record.agent or {}).get("name") or agents.get(call_id)
            yield StateDecision(
                call_id, located_record.key, approve, False, message, agent_name, self.is_bound and call_id in ledger
            )
        verdict = get_sticky_decision(located_record.record)
        if verdict is not None:
            yield from self._iter_sticky_decisions(
                state_path, located_record, verdict, {call_id for call_id, _ in by_call}
            )

    def _iter_sticky_decisions(
        self, state_path: PathSteps, located_record: LocatedRecord, verdict: bool, decided_ids: set[str]
    ) -> Iterator[StateDecision]:
        covered = [
            call
            for call in self.pending
            if call.id not in decided_ids and self._covers(state_path, located_record, call)
        ]
        is_bound = self.is_bound and isinstance(located_record.record.get("sticky_scope"), str)
        agent_name = (located_record.agent or {}).get("name")
        if not covered:
            yield StateDecision(
                None,
                located_record.key,
                verdict,
                True,
                get_rejection_message(located_record.record, None),
                agent_name,
                is_bound,
            )
        for call in covered:
            yield StateDecision(
                call.id,
                located_record.key,
                verdict,
                True,
                get_rejection_message(located_record.record, call.id),
                agent_name or call.agent,
                is_bound,
            )

    def _covers(self, state_path: PathSteps, located_record: LocatedRecord, call: PendingCall) -> bool:
        """Return whether a sticky record covers a pending call; before 1.15 outermost ones cover nested states too."""
        is_in_scope = call.state_path == state_path or not self.is_bound
        is_same_agent = located_record.agent is None or located_record.agent == call.call.agent
        return (
            is_in_scope
            and is_same_agent
            and located_record.key in call.call.record_keys
            and (not located_record.is_hosted or call.call.is_hosted)
        )


def wrap_document(document: Json) -> RunState:
    """Return the view of a document with a known label; use `convo.runstate.reader` for an untrusted document."""
    return RunState(document, VERSION_BY_LABEL[document["$schemaVersion"]])
