"""`convo chat --mcp NAME|COMMAND|URL`: the model of a plain chat calls the tools of MCP servers."""

import asyncio
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat_commands import ECHO, scripted_flags, stored_conversation
from tests.command_runner import ROOT, Convo, Launch
from tests.loopback_server import LoopbackServer
from tests.terminal.plain_repl import run_repl

pytestmark = pytest.mark.needs("mcp")

SETTINGS = """
[mcp.math]
url = "{url}"
headers = ["X-Team: $TEAM"]
blocked_tools = ["sleep"]
approved_tools = ["fail"]
[mcp.process]
command = {command}
env = ["TEAM", "PYTHONPATH={root}"]
allowed_tools = ["environ"]
approval = "never"
"""

DONE = {"text": "Done."}


def call(name: str, call_id: str, /, **arguments: Any) -> dict[str, Any]:
    return {"call": {"name": f"mcp__{name}", "call_id": call_id, "arguments": arguments}}


ADD, FAIL = call("math__add", "c1", a=2, b=3), call("math__fail", "c2", reason="no")


@pytest.fixture(scope="module")
def running() -> Iterator[Any]:
    from tests.mcp_server import run_mcp_server

    with run_mcp_server() as server:
        yield server


@pytest.fixture
def mcp(running: Any, home: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The servers `math`, over HTTP, and `process` in the user's settings."""
    running.calls.clear()
    running.heads.clear()
    monkeypatch.setenv("TEAM", "desk")
    command = json.dumps([sys.executable, "-m", "tests.mcp_server"])
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(SETTINGS.format(url=running.url, command=command, root=ROOT))
    return running


def test_a_call_pauses_until_it_is_approved_and_runs_once(mcp: Any, convo: Convo, home: Path) -> None:
    got = convo("chat", "--mcp", "math", *scripted_flags(ADD, FAIL, DONE), "-n", "mine", "2 + 3?")
    assert (got.exit, got.out, mcp.calls) == (3, "", []), got.err
    assert "to decide and resume: convo resume mine --mcp math" in got.err.replace("\n", " ")
    resumed = convo("resume", "mine", "--approve", "c1")
    assert (resumed.exit, resumed.out, mcp.calls) == (0, "Done.\n", ["add", "fail"]), resumed.err
    assert "using this run's tools: math\n" in resumed.err
    assert "agent" not in json.loads(convo("inspect", "mine", "--json").out)
    assert {head["x-team"] for head in mcp.heads} == {"desk"}
    items, _ = stored_conversation(home, "mine")
    outputs = [item["output"] for item in items if item["type"] == "function_call_output"]
    assert outputs == ["5", "Error: Error executing tool fail"]


def test_a_context_that_cannot_be_read_is_refused_before_a_server_is_connected(mcp: Any, convo: Convo) -> None:
    convo("chat", "--mcp", "math", *scripted_flags(ADD, DONE), "-n", "mine", "2 + 3?")
    mcp.heads.clear()
    got = convo("resume", "mine", "--approve", "c1", "--context", "missing.json")
    assert (got.exit, mcp.heads) == (2, []), got.err
    assert "missing.json" in got.err


def test_the_hints_of_a_paused_run_name_no_agents(mcp: Any, convo: Convo) -> None:
    convo("chat", "--mcp", "math", *scripted_flags(ADD, DONE), "-n", "mine", "2 + 3?")
    assert "convo resume mine, or convo approvals\n" in convo("chat", "-c", "--agent", "none", "more").err
    shown = convo("inspect", "mine").out
    assert ("convo resume mine\n" in shown, "--agent" in shown) == (True, False), shown
    assert "to resume: convo resume mine\n" in convo("approvals", "approve", "c1").err


def test_a_rejected_call_does_not_run(mcp: Any, convo: Convo) -> None:
    convo("chat", "--mcp", "math", *scripted_flags(ADD, DONE), "-n", "mine", "2 + 3?")
    got = convo("resume", "mine", "--reject", "c1=later")
    assert (got.exit, got.out, mcp.calls) == (0, "Done.\n", []), got.err


def test_a_request_has_the_tools_of_functions_and_of_all_servers_that_may_be_called(
    mcp: Any, convo: Convo, server: LoopbackServer
) -> None:
    Path("desk.py").write_text("def look(order: str) -> str:\n    return order\n")
    flags = ("--mcp", "math", "--mcp", f"own={mcp.url}", "--tool", "desk.py:look")
    got = convo("chat", *flags, "-m", "openai/gpt-4o", "hi")
    assert got.exit == 0, got.err
    tools = {tool["name"]: tool for tool in server.bodies[0]["tools"]}
    listed = ["add", "fail", "long", "environ"]
    assert [*tools] == [
        *(f"mcp__math__{name}" for name in listed), *(f"mcp__own__{name}" for name in (*listed, "sleep")), "look",
    ]  # fmt: skip
    assert tools["mcp__math__add"]["description"] == "Add two numbers."
    assert [*tools["mcp__math__add"]["parameters"]["properties"]] == ["a", "b"]


def test_a_command_runs_again_from_any_folder_and_its_environment_is_that_of_the_settings(
    mcp: Any, convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("serve.py").write_text(f"import sys\nsys.path.insert(0, {str(ROOT)!r})\nimport runpy\n"
                                "runpy.run_module('tests.mcp_server', run_name='__main__')\n")  # fmt: skip
    script = [call("process__environ", "c1", name="TEAM"), call("shop__environ", "c2", name="TEAM"), DONE]
    flags = ("--mcp", "process", "--mcp", f"shop={sys.executable} serve.py")
    got = convo("chat", *flags, *scripted_flags(*script), "-n", "mine", "who?")
    assert got.exit == 3, got.err
    assert "mcp__process__environ returned desk" in got.err
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    resumed = convo("resume", "mine", "--approve", "c2")
    assert (resumed.exit, resumed.out) == (0, "Done.\n"), resumed.err
    assert "mcp__shop__environ returned nothing\n" in resumed.err  # a server has no variables but those named


def test_calls_of_one_response_run_at_once(convo: Convo) -> None:
    from tests.mcp_server import run_mcp_server

    calls = [{"type": "function_call", **call("math__meet", call_id)["call"], "arguments": "{}"} for call_id in "ab"]
    with run_mcp_server() as mcp:
        both = asyncio.Barrier(2)

        @mcp.server.tool(structured_output=False)  # type: ignore[untyped-decorator]
        async def meet() -> str:
            """Wait for the other call."""
            await asyncio.wait_for(both.wait(), 10)
            return "met"

        convo("chat", "--mcp", f"math={mcp.url}", *scripted_flags({"output": calls}, DONE), "-n", "mine", "go")
        got = convo("resume", "mine", "--approve", "all")
    assert (got.exit, got.out) == (0, "Done.\n"), got.err
    assert got.err.count("mcp__math__meet returned met") == 2


def test_an_image_is_a_content_part_of_the_output(convo: Convo, home: Path) -> None:
    from mcp.server.mcpserver import Image

    from tests.mcp_server import run_mcp_server

    with run_mcp_server() as mcp:

        @mcp.server.tool(structured_output=False)  # type: ignore[untyped-decorator]
        def draw() -> list[Any]:
            """Draw a dot."""
            return ["a dot", Image(data=b"dot", format="png")]

        convo("chat", "--mcp", f"math={mcp.url}", *scripted_flags(call("math__draw", "c1"), DONE), "-n", "mine", "go")
        got = convo("resume", "mine", "--approve", "all")
    assert (got.exit, got.out) == (0, "Done.\n"), got.err
    items, _ = stored_conversation(home, "mine")
    assert items[2]["output"] == [
        {"type": "input_text", "text": "a dot"},
        {"type": "input_image", "image_url": "data:image/png;base64,ZG90"},
    ]


def test_tools_that_changed_during_a_pause_are_reported_before_they_run(convo: Convo) -> None:
    from tests.mcp_server import run_mcp_server

    with run_mcp_server() as mcp:
        convo("chat", "--mcp", f"math={mcp.url}", *scripted_flags(ADD, DONE), "-n", "mine", "2 + 3?")
        mcp.server.remove_tool("long")
        mcp.server.remove_tool("add")

        @mcp.server.tool(structured_output=False)  # type: ignore[untyped-decorator]
        def add(a: int, b: int, c: int = 0) -> str:
            """Add numbers."""
            return str(a + b + c)

        @mcp.server.tool()  # type: ignore[untyped-decorator]
        def drop() -> str:
            """Drop all."""
            return ""

        got = convo("resume", "mine", "--approve", "c1")
    assert got.exit == 0, got.err
    changes = "mcp__math__add has changed, mcp__math__drop is new, mcp__math__long is missing"
    assert f"tools of MCP servers differ from those in the request of this run: {changes}\n" in got.err
    assert got.err.index("differ from") < got.err.index("mcp__math__add returned 5")


def test_a_prompt_lists_the_servers_with_their_state_and_tools(mcp: Any) -> None:
    got = run_repl("--mcp", "math", *ECHO, lines=["/mcp"])
    assert f"  math  {mcp.url} (connected)\n    mcp__math__add  Add two numbers.  (needs approval)\n" in got.err
    assert "    mcp__math__fail  Fail.\n" in got.err
    assert "no MCP servers; a chat with one: convo chat --mcp NAME" in run_repl(*ECHO, lines=["/mcp"]).err


@pytest.mark.parametrize(
    ("references", "message", "hint"),
    [
        (["nope"], "no MCP server or program 'nope'", "[mcp.NAME] has math, process"),
        (["math", "math=sh -c x"], "two MCP servers are named 'math'", "--mcp OTHER="),
        (["https://x.org/mcp?team=abc"], "must be a URL without user, password or query", "--mcp URL"),
        (["sh -c 'unclosed"], "No closing quotation", "--mcp 'COMMAND'"),
        (["env API_KEY=sk-proj-abcdefghijklmnopqrstuvwx0123 sh"], "--mcp has a key in it", "[mcp.NAME], with key_env"),
        (
            ["https://x.org/s/NGYzODc0YmUtZGI4Yi00ZDhi/mcp"],
            "--mcp has a key in it",
            "a conversation stores only the name",
        ),
        (["sh -c x --password hunter2"], "--mcp has a key in it", "[mcp.NAME], with key_env"),
        (["false"], "MCP server 'false' failed: its command false ended with exit code 1", "check the MCP server"),
    ],
)
def test_a_server_that_cannot_be_used_is_refused_before_anything_is_stored(
    references: list[str], message: str, hint: str, mcp: Any, launch: Launch
) -> None:
    flags = [word for reference in references for word in ("--mcp", reference)]
    got = launch("chat", *flags, *ECHO, "hi")
    assert (got.exit in (1, 2, 5), got.out) == (True, ""), got
    assert message in got.err
    assert hint in got.err
    assert "Traceback" not in got.err
    assert json.loads(launch("sessions", "--json").out or "[]") == []


@pytest.mark.parametrize("flags", [("--agent", "desk.py:a"), ("--nest-history",)])
def test_servers_are_not_combined_with_options_of_agents(flags: tuple[str, ...], convo: Convo) -> None:
    got = convo("chat", "--mcp", "math", *flags, *ECHO, "hi")
    assert got.exit == 2
    assert "--mcp" in got.err


def test_the_file_of_a_project_adds_no_server_before_it_is_trusted(convo: Convo, running: Any) -> None:
    Path(".convo.toml").write_text(f'[mcp.theirs]\nurl = "{running.url}"\n')
    got = convo("chat", "--mcp", "theirs", *ECHO, "hi")
    assert got.exit == 5
    assert "is not trusted, so these settings are ignored: mcp.theirs" in got.err
    assert convo("config", "trust").exit == 0
    assert convo("chat", "--mcp", "theirs", *ECHO, "hi").exit == 0


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('url = "http://x.org"\nenv = ["A=b"]', "has env, which needs a command"),
        ('command = ["sh"]\nheaders = ["A: b"]', "has headers, which need a url"),
        ('url = "http://x.org"\nheaders = ["X-Api-Key: hush"]', "has the value of X-Api-Key in it"),
        ('command = ["sh"]\nenv = ["API_TOKEN=hush"]', "has the value of API_TOKEN in it"),
        ('command = ["sh"]\nenv = ["UNSET_NAME"]', "refers to the variable UNSET_NAME, which is not set"),
    ],
)
def test_settings_that_do_not_fit_or_contain_a_key_are_refused(
    line: str, message: str, convo: Convo, home: Path
) -> None:
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"[mcp.shop]\n{line}\n")
    got = convo("chat", "--mcp", "shop", *ECHO, "hi")
    assert got.exit == 2
    assert message in got.err
    assert "hush" not in got.err
