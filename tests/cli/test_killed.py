"""`convo chat -c` is killed at random moments: whatever came of it, the next command finds it whole.

After every kill the sessions are listed, the conversation is inspected, and a turn is said to its
end. At the end no answer that was told whole is missing, and nothing was said twice.
"""

import json
import random
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path

import pytest

from convo.history import Strategy
from tests.cli.chatting import kept, scripted
from tests.cli.held import DATABASE
from tests.loopback import Loopback
from tests.running import Convo
from tests.warm import Begun, ran
from tests.wire import spoken

pytestmark = pytest.mark.needs("linux")

COMMAND = ("chat", "-c", "--jsonl")


class Killed:
    """One conversation that is killed again and again.

    confirmed:  the responses whose end was told before the kill
    life_s:     how long the command takes when nobody kills it
    earliest:   the part of it that is never cut short
    """

    def __init__(self, home: Path, convo: Convo, seed: str, earliest: float) -> None:
        self.home, self.convo, self.dice, self.earliest = home, convo, random.Random(seed), earliest
        self.confirmed: list[str] = []
        self.numbers = iter(range(1, 1_000_000))
        began = time.monotonic()
        ran([*COMMAND, f"message {next(self.numbers)}"]).check_returncode()
        self.life_s = time.monotonic() - began

    def kill(self) -> None:
        """Begin a turn, and kill it at some moment of its life."""
        words = [*COMMAND, f"message {next(self.numbers)}"]
        with Begun(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as child:
            time.sleep(self.dice.uniform(self.earliest, 1) * self.life_s)
            child.kill()
            told, _ = child.communicate()
        ends = [line for line in told.splitlines(keepends=True) if line.endswith("\n") and "response.completed" in line]
        self.confirmed += [json.loads(line)["response"]["id"] for line in ends]

    def check(self) -> None:
        """What must hold after every kill."""
        with closing(sqlite3.connect(self.home / DATABASE)) as db:
            assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            assert db.execute("SELECT count(*) - count(DISTINCT body) FROM items").fetchone() == (0,)
        assert self.convo("sessions").exit == 0
        assert self.convo("inspect", "mine").exit == 0
        got = self.convo("chat", "-c", "--json", f"message {next(self.numbers)}")
        assert got.exit == 0, got.err
        self.confirmed.append(got.json()["response_id"])

    def check_everything(self) -> int:
        """What must hold at the end; returns how many items there are."""
        items, links = kept(self.home, "mine")
        ended = {link.id for link in links if link.status == "completed"}
        assert set(self.confirmed) <= ended
        numbers = [int(line.split()[-1]) for line in spoken(items) if line.startswith("user")]
        assert numbers == sorted(set(numbers))
        return len(items)


def killed(
    times: int, strategy: Strategy, home: Path, convo: Convo, *flags: str, earliest: float = 0.0
) -> tuple[int, int]:
    """Kill one conversation `times` over; returns how many answers were confirmed and items are there."""
    named = ["--from", "talk.json"] if strategy is Strategy.REPLAY else []
    assert convo("chat", f"--{strategy}", *named, *flags, "-n", "mine", "hello 0").exit == 0
    one = Killed(home, convo, f"{strategy}{times}", earliest)
    for _ in range(times):
        one.kill()
        one.check()
    if strategy is Strategy.REPLAY:
        assert isinstance(json.loads(Path("talk.json").read_text()), list)
    return len(one.confirmed), one.check_everything()


SLOWLY = {"text": "Word by word by word."}


@pytest.mark.parametrize("strategy", Strategy)
def test_a_killed_command_is_followed_by_one_that_works(strategy: Strategy, home: Path, convo: Convo) -> None:
    confirmed, items = killed(4, strategy, home, convo, *scripted(SLOWLY, chunk=4, delay_s=0.01))
    assert confirmed >= 4
    assert items >= 2 * confirmed


@pytest.mark.full
@pytest.mark.parametrize("strategy", Strategy)
def test_a_command_killed_forty_times_is_followed_by_one_that_works(
    strategy: Strategy, home: Path, convo: Convo
) -> None:
    confirmed, items = killed(40, strategy, home, convo, *scripted(SLOWLY, chunk=4, delay_s=0.01))
    print(f"{strategy}: {confirmed} confirmed answers, {items} items")
    assert confirmed >= 40
    assert items >= 2 * confirmed


@pytest.mark.full
@pytest.mark.parametrize("strategy", [Strategy.CONVERSATION, Strategy.CHAIN])
def test_an_endpoint_whose_client_is_killed_is_told_nothing_twice(
    strategy: Strategy, home: Path, convo: Convo, server: Loopback
) -> None:
    server.replies(SLOWLY, chunk=4, delay_s=0.02)
    confirmed, items = killed(20, strategy, home, convo, earliest=0.6)
    print(f"remote {strategy}: {confirmed} confirmed answers, {items} items, {len(server.bodies)} requests")
    seen = [line for line in spoken(server.scripts.asks[-1].input) if line.startswith("user")]
    assert len(seen) == len(set(seen))
    assert confirmed >= 20
