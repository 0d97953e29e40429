"""`--agent`, `--input-filter` and similar options: values loaded from the user's files, and errors in those files."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agents.agent import Agent, CustomModel
from convo.agents.graph import AgentTool, Graph, graph
from convo.agents.handoff_history import HistoryMapper, HistoryMarkers
from convo.agents.handoffs import HandoffDefaults
from convo.chat.view_loader import AGENTS_SOURCE_KEY
from convo.cli.agent_options import (
    AgentSetup,
    StoredAgents,
    is_python_reference,
    load_agent_setup,
    load_function,
    load_python_file,
    load_run_agents,
    make_agents_record,
    parse_file_reference,
)
from convo.cli.run_options import AgentSource, RunFlags
from convo.errors import ConvoError, InputFault, InvalidSettings, InvalidUsage, NotFound, Unreadable
from convo.history.items import Json
from convo.history.records import AgentRun
from convo.runs.state import RunLimits
from tests.command_runner import Convo, Launch

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
AGENTS = [triage]

def make_agent():
    return triage

async def make_later():
    return triage
"""

TABLES = """
[agents.triage]
instructions = "Send them on."
handoffs = ["billing"]

[agents.billing]
tools = ["support.py:refund"]
"""


async def load_agent_graph(reference: str) -> Graph:
    return (await load_agent_setup(RunFlags(agent=reference))).graph


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder inside the current one, with agents in Python and in TOML."""
    path = tmp_path / "bot"
    path.mkdir()
    (path / "support.py").write_text(SUPPORT)
    (path / "desk.py").write_text("PRICES = {'A1': 5}\n")
    (path / "agents.toml").write_text(TABLES)
    return path


async def test_agents_are_loaded_from_python_with_the_modules_beside_the_file(folder: Path) -> None:
    graph = await load_agent_graph("bot/support.py:triage")
    assert (graph.start, list(graph.agents)) == ("triage", ["triage", "billing"])


def test_a_file_is_executed_once_for_all_its_options(folder: Path) -> None:
    assert load_function("bot/support.py:last_two", "--history-mapper")([1, 2, 3]) == [2, 3]
    assert load_python_file(folder / "support.py") is load_python_file(folder / "support.py")


async def test_agents_are_loaded_from_toml_and_a_name_selects_the_first(folder: Path) -> None:
    assert (await load_agent_graph("bot/agents.toml")).start == "triage"
    graph = await load_agent_graph("bot/agents.toml:billing")
    assert (graph.start, [tool.name for tool in graph["billing"].functions]) == ("billing", ["refund"])


async def test_agents_of_the_agents_sdk_are_loaded(tmp_path: Path) -> None:
    (tmp_path / "sdk.py").write_text("from agents import Agent\ntriage = Agent(name='SDK', instructions='Be brief.')\n")
    assert (await load_agent_graph("sdk.py:triage"))["SDK"].instructions == "Be brief."


@pytest.mark.parametrize(
    ("reference", "error", "message", "hint"),
    [
        (
            "bot/support.py",
            InvalidUsage,
            "--agent: the name after support.py is missing",
            "--agent bot/support.py:triage",
        ),
        ("bot/support.py:nobody", NotFound, "no name 'nobody' in support.py", "--agent bot/support.py:triage"),
        ("bot/desk.py:PRICE", NotFound, "no name 'PRICE' in desk.py", "--agent bot/desk.py:NAME"),
        ("my bot/a.py:b", NotFound, "no name 'b' in a.py", "--agent 'my bot/a.py:desk'"),
        ("bot/none.py:triage", Unreadable, "bot/none.py is missing or not a file", "--agent support.py:triage"),
        ("bot:triage", NotFound, "no name 'triage' in bot", "--agent bot:NAME"),
        (
            "bot.no.way:triage",
            Unreadable,
            "'bot.no.way' is neither a .py or .toml file nor a module in {} or the installed packages",
            "--agent support.py:triage",
        ),
        ("triage", InvalidUsage, "--agent 'triage' does not name a .py or .toml file", "--agent support.py:triage"),
        ("bot/none.toml:triage", Unreadable, "bot/none.toml does not exist", "--agent agents.toml"),
        (
            "bot/agents.toml:nobody",
            InvalidSettings,
            "bot/agents.toml: start is 'nobody', which is not an agent",
            "choose one of triage, billing",
        ),
    ],
)
async def test_an_unknown_agent_name_is_refused_with_the_next_step(
    reference: str, error: type[ConvoError], message: str, hint: str, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "my bot").mkdir()
    (tmp_path / "my bot" / "a.py").write_text("from convo.agents import Agent\ndesk = Agent('desk')\n")
    with pytest.raises(error) as excinfo:
        await load_agent_graph(reference)
    assert (excinfo.value.message, excinfo.value.hint) == (message.format(tmp_path), hint)


async def test_an_object_that_is_not_an_agent_is_refused(folder: Path) -> None:
    with pytest.raises(InputFault, match="list is not an agent"):
        await load_agent_graph("bot/support.py:AGENTS")
    with pytest.raises(InputFault, match="last_two\\(\\) missing 1 required positional argument"):
        await load_agent_graph("bot/support.py:last_two")


@pytest.mark.parametrize("name", ["make_agent", "make_later"])
async def test_a_function_without_arguments_makes_the_agents(name: str, folder: Path) -> None:
    assert (await load_agent_graph(f"bot/support.py:{name}"))["triage"].instructions == "Send them on."


async def test_agents_of_a_package_are_found_in_the_working_folder_behind_the_installed_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop" / "desks").mkdir(parents=True)
    (tmp_path / "shop" / "prices.py").write_text("PRICES = {'A1': 5}\n")
    (tmp_path / "yaml.py").write_text("raise SystemExit('wrong module')\n")
    text = "import yaml\nfrom convo.agents import Agent\nfrom {} import PRICES\ntriage = Agent('triage')\n"
    (tmp_path / "shop" / "desks" / "front.py").write_text(text.format("..prices"))
    (tmp_path / "shop" / "desks" / "back.py").write_text(text.format("shop.prices"))
    for reference in ("shop.desks.front:triage", "shop/desks/back.py:triage"):
        assert (await load_agent_graph(reference)).start == "triage"
        source = make_agents_record(AgentSource(reference), None, "ses_1", tmp_path)
        assert source
        assert source["agent"] == f"{tmp_path}/./{reference}"
        monkeypatch.chdir("/")
        stored = load_run_agents(stored_run(source), tmp_path)
        assert stored
        assert (await load_agent_graph(str(stored.source))).start == "triage"
        monkeypatch.chdir(tmp_path)


FIX_FILE = "fix the file; CONVO_DEBUG=1 shows the traceback"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("\n\nimport json\nprice = nothing\n", "bad.py:4: NameError: name 'nothing' is not defined", FIX_FILE),
        ("\ndef f(:\n    pass\n", "bad.py:2: SyntaxError: invalid syntax", FIX_FILE),
        ("a = '\0'\n", "bad.py:1: SyntaxError: source code string cannot contain null bytes", FIX_FILE),
        (
            "import nowhere_at_all\n",
            "bad.py:1: ModuleNotFoundError: No module named 'nowhere_at_all'",
            FIX_FILE,
        ),
        ("import helper\n", "helper.py:2: ZeroDivisionError: division by zero", FIX_FILE),
        ("import sys\nsys.exit(3)\n", "bad.py:2: SystemExit: 3", FIX_FILE),
        (
            "import json\n\njson.loads('{')\n",
            "bad.py:3: JSONDecodeError: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)",
            FIX_FILE,
        ),
        ("class Own(BaseException): pass\nraise Own('x')\n", "bad.py:2: Own: x", FIX_FILE),
        ("class Own(Exception):\n def __str__(self): raise ValueError\nraise Own\n", "bad.py:3: Own", FIX_FILE),
        ("raise ValueError('two\\n  lines')\n", "bad.py:1: ValueError: two lines", FIX_FILE),
        ("from convo.errors import ConvoError\nraise ConvoError('no desk')\n", "bad.py:2: no desk", FIX_FILE),
        (
            "from convo.errors import ConvoError\nraise ConvoError('no desk', hint='open one')\n",
            "bad.py:2: no desk",
            "open one",
        ),
        ("\neval('1 +')\n", "bad.py:2: SyntaxError: invalid syntax", FIX_FILE),
    ],
)
async def test_an_error_in_the_file_is_one_sentence_with_file_and_line(
    text: str, message: str, hint: str, tmp_path: Path
) -> None:
    (tmp_path / "helper.py").write_text("\n1 / 0\n")
    (tmp_path / "bad.py").write_text(text)
    modules = set(sys.modules)
    with pytest.raises(InputFault) as excinfo:
        await load_agent_graph("bad.py:triage")
    assert (excinfo.value.message, excinfo.value.hint) == (message, hint)
    assert not {name for name in sys.modules.keys() - modules if name.startswith("convo_file_")}


async def test_an_interruption_of_the_file_is_not_an_error_in_it(tmp_path: Path) -> None:
    (tmp_path / "slow.py").write_text("raise KeyboardInterrupt\n")
    with pytest.raises(KeyboardInterrupt):
        await load_agent_graph("slow.py:triage")


async def test_a_file_outside_of_the_current_folder_is_named_by_its_absolute_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "bad.py").write_text("raise RuntimeError('no')\n")
    monkeypatch.chdir(folder)
    with pytest.raises(InputFault) as excinfo:
        await load_agent_graph("../bad.py:triage")
    assert excinfo.value.message == f"{folder.parent}/bad.py:1: RuntimeError: no"


@pytest.mark.parametrize(
    ("reference", "file", "name"),
    [
        ("a.py", "a.py", ""),
        ("a.py:b", "a.py", "b"),
        ("a.toml", "a.toml", ""),
        ("a.toml:b", "a.toml", "b"),
        ("x:y/a.py", "x:y/a.py", ""),
        ("x:a.toml", "x:a.toml", ""),
        ("x:y/a.py:b", "x:y/a.py", "b"),
        ("~/a.py:b", "home/a.py", "b"),
        ("x/../a.py:b", "a.py", "b"),
    ],
)
def test_a_reference_is_an_absolute_path_and_a_name(
    reference: str, file: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert parse_file_reference(reference, "--agent")[:2] == (tmp_path / file, name)


@pytest.mark.parametrize(
    ("reference", "is_python"),
    [("a.py", True), ("a.py:b", True), ("a.json", False), ("a.json:b", False), ("py", False), ("a.py.json", False)],
)
def test_a_python_file_and_a_name_in_it_are_recognized(reference: str, is_python: bool) -> None:
    assert is_python_reference(reference) is is_python


def test_the_folder_of_a_file_is_searched_first_for_its_modules_and_is_added_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    load_python_file(folder / "support.py")
    load_python_file(folder / "desk.py")
    assert (sys.path[0], sys.path.count(str(folder))) == (str(folder), 1)


IMPORTS_AFTER_A_USER_FILE = """
import sys
from importlib import import_module
from pathlib import Path
from convo.cli.agent_options import load_python_file

user_module = load_python_file(Path(sys.argv[1]))
names = "rich.console tomlkit json.tool csv".split()
print([name for name in names if "bots" in import_module(name).__file__])
print(user_module.helper.NAME, user_module.agents.NAME)
"""


def test_a_module_in_the_folder_of_a_users_file_shadows_no_library_of_convo(tmp_path: Path) -> None:
    folder = tmp_path / "bots"
    folder.mkdir()
    for name in ("rich", "tomlkit", "json", "csv", "helper", "agents"):
        (folder / f"{name}.py").write_text(f"NAME = {name!r}\n")
    (folder / "desk.py").write_text("import agents, csv, helper, rich\nassert csv.reader and rich.get_console\n")
    command = [sys.executable, "-c", IMPORTS_AFTER_A_USER_FILE, str(folder / "desk.py")]
    got = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (got.stdout, got.stderr) == ("[]\nhelper agents\n", "")


def test_folders_that_a_users_file_searches_shadow_no_library_of_convo(tmp_path: Path) -> None:
    folder = tmp_path / "bots"
    (folder / "src").mkdir(parents=True)
    for name in ("src/helper", "src/agents", "src/rich", "src/csv", "json", "tomlkit"):
        (folder / f"{name}.py").write_text(f"NAME = {name.rpartition('/')[2]!r}\n")
    (folder / "desk.py").write_text(
        "import sys\n"
        "sys.path = [f'{__file__[:-8]}/src', *sys.path]\n"
        "sys.meta_path[:] = [finder for finder in sys.meta_path if isinstance(finder, type)]\n"
        "import helper, agents\n"
    )
    script = f"import sys\nsys.path.append({str(folder)!r}){IMPORTS_AFTER_A_USER_FILE}"
    command = [sys.executable, "-c", script, str(folder / "desk.py")]
    got = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (got.stdout, got.stderr) == ("[]\nhelper agents\n", "")


def test_the_folder_of_a_file_is_searched_first_also_if_it_was_searched_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in ("installed", "bots"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "two_of_a_name.py").write_text(f"FOLDER = {folder!r}\n")
    (tmp_path / "bots" / "desk.py").write_text("from two_of_a_name import FOLDER\n")
    monkeypatch.setattr(sys, "path", [*sys.path, f"{tmp_path}/installed", f"{tmp_path}/bots"])
    assert load_python_file(tmp_path / "bots" / "desk.py").FOLDER == "bots"


def test_a_link_to_a_file_finds_the_modules_of_both_folders_and_names_the_line_of_an_error(tmp_path: Path) -> None:
    for folder in ("bots", "bin"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / f"in_{folder}.py").write_text("")
    (tmp_path / "bots" / "desk.py").write_text("import in_bots, in_bin\nimport breaks_here\n")
    (tmp_path / "bots" / "breaks_here.py").write_text("\n1 / 0\n")
    (tmp_path / "bin" / "desk.py").symlink_to("../bots/desk.py")
    with pytest.raises(InputFault, match=r"^bots/breaks_here\.py:2: ZeroDivisionError"):
        load_python_file(tmp_path / "bin" / "desk.py")


def test_a_module_may_have_the_name_of_an_unused_module_of_the_standard_library(tmp_path: Path) -> None:
    folder = tmp_path / "bots"
    folder.mkdir()
    (folder / "profile.py").write_text("CUSTOMER = 'A1'\n")
    (folder / "desk.py").write_text("from profile import CUSTOMER\n")
    command = [sys.executable, "-c", "import sys\n" + LOAD_AND_PRINT.format("CUSTOMER"), str(folder / "desk.py")]
    got = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert (got.stdout, got.stderr) == ("A1\n", "")


LOAD_AND_PRINT = """
from pathlib import Path
from convo.cli.agent_options import load_python_file
print(load_python_file(Path(sys.argv[1])).{})
"""

PICKLED = """
import pickle
from pathlib import Path
class Order: number = 5
cache = Path(__file__).with_name("cache")
if not cache.exists():
    cache.write_bytes(pickle.dumps(Order()))
order = pickle.loads(cache.read_bytes())
"""


def test_a_pickle_of_a_file_with_any_name_is_read_by_the_next_process(tmp_path: Path) -> None:
    (tmp_path / "my.desk 2.py").write_text(PICKLED)
    script = "import sys\n" + LOAD_AND_PRINT.format("order.number")
    for more_imports in ("", "import calendar, wave\n"):  # a name must not depend on the imported modules
        command = [sys.executable, "-c", more_imports + script, str(tmp_path / "my.desk 2.py")]
        got = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
        assert (got.stdout, got.stderr) == ("5\n", "")


@pytest.mark.parametrize("text", ["import calendar\ncalendar.MEETINGS\n", "\nfrom calendar import MEETINGS\n"])
def test_a_module_that_a_library_shadows_is_named_in_the_hint(text: str, tmp_path: Path) -> None:
    (tmp_path / "calendar.py").write_text("MEETINGS = []\n")
    (tmp_path / "desk.py").write_text(text)
    with pytest.raises(InputFault, match=r"^desk\.py:2: ") as excinfo:
        load_python_file(tmp_path / "desk.py")
    assert excinfo.value.hint == "rename calendar.py: convo has imported another module named 'calendar'"


@pytest.mark.parametrize(
    ("name", "content"), [("agents.py", "from agents import Agent\n"), ("desk.py", "triage = 1\n")]
)
def test_a_file_that_hides_the_agents_sdk_is_named_in_the_hint(name: str, content: str, launch: Launch) -> None:
    Path("desk.py").write_text("import agents\ntriage = agents.Agent(name='triage')\n")
    Path("agents.py").write_text(content)
    got = launch("chat", "--agent", f"{name}:triage", "hello")
    assert "  try: rename agents.py: it hides the installed package 'agents'\n" in got.err
    assert got.exit == 2


def test_an_error_in_a_library_below_the_folder_of_a_file_names_the_line_of_the_file(tmp_path: Path) -> None:
    packages = tmp_path / ".venv" / "site-packages"
    packages.mkdir(parents=True)
    (packages / "strict_library.py").write_text("def check():\n    raise ValueError('no')\n")
    (tmp_path / "desk.py").write_text("import sys, strict_library\n\nstrict_library.check()\n")
    script = f"import sys\nsys.path.append({str(packages)!r})\n" + LOAD_AND_PRINT.format("x")
    command = [sys.executable, "-c", script, str(tmp_path / "desk.py")]
    got = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    assert got.stderr.splitlines()[-1] == "convo.errors.InputFault: desk.py:3: ValueError: no"


@pytest.mark.needs("posix")
def test_a_reference_that_is_too_long_is_refused(convo: Convo) -> None:
    for option, reference in (("--tool", f"{'a' * 300}.py:f"), ("--agent", f"{'a' * 300}.toml")):
        got = convo("chat", option, reference, "hello")
        assert (got.exit, got.err.partition("\n")[0][:8]) == (2, "convo: a")


@pytest.mark.needs("terminal")
def test_an_answer_is_painted_and_sent_with_the_libraries_of_convo(tmp_path: Path) -> None:
    import pexpect

    folder = tmp_path / "bots"
    folder.mkdir()
    for name in ("rich", "openai", "markdown_it", "prompt_toolkit", "json"):
        (folder / f"{name}.py").write_text("raise SystemExit('wrong module')\n")
    (folder / "tools.py").write_text("def add(a: int, b: int) -> int:\n    'Add.'\n    return a + b\n")
    command = ["-m", "convo", "chat", "-m", "scripted/echo", "--tool", "bots/tools.py:add", "**hello**"]
    got, code = pexpect.run(
        " ".join([sys.executable, *command]), env={**os.environ, "TERM": "xterm"}, cwd=tmp_path, withexitstatus=True
    )
    assert (code, "hello" in got.decode(), "rror" in got.decode()) == (0, True, False)


def test_two_files_of_the_same_name_are_two_modules(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "desk.py").write_text("PRICES = {'B1': 6}\n")
    modules = [load_python_file(folder / "desk.py"), load_python_file(tmp_path / "desk.py")]
    assert [module.PRICES for module in modules] == [{"A1": 5}, {"B1": 6}]
    assert sys.modules[modules[1].__name__] is modules[1]


async def test_a_plain_function_as_a_tool_is_refused_with_a_way_to_wrap_it(tmp_path: Path) -> None:
    text = "from convo.agents import Agent\ndef pay() -> str: ...\n\ndesk = Agent('desk', tools=[pay])\n"
    (tmp_path / "bad.py").write_text(text)
    with pytest.raises(InputFault) as excinfo:
        await load_agent_graph("bad.py:desk")
    assert excinfo.value.message == "bad.py:4: agent 'desk' has a tool of type function"
    assert excinfo.value.hint == "create one from a function with @tool"


def test_the_command_prints_the_error_without_a_traceback(convo: Convo, tmp_path: Path, home: Path) -> None:
    (tmp_path / "bad.py").write_text("raise RuntimeError('no')\n")
    got = convo("chat", "--agent", "bad.py:triage", "hello")
    assert (got.exit, got.out) == (2, "")
    assert got.err == "convo: bad.py:1: RuntimeError: no\n  try: fix the file; CONVO_DEBUG=1 shows the traceback\n"
    assert not home.exists()


async def test_an_error_in_toml_names_the_file(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[agents.a]\nhandofs = []\n")
    with pytest.raises(InvalidSettings, match=r"a\.toml: agents\.a has an unknown key 'handofs'"):
        await load_agent_graph("a.toml")
    (tmp_path / "a.toml").write_text("[agents")
    with pytest.raises(InvalidSettings, match=r"a\.toml is not TOML"):
        await load_agent_graph("a.toml")


@pytest.mark.parametrize(
    ("reference", "message", "hint"),
    [
        ("desk.py:PRICE", "no name 'PRICE' in desk.py", "write desk.py:PRICES in bot/a.toml"),
        ("support.py:nobody", "no name 'nobody' in support.py", "write support.py:NAME in bot/a.toml"),
        ("desk.py", "bot/a.toml: the name after desk.py is missing", "write desk.py:NAME in bot/a.toml"),
        ("none.py:pay", "bot/none.py is missing or not a file", "write FILE.py:NAME in bot/a.toml"),
        ("../till.py:open", "no name 'open' in till.py", "write ../till.py:opened in bot/a.toml"),
        (
            "/etc/passwd:x",
            "bot/a.toml: '/etc/passwd:x' does not name a .py or .toml file",
            "write FILE.py:NAME in bot/a.toml",
        ),
    ],
)
async def test_an_unknown_reference_in_toml_is_refused_with_a_correction(
    reference: str, message: str, hint: str, folder: Path
) -> None:
    (folder.parent / "till.py").write_text("opened, _open = 1, 2\n")
    (folder / "a.toml").write_text(f"[agents.a]\ntools = ['{reference}']\n")
    with pytest.raises(ConvoError) as excinfo:
        await load_agent_graph("bot/a.toml")
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
async def test_agents_are_not_loaded_from_an_endless_file_or_a_pipe(agent: str, tmp_path: Path) -> None:
    for suffix in (".toml", ".py"):
        (tmp_path / f"zero{suffix}").symlink_to("/dev/zero")
        os.mkfifo(tmp_path / f"pipe{suffix}")
    with pytest.raises(Unreadable, match=agent.partition(":")[0]):
        await load_agent_graph(agent)


@pytest.mark.parametrize("values", ["/dev/zero", "pipe"])
async def test_context_values_are_not_loaded_from_an_endless_file_or_a_pipe(values: str, folder: Path) -> None:
    os.mkfifo("pipe")
    with pytest.raises(Unreadable, match=values):
        await load_agent_setup(RunFlags(agent="bot/support.py:triage", context=values))


# -- options of a run --------------------------------------------------------------------------------


async def test_flags_configure_a_run(folder: Path) -> None:
    (folder / "values.json").write_text('{"customer": "A1"}')
    flags = RunFlags(
        agent="bot/support.py:triage",
        history_mapper="bot/support.py:last_two",
        history_markers=("<<", ">>"),
        max_turns=3,
        session_limit=4,
        context="bot/values.json",
        input_filter="bot/support.py:last_two",
        nest_history=True,
    )
    setup = await load_agent_setup(flags)
    last_two = load_function("bot/support.py:last_two", "--input-filter")
    assert setup.run_config == RunConfig(
        limits=RunLimits(max_turns=3),
        handoff_defaults=HandoffDefaults(
            nest=True, mapper=cast(HistoryMapper, last_two), markers=HistoryMarkers("<<", ">>")
        ),
        input_filter=last_two,
        session_limit=4,
        values={"customer": "A1"},
        open_scratch_store=setup.run_config.open_scratch_store,
    )
    assert (setup.model, setup.source, setup.ignores_agent_models) == (
        "scripted/echo",
        AgentSource("bot/support.py:triage", context="bot/values.json"),
        False,
    )
    assert setup.graph.start == "triage"


async def test_without_flags_a_run_has_the_defaults(folder: Path) -> None:
    run_config = (await load_agent_setup(RunFlags(agent="bot/support.py:triage"))).run_config
    assert run_config == RunConfig(open_scratch_store=run_config.open_scratch_store)


async def test_nested_runs_get_a_store_that_ends_with_the_process(folder: Path) -> None:
    open_scratch_store = (await load_agent_setup(RunFlags(agent="bot/support.py:triage"))).run_config.open_scratch_store
    assert open_scratch_store
    store = open_scratch_store()
    assert await store.sessions() == []
    await store.aclose()


async def test_context_values_are_returned_by_a_function_of_the_described_context(folder: Path) -> None:
    (folder / "values.py").write_text("def load(described): return {'described': described}\n")
    setup = await load_agent_setup(RunFlags(agent="bot/support.py:triage", context="bot/values.py:load"))
    assert setup.run_config.values == {"described": None}
    described = setup.with_context("bot/values.py:load", {"type": "Shop"})
    assert described.run_config.values == {"described": {"type": "Shop"}}


@pytest.mark.parametrize(
    ("reference", "error", "message", "hint"),
    [
        ("bot/values.py:fail", InputFault, "bot/values.py:3: ZeroDivisionError: division by zero", FIX_FILE),
        (
            "bot/values.py",
            InvalidUsage,
            "--context: the name after values.py is missing",
            "--context bot/values.py:NAME",
        ),
        (
            "bot/bad.json",
            Unreadable,
            "bot/bad.json is not JSON: Expecting value at line 1, column 2",
            "",
        ),
        ("bot/list.json", Unreadable, "bot/list.json is not a JSON object", 'use a file like {"customer": "A1"}'),
        ("bot/deep.json", Unreadable, None, ""),
    ],
)
async def test_invalid_context_values_are_refused(
    reference: str, error: type[ConvoError], message: str | None, hint: str, folder: Path
) -> None:
    (folder / "values.py").write_text("\n\ndef fail(context): return 1 / 0\n")
    (folder / "bad.json").write_text("[")
    (folder / "list.json").write_text("[1]")
    (folder / "deep.json").write_text("[" * 100_000)
    with pytest.raises(error) as excinfo:
        await load_agent_setup(RunFlags(agent="bot/support.py:triage", context=reference))
    assert excinfo.value.hint == (hint or error.hint)
    if message:
        assert excinfo.value.message == message
    else:
        assert excinfo.value.message.startswith("bot/deep.json is not JSON: ")


@pytest.mark.parametrize("markers", [("", ">>"), ("<<", ""), ("<<", "<<")])
async def test_history_markers_that_are_empty_or_equal_are_refused(markers: tuple[str, str], folder: Path) -> None:
    with pytest.raises(InvalidUsage) as excinfo:
        await load_agent_setup(RunFlags(agent="bot/support.py:triage", history_markers=markers))
    assert (excinfo.value.message, excinfo.value.hint) == (
        "--history-markers requires two different values",
        "--history-markers '<HISTORY>' '</HISTORY>'",
    )


@pytest.mark.parametrize(
    ("flags", "note"),
    [
        ({}, ""),
        (
            {"history_mapper": "bot/support.py:last_two", "history_markers": ("<", ">")},
            "--history-mapper has no effect: no handoff nests its history; add --nest-history\n",
        ),
        (
            {"history_markers": ("<", ">")},
            "--history-markers has no effect: no handoff nests its history; add --nest-history\n",
        ),
        ({"history_markers": ("<", ">"), "nest_history": True}, ""),
        ({"history_markers": ("<", ">"), "agent": "bot/nested.py:desk"}, ""),
    ],
)
async def test_history_flags_without_nested_history_have_no_effect_and_print_a_note(
    flags: dict[str, Any], note: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "nested.py").write_text(
        "from convo.agents import Agent, Handoff\n"
        "desk = Agent('desk', handoffs=(Agent('a'), Handoff(Agent('b'), nest=True)))\n"
    )
    await load_agent_setup(RunFlags(**{"agent": "bot/support.py:triage", **flags}))
    assert capsys.readouterr() == ("", note)


# -- the models of agents, and the record of the agents of a session -----------------------------------

NESTED = """
from convo.agents import Agent, agent_tool
from convo.tools import tool

@tool
def look_up(order: str) -> str:
    return order

clerk = Agent("clerk", model="scripted/a", tools=(look_up,))
desk = Agent("desk", tools=(agent_tool(clerk, "ask_clerk", "Ask."),))
boss = Agent("boss", model="scripted/b", handoffs=(desk,))
plain = Agent("plain", tools=(agent_tool(Agent("quiet"), "ask_quiet", "Ask."),))
"""


@pytest.mark.parametrize(("name", "has_models"), [("clerk", True), ("desk", True), ("boss", True), ("plain", False)])
async def test_a_model_of_the_user_replaces_those_of_all_agents(name: str, has_models: bool, tmp_path: Path) -> None:
    (tmp_path / "my bot.py").write_text(NESTED)
    setup = await load_agent_setup(RunFlags(agent=f"my bot.py:{name}"))
    assert setup.format_options("a b") == f"--agent 'my bot.py:{name}'"
    changed = setup.without_agent_models()
    assert changed.model is None
    graphs = [
        changed.graph,
        *(tool.graph for agent in changed.graph.agents.values() for tool in agent.tools if isinstance(tool, AgentTool)),
    ]
    assert {agent.model for graph in graphs for agent in graph.agents.values()} == {None}
    assert list(changed.graph.agents) == list(setup.graph.agents)
    model_option = " -m 'a b'" if has_models else ""
    assert changed.format_options("a b") == f"--agent 'my bot.py:{name}'{model_option}"


async def test_a_setup_is_copied_with_a_route_and_values(folder: Path) -> None:
    setup = await load_agent_setup(RunFlags(agent="bot/support.py:triage", max_turns=3))

    def route(model: str | CustomModel) -> ModelRoute:
        raise NotImplementedError

    changed = setup.with_route(route).with_context(None, {"a": 1})
    assert changed.run_config == replace(setup.run_config, resolve_model=route, values={"a": 1})
    assert changed.graph is setup.graph
    assert setup.run_config.resolve_model is None


def stored_run(record: object) -> AgentRun:
    return AgentRun("run_1", "ses_1", 1, "done", {AGENTS_SOURCE_KEY: cast(Json, record)}, 1.0, 1.0)


@pytest.mark.parametrize("name", ["", ":desk"])
@pytest.mark.parametrize("model", [None, "scripted/echo"])
def test_the_agents_of_a_run_are_loaded_from_its_record(name: str, model: str | None, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("")
    setup = AgentSetup(graph(Agent("a")), RunConfig(), None, AgentSource(f"a.toml{name}"))
    changed = setup.with_agents_record("ses_1", model, tmp_path / "data")
    record = changed.run_config.agents_source
    assert record == make_agents_record(AgentSource(f"a.toml{name}"), model, "ses_1", tmp_path / "data")
    assert replace(changed.run_config, agents_source=None) == setup.run_config
    assert load_run_agents(stored_run(record), tmp_path / "data") == StoredAgents(
        AgentSource(f"{tmp_path}/a.toml{name}"), model
    )
    assert [path.name for path in (tmp_path / "data").iterdir()] == ["agents.key"]
    assert (tmp_path / "data" / "agents.key").stat().st_mode & 0o777 == 0o600


def test_the_tools_of_a_run_are_loaded_from_its_record(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    record = make_agents_record(AgentSource(tools=("a.py:f", "a.py:g")), "scripted/echo", "ses_1", tmp_path)
    tools = (f"{tmp_path}/a.py:f", f"{tmp_path}/a.py:g")
    remembered = load_run_agents(stored_run(record), tmp_path)
    assert remembered == StoredAgents(AgentSource(tools=tools), "scripted/echo")
    for change in ({"tools": [*tools, "/other.py:h"]}, {"model": None}, {"agent": tools[0]}):
        with pytest.raises(InvalidUsage, match="were stored by another user or on another machine"):
            load_run_agents(stored_run({**(record or {}), **change}), tmp_path)
    for tools_value in ([], "a.py:f", [1]):
        assert load_run_agents(stored_run({**(record or {}), "tools": tools_value}), tmp_path) is None


def test_agents_whose_file_is_missing_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("")
    record = make_agents_record(AgentSource("a.toml:desk"), None, "ses_1", tmp_path)
    (tmp_path / "a.toml").unlink()
    (tmp_path / "a.toml").mkdir()
    with pytest.raises(Unreadable) as excinfo:
        load_run_agents(stored_run(record), tmp_path, "name them")
    assert (excinfo.value.message, excinfo.value.hint) == (
        f"the agents of this session were in {tmp_path}/a.toml, which is missing or not a file",
        "name them",
    )


@pytest.mark.parametrize("record", [None, "a.py", {}, {"agent": None}])
def test_a_run_without_a_record_of_its_agents_has_none(record: object, tmp_path: Path) -> None:
    assert load_run_agents(stored_run(record), tmp_path) is None


@pytest.mark.parametrize(
    "change",
    [
        *({"proof": None}, {"proof": 3}, {"proof": "é"}, {"model": "other/model"}, {"agent": "/other.toml"}),
        *({"options": {"context": "/other.py:f"}}, {"options": None}),
    ],
)
def test_a_record_that_was_changed_is_refused(change: dict[str, Json], tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("")
    source = AgentSource("a.toml", context="who.json")
    record = {**(make_agents_record(source, None, "ses_1", tmp_path) or {}), **change}
    with pytest.raises(InvalidUsage) as excinfo:
        load_run_agents(stored_run(record), tmp_path)
    assert (excinfo.value.message, excinfo.value.hint) == (
        f"the agents of this session, {record['agent']}, were stored by another user or on another machine",
        "name them with --agent FILE.py:NAME",
    )


def test_a_record_of_another_session_or_another_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("")
    record = make_agents_record(AgentSource("a.toml"), None, "ses_2", tmp_path)
    with pytest.raises(InvalidUsage, match="another user"):
        load_run_agents(stored_run(record), tmp_path)
    with pytest.raises(InvalidUsage, match="another user"):
        load_run_agents(stored_run(record)._replace(session_id="ses_2"), tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("obstacle", ["a file", "a dangling link", "an empty key"])
def test_without_a_key_no_record_is_made(obstacle: str, tmp_path: Path) -> None:
    folder = tmp_path / "data"
    if obstacle == "a file":
        folder.touch()
    else:
        folder.mkdir()
        key = folder / "agents.key"
        if obstacle == "an empty key":
            key.touch()
        else:
            key.symlink_to("nowhere")
    assert make_agents_record(AgentSource("a.toml"), None, "ses_1", folder) is None
    assert obstacle == "a file" or [path.name for path in folder.iterdir()] == ["agents.key"]


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
