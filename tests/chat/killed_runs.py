"""Runs with tools that are killed between two effects: `python -m tests.chat.killed_runs FOLDER STRATEGY FIRST STEP`.

It imports everything once and then forks. A child runs until its moment and kills itself with SIGKILL. The next child
resumes the run as another process would, decides the pending calls, and prints the result. The output is one line of
JSON for every STEPth moment from FIRST on, until a child ends without being killed.

A moment is every effect of the run, the time before and after every commit of the store, and every request and every
end of a response at the endpoint. The moments of the nested run of an agent tool count as well.
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
from tests.chat.agent_runs import item_lines, scripted_model, tool_calls
from tests.clock import FixedClock
from tests.embedded_endpoint import make_embedded_endpoint

NAME = "fated"
CLERK_SCRIPT = "clerk.json"
"""The script of the model of the nested run."""


class KillCountdown:
    """Counts moments, and kills the process at one of them."""

    def __init__(self, remaining: int | None) -> None:
        self.remaining = remaining

    def __call__(self, moment: str) -> None:
        if self.remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.remaining is not None:
            self.remaining -= 1


class KillableStore:
    """A store whose commits are moments."""

    def __init__(self, store: Store, countdown: KillCountdown) -> None:
        self.store, self.countdown = store, countdown

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, transaction: Transaction) -> None:
        self.countdown("before a change")
        await self.store.commit(transaction)
        self.countdown("after a change")


class KillableEndpoint:
    """An endpoint whose requests and responses are moments, and which logs its requests."""

    def __init__(self, endpoint: Endpoint, countdown: KillCountdown, log: Callable[[str], None]) -> None:
        self.endpoint, self.countdown, self.log = endpoint, countdown, log

    def __getattr__(self, name: str) -> Any:
        return getattr(self.endpoint, name)

    async def create(self, body: Mapping[str, Json]) -> AsyncGenerator[StreamEvent, None]:
        is_nested = str(body["model"]).endswith(CLERK_SCRIPT)
        self.log(json.dumps(["asked inside" if is_nested else "asked", item_lines(body["input"])]))
        self.countdown("before a request")
        async with aclosing(self.endpoint.create(body)) as events:
            async for event in events:
                if event["type"] == "response.completed" and not is_nested:
                    self.log(json.dumps(["answered"]))
                    self.countdown("before the end of an answer is heard")
                yield event
        self.countdown("after an answer")


class RunProcess:
    """The part of a run that one process executes, in `folder`."""

    def __init__(self, folder: Path, strategy: Strategy, kill_moment: int | None) -> None:
        self.folder, self.strategy, self.countdown = folder, strategy, KillCountdown(kill_moment)
        self.store = open_store(f"sqlite:{folder / 'convo.db'}")

    def log(self, line: str) -> None:
        with (self.folder / "log").open("a") as file:
            file.write(line + "\n")

    def agents(self) -> tuple[Agent, Agent]:
        def logged_function(name: str) -> Callable[[], str]:
            def run() -> str:
                self.log(json.dumps(["ran", name]))
                self.countdown(f"within {name}")
                return f"{name} done"

            return run

        def make_tool(name: str, **settings: Any) -> Any:
            return tool(name=name, **settings)(logged_function(name))

        billing_handoff = Handoff("billing", taken=lambda context, message: self.log(json.dumps(["ran", "told"])))
        clerk = Agent(
            "clerk", model=f"scripted/{self.folder / CLERK_SCRIPT}", tools=(make_tool("stamp", needs_approval=True),)
        )
        billing = Agent("billing", tools=(make_tool("bill"), agent_tool(clerk, "ask", "Ask the clerk.")))
        tools = (make_tool("look"), make_tool("find"), make_tool("pay", needs_approval=True))
        return Agent("desk", tools=tools, handoffs=(billing_handoff,)), billing

    async def open(self) -> AgentRunner:
        store: Any = KillableStore(self.store, self.countdown)
        endpoint: Any = KillableEndpoint(make_embedded_endpoint(self.store), self.countdown, self.log)
        deps = ChatDeps(store, endpoint, FixedClock(), random_id)
        model = f"scripted/{self.folder / 'script.json'}"
        session = await find_selected_session(store, OwnerSelection(None, NAME)) if await store.session(NAME) else None
        file = str(self.folder / "talk.json")
        selection = OwnerSelection(
            self.strategy, NAME if session else file if self.strategy is Strategy.REPLAY else None
        )
        chat = await open_chat(selection, session, RequestOptions(model, model), deps, name=NAME)
        config = RunConfig(
            RunLimits(max_parallel_calls=2),
            resolve_model=lambda model: ModelRoute(RequestOptions(str(model), str(model)), endpoint),
            open_scratch_store=lambda: open_store("memory"),
            test_hook=self.countdown,
        )
        return await AgentRunner.open(chat, graph(*self.agents()), config)

    async def run_to_end(self) -> None:
        """Send the message unless it was sent, and resume until the run is done; every pending call is decided."""
        try:
            runner = await self.open()
            if runner.run_row is None and not await self.has_session():
                async for _ in runner.start([user_message("hello")]):
                    pass
            while runner.can_resume:
                await runner.apply_decisions(*(self.decision(call) for call in runner.pending_calls))
                async for _ in runner.resume():
                    pass
            self.countdown("at the end")
        finally:
            await self.store.aclose()

    async def has_session(self) -> bool:
        return await self.store.session(NAME) is not None

    def decision(self, call: ToolCall) -> ApprovalDecided | ToolOutputSupplied:
        if call.stage is Stage.OUTCOME_UNKNOWN:
            self.log(json.dumps(["unknown", call.lookup[-1]]))
            return ToolOutputSupplied(call.id, f"{call.lookup[-1]} done")
        return ApprovalDecided(call.id, approve=True)

    async def final_items(self) -> list[str]:
        """The items of the finished conversation; asserts that the copy of their owner is equal."""
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
            return item_lines(items)
        finally:
            await self.store.aclose()


SCRIPT = (
    tool_calls(("c1", "look"), ("c2", "pay"), ("c3", "find")),
    tool_calls(("c4", "transfer_to_billing")),
    tool_calls(("c5", "bill"), ("c6", "ask", {"input": "well?"})),
    {"text": "Done."},
)
NESTED_SCRIPT = (tool_calls(("i1", "stamp")), {"text": "ask done"})


def run_in_child(work: Callable[[], None]) -> int:
    """Run `work` in a forked child; returns its status as `os.waitpid` does."""
    child = os.fork()
    if not child:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - reported to the parent process, which fails
            print(json.dumps({"error": repr(error)}), flush=True)
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1]


def run_with_kills(folder: Path, strategy: Strategy, first_moment: int, step: int) -> None:
    for kill_moment in count(first_moment, step):
        run_folder = folder / f"{strategy}-{kill_moment}"
        run_folder.mkdir()
        scripted_model(run_folder, *SCRIPT)
        scripted_model(run_folder, *NESTED_SCRIPT, name=CLERK_SCRIPT)

        def run_until_killed(run_folder: Path = run_folder, moment: int = kill_moment) -> None:
            asyncio.run(RunProcess(run_folder, strategy, moment).run_to_end())

        def run_to_end(run_folder: Path = run_folder) -> None:
            asyncio.run(RunProcess(run_folder, strategy, None).run_to_end())
            items = asyncio.run(RunProcess(run_folder, strategy, None).final_items())
            log = [json.loads(line) for line in (run_folder / "log").read_text().splitlines()]
            print(json.dumps({"found": items, "log": log}), flush=True)

        status = run_in_child(run_until_killed)
        if not os.WIFSIGNALED(status) and status:
            return
        run_in_child(run_to_end)
        if not os.WIFSIGNALED(status):
            return


if __name__ == "__main__":
    run_with_kills(Path(sys.argv[1]), Strategy(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
