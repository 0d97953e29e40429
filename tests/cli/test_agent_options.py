"""`--agent`, `--input-filter` and similar options: values loaded from the user's files, and errors in those files."""

import os
import sys
from pathlib import Path

import pytest

from convo.agents.handoff_history import HistoryMarkers
from convo.cli.agent_options import load_agent_graph, load_agent_setup, load_function, load_python_file
from convo.cli.run_options import RunFlags
from convo.errors import ConvoError, InputFault, InvalidSettings, InvalidUsage, NotFound, Unreadable
from tests.command_runner import Convo

SUPPORT = """
from convo.agents import Agent
from convo.tools import tool
from desk import PRICES

@tool(needs_approval=True)
def refund(order: str) -> str:
    "Pay an order back."
    return f"{order}: {PRICES[order]}"

def last_two(history):
    return history[-2:]

billing = Agent("billing", instructions="Pay back.", tools=(refund,))
triage = Agent("triage", instructions="Send them on.", model="scripted/echo", handoffs=(billing,))
"""

TABLES = """
[agents.triage]
instructions = "Send them on."
handoffs = ["billing"]

[agents.billing]
tools = ["support.py:refund"]
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder inside the current one, with agents in Python and in TOML."""
    path = tmp_path / "bot"
    path.mkdir()
    (path / "support.py").write_text(SUPPORT)
    (path / "desk.py").write_text("PRICES = {'A1': 5}\n")
    (path / "agents.toml").write_text(TABLES)
    sys.modules.pop("desk", None)
    return path


def test_agents_are_loaded_from_python_with_the_modules_beside_the_file(folder: Path) -> None:
    graph = load_agent_graph("bot/support.py:triage")
    assert (graph.start, list(graph.agents)) == ("triage", ["triage", "billing"])


def test_a_file_is_executed_once_for_all_its_options(folder: Path) -> None:
    assert load_function("bot/support.py:last_two", "--history-mapper")([1, 2, 3]) == [2, 3]
    assert load_python_file(folder / "support.py") is load_python_file(folder / "support.py")


def test_agents_are_loaded_from_toml_and_a_name_selects_the_first(folder: Path) -> None:
    assert load_agent_graph("bot/agents.toml").start == "triage"
    graph = load_agent_graph("bot/agents.toml:billing")
    assert (graph.start, [tool.name for tool in graph["billing"].functions]) == ("billing", ["refund"])


def test_agents_of_the_agents_sdk_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "sdk.py").write_text("from agents import Agent\ntriage = Agent(name='SDK', instructions='Be brief.')\n")
    assert load_agent_graph("sdk.py:triage")["SDK"].instructions == "Be brief."


@pytest.mark.parametrize(
    ("reference", "error", "message", "hint"),
    [
        (
            "bot/support.py",
            InvalidUsage,
            "names a file without a name in it: support.py",
            "--agent bot/support.py:triage",
        ),
        ("bot/support.py:nobody", NotFound, "no name in support.py 'nobody'", "--agent bot/support.py:"),
        ("bot/support.py:last_two", InputFault, "function is not an agent", "file.py:name"),
        ("bot/none.py:triage", Unreadable, "bot/none.py is missing or not a file", "--agent"),
        ("bot/agents.toml:nobody", InvalidSettings, "bot/agents.toml: start is 'nobody'", "triage, billing"),
        ("triage", InvalidUsage, "--agent 'triage' names no .py or .toml file", "--agent support.py:triage"),
    ],
)
def test_an_unknown_agent_name_is_refused_with_the_next_step(
    reference: str, error: type[ConvoError], message: str, hint: str, folder: Path
) -> None:
    with pytest.raises(error) as excinfo:
        load_agent_graph(reference)
    assert message in excinfo.value.message
    assert hint in excinfo.value.hint


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n\nimport json\nprice = nothing\n", "bad.py:4: NameError: name 'nothing' is not defined"),
        ("def f(:\n    pass\n", "bad.py:1: SyntaxError: "),
        ("import nowhere_at_all\n", "bad.py:1: ModuleNotFoundError: No module named 'nowhere_at_all'"),
        ("import helper\n", "helper.py:2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "bad.py:2: SystemExit: 3"),
        ("import json\n\njson.loads('{')\n", "bad.py:3: JSONDecodeError: "),
        ("class Own(BaseException): pass\nraise Own('x')\n", "bad.py:2: Own: x"),
        ("class Own(Exception):\n def __str__(self): raise ValueError\nraise Own\n", "bad.py:3: Own"),
    ],
)
def test_an_error_in_the_file_is_one_sentence_with_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("\n1 / 0\n")
    (tmp_path / "bad.py").write_text(text)
    sys.modules.pop("helper", None)
    with pytest.raises(InputFault) as excinfo:
        load_agent_graph("bad.py:triage")
    assert excinfo.value.message.startswith(message)
    assert "\n" not in excinfo.value.message


def test_a_plain_function_as_a_tool_is_refused_with_a_way_to_wrap_it(tmp_path: Path) -> None:
    text = "from convo.agents import Agent\ndef pay() -> str: ...\n\ndesk = Agent('desk', tools=[pay])\n"
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(InputFault) as excinfo:
        load_agent_graph("bad.py:desk")
    assert excinfo.value.message == "bad.py:4: agent 'desk' has a tool of type function"
    assert excinfo.value.hint == "create one from a function with @tool"


def test_the_command_prints_the_error_without_a_traceback(convo: Convo, tmp_path: Path, home: Path) -> None:
    (tmp_path / "bad.py").write_text("raise RuntimeError('no')\n")
    got = convo("chat", "--agent", "bad.py:triage", "hello")
    assert (got.exit, got.out) == (2, "")
    assert got.err == "convo: bad.py:1: RuntimeError: no\n  try: fix the file; CONVO_DEBUG=1 shows the traceback\n"
    assert not home.exists()


def test_an_error_in_toml_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[agents.a]\nhandofs = []\n")
    with pytest.raises(InvalidSettings, match=r"a\.toml: agents\.a has an unknown key 'handofs'"):
        load_agent_graph("a.toml")
    (tmp_path / "a.toml").write_text("[agents")
    with pytest.raises(InvalidSettings, match=r"a\.toml is not TOML"):
        load_agent_graph("a.toml")


@pytest.mark.parametrize(
    ("reference", "message", "hint"),
    [
        ("desk.py:PRICE", "no name in desk.py 'PRICE'", "write desk.py:PRICES in bot/a.toml"),
        ("support.py:nobody", "no name in support.py 'nobody'", "write support.py:NAME in bot/a.toml"),
        ("desk.py", "bot/a.toml names a file without a name in it: desk.py", "write desk.py:NAME in bot/a.toml"),
        ("none.py:pay", "bot/none.py is missing or not a file", "write FILE.py:NAME in bot/a.toml"),
        ("/etc/passwd:x", "bot/a.toml: '/etc/passwd:x' names no .py or .toml file", "write FILE.py:NAME in bot/a.toml"),
    ],
)
def test_an_unknown_reference_in_toml_is_refused_with_a_correction(
    reference: str, message: str, hint: str, folder: Path
) -> None:
    (folder / "a.toml").write_text(f"[agents.a]\ntools = ['{reference}']\n")
    with pytest.raises(ConvoError) as excinfo:
        load_agent_graph("bot/a.toml")
    assert (excinfo.value.message, excinfo.value.hint) == (message, hint)


def test_a_hosted_tool_that_cannot_be_sent_is_refused_before_any_request(
    convo: Convo, tmp_path: Path, home: Path
) -> None:
    (tmp_path / "a.toml").write_text("[agents.a]\ntools = [{type = 'web_search', x = 2020-01-01}]\n")
    got = convo("chat", "--agent", "a.toml:a", "hello")
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith("convo: a.toml: agent 'a' has a tool 'web_search' whose 'x' is not JSON: ")
    assert not home.exists()


@pytest.mark.parametrize("agent", ["zero.toml", "pipe.toml", "pipe.py:desk", "zero.py:desk"])
def test_agents_are_not_loaded_from_an_endless_file_or_a_pipe(agent: str, tmp_path: Path) -> None:
    for suffix in (".toml", ".py"):
        (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
        os.mkfifo(tmp_path / f"pipe{suffix}")
    with pytest.raises(Unreadable, match=agent.partition(":")[0]):
        load_agent_graph(agent)


@pytest.mark.parametrize("values", ["/dev/zero", "pipe"])
def test_context_values_are_not_loaded_from_an_endless_file_or_a_pipe(values: str, folder: Path) -> None:
    os.mkfifo("pipe")
    with pytest.raises(Unreadable, match=values):
        load_agent_setup(RunFlags(agent="bot/support.py:triage", context=values))


# -- options of a run --------------------------------------------------------------------------------


def test_flags_configure_a_run(folder: Path) -> None:
    (folder / "values.json").write_text('{"customer": "A1"}')
    flags = RunFlags(
        agent="bot/support.py:triage",
        history_mapper="bot/support.py:last_two",
        history_markers=("<<", ">>"),
        max_turns=3,
        session_limit=4,
        context="bot/values.json",
    )
    setup = load_agent_setup(flags)
    run_config = setup.run_config
    assert (run_config.limits.max_turns, run_config.session_limit, run_config.values) == (3, 4, {"customer": "A1"})
    assert (run_config.handoff_defaults.nest, run_config.handoff_defaults.markers) == (
        False,
        HistoryMarkers("<<", ">>"),
    )
    assert setup.model == "scripted/echo"


def test_a_history_mapper_without_nested_history_has_no_effect_and_prints_a_note(folder: Path, convo: Convo) -> None:
    mapper = ("--history-mapper", "bot/support.py:last_two")
    flat = convo("chat", "--agent", "bot/support.py:triage", *mapper, "hi")
    assert flat.exit == 0
    assert "--history-mapper has no effect: no handoff nests its history; add --nest-history" in flat.err
    nested = convo("chat", "--agent", "bot/support.py:triage", *mapper, "--nest-history", "hi")
    assert "has no effect" not in nested.err
    flags = RunFlags(agent="bot/support.py:triage", history_mapper="bot/support.py:last_two", nest_history=True)
    assert load_agent_setup(flags).run_config.handoff_defaults.nest is True


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--max-turns", "3", "hi"], "--max-turns applies to agent runs and needs --agent"),
        (["--history-markers", "a", "b", "hi"], "--history-markers applies to agent runs and needs --agent"),
        (["--agent", "bot/support.py:triage", "-s", "be kind", "hi"], "-s and --agent cannot be used together"),
        (["--agent", "bot/support.py:triage", "--input-filter", "bot/support.py:billing", "hi"], "is not a function"),
        (["--agent", "bot/support.py:triage", "--context", "bot/none.json", "hi"], "bot/none.json cannot be read"),
        (["--agent", "bot/support.py:triage", "--history-markers", "a", "a", "hi"], "requires two different values"),
        (["--agent", "bot/support.py:triage", "--state", "-", "hi"], "--state needs a file"),
    ],
)
def test_conflicting_flags_are_refused_and_change_nothing(
    argv: list[str], message: str, convo: Convo, folder: Path, home: Path
) -> None:
    got = convo("chat", "-m", "scripted/echo", *argv)
    assert (got.exit, got.out) == (2, "")
    assert message in got.err
    assert not home.exists()
