"""kill -9 before each effect of `convo export`, `convert`, `import` and `sessions rm`.

The state is the one before or after the command.
The source is not changed, and the repeated command creates the missing data and no duplicates.
"""

import json
import lzma
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat_commands import ECHO, stored_conversation, stored_sessions
from tests.cli.command_kills import conversation_sizes
from tests.cli.stored_chats import DATABASE
from tests.command_runner import ROOT, Convo
from tests.fork_server import run_convo

pytestmark = pytest.mark.needs("linux")

LLM = Path(__file__).parents[1] / "transfer" / "llm-0.36.db.xz"
MESSAGES = ["one", "one", "two", "two"]
OSLO_ITEMS = 6
"""The number of items in the longer of the two conversations of the llm database."""


@pytest.fixture
def start_folder(convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a conversation, exported copies of it, and a database of llm."""
    folder = tmp_path / "begin"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("CONVO_HOME", str(folder / "home"))
    assert convo("chat", *ECHO, "-n", "talk", "one").exit == 0
    assert convo("chat", *ECHO, "--from", "talk", "two").exit == 0
    assert convo("export", "talk", "-o", "talk.jsonl", "--links").exit == 0
    assert convo("export", "talk", "-o", "in.json").exit == 0
    (folder / "old.json").write_text("[]\n")
    (folder / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    return folder


def folder_state(folder: Path) -> Mapping[str, Any]:
    """The number of items of each session and of each JSON file, by name."""
    sessions = {
        one.name: len(stored_conversation(folder / "home", one.name)[0]) for one in stored_sessions(folder / "home")
    }
    files = {file.name: json.loads(file.read_text()) for file in folder.glob("*.json")}
    files = {name: document["items"] if isinstance(document, dict) else document for name, document in files.items()}
    return sessions | {name: len(items) for name, items in files.items()}


STATE_BEFORE = {"talk": 4, "in.json": 4, "old.json": 0}

CASES: Mapping[str, tuple[str, dict[str, int]]] = {
    "export a file": ("export talk -o new.json", {"new.json": 4}),
    "export over a file": ("export talk -o old.json --force", {"old.json": 4}),
    "convert to session": ("convert ./in.json --to session --as other", {"other": 4}),
    "convert to chain": ("convert talk --to chain --as other", {"other": 4}),
    "convert to conversation": ("convert talk --to conversation --as other", {"other": 4}),
    "convert to a file": ("convert talk --to replay --as ./new.json", {"new.json": 4, "talk-2": 4}),
    "convert to a named file": ("convert talk --to replay --as other", {"other.json": 4, "other": 4}),
    "convert to a file of its name": ("convert talk --to replay", {"talk.json": 4, "talk-2": 4}),
    "import one": ("import talk.jsonl --as other", {"other": 4}),
    "import several": ("import logs.db", {"Weather in Oslo?": OSLO_ITEMS, "Second one, and more": 2}),
}


FULL_CASES = ("export a file", "convert to chain", "convert to a named file")
"""Cases that resemble another case; they run only in the full suite."""


@pytest.mark.parametrize("case", [pytest.param(one, marks=[pytest.mark.full] * (one in FULL_CASES)) for one in CASES])
def test_a_killed_command_leaves_the_state_before_or_after_and_can_be_repeated(
    case: str, convo: Convo, start_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command, new = CASES[case]
    done = run_convo([str(start_folder.parent), *command.split()], module="tests.transfer.killed_command", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    kill_count = json.loads(done.stdout)
    assert kill_count > 0
    for index in range(kill_count + 1):
        folder = start_folder.parent / str(index)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("CONVO_HOME", str(folder / "home"))
        state = folder_state(folder)
        assert state.items() <= (STATE_BEFORE | new).items() or state == STATE_BEFORE
        is_complete = state == STATE_BEFORE | new
        again = None if is_complete else convo(*command.split())
        assert again is None or again.exit == 0, again.err
        assert folder_state(folder) == STATE_BEFORE | new
        assert [item["content"][0]["text"] for item in stored_conversation(folder / "home", "talk")[0]] == MESSAGES
        assert is_complete is (index == kill_count)


def test_a_session_whose_removal_was_killed_can_be_removed_with_its_conversation(
    convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "begin"
    folder.mkdir()
    monkeypatch.setenv("CONVO_HOME", str(folder / "home"))
    assert convo("chat", *ECHO, "--conversation", "-n", "talk", "one").exit == 0
    command = ("sessions", "rm", "talk", "--yes")
    done = run_convo([str(tmp_path), *command], module="tests.transfer.killed_command", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for index in range(json.loads(done.stdout) + 1):
        home = tmp_path / str(index) / "home"
        monkeypatch.setenv("CONVO_HOME", str(home))
        if stored_sessions(home):
            assert convo(*command).exit == 0
        assert (stored_sessions(home), conversation_sizes(f"sqlite:{home / DATABASE}")) == ([], [])
