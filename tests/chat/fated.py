"""Runs with tools that are killed between two effects: `python -m tests.chat.fated FOLDER STRATEGY FIRST STEP`.

It loads everything once and then forks: a child lives until its moment and kills itself with
SIGKILL; the next child goes on as another process would, decides what comes back to be decided, and
says what it found. That is one line of JSON for every STEPth moment from FIRST on, until a child
lives to its end.

A moment is every effect of the run, every change of the store before and after it is made, and every
request and every end of an answer at the endpoint; those of the run of an agent that is a tool count as well.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from itertools import count
from pathlib import Path
from typing import Any

from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agent_runner.runner import AgentRunner
from convo.agents.agent import Agent, Handoff
from convo.agents.graph import agent_tool, graph
from convo.chat.open import find_selected_session, open_chat
from convo.chat.session_record import ChatDeps
from convo.chat.turn import RequestOptions
from convo.endpoints.base import Endpoint
from convo.history.items import Item, Json, StreamEvent, user_message
from convo.history.records import Strategy
from convo.runs.state import ApprovalDecided, RunLimits, Stage, ToolCall, ToolOutputSupplied
from convo.runtime import random_id
from convo.stores.base import Store, Transaction
from convo.stores.factory import open_store
from convo.strategies.selection import OwnerSelection
from convo.tools.tool import tool
from tests.chat.agents import calls, scripted, words
from tests.clock import FixedClock
from tests.embedding import embedded

NAME = "fated"
CLERK = "clerk.json"
"""The script of the model that is asked inside a call."""


class Fate:
    """Counts moments, and ends the process at one of them."""

    def __init__(self, last: int | None) -> None:
        self.left = last

    def __call__(self, moment: str) -> None:
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.left is not None:
            self.left -= 1


class FatedStore:
    """A store that knows moments."""

    def __init__(self, store: Store, fate: Fate) -> None:
        self.store, self.fate = store, fate

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, transaction: Transaction) -> None:
        self.fate("before a change")
        await self.store.commit(transaction)
        self.fate("after a change")


class FatedEndpoint:
    """An endpoint that knows moments, and writes down what it is asked."""

    def __init__(self, endpoint: Endpoint, fate: Fate, log: Callable[[str], None]) -> None:
        self.endpoint, self.fate, self.log = endpoint, fate, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.endpoint, name)

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        inside = str(body["model"]).endswith(CLERK)
        self.log(json.dumps(["asked inside" if inside else "asked", words(body["input"])]))
        self.fate("before a request")
        async with aclosing(self.endpoint.create(body)) as events:
            async for event in events:
                if event["type"] == "response.completed" and not inside:
                    self.log(json.dumps(["answered"]))
                    self.fate("before the end of an answer is heard")
                yield event
        self.fate("after an answer")


class Life:
    """One process's part of a run, in `folder`."""

    def __init__(self, folder: Path, strategy: Strategy, last: int | None) -> None:
        self.folder, self.strategy, self.fate = folder, strategy, Fate(last)
        self.store = open_store(f"sqlite:{folder / 'convo.db'}")

    def log(self, line: str) -> None:
        with (self.folder / "log").open("a") as file:
            file.write(line + "\n")

    def agents(self) -> tuple[Agent, Agent]:
        def noted(name: str) -> Callable[[], str]:
            def run() -> str:
                self.log(json.dumps(["ran", name]))
                self.fate(f"within {name}")
                return f"{name} done"

            return run

        def plain(name: str, **settings: Any) -> Any:
            return tool(name=name, **settings)(noted(name))

        told = Handoff("billing", taken=lambda context, said: self.log(json.dumps(["ran", "told"])))
        clerk = Agent("clerk", model=f"scripted/{self.folder / CLERK}", tools=(plain("stamp", needs_approval=True),))
        billing = Agent("billing", tools=(plain("bill"), agent_tool(clerk, "ask", "Ask the clerk.")))
        tools = (plain("look"), plain("find"), plain("pay", needs_approval=True))
        return Agent("desk", tools=tools, handoffs=(told,)), billing

    async def open(self) -> AgentRunner:
        store: Any = FatedStore(self.store, self.fate)
        endpoint: Any = FatedEndpoint(embedded(self.store), self.fate, self.log)
        edges = ChatDeps(store, endpoint, FixedClock(), random_id)
        model = f"scripted/{self.folder / 'script.json'}"
        session = await find_selected_session(store, OwnerSelection(None, NAME)) if await store.session(NAME) else None
        file = str(self.folder / "talk.json")
        wanted = OwnerSelection(self.strategy, NAME if session else file if self.strategy is Strategy.REPLAY else None)
        chat = await open_chat(wanted, session, RequestOptions(model, model), edges, name=NAME)
        conduct = RunConfig(
            RunLimits(max_parallel_calls=2),
            resolve_model=lambda model: ModelRoute(RequestOptions(model, model), endpoint),
            open_scratch_store=lambda: open_store("memory"),
            test_hook=self.fate,
        )
        return await AgentRunner.open(chat, graph(*self.agents()), conduct)

    async def live(self) -> None:
        """Say something, unless that was said, and go on until the run is done; a person decides as it comes."""
        try:
            one = await self.open()
            if one.run_row is None and not await self.said():
                async for _ in one.start([user_message("hello")]):
                    pass
            while one.can_resume:
                await one.apply_decisions(*(self.decision(call) for call in one.pending_calls))
                async for _ in one.resume():
                    pass
            self.fate("at the end")
        finally:
            await self.store.aclose()

    async def said(self) -> bool:
        return await self.store.session(NAME) is not None

    def decision(self, call: ToolCall) -> ApprovalDecided | ToolOutputSupplied:
        if call.stage is Stage.OUTCOME_UNKNOWN:
            self.log(json.dumps(["unknown", call.lookup[-1]]))
            return ToolOutputSupplied(call.id, f"{call.lookup[-1]} done")
        return ApprovalDecided(call.id, approve=True)

    async def found(self) -> list[str]:
        """What the conversation keeps in the end, and its owner's copy of it."""
        try:
            session = await self.store.session(NAME)
            assert session
            rows = await self.store.agent_runs(session_id=session.id)
            assert [row.status for row in rows] == ["done"]
            items: list[Item] = list((await self.store.path(session.head)).items)
            if self.strategy is Strategy.CONVERSATION:
                conversation = await self.store.conversation(str(session.handle))
                assert conversation
                assert conversation.head == session.head
            if self.strategy is Strategy.REPLAY:
                chat = (await self.open()).chat
                chat.load_state()
                await chat.write_replay_file()
                assert json.loads((self.folder / "talk.json").read_text()) == items
            return words(items)
        finally:
            await self.store.aclose()


SCRIPT = (
    calls(("c1", "look"), ("c2", "pay"), ("c3", "find")),
    calls(("c4", "transfer_to_billing")),
    calls(("c5", "bill"), ("c6", "ask", {"input": "well?"})),
    {"text": "Done."},
)
INSIDE = (calls(("i1", "stamp")), {"text": "ask done"})


def in_a_child(work: Callable[[], None]) -> int:
    """How a forked child that does `work` ended, as `os.waitpid` says it."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException as wrong:  # noqa: BLE001 - said to whoever waits, who fails with it
            print(json.dumps({"error": repr(wrong)}), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def fated(folder: Path, strategy: Strategy, first_moment: int, step: int) -> None:
    for last in count(first_moment, step):
        place = folder / f"{strategy}-{last}"
        place.mkdir()
        scripted(place, *SCRIPT)
        scripted(place, *INSIDE, name=CLERK)

        def first(place: Path = place, moment: int = last) -> None:
            asyncio.run(Life(place, strategy, moment).live())

        def then(place: Path = place) -> None:
            asyncio.run(Life(place, strategy, None).live())
            found = asyncio.run(Life(place, strategy, None).found())
            log = [json.loads(line) for line in (place / "log").read_text().splitlines()]
            print(json.dumps({"found": found, "log": log}), flush=True)

        ended = in_a_child(first)
        if not os.WIFSIGNALED(ended) and ended:
            return
        in_a_child(then)
        if not os.WIFSIGNALED(ended):
            return


if __name__ == "__main__":
    fated(Path(sys.argv[1]), Strategy(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
