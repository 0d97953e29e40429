"""One random sequence of answers and user actions in a conversation, at a strict server.

Each action is done by a new process, as far as the store and the files are concerned: it opens the store, the endpoint
and the chat, and closes them. After a kill the files are those of the moment of the kill.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from convo.agent_runner.config import RunConfig
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent
from convo.agents.graph import graph
from convo.chat.conversation import Chat
from convo.chat.endpoint_factory import open_endpoint
from convo.chat.lookup import load_last_used_session
from convo.chat.open import find_selected_session, fork_session, open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.cli.deps import choose_session_model
from convo.config.loader import SettingFlags, load_settings
from convo.errors import ConvoError
from convo.history.items import StreamEvent, user_message
from convo.history.records import EMBEDDED_SCOPE, Strategy
from convo.runs.state import ApprovalDecided
from convo.runtime import random_id
from convo.stores.factory import open_store
from convo.strategies.selection import OwnerSelection
from convo.tools.tool import tool
from tests.cli.stored_chats import DATABASE
from tests.clock import FixedClock
from tests.command_runner import run_in_process
from tests.sequences.strict_server import Answer, StrictServer

MODEL = "up/m"


def look_up(order: str) -> str:
    return f"{order} cost 5"


@tool(needs_approval=True)
def refund(order: str) -> str:
    return f"{order} was refunded"


DESK = graph(Agent("desk", tools=(tool(look_up), refund)))

TEXTS = ("", "", "Yes.", "It took five days, and then it came.")
ARGUMENTS = ('{"order": "A1"}', '{"order": "A1"}', "", "{}", '{"order": ', "[1]", "no JSON", '{"order": 5}')
NAMES = ("look_up", "look_up", "look_up", "refund", "refund", "unknown")


class Killed(BaseException):
    """Unwinds the stack of a killed process; everything that it writes after that is undone."""


@dataclass
class ConversationSequence:
    """A conversation, and the random source of its actions.

    name:   of the current session
    log:    the answers and actions so far
    """

    rng: Random
    strategy: Strategy
    server: StrictServer
    folder: Path
    name: str = "mine"
    log: list[str] = field(default_factory=list)
    clock: FixedClock = field(default_factory=FixedClock)
    moments_left: int = 0
    is_killed: bool = False

    def __post_init__(self) -> None:
        self.has_tools = self.rng.random() < 0.75

    def run(self) -> None:
        """Perform random actions; then the user must be able to go on with each conversation, however they ended."""
        self.perform("send")
        actions = ["send", "send", "retry", "stop", "kill", "kill", "continue_", "undo", "fork", "decide", "decide"]
        for _ in range(self.rng.randint(2, 7)):
            self.perform(self.rng.choice([*actions, "convert", "compact"]))
        self.finish()
        if self.name != "mine":
            self.name = "mine"
            self.finish()

    def perform(self, action: str) -> None:
        self.server.answers.extend(self.make_answer() for _ in range(3))
        self.log += [action, *map(str, self.server.answers)]
        try:
            if action in ("convert", "compact"):
                getattr(self, action)()
            else:
                self.run_process(getattr(self, action), use_last_session=action == "continue_")
        except ConvoError as error:
            self.log.append(f"{type(error).__name__}: {error.message}; try: {error.hint}")
        self.server.answers.clear()
        self.check_refusals()

    def check_refusals(self) -> None:
        """Assert that no action ended with a refusal of the server; one that convo corrected itself does not count."""
        refusals = [refusal for refusal in self.server.refusals if refusal.partition(": {")[0] in self.log[-1]]
        assert not refusals, "\n".join([*self.log, *refusals])
        self.server.refusals.clear()

    def make_answer(self) -> Answer:
        rng = self.rng
        # llama.cpp and small models of Mistral do; a server that keeps the history knows its own ids
        reuses_ids = self.server.api != "responses"
        if rng.random() < 0.15:
            return Answer(status=rng.choice((400, 503)))
        call_count = rng.choice((0, 0, 1, 1, 2)) if self.has_tools or rng.random() < 0.1 else 0
        calls = [
            (f"call_{rng.randrange(3 if reuses_ids else 10**12)}", rng.choice(NAMES), rng.choice(ARGUMENTS))
            for _ in range(call_count)
        ]
        end = rng.choice(("complete", "complete", "complete", "length", "content_filter"))
        if calls and end != "complete":
            call_id, name, arguments = calls.pop()
            calls.append((call_id, name, arguments[: rng.randint(0, len(arguments))]))
        return Answer(
            rng.choice(TEXTS if calls else TEXTS[2:]),
            rng.choice(("", "Well.")),
            tuple(calls),
            end,
            is_odd=rng.random() < 0.2,
            sent_part=rng.random() if rng.random() < 0.2 else 1.0,
            is_stored=rng.random() < 0.5,
        )

    # -- processes --------------------------------------------------------------------------------

    def run_process(self, act: Callable[[Chat], Any], *, use_last_session: bool = False) -> None:
        async def run() -> None:
            async with self.open(use_last_session=use_last_session) as chat:
                await act(chat)

        self.moments_left, self.is_killed = 0, False
        try:
            asyncio.run(run())
        except Killed:
            self.restore_files()

    def save_files(self) -> None:
        """Copy the store and the files of the conversation, as they are at the moment of a kill."""
        shutil.copytree(self.folder, self.folder.with_suffix(".killed"))

    def restore_files(self) -> None:
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        shutil.copytree(self.folder.with_suffix(".killed"), self.folder, dirs_exist_ok=True)
        shutil.rmtree(self.folder.with_suffix(".killed"))
        with closing(sqlite3.connect(self.folder / "home" / DATABASE)) as db, db:
            db.execute("DELETE FROM leases")  # those of an ended process are free; this one runs on

    @asynccontextmanager
    async def open(self, *, use_last_session: bool) -> AsyncIterator[Chat]:
        settings = load_settings(None, SettingFlags(model=MODEL))
        store = open_store(f"sqlite:{self.folder / 'home' / DATABASE}")
        if use_last_session:
            self.name = (await load_last_used_session(store)).name
        stored = await store.session(self.name)
        settings, choice = choose_session_model(settings, stored)
        endpoint = open_endpoint(choice.provider, settings=settings, store=store, clock=self.clock, new_id=random_id)
        is_embedded = endpoint.scope == EMBEDDED_SCOPE
        options = RequestOptions(MODEL, MODEL if is_embedded else "m", encrypt_reasoning=not is_embedded)
        deps = ChatDeps(store, endpoint, self.clock, random_id)
        handle = self.name if stored else str(self.folder / "mine.json") if self.strategy is Strategy.REPLAY else None
        selection = OwnerSelection(None if stored else self.strategy, handle)
        try:
            session = await find_selected_session(store, selection) if stored else None
            yield await open_chat(selection, session, options, deps, name=self.name)
        finally:
            await endpoint.aclose()
            await store.aclose()

    async def read(self, events: AsyncGenerator[StreamEvent, None]) -> None:
        """Read the events; at one of the moments the user stops the answer, or the process is killed."""
        async with aclosing(events):
            async for _ in events:
                self.clock.advance(0.4)
                self.count_moment("event")
                if not self.moments_left:
                    return

    def count_moment(self, moment: str) -> None:
        """Count an event of a response or a step of a run; a kill comes at the last of them."""
        self.moments_left -= 1
        if self.is_killed and not self.moments_left:
            self.save_files()
            raise Killed

    async def open_runner(self, chat: Chat) -> AgentRunner:
        return await AgentRunner.open(chat, DESK, RunConfig(test_hook=self.count_moment))

    # -- actions ----------------------------------------------------------------------------------

    async def send(self, chat: Chat) -> None:
        message = user_message(f"message {len(self.log)}")
        if self.has_tools:
            await self.read((await self.open_runner(chat)).start([message]))
        else:
            await self.read(chat.send([message]))

    async def stop(self, chat: Chat) -> None:
        self.moments_left = self.rng.randint(1, 20)
        await self.send(chat)
        if self.has_tools and self.rng.random() < 0.5:
            await (await self.open_runner(chat)).stop()

    async def kill(self, chat: Chat) -> None:
        self.moments_left, self.is_killed = self.rng.randint(1, 30), True
        can_resume = (await self.open_runner(chat)).can_resume
        await (self.decide(chat) if can_resume and self.rng.random() < 0.7 else self.send(chat))

    async def continue_(self, chat: Chat) -> None:
        await self.send(chat)

    async def retry(self, chat: Chat) -> None:
        await (self.decide(chat) if self.has_tools else self.read(chat.retry()))

    async def decide(self, chat: Chat) -> None:
        """Decide the pending calls, and resume the run."""
        runner = await self.open_runner(chat)
        decisions = [ApprovalDecided(call.id, approve=self.rng.random() < 0.5) for call in runner.pending_calls]
        if decisions:
            await runner.apply_decisions(*decisions)
        await self.read(runner.resume())

    async def undo(self, chat: Chat) -> None:
        if not (await self.open_runner(chat)).can_resume:
            await chat.undo()

    async def fork(self, chat: Chat) -> None:
        name = f"{self.name}-f"
        forked = await fork_session(chat.session, chat.options, chat.deps, name=name)
        await forked.ensure_saved()
        self.name = name

    def convert(self) -> None:
        target, name = self.rng.choice(list(Strategy)), f"{self.name}-c"
        got = run_in_process("convert", self.name, "--to", target, "--as", name)
        self.log.append(got.err)
        if got.exit == 0:
            self.name = name

    def compact(self) -> None:
        self.server.answers.clear()
        got = run_in_process("compact", self.name, "--yes")
        self.log.append(got.err)

    # -- the end ----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Send a message that is answered; pending calls are decided before."""
        for _ in range(4):
            try:
                self.run_process(self.send)
                self.check_refusals()
                return
            except ConvoError as error:
                self.log.append(f"finish: {type(error).__name__}: {error.message}; try: {error.hint}")
                self.check_refusals()
                with suppress(ConvoError):
                    self.run_process(self.decide)
        raise AssertionError("\n".join(self.log))
