"""`convo chat -c` is killed at random moments, and the next command finds a consistent store.

After every kill the test lists the sessions, inspects the conversation and completes one more turn.
At the end every response that was reported as completed is stored, and no message is stored twice. A chat that is
killed in mid-stream keeps the text that it showed.
"""

import json
import re
import subprocess
import time
from pathlib import Path
from random import Random

import pytest

from convo.history.items import item_text
from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.cli.command_kills import Kills, check_store, store_params, stored_sessions, temporary_files
from tests.command_runner import Convo
from tests.fork_server import ConvoProcess
from tests.loopback_server import LoopbackServer
from tests.request_items import message_lines

pytestmark = pytest.mark.needs("linux")

COMMAND = ("chat", "-c", "--jsonl")


class KilledChat:
    """One conversation whose command is killed many times.

    confirmed:  the ids of the responses that a command reported as completed
    """

    def __init__(self, store_url: str, convo: Convo, kills: Kills) -> None:
        self.store_url, self.convo, self.kills = store_url, convo, kills
        self.confirmed: list[str] = []
        self.numbers = iter(range(1, 1_000_000))
        kills.measure(*COMMAND, f"message {next(self.numbers)}")

    def kill(self) -> None:
        """Start a turn and kill its process at the next moment."""
        lines = self.kills.kill(*COMMAND, f"message {next(self.numbers)}")
        self.confirmed += [json.loads(line)["response"]["id"] for line in lines if "response.completed" in line]

    def check(self) -> None:
        """Assert that the store is consistent and that commands work; complete one more turn."""
        check_store(self.convo)
        assert self.convo("sessions").exit == 0
        assert self.convo("inspect", "mine").exit == 0
        got = self.convo("chat", "-c", "--json", f"message {next(self.numbers)}")
        assert got.exit == 0, got.err
        self.confirmed.append(got.json()["response_id"])

    def check_everything(self) -> int:
        """Assert that no confirmed response is missing and no message is stored twice; return the number of items."""
        ((_, items, links),) = stored_sessions(self.store_url).values()
        completed_ids = {link.id for link in links if link.status == "completed"}
        assert set(self.confirmed) <= completed_ids
        numbers = [int(line.split()[-1]) for line in message_lines(items) if line.startswith("user")]
        assert numbers == sorted(set(numbers))
        return len(items)


def kill_turns(
    times: int, strategy: Strategy, store_url: str, convo: Convo, *flags: str, earliest: float = 0.0
) -> tuple[int, int]:
    """Kill turns of one conversation `times` times; return the numbers of confirmed responses and of items."""
    file_flags = ["--from", "talk.json"] if strategy is Strategy.REPLAY else []
    assert convo("chat", f"--{strategy}", *file_flags, *flags, "-n", "mine", "hello 0").exit == 0
    chat = KilledChat(store_url, convo, Kills(f"{strategy}{times}", times, earliest))
    for _ in range(times):
        chat.kill()
        chat.check()
    if strategy is Strategy.REPLAY:
        assert isinstance(json.loads(Path("talk.json").read_text()), list)
    assert temporary_files(Path()) == []
    items = chat.check_everything()
    print(
        f"chat {strategy} on {store_url.partition(':')[0]}: {chat.kills.killed} killed, {len(chat.confirmed)} confirmed"
    )
    return len(chat.confirmed), items


SLOW_ANSWER = {"text": "Word by word by word."}


@pytest.mark.parametrize(("strategy", "store_url"), store_params(Strategy, few=True), indirect=["store_url"])
def test_after_a_killed_command_the_next_one_succeeds(strategy: Strategy, store_url: str, convo: Convo) -> None:
    confirmed, items = kill_turns(4, strategy, store_url, convo, *scripted_flags(SLOW_ANSWER, chunk=4, delay_s=0.01))
    assert confirmed >= 4
    assert items >= 2 * confirmed


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "store_url"), store_params(Strategy), indirect=["store_url"])
def test_after_forty_killed_commands_the_next_one_succeeds(strategy: Strategy, store_url: str, convo: Convo) -> None:
    confirmed, items = kill_turns(40, strategy, store_url, convo, *scripted_flags(SLOW_ANSWER, chunk=4, delay_s=0.01))
    assert confirmed >= 40
    assert items >= 2 * confirmed


LONG_ANSWER = "Word by word, as people do when they explain, and on and on. " * 300
"""An answer of two minutes, so that no chat ends before it is killed."""


def kill_while_streaming(times: int, strategy: Strategy, store_url: str, convo: Convo) -> None:
    """Kill `times` new conversations after their first words; `-c` continues each, and its text is kept."""
    model, rng = scripted_flags({"text": LONG_ANSWER}, {"text": "More."}, chunk=3, delay_s=0.02), Random(strategy)
    assert convo("chat", *ECHO, "-n", "older", "hello").exit == 0
    for number in range(times):
        name, pipe = f"talk{number}", subprocess.PIPE
        with ConvoProcess(["chat", f"--{strategy}", "-n", name, *model, "explain"], stdout=pipe, stderr=pipe) as child:
            assert child.stdout
            assert child.stdout.read(1) == "W"
            time.sleep(rng.uniform(0, 1.1))
            child.kill()
            child.communicate()
        assert child.returncode == -9
        if strategy in (Strategy.SESSION, Strategy.REPLAY):
            assert [row["status"] for row in convo("sessions", "-n", "1", "--json").json()] == ["interrupted"]
        assert not re.search(r"\b(waiting|streaming)\b", convo("inspect", "resp_").out)
        _, items, _ = stored_sessions(store_url)[name]
        assert [item.get("status") for item in items] == [None, "incomplete"]
        assert LONG_ANSWER.startswith(item_text(items[1]))

        got = convo("chat", "-c", "go on")
        assert (got.exit, got.out) == (0, "More.\n"), got.err
        assert f"continuing {name!r}; its last answer was interrupted\n" in got.err
        messages = ["user: explain", f"assistant: {item_text(items[1])}", "user: go on", "assistant: More."]
        assert message_lines(stored_sessions(store_url)[name][1]) == messages
    check_store(convo)


@pytest.mark.parametrize(("strategy", "store_url"), store_params(Strategy, few=True), indirect=["store_url"])
def test_a_chat_killed_in_mid_stream_keeps_its_text(strategy: Strategy, store_url: str, convo: Convo) -> None:
    kill_while_streaming(1, strategy, store_url, convo)


@pytest.mark.full
@pytest.mark.parametrize(("strategy", "store_url"), store_params(Strategy), indirect=["store_url"])
def test_a_hundred_chats_killed_in_mid_stream_keep_their_text(strategy: Strategy, store_url: str, convo: Convo) -> None:
    """13 of each strategy on each store."""
    kill_while_streaming(13, strategy, store_url, convo)


@pytest.mark.full(every_commit=True)
@pytest.mark.parametrize(
    ("strategy", "store_url"), store_params([Strategy.CONVERSATION, Strategy.CHAIN]), indirect=["store_url"]
)
def test_a_killed_client_sends_no_message_to_the_endpoint_twice(
    strategy: Strategy, store_url: str, convo: Convo, server: LoopbackServer
) -> None:
    server.replies(SLOW_ANSWER, chunk=4, delay_s=0.02)
    confirmed, _ = kill_turns(20, strategy, store_url, convo, earliest=0.6)
    print(f"remote {strategy}: {len(server.bodies)} requests")
    messages = [line for line in message_lines(server.scripts.requests[-1].input) if line.startswith("user")]
    assert len(messages) == len(set(messages))
    assert confirmed >= 20
