"""`convo import`: each conversation of a file becomes a session, and the file stays as it was."""

import json
import lzma
from pathlib import Path

import pytest

from tests.cli.chatting import ECHO, kept, said, sessions
from tests.running import Convo

LLM = Path(__file__).parents[1] / "transfer" / "llm-0.36.db.xz"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("flags", [("-o", "a.json"), ("-o", "a.jsonl"), ("-o", "a.md"), ("-o", "a.html")])
def test_what_was_exported_is_gone_on_with(convo: Convo, home: Path, flags: tuple[str, ...]) -> None:
    assert convo("chat", *ECHO, "-n", "mine", "one").exit == 0
    assert convo("export", "mine", *flags).exit == 0
    got = convo("import", flags[1], "--as", "again")
    assert (got.exit, got.out, got.err) == (0, "again  2 items\n", "")
    assert convo("chat", *ECHO, "--from", "again", "two").out == "two\n"
    assert said(home, "again") == ["user: one", "assistant: one", "user: two", "assistant: two"]
    assert said(home, "mine") == ["user: one", "assistant: one"]


def test_links_come_back_with_their_items(convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert convo("chat", *ECHO, "-n", "mine", "one").exit == 0
    assert convo("export", "mine", "-o", "a.jsonl", "--links").exit == 0
    monkeypatch.setenv("CONVO_HOME", str(home.parent / "elsewhere"))
    assert convo("import", "a.jsonl").out == "mine  2 items\n"
    assert convo("export", "mine", "--format", "jsonl", "--links").out == Path("a.jsonl").read_text()
    assert kept(home.parent / "elsewhere", "mine")[1][0].usage


def test_every_conversation_of_llm_becomes_a_session(convo: Convo, home: Path, folder: Path) -> None:
    (folder / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    assert convo("import", "logs.db").out == "Weather in Oslo?  6 items\nSecond one, and more  2 items\n"
    assert {one.name: one.instructions for one in sessions(home)} == {
        "Weather in Oslo?": "Be brief.",
        "Second one, and more": None,
    }
    assert convo("chat", *ECHO, "--from", "Weather in Oslo?", "thanks").out == "thanks\n"


def test_of_several_those_that_came_before_are_left_out(convo: Convo, home: Path, folder: Path) -> None:
    (folder / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    assert convo("import", "logs.db").exit == 0
    assert convo("chat", *ECHO, "--from", "Weather in Oslo?", "thanks").exit == 0
    assert convo("sessions", "rm", "Second one, and more", "--yes").exit == 0
    got = convo("import", "logs.db")
    assert got.out == "Weather in Oslo?  6 items  came before\nSecond one, and more  2 items\n"
    again = [json.loads(line)["session"] for line in convo("import", "logs.db", "--json").out.splitlines()]
    assert sorted(again) == sorted(one.name for one in sessions(home)) == ["Second one, and more", "Weather in Oslo?"]


def test_one_of_several_is_taken_by_its_name(convo: Convo, home: Path, folder: Path) -> None:
    (folder / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    assert convo("import", "logs.db", "--as", "oslo").exit == 2
    assert convo("import", "logs.db", "--only", "nope").exit == 5
    assert convo("import", "logs.db", "--only", "Weather in Oslo?", "--as", "oslo").out == "oslo  6 items\n"
    assert [one.name for one in sessions(home)] == ["oslo"]


def test_a_dry_run_says_what_is_there_and_keeps_nothing(convo: Convo, home: Path, folder: Path) -> None:
    (folder / "logs.db").write_bytes(lzma.decompress(LLM.read_bytes()))
    lines = convo("import", "logs.db", "--dry-run", "--json").out.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"session": None, "name": "Weather in Oslo?", "items": 6, "links": 0, "model": None},
        {"session": None, "name": "Second one, and more", "items": 2, "links": 0, "model": None},
    ]
    assert not home.exists()


def test_a_name_that_is_taken_is_given_a_number_and_one_that_is_asked_for_is_refused(
    convo: Convo, folder: Path
) -> None:
    (folder / "a.json").write_text('[{"role": "user", "content": "hello there"}]')
    assert [convo("import", "a.json").out for _ in range(2)] == ["hello-there  1 item\n", "hello-there-2  1 item\n"]
    assert convo("import", "a.json", "--as", "hello-there").exit == 1
    assert convo("import", "a.json", "--as", "resp_1").exit == 2


@pytest.mark.parametrize(("text", "exit"), [("nonsense", 2), ("", 2), (None, 5)])
def test_a_file_that_holds_none_keeps_nothing(
    convo: Convo,
    home: Path,
    folder: Path,
    text: str | None,
    exit: int,  # noqa: A002
) -> None:
    if text is not None:
        (folder / "a.json").write_text(text)
    got = convo("import", "a.json")
    assert (got.exit, got.out) == (exit, "")
    assert not home.exists()
