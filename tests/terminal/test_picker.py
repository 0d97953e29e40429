"""The lists to choose from: /resume, /model and `convo chat --pick`."""

import signal
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from prompt_toolkit.formatted_text import fragment_list_to_text

from convo.config.loader import load_settings
from convo.config.model_lists import save_model_lists
from convo.terminal.picker import QUERY_INDEX, PickerRows, PickerState, divide_rows, render_list
from tests.cli.chat_commands import ECHO, scripted_flags, stored_messages
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo
from tests.hostile_server import JSON, run_hostile_server
from tests.terminal.plain_repl import run_repl
from tests.terminal.pty_session import at_terminal
from tests.terminal.screen import ROWS, TerminalScreen, open_screen

KEYS = "Esc cancel"
"""A part of the last line of every list."""

UP, DOWN, PAGE_UP, PAGE_DOWN = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~"


# -- decisions -------------------------------------------------------------------------------------

TEXTS = ("Alpha one", "beta ONE", "gamma two")


def test_an_equal_name_comes_first_and_then_the_names_that_begin_with_the_search() -> None:
    texts = ("trip session about oslo", "oslo-2 session hi", "Oslo session hello", "oslo-3 session hi", "cafe oslo")
    state = PickerState.start(texts)
    assert state.search("oslo").matches == (2, 1, 3, 0, 4)
    assert state.search(" OSLO-").matches == (1, 3)
    assert state.search("").matches == (0, 1, 2, 3, 4)


def test_every_word_of_a_search_must_occur_in_any_case() -> None:
    state = PickerState.start(TEXTS)
    assert state.search("one").matches == (0, 1)
    assert state.search(" ONE  alp ").matches == (0,)
    assert state.search("one two").selected is None
    assert state.search("").matches == (0, 1, 2)


def test_a_search_selects_the_first_match_and_the_selection_stays_in_the_list() -> None:
    state = PickerState.start(TEXTS, selected=2)
    assert state.selected == 2
    assert state.move(1).selected == 2
    assert state.move(-9).selected == 0
    assert state.search("one").move(5).selected == 1
    assert state.search("nothing").move(1).selected is None


def test_the_typed_text_is_the_last_row_unless_an_entry_has_that_name() -> None:
    state = PickerState.start(TEXTS, takes_query=True)
    assert state.search("o").matches == (0, 1, 2, QUERY_INDEX)
    assert state.search("delta").matches == (QUERY_INDEX,)
    assert state.search("ALPHA").matches == (0,)


def test_the_list_scrolls_with_the_selection() -> None:
    state, lines = PickerState.start([str(n) for n in range(9)]), [str(n) for n in range(9)]

    def shown(position: int) -> str:
        return fragment_list_to_text(render_list(state.move(position), lines, 3, "number"))

    assert shown(0) == "> 0\n  1\n  2"
    assert shown(4) == "  3\n> 4\n  5"
    assert shown(8) == "  6\n  7\n> 8"
    assert render_list(state.search("x"), lines, 3, "number") == [("class:dim", "  no number matches")]


@pytest.mark.parametrize(
    ("columns", "rows", "count", "expected"),
    [
        (80, 24, 100, PickerRows(8, 10)),
        (80, 24, 2, PickerRows(2, 10)),
        (59, 24, 100, PickerRows(8, 0)),
        (80, 17, 100, PickerRows(8, 4)),
        (80, 15, 100, PickerRows(8, 0)),
        (80, 8, 100, PickerRows(3, 0)),
        (80, 2, 100, PickerRows(1, 0)),
    ],
)
def test_a_small_terminal_leaves_out_the_preview_first(
    columns: int, rows: int, count: int, expected: PickerRows
) -> None:
    assert divide_rows(columns, rows, count, has_preview=True) == expected
    assert divide_rows(columns, rows, count, has_preview=False) == (expected.entries, 0)


# -- /resume ---------------------------------------------------------------------------------------


@pytest.fixture
def conversations(convo: Convo) -> None:
    for name in ("first", "second", "third"):
        assert convo("chat", *ECHO, "-n", name, f"hello from {name}").exit == 0


def wait_for_list(screen: TerminalScreen, *texts: str) -> None:
    """Wait until a list is shown with all of `texts`."""
    screen.wait_until(lambda: all(text in screen.text() for text in (KEYS, *texts)))


@pytest.fixture
def screen(conversations: None) -> Iterator[TerminalScreen]:
    """A chat that has opened the list of /resume."""
    with open_screen("chat", *ECHO, "-n", "mine") as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("/resume\r")
        wait_for_list(screen, "> just now  third", "> hello from third")
        yield screen


@pytest.mark.needs("terminal")
def test_enter_continues_the_selected_conversation_in_this_chat(screen: TerminalScreen, home: Path) -> None:
    assert "3 conversations" in screen.text()
    screen.type_keys(DOWN)
    wait_for_list(screen, "> just now  second", "> hello from second")
    screen.type_keys("\r")
    screen.wait_for_prompt("continuing second, 2 items")
    assert KEYS not in screen.text()
    screen.type_keys("more\r")
    screen.wait_for_prompt(" output · ")
    assert stored_messages(home, "second")[2:] == ["user: more", "assistant: more"]


@pytest.mark.needs("terminal")
def test_a_color_sequence_among_typed_keys_is_ignored(screen: TerminalScreen, home: Path) -> None:
    screen.type_keys("\x1b[31mfir\x1b[0m")
    wait_for_list(screen, "1 of 3 conversations", "search: fir")
    screen.type_keys("\r")
    screen.wait_for_prompt("continuing first")
    screen.type_keys("\x1b[31mmore\x1b[1;2m\r")
    screen.wait_for_prompt(" output · ")
    assert stored_messages(home, "first")[2:] == ["user: more", "assistant: more"]


@pytest.mark.needs("terminal")
def test_typed_text_searches_names_and_first_messages(screen: TerminalScreen) -> None:
    screen.type_keys("fir")
    wait_for_list(screen, "1 of 3 conversations", "search: fir", "> just now  first", "> hello from first")
    screen.type_keys("x")
    wait_for_list(screen, "0 of 3 conversations", "no conversation matches")
    screen.type_keys("\r\x7f\x7f\x7f\x7fFROM sec\r")  # the first Enter chooses nothing
    screen.wait_for_prompt("continuing second")


@pytest.mark.needs("terminal")
def test_typed_text_also_searches_the_messages_of_all_conversations(convo: Convo, home: Path) -> None:
    for name in ("tides", "weather"):
        assert convo("chat", *ECHO, "-n", name, "hello").exit == 0
        assert convo("chat", *ECHO, "--from", name, f"the {name} in Bodø").exit == 0
    with open_screen("chat", "--pick") as screen:
        wait_for_list(screen, "2 conversations")
        screen.type_keys("bodø TIDES")
        wait_for_list(screen, "1 of 2 conversations", "> just now  tides")
        screen.type_keys("\x7f" * 10)
        wait_for_list(screen, "> just now  weather", "2 conversations")


@pytest.mark.needs("terminal")
def test_a_paste_into_the_search_is_one_line(screen: TerminalScreen) -> None:
    screen.type_keys("\x1b[200~hello\r\nfrom  first\x1b[201~")
    wait_for_list(screen, "search: hello from first", "1 of 3 conversations")


@pytest.mark.needs("terminal")
@pytest.mark.parametrize("key", ["\x1b", "\x03", "\x04"])
def test_esc_ctrl_c_and_ctrl_d_change_nothing(screen: TerminalScreen, key: str) -> None:
    screen.type_keys(key)
    screen.wait_for_prompt("nothing was changed")
    assert "session mine" in screen.text()
    assert KEYS not in screen.text()


@pytest.mark.needs("terminal")
def test_ctrl_n_and_ctrl_p_move_and_a_signal_changes_nothing(screen: TerminalScreen) -> None:
    screen.type_keys("\x0e")
    wait_for_list(screen, "> just now  second")
    screen.type_keys("\x10")
    wait_for_list(screen, "> just now  third")
    screen.child.kill(signal.SIGINT)
    screen.wait_for_prompt("nothing was changed")


@pytest.mark.needs("terminal")
def test_page_keys_move_by_the_rows_of_the_list(convo: Convo) -> None:
    for number in range(10):
        assert convo("chat", *ECHO, "-n", f"talk-{number}", f"hello {number}").exit == 0
    with open_screen("chat", *ECHO) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("/resume\r")
        wait_for_list(screen, "> just now  talk-9")
        screen.type_keys(PAGE_DOWN)
        wait_for_list(screen, "> just now  talk-1")
        screen.type_keys(PAGE_DOWN)
        wait_for_list(screen, "> just now  talk-0")
        screen.type_keys(PAGE_UP)
        wait_for_list(screen, "> just now  talk-8")
        screen.type_keys(UP)
        wait_for_list(screen, "> just now  talk-9")


@pytest.mark.needs("terminal")
def test_a_narrow_terminal_shows_no_preview(conversations: None) -> None:
    with open_screen("chat", *ECHO, columns=40) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("/resume\r")
        wait_for_list(screen, "> just now  third")
        screen.type_keys(DOWN)
        wait_for_list(screen, "> just now  second")
        assert "─" not in screen.text()
        screen.type_keys("\r")
        screen.wait_for_prompt("continuing second")


@pytest.mark.needs("terminal")
def test_a_terminal_that_becomes_narrow_loses_the_preview(screen: TerminalScreen) -> None:
    screen.child.setwinsize(ROWS, 50)
    screen.screen.resize(ROWS, 50)
    screen.wait_until(lambda: KEYS in screen.text() and "─" not in screen.text())
    screen.type_keys("\r")
    screen.wait_for_prompt("continuing third")


@pytest.mark.needs("terminal")
def test_an_empty_list_says_how_to_create_a_conversation() -> None:
    with at_terminal("chat", *ECHO) as terminal:
        terminal.wait_for_prompt()
        assert "no other conversations yet; /new starts one" in terminal.send_line("/resume")
        assert terminal.end_session() == 0


HOSTILE = "\x1b[2Jred \x07\u202egnp.exe\u2066 \u200bzero " + "long " * 2_000


@pytest.mark.needs("terminal")
@pytest.mark.parametrize("columns", [40, 80])
def test_hostile_text_is_escaped_and_cut(convo: Convo, columns: int) -> None:
    assert convo("chat", *scripted_flags({"text": f"{HOSTILE}\n" * 50}), "-n", "mine", HOSTILE).exit == 0
    with open_screen("chat", *ECHO, columns=columns) as screen:
        screen.wait_for_prompt("/help")
        screen.raw = ""
        screen.type_keys("/resume\r")
        wait_for_list(screen, "mine", *([r"> \x1b[2Jred \x07\u202egnp.exe"] if columns == 80 else []))
        assert "Type /help" in screen.text()  # the screen was not cleared
        assert not set(screen.raw) & set("\x07\u202e\u2066\u200b")
        assert "\x1b[2J" not in screen.raw


@pytest.mark.needs("terminal")
def test_a_preview_that_cannot_be_loaded_shows_the_error(conversations: None, home: Path) -> None:
    import sqlite3

    with open_screen("chat", *ECHO) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("/resume\r")
        wait_for_list(screen, "> hello from third")
        with closing(sqlite3.connect(home / DATABASE)) as database, database:
            database.execute("DELETE FROM sessions WHERE name = 'second'")
        screen.type_keys(DOWN)
        wait_for_list(screen, "> just now  second", "no session")
        screen.type_keys("\r")
        screen.wait_for_prompt("/resume lists the recent conversations")


@pytest.mark.needs("posix")
def test_without_a_terminal_that_can_be_drawn_on_the_names_are_listed(conversations: None) -> None:
    got = run_repl(*ECHO, lines=["/resume", "/model"], terminal=True)
    assert "/resume NAME continues one" in got.err
    assert "hello from first" in got.err
    assert "/model NAME changes the model; convo models known lists windows and prices\nmodel scripted/echo" in got.err


@pytest.mark.needs("terminal")
@pytest.mark.parametrize(("flags", "term"), [(("--plain",), "xterm"), ((), "dumb")])
def test_plain_output_and_dumb_terminals_get_a_list_of_names(
    conversations: None, flags: tuple[str, ...], term: str
) -> None:
    with at_terminal("chat", *ECHO, *flags, term=term) as terminal:
        terminal.wait_for_prompt()
        assert "/resume NAME continues one" in terminal.send_line("/resume")
        assert "model scripted/echo" in terminal.send_line("/model")
        assert terminal.end_session() == 0


# -- /model ----------------------------------------------------------------------------------------

SETTINGS = """
[aliases]
fast = "scripted/echo"
[windows."scripted/echo"]
context = 4000
[prices."scripted/echo"]
input = 1.5
output = 2.5
"""


@pytest.mark.needs("terminal")
def test_model_lists_the_models_with_their_windows_and_prices(home: Path) -> None:
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text(SETTINGS, encoding="utf-8")
    model = scripted_flags({"text": "hi"})
    with open_screen("chat", *model, "-n", "mine", columns=120) as screen:
        screen.wait_for_prompt("/help")
        screen.type_keys("/model\r")
        wait_for_list(screen, "input $/1M", "current", "gpt-6.1-terra", "no key")
        screen.type_keys("fast")
        wait_for_list(screen, "4,000         1.5          2.5  alias of scripted/echo")
        screen.type_keys("\x1b")
        screen.wait_for_prompt(f"model {model[1]}")
        screen.type_keys("/model\r")
        wait_for_list(screen, "current")
        screen.type_keys("echo")
        wait_for_list(screen, "> fast")
        screen.type_keys("\r")
        screen.wait_for_prompt("model scripted/echo")


@pytest.mark.needs("terminal")
def test_the_models_of_the_server_complete_the_open_list_and_typed_text_is_taken(home: Path) -> None:
    can_answer = threading.Event()

    def list_models(request: str) -> Iterator[bytes]:
        can_answer.wait(30)
        yield JSON + b'{"data": [{"id": "llama-late"}]}'

    with run_hostile_server(list_models) as server:
        (home / "config").mkdir(parents=True)
        settings = f'[providers.mine]\napi = "chat"\nbase_url = "{server.url}"\n'
        (home / "config" / "config.toml").write_text(settings, encoding="utf-8")
        with open_screen("chat", "-m", "mine/first") as screen:
            screen.wait_for_prompt("/help")
            screen.type_keys("/model\r")
            wait_for_list(screen, "> mine/first", "models · asking mine")
            screen.type_keys("late")
            wait_for_list(screen, "> late  as typed")
            can_answer.set()
            wait_for_list(screen, "  mine/llama-late", "> late  as typed")
            screen.type_keys("\x7f" * 4 + "mine/unlisted\r")
            screen.wait_for_prompt("model mine/unlisted")


@pytest.mark.needs("terminal")
def test_hostile_names_of_a_server_stay_on_their_lines(home: Path) -> None:
    names = ["one\ntwo", "\x1b[2Jred\u202e", "tab\tbed"]
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.toml").write_text('[providers.mine]\napi = "chat"\nbase_url = "http://127.0.0.1:9/v1"\n')
    save_model_lists(load_settings(None).paths, {"mine": ("http://127.0.0.1:9/v1", dict.fromkeys(names))})
    with open_screen("chat", *ECHO) as screen:
        screen.wait_for_prompt("/help")
        screen.raw = ""
        screen.type_keys("/model\r")
        wait_for_list(screen, "  mine/one two ", r"  mine/\x1b[2Jred\u202e ", "  mine/tab bed ")
        assert "\x1b[2J" not in screen.raw
        screen.type_keys("one")
        wait_for_list(screen, "> mine/one two")


# -- --pick ----------------------------------------------------------------------------------------


@pytest.mark.needs("terminal")
def test_pick_chooses_the_conversation_before_the_chat_starts(conversations: None, home: Path) -> None:
    with open_screen("chat", *ECHO, "--pick") as screen:
        wait_for_list(screen, "> just now  third", "> hello from third")
        screen.type_keys(DOWN)
        wait_for_list(screen, "> just now  second")
        screen.type_keys("\r")
        screen.wait_for_prompt("session second")
        screen.type_keys("more\r")
        screen.wait_for_prompt(" output · ")
    assert stored_messages(home, "second")[2:] == ["user: more", "assistant: more"]


@pytest.mark.needs("terminal")
def test_pick_with_a_message_sends_it_and_ends(conversations: None, home: Path) -> None:
    with open_screen("chat", *ECHO, "--pick", "more") as screen:
        wait_for_list(screen, "> just now  third")
        screen.type_keys("\r")
        assert screen.wait_for_exit() == 0
    assert stored_messages(home, "third")[2:] == ["user: more", "assistant: more"]


@pytest.mark.needs("terminal")
def test_pick_lists_only_the_conversations_of_the_named_owner(conversations: None, convo: Convo) -> None:
    assert convo("chat", *ECHO, "--chain", "-n", "chained", "hello").exit == 0
    with open_screen("chat", *ECHO, "--pick", "--chain") as screen:
        wait_for_list(screen, "1 conversation", "> just now  chained")
        assert "third" not in screen.text()


@pytest.mark.needs("terminal")
@pytest.mark.parametrize("key", ["\x1b", "\x03"])
def test_a_cancelled_pick_ends_the_command(conversations: None, key: str) -> None:
    with open_screen("chat", *ECHO, "--pick") as screen:
        wait_for_list(screen, "> just now  third")
        screen.type_keys(key)
        assert screen.wait_for_exit() == 130
        assert "no conversation was chosen" in screen.text()


@pytest.mark.needs("terminal")
def test_sigterm_during_a_pick_restores_the_terminal(conversations: None) -> None:
    with at_terminal("chat", *ECHO, "--pick") as terminal:
        terminal.wait_for_text(KEYS)
        terminal.child.kill(signal.SIGTERM)
        assert terminal.wait_for_exit() == 143
        assert "\x1b[?2004l" in terminal.child.before
        assert terminal.child.before.rindex("\x1b[J") > terminal.child.before.rfind("third")  # the list is erased


@pytest.mark.needs("terminal")
@pytest.mark.parametrize(
    ("flags", "options", "text"),
    [
        (("--from", "third"), {}, "--pick cannot be used with --from"),
        (("-c",), {}, "--pick cannot be used with -c"),
        (("--fork", "third"), {}, "--pick cannot be used with --fork"),
        (("-n", "new"), {}, "--pick cannot be used with -n"),
        (("--plain",), {}, "--pick cannot be used with --plain"),
        (("--json", "hi"), {}, "--pick cannot be used with --json"),
        ((), {"term": "dumb"}, "--pick needs a terminal"),
        ((), {"env": {"CONVO_EDITING": "plain"}}, '--pick cannot be used with the setting editing = "plain"'),
    ],
)
def test_pick_is_refused_where_it_has_no_meaning(flags: tuple[str, ...], options: dict[str, object], text: str) -> None:
    with at_terminal("chat", *ECHO, "--pick", *flags, **options) as terminal:  # type: ignore[arg-type]
        assert terminal.wait_for_exit() == 2
        assert text in terminal.output


def test_pick_without_a_terminal_is_refused(convo: Convo) -> None:
    got = convo("chat", "--pick", "hello")
    assert got.exit == 2
    assert "--pick needs a terminal\n  try: convo sessions lists the conversations" in got.err


@pytest.mark.needs("terminal")
@pytest.mark.parametrize("owner", ["", "--chain"])
def test_pick_without_a_conversation_says_how_to_create_one(owner: str) -> None:
    with at_terminal("chat", *ECHO, "--pick", *owner.split()) as terminal:
        assert terminal.wait_for_exit() == 5
        assert f'try: convo chat{owner and " "}{owner} "hello"' in terminal.output
