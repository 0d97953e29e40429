"""Approval prompt: show pending calls and ask for a decision on each.

Each decision is saved when it is made, and no call runs before all calls are decided. Leaving (Ctrl-C, Ctrl-D,
end of input) decides nothing. While the prompt waits, the store is polled: a decision that is made on the inspector
page or with `convo approvals` ends the question about its call.
"""

import asyncio
import json
import os
import shlex
import signal
import subprocess
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple, Protocol, TypeAlias

from convo.agent_runner.runner import AgentRunner
from convo.chat.files import format_os_error
from convo.chat.run_decisions import describe_decision, wait_for_decisions
from convo.errors import AlreadyDecided, Conflict, ConvoError, Interrupted, InvalidUsage
from convo.history.items import Json, decode_json_escapes
from convo.history.records import ApprovalDecision
from convo.runs.state import ApprovalDecided, ToolOutputSupplied
from convo.runs.stored_approvals import PendingApproval, pending_approval_from_call
from convo.runtime import temporary_folder
from convo.terminal.message_queue import EMPTY_MESSAGE, TypedMessage
from convo.terminal.prompt import Choice
from convo.terminal.signals import ignore_signal, on_signal
from convo.terminal.statuses import CANCELLED, DONE, PAUSED, WARNING, Status, status_column
from convo.terminal.tables import Column, render_table
from convo.terminal.terminal import (
    LABEL_MARGIN,
    UNSAFE_CHAR,
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    key_value_lines,
    styled_width,
    text_width,
    truncate_text,
    wrap_text,
)

DURATION_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))
"""Seconds and the name of each unit, largest first."""


class PausedRun(NamedTuple):
    """A paused run in the inbox.

    session_name:  the name of the run's session
    paused_s:      seconds since the run paused
    """

    run_id: str
    session_name: str
    paused_s: float
    calls: tuple[PendingApproval, ...]


MAX_PANEL_COLUMNS = 80
"""Columns of the panel of a call; more if one of its lines needs them and the terminal has them."""

MAX_ARGUMENT_NAME_COLUMNS = 20
"""Arguments are shown as a list of names and values if no name has more columns."""

SHORT_CALL_ID_CHARS = 17
"""Characters of the id of a call in the border of its panel: "call_" and twelve digits."""


def render_pending_call(call: PendingApproval, display: DisplayOptions, *details: KeyValue) -> str:
    """Render one call in full: its tool, its arguments, its agent and its id; on a terminal as a panel.

    details:  other properties of the call, listed after its agent and id; without them, a panel has the agent and a
              shortened id in its border
    """
    title = f"{call.tool} has an unknown outcome" if call.outcome_unknown else f"{call.tool} needs approval"
    if display.width is None:
        rows = [*_call_rows(call), *details]
        return "\n".join([escape_control_chars(title), *key_value_lines(rows, display)])
    from convo.terminal.tables import PANEL_COLUMNS, panel_lines

    inner_display = display._replace(width=max(1, display.width - PANEL_COLUMNS + LABEL_MARGIN))
    lines = _argument_lines(call, inner_display)
    notes = [*_note_rows(call), *(_identity_rows(call) if details else ()), *details]
    if notes:
        lines += ["", *(line[LABEL_MARGIN:] for line in key_value_lines(notes, inner_display))]
    columns = max(MAX_PANEL_COLUMNS, *(styled_width(line) + PANEL_COLUMNS for line in lines))
    footer = "" if details else " · ".join((call.agent, _shorten_call_id(call.call_id)))
    panel_display = display._replace(width=min(display.width, columns))
    footer = display.translate_box_chars(footer)
    return "\n".join(panel_lines(title, lines, panel_display, footer=footer, border_style="warn"))


def _argument_lines(call: PendingApproval, display: DisplayOptions) -> list[str]:
    """Return the arguments as a list of names and values; as formatted text if they are no object with short names."""
    try:
        arguments = _parse_without_loss(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = None
    if arguments == {}:
        return [display.apply_style("no arguments", "dim")]
    if not isinstance(arguments, dict) or not all(_is_short_name(name) for name in arguments):
        text = escape_control_chars(format_arguments(call.arguments))
        return wrap_text(text, display.width and display.width - LABEL_MARGIN).split("\n")
    rows = []
    for name, value in arguments.items():
        text = value if _is_plain_text(value) else decode_json_escapes(json.dumps(value, indent=2))
        first, *rest = text.split("\n")
        rows += [(name, first), *(("", line) for line in rest)]
    styles = dict.fromkeys(arguments, "id")
    return [line[LABEL_MARGIN:] for line in key_value_lines(rows, display, styles, value_style="bold")]


def _is_plain_text(value: Json) -> bool:
    """Return whether a value is a text of one line that cannot be taken for other JSON without its quotes."""
    if not isinstance(value, str) or not value.isprintable() or value != value.strip() or value[:1] in '"[{':
        return False
    try:
        json.loads(value)
    except ValueError:
        return True
    return False


def _is_short_name(name: str) -> bool:
    return 0 < text_width(name) <= MAX_ARGUMENT_NAME_COLUMNS and name.isprintable() and not UNSAFE_CHAR.search(name)


def _shorten_call_id(call_id: str) -> str:
    return truncate_text(call_id, SHORT_CALL_ID_CHARS, "")


def render_paused_runs(runs: Sequence[PausedRun], display: DisplayOptions) -> str:
    """Render one line for each pending call, and one for a run whose calls are all decided.

    On a narrow terminal the ids are left out: the name of a tool selects its calls, too.
    """
    rows = [(run, call) for run in runs for call in (run.calls or (None,))]
    columns = [
        Column(
            "call",
            [call.call_id if call else "-" for _, call in rows],
            style="id",
            drop_order=None if display.width is None else 3,
        ),
        Column("session", [run.session_name for run, _ in rows]),
        Column("agent", [call.agent if call else "-" for _, call in rows], drop_order=2),
        status_column(
            "paused", [Status(format_duration(run.paused_s), PAUSED) for run, _ in rows], display, drop_order=1
        ),
        Column("run", [run.run_id for run, _ in rows], drop_order=0),
        status_column("tool", [_tool_status(call) for _, call in rows], display),
        Column(
            "arguments", [decode_json_escapes(" ".join(call.arguments.split())) if call else "" for _, call in rows]
        ),
    ]
    return render_table(columns, display)


def render_decision_log(decisions: Sequence[ApprovalDecision], display: DisplayOptions) -> str:
    """Render one line for each logged decision; times are UTC."""
    statuses = [
        Status(
            f"{'approved' if one.approved else 'rejected'}{' always' if one.is_sticky else ''}",
            DONE if one.approved else CANCELLED,
        )
        for one in decisions
    ]
    columns = [
        Column("time", [f"{datetime.fromtimestamp(one.decided_at, UTC):%Y-%m-%d %H:%M:%S}" for one in decisions]),
        status_column("decision", statuses, display),
        Column("key", [one.decided_by or "-" for one in decisions], drop_order=3),
        Column("call", [one.call_id for one in decisions], style="id"),
        Column("agent", [one.agent for one in decisions], drop_order=2),
        Column("run", [one.run_id for one in decisions], drop_order=0),
        Column("tool", [one.tool for one in decisions]),
        Column("arguments", [decode_json_escapes(" ".join(one.arguments.split())) for one in decisions]),
    ]
    if any(one.reason for one in decisions):
        columns.append(Column("reason", [one.reason or "" for one in decisions], drop_order=1))
    return render_table(columns, display)


def format_duration(seconds: float) -> str:
    """Format a duration in its largest unit: "3 minutes", "less than a minute"."""
    for size, unit in DURATION_UNITS:
        if seconds >= size:
            number = int(seconds // size)
            return f"{number} {unit}" + ("" if number == 1 else "s")
    return "less than a minute"


def _tool_status(call: PendingApproval | None) -> Status:
    if call is None:
        return Status("decided", DONE)
    return Status(f"{call.tool}, outcome unknown", WARNING) if call.outcome_unknown else Status(call.tool)


HOSTED_ROW: KeyValue = ("runs", "at the provider")
UNKNOWN_OUTCOME_ROW: KeyValue = ("note", "the call was started but has no output: it may or may not have run")


def _identity_rows(call: PendingApproval) -> Iterator[KeyValue]:
    yield "agent", call.agent
    yield "call", call.call_id


def _note_rows(call: PendingApproval) -> Iterator[KeyValue]:
    if call.is_hosted:
        yield HOSTED_ROW
    if call.outcome_unknown:
        yield UNKNOWN_OUTCOME_ROW


def _call_rows(call: PendingApproval) -> Iterator[KeyValue]:
    yield from _identity_rows(call)
    if call.is_hosted:
        yield HOSTED_ROW
    first, *rest = format_arguments(call.arguments).splitlines() or [""]
    yield "arguments", first
    for line in rest:
        yield "", line
    if call.outcome_unknown:
        yield UNKNOWN_OUTCOME_ROW


class AnswerReader(Protocol):
    """Reads the answers of the user; a part of `convo.terminal.prompt.PromptReader`."""

    @property
    def can_pick(self) -> bool: ...

    async def read_line(
        self, prompt: str, default: TypedMessage = EMPTY_MESSAGE, choices: Sequence[Choice] = ()
    ) -> str: ...

    async def withdraw_line(self) -> str | None: ...

    async def print_above(self, print_text: Callable[[], None]) -> bool: ...


PrintMessage: TypeAlias = Callable[[str], None]

LEAVE_CHOICE = "leave"
ABORT_CHOICE = "abort"

CHOICE_SYNONYMS = {
    "y": "approve",
    "yes": "approve",
    "a": "approve",
    "n": "reject",
    "no": "reject",
    "r": "reject",
    "e": "edit",
    "l": LEAVE_CHOICE,
    "q": LEAVE_CHOICE,
    "rerun": "again",
    "o": "output",
}
"""Short forms and synonyms of the choices."""

CHOICE_HELP = {
    "approve": ("y", "approve"),
    "reject": ("n", "reject; a reason may follow"),
    "edit": ("e", "edit, then approve"),
    "always": ("always", "approve all its calls"),
    "never": ("never", "reject all its calls; a reason may follow"),
    "again": ("again", "run the call again"),
    "output": ("o TEXT", "use TEXT as its output"),
    ABORT_CHOICE: ("abort", "end the run"),
    LEAVE_CHOICE: ("l", "leave, decide later"),
}
"""The text to type and the effect of each choice."""

QUESTION = "decision: "

# The first choice is selected: it runs nothing, and of a call that may have run it claims nothing.
CALL_CHOICES = ("reject", "approve", "edit", "always", "never", LEAVE_CHOICE)
HOSTED_CALL_CHOICES = ("reject", "approve", "always", "never", LEAVE_CHOICE)
UNKNOWN_OUTCOME_CHOICES = (LEAVE_CHOICE, "again", "output", "reject", ABORT_CHOICE)


async def ask_for_decisions(
    runner: AgentRunner,
    reader: AnswerReader,
    print_message: PrintMessage,
    print_styled: PrintMessage,
    display: DisplayOptions,
) -> bool:
    """Ask the user for a decision on each pending call, unless another person decides it first.

    print_styled:  prints lines that are already escaped and styled

    Returns whether the run can continue: every call is decided, and the run was not ended.
    Raises Conflict if another process continued the run.
    """
    return await _DecisionDialog(runner, reader, print_message, print_styled, display).run()


class _DecisionDialog:
    """The questions about the pending calls of one pause.

    unprinted:     decisions of others on other calls than the one that is asked about
    has_replaced:  the last question was replaced by a decision of others. The first decision after that has to be
                   entered twice: it may have been typed for the question before
    """

    def __init__(
        self,
        runner: AgentRunner,
        reader: AnswerReader,
        print_message: PrintMessage,
        print_styled: PrintMessage,
        display: DisplayOptions,
    ) -> None:
        self._runner, self._reader, self._display = runner, reader, display
        self._print_message, self._print_styled = print_message, print_styled
        self._unprinted: list[ApprovalDecision] = []
        self._has_replaced = False

    async def run(self) -> bool:
        self._print_decisions(await self._runner.load_decisions())
        while self._runner.pending_calls:
            call = pending_approval_from_call(self._runner.pending_calls[0], self._runner.run.agent)
            margin = "" if self._display.width is None else "\n"
            self._print_styled(f"{margin}{render_pending_call(call, self._display)}")
            has_decision = await self._ask_about(call)
            self._print_decisions(self._unprinted)
            self._unprinted = []
            if not has_decision:
                return False
        return self._runner.can_resume

    async def _ask_about(self, call: PendingApproval) -> bool:
        """Ask until the call is decided. Returns False if the user leaves."""
        choices = (
            UNKNOWN_OUTCOME_CHOICES if call.outcome_unknown else HOSTED_CALL_CHOICES if call.is_hosted else CALL_CHOICES
        )
        offered = choices if self._reader.can_pick else ()
        menu = [Choice(f"{name} " if name == "output" else name, *CHOICE_HELP[name]) for name in offered]
        if self._display.width is not None:
            self._print_styled("" if menu else f"\n{_render_choices(choices, self._display)}\n")
        while True:
            try:
                answer = await self._read_answer(call, menu)
            except (EOFError, Interrupted):
                return False
            if answer is None:
                self._has_replaced = True
                return True
            name, detail = parse_choice(answer)
            if name == LEAVE_CHOICE:
                return False
            if name not in choices:
                self._print_message(f"enter {', '.join(choices[:-1])} or {choices[-1]} (no decision)")
                continue
            # An answer typed for a replaced question decided the next call.
            if self._has_replaced:
                self._has_replaced = False
                self._print_message(f"this question is about {call.tool} ({call.call_id}): enter {name} again")
                continue
            try:
                if name == ABORT_CHOICE:
                    await self._runner.stop()
                else:
                    event = await _make_decision_event(name, call, detail)
                    self._unprinted += await self._runner.apply_decisions(event)
            except AlreadyDecided:
                self._print_decisions(await self._runner.load_decisions())
                self._print_message(f"your answer was not used: {answer}")
            except Conflict:
                raise
            except ConvoError as error:
                hint = error.prompt_hint or error.hint
                self._print_message(f"convo: {error.message}" + (f"\n  try: {hint}" if hint else ""))
                continue
            return True

    async def _read_answer(self, call: PendingApproval, menu: Sequence[Choice]) -> str | None:
        """Read an answer; None if others have decided on the call meanwhile.

        Raises the errors of the reader, and Conflict if another process continued the run.
        """
        # A decision on the page or by `convo approvals` needs no lease, so it may arrive while the user types.
        reading = asyncio.ensure_future(self._reader.read_line(QUESTION, choices=menu))
        try:
            while not await self._is_read_or_decided(reading):
                decisions = await self._runner.load_decisions()
                if any(call.call_id == pending.id for pending in self._runner.pending_calls):
                    await self._print_above(decisions)
                    continue
                typed = await self._withdraw(reading)
                self._print_decisions(decisions)
                if typed and typed.strip():
                    self._print_message(f"your answer was not used: {typed}")
                return None
            return await reading
        finally:
            await _cancel_and_wait(reading)

    async def _is_read_or_decided(self, reading: "asyncio.Future[str]") -> bool:
        """Wait for an answer or for decisions of others. Returns whether there is an answer."""
        runner = self._runner
        assert runner.run_row
        watching = asyncio.ensure_future(
            wait_for_decisions(runner.chat.deps.store, runner.run_row, runner.chat.deps.clock)
        )
        try:
            await asyncio.wait((reading, watching), return_when=asyncio.FIRST_COMPLETED)
            return reading.done()
        finally:
            await _cancel_and_wait(watching)

    async def _withdraw(self, reading: "asyncio.Future[str]") -> str | None:
        """End the question, and return the text typed so far, also if it was entered meanwhile."""
        while not reading.done():
            typed = await self._reader.withdraw_line()
            if typed is not None:
                await reading
                return typed
            await asyncio.wait((reading,), timeout=WITHDRAWAL_INTERVAL_S)
        return None if reading.exception() else reading.result()

    async def _print_above(self, decisions: Sequence[ApprovalDecision]) -> None:
        """Print decisions on other calls above the question, or after the answer where that is not possible."""
        is_printed = await self._reader.print_above(lambda: self._print_decisions(decisions))
        if not is_printed:
            self._unprinted += decisions

    def _print_decisions(self, decisions: Sequence[ApprovalDecision]) -> None:
        for one in decisions:
            reason = f": {one.reason}" if one.reason else ""
            self._print_message(f"{one.tool} ({one.call_id}) {describe_decision(one)}{reason}")


def _render_choices(choices: Sequence[str], display: DisplayOptions) -> str:
    """Render the choices, one a line: the text to type, and its effect."""
    rows = [CHOICE_HELP[name] for name in choices]
    return "\n".join(key_value_lines(rows, display, dict.fromkeys((key for key, _ in rows), "id")))


async def _cancel_and_wait(task: "asyncio.Future[Any]") -> None:
    """Cancel `task` unless it is done, and wait for its end; its error is ignored."""
    task.cancel()
    await asyncio.wait((task,))
    if not task.cancelled():
        task.exception()


WITHDRAWAL_INTERVAL_S = 0.02
"""Seconds after which a prompt that could not be withdrawn yet is tried again: it had not appeared."""


def parse_choice(line: str) -> tuple[str, str]:
    """Split `line` into the choice and the text after it."""
    word, _, detail = line.strip().partition(" ")
    return CHOICE_SYNONYMS.get(word.lower(), word.lower()), detail.strip()


async def _make_decision_event(name: str, call: PendingApproval, detail: str) -> ApprovalDecided | ToolOutputSupplied:
    match name:
        case "output":
            return ToolOutputSupplied(call.call_id, detail)
        case "edit":
            return ApprovalDecided(call.call_id, approve=True, arguments=await _run_editor(call.arguments))
    approve = name in ("approve", "always", "again")
    return ApprovalDecided(call.call_id, approve, None if approve else detail or None, name in ("always", "never"))


async def _run_editor(arguments: str) -> str:
    """Edit `arguments` in a thread: the lease is renewed meanwhile, and Ctrl-C goes to the editor alone."""
    with on_signal(signal.SIGINT, ignore_signal):
        return await asyncio.to_thread(edit_arguments_in_editor, arguments)


def edit_arguments_in_editor(arguments: str) -> str:
    """Let the user edit the arguments in $VISUAL or $EDITOR. Raises InvalidUsage if neither is set or it fails."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "")
    if not command:
        raise InvalidUsage("EDITOR is not set", hint="EDITOR=nano convo ...")
    with temporary_folder("convo-edit-") as folder:
        draft = folder / "arguments.json"
        draft.write_text(format_arguments(arguments) + "\n", encoding="utf-8")
        try:
            exit_code = subprocess.run([*command, str(draft)], check=False).returncode  # noqa: S603  their own editor
        except OSError as error:
            raise InvalidUsage(
                f"{command[0]} cannot be run: {format_os_error(error)}", hint="set EDITOR to the path of an editor"
            ) from error
        if exit_code:
            raise InvalidUsage(
                f"{command[0]} exited with {exit_code}, so nothing was changed", hint="exit the editor without an error"
            )
        return draft.read_text(encoding="utf-8").strip()


def format_arguments(arguments: str) -> str:
    """Format arguments for display and editing: JSON with one member a line, other text unchanged.

    JSON with two members of one name, or with a number that Python rounds, is unchanged, too: the program that gets it
    may read another value than Python.
    """
    try:
        return decode_json_escapes(json.dumps(_parse_without_loss(arguments), indent=2))
    except (ValueError, RecursionError):
        return arguments


def _parse_without_loss(arguments: str) -> Any:
    """Parse JSON. Raises RecursionError, and ValueError also for two members with one name or an inexact number."""
    return json.loads(arguments, object_pairs_hook=_build_unique_members, parse_float=_parse_exact_float)


def _build_unique_members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) != len(pairs):
        # The provider of a hosted tool gets the text of the model, and may read the first member where Python reads the
        # last.
        raise ValueError("two members have the same name")
    return members


def _parse_exact_float(text: str) -> float:
    number = float(text)
    if not isfinite(number) or Decimal(repr(number)) != Decimal(text):
        raise ValueError("the number cannot be represented")
    return number
