"""Interactive chat with agents.

A message starts a run. When the run pauses, the user is asked for a decision on each pending call, and the run
resumes after the last decision. Commands in `HEAD_MOVING_COMMANDS` are rejected during an open run.
`RunPrinter` prints one line on stderr for each tool call, handoff and guardrail.
"""

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TextIO

from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import plain_json
from convo.errors import InvalidUsage, StateFault
from convo.history.items import Item, Json, StreamEvent, decode_json_escapes, item_text, item_type
from convo.terminal.answer import UNANNOUNCED_TYPES, AnswerPrinter, AnswerRenderer, FormatReasoning
from convo.terminal.approval_prompt import ask_for_decisions
from convo.terminal.terminal import DisplayOptions, detect_display_without_color, escape_control_chars, wrap_text

if TYPE_CHECKING:
    from convo.chat.conversation import Chat
    from convo.terminal.repl import Repl
    from convo.terminal.waiting import WaitingLine


HEAD_MOVING_COMMANDS = ("undo", "redo", "rewind", "fork", "owner", "model", "new", "clear", "resume")
"""Commands that would move the head, or change the owner, the model or the conversation, during an open run."""

COMMANDS_WITHOUT_AGENTS = {
    "edit": "undo the last turn with /undo and send a new message",
    "system": "each agent has its own instructions",
}
"""Commands that are not available with agents, and the hint for each; /system is, for an agent without instructions."""

OPEN_RUN_HINT = "/retry continues the run, /stop ends it"


class RunView(Protocol):
    """Shows the events of the runs of one chat; `convo.cli.agent_run` implements it."""

    runner: AgentRunner

    async def show_events(self, events: AsyncGenerator[StreamEvent, None]) -> None: ...

    async def switch_chat(self, chat: "Chat") -> None: ...

    async def report_exit(self) -> int: ...


class AgentChat:
    """The agent runs of an interactive chat."""

    def __init__(self, repl: "Repl", view: RunView, display: DisplayOptions) -> None:
        self._repl, self._view, self._display = repl, view, display

    @property
    def runner(self) -> AgentRunner:
        return self._view.runner

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
        await self._view.switch_chat(self._repl.chat)
        if self.runner.pending_calls:
            self._repl.print_message("nothing was sent: the run is paused")
            await self._ask_for_decisions()
            return
        await self._show_run(self.runner.start(items))

    async def retry(self) -> None:
        """Continue a run that was stopped or that failed.

        Raises InvalidUsage if no run is open, and the errors of the run.
        """
        await self._view.switch_chat(self._repl.chat)
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
        await self._view.show_events(events)
        await self._ask_for_decisions()

    async def _ask_for_decisions(self) -> None:
        """Ask for decisions and continue the run until it no longer pauses or the user leaves."""
        while self.runner.pending_calls:
            if not await self._ask_user():
                await self._view.report_exit()
                return
            self._repl.reader.open_queue()
            await self._view.show_events(self.runner.resume())

    async def _ask_user(self) -> bool:
        repl = self._repl
        return await ask_for_decisions(self.runner, repl, repl.print_message, repl.print_styled, self._display)


SENTENCE_ITEM_TYPES = ("function_call", "mcp_approval_request")
"""Item types that are not announced, because the run's own events print a line for each."""


MAX_SENTENCE_CHARS = 400
"""Characters of arguments or of an output in a line; `convo inspect --items` shows all of them."""


class RunPrinter(AnswerPrinter):
    """Prints the events of a run.

    prints_pending_calls:  print a line for each call that needs a decision
    has_output:            whether anything was printed since it was set to False
    """

    prints_pending_calls = True
    has_output = False

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        is_streamed: bool,
        renderer: AnswerRenderer | None = None,
        format_reasoning: FormatReasoning | None = None,
        waiting_line: "WaitingLine | None" = None,
    ) -> None:
        super().__init__(
            out,
            err,
            is_streamed=is_streamed,
            unannounced=(*UNANNOUNCED_TYPES, *SENTENCE_ITEM_TYPES),
            renderer=renderer,
            format_reasoning=format_reasoning,
            waiting_line=waiting_line,
        )
        self._running_tools = 0
        self._last_text: str | None = None

    def print_event(self, event: StreamEvent) -> None:
        if not str(event["type"]).startswith("convo."):
            self._running_tools = 0
            super().print_event(event)
            self._record_last_message(event)
            return
        if event["type"] == "convo.paused" and not self.prints_pending_calls:
            return
        self._running_tools += {"convo.tool_started": 1, "convo.tool_output": -1}.get(event["type"], 0)
        self.finish()
        self._prepare_output()
        for line in format_run_event(event):
            self.has_output = True
            self._err.write(wrap_text(escape_control_chars(line), detect_display_without_color(self._err).width) + "\n")
            self._err.flush()
        if event["type"] == "convo.finished":
            self._print_final_output(event["output"])

    @property
    def is_at_line_start(self) -> bool:
        """Whether the cursor is at the start of a line: a running tool may print as well."""
        return super().is_at_line_start and not self._running_tools

    def _write(self, text: str) -> None:
        self.has_output |= bool(text)
        super()._write(text)

    def _announce(self, line: str) -> None:
        self.has_output |= bool(line)
        super()._announce(line)

    def _record_last_message(self, event: StreamEvent) -> None:
        """Record the text of the last message: it is the final output, except where a tool's output is."""
        items = [event["item"]] if event["type"] == "response.output_item.done" else []
        if event["type"] == "response.incomplete":  # an item that was cut has no end of its own
            items = event["response"].get("output") or []
        for item in items:
            if item_type(item) == "message":
                self._last_text = item_text(item)

    def _print_final_output(self, output: Json) -> None:
        """Print the final output unless the last message is its text."""
        if self._last_text is None or (isinstance(output, str) and output != self._last_text):
            self._write(value_to_text(output))
            self.finish()


def format_run_event(event: StreamEvent) -> list[str]:
    """Describe an event of a run, one sentence a line; an empty list for events that are not announced."""
    match event["type"]:
        case "convo.tool_started":
            arguments = shorten_to_line(decode_json_escapes(event["arguments"]))
            return [f"{event['agent']} calls {event['tool']} {arguments}".rstrip()]
        case "convo.tool_output":
            return [f"{event['tool']} returned {shorten_to_line(value_to_text(event['output'])) or 'nothing'}"]
        case "convo.handoff":
            return [f"{event['source']} hands off to {event['target']}"]
        case "convo.guardrail":
            return [f"guardrail {event['name']} stopped the {event['side']}: {shorten_to_line(event['reason'])}"]
        case "convo.warning":
            return [f"note: {event['message']}"]
        case "convo.paused":
            return [format_pending_call(call) for call in event["pending"]]
    return []


def format_pending_call(call: Mapping[str, Json]) -> str:
    """Describe a pending call and the decision it needs."""
    request = (
        f"{call['agent']} asks for {call['tool']} {shorten_to_line(decode_json_escapes(call['arguments']))}".rstrip()
    )
    status = "outcome unknown" if call["unknown"] else "needs approval"
    return f"{request} ({call['call_id']}); {status}"


def shorten_to_line(text: str) -> str:
    """Put `text` on one line and cut it at `MAX_SENTENCE_CHARS`."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_SENTENCE_CHARS else f"{line[:MAX_SENTENCE_CHARS]}... ({len(line):,} characters)"


def value_to_text(value: Json) -> str:
    """Convert a value to text: a string unchanged, None to "", other values to JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(plain_json(value), ensure_ascii=False)
