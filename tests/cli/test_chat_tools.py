"""`convo chat --tool FILE.py:NAME`: the model of a plain chat calls Python functions."""

import json
from pathlib import Path

import pytest

from tests.cli.agent_files import LOOK_UP, PAID_BACK, REFUND, stored_runs, tool_runs
from tests.cli.chat_commands import receipts, scripted_flags, stored_conversation, stored_sessions
from tests.command_runner import Convo, Launch
from tests.loopback_server import LoopbackServer

TOOLS = """
import pathlib
from convo.tools import Context, tool

def note(words: str) -> str:
    with (pathlib.Path(__file__).parent / "ran.txt").open("a") as file:
        file.write(words + "\\n")
    return words

def look_up(order: str) -> str:
    "Find an order."
    print("looking")
    note(f"look_up {order}")
    return f"{order} cost 500 cents"

@tool(needs_approval=True)
def refund(order: str, cents: int) -> str:
    "Pay an order back."
    note(f"refund {order} {cents}")
    return f"paid {cents} cents back for {order}"

def untyped(order):
    return order

nameless = lambda order: order
LIMIT = 5
class Desk: pass
"""

OWNERS = ("--replay", "--session", "--conversation", "--chain")
LOOK_UP_TOOL = ("--tool", "desk.py:look_up")
BOTH_TOOLS = (*LOOK_UP_TOOL, "--tool", "desk.py:refund")


@pytest.fixture(autouse=True)
def tool_file() -> Path:
    """The file of the tools, in the working folder."""
    path = Path("desk.py")
    path.write_text(TOOLS)
    return path


@pytest.mark.parametrize("owner", OWNERS)
def test_the_model_calls_a_function_with_every_owner(owner: str, convo: Convo, home: Path) -> None:
    model = scripted_flags(LOOK_UP, {"text": "It cost 5."})
    got = convo("chat", *LOOK_UP_TOOL, *model, owner, "-n", "mine", "What did A1 cost?")
    assert (got.exit, got.out) == (0, "It cost 5.\n"), got.err
    lines = [line for line in got.err.splitlines() if not line.startswith("saving")]
    assert lines[:3] == [
        'assistant calls look_up {"order": "A1"}',
        "looking",
        "look_up returned A1 cost 500 cents",
    ]
    assert receipts(lines[3].removeprefix("2 calls · "))
    assert tool_runs() == ["look_up A1"]
    items, _ = stored_conversation(home, "mine")
    assert [item["type"] for item in items] == ["message", "function_call", "function_call_output", "message"]


@pytest.mark.parametrize("owner", OWNERS)
def test_a_tool_that_needs_approval_pauses_and_is_loaded_again(
    owner: str, convo: Convo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    model = scripted_flags(LOOK_UP, REFUND, PAID_BACK, {"text": "Anything else?"})
    got = convo("chat", *BOTH_TOOLS, *model, owner, "-n", "mine", "-s", "Be brief.", "pay A1 back")
    assert (got.exit, got.out) == (3, ""), got.err
    resume_command = "convo resume mine --tool desk.py:look_up --tool desk.py:refund"
    assert f"to decide and resume: {resume_command} --approve c1" in got.err.replace("\n", " ")
    folder, elsewhere = Path.cwd(), tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    resumed = convo("resume", "mine", "--approve", "c1")
    assert (resumed.exit, resumed.out) == (0, "Paid back.\n"), resumed.err
    assert f"using this run's tools: {folder}/desk.py:look_up, {folder}/desk.py:refund\n" in resumed.err
    request = convo("next", "mine", "thanks", "--json")
    body = request.json()["body"]
    assert ([tool["name"] for tool in body["tools"]], body["instructions"]) == (["look_up", "refund"], "Be brief.")
    assert f"using this session's tools: {folder}/desk.py:look_up" in request.err
    next_turn = convo("chat", "-c", "thanks")
    assert (next_turn.exit, next_turn.out) == (0, "Anything else?\n"), next_turn.err
    monkeypatch.chdir(folder)
    assert tool_runs() == ["look_up A1", "refund A1 500"]
    assert "tools" not in convo("next", "mine", "--agent", "none", "--json").json()["body"]


def test_a_rejected_call_does_not_run(convo: Convo) -> None:
    convo("chat", *BOTH_TOOLS, *scripted_flags(REFUND, {"text": "Very well."}), "-n", "mine", "pay A1 back")
    got = convo("resume", "mine", *BOTH_TOOLS, "--reject", "c1=not on a Friday")
    assert (got.exit, got.out) == (0, "Very well.\n"), got.err
    assert tool_runs() == []


def test_the_request_has_the_function_the_hosted_tools_and_the_chats_parameters(
    server: LoopbackServer, convo: Convo
) -> None:
    flags = ("-s", "Be brief.", "--temperature", "0", "--param", 'tools=[{"type": "web_search"}]')
    got = convo("chat", *LOOK_UP_TOOL, *flags, "-m", "openai/gpt-4o", "hi")
    assert got.exit == 0, got
    [body] = server.bodies
    assert [tool.get("name", tool["type"]) for tool in body["tools"]] == ["web_search", "look_up"]
    assert body["tools"][1]["description"] == "Find an order."
    assert (body["instructions"], body["temperature"]) == ("Be brief.", 0)


def test_the_json_of_a_turn_with_tools_has_its_items_and_the_answer(convo: Convo) -> None:
    got = convo("chat", "--json", *LOOK_UP_TOOL, *scripted_flags(LOOK_UP, {"text": "It cost 5."}), "A1?")
    result = got.json()
    assert (got.exit, result["status"], result["output_text"]) == (0, "completed", "It cost 5.")
    assert [item["type"] for item in result["output"]] == ["function_call", "function_call_output", "message"]


def test_the_number_of_model_calls_is_limited(convo: Convo) -> None:
    got = convo("chat", *LOOK_UP_TOOL, "--max-turns", "1", *scripted_flags(LOOK_UP, PAID_BACK), "A1?")
    assert got.exit == 1
    assert "convo: " in got.err
    assert "turn" in got.err


@pytest.mark.parametrize(
    ("reference", "message", "hint"),
    [
        ("desk.py:look", "no name 'look' in desk.py", "--tool desk.py:look_up"),
        ("desk.py", "--tool: the name after desk.py is missing", "--tool desk.py:untyped"),
        ("nope.py:look_up", "nope.py is missing or not a file", "--tool "),
        ("desk.toml:look_up", "--tool 'desk.toml:look_up' does not name a .py file", "--tool FILE.py:NAME"),
        ("look_up", "--tool 'look_up' does not name a .py or .toml file", "--tool "),
        ("desk.py:LIMIT", "--tool desk.py:LIMIT is neither a function nor a tool", "decorate a function with @tool"),
        ("desk.py:Desk", "--tool desk.py:Desk is neither a function nor a tool", "decorate a function with @tool"),
        ("desk.py:untyped", "parameter 'order' of tool 'untyped' has no type", "add a type annotation"),
        ("desk.py:nameless", "parameter 'order' of tool '<lambda>' has no type", "add a type annotation"),
        ("broken.py:look_up", "broken.py:2: ZeroDivisionError: division by zero", "fix the file; CONVO_DEBUG=1"),
    ],
)
def test_a_tool_that_cannot_be_loaded_is_refused_without_a_traceback(
    reference: str, message: str, hint: str, launch: Launch, home: Path
) -> None:
    Path("broken.py").write_text("def look_up() -> str: return ''\n1 / 0\n")
    got = launch("chat", "--tool", reference, "-m", "scripted/echo", "hi")
    assert (got.exit in (2, 5), got.out) == (True, ""), got
    assert message in got.err
    assert f"\n  try: {hint}" in got.err
    assert "Traceback" not in got.err
    assert not home.exists()
    assert "Traceback" in launch("chat", "--tool", reference, "hi", env={"CONVO_DEBUG": "1"}).err


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--agent", "desk.py:desk"), "--agent and --tool cannot be used together"),
        (("--nest-history",), "--nest-history applies to handoffs, and --tool has none"),
        (("--history-markers", "<", ">"), "--history-markers applies to handoffs, and --tool has none"),
    ],
)
def test_options_that_do_not_fit_tools_are_refused_by_name(flags: tuple[str, ...], message: str, convo: Convo) -> None:
    for command in (("chat", "-m", "scripted/echo"), ("resume", "mine")):
        got = convo(*command, *LOOK_UP_TOOL, *flags, *(["hi"] if command[0] == "chat" else []))
        assert (got.exit, got.out) == (2, "")
        assert f"convo: {message}" in got.err


def test_two_tools_of_one_name_are_refused_before_a_request(convo: Convo, home: Path) -> None:
    Path("other.py").write_text("def look_up(order: str) -> str:\n    return order\n")
    got = convo("chat", *LOOK_UP_TOOL, "--tool", "other.py:look_up", "-m", "scripted/echo", "hi")
    assert (got.exit, got.out) == (2, "")
    assert "two tools are named 'look_up'" in got.err
    assert not home.exists()


def test_a_function_among_the_parameters_is_refused_because_nothing_would_run_it(convo: Convo, home: Path) -> None:
    tools = json.dumps([{"type": "function", "name": "pay", "parameters": {}}])
    got = convo("chat", *LOOK_UP_TOOL, "--param", f"tools={tools}", "-m", "scripted/echo", "hi")
    assert got.exit == 1
    assert "the tool 'function' in the parameters" in got.err
    assert stored_sessions(home) == []


def test_tools_of_a_missing_file_are_named_when_the_session_is_continued(convo: Convo, tool_file: Path) -> None:
    convo("chat", *LOOK_UP_TOOL, *scripted_flags({"text": "Hello."}, {"text": "Again."}), "-n", "mine", "hi")
    tool_file.unlink()
    got = convo("chat", "--from", "mine", "hi")
    assert got.exit == 2
    assert f"the tools of this session were in {tool_file.absolute()}, which is missing" in got.err
    assert "name them with --tool FILE.py:NAME; or continue without tools: --agent none" in got.err
    assert convo("chat", "--from", "mine", "--agent", "none", "hi").out == "Again.\n"


def test_a_run_of_tools_is_recorded_as_done(convo: Convo, home: Path) -> None:
    convo("chat", *LOOK_UP_TOOL, *scripted_flags(LOOK_UP, PAID_BACK), "A1?")
    assert [run.status for run in stored_runs(home)] == ["done"]
