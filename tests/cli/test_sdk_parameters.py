"""Every public parameter of the Agents SDK sends the same requests from convo, or is refused by name before any.

The rows are in `tests.cli.sdk_parameters`; a parameter of a new release fails a test until it has one.
"""

import asyncio
import dataclasses
import json
import re
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import agents as sdk
import pytest
from agents.models.openai_provider import OpenAIProvider
from openai import AsyncOpenAI, OpenAI

from convo.history.canonical import digest
from tests.cli.sdk_parameters import CALL, DONE, SEEN, TABLES, add, build_case, list_parameters
from tests.cli.test_sdk_agents import normalize_request
from tests.command_runner import Convo
from tests.docs.agents import PAGE, page
from tests.loopback_server import KEY, LoopbackServer

MODEL = "gpt-4o"

FILE = "from tests.cli.test_sdk_parameters import CURRENT\nglobals().update(CURRENT)\n"

PRE_APPROVAL = sdk.run_config.ToolExecutionConfig(pre_approval_tool_input_guardrails=True)

CURRENT: dict[str, Any] = {}
"""The objects that desk.py has."""

NAMED_BY_OPTIONS = ("context", "session", "previous_response_id", "conversation_id", "auto_previous_response_id")


@pytest.mark.parametrize("table", TABLES)
def test_every_public_parameter_has_a_row(table: str) -> None:
    rows, definition = TABLES[table]
    assert list(rows) == list_parameters(definition)


def test_the_page_is_up_to_date() -> None:
    """To update the page: python -m tests.docs.agents > .github/AGENTS.md"""
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize(
    ("run", "text"),
    [
        ({"hooks": sdk.AgentHooks()}, "hooks is a AgentHooksBase"),
        ([1], "--run-config names a list"),
        ({"run_config": sdk.RunConfig(tool_execution=PRE_APPROVAL)}, "pre_approval_tool_input_guardrails"),
        ({"temperature": 1}, "the argument temperature"),
    ],
)
def test_what_is_no_run_configuration_is_refused(
    run: object, text: str, convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.py").write_text(FILE, encoding="utf-8")
    CURRENT.clear()
    CURRENT.update(agent=sdk.Agent(name="a"), run=run)
    got = convo("chat", "--agent", "desk.py:agent", "--run-config", "desk.py:run", "--json", "hello")
    assert (got.exit != 0, server.bodies) == (True, [])
    assert text in got.json()["error"]["message"]


async def run_sdk(agent: Any, server: LoopbackServer, arguments: dict[str, Any]) -> None:
    message = arguments.pop("input", "hello")
    config = dataclasses.replace(arguments.pop("run_config", None) or sdk.RunConfig(), tracing_disabled=True)
    config.model = config.model or (MODEL if agent.model is None else None)
    async with AsyncOpenAI(base_url=server.url, api_key=KEY) as client:
        config.model_provider = OpenAIProvider(openai_client=client, use_responses=True)
        await sdk.Runner.run(agent, message, run_config=config, **arguments)


TESTED_ELSEWHERE = ("starting_agent", "mcp_servers", "model_provider")
"""Parameters with tests of their own: the agent itself, `test_sdk_mcp` and `test_sdk_agents`."""

CASES = [(table, name) for table, (rows, _) in TABLES.items() for name in rows if name not in TESTED_ELSEWHERE]


@pytest.mark.parametrize(("table", "name"), CASES)
def test_a_parameter_sends_the_same_requests_or_is_refused_by_name(
    table: str, name: str, convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = TABLES[table][0][name]
    monkeypatch.chdir(tmp_path)
    server.replies(*build_case(table, name).replies)
    options, arguments = list(row.options), dict(build_case(table, name).arguments)
    if row.result == "same":
        if name.startswith("session"):  # the SDK honours the RunConfig fields only with one
            arguments["session"] = make_session() if name == "session" else sdk.SQLiteSession("x")
        if options == ["--from"]:
            server.replies(DONE)
            client = OpenAI(base_url=server.url, api_key=KEY)
            create = client.conversations.create if name == "conversation_id" else earlier_response(client)
            arguments[name] = create().id
            options.append(create().id)
            server.replies(*build_case(table, name).replies)
        before, SEEN[:] = len(server.bodies), []
        try:
            asyncio.run(run_sdk(build_case(table, name).agent, server, dict(arguments)))
        except sdk.AgentsException:
            assert row.exit
        expected = [normalize(body) for body in server.bodies[before:]]
        assert expected
        expected_events = list(SEEN)

    case = build_case(table, name)
    run = {key: value for key, value in case.arguments.items() if key not in NAMED_BY_OPTIONS}
    CURRENT.clear()
    CURRENT.update(agent=case.agent, run=run, context=lambda described: arguments["context"], session=make_session())
    (tmp_path / "desk.py").write_text(FILE, encoding="utf-8")
    before, SEEN[:] = len(server.bodies), []
    options += ["-m", f"openai/{MODEL}"] if "-m" not in options and case.agent.model is None else []
    if "-m" not in row.options and run:
        options += ["--run-config", "desk.py:run"]
    message = () if "input" in run else ("hello",)
    got = convo("chat", "--agent", "desk.py:agent", *options, "--json", *message)
    bodies = [normalize(body) for body in server.bodies[before:]]

    if row.result == "refused":
        assert (got.exit, bodies) == (1, [])
        assert (row.text or name) in got.json()["error"]["message"]
        return
    assert got.exit == row.exit, got.out + got.err
    assert bodies == expected
    assert expected_events == SEEN
    if name == "session":
        assert read_items(CURRENT["session"]) == read_items(arguments["session"])


def make_session() -> sdk.SQLiteSession:
    session = sdk.SQLiteSession("x")
    asyncio.run(session.add_items([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "Hello."}]))
    return session


def read_items(session: sdk.SQLiteSession) -> list[str]:
    return [digest(cast("dict[str, Any]", item)) for item in asyncio.run(session.get_items())]


def earlier_response(client: OpenAI) -> Any:
    return lambda: client.responses.create(model=MODEL, input="earlier")


def normalize(body: dict[str, Any]) -> dict[str, Any]:
    """Return a request without ids, which differ between two runs, in texts of a summary too."""
    fields = normalize_request(json.loads(re.sub(r"\\?\"id\\?\": \\?\"\w+\\?\",? ?", "", json.dumps(body))))
    return {**fields, **{name: "id" for name in ("previous_response_id", "conversation") if fields.get(name)}}


def test_a_rejected_call_has_the_text_of_the_tool_error_formatter(
    convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.py").write_text(FILE, encoding="utf-8")
    agent = sdk.Agent(name="a", tools=[sdk.function_tool(add, needs_approval=True)])
    CURRENT.clear()
    CURRENT.update(
        agent=agent, run=sdk.RunConfig(tool_error_formatter=lambda error: f"{error.kind}: {error.tool_name}")
    )
    server.replies(CALL, DONE)
    options = ("--agent", "desk.py:agent", "--run-config", "desk.py:run")
    assert convo("chat", *options, "-m", f"openai/{MODEL}", "--state", "paused.json", "hello").exit == 3
    assert convo("resume", "paused.json", *options, "--reject", "c1").exit == 0
    (output,) = [item for item in server.bodies[-1]["input"] if item["type"] == "function_call_output"]
    assert output["output"] == "approval_rejected: add"


def test_a_session_of_the_sdk_receives_each_item_once(
    convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "desk.py").write_text(FILE, encoding="utf-8")
    CURRENT.clear()
    CURRENT.update(agent=sdk.Agent(name="a", tools=[sdk.function_tool(add)]), session=make_session())
    server.replies(DONE, CALL, DONE)
    options = ("--agent", "desk.py:agent", "-m", f"openai/{MODEL}", "--sdk-session", "desk.py:session")
    for words in (("hello",), ("-c", "again")):
        assert convo("chat", *options, *words).exit == 0
    types = ["user", "assistant", "user", "function_call", "function_call_output", "assistant", "user", "assistant"]
    items = asyncio.run(CURRENT["session"].get_items())
    assert [item.get("role") or item.get("type") for item in items] == types
    refused = convo("chat", *options, "--chain", "--json", "hello")
    assert (refused.exit, refused.json()["error"]["code"]) == (2, "wrong_owner")
    (tmp_path / "made.py").write_text("import desk\ndef make(): return desk.session\nother = 1\n", encoding="utf-8")
    server.replies(DONE)
    assert convo("chat", *options[:-1], "made.py:make", "-n", "next", "hello").exit == 0
    assert len(asyncio.run(CURRENT["session"].get_items())) == len(types) + 2
    assert "is not a session of the Agents SDK" in convo("chat", *options[:-1], "made.py:other", "hello").err


REMEMBERED = """
from agents import Agent, GuardrailFunctionOutput, RunConfig, SQLiteSession, function_tool, input_guardrail

@input_guardrail
def polite(context, agent, input):
    input = [input] if isinstance(input, str) else input
    return GuardrailFunctionOutput(output_info=None, tripwire_triggered="rude" in str(input[-1]))

@function_tool(needs_approval=True)
def add(a: int, b: int) -> int:
    return a + b

def greet(context, agent):
    return f"Greet {context.context['name']}."

desk = Agent(name="desk", instructions=greet, tools=[add])
other = Agent(name="other", instructions=greet)
run = RunConfig(input_guardrails=[polite])

class Session(SQLiteSession):
    def __del__(self):  # each load of this file makes another one, and Python 3.13 warns of those left open
        self.close()

session = Session("one", "session.db")
"""


def read_session() -> list[str]:
    with closing(sdk.SQLiteSession("one", "session.db")) as session:
        items = asyncio.run(session.get_items())
    return [str(item.get("role") or item.get("type")) for item in items]


def test_the_options_of_a_session_are_remembered_with_its_agents(
    convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bot.py").write_text(REMEMBERED, encoding="utf-8")
    (tmp_path / "who.json").write_text('{"name": "Ada"}', encoding="utf-8")
    options = ("--run-config", "bot.py:run", "--sdk-session", "bot.py:session", "--context", "who.json")
    server.replies(CALL, DONE, DONE, DONE)
    paused = convo("chat", "--agent", "bot.py:desk", "-m", f"openai/{MODEL}", *options, "-n", "mine", "hello")
    expected = "resume mine --agent bot.py:desk --run-config bot.py:run --sdk-session bot.py:session --approve c1"
    assert (paused.exit, expected in paused.err.replace("\n", " ")) == (3, True), paused.err
    resumed = convo("resume", "mine", "--approve", "c1")
    assert (resumed.exit, f"using this run's --run-config: {tmp_path}/bot.py:run" in resumed.err) == (0, True)
    turn = ["user", "function_call", "function_call_output", "assistant"]
    assert read_session() == turn
    for agents in ((), ("--agent", "bot.py:other")):
        assert convo("chat", "-c", *agents, "rude").exit == 1
        assert convo("chat", "-c", *agents, "again").exit == 0
    assert server.bodies[-1]["instructions"] == "Greet Ada."
    assert read_session().count("assistant") == 3
    assert convo("next", "mine", "hello", "--json").json()["body"]["instructions"] == "Greet Ada."
    refused = convo("chat", "-c", "--context", "none", "hello")
    assert "'NoneType' object is not subscriptable" in refused.err
    assert "--context" in refused.err.partition("try: ")[2]
    server.replies(DONE)
    without = ("--run-config", "none", "--sdk-session", "none", "--context", "who.json")
    assert convo("chat", "-c", *without, "rude").exit == 0
    assert read_session().count("assistant") == 3


def test_a_session_of_the_sdk_receives_what_a_killed_process_did_not_give_it(
    convo: Convo, server: LoopbackServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bot.py").write_text(REMEMBERED, encoding="utf-8")
    (tmp_path / "who.json").write_text('{"name": "Ada"}', encoding="utf-8")
    options = ("--sdk-session", "bot.py:session", "--context", "who.json")
    server.replies(DONE, DONE, DONE)
    assert convo("chat", "--agent", "bot.py:desk", "-m", f"openai/{MODEL}", *options, "hello").exit == 0
    assert convo("chat", "-c", "--sdk-session", "none", "a turn that the session lacks").exit == 0
    assert read_session() == ["user", "assistant"]
    assert convo("chat", "-c", "--sdk-session", "bot.py:session", "again").exit == 0
    assert read_session() == ["user", "assistant"] * 3
    server.replies(DONE)
    assert convo("chat", "--fork", "@last", "another way").exit == 0
    assert read_session() == ["user", "assistant"] * 3
