"""Match the flags of `convo resume` and `convo approvals` to calls.

A call id wins over a tool name, a tool name over `all`. A name and `all` select undecided calls only; a
decision is changed by the call's id. Two equally exact flags that differ are an error, and then nothing is
decided.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

from convo.errors import InvalidUsage, NotFound
from convo.runs.state import ApprovalDecided, ToolOutputSupplied
from convo.runs.stored_approvals import PendingApproval
from convo.terminal.approval_prompt import edit_arguments_in_editor

ChoiceT = TypeVar("ChoiceT")

ALL_CALLS_WORD = "all"


def rank_match(selector: str, call_id: str) -> int:
    """Return how exactly a matching selector names a call: 2 for its id, 1 for its tool, 0 for `all`."""
    return 2 if selector == call_id else 0 if selector == ALL_CALLS_WORD else 1


def select_best_matches(candidates: Iterable[tuple[str, int, ChoiceT]]) -> dict[str, ChoiceT]:
    """Return the decision on each call, from tuples of call id, rank and decision.

    Raises InvalidUsage for two different decisions of the same rank.
    """
    best: dict[str, tuple[int, ChoiceT]] = {}
    for call_id, rank, decision in candidates:
        other = best.get(call_id)
        if other and other[0] == rank and other[1] != decision:
            raise InvalidUsage(f"two flags give different decisions on {call_id}", hint="name it in one flag only")
        if other is None or other[0] < rank:
            best[call_id] = (rank, decision)
    return {call_id: decision for call_id, (_, decision) in best.items()}


def format_decision(
    tool: str, call_id: str, *, approve: bool, previous: bool | None, is_edited: bool = False, always: bool = False
) -> str:
    """Format the effect of a decision on one call; `previous` is the earlier decision, None if there was none."""
    word = format_verdict(approve)
    change = f", was {format_verdict(previous)}" if previous is not None and previous != approve else ""
    edits = ", with other arguments" if is_edited else ""
    sticky = ", always" if always else ""
    return f"{word} {tool} ({call_id}){edits}{sticky}{change}"


def format_unchanged_decision(tool: str, call_id: str, previous: bool) -> str:
    """Format a note that a name or `all` left an earlier decision on one call unchanged."""
    flag = "--reject" if previous else "--approve"
    return f"{tool} ({call_id}) remains {format_verdict(previous)}; to change it: {flag} {call_id}"


def format_verdict(approve: bool) -> str:
    """Return the word for a decision."""
    return "approved" if approve else "rejected"


@dataclass(frozen=True, slots=True)
class RequestedDecisions:
    """The values of the decision flags: each names a call's id, a tool or `all`.

    rerun, output:  for calls whose outcome is unknown; output is CALL=TEXT
    abort:          end the run
    """

    approve: tuple[str, ...] = ()
    reject: tuple[str, ...] = ()
    edit: tuple[str, ...] = ()
    rerun: tuple[str, ...] = ()
    output: tuple[str, ...] = ()
    always: bool = False
    abort: bool = False

    @property
    def call_values(self) -> tuple[str, ...]:
        """The values of all flags that name calls."""
        return (*self.approve, *self.reject, *self.edit, *self.rerun, *self.output)

    @property
    def has_any(self) -> bool:
        return bool(self.call_values)


class CallDecision(NamedTuple):
    """The decision of one flag on one call."""

    flag: str
    text: str | None = None


def build_decision_events(
    requested: RequestedDecisions, pending: Sequence[PendingApproval]
) -> list[ApprovalDecided | ToolOutputSupplied]:
    """Build the decisions, in the order of the calls; an editor opens for each call to edit.

    Raises NotFound or InvalidUsage.
    """
    return list(_iter_events(requested, choose_decisions(requested, pending), pending))


def choose_decisions(requested: RequestedDecisions, pending: Sequence[PendingApproval]) -> dict[str, CallDecision]:
    """Return the decision on each call, by call id. Raises NotFound or InvalidUsage."""
    return select_best_matches(
        match for word, flag in _iter_flags(requested) for match in _match_calls(word, flag, pending)
    )


def iter_unchanged_decision_notes(requested: RequestedDecisions, pending: Sequence[PendingApproval]) -> Iterator[str]:
    """Yield notes on earlier decisions that differ from a name or `all`, and stay unchanged."""
    choices = choose_decisions(requested, pending)
    for call in pending:
        if call.approved is None or call.call_id in choices:
            continue
        verdicts = {
            flag != "reject"
            for word, flag in _iter_flags(requested)
            if _split_flag_value(word, flag, pending)[0] in (ALL_CALLS_WORD, call.tool)
        }
        if verdicts - {call.approved}:
            yield format_unchanged_decision(call.tool, call.call_id, call.approved)


def _iter_flags(requested: RequestedDecisions) -> Iterator[tuple[str, str]]:
    for flag in ("approve", "reject", "edit", "rerun", "output"):
        for word in getattr(requested, flag):
            yield word, flag


def _match_calls(value: str, flag: str, pending: Sequence[PendingApproval]) -> Iterator[tuple[str, int, CallDecision]]:
    name, text = _split_flag_value(value, flag, pending)
    undecided = [call for call in pending if call.approved is None]
    applicable = [
        call for call in undecided if flag == "reject" or call.outcome_unknown == (flag in ("rerun", "output"))
    ]
    matches = [call for call in pending if call.call_id == name] or [
        call for call in applicable if name in (ALL_CALLS_WORD, call.tool)
    ]
    matches = matches or [call for call in undecided if name in (ALL_CALLS_WORD, call.tool)]
    if not matches and not any(name in (ALL_CALLS_WORD, call.tool) for call in pending):
        ids = ", ".join(call.call_id for call in pending)
        if not ids:
            raise NotFound("pending call", name, note=": this run has no pending calls", hint="convo approvals")
        raise NotFound("pending call", name, hint=f"one of {ids}")
    for call in matches:
        _check_applicable(call, flag)
        yield (
            call.call_id,
            rank_match(name, call.call_id),
            CallDecision(flag, text or ("" if flag == "output" else None)),
        )


def _split_flag_value(value: str, flag: str, pending: Sequence[PendingApproval]) -> tuple[str, str | None]:
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


def _iter_events(
    requested: RequestedDecisions, choices: dict[str, CallDecision], pending: Sequence[PendingApproval]
) -> Iterator[ApprovalDecided | ToolOutputSupplied]:
    for call in pending:
        choice = choices.get(call.call_id)
        if choice is None:
            continue
        if choice.flag == "output":
            yield ToolOutputSupplied(call.call_id, choice.text)
            continue
        arguments = edit_arguments_in_editor(call.arguments) if choice.flag == "edit" else None
        always = requested.always and not call.outcome_unknown
        yield ApprovalDecided(call.call_id, choice.flag != "reject", choice.text, always, arguments)
