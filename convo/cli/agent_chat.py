"""Runs of agents in an interactive chat.

A message starts a run. When the run pauses, the user is asked for a decision on each pending call, and the run
resumes after the last decision. Commands in `HEAD_MOVING_COMMANDS` are rejected during an open run.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING

from convo.agent_runner.runner import AgentRunner
from convo.errors import InvalidUsage, StateFault
from convo.history.items import Item, StreamEvent
from convo.terminal.approval_prompt import ask_for_decisions
from convo.terminal.terminal import DisplayOptions

if TYPE_CHECKING:
    from convo.cli.agent_run import RunPresenter
    from convo.cli.repl import Repl


HEAD_MOVING_COMMANDS = ("undo", "redo", "rewind", "fork", "owner", "model", "new", "clear", "resume")
"""Commands that would move the head, or change the owner, the model or the conversation, during an open run."""

COMMANDS_WITHOUT_AGENTS = {
    "edit": "undo the last turn with /undo and send a new message",
    "system": "each agent has its own instructions",
}
"""Commands that are not available with agents, and the hint for each; /system is, for an agent without instructions."""

OPEN_RUN_HINT = "/retry continues the run, /stop ends it"


class AgentChat:
    """The agent runs of an interactive chat."""

    def __init__(self, repl: "Repl", presenter: "RunPresenter", display: DisplayOptions) -> None:
        self._repl, self.presenter, self._display = repl, presenter, display

    @property
    def runner(self) -> AgentRunner:
        return self.presenter.runner

    @property
    def status(self) -> str:
        """The phase, the agent and the undecided calls of the newest run, as text."""
        run = self.runner.run
        pending = ", ".join(call.id for call in self.runner.pending_calls)
        return f"{run.phase}, agent {run.agent}" + (f"; needs approval: {pending}" if pending else "")

    def list_tools(self) -> list[tuple[str, str]]:
        """Return the name and the description of each tool of the active agent."""
        return [(tool.name, tool.description) for tool in self.runner.run.graph[self.runner.run.agent].functions]

    async def resume_open_run(self) -> None:
        """Ask for the decisions of a paused run; print a note about an interrupted one.

        Raises the errors of the run.
        """
        if self.runner.pending_calls:
            self._repl.print_message("the run of this conversation is paused")
            await self._ask_for_decisions()
        elif self.runner.can_resume:
            self._repl.print_message("the run of this conversation was interrupted; /retry continues it")

    async def send(self, items: Sequence[Item]) -> None:
        """Start a run; while one is paused, send nothing and ask for its decisions instead.

        Raises the errors of the run.
        """
        await self.presenter.switch_chat(self._repl.chat)
        if self.runner.pending_calls:
            self._repl.print_message("nothing was sent: the run is paused")
            await self._ask_for_decisions()
            return
        await self._show_run(self.runner.start(items))

    async def retry(self) -> None:
        """Continue a run that was stopped or that failed.

        Raises InvalidUsage if no run is open, and the errors of the run.
        """
        await self.presenter.switch_chat(self._repl.chat)
        if not self.runner.can_resume:
            raise InvalidUsage("no run is open", hint="send a message")
        if self.runner.pending_calls:
            await self._ask_for_decisions()
        else:
            await self._show_run(self.runner.resume())

    async def stop(self) -> None:
        """End the open run; it cannot be continued. Raises InvalidUsage if no run is open."""
        if not self.runner.can_resume:
            raise InvalidUsage("no run is open", hint="/status shows the state of the conversation")
        await self.runner.stop()
        self._repl.print_message("the run was stopped; the conversation continues from here")

    def check_command(self, command: str) -> None:
        """Raise InvalidUsage for a command without meaning for agents, StateFault for one barred by the open run."""
        uses_chat_instructions = self.runner.run.graph[self.runner.run.agent].instructions is None
        if command in COMMANDS_WITHOUT_AGENTS and not (command == "system" and uses_chat_instructions):
            raise InvalidUsage(f"/{command} is not available with agents", hint=COMMANDS_WITHOUT_AGENTS[command])
        if command in HEAD_MOVING_COMMANDS and self.runner.can_resume:
            raise StateFault(f"/{command} is not available while a run is open", hint=OPEN_RUN_HINT)
        if command == "next" and self.runner.pending_calls:
            raise StateFault("the next request depends on the decisions about the pending calls", hint=OPEN_RUN_HINT)

    async def _show_run(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        self._repl.begin_answer()
        await self.presenter.show_events(events)
        await self._ask_for_decisions()

    async def _ask_for_decisions(self) -> None:
        """Ask for decisions and continue the run until it no longer pauses or the user leaves."""
        while self.runner.pending_calls:
            if not await self._ask_user():
                await self.presenter.report_exit()
                return
            self._repl.reader.open_queue()
            await self.presenter.show_events(self.runner.resume())

    async def _ask_user(self) -> bool:
        repl = self._repl
        return await ask_for_decisions(self.runner, repl, repl.print_message, repl.print_styled, self._display)
