"""`convo sessions`, with conversations that the engine wrote to a real store."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from convo.history.records import Scope, Strategy
from convo.stores.base import Transaction
from tests.cli.chat_commands import ECHO
from tests.cli.stored_chats import DATABASE, ChatWriter, chat_of, write_chats
from tests.cli.test_app import HEAVY, imported_modules
from tests.command_runner import Convo
from tests.utc_timezone import utc_timezone

__all__ = ["utc_timezone"]


async def write_three_chats(writer: ChatWriter) -> None:
    """Write three conversations; the first is also the most recently used."""
    monads = await writer.chat(Strategy.SESSION, "monads", "What is a monad?")
    await writer.chat(Strategy.CHAIN, "tea", "How do I make tea?", "With milk?")
    await writer.chat(Strategy.CONVERSATION, "café", "Où est le café?")
    await writer.send(monads, "And in Haskell?")


SESSION_TABLE = """\
session  owner         model          items  turns  used              first message
monads   session       scripted/echo      4      2  2023-11-14 22:18  What is a monad?
café     conversation  scripted/echo      2      1  2023-11-14 22:17  Où est le café?
tea      chain         scripted/echo      4      2  2023-11-14 22:16  How do I make tea?
"""


@pytest.mark.parametrize("argv", [["sessions"], ["sessions", "list"]])
def test_sessions_are_listed_by_last_use(argv: list[str], convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    got = convo(*argv)
    assert (got.exit, got.out, got.err) == (0, SESSION_TABLE, "")


def test_a_limited_list_says_that_there_are_more(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    got = convo("sessions", "-n", "1")
    assert [line.split()[0] for line in got.out.splitlines()] == ["session", "monads"]
    assert got.err == "not all conversations are shown; -n 0 lists all\n"
    assert convo("sessions", "-n", "0").out == SESSION_TABLE
    assert convo("sessions", "-n", "3").err == ""


def test_json_lists_the_sessions(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    newest, *others = convo("sessions", "--json").json()
    assert [one["name"] for one in others] == ["café", "tea"]
    assert {**newest, "head": "", "mark": ""} == {
        "id": "ses_1",
        "name": "monads",
        "strategy": "session",
        "handle": None,
        "endpoint": "embedded",
        "model": "scripted/echo",
        "head": "",
        "mark": "",
        "items": 4,
        "unacknowledged": 0,
        "turns": 2,
        "response_id": "resp_5",
        "instructions": None,
        "created_at": 1_700_000_000.0,
        "used_at": newest["used_at"],
        "first_words": "What is a monad?",
        "kind": "session",
        "status": "done",
        "client": None,
        "cost_usd": None,
        "forks": 0,
        "hit": None,
    }
    assert newest["head"] == newest["mark"]


@pytest.mark.parametrize("argv", [["sessions"], ["sessions", "list"], ["sessions", "search", "monad"]])
def test_without_a_database_nothing_is_found_and_nothing_is_created(argv: list[str], convo: Convo, home: Path) -> None:
    got = convo(*argv)
    assert (got.exit, got.out) == (0, "")
    assert got.err.startswith(("no conversations yet; start one: convo chat", "no such conversation"))
    assert convo(*argv, "--json").json() == []
    assert not home.exists()


def test_without_sessions_a_store_that_is_not_the_default_is_named(
    convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "no folder" / "x.db"
    monkeypatch.setenv("CONVO_STORE", f"sqlite:{file}")
    got = convo("sessions")
    assert (got.exit, got.err) == (0, f'no conversations yet in sqlite:{file}; start one: convo chat "hello"\n')
    assert not file.parent.exists()


@pytest.mark.parametrize(
    "argv", [["show", "nope"], ["rename", "nope", "new"], ["rm", "nope", "--yes"], ["show", "resp_nope"]]
)
def test_an_unknown_session_exits_5(argv: list[str], convo: Convo, home: Path) -> None:
    got = convo("sessions", *argv)
    assert (got.exit, got.out) == (5, "")
    assert (
        got.err == f"convo: no {'response' if 'resp_nope' in argv else 'session'} {argv[1]!r}\n  try: convo sessions\n"
    )
    assert not home.exists()


# -- show -----------------------------------------------------------------------------------------


def test_show_names_the_owner_and_the_command_that_continues(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    out = convo("sessions", "show", "tea").out
    head = convo("sessions", "show", "tea", "--json").json()["head"]
    assert out == (
        "tea\n"
        "  id           ses_2\n"
        "  owner        the endpoint's Responses API (--chain)\n"
        "  handle       resp_3\n"
        "  endpoint     embedded\n"
        "  model        scripted/echo\n"
        f"  head         {head[:12]}, 4 items\n"
        f"  confirmed    {head[:12]}, 4 items\n"
        "  unconfirmed  none\n"
        "  turns        2\n"
        "  created      2023-11-14 22:14\n"
        "  used         2023-11-14 22:16\n"
        "  continue     convo chat --from tea\n"
    )


def test_an_ambiguous_prefix_lists_its_matches(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    got = convo("sessions", "show", "ses_")
    assert (got.exit, got.out) == (2, "")
    assert got.err.splitlines()[:2] == ["convo: 'ses_' is ambiguous; it matches", "  ses_1  session  monads"]
    assert got.err.endswith("  try: add more characters\n")


# -- search ---------------------------------------------------------------------------------------


def test_an_item_that_forks_share_is_listed_once(convo: Convo) -> None:
    convo("chat", *ECHO, "-n", "first", "a banana")
    for name in ("second", "third"):
        convo("chat", "--fork", "first", "-n", name, "more")
    (words,) = [line.split() for line in convo("sessions", "search", "banana").out.splitlines()[1:]]
    assert [*words[:6], *words[8:]] == ["third", "and", "2", "others", "1/4", "user", "a", "banana"]
    assert len(convo("sessions", "search", "banana", "--json").json()) == 3


def test_a_search_text_is_literal(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    assert "café" in convo("sessions", "search", "CAFE").out
    assert convo("sessions", "search", '"tea" OR *').out == ""


def test_a_search_finds_items_of_an_abandoned_branch(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.SESSION, "monads", "first", "second zebra")
        await chat.undo()

    write_chats(home, script)
    assert "3, on a branch" in convo("sessions", "search", "zebra").out


# -- rename ---------------------------------------------------------------------------------------


def test_a_new_name_is_a_handle_at_once_and_keeps_the_order(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    got = convo("sessions", "rename", "tea", "green tea")
    assert (got.exit, got.out, got.err) == (0, "", "renamed tea to green tea\n")
    assert convo("sessions", "show", "green tea").exit == 0
    assert convo("sessions", "show", "tea").out.startswith("green tea\n")  # a word of its name
    assert [one["name"] for one in convo("sessions", "--json").json()] == ["monads", "café", "green tea"]


@pytest.mark.parametrize(
    "name", ["resp_1", "conv_1", "ses_9", "@last", "a/b", "./x", "x.json", "", " ", "-n", " a", "a\nb"]
)
def test_a_name_that_looks_like_another_handle_is_refused(name: str, convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("tea", Strategy.SESSION, "hi"))
    got = convo("sessions", "rename", "tea", "--", name)
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith("convo: ")
    assert got.err.endswith("\n  try: use words with dashes, such as monads-in-haskell\n")
    assert convo("sessions", "show", "tea").exit == 0


# -- rm -------------------------------------------------------------------------------------------


def test_removing_a_session_removes_its_record_responses_and_items(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    got = convo("sessions", "rm", "tea", "--yes")
    assert (got.exit, got.out, got.err) == (0, "", "removed tea: 2 responses and 4 items\n")
    assert convo("sessions", "show", "tea").exit == 5
    assert convo("inspect", "resp_3").exit == 5


def test_items_shared_with_another_session_are_kept(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        await writer.chat(Strategy.CHAIN, "tea", "one", "two")
        await writer.chat(Strategy.CHAIN, "more-tea", "three", handle="resp_1")

    write_chats(home, script)
    assert convo("sessions", "rm", "tea", "--yes").err == "removed tea: 1 response and 2 items\n"
    assert "@ resp_3" in convo("inspect", "more-tea").out


@pytest.mark.parametrize("strategy", list(Strategy))
def test_no_text_of_a_removed_session_is_left_in_the_database_file(
    strategy: Strategy, convo: Convo, home: Path
) -> None:
    write_chats(home, chat_of("secret", strategy, "xylophonic", "quixotical"))
    before = (home / DATABASE).read_bytes()
    assert b"xylophonic" in before
    assert convo("sessions", "rm", "secret", "--yes").exit == 0
    after = b"".join(file.read_bytes() for file in sorted((home / DATABASE).parent.glob("convo.db*")))
    assert b"xylophonic" not in after
    assert b"quixotical" not in after


def test_a_replay_file_is_kept_and_named(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, chat_of("mine", Strategy.REPLAY, "hi"))
    got = convo("sessions", "rm", "mine", "--yes")
    assert got.err == f"removed mine: 1 response and 2 items; the file {tmp_path / 'talk.json'} stays\n"
    assert (tmp_path / "talk.json").exists()


def test_the_data_at_a_remote_endpoint_is_named(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.CHAIN, "tea", "one")
        session = replace(chat.session, scope=Scope("https://api.example.com/v1"))
        await writer.store.commit(Transaction(session=session, expected_session_head=session.head))

    write_chats(home, script)
    got = convo("sessions", "rm", "tea", "--yes")
    assert got.err == "removed tea: 1 response and 2 items; https://api.example.com/v1 keeps its own copy of resp_1\n"


def test_responses_that_a_local_owner_stored_at_an_endpoint_are_named(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.SESSION, "tea", "one")
        assert chat.turn
        assert chat.turn.link
        link = replace(chat.turn.link, id="resp_kept", scope=Scope("https://api.example.com/v1"), is_stored=True)
        await writer.store.commit(Transaction(links=(link,)))

    write_chats(home, script)
    got = convo("sessions", "rm", "tea", "--yes")
    assert got.err.endswith(
        "; https://api.example.com/v1 keeps its own copy of resp_kept and of the earlier responses\n"
    )


def test_without_a_terminal_and_without_yes_nothing_is_removed(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    got = convo("sessions", "rm", "tea", stdin="y\n")
    assert (got.exit, got.out) == (2, "")
    assert got.err == ("convo: not a terminal, so the removal cannot be confirmed\n  try: pass --yes to confirm\n")
    assert convo("sessions").out == SESSION_TABLE


def test_all_handles_are_resolved_before_the_first_session_is_removed(convo: Convo, home: Path) -> None:
    write_chats(home, write_three_chats)
    assert convo("sessions", "rm", "tea", "nope", "--yes").exit == 5
    assert convo("sessions").out == SESSION_TABLE
    assert convo("sessions", "rm", "tea", "monads", "ses_2", "--yes").err == (
        "removed tea: 2 responses and 4 items\nremoved monads: 2 responses and 4 items\n"
    )


@pytest.mark.parametrize(
    "command", ["sessions rm {} --yes", "sessions rename {} other", "compact {}", "sessions rm solo {} --yes"]
)
@pytest.mark.parametrize("by_id", [False, True])
def test_a_prefix_deletes_and_changes_nothing(command: str, by_id: bool, convo: Convo, home: Path) -> None:
    for name in ("solo", "solo-of-one-evening"):
        assert convo("chat", *ECHO, "-n", name, "hi").exit == 0
    stored = convo("sessions", "--json").json()
    handle = stored[0]["id"][:-2] if by_id else "solo-of-one"
    got = convo(*command.format(handle).split())
    assert (got.exit, got.out) == (5, "")
    assert got.err == f"convo: no session {handle!r}; did you mean 'solo-of-one-evening'?\n  try: convo sessions\n"
    assert convo("sessions", "--json").json() == stored
    assert convo("sessions", "show", handle).exit == 0


def test_a_removed_name_removes_no_longer_one(convo: Convo, home: Path) -> None:
    for name in ("solo", "solo-2"):
        assert convo("chat", *ECHO, "-n", name, "hi").exit == 0
    assert [convo("sessions", "rm", "solo", "--yes").exit for _ in range(2)] == [0, 5]
    assert [session["name"] for session in convo("sessions", "--json").json()] == ["solo-2"]


# -- the store ------------------------------------------------------------------------------------


def test_a_database_of_a_newer_convo_is_refused(convo: Convo, home: Path) -> None:
    write_chats(home, chat_of("tea", Strategy.SESSION, "hi"))
    with closing(sqlite3.connect(home / DATABASE)) as database:
        database.execute("PRAGMA user_version = 999")
    got = convo("sessions")
    assert (got.exit, got.out) == (1, "")
    assert "has schema 999; this version of convo supports schemas up to" in got.err
    assert "try: upgrade convo-state" in got.err


def test_a_file_that_is_not_a_database_is_refused(convo: Convo, home: Path) -> None:
    (home / DATABASE).parent.mkdir(parents=True)
    (home / DATABASE).write_text("this is not a database, and long enough to be read as one\n" * 100)
    got = convo("sessions", "--json")
    assert (got.exit, got.err) == (1, "")
    assert got.json()["error"]["code"] == "store_unavailable"


def test_listing_imports_no_large_packages(home: Path) -> None:
    write_chats(home, write_three_chats)
    modules = imported_modules("sessions", "list")
    assert not modules & HEAVY
    assert "sqlite3" in modules


def test_a_limit_larger_than_any_store_lists_all_sessions(convo: Convo) -> None:
    assert convo("chat", "-m", "scripted/echo", "--name", "oslo", "hi").exit == 0
    got = convo("sessions", "list", "-n", str(10**20))
    assert (got.exit, got.err, "oslo" in got.out) == (0, "", True)


@pytest.mark.parametrize(
    "argv", [("--since", "7d", "search", "x"), ("--json", "list"), ("-n", "1", "show", "@last")], ids=" ".join
)
def test_an_option_before_the_subcommand_is_refused(argv: tuple[str, ...], convo: Convo) -> None:
    got = convo("sessions", *argv)
    assert got.exit == 2
    assert "has no effect before" in got.out + got.err
