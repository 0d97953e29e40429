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
from convo.terminal.approvals import ask_for_decisions
from convo.terminal.terminal import (
    UNANNOUNCED_TYPES,
    AnswerPrinter,
    AnswerRenderer,
    DisplayOptions,
    FormatReasoning,
    detect_display_without_color,
    escape_control_chars,
    wrap_text,
)

if TYPE_CHECKING:
    from convo.chat.conversation import Chat
    from convo.terminal.repl import Repl


HEAD_MOVING_COMMANDS = ("undo", "redo", "rewind", "fork", "owner", "model", "new", "clear", "resume")
"""Commands that would move the head, or change the owner, the model or the conversation, during an open run."""

COMMANDS_WITHOUT_AGENTS = {
    "edit": "take the last turn back with /undo and say it anew",
    "system": "each agent has instructions of its own",
}
"""Commands that are not available with agents, and the hint for each."""

OPEN_RUN_HINT = "/retry goes on with the run, /stop ends it"


class RunView(Protocol):
    """Shows the events of the runs of one chat; `convo.cli.agent_run` implements it."""

    running: AgentRunner

    async def all_of(self, events: AsyncGenerator[StreamEvent, None]) -> None: ...

    async def opened(self, chat: "Chat") -> None: ...

    async def left(self) -> int: ...


class AgentChat:
    """The agent runs of an interactive chat."""

    def __init__(self, talk: "Repl", show: RunView, medium: DisplayOptions) -> None:
        self._talk, self._show, self._medium = talk, show, medium

    @property
    def running(self) -> AgentRunner:
        return self._show.running

    @property
    def status(self) -> str:
        """The phase, the agent and the undecided calls of the newest run, as text."""
        run = self.running.run
        waits = ", ".join(call.id for call in run.pending)
        return f"{run.phase}, with {run.agent}" + (f"; {waits} wait for a decision" if waits else "")

    def tools(self) -> list[tuple[str, str]]:
        """Return the name and the description of each tool of the active agent."""
        return [(tool.name, tool.description) for tool in self.running.run.graph[self.running.run.agent].functions]

    async def begin(self) -> None:
        """Ask for the decisions of a paused run; print a note about an interrupted one.

        Raises the errors of the run.
        """
        if self.running.pending:
            self._talk.say("the run of this conversation is paused")
            await self._settled()
        elif self.running.unfinished:
            self._talk.say("the run of this conversation was cut off; /retry goes on with it")

    async def say(self, items: Sequence[Item]) -> None:
        """Start a run; while one is paused, send nothing and ask for its decisions instead.

        Raises the errors of the run.
        """
        await self._show.opened(self._talk.chat)
        if self.running.pending:
            self._talk.say("nothing was sent: the run is paused")
            await self._settled()
            return
        await self._shown(self.running.say(items))

    async def again(self) -> None:
        """Continue a run that was stopped or that failed.

        Raises InvalidUsage if no run is open, and the errors of the run.
        """
        await self._show.opened(self._talk.chat)
        if not self.running.unfinished:
            raise InvalidUsage("no run is open, so there is nothing to go on with", hint="say something")
        if self.running.pending:
            await self._settled()
        else:
            await self._shown(self.running.go_on())

    async def stop(self) -> None:
        """End the open run; it cannot be continued. Raises InvalidUsage if no run is open."""
        if not self.running.unfinished:
            raise InvalidUsage("no run is open", hint="/status says where the conversation stands")
        await self.running.stop()
        self._talk.say("the run is ended; the conversation goes on from here")

    def check(self, command: str) -> None:
        """Raise InvalidUsage for a command without meaning for agents, StateFault for one barred by the open run."""
        if command in COMMANDS_WITHOUT_AGENTS:
            raise InvalidUsage(f"/{command} knows nothing of agents", hint=COMMANDS_WITHOUT_AGENTS[command])
        if command in HEAD_MOVING_COMMANDS and self.running.unfinished:
            raise StateFault(f"/{command} would move the conversation under an open run", hint=OPEN_RUN_HINT)
        if command == "next" and self.running.pending:
            raise StateFault("what the run sends next follows from what is decided on its calls", hint=OPEN_RUN_HINT)

    async def _shown(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        await self._show.all_of(events)
        await self._settled()

    async def _settled(self) -> None:
        """Ask for decisions and continue the run until it no longer pauses or the user leaves."""
        while self.running.pending:
            if not await ask_for_decisions(self.running, self._talk.typed, self._talk.say, self._medium):
                await self._show.left()
                return
            await self._show.all_of(self.running.go_on())


SENTENCE_ITEM_TYPES = ("function_call", "mcp_approval_request")
"""Item types that are not announced, because the run's own events print a line for each."""


MAX_SENTENCE_CHARS = 400
"""Characters of arguments or of an output in a line; `convo inspect --items` shows all of them."""


class RunPrinter(AnswerPrinter):
    """Prints the events of a run."""

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        live: bool,
        sheet: AnswerRenderer | None = None,
        folded: FormatReasoning | None = None,
    ) -> None:
        super().__init__(
            out, err, live=live, silent=(*UNANNOUNCED_TYPES, *SENTENCE_ITEM_TYPES), sheet=sheet, folded=folded
        )
        self._last: str | None = None

    def take(self, event: StreamEvent) -> None:
        if not str(event["type"]).startswith("convo."):
            super().take(event)
            self._remember(event)
            return
        self.end()
        for line in format_run_event(event):
            self._err.write(wrap_text(escape_control_chars(line), detect_display_without_color(self._err).width) + "\n")
            self._err.flush()
        if event["type"] == "convo.finished":
            self._final(event["output"])

    def _remember(self, event: StreamEvent) -> None:
        """Record the text of the last message: it is the final output, except where a tool's output is."""
        if event["type"] == "response.output_item.done" and item_type(event["item"]) == "message":
            self._last = item_text(event["item"])

    def _final(self, output: Json) -> None:
        """Print the final output unless the last message is its text."""
        if self._last is None or (isinstance(output, str) and output != self._last):
            self._say(value_to_text(output))
            self.end()


def format_run_event(event: StreamEvent) -> list[str]:
    """Describe an event of a run, one sentence a line; an empty list for events that are not announced."""
    match event["type"]:
        case "convo.tool_started":
            arguments = shorten_to_line(decode_json_escapes(event["arguments"]))
            return [f"{event['agent']} calls {event['tool']} {arguments}".rstrip()]
        case "convo.tool_output":
            return [f"{event['tool']} gave {shorten_to_line(value_to_text(event['output'])) or 'nothing'}"]
        case "convo.handoff":
            return [f"{event['source']} hands over to {event['target']}"]
        case "convo.guardrail":
            return [f"guardrail {event['name']} stopped the {event['side']}: {shorten_to_line(event['reason'])}"]
        case "convo.warning":
            return [f"note: {event['message']}"]
        case "convo.paused":
            return [format_pending_call(call) for call in event["pending"]]
    return []


def format_pending_call(call: Mapping[str, Json]) -> str:
    """Describe a pending call and the decision it needs."""
    asks = f"{call['agent']} asks for {call['tool']} {shorten_to_line(decode_json_escapes(call['arguments']))}".rstrip()
    said = "its outcome is unknown" if call["unknown"] else "it waits for a decision"
    return f"{asks} ({call['call_id']}); {said}"


def shorten_to_line(words: str) -> str:
    """Put `text` on one line and cut it at `MAX_SENTENCE_CHARS`."""
    line = " ".join(words.split())
    return line if len(line) <= MAX_SENTENCE_CHARS else f"{line[:MAX_SENTENCE_CHARS]}... ({len(line):,} characters)"


def value_to_text(value: Json) -> str:
    """Convert a value to text: a string unchanged, None to "", other values to JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(plain_json(value), ensure_ascii=False)
