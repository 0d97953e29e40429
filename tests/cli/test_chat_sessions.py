"""The session that `convo chat` continues, and the owner of its state."""

import json
import signal
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import (
    ECHO,
    receipts,
    scripted_flags,
    stored_conversation,
    stored_messages,
    stored_sessions,
)
from tests.cli.stored_chats import DATABASE, ChatWriter, chat_of, write_chats
from tests.command_runner import Convo, Launch, Start
from tests.loopback_server import LoopbackServer, overloaded, pause_after


def session_names(home: Path) -> list[str]:
    return [session.name for session in stored_sessions(home)]


# -- names -----------------------------------------------------------------------------------------


def test_a_session_is_named_after_its_first_words_and_numbered_when_the_name_is_taken(convo: Convo, home: Path) -> None:
    for _ in range(3):
        convo("chat", *ECHO, "What is a monad, please?")
    assert session_names(home) == ["what-is-a-monad-3", "what-is-a-monad-2", "what-is-a-monad"]


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("resp_1 says what?", "resp-1-says-what"),
        ("conv_1", "conv-1"),
        ("@last -c --help", "last-c-help"),
        ("ses_1/x.json", "ses-1-x-json"),
        ("¿?!", "chat"),
        ("Käse & Brot: 食べる", "käse-brot-食べる"),
        ("x" * 99, "x" * 40),
    ],
)
def test_a_generated_name_is_a_handle_of_its_session(prompt: str, name: str, convo: Convo, home: Path) -> None:
    convo("chat", *ECHO, "--", prompt)
    assert session_names(home) == [name]
    assert convo("chat", "--from", name, "and?").exit == 0
    assert len(stored_messages(home, name)) == 4


def test_the_name_of_a_new_file_gets_the_option_that_creates_it(convo: Convo) -> None:
    got = convo("chat", *ECHO, "--replay", "--name", "talk.json", "one")
    assert (got.exit, got.err.splitlines()[-1]) == (2, "  try: --replay --from talk.json")
    assert convo("chat", *ECHO, "--replay", "--from", "talk.json", "one").exit == 0
    assert Path("talk.json").exists()


def test_a_name_that_is_taken_is_refused_before_anything_is_sent(convo: Convo, home: Path) -> None:
    convo("chat", *ECHO, "-n", "mine", "one")
    got = convo("chat", *ECHO, "-n", "mine", "two")
    assert (got.exit, got.out) == (1, "")
    hint = "convo chat --from mine continues it, or choose another name"
    assert got.err == f"convo: another session has the name 'mine'\n  try: {hint}\n"
    assert stored_messages(home, "mine") == ["user: one", "assistant: one"]
    assert session_names(home) == ["mine"]


@pytest.mark.parametrize("flags", [["--from", "mine"], ["-c"]])
def test_an_existing_session_keeps_its_name(flags: list[str], convo: Convo, home: Path) -> None:
    convo("chat", *ECHO, "-n", "mine", "one")
    got = convo("chat", *flags, "-n", "a b", "two")
    assert (got.exit, got.out) == (2, "")
    assert got.err.endswith("try: convo sessions rename mine 'a b'\n")
    assert len(stored_messages(home, "mine")) == 2


def test_concurrent_new_sessions_with_the_same_first_words_get_different_names(launch: Launch, home: Path) -> None:
    with ThreadPoolExecutor(4) as threads:
        exit_codes = list(threads.map(lambda _: launch("chat", *ECHO, "hello").exit, range(4)))
    assert exit_codes == [0] * 4
    assert sorted(session_names(home)) == ["hello", "hello-2", "hello-3", "hello-4"]


# -- continuing a session --------------------------------------------------------------------------


def test_continue_selects_the_last_used_session_and_not_the_newest(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        older = await writer.chat(Strategy.SESSION, "older", "one")
        await writer.chat(Strategy.SESSION, "newer", "two")
        await writer.send(older, "three")

    write_chats(home, script)
    got = convo("chat", "-c", "four")
    assert receipts(got.err)[0]["owner"] == "session older"
    assert stored_messages(home, "older")[-2:] == ["user: four", "assistant: four"]


def test_continue_follows_the_order_of_use_and_not_the_clock(convo: Convo, home: Path) -> None:
    """The clock was one day ahead when the first session was used."""
    convo("chat", *ECHO, "-n", "ahead", "one")
    with closing(sqlite3.connect(home / DATABASE)) as db, db:
        db.execute("UPDATE sessions SET used_at = used_at + 86400")
    convo("chat", *ECHO, "-n", "now", "two")
    assert receipts(convo("chat", "-c", "three").err)[0]["owner"] == "session now"
    assert session_names(home) == ["now", "ahead"]


@pytest.mark.parametrize("owner", ["--session", "--replay", "--chain", "--conversation"])
def test_continue_sends_the_message_of_a_first_turn_that_failed(
    owner: str, server: LoopbackServer, convo: Convo, home: Path
) -> None:
    """The message of the failed turn stays stored, because it may have reached the server."""
    assert convo("chat", owner, "-n", "good", "hello").exit == 0
    server.arm(*[overloaded()] * 4)
    failed = convo("chat", owner, "-n", "bad", "lost?")
    assert failed.exit == 1
    assert "convo chat --from bad" in failed.err

    got = convo("chat", "-c", "go on")
    assert got.err.startswith("continuing 'bad'; its last message has no response\n")
    assert stored_messages(home, "bad") == ["user: lost?", "user: go on", "assistant: go on"]
    assert "lost?" in json.dumps(server.bodies[-1]["input"])


@pytest.mark.needs("posix")
def test_continue_selects_a_session_whose_first_turn_was_interrupted_without_an_answer(
    server: LoopbackServer, start: Start, convo: Convo, home: Path
) -> None:
    assert convo("chat", "-n", "good", "hello").exit == 0
    server.arm(pause_after(0))
    process = start("chat", "-n", "bad", "lost?")
    assert server.paused.wait(30)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert stored_messages(home, "bad") == ["user: lost?"]
    assert "session bad" in convo("chat", "-c", "go on").err


@pytest.mark.parametrize("argv", [("chat", *ECHO, "-c", "hi"), ("why",)], ids=["chat", "why"])
def test_the_last_session_without_any_exits_5(convo: Convo, argv: tuple[str, ...]) -> None:
    got = convo(*argv)
    assert (got.exit, got.out) == (5, "")
    assert got.err == "convo: no session '@last': there are no conversations yet\n  try: convo chat \"hello\"\n"


# -- owners ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--replay", "--chain"], "--chain and --replay cannot be used together: a conversation has one owner"),
        (
            ["--session", "--conversation"],
            "--conversation and --session cannot be used together: a conversation has one owner",
        ),
        (
            ["--chain", "--from", "conv_1"],
            "--chain expects resp_...; 'conv_1' belongs to the endpoint's Conversations API (--conversation)",
        ),
        (
            ["--conversation", "--from", "talk.json"],
            "--conversation expects conv_...; 'talk.json' belongs to the application: a JSON file (--replay)",
        ),
        (["-c", "--from", "mine"], "-c and --from cannot be used together: -c continues the session used last"),
        (["--fork", "mine", "-c"], "--fork cannot be used with --from, -c or a strategy option"),
        (
            ["--chain", "--from", "mine"],
            "'mine' is owned by the local store (--session), not by the endpoint's Responses API",
        ),
        (
            ["--replay", "--from", "mine"],
            "'mine' is owned by the local store (--session), not by the application: a JSON file",
        ),
        (
            ["--conversation", "-c"],
            "'mine' is owned by the local store (--session), not by the endpoint's Conversations API",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_flags_that_conflict_with_each_other_or_with_the_record_are_refused_with_the_owner(
    flags: list[str], message: str, convo: Convo, home: Path
) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one"))
    got = convo("chat", *ECHO, *flags, "two")
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith(f"convo: {message}\n  try: ")
    assert stored_messages(home, "mine") == ["user: one", "assistant: one"]
    assert session_names(home) == ["mine"]


def test_a_model_of_another_endpoint_is_refused_when_the_endpoint_owns_the_state(
    convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "test-key")
    write_chats(home, chat_of("mine", Strategy.CHAIN, "one"))
    got = convo("chat", "--from", "mine", "-m", "openai/gpt-5", "two")
    assert (got.exit, got.out) == (2, "")
    assert "convo convert mine" in got.err
    assert len(stored_messages(home, "mine")) == 2


# -- files -----------------------------------------------------------------------------------------


def test_a_second_replay_gets_the_next_free_file_name(convo: Convo, tmp_path: Path) -> None:
    convo("chat", *ECHO, "--replay", "one")
    got = convo("chat", *ECHO, "--replay", "two")
    assert got.err.splitlines()[0] == "saving the conversation to conversation-2.json"
    assert "one" in (tmp_path / "conversation.json").read_text()


def test_the_name_of_a_file_in_the_folder_is_answered_with_its_path(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "talk.jsonl").touch()
    got = convo("chat", *ECHO, "--from", "talk.jsonl", "two")
    assert (got.exit, got.err) == (5, "convo: no session or file 'talk.jsonl'\n  try: ./talk.jsonl\n")


# -- forks -----------------------------------------------------------------------------------------


def test_a_fork_of_a_replay_file_has_a_file_of_its_own(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.REPLAY, "one"))
    got = convo("chat", "--fork", "./talk.json", "two")
    assert got.exit == 0
    assert got.err.splitlines()[0] == "saving the conversation to talk-2.json"
    assert len(json.loads((tmp_path / "talk.json").read_text())) == 2
    assert len(json.loads((tmp_path / "talk-2.json").read_text())) == 4


def test_a_replay_file_without_a_session_is_forked_as_a_copy(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "talk.json").write_text("[]")
    got = convo("chat", *ECHO, "--fork", "./talk.json", "two")
    assert (got.exit, got.out) == (5, "")
    assert got.err.endswith("try: copy the file, then continue with --replay --from COPY\n")
    assert (tmp_path / "talk.json").read_text() == "[]"


# -- stored records --------------------------------------------------------------------------------


def test_a_session_that_continues_at_another_endpoint_records_both_endpoints(
    convo: Convo, home: Path, server: LoopbackServer
) -> None:
    """A client-owned history can be sent to any model, and each link records the endpoint that responded."""
    convo("chat", *ECHO, "-n", "mine", "one")
    convo("chat", "--from", "mine", "-m", "openai/gpt-5", "two")
    _, links = stored_conversation(home, "mine")
    assert [link.scope.url for link in links] == ["embedded", server.url]
    assert stored_sessions(home)[0].scope.url == server.url


def test_without_a_store_nothing_is_written(convo: Convo, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_STORE", "none")
    got = convo("chat", *scripted_flags({"text": "Half", "error": {"message": "Busy"}}), "hi")
    assert (got.exit, got.out) == (1, "Half\n")
    assert got.err.endswith("try: repeat the command\n")
    assert not home.exists()
