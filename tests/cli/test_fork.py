"""`convo chat --fork HANDLE[@N]`: the fork point, for every kind of handle."""

from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, stored_messages, stored_sessions
from tests.cli.stored_chats import ChatWriter, chat_of, write_chats
from tests.command_runner import Convo


def history(*texts: str) -> list[str]:
    return [f"{role}: {text}" for text in texts for role in ("user", "assistant")]


@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN, Strategy.REPLAY])
@pytest.mark.parametrize(
    ("suffix", "before"), [("", ["one", "two"]), ("@2", ["one", "two"]), ("@1", ["one"]), ("@-1", ["one"]), ("@0", [])]
)
def test_a_session_is_forked_at_its_head_or_after_a_turn(
    strategy: Strategy, suffix: str, before: list[str], convo: Convo, home: Path
) -> None:
    write_chats(home, chat_of("mine", strategy, "one", "two"))
    got = convo("chat", "--fork", f"mine{suffix}", "-n", "other", "three")
    assert (got.exit, got.out) == (0, "three\n")
    assert stored_messages(home, "other") == history(*before, "three")
    assert stored_messages(home, "mine") == history("one", "two")


@pytest.mark.parametrize(
    ("handle", "before"), [("resp_1", ["one"]), ("resp_2@1", ["one"]), ("resp_3@-1", ["one", "two"])]
)
@pytest.mark.parametrize("strategy", [Strategy.SESSION, Strategy.CHAIN])
def test_a_response_is_forked_with_any_owner_of_its_history(
    strategy: Strategy, handle: str, before: list[str], convo: Convo, home: Path
) -> None:
    write_chats(home, chat_of("mine", strategy, "one", "two", "three"))
    assert convo("chat", *ECHO, "--fork", handle, "-n", "other", "four").exit == 0
    assert stored_messages(home, "other") == history(*before, "four")
    assert stored_messages(home, "mine") == history("one", "two", "three")
    assert {session.strategy for session in stored_sessions(home)} == {strategy}


def test_an_undone_response_can_still_be_forked(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.SESSION, "mine", "one", "two")
        await chat.undo()

    write_chats(home, script)
    assert convo("chat", "--fork", "resp_2", "-n", "other", "three").exit == 0
    assert stored_messages(home, "other") == history("one", "two", "three")


def test_a_replay_file_is_forked_by_its_path(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.REPLAY, "one", "two"))
    assert convo("chat", "--fork", "./talk.json@1", "-n", "other", "three").exit == 0
    assert stored_messages(home, "other") == history("one", "three")
    assert (tmp_path / "talk-2.json").exists()


@pytest.mark.parametrize("handle", ["conv_1", "mine", "mine@1"])
def test_a_conversation_cannot_be_forked(handle: str, convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.CONVERSATION, "one", "two"))
    got = convo("chat", "--fork", handle, "three")
    assert got.exit == 2
    assert "convo convert conv_1 --to session" in got.err
    assert len(stored_sessions(home)) == 1


@pytest.mark.parametrize(
    ("handle", "message"),
    [
        ("mine@3", "no turn '3'"),
        ("nope@1", "no session 'nope'"),
        ("./nope.json@1", "no session at './nope.json'"),
        ("resp_9@1", "no response 'resp_9'"),
    ],
)
def test_an_unknown_source_exits_5_and_creates_nothing(handle: str, message: str, convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one", "two"))
    got = convo("chat", "--fork", handle, "three")
    assert got.exit == 5
    assert message in got.err
    assert len(stored_sessions(home)) == 1
