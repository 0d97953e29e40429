"""`convo compact`: its output, the stored histories, and its errors."""

import json
import re
from pathlib import Path

import pytest

from convo.history.items import SUMMARY_HEADING, assistant_message, user_message
from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, LONG, scripted_flags, stored_conversation, stored_messages, stored_sessions
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo
from tests.terminal.plain_repl import run_repl


@pytest.fixture
def two_turns(convo: Convo) -> tuple[str, str]:
    """Create a session of two turns; return the flags of its model, whose summary is short."""
    model = scripted_flags({"text": "Short."}, {"text": LONG})
    for text in ("one", "two"):
        flags = ["-n", "mine"] if text == "one" else ["--from", "mine"]
        assert convo("chat", "-q", *flags, *model, f"{text} {LONG}").exit == 0
    return model


def test_compact_reports_the_saved_tokens_and_the_handle_of_the_old_history(
    convo: Convo, two_turns: tuple[str, str], home: Path
) -> None:
    got = convo("compact", "mine")
    assert got.exit == 0
    assert re.search(r"^  compacted +~?[\d,]+ → ~?\d+ tokens, \d\d % less$", got.out, re.MULTILINE), got.out
    assert "convo chat --from mine-before" in got.out
    assert [line.split(" ")[1] for line in stored_messages(home, "mine")] == ["one", "two", "Summary"]
    assert len(stored_messages(home, "mine-before")) == 4


def test_json_is_one_object(convo: Convo, two_turns: tuple[str, str]) -> None:
    result = convo("compact", "mine", "--keep-last", "1", "--focus", "the numbers", "--json").json()
    assert (result["session"], result["strategy"], result["before"]) == ("mine", "session", "mine-before")
    assert (result["way"], result["folded"], result["kept"]) == ("summary", 2, 2)
    assert result["after_tokens"] < result["before_tokens"]
    assert result["dropped"]["messages"] == 2
    assert 0 < result["dropped"]["tokens"] < result["before_tokens"]
    assert result["summary"]["excerpt"] == "Short."


def test_the_dropped_items_are_counted_by_kind_and_the_summary_is_shown(convo: Convo) -> None:
    call = {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"}
    items = [
        {"type": "message", "role": "developer", "content": "Be brief."},
        user_message("What do you see?"),
        {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
        call,
        {"type": "function_call_output", "call_id": "call_1", "output": LONG * 9},
        assistant_message("A ship."),
    ]
    Path("ship.json").write_text(json.dumps(items))
    assert convo("import", "ship.json", "--as", "ship").exit == 0
    _, model = scripted_flags({"text": "Goals: to see.\n\nFacts: there is a ship. " + "so " * 99})
    preview = convo("compact", "ship", "-m", model, "--preview")
    assert preview.exit == 0, preview
    got = preview.out
    assert re.search(r"^  dropped +1 message, 1 call, 1 reasoning item, about \d+ tokens$", got, re.MULTILINE), got
    assert re.search(r"^  summary +about \d+ tokens: Goals: to see\. Facts: there is a ship\. so", got, re.MULTILINE), (
        got
    )
    result = convo("compact", "ship", "-m", model, "--json").json()
    assert [result["dropped"][name] for name in ("messages", "calls", "reasoning")] == [1, 1, 1]
    assert len(result["summary"]["excerpt"]) == 200


def test_the_report_says_which_turns_a_fork_finds(convo: Convo, home: Path, two_turns: tuple[str, str]) -> None:
    got = convo("compact", "mine", "--keep-last", "1")
    assert "turns         numbered again: 1 is the compacted history, the kept turns follow from 2\n" in got.out
    for turn in (1, 2):
        assert convo("chat", "--fork", f"mine@{turn}", "-n", f"after-{turn}", *ECHO, "new").exit == 0
    compacted, kept = stored_messages(home, "after-1")[:-2], stored_messages(home, "after-2")[:-2]
    assert "Summary of the conversation" in compacted[-1]
    assert (kept[: len(compacted)], len(kept)) == (compacted, len(compacted) + 2)


def test_compacting_a_response_without_a_session_creates_one(convo: Convo, home: Path) -> None:
    model = scripted_flags({"text": "Short."}, {"text": LONG})
    assert convo("chat", "-q", "--chain", "-n", "mine", *model, f"one {LONG}").exit == 0
    first = stored_sessions(home)[0].handle
    assert convo("chat", "-q", "--from", "mine", *model, f"two {LONG}").exit == 0
    got = convo("compact", str(first), *model)
    assert got.exit == 0, got
    new, mine = stored_sessions(home)
    assert (new.name, new.strategy, new.handle) == ("one-and-this-goes", Strategy.CHAIN, None)
    assert "continues as  chain one-and-this-goes\n" in got.out
    assert (mine.name, mine.handle != first) == ("mine", True)


def test_a_replay_file_is_compacted_and_its_old_content_is_copied(convo: Convo) -> None:
    model = scripted_flags({"text": "Short."}, {"text": LONG})
    for text in ("one", "two"):
        assert convo("chat", "-q", "--replay", "--from", "talk.json", *model, f"{text} {LONG}").exit == 0
    assert convo("compact", "./talk.json").exit == 0
    assert len(json.loads(Path("talk.json").read_text())) == 3
    assert len(json.loads(Path("talk-before.json").read_text())) == 4


@pytest.mark.parametrize(
    ("argv", "exit_code", "message"),
    [
        (["nothing"], 5, "no session 'nothing'"),
        (["./nothing.json"], 5, "no file './nothing.json'"),
        (["mine", "--keep-last", "2"], 2, "nothing to compact"),
        (["mine", "--mode", "previous_response_id"], 2, "store=false"),
        (["mine", "--mode", "sideways"], 2, "--mode must be one of"),
    ],
)
def test_an_impossible_compaction_is_refused_and_nothing_changes(
    convo: Convo, two_turns: tuple[str, str], home: Path, argv: list[str], exit_code: int, message: str
) -> None:
    before = stored_conversation(home, "mine")
    got = convo("compact", *argv)
    assert (got.exit, got.out) == (exit_code, "")
    assert message in got.err
    assert stored_conversation(home, "mine") == before
    assert (home / DATABASE).exists()


def test_a_compaction_that_saves_nothing_says_so(convo: Convo) -> None:
    """The endpoint compacts a conversation in place, so it cannot be refused for its size."""
    model = scripted_flags({"text": "hi"})
    assert convo("chat", "-q", "--conversation", "-n", "mine", *model, "hello").exit == 0
    got = convo("compact", "mine", "--yes")
    assert got.exit == 0
    assert re.search(r"^  compacted +~?\d+ → ~?\d+ tokens, not smaller$", got.out, re.MULTILINE), got.out


def test_a_conversation_requires_confirmation_before_it_gets_a_new_handle(convo: Convo, home: Path) -> None:
    model = scripted_flags({"text": "Short."}, {"text": LONG})
    for text in ("one", "two"):
        flags = ["--conversation", "-n", "mine"] if text == "one" else ["--from", "mine"]
        assert convo("chat", "-q", *flags, *model, f"{text} {LONG}").exit == 0
    old_handle = stored_sessions(home)[0].handle
    refused = convo("compact", "mine", "--keep-last", "1")
    assert (refused.exit, stored_sessions(home)[0].handle) == (2, old_handle)
    assert "--yes" in refused.err
    assert convo("compact", "mine", "--keep-last", "1", "--yes").exit == 0
    assert stored_sessions(home)[0].handle != old_handle


def test_a_summary_is_not_the_title_and_its_request_is_named_a_compaction(convo: Convo) -> None:
    summary = scripted_flags({"text": "They talked."}, {"text": "They talked more."})
    convo("chat", *ECHO, "--name", "mine", "Where is the opera? " + LONG)
    convo("chat", "--from", "mine", "And the harbour? " + LONG)
    assert convo("compact", "mine", *summary).exit == 0
    links = convo("inspect", "mine", "--json").json()["links"]
    assert [link.get("compaction") for link in links] == [None, None, True]
    Path("only.json").write_text(convo("inspect", "mine", "--raw").out)
    items = [item for item in json.loads(Path("only.json").read_text()) if SUMMARY_HEADING in json.dumps(item)]
    Path("only.json").write_text(json.dumps([*items, user_message("What is next?")]))
    assert convo("import", "only.json", "--as", "later").exit == 0
    titles = {one["name"]: one["first_words"] for one in convo("sessions", "--json").json()}
    assert titles["mine"].startswith("Where is the opera?")
    assert titles["later"] == "What is next?"


@pytest.mark.needs("posix")
def test_after_a_compaction_only_typed_messages_are_edited_and_named_as_messages_of_the_user(
    convo: Convo, home: Path, two_turns: tuple[str, str]
) -> None:
    assert convo("compact", "mine", "--keep-last", "1").exit == 0
    compacted = stored_messages(home, "mine")
    got = run_repl("--from", "mine", lines=["/edit", "And in short?", "/context"])
    assert stored_messages(home, "mine")[:-1] == [*compacted[:-2], "user: And in short?"]
    assert "> Summary" not in got.err
    assert re.search(r"^ +compaction ", got.err, re.MULTILINE)
    assert {one["hit"]["by"] for one in convo("sessions", "search", "place of its earlier", "--json").json()} == {
        "summary"
    }


@pytest.mark.needs("posix")
def test_a_message_before_a_compaction_is_not_edited(convo: Convo, home: Path, two_turns: tuple[str, str]) -> None:
    assert convo("compact", "mine").exit == 0
    compacted = stored_messages(home, "mine")
    for command in ("/edit", "/edit other"):
        got = run_repl("--from", "mine", lines=[command])
        assert "the conversation has no message since the compaction" in got.err
    assert stored_messages(home, "mine") == compacted


@pytest.mark.parametrize(("keep_last", "kept_tokens"), [(0, 138), (1, 69)])
def test_after_a_compaction_the_summary_is_new_input_and_only_the_kept_items_are_resent(
    keep_last: int, kept_tokens: int, convo: Convo, two_turns: tuple[str, str]
) -> None:
    assert convo("compact", "mine", "--keep-last", str(keep_last)).exit == 0
    for text in ("next", "and then"):
        assert convo("chat", "-q", "--from", "mine", *two_turns, text).exit == 0
    document = convo("inspect", "mine", "--json").json()
    inputs = [link["usage"]["input_tokens"] for link in document["links"]]
    first, second, compaction, compacted, later = (link["resent_tokens"] for link in document["links"])
    assert (first, second, compaction, later) == (None, inputs[0], inputs[1], inputs[3])
    assert compacted == kept_tokens < inputs[3] - 5
    total = document["total"]["resent_tokens"]
    assert total == second + compaction + compacted + later
    assert f" · {total:,} re-sent" in convo("inspect", "mine").out
    assert f" · {total:,} re-sent" in run_repl("--from", "mine", *two_turns, lines=["/usage"]).err
