"""An interactive chat whose answers come from agents.

A message begins a run. Where the run pauses the calls are put to the person, and it goes on when all
are decided on; where the person leaves it, it stays paused and is put to them again before anything
else is said. What would move the conversation under an open run is refused.
"""

from collections.abc import AsyncGenerator, Sequence
from typing import TYPE_CHECKING, Protocol

from convo.engine.running import Running
from convo.errors import StateFault, Usage
from convo.items import Event, Item
from convo.ui.deciding import settle
from convo.ui.medium import Medium

if TYPE_CHECKING:
    from convo.engine.chat import Chat
    from convo.ui.conversing import Conversing

MOVE = ("undo", "redo", "rewind", "fork", "owner", "model", "new", "clear", "resume")
"""Commands that would move the conversation, or who answers, under an open run."""

NOT_HERE = {
    "edit": "take the last turn back with /undo and say it anew",
    "system": "each agent has instructions of its own",
}
"""Commands that know no agents, and what to do instead."""

ON = "/retry goes on with the run, /stop ends it"


class Shown(Protocol):
    """Shows the runs of one chat; see `convo.cli.running`."""

    running: Running

    async def all_of(self, events: AsyncGenerator[Event, None]) -> None: ...

    async def opened(self, chat: "Chat") -> None: ...

    async def left(self) -> int: ...


class Runs:
    """The runs of an interactive chat."""

    def __init__(self, talk: "Conversing", show: Shown, medium: Medium) -> None:
        self._talk, self._show, self._medium = talk, show, medium

    @property
    def running(self) -> Running:
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
        """Go on with what was stopped, or failed. raises: Usage  nothing is open; as the run does"""
        await self._show.opened(self._talk.chat)
        if not self.running.unfinished:
            raise Usage("no run is open, so there is nothing to go on with", hint="say something")
        if self.running.pending:
            await self._settled()
        else:
            await self._shown(self.running.go_on())

    async def stop(self) -> None:
        """End the open run for good. raises: Usage  none is open"""
        if not self.running.unfinished:
            raise Usage("no run is open", hint="/status says where the conversation stands")
        await self.running.stop()
        self._talk.say("the run is ended; the conversation goes on from here")

    def check(self, command: str) -> None:
        """raises: Usage, StateFault  a command that cannot be carried out here, or now"""
        if command in NOT_HERE:
            raise Usage(f"/{command} knows nothing of agents", hint=NOT_HERE[command])
        if command in MOVE and self.running.unfinished:
            raise StateFault(f"/{command} would move the conversation under an open run", hint=ON)
        if command == "next" and self.running.pending:
            raise StateFault("what the run sends next follows from what is decided on its calls", hint=ON)

    async def _shown(self, events: AsyncGenerator[Event, None]) -> None:
        await self._show.all_of(events)
        await self._settled()

    async def _settled(self) -> None:
        """Let the person decide as often as the run pauses."""
        while self.running.pending:
            if not await settle(self.running, self._talk.typed, self._talk.say, self._medium):
                await self._show.left()
                return
            await self._show.all_of(self.running.go_on())
