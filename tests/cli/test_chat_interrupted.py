"""`convo chat` is stopped by Ctrl-C, by a termination signal, or by a closed stdout.

The output so far is stored as unconfirmed items, and the next turn continues from it. Most tests stop
a real process after its first output; otherwise the script of the model would run for half a minute.
"""

import json
import signal
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from tests.cli.chat_commands import ECHO, receipts, scripted_flags, stored_messages
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo, Launch, Start
from tests.loopback_server import LoopbackServer, error_response, pause_after

pytestmark = pytest.mark.needs("posix")

LONG = {"text": "one two three four five six seven eight nine ten " * 10}


def read_first_characters(process: "subprocess.Popen[str]") -> str:
    """Wait for the first four characters of the answer and return them."""
    assert process.stdout
    return process.stdout.read(4)


def slow_model() -> tuple[str, str]:
    return scripted_flags(LONG, chunk=4, delay_s=0.25)


@pytest.mark.parametrize("signals", [1, 2])
def test_ctrl_c_keeps_the_partial_answer_and_the_next_turn_continues(
    signals: int, start: Start, convo: Convo, home: Path
) -> None:
    process = start("chat", *slow_model(), "-n", "mine", "count")
    beginning = read_first_characters(process)
    with closing(sqlite3.connect(home / DATABASE)) as other:
        other.execute("BEGIN IMMEDIATE")  # no signal comes after the answer is saved, when the process exits
        for _ in range(signals):
            process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    text = beginning + out.removesuffix("\n")

    assert process.returncode == 130
    assert LONG["text"].startswith(text)
    assert err.splitlines()[0] == "stopped; the output so far is saved"
    assert receipts(err)[0]["status"] == "cancelled"
    assert convo("inspect", "mine", "--watch", "--until-idle").exit == 0

    after = convo("chat", "--from", "mine", *ECHO, "go on")
    assert after.exit == 0
    assert receipts(after.err)[0]["input"] == str(len(f"count {text} go on".split()))


def test_the_partial_answer_is_stored_as_it_was_printed(start: Start, home: Path) -> None:
    process = start("chat", *slow_model(), "-n", "mine", "count")
    beginning = read_first_characters(process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert stored_messages(home, "mine") == ["user: count", f"assistant: {beginning}{out.removesuffix(chr(10))}…"]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_termination_signal_keeps_as_much_as_ctrl_c(number: int, code: int, start: Start, home: Path) -> None:
    process = start("chat", *slow_model(), "--replay", "-q", "-n", "mine", "count")
    beginning = read_first_characters(process)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    text = beginning + out.removesuffix("\n")
    assert (process.returncode, err) == (code, "")
    assert stored_messages(home, "mine") == ["user: count", f"assistant: {text}…"]
    with open("conversation.json") as file:
        assert [item["role"] for item in json.load(file)] == ["user", "assistant"]


def test_the_session_of_a_terminated_process_is_free_at_once(start: Start, launch: Launch) -> None:
    process = start("chat", *slow_model(), "-n", "mine", "count")
    read_first_characters(process)
    process.terminate()
    process.communicate(timeout=60)
    assert launch("chat", "--from", "mine", *ECHO, "go on").exit == 0


def test_a_closed_stdout_stops_the_answer(start: Start, home: Path) -> None:
    process = start("chat", *slow_model(), "-n", "mine", "count")
    beginning = read_first_characters(process)
    assert process.stdout
    assert process.stderr
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(timeout=60) == 141
    _, partial = stored_messages(home, "mine")
    assert partial.startswith(f"assistant: {beginning}")
    assert partial.endswith("…")


def test_a_process_started_with_ignored_interrupts_still_ignores_them(start: Start) -> None:
    """A non-interactive shell starts its background jobs with ignored interrupts."""
    process = start(
        "chat",
        *scripted_flags({"text": "one two three"}, chunk=4, delay_s=0.1),
        "-q",
        "count",
        shell="""trap '' INT; exec "$@" """,
    )
    beginning = read_first_characters(process)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, beginning + out) == (0, "one two three\n")


def test_ctrl_c_with_json_prints_the_partial_turn(start: Start, server: LoopbackServer) -> None:
    server.replies(LONG)
    server.arm(pause_after(after=6))
    process = start("chat", "--json", "count")
    server.paused.wait(60)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    turn = json.loads(out)
    assert (process.returncode, turn["status"]) == (130, "cancelled")
    assert LONG["text"].startswith(turn["output_text"])
    assert turn["session"] == "count"


def test_ctrl_c_with_jsonl_ends_with_an_interruption_object(start: Start) -> None:
    process = start("chat", *slow_model(), "--jsonl", "count")
    assert process.stdout
    while "delta" not in json.loads(process.stdout.readline()):
        pass
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["error"]["code"] == "interrupted"


def test_ctrl_c_during_a_retry_delay_keeps_the_message(start: Start, server: LoopbackServer, home: Path) -> None:
    """The note about the retry is printed before the delay begins."""
    server.arm(error_response(503, {"message": "Overloaded."}, {"retry-after": "60"}))
    process = start("chat", "-n", "mine", "count")
    assert process.stderr
    assert process.stderr.readline() == "Overloaded; retry 1 of 3 in 60 s: nothing was stored, so it is safe to retry\n"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert receipts(err)[0]["status"] == "cancelled"
    assert stored_messages(home, "mine") == ["user: count"]


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_do_not_fail_the_command(closed: str, start: Start, home: Path) -> None:
    process = start("chat", *ECHO, "-n", "mine", "hello", shell=f'exec "$@" {closed}')
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert out == ("" if " >" in f" {closed}" else "hello\n")
    assert len(receipts(err)) == (0 if "2>" in closed else 1)
    assert stored_messages(home, "mine") == ["user: hello", "assistant: hello"]


def test_without_a_prompt_a_closed_stdin_is_an_empty_message(start: Start) -> None:
    process = start("chat", *ECHO, shell='exec "$@" <&-')
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith("convo: the message is empty")
