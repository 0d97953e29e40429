"""Clickable links (OSC 8) outside answers, on the terminals that have them."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from convo.history.records import Scope, Strategy
from convo.terminal.inspect_view import render_conversation
from convo.terminal.tables import Column, render_table
from convo.terminal.terminal import LINK_SEQUENCE, SGR_SEQUENCE, DisplayOptions, key_value_lines
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.cli.test_terminal_screens import run_in_terminal
from tests.inspect.conversation_builder import build_chain

DISPLAY = DisplayOptions(60, has_color=True, has_links=True)
LINK_PARTS = re.compile(r"\x1b\]8;;([^\x1b]*)\x1b\\([^\x1b]*)\x1b\]8;;\x1b\\")


def find_links(text: str) -> list[tuple[str, str]]:
    """The URL and the text of each link, without its style."""
    return LINK_PARTS.findall(SGR_SEQUENCE.sub("", text))


def test_addresses_and_files_among_labelled_values_are_links(tmp_path: Path) -> None:
    file = tmp_path / "a b.json"
    file.with_name("x.json").touch()
    rows = [
        ("endpoint", "http://127.0.0.1:8788/v1 (org)"),
        ("file", f"{tmp_path}/x.json, or {tmp_path}/missing.json"),
        ("help", "/help, 1/2 and a/b"),
    ]
    text = "\n".join(key_value_lines(rows, DISPLAY._replace(width=400)))
    assert find_links(text) == [
        ("http://127.0.0.1:8788/v1", "http://127.0.0.1:8788/v1"),
        (f"file://{tmp_path}/x.json", f"{tmp_path}/x.json"),
    ]
    assert "\x1b]8" not in "\n".join(key_value_lines(rows, DISPLAY._replace(width=400, has_links=False)))


def test_a_cell_that_is_cut_links_to_its_whole_address() -> None:
    url = "https://example.com/" + "a" * 60
    table = render_table([Column("name", ["x"]), Column("source", [url], links=[url])], DISPLAY)
    ((target, shown),) = find_links(table)
    assert (target, shown[-1], len(shown)) == (url, "…", 49)


@pytest.mark.parametrize(
    "url",
    [
        "https://x.example/\x1b\\\x1b]0;gone\x07",
        "https://x.example/\u202egnp.exe",
        "javascript:alert(1)",
        "https://x.example/a b",
        "https://x.example/" + "a" * 3_000,
    ],
)
def test_an_address_with_control_characters_or_another_scheme_is_text(url: str) -> None:
    lines = [*key_value_lines([("at", url)], DISPLAY), render_table([Column("at", [url], links=[url])], DISPLAY)]
    for line in lines:
        assert all(re.fullmatch(r"https?://[!-~]{1,2000}", target) for target, _ in find_links(line))
        rest = LINK_SEQUENCE.sub("", line)
        assert not re.search(r"\x1b(?!\[[\d;]*m)|[\x00-\x09\x0b-\x1a\x1c-\x1f\u202e]", rest)


async def write_chat(writer: ChatWriter) -> None:
    await writer.chat(Strategy.CHAIN, "monads", "What is a monad?", "Why?")


@pytest.mark.needs("terminal")
def test_a_terminal_without_links_and_a_pager_get_none(home: Path) -> None:
    write_chats(home, write_chat)
    links = {"TERM": "xterm-256color", "VTE_VERSION": "7000"}
    assert find_links(run_in_terminal("models", env=links, columns=100))
    assert "\x1b]8" not in run_in_terminal("models", columns=100)
    assert "\x1b]8" not in run_in_terminal("models", env={**links, "NO_COLOR": "1"}, columns=100)


def test_a_response_that_openai_stores_links_to_its_page() -> None:
    view = build_chain(2).view("resp_2")
    links = [replace(link, scope=Scope("https://api.openai.com/v1")) for link in view.links]
    view = replace(view, links=tuple(links))
    shown = render_conversation(view, DISPLAY._replace(width=100), with_panel=False)
    targets = {target for target, text in find_links(shown) if "resp_" in text}
    assert targets == {f"https://platform.openai.com/logs/resp_{number}" for number in (1, 2)}
    plain = render_conversation(build_chain(2).view("resp_2"), DISPLAY._replace(width=100))
    assert not [text for _, text in find_links(plain) if "resp_" in text]
