"""`convo export`: write a conversation to a file or to stdout; the source is not changed."""

import json
import os
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from convo.history.records import is_compaction_link
from tests.cli.chat_commands import ECHO, scripted_flags, stored_conversation, stored_sessions
from tests.cli.stored_chats import DATABASE
from tests.command_runner import CommandResult, Convo, Launch
from tests.terminal.plain_repl import run_repl


@pytest.fixture(autouse=True)
def stored_session(convo: Convo, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert convo("chat", *ECHO, "-n", "mine", "one").exit == 0


FORMATS = [
    ("a.json", "json", "{"),
    ("a.jsonl", "jsonl", "{"),
    ("a.md", "markdown", "# "),
    ("a.html", "html", "<!DOC"),
]


@pytest.mark.parametrize(("file", "format_name", "prefix"), FORMATS)
def test_the_suffix_selects_the_format_and_the_file_is_readable_only_by_its_owner(
    convo: Convo, tmp_path: Path, home: Path, file: str, format_name: str, prefix: str
) -> None:
    before = stored_sessions(home)
    got = convo("export", "mine", "-o", file)
    assert (got.exit, got.out, got.err) == (0, "", f"exported 2 items to {file}\n")
    text = (tmp_path / file).read_text()
    assert text.startswith(prefix)
    assert text == convo("export", "mine", "--format", format_name).out
    assert stat.S_IMODE((tmp_path / file).stat().st_mode) == 0o600
    assert stored_sessions(home) == before


def test_a_dash_is_stdout_and_not_a_file(convo: Convo, tmp_path: Path) -> None:
    for format_name in ("replay", "jsonl", "markdown", "html"):
        got = convo("export", "mine", "--format", format_name, "-o", "-")
        assert (got.exit, got.out, got.err) == (0, convo("export", "mine", "--format", format_name).out, "")
    assert convo("export", "mine", "--output=-").out == convo("export", "mine").out
    assert not (tmp_path / "-").exists()
    assert convo("export", "mine", "-o", "./-").err == "exported 2 items to -\n"
    assert (tmp_path / "-").read_text() == convo("export", "mine").out


def read_error(got: CommandResult) -> tuple[str, str]:
    """Return the message and the hint of a command with --json or without."""
    if got.out:
        error = got.json()["error"]
        return error["message"], error["hint"]
    message, hint = got.err.splitlines()
    return message.removeprefix("convo: "), hint.removeprefix("  try: ")


@pytest.mark.parametrize(
    ("argv", "message", "hint"),
    [
        ("--links", "--links applies to jsonl, not to replay", "--format jsonl --links"),
        (
            "--format jsonl --no-data",
            "--no-data applies to markdown and html, not to jsonl",
            "leave out --no-data",
        ),
        ("--json", "--json needs an output file", "add -o FILE; to print JSON, use --format jsonl"),
        ("--json -o -", "--json needs an output file", "add -o FILE; to print JSON, use --format jsonl"),
        (
            "-o x.pdf",
            "unknown file format .pdf; -o accepts .json, .jsonl, .md, .markdown, .html, .htm",
            "use another suffix, or --format FORMAT",
        ),
        ("-o a.md", "a.md already exists", "pass --force to overwrite it, or name another file with -o"),
        (
            "--format runstate",
            "exporting a run needs its agents",
            "--agent FILE.py:NAME",
        ),
        (
            "--format runstate --agent a.py:b --redact",
            "--redact does not apply to runstate: a redacted run cannot be resumed",
            "export its conversation: --format replay --redact",
        ),
        (
            "--agent a.py:b",
            "--agent applies to runstate, not to replay",
            "--format runstate --agent FILE:NAME",
        ),
    ],
)
def test_conflicting_options_are_refused(convo: Convo, tmp_path: Path, argv: str, message: str, hint: str) -> None:
    (tmp_path / "a.md").write_text("mine")
    got = convo("export", "mine", *argv.split())
    assert (got.exit, *read_error(got)) == (2, message, hint)


def test_an_export_does_not_overwrite_its_own_replay_file(convo: Convo, tmp_path: Path) -> None:
    assert convo("chat", "--replay", "--from", "talk.json", *ECHO, "one").exit == 0
    before = (tmp_path / "talk.json").read_text()
    assert convo("export", "./talk.json", "-o", "talk.json").exit == 2
    assert (tmp_path / "talk.json").read_text() == before


@pytest.mark.parametrize("file", ["x.pdf", "x.docx", "v1.2", "x.jsn"])
def test_an_unknown_suffix_is_refused_unless_a_format_is_named(file: str, convo: Convo, tmp_path: Path) -> None:
    got = convo("export", "mine", "-o", file)
    assert (got.exit, got.out) == (2, "")
    assert f"unknown file format {Path(file).suffix}; -o accepts .json, .jsonl" in got.err
    assert not (tmp_path / file).exists()
    assert convo("export", "mine", "-o", file, "--format", "markdown").exit == 0
    assert (tmp_path / file).read_text().startswith("# ")


def test_an_existing_file_is_overwritten_only_with_force(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("mine")
    (tmp_path / "link.md").symlink_to("a.md")
    (tmp_path / "dangling.md").symlink_to("nowhere.md")
    for file in ("a.md", "link.md", "dangling.md"):
        got = convo("export", "mine", "-o", file)
        assert (got.exit, got.out, got.err.splitlines()[0]) == (2, "", f"convo: {file} already exists")
    assert (tmp_path / "a.md").read_text() == "mine"
    assert convo("export", "mine", "-o", "a.md", "--force").exit == 0
    assert (tmp_path / "a.md").read_text().startswith("# ")


def test_an_unknown_handle_writes_nothing(convo: Convo, tmp_path: Path) -> None:
    assert convo("export", "nope", "-o", "a.json").exit == 5
    assert not (tmp_path / "a.json").exists()


def test_a_pipe_is_written_to_and_not_replaced(launch: Launch, convo: Convo, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert convo("export", "mine", "-o", "pipe", "--format", "jsonl").exit == 0
    text = os.read(reader, 100_000).decode()
    os.close(reader)
    assert text == convo("export", "mine", "--format", "jsonl").out
    assert (tmp_path / "pipe").is_fifo()
    assert launch("export", "mine", "--format", "jsonl", "-o", "/dev/stdout").out == text


LONG_ANSWERS = (
    {"text": "Answer one: a monad is a monoid in the category of endofunctors, as they say, and so on and so forth."},
    {"text": "Answer two: Haskell has a type class for it, with bind and return, and do notation, and so on and on."},
    {"text": "Answer three: Scala has for comprehensions, translated to flatMap and map, as in Haskell."},
    {"text": "Four."},
)


def chat_and_compact(convo: Convo, strategy: str, *compact_flags: str) -> None:
    """Have three turns as the session "long", and compact it."""
    model = scripted_flags(*LONG_ANSWERS)
    questions = ("What is a monad? Explain it at length.", "And in Haskell, at length?", "And in Scala, at length?")
    assert convo("chat", f"--{strategy}", "--name", "long", *model, questions[0]).exit == 0
    for question in questions[1:]:
        assert convo("chat", "--from", "long", question).exit == 0
    assert convo("compact", "long", *compact_flags).exit == 0


@pytest.mark.parametrize(
    ("strategy", "compact_flags", "heading"),
    [
        ("chain", (), "## 7. compaction of items 2, 4, 6"),
        ("session", ("--keep-last", "1"), "## 7. summary of items 2, 4"),
    ],
)
def test_the_text_of_a_compacted_conversation_has_the_items_before_the_compaction_and_names_it(
    convo: Convo, tmp_path: Path, strategy: str, compact_flags: tuple[str, ...], heading: str
) -> None:
    chat_and_compact(convo, strategy, *compact_flags)
    assert convo("chat", "--from", "long", "And in OCaml?").exit == 0
    text = convo("export", "long", "--format", "markdown", "--no-data").out
    titles = [line.split(". ")[1] for line in text.splitlines() if line.startswith("## ")]
    assert titles == [*["user", "assistant"] * 3, heading.split(". ")[1], "user", "assistant"]
    assert heading in text
    assert [text.count(f"\n{answer['text']}\n") >= 1 for answer in LONG_ANSWERS] == [True] * 4
    page = convo("export", "long", "--format", "html", "--no-data").out
    assert heading.removeprefix("## ").replace(". ", " · ") in page
    assert "Answer two" in page
    items = convo("export", "long").json()
    assert "Answer two" not in json.dumps(items)
    assert convo("export", "long", "-o", "long.md").exit == 0
    assert convo("import", "long.md", "--as", "copy").exit == 0
    assert convo("export", "copy").json() == items


def titles_of(markdown: str) -> list[str]:
    """Return the headings of the items in an export."""
    return [line.partition(". ")[2] for line in markdown.splitlines() if line.startswith("## ")]


KEPT_TITLES = [*["user", "assistant"] * 2, "summary of items 2, 4"]
"""The headings after `chat_and_compact` with --keep-last 1 and an undo of the turn that it kept."""


@pytest.mark.needs("posix")
@pytest.mark.parametrize("undo", ["/rewind 1", "/undo", "/edit And in Lisp?"])
def test_an_export_after_an_undo_into_a_compacted_history_has_the_answers_before_the_compaction(
    undo: str, convo: Convo, home: Path, tmp_path: Path
) -> None:
    chat_and_compact(convo, "session", "--keep-last", "1")
    run_repl("--from", "long", lines=[undo, "/export undone.md"])
    sent = ["user", "assistant"] if "Lisp" in undo else []
    text = (tmp_path / "undone.md").read_text()
    assert titles_of(text) == [*KEPT_TITLES, *sent]
    assert convo("chat", "--from", "long", "And in OCaml?").exit == 0
    text = convo("export", "long", "--format", "markdown", "--no-data").out
    assert titles_of(text) == [*KEPT_TITLES, *sent, "user", "assistant"]
    assert [answer["text"] in text for answer in LONG_ANSWERS[:3]] == [True, True, False]
    links = stored_conversation(home, "long")[1]
    compaction = next(link for link in links if is_compaction_link(link))
    assert compaction.id in [link.parent_id for link in links]


@pytest.mark.parametrize("strategy", ["session", "replay", "chain"])
def test_an_export_of_a_fork_inside_a_compacted_history_has_the_answers_before_the_compaction(
    strategy: str, convo: Convo
) -> None:
    chat_and_compact(convo, strategy, "--keep-last", "1")
    assert convo("chat", "--fork", "long@1", "--name", "other", "And in OCaml?").exit == 0
    page = convo("export", "other", "--format", "html", "--no-data").out
    text = convo("export", "other", "--format", "markdown", "--no-data").out
    replaced = KEPT_TITLES[-1] if strategy != "chain" else "compaction of items 2, 4"
    assert titles_of(text) == [*KEPT_TITLES[:-1], replaced, "user", "assistant"]
    assert [answer["text"] in text for answer in LONG_ANSWERS[:3]] == [True, True, False]
    assert "Answer two" in page


@pytest.mark.needs("posix")
def test_a_session_whose_record_lost_its_compaction_by_an_undo_of_0_1_is_exported_with_all_answers(
    convo: Convo, home: Path
) -> None:
    chat_and_compact(convo, "session", "--keep-last", "1")
    run_repl("--from", "long", lines=["/rewind 1"])
    with closing(sqlite3.connect(home / DATABASE)) as db, db:
        db.execute("UPDATE sessions SET link = NULL")
    assert titles_of(convo("export", "long", "--format", "markdown", "--no-data").out) == KEPT_TITLES


def test_a_second_compaction_replaces_the_first_one(convo: Convo) -> None:
    chat_and_compact(convo, "session")
    assert convo("chat", "--from", "long", "And in OCaml? Please explain it, " + "at length " * 30).exit == 0
    assert convo("compact", "long").exit == 0
    text = convo("export", "long", "--format", "markdown", "--no-data").out
    titles = [line.split(". ")[1] for line in text.splitlines() if line.startswith("## ")]
    assert titles[:6] == ["user", "assistant"] * 3
    first, second = (title for title in titles if title.startswith("summary"))
    assert (first, second[-1]) == ("summary of items 2, 4, 6", "9")
    assert "7" in second


def test_secrets_are_redacted_in_the_items_before_a_compaction(convo: Convo) -> None:
    chat_and_compact(convo, "chain")
    text = convo("export", "long", "--format", "markdown", "--redact", "--redact-pattern", "flatMap").out
    assert "Answer three" in text
    assert "flatMap" not in text


def test_a_secret_in_a_kept_item_is_counted_once_with_the_number_that_the_text_shows(convo: Convo) -> None:
    chat_and_compact(convo, "chain")
    pattern = ("--redact-pattern", "Haskell", "--redact-pattern", "flatMap")
    got = convo("export", "long", "-o", "long.md", "--redact", *pattern)
    assert "redacted 4 own (item 3, item 4, item 6)" in got.err
    assert "not searched, because encrypted or not text: item 7" in got.err
    assert "entry" not in got.err
