"""Two processes use one conversation: the second gets an error that suggests a fork, and no turns interleave.

The first process is in the middle of a response: the server pauses the response until the test releases
it, or the script of the model takes most of a minute. The order of the processes does not depend on time.
"""

import json
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, scripted_flags, stored_messages, stored_sessions
from tests.command_runner import CommandResult, Convo, Launch, Start
from tests.loopback_server import LoopbackServer, pause_after

pytestmark = pytest.mark.needs("posix")

LONG = {"text": "one two three four five six seven eight nine ten " * 40}


def wait_for_output(process: "subprocess.Popen[str]") -> None:
    """Wait for the first character of the answer."""
    assert process.stdout
    assert process.stdout.read(1)


def slow_model() -> tuple[str, str]:
    return scripted_flags({"text": "Hello."}, LONG, {"text": "Fine."}, chunk=4, delay_s=0.1)


def start_session(convo: Convo, strategy: Strategy, *flags: str) -> None:
    file_flags = ["--from", "talk.json"] if strategy is Strategy.REPLAY else []
    assert convo("chat", f"--{strategy}", *file_flags, "-n", "mine", *flags, "hi").exit == 0


# -- a session that is open in another process -----------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_the_second_chat_learns_the_first_and_the_next_step_and_the_first_continues(
    strategy: Strategy, server: LoopbackServer, start: Start, launch: Launch, convo: Convo, home: Path, tmp_path: Path
) -> None:
    start_session(convo, strategy)
    server.arm(pause_after(6))
    first = start("chat", "--from", "mine", "a message that is long enough to come in several pieces")
    wait_for_output(first)
    request_count = len(server.bodies)

    second = launch("chat", "--from", "mine", "me too")

    handle = str(tmp_path / "talk.json") if strategy is Strategy.REPLAY else "mine"
    step = "close that chat first" if strategy is Strategy.CONVERSATION else f"convo chat --fork {handle}"
    assert (second.exit, second.out) == (1, "")
    error, hint = second.err.splitlines()
    assert error.startswith(f"convo: {handle!r} is open in another process (process {first.pid} on ")
    assert hint == f"  try: {step}"
    json_error = convo("chat", "--from", "mine", "--json", "me too").json()["error"]
    assert (json_error["code"], json_error["hint"]) == ("busy", step)
    assert len(server.bodies) == request_count

    server.release()
    out, _ = first.communicate()
    assert (first.returncode, out[-23:]) == (0, "come in several pieces\n")
    assert [line.split(":")[0] for line in stored_messages(home, "mine")] == ["user", "assistant"] * 2
    assert convo("chat", "--from", "mine", "now me").exit == 0


@pytest.mark.parametrize("strategy", [Strategy.REPLAY, Strategy.SESSION, Strategy.CHAIN])
def test_a_fork_of_an_open_session_continues_from_the_confirmed_items(
    strategy: Strategy, start: Start, launch: Launch, convo: Convo, home: Path
) -> None:
    start_session(convo, strategy, *slow_model())
    wait_for_output(start("chat", "--from", "mine", "go on"))

    fork = launch("chat", "--fork", "mine", *ECHO, "another way")

    assert (fork.exit, fork.out) == (0, "another way\n")
    history = ["user: hi", "assistant: Hello."]
    assert stored_messages(home, "mine-2") == [*history, "user: another way", "assistant: another way"]
    assert stored_messages(home, "mine")[:3] == [*history, "user: go on"]


@pytest.mark.parametrize("command", [["rm", "mine", "--yes"], ["rename", "mine", "yours"]])
def test_a_session_that_is_open_in_another_process_is_neither_removed_nor_renamed(
    command: list[str], start: Start, launch: Launch, convo: Convo, home: Path
) -> None:
    start_session(convo, Strategy.SESSION, *slow_model())
    first = start("chat", "--from", "mine", "go on")
    wait_for_output(first)

    got = launch("sessions", *command)

    assert (got.exit, got.out) == (1, "")
    error, hint = got.err.splitlines()
    assert error.startswith(f"convo: 'mine' is open in another process (process {first.pid} on ")
    assert hint == "  try: close that chat first"
    assert [session.name for session in stored_sessions(home)] == ["mine"]


def test_a_replay_file_has_one_writer_under_all_its_handles(
    start: Start, launch: Launch, convo: Convo, tmp_path: Path, home: Path
) -> None:
    start_session(convo, Strategy.REPLAY, *slow_model())
    (tmp_path / "link.json").symlink_to("talk.json")
    before = (tmp_path / "talk.json").read_bytes()
    wait_for_output(start("chat", "--from", "mine", "go on"))

    got = launch("chat", "--replay", "--from", "link.json", *ECHO, "me too")

    assert got.exit == 1
    assert f"{str(tmp_path / 'link.json')!r} is open in another process" in got.err
    assert (tmp_path / "talk.json").read_bytes() == before
    assert len(stored_sessions(home)) == 1


# -- processes without a common lease --------------------------------------------------------------


def test_a_replay_file_written_from_another_home_meanwhile_keeps_both_turns(
    server: LoopbackServer, start: Start, launch: Launch, tmp_path: Path
) -> None:
    launch("chat", "--replay", "--from", "talk.json", "hi")
    server.arm(pause_after(6))
    first = start("chat", "--replay", "--from", "talk.json", "a message that comes in more than one piece")
    wait_for_output(first)

    env = {"CONVO_HOME": str(tmp_path / "elsewhere")}
    second = launch("chat", "--replay", "--from", "talk.json", *ECHO, "me too", env=env)
    server.release()
    _, err = first.communicate()

    assert (second.exit, first.returncode) == (0, 0)
    assert "changed during the response; both changes are kept" in err
    items = json.loads((tmp_path / "talk.json").read_text())
    assert [item["content"][0]["text"] for item in items] == [
        *("hi", "hi", "me too", "me too"),
        *("a message that comes in more than one piece", "a message that comes in more than one piece"),
    ]


def test_a_conversation_locked_from_another_home_is_retried(
    server: LoopbackServer, start: Start, convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_session(convo, Strategy.CONVERSATION)
    conversation = str(server.bodies[0]["conversation"])
    server.arm(pause_after(6))
    first = start("chat", "--from", "mine", "a message that comes in more than one piece")
    wait_for_output(first)

    monkeypatch.setenv("CONVO_HOME", str(tmp_path / "elsewhere"))
    second = start("chat", "--conversation", "--from", conversation, "me too")
    assert second.stderr
    note = second.stderr.readline()
    server.release()
    out, _ = second.communicate()
    first.communicate()

    assert "Another process is currently operating on this conversation" in note
    assert (first.returncode, second.returncode, out) == (0, 0, "me too\n")
    items = server.run(server.endpoint().list_conversation_items(conversation, limit=100, order="asc")).items
    assert [item["role"] for item in items] == ["user", "assistant"] * 3


def test_two_processes_can_continue_one_response_concurrently(
    server: LoopbackServer, start: Start, launch: Launch, convo: Convo, home: Path
) -> None:
    start_session(convo, Strategy.CHAIN)
    response = convo("inspect", "mine", "--json").json()["links"][0]["response_id"]
    convo("chat", "--from", "mine", "two")
    server.arm(pause_after(6))
    first = start("chat", "--chain", "--from", response, "-n", "one-way", "a message that comes in more than one piece")
    wait_for_output(first)
    second = launch("chat", "--fork", response, "-n", "another-way", "me too")
    server.release()
    first.communicate()

    assert (first.returncode, second.exit) == (0, 0)
    assert [body["previous_response_id"] for body in server.bodies[2:]] == [response] * 2
    assert stored_messages(home, "another-way") == ["user: hi", "assistant: hi", "user: me too", "assistant: me too"]
    assert len(stored_messages(home, "one-way")) == 4


# -- many concurrent processes ---------------------------------------------------------------------


MANY = 6


@pytest.mark.parametrize("strategy", Strategy)
def test_of_many_concurrent_chats_each_stores_a_whole_turn_or_fails_with_an_error(
    strategy: Strategy, launch: Launch, convo: Convo, home: Path, tmp_path: Path
) -> None:
    start_session(convo, strategy, *scripted_flags({"text": "Answered word by word."}, chunk=2, delay_s=0.01))

    def send(number: int) -> CommandResult:
        return launch("chat", "--from", "mine", f"message {number}")

    with ThreadPoolExecutor(MANY) as pool:
        got = list(pool.map(send, range(MANY)))

    answered = {f"user: message {number}" for number in range(MANY) if got[number].exit == 0}
    failures = [one for one in got if one.exit]
    assert answered
    assert all((one.exit, one.out) == (1, "") and "is open in another process" in one.err for one in failures)
    lines = stored_messages(home, "mine")
    assert lines[::2] == ["user: hi", *(line for line in lines[2::2] if line in answered)]
    assert lines[1::2] == ["assistant: Answered word by word."] * (1 + len(answered))
    assert set(lines[2::2]) == answered
    if strategy is Strategy.REPLAY:
        assert len(json.loads((tmp_path / "talk.json").read_text())) == len(lines)


# -- the first process is killed -------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
def test_after_a_killed_process_the_session_is_free_at_once_and_its_message_and_its_text_are_kept(
    strategy: Strategy, start: Start, launch: Launch, convo: Convo, home: Path
) -> None:
    start_session(convo, strategy, *slow_model())
    first = start("chat", "--from", "mine", "go on")
    wait_for_output(first)
    first.kill()
    first.wait()

    got = launch("chat", "--from", "mine", "and now?")

    assert (got.exit, got.out) == (0, "Fine.\n")
    *history, partial, second_message, answer = stored_messages(home, "mine")
    assert history == ["user: hi", "assistant: Hello.", "user: go on"]
    assert partial.startswith("assistant: one ")
    assert (second_message, answer) == ("user: and now?", "assistant: Fine.")
    assert launch("sessions", "rm", "mine", "--yes").exit == 0
