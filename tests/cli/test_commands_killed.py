"""`convo compact`, `race`, `import` and `convert` are killed at random moments, on SQLite and on PostgreSQL.

After every kill `convo store check` passes, every result that the command printed is stored, and the next
command works. At the end no turn and no session is stored twice, and no temporary file is left.
"""

import asyncio
import json
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from agents import SQLiteSession

from convo.history.items import item_text, item_type
from convo.history.records import Strategy
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.cli.command_kills import (
    Kills,
    check_store,
    conversation_sizes,
    store_params,
    stored_sessions,
    temporary_files,
)
from tests.command_runner import Convo
from tests.runstate.snapshots import entries_of_label, snapshot
from tests.transfer.test_import_databases import ITEMS

pytestmark = pytest.mark.needs("linux")

LLM = Path(__file__).parents[1] / "transfer" / "llm-0.36.db.xz"
LONG = "and this goes on for quite a while, as people do when they explain something at length; " * 4
FEW, MANY = 2, 12


class KillCounts(NamedTuple):
    """The counts of one series of kills."""

    killed: int
    confirmed: int


# -- compact --------------------------------------------------------------------------------------

COMPACTIONS: Mapping[str, tuple[Strategy, tuple[str, ...]]] = {
    "session": (Strategy.SESSION, ()),
    "replay": (Strategy.REPLAY, ()),
    "chain": (Strategy.CHAIN, ()),
    "conversation": (Strategy.CONVERSATION, ()),
    "conversation-seeded": (Strategy.CONVERSATION, ("--keep-last", "1", "--yes")),
}


def numbers(items: list[Any]) -> list[int]:
    """Return the numbers with which the user messages begin, in order."""
    return [
        int(word) for item in items if item.get("role") == "user" and (word := item_text(item).split()[0]).isdigit()
    ]


def kill_compactions(times: int, case: str, store_url: str, convo: Convo, scratch: Path) -> KillCounts:
    """Kill `convo compact` of one conversation `times` times; complete a turn after each kill."""
    strategy, flags = COMPACTIONS[case]
    model = scripted_flags({"text": "They counted."}, {"text": LONG * 3}, chunk=200, delay_s=0.01)
    file_flags = ("--from", "talk.json") if strategy is Strategy.REPLAY else ()
    assert convo("chat", f"--{strategy}", *file_flags, *model, "-n", "mine", f"1 {LONG}").exit == 0
    turn_count = 1

    def complete_turn() -> None:
        nonlocal turn_count
        turn_count += 1
        got = convo("chat", "-c", "--json", f"{turn_count} {LONG}")
        assert got.exit == 0, got.err
        assert got.json()["session"] == "mine"

    complete_turn()
    complete_turn()
    kills, confirmed, compactions = Kills(f"compact {case}{times}", times), 0, 1
    command = ("compact", "mine", *flags, "--json")
    histories = [stored_sessions(store_url)["mine"][1]]
    kills.measure(*command)
    complete_turn()
    for _ in range(times):
        before = stored_sessions(store_url)["mine"][1]
        histories.append(before)
        lines = kills.kill(*command)
        check_store(convo)
        sessions = stored_sessions(store_url)
        current = sessions["mine"][1]
        compactions += current != before
        if lines:
            result = json.loads(lines[-1])
            confirmed += 1
            assert result["items"] == len(current) != len(before)
            assert result["before"] is None or convo("inspect", result["before"]).exit == 0
        if current != before and strategy is Strategy.SESSION:
            assert before in [items for name, (_, items, _) in sessions.items() if name != "mine"]
        if current != before and strategy is Strategy.REPLAY:
            assert before in [json.loads(file.read_text()) for file in Path().glob("talk-before*.json")]
        complete_turn()
    sessions = stored_sessions(store_url)
    assert len(numbers(sessions["mine"][1])) == len(set(numbers(sessions["mine"][1])))
    heads = [session.head for session, _, _ in sessions.values()]
    assert len(heads) == len(set(heads))
    if strategy is Strategy.SESSION:
        assert compactions <= len(heads) - 1 <= compactions + 1  # a kill may leave one that the next compaction reuses
    copies = [file.read_text() for file in Path().glob("talk-before*.json")]
    assert len(copies) == len(set(copies))
    assert len(copies) <= compactions + 1
    assert all(json.loads(copy) in histories for copy in copies)
    assert temporary_files(Path(), scratch) == []
    return KillCounts(kills.killed, confirmed)


@pytest.mark.parametrize(("case", "store_url"), store_params(COMPACTIONS, few=True), indirect=["store_url"])
def test_after_a_killed_compaction_a_turn_succeeds(case: str, store_url: str, convo: Convo, scratch: Path) -> None:
    assert kill_compactions(FEW, case, store_url, convo, scratch).killed <= FEW


@pytest.mark.full
@pytest.mark.parametrize(("case", "store_url"), store_params(COMPACTIONS), indirect=["store_url"])
def test_a_compaction_killed_many_times_loses_and_duplicates_nothing(
    case: str, store_url: str, convo: Convo, scratch: Path
) -> None:
    figures = kill_compactions(MANY, case, store_url, convo, scratch)
    print(f"compact {case} on {store_url.partition(':')[0]}: {figures}")


# -- race -----------------------------------------------------------------------------------------

RACES: Mapping[str, tuple[str, ...]] = {"race": (), "race-keep": ("--keep",)}
TURNS = ("hello", "and then?")


def kill_races(times: int, case: str, store_url: str, convo: Convo, scratch: Path) -> KillCounts:
    """Kill `convo race` `times` times; continue the earlier conversation after each kill."""
    flags, keep = RACES[case], "--keep" in RACES[case]
    assert convo("chat", *ECHO, "-n", "mine", "0").exit == 0
    kills, confirmed, lines = Kills(f"{case}{times}", times), 0, list[str]()
    command = ("race", *TURNS, *scripted_flags({"text": "Word by word."}, chunk=4, delay_s=0.01), *flags, "--jsonl")
    lines += kills.measure(*command).splitlines()
    for number in range(1, times + 1):
        lines += kills.kill(*command)
        check_store(convo)
        sessions = stored_sessions(store_url)
        finished = [one for line in lines if (one := json.loads(line))["type"] == "convo.owner"]
        for one in finished if keep else ():
            session, items, _ = sessions[one["session"]]
            assert [item_text(item) for item in items if item.get("role") == "user"] == list(TURNS)
            assert len(items) == 2 * len(TURNS)
            if session.handle and session.strategy is Strategy.REPLAY:
                assert json.loads(Path(session.handle).read_text()) == items
        confirmed = len(finished)
        got = convo("chat", *(("--from", "mine") if keep else ("-c",)), "--json", str(number))
        assert got.exit == 0, got.err
        assert got.json()["session"] == "mine"
    kills.measure(*command)
    sessions = stored_sessions(store_url)
    assert numbers(sessions["mine"][1]) == list(range(times + 1))
    if not keep:
        assert list(sessions) == ["mine"]
        (stats,) = convo("store", "stats", "--json").json()
        in_progress = stats["rows"]["responses"] - len(sessions["mine"][2])
        assert 0 <= in_progress <= kills.killed, stats  # stored by the endpoint, not yet known to the race
        assert [length for length in conversation_sizes(store_url) if length] == []  # a kill may leave a new, empty one
        assert list(Path().glob("race*")) == []
    assert temporary_files(Path(), scratch) == []
    return KillCounts(kills.killed, confirmed)


@pytest.mark.parametrize(("case", "store_url"), store_params(RACES, few=True), indirect=["store_url"])
def test_a_killed_race_leaves_no_session_after_the_next_race(
    case: str, store_url: str, convo: Convo, scratch: Path
) -> None:
    assert kill_races(FEW, case, store_url, convo, scratch).killed <= FEW


@pytest.mark.full
@pytest.mark.parametrize(("case", "store_url"), store_params(RACES), indirect=["store_url"])
def test_a_race_killed_many_times_leaves_no_session_after_the_next_race(
    case: str, store_url: str, convo: Convo, scratch: Path
) -> None:
    figures = kill_races(MANY, case, store_url, convo, scratch)
    print(f"{case} on {store_url.partition(':')[0]}: {figures}")


# -- import ---------------------------------------------------------------------------------------


def make_replay(path: Path, convo: Convo) -> None:
    items = [{"role": "user", "content": "one"}, {"role": "assistant", "content": "two"}]
    path.write_text(json.dumps(items * 200))


def make_jsonl(path: Path, convo: Convo) -> None:
    assert convo("chat", *ECHO, "-n", "talk", "one").exit == 0
    assert convo("chat", *ECHO, "--from", "talk", "two").exit == 0
    assert convo("export", "talk", "-o", str(path), "--links").exit == 0
    assert convo("sessions", "rm", "talk", "--yes").exit == 0


def make_llm(path: Path, convo: Convo) -> None:
    path.write_bytes(lzma.decompress(LLM.read_bytes()))


def make_agents(path: Path, convo: Convo) -> None:
    async def write() -> None:
        for name, items in (("thread-7", ITEMS), ("other", ITEMS[:1])):
            session = SQLiteSession(name, path)
            await session.add_items(items)
            session.close()

    asyncio.run(write())


def make_state(path: Path, convo: Convo) -> None:
    path.write_bytes(snapshot(next(one["file"] for one in entries_of_label("1.18") if one["scenario"] == STATE)))


STATE = "completed_terminal"
"""The scenario of the imported RunState: a completed run without pending calls."""

SOURCES: Mapping[str, tuple[str, Callable[[Path, Convo], None]]] = {
    "replay": ("talk.json", make_replay),
    "jsonl": ("talk.jsonl", make_jsonl),
    "llm": ("logs.db", make_llm),
    "agents-sdk": ("agents.db", make_agents),
    "runstate": ("state.json", make_state),
}


def kill_imports(times: int, case: str, store_url: str, convo: Convo, scratch: Path) -> KillCounts:
    """Kill `convo import` of one file `times` times; after each kill the same command completes the import."""
    name, make_source = SOURCES[case]
    make_source(Path(name), convo)
    contents = Path(name).read_bytes()
    kills, confirmed = Kills(f"import {case}{times}", times), 0
    command = ("import", name, "--json")
    expected_results = [json.loads(line) for line in kills.measure(*command).splitlines()]
    expected = {one["session"]: one["items"] for one in expected_results}
    for number in range(times):
        assert convo("sessions", "rm", *expected, "--yes").exit == 0
        results = [json.loads(line) for line in kills.kill(*command)]
        check_store(convo)
        stored = {name: len(items) for name, (_, items, _) in stored_sessions(store_url).items()}
        assert stored.items() <= expected.items()
        assert {one["session"]: one["items"] for one in results}.items() <= stored.items()
        confirmed += len(results)
        again = convo(*command)
        assert again.exit == 0, again.err
        assert [json.loads(line) for line in again.out.splitlines()] == expected_results
        assert {name: len(items) for name, (_, items, _) in stored_sessions(store_url).items()} == expected
        first = next(iter(expected))
        assert convo("chat", *ECHO, "--from", first, f"message {number}").exit == 0
    assert Path(name).read_bytes() == contents
    assert temporary_files(Path(), scratch) == []
    return KillCounts(kills.killed, confirmed)


@pytest.mark.parametrize(("case", "store_url"), store_params(SOURCES, few=True), indirect=["store_url"])
def test_a_killed_import_is_completed_by_the_same_command(
    case: str, store_url: str, convo: Convo, scratch: Path
) -> None:
    assert kill_imports(FEW, case, store_url, convo, scratch).killed <= FEW


@pytest.mark.full
@pytest.mark.parametrize(("case", "store_url"), store_params(SOURCES), indirect=["store_url"])
def test_an_import_killed_many_times_creates_each_session_once(
    case: str, store_url: str, convo: Convo, scratch: Path
) -> None:
    figures = kill_imports(MANY, case, store_url, convo, scratch)
    print(f"import {case} on {store_url.partition(':')[0]}: {figures}")


# -- convert --------------------------------------------------------------------------------------


def kill_conversions(times: int, to: str, store_url: str, convo: Convo, scratch: Path) -> KillCounts:
    """Kill `convo convert` of one conversation `times` times; run the same command again after each kill."""
    make_replay(Path("in.json"), convo)
    assert convo("import", "in.json", "--as", "talk").exit == 0
    source = "./in.json" if to == "session" else "talk"
    before, contents = stored_sessions(store_url)["talk"], Path("in.json").read_bytes()
    kills, confirmed = Kills(f"convert {to}{times}", times), 0
    command = ("convert", source, "--to", to, "--as", "other", *ECHO, "--json")
    kills.measure(*command)
    for _ in range(times):
        assert convo("sessions", "rm", "other", "--yes").exit == 0
        Path("other.json").unlink(missing_ok=True)
        lines = kills.kill(*command)
        check_store(convo)
        sessions = stored_sessions(store_url)
        assert sessions["talk"] == before
        assert sessions.keys() <= {"talk", "other"}
        if lines:
            confirmed += 1
            assert json.loads(lines[-1])["session"] == "other"
            assert "other" in sessions
        again = convo(*command)
        if "other" in sessions:
            assert (again.exit, again.json()["error"]["code"]) == (1, "conflict")
        else:
            assert again.exit == 0, again.err
        session, items, _ = stored_sessions(store_url)["other"]
        assert (session.strategy, len(items)) == (to, 400)
        assert [(item_type(item), item_text(item)) for item in items] == [
            (item_type(item), item_text(item)) for item in before[1]
        ]
        assert to != "replay" or json.loads(Path("other.json").read_text()) == items
        assert convo("chat", "--from", "other", "and on").exit == 0
    assert Path("in.json").read_bytes() == contents
    assert sorted(file.name for file in Path().glob("*.json")) == sorted(
        {"in.json", *["other.json"] * (to == "replay")}
    )
    assert temporary_files(Path(), scratch) == []
    return KillCounts(kills.killed, confirmed)


@pytest.mark.parametrize(("to", "store_url"), store_params(Strategy, few=True), indirect=["store_url"])
def test_a_killed_conversion_is_completed_by_the_same_command(
    to: Strategy, store_url: str, convo: Convo, scratch: Path
) -> None:
    assert kill_conversions(FEW, str(to), store_url, convo, scratch).killed <= FEW


@pytest.mark.full
@pytest.mark.parametrize(("to", "store_url"), store_params(Strategy), indirect=["store_url"])
def test_a_conversion_killed_many_times_creates_one_session(
    to: Strategy, store_url: str, convo: Convo, scratch: Path
) -> None:
    figures = kill_conversions(MANY, str(to), store_url, convo, scratch)
    print(f"convert {to} on {store_url.partition(':')[0]}: {figures}")
