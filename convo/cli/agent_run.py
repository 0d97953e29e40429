"""Agent runs of a chat: show events, pause, report how the run ended.

A paused run is in the store. Its state file is a copy for another machine or the Agents SDK; once
written it is rewritten however the run ends, because an older file would run a tool again elsewhere.
"""

import json
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing, suppress
from pathlib import Path
from shlex import quote

from convo.agent_runner.run_state import build_run_state
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import plain_json
from convo.chat.conversation import Chat
from convo.chat.lookup import to_absolute_path
from convo.chat.state_file import load_state_file, save_state_file
from convo.cli.agent_options import AgentSetup
from convo.cli.context import ChatContext, ChatOutput, get_command_prefix
from convo.cli.paused_files import (
    RUN_MARK_KEY,
    base_state_file_path,
    delete_state_files,
    record_named_file,
    state_file_path,
)
from convo.config.paths import make_private_folder
from convo.errors import (
    ConvoError,
    InputFault,
    Interrupted,
    InvalidUsage,
    StateFault,
    StoreFault,
    Unreadable,
    Unsupported,
)
from convo.history.items import Item, Json, StreamEvent, item_text, item_type
from convo.history.records import Link, Strategy
from convo.runs.state import Run, RunLimits, Stage
from convo.runstate.run_items import read_context_values
from convo.runstate.state import RunState
from convo.stores.base import AgentRun
from convo.terminal.agent_chat import RunPrinter
from convo.terminal.answer import consume_interruptibly
from convo.terminal.status_line import combine_links
from convo.terminal.terminal import format_count
from convo.tools.tool import NO_VALUES


def load_base_state(row: AgentRun, folder: Path) -> RunState | None:
    """Load the imported state that a run continued from; None for a run that started here.

    folder:  the folder of the state files

    Raises StateFault for a missing state.
    """
    place = base_state_file_path(folder, row.id)
    if row.state is None:
        return None
    if not place.exists():
        raise StateFault(
            f"{row.id} went on from a state that is not here, and what only that said would be lost",
            hint="export it where it was resumed, as long as it waits",
        )
    return load_state_file(str(place))


def load_saved_context_values(row: AgentRun, folder: Path, state: RunState | None = None) -> Mapping[str, Json]:
    """Return the application's own values of a run, which are in its state file and not in the store.

    state:  the state to continue from, if it is a file; else the one in `folder` is used, if it exists

    Raises InputFault for values that are not a mapping.
    """
    there = state_file_path(folder, row.id)
    state = state or (load_state_file(str(there)) if there.exists() else None)
    return read_context_values(state.document) if state else NO_VALUES


class PausedStateWriter:
    """Writes and deletes the state files of one chat's runs."""

    def __init__(
        self,
        folder: Path,
        place: str | None,
        values: Mapping[str, Json],
        note: Callable[[str], None],
        *,
        resumed: bool = False,
    ) -> None:
        """Write to `named_file`; if it is None, to one file for each run in `folder`.

        is_resumed:  the run was paused before, so `named_file` is written however the run ends
        """
        self._folder, self._place, self._values, self._note = folder, place, values, note
        self._resumed, self._written = resumed, set[str]()

    def base(self, run: str, state: RunState) -> None:
        """Save the state that a run continues from: only this file has the members that convo does not model."""
        save_state_file(state, str(base_state_file_path(make_private_folder(self._folder), run)))

    async def keep(self, chat: Chat, running: AgentRunner) -> str | None:
        """Write the state of a paused run or of a run whose file is outdated; return the path of the file.

        The files of an ended run are deleted from convo's own folder.

        Raises StoreFault or Unreadable for a file that cannot be written; the run remains stored.
        """
        row = running.kept
        if row is None:
            with suppress(OSError):
                delete_state_files(self._folder, "")
            return None
        named = self._place is not None and (self._resumed or row.id in self._written)
        over = not running.unfinished
        if row.status == "paused" or (row.status != "stopped" and (named or (not over and self._is_there(row.id)))):
            written = await self._state(chat, running, row, named=named)
            if not over:
                return written
        else:
            written = None
        if over:
            with suppress(OSError):
                delete_state_files(self._folder, row.id)
        return written

    def _is_there(self, run: str) -> bool:
        return state_file_path(self._folder, run).exists()

    async def _state(self, chat: Chat, running: AgentRunner, row: AgentRun, *, named: bool) -> str | None:
        """Write the current state of the run; None if no state can be built.

        is_file_named:  the user named the file, and it may contain an older state
        """
        try:
            run = await running.at_rest()
            state = await build_run_state(
                chat.edges.store,
                chat.session,
                row,
                run,
                self._values,
                load_base_state(row, self._folder),
                own=True,
                unknown=named,
            )
        except (InputFault, StateFault, Unsupported, InvalidUsage) as wrong:
            self._note(f"no state file was written: {wrong.message}")
            return None
        try:
            place = self._write(RunState({**state.document, RUN_MARK_KEY: {"run": row.id}}, state.version), row.id)
        except (StoreFault, Unreadable) as wrong:
            waits = "the run is still paused" if row.status == "paused" else "the run is saved"
            wrong.args = (f"{wrong.message}; {waits}",)
            wrong.hint = "convo approvals"
            raise
        for call in run.at(Stage.UNKNOWN):
            self._note(
                f"{call.id} was started and its outcome is unknown; the state records this, and resume asks for it"
            )
        shared = _list_shared_agent_names(running.run)
        if shared:
            names = ", ".join(map(repr, shared))
            self._note(f"several agents are called {names}: convo resumes this state, the Agents SDK cannot read it")
        return place

    def _write(self, state: RunState, run: str) -> str:
        if self._place is None:
            place = str(state_file_path(make_private_folder(self._folder), run))
        else:
            place = to_absolute_path(self._place)
            record_named_file(self._folder, run, place)
        save_state_file(state, place)
        self._written.add(run)
        return to_absolute_path(place)


def _list_shared_agent_names(run: Run) -> tuple[str, ...]:
    """Return the names that several agents share, in a run or in a run inside its calls."""
    inner = (name for call in run.batch if call.inner for name in _list_shared_agent_names(call.inner.run))
    return tuple(dict.fromkeys((*run.graph.duplicates, *inner)))


PAUSED_EXIT_CODE = 3


class RunPresenter:
    """Shows the runs of one chat to a user or a program, and collects their model calls.

    last_links:  the model calls of the events shown last, oldest first
    all_links:   all model calls that were shown
    state_file:  the path of the paused run's state
    """

    def __init__(
        self,
        chat: Chat,
        running: AgentRunner,
        cast: AgentSetup,
        pauses: PausedStateWriter,
        desk: ChatContext,
        out: ChatOutput,
    ) -> None:
        self.chat, self.running = chat, running
        self.links: list[Link] = []
        self.asked: list[Link] = []
        self.state_file: str | None = None
        self._kept: AgentRun | None = None
        self._cast, self._pauses, self._desk, self._out = cast, pauses, desk, out
        self._teller = RunPrinter(sys.stdout, sys.stderr, live=out.live, sheet=desk.sheet(), folded=desk.folded())
        chat.noted = out.note

    @classmethod
    async def open(
        cls, chat: Chat, cast: AgentSetup, desk: ChatContext, out: ChatOutput, place: str | None
    ) -> "RunPresenter":
        """Open the presenter with the chat's open run, if there is one, without calling the model.

        Raises the errors of `AgentRunner.open`.
        """
        cast = desk.remembering(chat, cast)
        limits = None if cast.conduct.limits == RunLimits() else cast.conduct.limits
        running = await AgentRunner.open(chat, cast.graph, cast.conduct, limits=limits)
        pauses = PausedStateWriter(desk.paused, place, cast.conduct.values, out.note)
        return cls(chat, running, cast, pauses, desk, out)

    async def opened(self, chat: Chat) -> None:
        """Open the runs of `chat` if it replaced the current conversation."""
        if chat is not self.chat:
            self._cast = self._desk.remembering(chat, self._cast)
            self.running = await AgentRunner.open(chat, self._cast.graph, self._cast.conduct)
            self.chat = chat

    async def all_of(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        """Show the events of a run until it ends or pauses.

        Raises the errors of the run, and Interrupted.
        """
        self.links = []
        try:
            async with aclosing(self._counted(events)) as shown:
                await consume_interruptibly(shown, self._take)
        finally:
            self._teller.end()
            await self._keep()
            if self.links and not self._out.as_json:
                self._out.tell(self.receipt())

    async def _keep(self) -> None:
        self.state_file = await self._pauses.keep(self.chat, self.running)
        self._kept = self.running.kept

    async def _counted(self, events: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent, None]:
        async with aclosing(events) as run:
            async for event in run:
                turn = self.chat.turn
                if turn and turn.link and turn.link not in self.links[-1:]:
                    self.links.append(turn.link)
                    self.asked.append(turn.link)
                yield event

    def _take(self, event: StreamEvent) -> None:
        if self._out.as_jsonl:
            sys.stdout.write(json.dumps(plain_json(event)) + "\n")
            sys.stdout.flush()
        elif not self._out.as_json:
            self._teller.take(event)

    async def left(self) -> int:
        """Return the exit code for the run's current status; for a paused run print how to resume it."""
        if self._kept != self.running.kept:
            await self._keep()
        if not self.running.pending:
            return 1 if self.asked and self.asked[-1].status == "incomplete" else 0
        if self.state_file:
            self._out.note(f"paused; the state is in {self.state_file}")
        self._out.note(f"to decide and go on: {self.way_on}")
        return PAUSED_EXIT_CODE

    @property
    def way_on(self) -> str:
        """The command that resumes the run. The user chooses the decision on a call with an unknown outcome."""
        session = quote(self.chat.session.name or self.chat.session.id)
        return f"{get_command_prefix()} resume {session} {self._cast.flags(self.chat.asking.model)}{self._verdict()}"

    def _verdict(self) -> str:
        waits = self.running.pending
        unknown = [call.id for call in waits if call.stage is Stage.UNKNOWN]
        if unknown:
            one = quote(unknown[0])
            return f" with --rerun {one}, --output {one}=TEXT, or --abort"
        return f" --approve {quote(waits[0].id)}" if len(waits) == 1 else " --approve all" if waits else ""

    def say_outcome(self, before: int) -> None:
        sys.stdout.write(json.dumps(self.outcome(before)) + "\n")

    def receipt(self) -> str:
        """Format the receipt of all model calls since the last message."""
        calls = f"{format_count(len(self.links), 'call')} · " if len(self.links) > 1 else ""
        return calls + self._desk.receipt_of(self.chat, combine_links(self.links), self.links)

    def outcome(self, before: int) -> dict[str, Json]:
        """Return the object of `--json`; `start_count` is the number of items before the run."""
        session, link = self.chat.session, combine_links(self.asked) if self.asked else None
        output = list(self.chat.held.path.items[before:])
        return {
            "response_id": None if link is None or link.id.startswith("try_") else link.id,
            "session": session.name,
            "strategy": str(session.strategy),
            "conversation_id": session.handle if session.strategy is Strategy.CONVERSATION else None,
            "model": self.chat.asking.model,
            "agent": self.running.run.agent,
            "run": self.running.kept.id if self.running.kept else None,
            "output_text": self._words(output),
            "final_output": plain_json(self.running.output),
            "output": output,
            "usage": link.usage if link else None,
            "status": self.status,
            "pending": pending_calls_to_json(self.running),
            "state_file": self.state_file,
        }

    @property
    def status(self) -> str:
        """`completed`, `in_progress`, `cancelled`, `failed` or `paused`: a response's status where it has one."""
        row = self.running.kept
        words = {"done": "completed", "running": "in_progress", "stopped": "cancelled"}
        return words.get(row.status, row.status) if row else "in_progress"

    def _words(self, output: list[Item]) -> str:
        if isinstance(self.running.output, str):
            return self.running.output
        last = [item_text(item) for item in output if item_type(item) == "message" and item.get("role") == "assistant"]
        return last[-1] if last else ""


def pending_calls_to_json(running: AgentRunner) -> list[dict[str, Json]]:
    """Return the pending calls, with the keys of `convo inspect STATE --json`."""
    from convo.runs.approvals import pending_approval_from_call

    waits = [pending_approval_from_call(call, agent) for agent, call in running.run.waiting] if running.pending else []
    return [
        {
            "call_id": one.call_id,
            "tool_name": one.tool,
            "arguments": one.arguments,
            "agent": one.agent,
            "unknown": one.unknown,
        }
        for one in waits
    ]


async def run_single_message(show: RunPresenter, said: Item, out: ChatOutput) -> int:
    """Send one message in a one-shot chat and return the exit code.

    Raises the errors of the run.
    """
    running, chat = show.running, show.chat
    if running.unfinished and running.run.batch:
        raise make_open_run_error(show)
    before = len(chat.held.path) + 1
    await chat.edges.endpoint.warm(chat.asking.wire_model)  # a missing model fails before anything is stored
    return await present_run(show, out, before, lambda: running.say([said]))


async def present_run(
    show: RunPresenter, out: ChatOutput, before: int, begin: Callable[[], AsyncGenerator[StreamEvent, None]]
) -> int:
    """Show the run that `open_events` starts, print how it ended and return the exit code.

    Raises the errors of the run.
    """
    try:
        await show.all_of(begin())
    except Interrupted:
        out.note(f"stopped; to go on: {show.way_on}")
        raise
    except ConvoError as failure:
        if show.running.unfinished and "/retry" in failure.hint:
            failure.hint = show.way_on
        raise
    if out.as_json:
        show.say_outcome(before)
        return PAUSED_EXIT_CODE if show.running.pending else 0
    return await show.left()


def make_open_run_error(show: RunPresenter) -> StateFault:
    """Build the error for a new message while a run is paused, or was interrupted during its calls."""
    waits = ", ".join(call.id for call in show.running.pending)
    stands = f"is paused, and waits for {waits}" if waits else "was cut off, and its calls have no output yet"
    return StateFault(f"the run of {show.chat.session.name!r} {stands}", hint=show.way_on)
