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
TALK = ["one", "one", "two", "two"]
OSLO = 6
"""The number of items in the longer of the two conversations of the llm database."""


@pytest.fixture
def begin(convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a conversation, exported copies of it, and a database of llm."""
    place = tmp_path / "begin"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("CONVO_HOME", str(place / "home"))
    assert convo("chat", *ECHO, "-n", "talk", "one").exit == 0
    assert convo("chat", *ECHO, "--from", "talk", "two").exit == 0
    assert convo("export", "talk", "-o", "talk.jsonl", "--links").exit == 0
    assert convo("export", "talk", "-o", "in.json").exit == 0
    (place / "old.json").write_text("[]\n")
    (place / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    return place


def stands(place: Path) -> Mapping[str, Any]:
    """The number of items of each session and of each JSON file, by name."""
    made = {one.name: len(stored_conversation(place / "home", one.name)[0]) for one in stored_sessions(place / "home")}
    files = {file.name: json.loads(file.read_text()) for file in place.glob("*.json")}
    return made | {name: len(items) for name, items in files.items()}


BEFORE = {"talk": 4, "in.json": 4, "old.json": 0}

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
    "import several": ("import logs.db", {"Weather in Oslo?": OSLO, "Second one, and more": 2}),
}


MORE = ("export a file", "convert to chain", "convert to a named file")
"""Cases that resemble another case; they run only in the full suite."""


@pytest.mark.parametrize("case", [pytest.param(one, marks=[pytest.mark.full] * (one in MORE)) for one in CASES])
def test_a_killed_command_leaves_the_state_before_or_after_and_can_be_repeated(
    case: str, convo: Convo, begin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, new = CASES[case]
    done = run_convo([str(begin.parent), *words.split()], module="tests.transfer.killed_command", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    deaths = json.loads(done.stdout)
    assert deaths > 0
    for at in range(deaths + 1):
        place = begin.parent / str(at)
        monkeypatch.chdir(place)
        monkeypatch.setenv("CONVO_HOME", str(place / "home"))
        left = stands(place)
        assert left.items() <= (BEFORE | new).items() or left == BEFORE
        whole = left == BEFORE | new
        again = None if whole else convo(*words.split())
        assert again is None or again.exit == 0, again.err
        assert stands(place) == BEFORE | new
        assert [item["content"][0]["text"] for item in stored_conversation(place / "home", "talk")[0]] == TALK
        assert whole is (at == deaths)


def test_a_session_whose_removal_was_killed_can_be_removed_with_its_conversation(
    convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "begin"
    place.mkdir()
    monkeypatch.setenv("CONVO_HOME", str(place / "home"))
    assert convo("chat", *ECHO, "--conversation", "-n", "talk", "one").exit == 0
    command = ("sessions", "rm", "talk", "--yes")
    done = run_convo([str(tmp_path), *command], module="tests.transfer.killed_command", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    for at in range(json.loads(done.stdout) + 1):
        home = tmp_path / str(at) / "home"
        monkeypatch.setenv("CONVO_HOME", str(home))
        if stored_sessions(home):
            assert convo(*command).exit == 0
        assert (stored_sessions(home), conversation_sizes(f"sqlite:{home / DATABASE}")) == ([], [])
