"""`RunState`: read a paused run of the Agents SDK, decide its calls, and write it."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from convo.chat.state_file import load_state_file, parse_state_bytes, save_state_file
from convo.errors import InvalidUsage, NotFound
from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict
from convo.runstate.reader import StateCallReport, report_state_calls
from convo.runstate.run_state import PendingCall
from convo.runstate.run_state import RunState as StateView
from convo.runstate.signature import remove_signature
from convo.runstate.writer import serialize_run_state


@dataclass(frozen=True)
class RunState:
    """A paused run, as `RunState.to_string()` of the Agents SDK writes it; never changed in place."""

    _view: StateView

    @classmethod
    def read(cls, source: str | os.PathLike[str]) -> "RunState":
        """Read a state.

        source:  a path, or the JSON text itself, which begins with "{"

        Raises NotFound, Unreadable, and InvalidRunState with the place of the first error.
        """
        if isinstance(source, str) and source.lstrip().startswith("{"):
            return cls(parse_state_bytes(source.encode("utf-8", "surrogatepass"), "the state"))
        return cls(load_state_file(os.fspath(source)))

    @property
    def schema_version(self) -> str:
        return self._view.label

    @property
    def agent(self) -> str:
        """The name of the current agent."""
        return self._view.agent

    @property
    def pending(self) -> Sequence[StateCallReport]:
        """The calls that wait for a decision: `call_id`, `tool_name`, `arguments` as the model wrote them, `agent`."""
        return report_state_calls(self._view.list_undecided())

    def decide(
        self,
        *,
        approve: str | Iterable[str] = (),
        reject: str | Iterable[str] | Mapping[str, str] = (),
        always: bool = False,
    ) -> "RunState":
        """Return the state with these decisions, under the same schema version; a signature is removed.

        approve, reject:  ids of calls, or names of tools for all their undecided calls. A mapping has the reason of
                          each rejection, for the model
        always:           the decisions also apply to later calls of these tools

        Raises NotFound for a name of no call, and InvalidUsage for a call that is named twice or a decision that
        the schema version cannot express.
        """
        reasons = reject if isinstance(reject, Mapping) else dict.fromkeys(_to_names(reject))
        verdicts = [(name, ApprovalVerdict(True, None, always)) for name in _to_names(approve)]
        verdicts += [(name, ApprovalVerdict(False, reason, always)) for name, reason in reasons.items()]
        view, decided_ids = remove_signature(self._view), set[str]()
        for name, verdict in verdicts:
            calls = self._find_calls(name)
            if not decided_ids.isdisjoint(call.id for call in calls):
                raise InvalidUsage(f"{name!r} names a call that has another decision", hint="name each call once")
            decided_ids.update(call.id for call in calls)
            view = apply_verdict(view, calls, verdict)
        return RunState(view)

    def _find_calls(self, name: str) -> list[PendingCall]:
        by_id = [call for call in self._view.pending if call.id == name]
        calls = by_id or [call for call in self._view.list_undecided() if name in _names_of(call)]
        if not calls:
            ids = ", ".join(call.id for call in self._view.pending)
            raise NotFound("pending call", name, hint=f"one of {ids}" if ids else "the state has no pending calls")
        return calls

    def to_json(self) -> str:
        """Return the state as the text that `RunState.from_string` of the Agents SDK reads."""
        return serialize_run_state(self._view)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Replace a file atomically, with mode 0600. Raises StoreFault and Unreadable; the file is then unchanged."""
        save_state_file(self._view, os.fspath(path))


def _names_of(call: PendingCall) -> Sequence[str]:
    return (call.call.tool_name, *call.call.record_keys)


def _to_names(names: str | Iterable[str]) -> Iterable[str]:
    return (names,) if isinstance(names, str) else names
