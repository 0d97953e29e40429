"""Agent runs of a chat: show events, pause, report how the run ended.

A paused run is in the store. Its state file is a copy for another machine or the Agents SDK; once
written it is rewritten however the run ends, because an older file would run a tool again elsewhere.
"""

import os
import sys
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from pathlib import Path
from shlex import quote
from typing import Annotated, NamedTuple

from convo.agent_runner.config import RunConfig
from convo.agent_runner.prepare import RunInput
from convo.agent_runner.run_state import build_run_state
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import plain_json
from convo.chat.conversation import Chat
from convo.chat.lookup import to_absolute_path
from convo.chat.state_file import load_state_file, save_state_file
from convo.chat.view_loader import AGENTS_SOURCE_KEY
from convo.cli.agent_options import CONTEXT_TYPE_KEY, AgentSetup, restores_context
from convo.cli.context import ChatContext, ChatOutput, get_command_prefix
from convo.cli.output import PAUSED_EXIT_CODE, print_event, print_json, print_notice
from convo.cli.paused_files import (
    RUN_MARK_KEY,
    base_state_file_path,
    delete_state_files,
    list_named_files,
    record_named_file,
    state_file_path,
)
from convo.config.paths import make_private_folder
from convo.errors import (
    ConvoError,
    InputFault,
    Interrupted,
    InvalidUsage,
    ModelFault,
    StateFault,
    StoreFault,
    Unreadable,
    Unsupported,
)
from convo.history.items import Item, Json, StreamEvent, item_text, item_type
from convo.history.records import IGNORED_PARAMETER, AgentRun, Link, Strategy
from convo.report import Wire
from convo.runs.state import Run, RunLimits, Stage
from convo.runstate.run_items import (
    CONTEXT_HINT,
    is_context_restorable,
    read_context_description,
    read_context_values,
)
from convo.runstate.run_state import RunState
from convo.terminal.answer import consume_interruptibly
from convo.terminal.run_printer import RunPrinter
from convo.terminal.status_line import combine_links
from convo.tools.tool import NO_VALUES


def load_base_state(row: AgentRun, folder: Path) -> RunState | None:
    """Load the imported state that a run continued from; None for a run that started here.

    folder:  the folder of the state files

    Raises StateFault for a missing state.
    """
    path = base_state_file_path(folder, row.id)
    if row.source_state_hash is None:
        return None
    if not path.exists():
        raise StateFault(
            f"the state that {row.id} was imported from is missing here; fields that only it contains would be lost",
            hint="export the run on the machine that imported it, while it is paused",
        )
    return load_state_file(str(path))


def load_saved_state(row: AgentRun, folder: Path) -> RunState | None:
    """Load the newest state file of a run, in convo's own `folder` or named by the user; None without one."""
    paths = [*list_named_files(folder, [row.id]), str(state_file_path(folder, row.id))]
    paths = [path for path in paths if os.path.exists(path)]
    return load_state_file(max(paths, key=os.path.getmtime)) if paths else None


def with_run_context(
    setup: AgentSetup, option: str | None, state: RunState | None, row: AgentRun | None = None
) -> AgentSetup:
    """Return `setup` with the application's context of a run.

    The values of its state take precedence over the stored option, which can restore an object from them, or replaces
    values that cannot be restored.

    option:  the --context of this command
    row:     the run, if it is stored

    Raises InputFault for a context that was not saved, and the errors of `AgentSetup.with_context`.
    """
    described = read_context_description(state.document) if state else None
    reference = setup.source.context
    uses_stored = reference and state and (restores_context(reference) or not is_context_restorable(state.document))
    if option is not None or uses_stored:
        if described and reference and not restores_context(reference):
            print_notice(f"--context {reference} replaces the context values that the run had")
        return setup.with_context(reference, described if reference else NO_VALUES)
    record = row.document.get(AGENTS_SOURCE_KEY) if row else None
    if state is None and row and record and CONTEXT_TYPE_KEY in record:
        if reference and row.status != "paused":  # nothing was saved before the first pause
            return setup.with_context(reference, None)
        raise InputFault(f"the context of this run, a {record[CONTEXT_TYPE_KEY]}, was not saved", hint=CONTEXT_HINT)
    return setup.with_context(None, read_context_values(state.document) if state else NO_VALUES)


class PausedStateWriter:
    """Writes and deletes the state files of one chat's runs."""

    def __init__(
        self,
        folder: Path,
        named_file: str | None,
        config: RunConfig,
        notify: Callable[[str], None],
        *,
        is_resumed: bool = False,
    ) -> None:
        """Write to `named_file`; if it is None, to one file for each run in `folder`.

        is_resumed:  the run was paused before, so `named_file` is written however the run ends
        """
        self._folder, self._named_file, self._config, self._notify = folder, named_file, config, notify
        self._is_resumed, self._written_run_ids = is_resumed, set[str]()

    def save_base_state(self, run_id: str, state: RunState) -> None:
        """Save the state that a run continues from: only this file has the members that convo does not model."""
        save_state_file(state, str(base_state_file_path(make_private_folder(self._folder), run_id)))

    async def save_state(self, chat: Chat, runner: AgentRunner) -> str | None:
        """Write the state of a paused run or of a run whose file is outdated; return the path of the file.

        The files of an ended run are deleted from convo's own folder.

        Raises StoreFault or Unreadable for a file that cannot be written; the run remains stored.
        """
        row = runner.run_row
        if row is None:
            return None
        is_file_named = self._named_file is not None and (self._is_resumed or row.id in self._written_run_ids)
        has_ended = not runner.can_resume
        if row.status == "paused" or (
            row.status != "stopped"
            and (is_file_named or (not has_ended and state_file_path(self._folder, row.id).exists()))
        ):
            path = await self._build_and_write_state(chat, runner, row, is_file_named=is_file_named)
            if not has_ended:
                return path
        else:
            path = None
        if has_ended:
            with suppress(OSError):
                delete_state_files(self._folder, row.id)
        return path

    async def _build_and_write_state(
        self, chat: Chat, runner: AgentRunner, row: AgentRun, *, is_file_named: bool
    ) -> str | None:
        """Write the current state of the run; None if no state can be built.

        is_file_named:  the user named the file, and it may contain an older state
        """
        try:
            run = await runner.to_storable_run()
            state = await build_run_state(
                chat.deps.store,
                chat.session,
                row,
                run,
                self._config.values,
                load_base_state(row, self._folder),
                allow_duplicate_names=True,
                unknown_as_started=is_file_named,
                context_serializer=self._config.context_serializer,
            )
        except (InputFault, StateFault, Unsupported, InvalidUsage) as error:
            self._notify(f"no state file was written: {error.message}")
            return None
        try:
            path = self._write_state_file(
                RunState({**state.document, RUN_MARK_KEY: {"run": row.id}}, state.version), row.id
            )
        except (StoreFault, Unreadable) as error:
            status_text = "the run is still paused" if row.status == "paused" else "the run is saved"
            error.args = (f"{error.message}; {status_text}",)
            error.replace_hint("convo approvals")
            raise
        for call in run.calls_at(Stage.OUTCOME_UNKNOWN):
            self._notify(
                f"{call.id} was started and its outcome is unknown; the state file records this, and convo resume asks"
                " for a decision"
            )
        shared_names = _list_shared_agent_names(runner.run)
        if shared_names:
            names = ", ".join(map(repr, shared_names))
            self._notify(f"several agents are named {names}: convo can resume this state, the Agents SDK cannot")
        return path

    def _write_state_file(self, state: RunState, run_id: str) -> str:
        if self._named_file is None:
            path = str(state_file_path(make_private_folder(self._folder), run_id))
        else:
            path = to_absolute_path(self._named_file)
            record_named_file(self._folder, run_id, path)
        save_state_file(state, path)
        self._written_run_ids.add(run_id)
        return to_absolute_path(path)


def _list_shared_agent_names(run: Run) -> tuple[str, ...]:
    """Return the names that several agents share, in a run or in a run inside its calls."""
    inner = (name for call in run.calls if call.nested_run for name in _list_shared_agent_names(call.nested_run.run))
    return tuple(dict.fromkeys((*run.graph.duplicates, *inner)))


class RunCallReport(NamedTuple):
    """A call that needs a decision.

    arguments:   as written by the model
    agent:       the agent that made the call
    is_unknown:  whether the call was started and its outcome is unknown
    """

    call_id: str
    tool_name: str
    arguments: str
    agent: str
    is_unknown: Annotated[bool, Wire("unknown")]


class RunReport(NamedTuple):
    """An agent run.

    response_id:      id of the response; null if there is none
    session:          name of the session in the local store
    strategy:         the owner of the state
    conversation_id:  with --conversation: id of the conversation
    model:            provider/model
    agent:            the last agent
    run:              id of the run in the local store
    output_text:      the output as plain text
    final_output:     the run's final output, of the agent's output type; null before the end
    output:           the output items, of the Responses API, unchanged
    usage:            tokens as reported by the endpoint; null if it reported none
    status:           completed, paused, failed, cancelled or in_progress
    state_file:       file with the state of the paused run
    """

    response_id: str | None
    session: str
    strategy: Strategy
    conversation_id: str | None
    model: str
    agent: str
    run: str | None
    output_text: str
    final_output: Json
    output: Sequence[Item]
    usage: Mapping[str, Json] | None
    status: str
    pending: Sequence[RunCallReport]
    state_file: str | None


class RunPresenter:
    """Shows the runs of one chat to a user or a program, and collects their model calls.

    last_links:  the model calls of the events shown last, oldest first
    all_links:   all model calls that were shown
    state_file:  the path of the paused run's state
    """

    def __init__(
        self,
        chat: Chat,
        runner: AgentRunner,
        setup: AgentSetup,
        state_writer: PausedStateWriter,
        context: ChatContext,
        output: ChatOutput,
    ) -> None:
        self.chat, self.runner = chat, runner
        self.last_links: list[Link] = []
        self.all_links: list[Link] = []
        self.state_file: str | None = None
        self._saved_row: AgentRun | None = None
        self._noted_settings: set[str] = set()
        self._setup, self._state_writer, self._context, self._output = setup, state_writer, context, output
        self._progress = RunPrinter(
            sys.stdout,
            sys.stderr,
            is_streamed=output.is_streamed,
            renderer=context.get_answer_renderer(),
            format_reasoning=context.get_reasoning_formatter(),
            waiting_line=output.waiting_line,
        )
        chat.notify = output.note
        self.warn_of_instructions()
        if changes := runner.list_changed_tools():
            output.note(f"tools of MCP servers differ from those in the request of this run: {', '.join(changes)}")

    def warn_of_instructions(self) -> None:
        """Say once what the instructions of the agents cost with the chat's model."""
        if any(agent.instructions is not None for agent in self._setup.graph.agents.values()):
            self._context.warn_of_agent_instructions(self.chat.options)

    @classmethod
    async def open(
        cls, chat: Chat, setup: AgentSetup, context: ChatContext, output: ChatOutput, state_file: str | None
    ) -> "RunPresenter":
        """Open the presenter with the chat's open run, if there is one, without calling the model.

        Raises the errors of `AgentRunner.open`.
        """
        setup = context.with_agents_record(chat, setup)
        # Without --max-turns an open run keeps the limits that it began with.
        limits = None if setup.run_config.limits == RunLimits() else setup.run_config.limits
        runner = await AgentRunner.open(chat, setup.graph, setup.run_config, limits=limits)
        state_writer = PausedStateWriter(context.paused_runs_folder, state_file, setup.run_config, output.note)
        return cls(chat, runner, setup, state_writer, context, output)

    def omit_pending_calls(self) -> None:
        """On a terminal, print no line for a pending call: the prompt for its decision shows it."""
        self._progress.prints_pending_calls = not sys.stderr.isatty()

    async def switch_chat(self, chat: Chat) -> None:
        """Open the runs of `chat` if it replaced the current conversation."""
        if chat is not self.chat:
            self._setup = self._context.with_agents_record(chat, self._setup)
            self.runner = await AgentRunner.open(chat, self._setup.graph, self._setup.run_config)
            self.chat = chat

    async def show_events(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        """Show the events of a run until it ends or pauses.

        Raises the errors of the run, and Interrupted.
        """
        self.last_links = []
        self._progress.has_output = False
        try:
            async with (
                self._output.waiting_line.show("waiting", is_allowed=lambda: self._progress.is_at_line_start),
                aclosing(self._collect_links(events)) as collected,
            ):
                await consume_interruptibly(collected, self._show_event)
        finally:
            self._progress.finish()
            await self._save_state()
            if self.last_links and not self._output.as_json:
                self._output.print_receipt(self._format_receipt, has_margin=self._progress.has_output)
                self._context.print_lost_input(self.last_links)
            self._note_ignored_settings()

    def _note_ignored_settings(self) -> None:
        """Say once which settings of the agents were not sent, because the model has no such field."""
        agents = self._setup.graph.agents.values()
        settings = {name for agent in agents for name in agent.settings_for(self.chat.options.wire_model)}
        ignored = {name for link in self.last_links for name in link.parameters.get(IGNORED_PARAMETER, ())}
        if names := sorted(settings & ignored - self._noted_settings):
            self._noted_settings.update(names)
            self._output.note(f"settings of the agents that were not sent to the model: {', '.join(names)}")

    async def _save_state(self) -> None:
        self.state_file = await self._state_writer.save_state(self.chat, self.runner)
        self._saved_row = self.runner.run_row

    async def _collect_links(self, events: AsyncGenerator[StreamEvent, None]) -> AsyncGenerator[StreamEvent, None]:
        """Collect the model calls of `events`; until the first of them, the chat still has the turn before."""
        earlier_turn = self.chat.turn
        shown = [earlier_turn.link] if earlier_turn else []
        async with aclosing(events) as stream:
            async for event in stream:
                turn = self.chat.turn
                if turn and turn.link and turn.link not in (*shown, *self.last_links[-1:]):
                    self.last_links.append(turn.link)
                    self.all_links.append(turn.link)
                yield event

    def _show_event(self, event: StreamEvent) -> None:
        if self._output.as_jsonl:
            print_event(plain_json(event))
        elif not self._output.as_json:
            self._progress.print_event(event)

    async def report_exit(self) -> int:
        """Return the exit code for the run's current status; for a paused run print how to resume it."""
        if self._saved_row != self.runner.run_row:
            await self._save_state()
        if self.runner.pending_calls:
            if self.state_file:
                self._output.note(f"paused; state saved to {self.state_file}")
            self._output.note(f"to decide and resume: {self.resume_command}")
        return self.exit_code

    @property
    def exit_code(self) -> int:
        """The exit code for the run's current status: PAUSED_EXIT_CODE, 1 if its last response is incomplete, or 0."""
        if self.runner.pending_calls:
            return PAUSED_EXIT_CODE
        return 1 if self.all_links and self.all_links[-1].status == "incomplete" else 0

    async def load_model(self) -> None:
        """Prepare the endpoint of the chat, as `ChatContext.load_model`."""
        await self._context.load_model(self.chat)

    @property
    def resume_command(self) -> str:
        """The command that resumes the run. The user chooses the decision on a call with an unknown outcome."""
        session = quote(self.chat.session.name or self.chat.session.id)
        options = self._setup.format_options(self.chat.options.model)
        return f"{get_command_prefix()} resume {session} {options}{self._format_decision_options()}"

    @property
    def command_for_another_model(self) -> str:
        """The command that resumes the run with another model."""
        session = quote(self.chat.session.name or self.chat.session.id)
        return f"{get_command_prefix()} resume {session} {self._setup.source.options} -m provider/model"

    def _format_decision_options(self) -> str:
        pending = self.runner.pending_calls
        unknown_ids = [call.id for call in pending if call.stage is Stage.OUTCOME_UNKNOWN]
        if unknown_ids:
            call_id = quote(unknown_ids[0])
            return f" with --rerun {call_id}, --output {call_id}=TEXT, or --abort"
        return f" --approve {quote(pending[0].id)}" if len(pending) == 1 else " --approve all" if pending else ""

    def print_outcome(self, start_count: int) -> None:
        print_json(self._build_report(start_count))

    def _format_receipt(self, columns: int | None) -> str:
        """Format the receipt of all model calls since the last message."""
        total = combine_links(self.last_links)
        agent = f"agent {self.runner.run.agent}" if len(self._setup.graph.agents) > 1 else ""
        return self._context.format_receipt(self.chat, total, self.last_links, columns=columns, agent=agent)

    def _build_report(self, start_count: int) -> RunReport:
        """Build what `--json` prints; `start_count` is the number of items before the run."""
        session, link = self.chat.session, combine_links(self.all_links) if self.all_links else None
        output = list(self.chat.state.path.items[start_count:])
        return RunReport(
            None if link is None or link.id.startswith("try_") else link.id,
            session.name,
            session.strategy,
            session.conversation_id,
            self.chat.options.model,
            self.runner.run.agent,
            self.runner.run_row.id if self.runner.run_row else None,
            self._get_output_text(output),
            plain_json(self.runner.output),
            output,
            link.usage if link else None,
            self.status,
            _report_pending_calls(self.runner),
            self.state_file,
        )

    @property
    def status(self) -> str:
        """`completed`, `in_progress`, `cancelled`, `failed` or `paused`: a response's status where it has one."""
        row = self.runner.run_row
        response_statuses = {"done": "completed", "running": "in_progress", "stopped": "cancelled"}
        return response_statuses.get(row.status, row.status) if row else "in_progress"

    def _get_output_text(self, output: list[Item]) -> str:
        if isinstance(self.runner.output, str):
            return self.runner.output
        texts = [item_text(item) for item in output if item_type(item) == "message" and item.get("role") == "assistant"]
        return texts[-1] if texts else ""


def _report_pending_calls(runner: AgentRunner) -> list[RunCallReport]:
    from convo.runs.stored_approvals import pending_approval_from_call

    pending = (
        [pending_approval_from_call(call, agent) for agent, call in runner.run.pending_with_agents]
        if runner.pending_calls
        else []
    )
    return [RunCallReport(one.call_id, one.tool, one.arguments, one.agent, one.outcome_unknown) for one in pending]


async def run_single_message(presenter: RunPresenter, items: Sequence[Item], output: ChatOutput) -> int:
    """Send one message, or other input, in a one-shot chat and return the exit code.

    Raises the errors of the run.
    """
    runner, chat = presenter.runner, presenter.chat
    if runner.can_resume and runner.run.calls:
        raise make_open_run_error(presenter)
    start_count = len(runner.append_input(chat.state, RunInput(tuple(items))).path)
    async with output.waiting_line.show("starting"):
        await presenter.load_model()  # a missing model fails before anything is stored
    return await present_run(presenter, output, start_count, lambda: runner.start(items))


async def present_run(
    presenter: RunPresenter,
    output: ChatOutput,
    start_count: int,
    open_events: Callable[[], AsyncGenerator[StreamEvent, None]],
) -> int:
    """Show the run that `open_events` starts, print how it ended and return the exit code.

    Raises the errors of the run.
    """
    try:
        await presenter.show_events(open_events())
    except Interrupted:
        output.note(f"stopped; to resume: {presenter.resume_command}")
        raise
    except ConvoError as failure:
        if presenter.runner.can_resume and "/retry" in failure.prompt_hint:
            failure.replace_hint(presenter.resume_command)  # instead of /retry
        elif presenter.runner.can_resume and failure.hint == ModelFault.hint:
            failure.replace_hint(f"choose another model: {presenter.command_for_another_model}")
        raise
    if output.as_json:
        presenter.print_outcome(start_count)
        return presenter.exit_code
    return await presenter.report_exit()


def make_open_run_error(presenter: RunPresenter) -> StateFault:
    """Build the error for a new message while a run is paused, or was interrupted during its calls."""
    call_ids = ", ".join(call.id for call in presenter.runner.pending_calls)
    condition = (
        f"is paused; pending calls: {call_ids}" if call_ids else "was interrupted, and its calls have no output yet"
    )
    return StateFault(f"the run of {presenter.chat.session.name!r} {condition}", hint=presenter.resume_command)
