"""A `ConvoSession` is a session for the Agents SDK, and every command sees it."""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import agents as sdk
import pytest
from agents.memory import Session, SessionSettings

from convo import ConvoError, ConvoSession, open_store
from convo.errors import Busy, InvalidSettings, InvalidUsage, NotFound, WrongOwner
from tests.cli.test_sdk_parameters import run_sdk
from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer

QUESTION: Any = {"role": "user", "content": "Is A1 paid?"}
CALL: Any = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "new_field": [None, 2.5]}
OUTPUT: Any = {"type": "function_call_output", "call_id": "c1", "output": "yes"}

MODEL = "openai/gpt-4o"


@pytest.fixture
def server(loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> LoopbackServer:
    """A server in place of OpenAI, for the SDK and for the commands."""
    for name, value in loopback.environ.items():
        monkeypatch.setenv(name, value)
    return loopback


@pytest.fixture
def session() -> Iterator[ConvoSession]:
    made = ConvoSession("desk", model=MODEL)
    yield made
    asyncio.run(made.aclose())


def look(order: str) -> str:
    """Find an order."""
    return f"{order} is paid"


AGENT: Any = sdk.Agent(name="desk", model="gpt-4o", tools=[sdk.function_tool(look)])


def test_the_sdk_and_the_commands_continue_one_session(
    session: ConvoSession, server: LoopbackServer, convo: Convo
) -> None:
    as_protocol: Session = session
    server.replies({"call": {"name": "look", "arguments": {"order": "A1"}}}, {"text": "Yes."})
    asyncio.run(run_sdk(AGENT, server, {"input": "Is A1 paid?", "session": as_protocol}))
    assert [one["name"] for one in convo("sessions", "--json").json()] == ["desk"]
    assert "A1 is paid" in convo("inspect", "desk", "--items").out

    server.replies({"text": "A1."})
    assert convo("chat", "-c", "Which order?").out == "A1.\n"
    kinds = [item.get("role", item.get("type")) for item in server.bodies[-1]["input"]]
    assert kinds == ["user", "function_call", "function_call_output", "assistant", "user"]

    server.replies({"text": "Bye."})
    asyncio.run(run_sdk(AGENT, server, {"input": "Thanks.", "session": session}))
    sent = server.bodies[-1]["input"]
    assert len(sent) == 7
    assert sent[-1]["content"] == "Thanks."
    assert convo("inspect", "desk").exit == 0


def test_the_sdk_has_the_same_history_as_with_its_own_session(session: ConvoSession, server: LoopbackServer) -> None:
    histories = []
    for one in (session, sdk.SQLiteSession("desk")):
        server.replies({"call": {"name": "look", "arguments": {"order": "A1"}}}, {"text": "Yes."}, {"text": "Bye."})
        for message in ("Is A1 paid?", "Thanks."):
            asyncio.run(run_sdk(AGENT, server, {"input": message, "session": one}))
        histories.append([{**item, "id": "", "call_id": ""} for item in asyncio.run(one.get_items())])
    assert histories[0] == histories[1]


async def test_items_come_back_as_they_were_added() -> None:
    async with open_store("memory") as store:
        one = store.session("desk")
        await one.add_items([QUESTION, CALL])
        await one.add_items([])
        await one.add_items([OUTPUT])
        assert await one.get_items() == [QUESTION, CALL, OUTPUT]
        assert await one.get_items(2) == [CALL, OUTPUT]
        assert await one.get_items(0) == []
        one.session_settings = SessionSettings(limit=1)
        assert await one.get_items() == [OUTPUT]
        assert await store.items("desk") == [QUESTION, CALL, OUTPUT]
        assert [await one.pop_item(), await one.pop_item(), await one.pop_item()] == [OUTPUT, CALL, QUESTION]
        assert await one.pop_item() is None
        await one.add_items([QUESTION])
        await one.clear_session()
        assert (await one.get_items(), await store.sessions()) == ([], [])
        await one.clear_session()


async def test_changes_at_the_same_time_all_count() -> None:
    async with open_store("memory") as store:
        sessions = [store.session("desk") for _ in range(10)]
        await asyncio.gather(*(one.add_items([{"role": "user", "content": str(n)}]) for n, one in enumerate(sessions)))
        popped: list[Any] = await asyncio.gather(*(one.pop_item() for one in sessions))
        assert sorted(item["content"] for item in popped) == sorted(map(str, range(10)))
        await sessions[0].add_items([QUESTION])
        await asyncio.gather(*(one.clear_session() for one in sessions))
        assert await store.sessions() == []


ADD = """
import asyncio, sys
from convo import ConvoSession

async def add():
    session = ConvoSession("desk")
    for number in range(20):
        await session.add_items([{"role": "user", "content": f"{sys.argv[1]} {number}"}])
    await session.aclose()

asyncio.run(add())
"""


def test_no_item_of_two_processes_is_lost(session: ConvoSession) -> None:
    processes = [subprocess.Popen([sys.executable, "-c", ADD, name]) for name in "ab"]
    assert [process.wait() for process in processes] == [0, 0]
    items: list[Any] = asyncio.run(session.get_items())
    texts = [item["content"] for item in items]
    for name in "ab":
        assert [text for text in texts if text[0] == name] == [f"{name} {number}" for number in range(20)]
    assert len(texts) == 40


def test_an_item_that_the_sdk_removes_stays_in_the_request_that_had_it(
    session: ConvoSession, server: LoopbackServer, convo: Convo
) -> None:
    server.replies({"text": "Hello."}, {"text": "Hello again."})
    convo("chat", "--name", "desk", "-m", MODEL, "Hi")
    convo("chat", "-c", "Hi again")
    popped: Any = asyncio.run(session.pop_item())
    assert popped["content"][0]["text"] == "Hello again."
    assert len(convo("inspect", "desk", "--json").json()["links"]) == 2
    server.replies({"text": "Good evening."})
    assert convo("chat", "-c", "Once more").exit == 0
    sent = [item["content"] for item in server.bodies[-1]["input"]]
    texts = [content if isinstance(content, str) else content[0]["text"] for content in sent]
    assert texts == ["Hi", "Hello.", "Hi again", "Once more"]


def test_a_session_that_is_not_the_applications_is_not_changed(
    session: ConvoSession, server: LoopbackServer, convo: Convo
) -> None:
    server.replies({"text": "Hello."})
    assert convo("chat", "--chain", "--name", "desk", "-m", MODEL, "Hi").exit == 0
    assert len(asyncio.run(session.get_items())) == 2
    for change in (session.add_items([QUESTION]), session.pop_item(), session.clear_session()):
        with pytest.raises(WrongOwner, match="--chain") as caught:
            asyncio.run(change)
        assert isinstance(caught.value, ConvoError)
        assert caught.value.hint == "convo convert desk --to session"


async def test_a_session_that_a_chat_has_open_is_not_changed() -> None:
    async with open_store("memory") as store:
        one = store.session("desk")
        await one.add_items([QUESTION])
        (stored,) = await store.sessions()
        await store._store.acquire_lease(f"session {stored.id}", "desk@1:42:17", 3600)
        with pytest.raises(Busy, match="process 42 on desk"):
            await one.add_items([OUTPUT])
        assert await one.get_items() == [QUESTION]


def test_a_model_without_a_provider_is_refused_before_a_run() -> None:
    with pytest.raises(InvalidSettings, match="nobody"):
        ConvoSession("desk", model="nobody/gpt-4o")


@pytest.mark.parametrize("name", ["resp_1", "./x.json", "", "@last", "-c"])
def test_a_name_that_is_another_handle_is_refused(name: str) -> None:
    with pytest.raises(InvalidUsage):
        ConvoSession(name)


async def test_an_unknown_id_is_not_a_name() -> None:
    async with open_store("memory") as store:
        with pytest.raises(NotFound):
            await store.session("ses_1").add_items([QUESTION])
