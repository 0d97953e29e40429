"""Interactive chat with agents.

A message starts a run. When the run pauses, the pending calls are put to the person and the run resumes after the
last decision. Commands that would move the head during an open run are rejected.
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
"""Commands that would move the conversation, or who answers, under an open run."""

COMMANDS_WITHOUT_AGENTS = {
    "edit": "take the last turn back with /undo and say it anew",
    "system": "each agent has instructions of its own",
}
"""Commands that know no agents, and what to do instead."""

OPEN_RUN_HINT = "/retry goes on with the run, /stop ends it"


class RunView(Protocol):
    """Shows the runs of one chat; see `convo.cli.agent_run`."""

    running: AgentRunner

    async def all_of(self, events: AsyncGenerator[StreamEvent, None]) -> None: ...

    async def opened(self, chat: "Chat") -> None: ...

    async def left(self) -> int: ...


class AgentChat:
    """The runs of an interactive chat."""

    def __init__(self, talk: "Repl", show: RunView, medium: DisplayOptions) -> None:
        self._talk, self._show, self._medium = talk, show, medium

    @property
    def running(self) -> AgentRunner:
        return self._show.running

    @property
    def status(self) -> str:
        """Where the newest run stands, in words."""
        run = self.running.run
        waits = ", ".join(call.id for call in run.pending)
        return f"{run.phase}, with {run.agent}" + (f"; {waits} wait for a decision" if waits else "")

    def tools(self) -> list[tuple[str, str]]:
        """The tools of the agent that would answer, each by its name and what is said of it."""
        return [(tool.name, tool.description) for tool in self.running.run.graph[self.running.run.agent].functions]

    async def begin(self) -> None:
        """Take up what an earlier chat left open. raises: as the run does"""
        if self.running.pending:
            self._talk.say("the run of this conversation is paused")
            await self._settled()
        elif self.running.unfinished:
            self._talk.say("the run of this conversation was cut off; /retry goes on with it")

    async def say(self, items: Sequence[Item]) -> None:
        """Begin a run. raises: as the run does; StateFault  one is paused, and the person leaves it so"""
        await self._show.opened(self._talk.chat)
        if self.running.pending:
            self._talk.say("nothing was sent: the run is paused")
            await self._settled()
            return
        await self._shown(self.running.say(items))

    async def again(self) -> None:
        """Go on with what was stopped, or failed. raises: InvalidUsage  nothing is open; as the run does"""
        await self._show.opened(self._talk.chat)
        if not self.running.unfinished:
            raise InvalidUsage("no run is open, so there is nothing to go on with", hint="say something")
        if self.running.pending:
            await self._settled()
        else:
            await self._shown(self.running.go_on())

    async def stop(self) -> None:
        """End the open run for good. raises: InvalidUsage  none is open"""
        if not self.running.unfinished:
            raise InvalidUsage("no run is open", hint="/status says where the conversation stands")
        await self.running.stop()
        self._talk.say("the run is ended; the conversation goes on from here")

    def check(self, command: str) -> None:
        """raises: InvalidUsage, StateFault  a command that cannot be carried out here, or now"""
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
        """Let the person decide as often as the run pauses."""
        while self.running.pending:
            if not await ask_for_decisions(self.running, self._talk.typed, self._talk.say, self._medium):
                await self._show.left()
                return
            await self._show.all_of(self.running.go_on())


SENTENCE_ITEM_TYPES = ("function_call", "mcp_approval_request")
"""Kinds of items that a sentence of the run's own stands for."""


MAX_SENTENCE_CHARS = 400
"""Characters of arguments or of an output in a sentence; `convo inspect --items` shows all of them."""


class RunPrinter(AnswerPrinter):
    """Takes the events of a run."""

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
        """The words of the last message, which are the answer unless a tool's output is."""
        if event["type"] == "response.output_item.done" and item_type(event["item"]) == "message":
            self._last = item_text(event["item"])

    def _final(self, output: Json) -> None:
        """Print an answer that no model said in words."""
        if self._last is None or (isinstance(output, str) and output != self._last):
            self._say(value_to_text(output))
            self.end()


def format_run_event(event: StreamEvent) -> list[str]:
    """What happened, a sentence a line; none for what needs no words."""
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
    """One call that a person has to decide on."""
    asks = f"{call['agent']} asks for {call['tool']} {shorten_to_line(decode_json_escapes(call['arguments']))}".rstrip()
    said = "its outcome is unknown" if call["unknown"] else "it waits for a decision"
    return f"{asks} ({call['call_id']}); {said}"


def shorten_to_line(words: str) -> str:
    """`words` on one line, and no more of them than a person reads there."""
    line = " ".join(words.split())
    return line if len(line) <= MAX_SENTENCE_CHARS else f"{line[:MAX_SENTENCE_CHARS]}... ({len(line):,} characters)"


def value_to_text(value: Json) -> str:
    """A value as text: text as it is, nothing as nothing, else JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(plain_json(value), ensure_ascii=False)
