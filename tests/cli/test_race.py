"""`convo race`: a table and bars, JSON output, and no stored data after the race."""

import json
from pathlib import Path

import pytest

from convo.stores.base import Store
from tests.cli.chat_commands import ECHO, stored_sessions
from tests.command_runner import Convo, Start
from tests.loopback_server import KEY, Fault, LoopbackServer, pause_after

OWNERS = ["replay", "session", "conversation", "chain"]


def test_a_table_and_a_bar_are_printed_for_each_owner(convo: Convo, home: Path) -> None:
    got = convo("race", "hello", "and then?", *ECHO)
    assert (got.exit, got.err) == (0, "")
    head, *rows = got.out.splitlines()
    assert head.split()[:4] == ["owner", "turns", "bytes", "items"]
    assert [row.split()[0] for row in rows[:4]] == OWNERS
    assert [row.split()[0] for row in rows[6:]] == OWNERS
    assert stored_sessions(home) == []
    assert not list(Path().glob("*.json"))


def test_a_failed_owner_is_reported_in_its_line(convo: Convo) -> None:
    Path("script.json").write_text(
        json.dumps({"replies": [{"error": {"code": "nope", "message": "No.", "status": 400}}]})
    )
    got = convo("race", "hello", "--jsonl", "-m", "scripted/./script.json")
    lines = [json.loads(line) for line in got.out.splitlines()]
    assert (got.exit, [one["type"] for one in lines]) == (1, ["convo.owner"] * 4)
    assert all(one["error"] for one in lines)


def test_json_and_jsonl_cannot_be_used_together(convo: Convo) -> None:
    got = convo("race", "hello", "--json", "--jsonl")
    assert (got.exit, got.json()["error"]["message"]) == (2, "--json and --jsonl cannot be used together")


def test_a_configured_price_shows_the_cost(convo: Convo, home: Path) -> None:
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('[prices."scripted/echo"]\ninput = 1000000\noutput = 0\n', encoding="utf-8")
    result = convo("race", "one two", "--json", *ECHO).json()
    assert [one["cost_usd"] for one in result["owners"]] == [2.0] * 4
    assert "$2.00 " in convo("race", "one two", *ECHO).out


def test_each_line_of_a_file_is_a_turn(convo: Convo) -> None:
    Path("script.txt").write_text("one\n\n  two  \n", encoding="utf-8")
    assert convo("race", "-f", "script.txt", "--json", *ECHO).json()["turns"] == ["one", "two"]


def test_kept_sessions_can_be_inspected(convo: Convo, home: Path) -> None:
    assert convo("race", "hello", "--keep", *ECHO).exit == 0
    assert sorted(one.name for one in stored_sessions(home)) == sorted(f"race-{owner}" for owner in OWNERS)
    assert convo("inspect", "race-chain").exit == 0


@pytest.mark.parametrize(
    ("argv", "exit_code", "message"),
    [
        (["hello", "-f", "script.txt"], 2, "turns as arguments and --file cannot be used together"),
        (["-f", "nothing.txt"], 2, "cannot be read"),
        (["-f", "/dev/zero"], 2, "larger than 16 MB"),
        ([" "], 2, "a turn is empty"),
        (["hello", "-m", "scripted/nothing.json"], 2, "nothing.json cannot be read"),
    ],
)
def test_an_invalid_race_is_refused(convo: Convo, home: Path, argv: list[str], exit_code: int, message: str) -> None:
    got = convo("race", *argv)
    assert (got.exit, got.out) == (exit_code, "")
    assert message in got.err
    assert stored_sessions(home) == []


def test_data_stored_at_a_remote_endpoint_is_deleted_after_the_race(convo: Convo, server: LoopbackServer) -> None:
    server.replies({"text": "Hello."})
    got = convo("race", "hello", "again", "-m", "openai/any", "--json")
    assert got.err == "sending 8 paid requests to openai/any\n"
    assert all(one["error"] is None for one in got.json()["owners"])
    assert server.run(stored_ids(server.store.for_tenant(KEY))) == []


@pytest.mark.needs("linux")
def test_sessions_of_a_killed_race_are_skipped_by_continue_and_removed_by_the_next_race(
    convo: Convo, start: Start, server: LoopbackServer, home: Path
) -> None:
    server.replies({"text": "Hello."})
    assert convo("chat", *ECHO, "-n", "mine", "one").exit == 0
    server.arm(*[Fault()] * 5, pause_after(3))
    race = start("race", "hello", "again", "-m", "openai/any")
    assert server.paused.wait(30)
    race.kill()
    race.wait()
    assert server.client_left.wait(30)
    server.release()
    assert [one.name for one in stored_sessions(home)] == ["@race-conversation", "mine"]
    assert server.run(stored_ids(server.store.for_tenant(KEY))) != []
    assert convo("chat", "-c", "--json", "two").json()["session"] == "mine"
    assert convo("inspect", "@last", "--json").json()["handle"] == "mine"

    assert convo("race", "hello", "-m", "openai/any").exit == 0
    assert [one.name for one in stored_sessions(home)] == ["mine"]
    ids = server.run(stored_ids(server.store.for_tenant(KEY)))
    assert server.run(confirmed_ids(server.store.for_tenant(KEY), ids)) == []


def test_a_running_race_is_not_changed_by_another_race(
    convo: Convo, start: Start, server: LoopbackServer, home: Path
) -> None:
    server.replies({"text": "Hello."})
    server.arm(*[Fault()] * 5, pause_after(3))
    first = start("race", "hello", "again", "-m", "openai/any", "--json")
    assert server.paused.wait(30)
    assert convo("race", "hello", "-m", "openai/any").exit == 0
    server.release()
    result = json.loads(first.communicate()[0])
    assert [one["error"] for one in result["owners"]] == [None] * 4
    assert stored_sessions(home) == []


def test_a_kept_race_creates_a_new_replay_file(convo: Convo) -> None:
    Path("race-replay.json").write_text('[{"role": "user", "content": "mine"}]')
    assert convo("race", "hello", "--keep", *ECHO).exit == 0
    assert json.loads(Path("race-replay.json").read_text()) == [{"role": "user", "content": "mine"}]
    assert len(json.loads(Path("race-replay-2.json").read_text())) == 2


async def confirmed_ids(store: Store, ids: list[str]) -> list[str]:
    """Exclude the response that was in progress at the kill: no record contains its id."""
    links = [await store.link(one) for one in ids]
    return [one for one, link in zip(ids, links, strict=True) if link is None or link.status == "completed"]


async def stored_ids(store: Store) -> list[str]:
    return [handle.id for prefix in ("resp_", "conv_") for handle in await store.find_handles(prefix)]
