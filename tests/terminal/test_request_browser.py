"""`convo inspect --interactive` in a terminal: every key, several widths, and the terminal afterwards."""

import asyncio
import base64
import json
import os
import random
import re
import resource
import signal
import stat
import sys
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path as FilePath

import pytest
from prompt_toolkit.keys import Keys
from prompt_toolkit.utils import get_cwidth

from convo.errors import NotFound, RequestRefused
from convo.history.records import Session, Strategy
from convo.history.tree import Path
from convo.inspect.view import ConversationView, PathIndex
from convo.stores.base import AppendItems, Transaction
from convo.stores.factory import open_store
from convo.terminal.request_browser import ActionKind, RequestBrowser, compare_requests
from tests.call_count import CallCount
from tests.cli.remote_state import create_chain
from tests.cli.stored_chats import DATABASE, ChatWriter, chat_of, write_chats
from tests.command_runner import Convo
from tests.inspect.conversation_builder import ROOT, START_TIME, build_chain
from tests.loopback_server import LoopbackServer
from tests.terminal.pty_session import at_terminal
from tests.terminal.screen import ROWS, TerminalScreen, open_screen

pytestmark = pytest.mark.needs("terminal")

UP, DOWN, PAGE_UP, PAGE_DOWN, HOME, END, ESC = "\x1b[A", "\x1b[B", "\x1b[5~", "\x1b[6~", "\x1b[H", "\x1b[F", "\x1b"

LEAVE_ALTERNATE_SCREEN, SHOW_CURSOR = "\x1b[?1049l", "\x1b[?25h"

COPY_SEQUENCE = re.compile(r"\x1b\]52;c;([A-Za-z0-9+/=]*)\x07")


class Browser:
    """The browser in a terminal; ids and times on its screen are not masked."""

    def __init__(self, screen: TerminalScreen) -> None:
        self.screen = screen

    @property
    def lines(self) -> list[str]:
        """The shown lines, without blanks at their ends."""
        return [line.rstrip() for line in self.screen.screen.display]

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()

    @property
    def selected(self) -> str:
        """The text of the line that is shown in reverse; a match of a search in it is not."""
        rows = [self.screen.screen.buffer[y] for y in range(self.screen.screen.lines)]
        row = next((y for y, cells in enumerate(rows) if cells[0].reverse and y > 1), None)
        return "" if row is None else self.lines[row].partition("│ ")[0].strip(" *")

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` is true and the screen is complete: the last control sequence moves the cursor."""

        def is_complete() -> bool:
            cursor = self.screen.screen.cursor
            return not cursor.hidden or (cursor.x, cursor.y) == (0, 0)

        self.screen.wait_until(lambda: condition() and is_complete())

    def wait(self, text: str) -> str:
        """Wait until `text` is shown; return the screen."""
        self.wait_until(lambda: text in self.text)
        return self.text

    def press(self, keys: str, text: str) -> str:
        """Type `keys`, and wait until `text` is shown; return the screen."""
        self.screen.type_keys(keys)
        return self.wait(text)

    def press_until_gone(self, keys: str, text: str) -> str:
        """Type `keys`, and wait until `text` is not shown; return the screen."""
        self.screen.type_keys(keys)
        self.wait_until(lambda: text not in self.text and "q quit" in self.text)
        return self.text

    def resize(self, columns: int, rows: int) -> None:
        self.screen.screen.resize(rows, columns)
        self.screen.child.setwinsize(rows, columns)

    def is_reversed(self, word: str) -> bool:
        """Whether the first shown `word` is in reverse."""
        y, line = next((y, line) for y, line in enumerate(self.screen.screen.display) if word in line)
        return bool(self.screen.screen.buffer[y][line.index(word)].reverse)


@contextmanager
def browse(handle: str, *argv: str, columns: int = 120, env: dict[str, str] | None = None) -> Iterator[Browser]:
    """The browser of one conversation, when its first screen is drawn."""
    with open_screen("inspect", handle, "--interactive", *argv, columns=columns, env=env) as screen:
        browser = Browser(screen)
        browser.wait("q quit")
        yield browser


LONG_TEXT = "Show me some of them, with a few words about each one, please."


async def write_forks(writer: ChatWriter) -> None:
    """A chain with two forks, a failed request, and the message of another client."""
    chat = await writer.chat(Strategy.CHAIN, "mine", "What is a monad?", "And in Haskell?")
    await writer.fail(chat, "Say it simply.", RequestRefused("Rate limit reached"))
    await writer.send(chat, LONG_TEXT)
    await writer.other_client("Which one is the simplest?", previous_response_id="resp_3")
    await writer.other_client("A branch from the start", previous_response_id="resp_1")
    await writer.send(chat, "Thanks!")


@pytest.fixture
def forks(home: FilePath) -> str:
    """A conversation with forks; return its handle."""
    write_chats(home, write_forks)
    return "mine"


WIDE = """\
mine  --chain · 4 requests · 89 input · 21 output · 3 others                                                         7/7
  response    input    preview                   │ resp_6                                               lines 1-27 of 32
  conversation  the endpoint's Responses API     │ ✓ status    completed
  ● resp_1        4  ✓ What is a monad? → What … │   owner     the endpoint's Responses API (--chain)
  ├─● resp_5     13  ✓ A branch from the start … │   session   mine
  ● resp_2       11  ✓ And in Haskell? → And in… │   model     scripted/echo
  ├─○ try_1       -  ✗ failed: Say it simply. →… │   parent    resp_3
  ● resp_3       30  ✓ Show me some of them, wi… │   sent      delta, 1 item, about 6 tokens
  ├─● resp_4     48  ✓ Which one is the simples… │   received  8 items, 7 of them prepended by the server
  @ resp_6       44  ✓ Thanks! → Thanks!         │   input     44 tokens · 0 cached · 30 re-sent"""

NARROW = """\
mine  --chain · 4 requests · 89 input · 21 output · 3 others                 7/7
  response    input  output     sent    preview
  conversation  the endpoint's Responses API
  ● resp_1        4       4   full 1  ✓ What is a monad? → What is a monad?
  ├─● resp_5     13       5  delta 1  ✓ A branch from the start → A branch from…
  ● resp_2       11       3  delta 1  ✓ And in Haskell? → And in Haskell?
  ├─○ try_1       -       -  delta 1  ✗ failed: Say it simply. → Rate limit rea…
  ● resp_3       30      13  delta 2  ✓ Show me some of them, with a few words …
  ├─● resp_4     48       5  delta 1  ✓ Which one is the simplest? → Which one …
  @ resp_6       44       1  delta 1  ✓ Thanks! → Thanks!"""

NARROWEST = """\
mine  --chain · 4 requests · 89 in…  7/7
  response    input    preview
  conversation  the endpoint's Response…
  ● resp_1        4  ✓ What is a monad?…
  ├─● resp_5     13  ✓ A branch from th…"""


@pytest.mark.parametrize(("columns", "expected"), [(120, WIDE), (80, NARROW), (40, NARROWEST)])
def test_the_tree_is_shown_and_from_90_columns_on_the_selected_request(columns: int, expected: str, forks: str) -> None:
    with browse(forks, columns=columns) as browser:
        assert browser.text.startswith(expected)
        assert browser.selected.startswith("@ resp_6")
        assert browser.lines[ROWS - 1].endswith("? help · q quit")


def test_the_request_is_shown_with_its_tokens_and_items(forks: str) -> None:
    with browse(forks) as browser:
        detail = [line.partition("│ ")[2] for line in browser.lines[2:]]
    assert re.fullmatch(r"  latency   \d+\.\d s, first output after \d+\.\d s", detail[10])
    assert detail[:10] + detail[11:27] == [
        "✓ status    completed",
        "  owner     the endpoint's Responses API (--chain)",
        "  session   mine",
        "  model     scripted/echo",
        "  parent    resp_3",
        "  sent      delta, 1 item, about 6 tokens",
        "  received  8 items, 7 of them prepended by the server",
        "  input     44 tokens · 0 cached · 30 re-sent",
        "  output    1 token",
        "  cost      unknown, no price for this model",
        "  date      2023-11-14 22:20:20",
        "",
        "  ▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒████████",
        "  █ sent · ▒ prepended by the server",
        "",
        "sent, 1 new item",
        "8  message user",
        "   Thanks!",
        "",
        "output, 1 item",
        "9  message assistant msg_6",
        "   Thanks!",
        "",
        "prepended by the server, 7 items",
        "   1  message user: What is a monad?",
        "   2  message assistant: What is a monad?",
    ]


def test_a_request_with_the_full_history_shows_what_is_new_in_it(home: FilePath) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one", "two", "three"))
    with browse("mine") as browser:
        detail = [line.partition("│ ")[2] for line in browser.lines]
    start = next(index for index, line in enumerate(detail) if line.startswith("sent, "))
    assert any(line.startswith("  sent      full history, 5 items, ") for line in detail)
    assert detail[start : start + 11] == [
        "sent, 1 new item, after 4 earlier items",
        "5  message user",
        "   three",
        "",
        "output, 1 item",
        "6  message assistant msg_3",
        "   three",
        "",
        "sent again, 4 items",
        "   1  message user: one",
        "   2  message assistant: one",
    ]


# -- moving ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "position"),
    [
        (UP, "6/7"),
        ("kk", "5/7"),
        (f"kk{DOWN}", "6/7"),
        ("kkj", "6/7"),
        ("g", "0/7"),
        (HOME, "0/7"),
        ("gjjG", "7/7"),
        (f"gj{END}", "7/7"),
        (PAGE_UP, "0/7"),
        (f"g{PAGE_DOWN}", "7/7"),
        ("kkkkkkkkkkkk", "0/7"),
        ("jjjx\x0bk", "6/7"),
    ],
)
def test_keys_that_select_a_request(keys: str, position: str, forks: str) -> None:
    with browse(forks) as browser:
        browser.press(keys, f" {position}\n")


def test_the_first_row_is_the_conversation(forks: str) -> None:
    with browse(forks) as browser:
        text = browser.press("g", "unconfirmed  none")
        assert browser.selected.startswith("conversation")
        assert "total        4 requests · 89 input · 21 output · 45 re-sent" in text
        for key, message in (
            ("m", "select a request to mark it"),
            ("c", "select a request to copy it"),
            ("f", "select a response to fork from"),
            ("d", "select a request, or mark two with m"),
        ):
            browser.press(key, message)


def test_below_90_columns_enter_and_tab_show_the_detail_and_esc_the_tree(forks: str) -> None:
    with browse(forks, columns=80) as browser:
        browser.press("k\r", "  parent    resp_3")
        assert "resp_6" not in browser.text
        browser.press(ESC, "@ resp_6")
        assert browser.selected.startswith("├─● resp_4")
        browser.press("\t", "  parent    resp_3")
        browser.press("\t", "@ resp_6")
        browser.press("\n", "  parent    resp_3")


def test_in_the_detail_the_keys_scroll_it(forks: str) -> None:
    with browse(forks) as browser:
        browser.press("\r", "Esc back")
        browser.press("j", "lines 2-28 of 32")
        browser.press("G", "lines 6-32 of 32")
        browser.press("j", "lines 6-32 of 32")
        browser.press("jjjk", "lines 5-31 of 32")
        browser.press(PAGE_UP, "lines 1-27 of 32")
        browser.press(PAGE_DOWN, "lines 6-32 of 32")
        text = browser.press("g", "lines 1-27 of 32")
        assert " 7/7\n" in text
        browser.press(f"{ESC}", "Enter details")
        assert browser.selected.startswith("@ resp_6")


def test_resizing_switches_between_one_pane_and_two(forks: str) -> None:
    with browse(forks) as browser:
        browser.press("k", " 6/7\n")
        browser.resize(60, 12)
        browser.wait_until(lambda: "│ " not in browser.text and "q quit" in browser.lines[11])
        assert len(browser.lines) == 12
        assert browser.selected.startswith("├─● resp_4")
        browser.resize(100, 8)
        browser.wait_until(lambda: "│ resp_4" in browser.text and "q quit" in browser.lines[7])
        browser.resize(9, 2)
        browser.wait_until(lambda: "resp…" in browser.lines[0] and "help" in browser.lines[1])


# -- long conversations ---------------------------------------------------------------------------


def write_long_chain(home: FilePath, turns: int) -> None:
    """Store a chain of `turns` requests in one transaction, as the session "mine"."""
    builder = build_chain(turns)
    path = builder.paths[f"resp_{turns}"]
    session = Session(
        id="ses_1",
        name="mine",
        strategy=Strategy.CHAIN,
        model="scripted/echo",
        head=path.head,
        confirmed_head=path.head,
        created_at=START_TIME,
        used_at=START_TIME,
        link_id=f"resp_{turns}",
        handle=f"resp_{turns}",
    )

    async def write() -> None:
        store = open_store(f"sqlite:{home / DATABASE}")
        await store.commit(
            Transaction((AppendItems(path.root, path.items),), links=tuple(builder.links), session=session)
        )
        await store.aclose()

    asyncio.run(write())


def test_2000_requests_open_and_move_without_delay(home: FilePath) -> None:
    """The limits are seconds of processor time, since other processes share the machine."""
    write_long_chain(home, 2_000)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with browse("mine") as browser:
        assert " 2,000/2,000\n" in browser.text
        browser.screen.type_keys("q")
        assert browser.screen.wait_for_exit() == 0
    opened = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert opened.ru_utime + opened.ru_stime - before.ru_utime - before.ru_stime < 1
    with browse("mine") as browser:
        for number in range(1_999, 1_899, -1):
            browser.press("k", f" {number:,}/2,000\n")
        browser.press("g", " 0/2,000\n")
        browser.press(PAGE_DOWN, " 26/2,000\n")
        browser.press("/question 1234\r", " 1,234/2,000\n")
        browser.screen.type_keys("q")
        assert browser.screen.wait_for_exit() == 0
    moved = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert moved.ru_utime + moved.ru_stime - opened.ru_utime - opened.ru_stime < 3


def calls_of_moves(turns: int) -> int:
    """The function calls of 20 moves at the start of a chain of `turns` requests."""
    browser = RequestBrowser(build_chain(turns).view(f"resp_{turns}"))
    browser.press("g")
    browser.render(120, 30)
    with CallCount() as calls:
        for _ in range(20):
            browser.press("j")
            browser.render(120, 30)
    return calls.total


def test_only_visible_rows_are_formatted() -> None:
    assert calls_of_moves(4_000) < 1.1 * calls_of_moves(150)


def test_of_a_long_context_every_item_can_be_reached(home: FilePath) -> None:
    write_long_chain(home, 300)
    with browse("mine", columns=80) as browser:
        browser.press("\r", "lines 1-27 of ")
        text = browser.press("G", " 598  message assistant: answer 299")
        assert "prepended by the server" not in text
        browser.press("/question 17\r", "  33  message user: question 17")


# -- search ---------------------------------------------------------------------------------------


def test_search_finds_requests_by_their_texts(forks: str) -> None:
    with browse(forks) as browser:
        browser.press("/mon", "/mon")
        assert browser.screen.screen.cursor.x == 4
        browser.press("x\x7fad?\r", "1 of 1 matching request")
        assert " 1/7\n" in browser.text
        browser.press("/THE\r", "1 of 3 matching requests")
        assert " 2/7\n" in browser.text
        browser.press("n", "2 of 3 matching requests")
        assert " 5/7\n" in browser.text
        browser.press("n", "3 of 3 matching requests")
        browser.press("n", "1 of 3 matching requests")
        browser.press("N", "3 of 3 matching requests")
        browser.press("/nothing like it\r", "no request contains 'nothing like it'")


def test_a_failed_request_is_found_by_its_error(forks: str) -> None:
    with browse(forks) as browser:
        text = browser.press("/rate limit\r", "1 of 1 matching request")
        assert "error     invalid_request_error · Rate limit reached" in text
        assert browser.is_reversed("Rate limit")


def test_search_in_the_detail_finds_lines(forks: str) -> None:
    with browse(forks) as browser:
        browser.press("\r/haskell\r", "1 of 2 matching lines")
        assert "lines 6-32 of 32" in browser.text
        browser.press("n", "2 of 2 matching lines")
        browser.press("n", "1 of 2 matching lines")
        browser.press("N", "2 of 2 matching lines")
        browser.press("/nope\r", "no line here contains 'nope'")


def test_a_search_is_left_with_esc_and_needs_a_text(forks: str) -> None:
    with browse(forks) as browser:
        browser.press("n", "nothing to search for; press / and type a text")
        browser.press("/abc", "/abc")
        browser.press(ESC, "q quit")
        browser.press("/abc\x15def", "/def")
        browser.press("\x7f\x7f\x7f\x7f", "q quit")
        browser.screen.type_keys("/")
        browser.press("\x1b[200~Haskell\nq\x1b[201~\r", "1 of 1 matching request")
        assert not browser.is_reversed("Haskell?")  # the selected line is, and a match in it is not
        browser.press(ESC, "q quit")
        assert browser.is_reversed("Haskell?")
        browser.press("k", " 2/7\n")
        assert not browser.is_reversed("Haskell?")


# -- marks and differences ------------------------------------------------------------------------


def test_d_compares_a_request_with_its_parent(forks: str, convo: Convo) -> None:
    with browse(forks, columns=200) as browser:
        text = browser.press("d", "histories, with the output")
    assert "│ difference" in text
    for line in convo("diff", "--wire", "resp_3", "resp_6").out.splitlines():
        assert " ".join(line.split()) in " ".join(text.split())
    assert "common prefix: 7 items; B has more items" in text
    assert "9 assistant: Thanks!" in text


def test_d_compares_the_marked_requests(forks: str) -> None:
    with browse(forks, columns=100) as browser:
        browser.press("m", "1 marked; d shows the difference")
        assert browser.lines[9].startswith("* @ resp_6")
        browser.press("gjm", "2 marked; d shows the difference")
        browser.screen.type_keys("j ")
        browser.wait_until(lambda: not browser.lines[9].startswith("*"))  # the oldest mark
        browser.wait("2 marked; d shows the difference")
        text = browser.press("d", "histories, with the output")
        assert re.search(r"A +resp_1, scripted/echo", text)
        assert re.search(r"B +resp_5, scripted/echo", text)
        browser.press_until_gone(ESC, "histories, with the output")
        browser.press_until_gone(" kmj", "marked")
        browser.press("jm", "1 marked")
        text = browser.press("gjd", "histories, with the output")
        assert re.search(r"A +resp_1, scripted/echo", text)
        assert re.search(r"B +resp_2, scripted/echo", text)


def test_the_first_request_has_no_parent_to_compare_it_with(forks: str) -> None:
    with browse(forks) as browser:
        browser.press("gjd", "resp_1 has no parent to compare it with; mark two requests with m")


def test_selecting_another_request_closes_the_difference(forks: str) -> None:
    with browse(forks) as browser:
        browser.press("d", "histories, with the output")
        browser.press_until_gone("\tk", "histories")
        assert browser.selected.startswith("├─● resp_4")


# -- fork -----------------------------------------------------------------------------------------


def test_f_continues_from_the_response_in_a_chat(forks: str, convo: Convo) -> None:
    with at_terminal("inspect", forks, "-i", columns=100) as terminal:
        terminal.wait_for_text("q quit")
        terminal.type_keys("gjf")
        assert "fork: convo chat --from resp_1 -m scripted/echo" in terminal.wait_for_prompt()
        terminal.send_line("Something else")
        assert terminal.end_session() == 0
    links = convo("inspect", forks, "--json").json()["links"]
    parents = {link["response_id"]: link["previous_response_id"] for link in links}
    new = [name for name in parents if len(name) > len("resp_1")]
    assert [parents[name] for name in new] == ["resp_1"]


def test_f_forks_the_session_of_a_response_that_its_endpoint_does_not_store(home: FilePath, convo: Convo) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "one", "two"))
    with at_terminal("inspect", "mine", "-i", columns=100) as terminal:
        terminal.wait_for_text("q quit")
        terminal.type_keys("kf")
        assert "fork: convo chat --fork resp_1" in terminal.wait_for_prompt()
        terminal.send_line("other")
        assert terminal.end_session() == 0
    assert [item["content"][0]["text"] for item in json.loads(convo("inspect", "mine-2", "--raw").out)] == [
        "one",
        "one",
        "other",
        "other",
    ]


def test_f_needs_a_response(forks: str) -> None:
    with browse(forks) as browser:
        browser.press("gjjjjf", "try_1 has no stored response to continue from")


# -- copy -----------------------------------------------------------------------------------------


@pytest.fixture
def server(loopback: LoopbackServer, monkeypatch: pytest.MonkeyPatch) -> LoopbackServer:
    """A loopback server of the Responses API, which the environment sets as the endpoint of the default model."""
    for name, value in loopback.environ.items():
        monkeypatch.setenv(name, value)
    return loopback


def copied_texts(browser: Browser) -> list[str]:
    """The texts of the copy sequences that were sent to the terminal."""
    return [base64.b64decode(text).decode() for text in COPY_SEQUENCE.findall(browser.screen.raw)]


@pytest.fixture
def no_clipboard(monkeypatch: pytest.MonkeyPatch) -> None:
    """No program for the clipboard can run."""
    for name in ("TMUX", "WAYLAND_DISPLAY", "DISPLAY"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("no_clipboard")
@pytest.mark.parametrize("strategy", [*Strategy])
def test_c_copies_the_command_that_convo_next_printed_before_the_request(
    strategy: Strategy, home: FilePath, convo: Convo
) -> None:
    write_chats(home, chat_of("mine", strategy, "one"))
    handle = "talk.json" if strategy is Strategy.REPLAY else "mine"
    expected = convo("next", handle, "two", "--curl").out
    source = ("--replay", "--from", handle) if strategy is Strategy.REPLAY else ("--from", handle)
    assert convo("chat", *source, "two").exit == 0
    with browse(handle if strategy is not Strategy.REPLAY else "./talk.json") as browser:
        browser.press("c", "(the terminal); press c again to show them")
        assert copied_texts(browser) == [expected.removesuffix("\n")]
        text = browser.press("c", "curl command of ")
        assert "curl -sS -N http://127.0.0.1:8788/v1/responses \\" in text
        browser.press_until_gone(ESC, "curl command of ")


@pytest.mark.usefixtures("no_clipboard")
@pytest.mark.parametrize("flag", ["--session", "--chain", "--conversation"])
def test_c_names_the_variable_of_the_key_and_not_the_key(flag: str, server: LoopbackServer, convo: Convo) -> None:
    convo("chat", flag, "-n", "mine", "one")
    expected = convo("next", "mine", "two", "--curl").out
    convo("chat", "--from", "mine", "two")
    with browse("mine") as browser:
        browser.press("c", "(the terminal)")
        assert copied_texts(browser) == [expected.removesuffix("\n")]
        assert "${OPENAI_API_KEY}" in expected
        assert os.environ["OPENAI_API_KEY"] not in browser.screen.raw
        assert os.environ["OPENAI_API_KEY"] not in expected


@pytest.mark.usefixtures("no_clipboard")
def test_a_chain_that_only_its_endpoint_has_is_browsed_and_continued(server: LoopbackServer, convo: Convo) -> None:
    first, second = create_chain(server, "one", "two")
    with browse(second, "--provider", "openai") as browser:
        text = browser.press("c", "(the terminal)")
        assert f"  parent    {first[:13]}" in text
        (command,) = copied_texts(browser)
        assert command.startswith(f"curl -sS -N {server.environ['OPENAI_BASE_URL']}/responses")
        assert f'"previous_response_id": "{first}"' in command
    with at_terminal("inspect", second, "--provider", "openai", "-i", columns=100) as terminal:
        terminal.wait_for_text("q quit")
        terminal.type_keys("kf")
        assert f"fork: convo chat --from {first} -m openai/" in terminal.wait_for_prompt()
        terminal.send_line("other")
        assert terminal.end_session() == 0
    assert server.bodies[-1]["previous_response_id"] == first


@pytest.mark.usefixtures("no_clipboard")
def test_a_command_that_is_too_long_for_the_terminal_is_shown(home: FilePath) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "x" * 80_000))
    with browse("mine", columns=80) as browser:
        text = browser.press("c", "no clipboard available; install xclip or wl-clipboard")
        assert "curl command of resp_1" in text
        assert copied_texts(browser) == []
        browser.press("G", "END_OF_REQUEST")


def test_a_command_is_copied_with_a_program(
    home: FilePath, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "x" * 80_000))
    program = tmp_path / "bin" / "xclip"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec cat > "{tmp_path}/copied"\n')
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    for name in ("TMUX", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "DISPLAY": ":99"}
    with browse("mine", env=env) as browser:
        browser.press("c", " characters (xclip)")
    copied = (tmp_path / "copied").read_text()
    assert copied.startswith("curl -sS -N ")
    assert "x" * 80_000 in copied


@pytest.mark.usefixtures("no_clipboard")
def test_of_a_huge_request_only_the_start_is_shown(home: FilePath) -> None:
    write_chats(home, chat_of("mine", Strategy.SESSION, "word " * 200_000))
    with browse("mine", columns=80) as browser:
        browser.press("\r/more char\r", "1 of 2 matching lines")
        assert re.search(r"980,0\d\d more characters; convo inspect HANDLE --items shows them", browser.text)
        browser.press("c", "no clipboard available")
        browser.press("G", "more characters, which a clipboard program can copy")


@pytest.mark.usefixtures("no_clipboard")
def test_a_request_whose_provider_is_not_configured_any_more_is_not_copied(
    server: LoopbackServer, convo: Convo, monkeypatch: pytest.MonkeyPatch
) -> None:
    convo("chat", "--chain", "-n", "mine", "one")
    monkeypatch.delenv("OPENAI_API_KEY")
    with browse("mine") as browser:
        browser.press("c", "OPENAI_API_KEY")
        assert copied_texts(browser) == []


# -- help, leaving, and what is refused -----------------------------------------------------------


def test_the_help_lists_the_keys(forks: str) -> None:
    with browse(forks, columns=80) as browser:
        text = browser.press("?", "q Ctrl-C ")
        named = " ".join(line[2:19] for line in text.splitlines()[2:]).split()
        assert {*"jkgG/nNmdfcq", "Up", "Down", "PageUp", "PageDown", "Enter", "Tab", "Esc", "Space"} <= {*named}
        browser.press(ESC, "@ resp_6")


@pytest.mark.parametrize(("key", "code"), [("q", 0), (ESC, 0), ("\x03", 130), ("/abc\x03", 130)])
def test_leaving_restores_the_terminal(key: str, code: int, forks: str) -> None:
    with open_screen("inspect", forks, "-i", columns=100) as screen:
        fd = os.dup(screen.child.child_fd)
        browser = Browser(screen)
        browser.wait("q quit")
        assert termios.tcgetattr(fd) != screen.child.mode_at_start
        screen.type_keys(key)
        assert screen.wait_for_exit() == code
        assert termios.tcgetattr(fd) == screen.child.mode_at_start
        os.close(fd)
        assert browser.text == ""
        assert not screen.screen.cursor.hidden


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_restores_the_terminal(name: str, forks: str) -> None:
    number = getattr(signal, name)
    with at_terminal("inspect", forks, "-i", columns=100) as terminal:
        fd = os.dup(terminal.child.child_fd)
        terminal.wait_for_text("q quit")
        terminal.child.kill(number)
        assert terminal.wait_for_exit() == 128 + number
        assert LEAVE_ALTERNATE_SCREEN in terminal.child.before
        assert terminal.child.before.endswith(SHOW_CURSOR)
        assert termios.tcgetattr(fd) == terminal.child.mode_at_start
        os.close(fd)


def test_a_color_sequence_among_typed_keys_is_ignored(forks: str) -> None:
    with browse(forks, columns=80) as browser:
        browser.press("\x1b[31m?", "q Ctrl-C ")
        browser.press(ESC, "@ resp_6")


@pytest.mark.needs("bash")
def test_ctrl_z_suspends_the_browser_and_fg_draws_it_again(forks: str) -> None:
    with at_terminal(command="exec bash --norc --noprofile -i", columns=100, env={"PS1": "READY> "}) as terminal:
        terminal.wait_for_text("READY> ")
        terminal.type_keys(f'"{sys.executable}" -m convo inspect {forks} -i\r')
        terminal.wait_for_text("q quit")
        terminal.press_ctrl("z")
        terminal.wait_for_text("Stopped")
        assert LEAVE_ALTERNATE_SCREEN in terminal.child.before
        terminal.wait_for_text("READY> ")
        terminal.type_keys("fg\r")
        terminal.wait_for_text("q quit")
        terminal.type_keys("q")
        terminal.wait_for_text("READY> ")


CRASH = """
import asyncio, sys
from convo.terminal.request_browser import RequestBrowser, browse_requests
from tests.inspect.conversation_builder import build_chain

class Broken(RequestBrowser):
    def {method}(self, *args):
        raise ZeroDivisionError

async def build_curl(link):
    raise AssertionError

try:
    asyncio.run(browse_requests(Broken(build_chain(2).view("resp_2")), build_curl))
except ZeroDivisionError:
    print("it failed", flush=True)
"""


@pytest.mark.parametrize("method", ["render", "press"])
def test_an_error_restores_the_terminal(method: str, tmp_path: FilePath) -> None:
    script = tmp_path / "crash.py"
    script.write_text(CRASH.format(method=method))
    root = FilePath(__file__).parent.parent.parent
    with at_terminal(command=f'cd "{root}" && PYTHONPATH=. exec "{sys.executable}" "{script}"') as terminal:
        fd = os.dup(terminal.child.child_fd)
        if method == "press":
            terminal.wait_for_text("q quit")
            terminal.type_keys("j")
        terminal.child.expect_exact("it failed")
        assert LEAVE_ALTERNATE_SCREEN in terminal.child.before
        assert "Traceback" not in terminal.child.before
        assert termios.tcgetattr(fd)[3] & termios.ECHO
        os.close(fd)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("mine", "-i"), "--interactive needs a terminal"),
        (("-i",), "--interactive needs a terminal"),
        (("mine", "-i", "--json"), "--interactive and --json cannot be used together"),
        (("mine", "--items", "-i"), "--interactive and --items cannot be used together"),
        (("mine", "-i", "--html", "x.html"), "--interactive and --html cannot be used together"),
        (("mine", "-i", "--watch"), "--interactive and --watch cannot be used together"),
        (("mine", "-i", "--until-idle"), "--interactive and --until-idle cannot be used together"),
        (("mine", "other", "-i"), "--interactive accepts one handle"),
        (("-", "-i"), "--interactive accepts one handle"),
    ],
)
def test_uses_that_are_refused(argv: tuple[str, ...], message: str, convo: Convo) -> None:
    got = convo("inspect", *argv)
    assert got.exit == 2
    shown = got.json()["error"]["message"] if "--json" in argv else got.err.splitlines()[0]
    assert shown.removeprefix("convo: ") == message


def test_a_terminal_that_cannot_move_the_cursor_is_refused(forks: str) -> None:
    with at_terminal("inspect", forks, "-i", term="dumb") as terminal:
        assert terminal.wait_for_exit() == 2
        assert "--interactive needs a terminal that can move the cursor; TERM is dumb" in terminal.output


def test_without_a_handle_the_conversation_used_last_is_shown(forks: str) -> None:
    with open_screen("inspect", "-i", columns=120) as screen:
        browser = Browser(screen)
        browser.wait("q quit")
        assert "What is a monad?" in browser.screen.text()


def test_without_a_handle_and_a_conversation_the_missing_one_is_named(home: Path) -> None:
    with at_terminal("inspect", "-i") as terminal:
        assert terminal.wait_for_exit() == 5
        assert "no session '@last'" in terminal.output
        assert 'convo chat "hello"' in terminal.output


def test_an_unknown_handle_exits_5(forks: str) -> None:
    with at_terminal("inspect", "nope", "-i") as terminal:
        assert terminal.wait_for_exit() == 5
        assert LEAVE_ALTERNATE_SCREEN not in terminal.child.before


# -- other conversations --------------------------------------------------------------------------


def test_no_text_of_a_conversation_reaches_the_terminal_as_a_control_sequence(home: FilePath) -> None:
    hostile = "\x1b]0;title\x07\x1b[31mred\u202e\u200b\u2028\ttab\x9b2J\x01end " + "字" * 70

    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.CHAIN, "mine", hostile)
        await writer.fail(chat, "again", RequestRefused(f"no {hostile}"))

    write_chats(home, script)
    with browse("mine") as browser:
        assert "\\x1b]0;title\\x07\\x1b[31mred\\u202e\\u200b\\u2028" in browser.text
        browser.press("k", "sent, 1 new item")
        browser.press("/字字\r", "matching request")
        browser.press("d", "parent to compare it with")
        browser.press("c", "press c again")
        browser.press("c", "curl command of")
        browser.press("G", "END_OF_REQUEST")
        for sequence in ("\x1b]0;", "\x1b[31mred", "\u202e", "\u200b", "\u2028", "\x9b", "\x01"):
            assert sequence not in browser.screen.raw


def test_a_file_without_requests_shows_its_items(tmp_path: FilePath) -> None:
    (tmp_path / "talk.json").write_text('[{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]')
    with browse("./talk.json") as browser:
        assert "2 items" in browser.text
        assert "   2  message assistant: ho" in browser.text
        for key in "jkmGgdfc\r":
            browser.screen.type_keys(key)
        browser.press("/ho\r", "1 of 1 matching line")


def test_unconfirmed_items_are_shown_with_the_conversation(home: FilePath) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.CHAIN, "mine", "one")
        await writer.fail(chat, "second", RequestRefused("no"))

    write_chats(home, script)
    with browse("mine") as browser:
        text = browser.press("g", "unconfirmed, 1 item")
        assert "3  message user  (unconfirmed)" in text


def test_a_plain_terminal_gets_ascii_only(forks: str) -> None:
    env = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "NO_COLOR": "1"}
    with browse(forks, env=env) as browser:
        assert "|-* resp_4" in browser.text
        assert browser.screen.raw.isascii()
        assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", browser.screen.raw)


# -- every key at every size ----------------------------------------------------------------------

NAMED_KEYS = (
    *(Keys.Up, Keys.Down, Keys.PageUp, Keys.PageDown, Keys.Home, Keys.End, Keys.ControlM, Keys.ControlJ, Keys.ControlI),
    *(Keys.ControlH, Keys.ControlU, Keys.Escape, Keys.F1, Keys.Left),
)
CHARACTERS = "jjjkkkgG/nNmm dddfcc?é字\x1b"


CONTROL_CHAR = re.compile("[\x00-\x1f\x7f-\x9f]")


def deep_forks() -> ConversationView:
    """A conversation with 40 forks, each below the other, long words, wide characters and tabs."""
    builder = build_chain(3)
    for depth in range(40):
        before = "resp_1" if depth == 0 else f"resp_{depth}d"
        builder.turn(f"resp_{depth + 1}d", "字" * depth, f"\t{'x' * 10 * depth}\u0301 \ud800\x00", after=before)
        builder.turn(f"resp_{depth + 1}e", "along", None, after=before, error={"message": "no\n" * 9})
    builder.turn("resp_\x1b[2J\n\t字", "hostile", "\x9b2J", after="resp_3", model="\x07\n/x")
    hostile = [{"type": "mess\nage\x1b", "role": "us\ter", "id": "\x1b\n"}] * 50
    builder.paths["resp_3"] = builder.paths["resp_3"].append(hostile)
    parameters = {"\x1b[31mname\n" * 9: "\x1b[31m", "instructions": "\t\n" * 9_000}
    builder.turn("resp_4", "after it", "text", after="resp_3", parameters=parameters)
    return builder.view("resp_4", handle="a\n\x1b\tb")


def deleted_items() -> ConversationView:
    """A conversation whose items were deleted."""
    return build_chain(3).view("resp_3", path_index=PathIndex(ROOT), path=Path(ROOT), confirmed_head=ROOT)


@pytest.mark.parametrize("view", [deep_forks(), deleted_items(), build_chain(1).view(None)])
def test_any_keys_at_any_size_draw_a_screen_of_that_size(view: ConversationView) -> None:
    rng = random.Random(1)
    browser = RequestBrowser(view)
    keys = [rng.choice([*NAMED_KEYS, *CHARACTERS]) for _ in range(400)]
    for key in (Keys.ControlM, "G", Keys.ControlI, *keys):
        action = browser.press(key)
        if action and action.kind is ActionKind.COMPARE:
            with suppress(NotFound):
                a, b = action.links
                browser.show_difference(compare_requests(a, b, view))
        elif action and action.kind is ActionKind.COPY:
            browser.show_copied(action.links[0], "curl " + "x" * 500, rng.choice([[], ["xclip"]]))
        columns, rows = rng.choice([(rng.randint(1, 20), rng.randint(1, 6)), (rng.randint(20, 200), 24)])
        screen = browser.render(columns, rows)
        assert len(screen.lines) == rows
        assert not any(CONTROL_CHAR.search(text) for line in screen.lines for _, text in line)
        assert {sum(get_cwidth(text) for _, text in line) for line in screen.lines} == {columns}


def render_text(view: ConversationView) -> str:
    return "\n".join("".join(text for _, text in line) for line in RequestBrowser(view).render(120, 30).lines)


def test_names_of_parameters_are_escaped() -> None:
    assert "  \\x1b[31mname \\x1b[3…  \\x1b[31m " in render_text(deep_forks())


def test_deleted_items_are_stated() -> None:
    text = render_text(deleted_items())
    assert "an item of this input was deleted; the items cannot be shown" in text


@pytest.mark.parametrize(("env", "color"), [({}, "red"), ({"NO_COLOR": "1"}, "default")])
def test_the_sign_of_a_status_has_its_color_unless_colors_are_disabled(
    env: dict[str, str], color: str, forks: str
) -> None:
    with browse(forks, columns=80, env=env) as browser:
        browser.wait("✗ failed: Say it simply.")
        buffer = browser.screen.screen.buffer
        (sign,) = [cell for y in range(ROWS) for cell in buffer[y].values() if cell.data == "✗"]
        assert sign.fg == color
        browser.press("kkk\t", "✗ status    failed")
