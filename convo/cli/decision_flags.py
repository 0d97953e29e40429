"""Decisions on pending calls from the command line: `convo resume`, `--decide-only` and `convo approvals`.

The values of flags and arguments are matched to calls here, and become the `ApprovalDecided` that the approval prompt
and the page make, too: `step_run` applies it to a run in this process, `stored_approvals` to a stored one, and
`chat.run_decisions` logs it.

A call id wins over a tool name, a tool name over `all`. A name and `all` select undecided calls only; a
decision is changed by the call's id. Two equally exact values that differ are an error, and then nothing is
decided.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from convo.errors import InvalidUsage, NotFound
from convo.runs.state import ApprovalDecided
from convo.runs.stored_approvals import PendingApproval
from convo.terminal.approval_prompt import edit_arguments_in_editor

ALL_CALLS_WORD = "all"


@dataclass(frozen=True, slots=True)
class RequestedDecisions:
    """The values of the decision flags: each names a call's id, a tool or `all`.

    rerun, output:        for calls whose outcome is unknown; output is CALL=TEXT
    abort:                end the run
    can_approve_unknown:  `approve` and `edit` apply to calls whose outcome is unknown, too: they run again
    """

    approve: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    edit: tuple[str, ...] = ()
    rerun: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    always: bool = False
    abort: bool = False
    can_approve_unknown: bool = False

    @property
    def call_values(self) -> tuple[str, ...]:
        """The values of all flags that name calls."""
        return tuple(value for value, _ in self.iter_flags())

    def iter_flags(self) -> Iterator[tuple[str, str]]:
        """Iterate over the values, each with the name of its flag."""
        for flag in ("approve", "reject", "edit", "rerun", "output"):
            for value in getattr(self, flag):
                yield value, flag


class CallDecision(NamedTuple):
    """The decision of one flag on one call."""

    flag: str
    text: str | None = None


MakeNotFound: TypeAlias = Callable[[str, Sequence[PendingApproval]], NotFound | None]
"""Makes the error for a name of no call; None if the name selects no call, which is no error."""


def make_run_not_found(name: str, pending: Sequence[PendingApproval]) -> NotFound:
    if not pending:
        return NotFound("pending call", name, note=": this run has no pending calls", hint="convo approvals")
    return NotFound("pending call", name, hint=f"one of {', '.join(call.call_id for call in pending)}")


def choose_decisions(
    requested: RequestedDecisions,
    pending: Sequence[PendingApproval],
    make_not_found: MakeNotFound = make_run_not_found,
) -> dict[int, CallDecision]:
    """Return the decisions by the index of their call, in the order of the values: several calls may have one id.

    Raises InvalidUsage for two different values that name a call equally exactly or for a flag that does not apply to
    the state of its call, and the error of `make_not_found`.
    """
    best: dict[int, tuple[int, CallDecision]] = {}
    for value, flag in requested.iter_flags():
        name, text = split_flag_value(value, flag, pending)
        decision = CallDecision(flag, text or ("" if flag == "output" else None))
        indexes = _match_calls(name, flag, requested, pending)
        is_unknown = not indexes and not any(_is_named(call, name) for call in pending)
        if is_unknown and (error := make_not_found(name, pending)):
            raise error
        for index in indexes:
            call_id = pending[index].call_id
            if not requested.can_approve_unknown:
                _check_applicable(pending[index], flag)
            rank = 2 if name == call_id else 0 if name == ALL_CALLS_WORD else 1
            other_rank, other = best.get(index, (-1, decision))
            if other_rank == rank and other != decision:
                raise InvalidUsage(f"{call_id} is given two different decisions", hint="name it once")
            if other_rank < rank:
                best[index] = rank, decision
    return {index: decision for index, (_, decision) in best.items()}


def _match_calls(
    name: str, flag: str, requested: RequestedDecisions, pending: Sequence[PendingApproval]
) -> Sequence[int]:
    """Return the calls of this id, decided or not; otherwise the undecided calls of a tool, or all of them.

    Of the latter those to which the flag applies, if there are any.
    """
    if by_id := [index for index, call in enumerate(pending) if call.call_id == name]:
        return by_id
    undecided = [index for index, call in enumerate(pending) if call.approved is None and _is_named(call, name)]
    if flag == "reject" or requested.can_approve_unknown:
        return undecided
    is_for_unknown = flag in ("rerun", "output")
    return [index for index in undecided if pending[index].outcome_unknown == is_for_unknown] or undecided


def _is_named(call: PendingApproval, name: str) -> bool:
    return name in (ALL_CALLS_WORD, call.tool, *call.aliases)


def split_flag_value(value: str, flag: str, pending: Sequence[PendingApproval]) -> tuple[str, str | None]:
    """Split `CALL=TEXT`; a call id that contains an equals sign is not split."""
    ids = [call.call_id for call in pending]
    if flag not in ("reject", "output") or (flag == "reject" and value in ids):
        return value, None
    longest = max(
        (call_id for call_id in ids if value.startswith(f"{call_id}=")), key=len, default=value.partition("=")[0]
    )
    if flag == "output" and "=" not in value.removeprefix(longest):
        raise InvalidUsage(f"--output {value!r} does not contain the output of the call", hint="--output CALL=TEXT")
    return longest, value.removeprefix(longest).removeprefix("=")


def _check_applicable(call: PendingApproval, flag: str) -> None:
    """Raise InvalidUsage for a flag that does not apply to the state of the call."""
    if call.outcome_unknown and flag in ("approve", "edit"):
        raise InvalidUsage(
            f"{call.call_id} was started and its outcome is unknown",
            hint=f"--rerun {call.call_id}, --output {call.call_id}=TEXT, or --abort",
        )
    if not call.outcome_unknown and flag in ("rerun", "output"):
        raise InvalidUsage(
            f"{call.call_id} was not started, so it has no output", hint=f"--approve or --reject {call.call_id}"
        )


def make_decision(call: PendingApproval, decision: CallDecision, requested: RequestedDecisions) -> ApprovalDecided:
    """Make the decision on one call; for `edit` an editor opens. Raises InvalidUsage if it fails."""
    arguments = edit_arguments_in_editor(call.arguments) if decision.flag == "edit" else None
    always = requested.always and (requested.can_approve_unknown or not call.outcome_unknown)
    return ApprovalDecided(call.call_id, decision.flag != "reject", decision.text, always, arguments)


def format_decision(call: PendingApproval, event: ApprovalDecided) -> str:
    """Describe a decision on a call as it was before: "approved refund (call_1), was rejected"."""
    edits = ", with other arguments" if event.arguments is not None else ""
    sticky = ", always" if event.always else ""
    is_changed = call.approved is not None and call.approved != event.approve
    change = f", was {format_verdict(not event.approve)}" if is_changed else ""
    return f"{format_verdict(event.approve)} {call.tool} ({call.call_id}){edits}{sticky}{change}"


def iter_unchanged_decision_notes(
    requested: RequestedDecisions, pending: Sequence[PendingApproval], choices: dict[int, CallDecision]
) -> Iterator[str]:
    """Yield notes on earlier decisions that differ from a name or `all`, and stay unchanged."""
    flags = [(split_flag_value(value, flag, pending)[0], flag != "reject") for value, flag in requested.iter_flags()]
    for index, call in enumerate(pending):
        if call.approved is None or index in choices:
            continue
        if any(approve != call.approved and _is_named(call, name) for name, approve in flags):
            verdict, flag = format_verdict(call.approved), "--reject" if call.approved else "--approve"
            yield f"{call.tool} ({call.call_id}) remains {verdict}; to change it: {flag} {call.call_id}"


def format_verdict(approve: bool) -> str:
    """Return the word for a decision."""
    return "approved" if approve else "rejected"
