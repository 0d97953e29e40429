"""Runs of agents in a chat: what one message sets going, shown, paused, and told at the end.

A run may pause and go on in another process, so nothing here is what a run needs: it is in the
store, and beside it in a state file.
"""

import json
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from shlex import quote

from convo.agents import plain_json
from convo.cli.conduct import Cast
from convo.cli.desk import Desk, Out, called
from convo.cli.pauses import Pauses
from convo.engine.chat import Chat
from convo.engine.running import Running
from convo.errors import ConvoError, Interrupted, StateFault
from convo.history import Link, Strategy
from convo.items import Event, Item, Json, kind, text
from convo.run import Limits
from convo.run.state import Stage
from convo.stores.contract import AgentRun
from convo.ui.answering import watched
from convo.ui.labelled import counted
from convo.ui.receipt import total
from convo.ui.telling import Teller

PAUSED = 3


class Show:
    """Shows the runs of one chat to a person or a program, and counts what they used.

    links:       the model calls that were shown last, oldest first
    asked:       all that were shown
    state_file:  where the paused run lies
    """

    def __init__(self, chat: Chat, running: Running, cast: Cast, pauses: Pauses, desk: Desk, out: Out) -> None:
        self.chat, self.running = chat, running
        self.links: list[Link] = []
        self.asked: list[Link] = []
        self.state_file: str | None = None
        self._kept: AgentRun | None = None
        self._cast, self._pauses, self._desk, self._out = cast, pauses, desk, out
        self._teller = Teller(sys.stdout, sys.stderr, live=out.live, sheet=desk.sheet(), folded=desk.folded())
        chat.noted = out.note

    @classmethod
    async def open(cls, chat: Chat, cast: Cast, desk: Desk, out: Out, place: str | None) -> "Show":
        """The runs of a chat, with the open one taken up; nothing is asked. raises: as `Running.open`"""
        cast = desk.remembering(chat, cast)
        limits = None if cast.conduct.limits == Limits() else cast.conduct.limits
        running = await Running.open(chat, cast.graph, cast.conduct, limits=limits)
        pauses = Pauses(desk.paused, place, cast.conduct.values, out.note)
        return cls(chat, running, cast, pauses, desk, out)

    async def opened(self, chat: Chat) -> None:
        """See to it that runs are of `chat`, which another conversation may have taken the place of."""
        if chat is not self.chat:
            self._cast = self._desk.remembering(chat, self._cast)
            self.running = await Running.open(chat, self._cast.graph, self._cast.conduct)
            self.chat = chat

    async def all_of(self, events: AsyncGenerator[Event, None]) -> None:
        """Show a run until it ends or pauses. raises: as the run does; Interrupted"""
        self.links = []
        try:
            async with aclosing(self._counted(events)) as shown:
                await watched(shown, self._take)
        finally:
            self._teller.end()
            await self._keep()
            if self.links and not self._out.as_json:
                self._out.tell(self.receipt())

    async def _keep(self) -> None:
        self.state_file = await self._pauses.keep(self.chat, self.running)
        self._kept = self.running.kept

    async def _counted(self, events: AsyncGenerator[Event, None]) -> AsyncGenerator[Event, None]:
        async with aclosing(events) as run:
            async for event in run:
                turn = self.chat.turn
                if turn and turn.link and turn.link not in self.links[-1:]:
                    self.links.append(turn.link)
                    self.asked.append(turn.link)
                yield event

    def _take(self, event: Event) -> None:
        if self._out.as_jsonl:
            sys.stdout.write(json.dumps(plain_json(event)) + "\n")
            sys.stdout.flush()
        elif not self._out.as_json:
            self._teller.take(event)

    async def left(self) -> int:
        """The exit code of a run that is left as it stands; a paused one says how it goes on."""
        if self._kept != self.running.kept:
            await self._keep()
        if not self.running.pending:
            return 1 if self.asked and self.asked[-1].status == "incomplete" else 0
        if self.state_file:
            self._out.note(f"paused; the state is in {self.state_file}")
        self._out.note(f"to decide and go on: {self.way_on}")
        return PAUSED

    @property
    def way_on(self) -> str:
        """The command that goes on with the run; what was started and left no result it leaves to the person."""
        session = quote(self.chat.session.name or self.chat.session.id)
        return f"{called()} resume {session} {self._cast.flags(self.chat.asking.model)}{self._verdict()}"

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
        """The line for everything that was asked since the last message."""
        calls = f"{counted(len(self.links), 'call')} · " if len(self.links) > 1 else ""
        return calls + self._desk.receipt_of(self.chat, total(self.links), self.links)

    def outcome(self, before: int) -> dict[str, Json]:
        """The object of `--json`; `before` is how many items there were. source: DESIGN.md, "Settings and shapes"."""
        session, link = self.chat.session, total(self.asked) if self.asked else None
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
            "pending": pending(self.running),
            "state_file": self.state_file,
        }

    @property
    def status(self) -> str:
        """`completed`, `paused`, `failed` or `in_progress`, in the words of a response where it has them."""
        row = self.running.kept
        words = {"done": "completed", "running": "in_progress", "stopped": "cancelled"}
        return words.get(row.status, row.status) if row else "in_progress"

    def _words(self, output: list[Item]) -> str:
        if isinstance(self.running.output, str):
            return self.running.output
        last = [text(item) for item in output if kind(item) == "message" and item.get("role") == "assistant"]
        return last[-1] if last else ""


def pending(running: Running) -> list[dict[str, Json]]:
    """The calls that wait, in the words of `convo inspect STATE --json`."""
    from convo.run.inbox import asked

    waits = [asked(call, agent) for agent, call in running.run.waiting] if running.pending else []
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


async def run_once(show: Show, said: Item, out: Out) -> int:
    """One message in a one-shot chat; returns the exit code. raises: as the run does"""
    running, chat = show.running, show.chat
    if running.unfinished and running.run.batch:
        raise open_run(show)
    before = len(chat.held.path) + 1
    await chat.edges.endpoint.warm(chat.asking.wire_model)  # no such model: nothing is stored
    return await told(show, out, before, lambda: running.say([said]))


async def told(show: Show, out: Out, before: int, begin: Callable[[], AsyncGenerator[Event, None]]) -> int:
    """Show what `begin` sets going and say how it ended; returns the exit code. raises: as the run does"""
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
        return PAUSED if show.running.pending else 0
    return await show.left()


def open_run(show: Show) -> StateFault:
    """Why nothing can be said: a run waits for somebody, or was cut off among its calls."""
    waits = ", ".join(call.id for call in show.running.pending)
    stands = f"is paused, and waits for {waits}" if waits else "was cut off, and its calls have no output yet"
    return StateFault(f"the run of {show.chat.session.name!r} {stands}", hint=show.way_on)
