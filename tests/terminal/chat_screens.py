"""Steps through every key and command of the chat's prompt, and the recorded screens of each step.

Each step types keys, waits until a text is shown, and records the screen. After the first terminal has taken its steps,
a second terminal with vi keys is opened. The screens of one width are one file in the folder `screens`;
`python -m tests.terminal.chat_screens` writes them again.
"""

import base64
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from convo.terminal.picker import MIN_PREVIEW_COLUMNS
from tests.cli.agent_files import LOOK_UP, PAID_BACK, REFUND, agent_flags
from tests.conftest import LEAKS
from tests.terminal.screen import TerminalScreen, open_screen

WIDTHS = (40, 80, 120)
SCREENS = Path(__file__).parent / "screens"

SLOW = '{"replies": [{"text": "one two three four five six"}], "chunk": 8, "delay_s": 1.5}'
EDITOR = "#!/bin/sh\nprintf 'written in an editor' >> \"$1\"\n"
SETTINGS = """
[windows]
"scripted/echo" = {context = 4000}
[prices]
"scripted/echo" = {input = 100, output = 200}
"""
"""The context window and the prices of the echo model, for the status line; the slow model has none."""

DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
"""A picture of one pixel, as a PNG in base64."""

REASONING_AND_CALL = {"reasoning": "What it cost has to be looked up first.", **LOOK_UP}


class Step(NamedTuple):
    """The keys to type, and the text that is shown then.

    open:     the step ends without an empty prompt, and Ctrl-C discards the typed text
    preview:  a text that is shown too, unless the terminal is too narrow for a preview
    """

    sentence: str
    keys: str
    expected: str
    open: bool = False
    preview: str = ""


STEPS = (
    Step("enter sends", "hello there\r", " output · "),
    Step("ctrl-j and esc enter break the line", "one\ntwo\x1b\rthree", "three", open=True),
    Step("a paste is not sent by its lines", "\x1b[200~one\r\n/undo\r\nthree\x1b[201~", "three", open=True),
    Step("nor is one that the terminal does not bracket", "line one\r/undo\rline three", "line three", open=True),
    Step("wide and combining characters", "日本語 e\u0301te\u0301\r", " output · "),
    Step("ctrl-r searches", "\x12hell", "hello there", open=True),
    Step("tab completes a command", "/us\t", "/usage", open=True),
    Step("an esc before it takes nothing from it", "\x1b/us\t", "/usage", open=True),
    Step("tab completes a model", "/model scripted/e\t", "/model scripted/echo", open=True),
    Step("tab completes a file", "see @notes\t", "see @notes.md", open=True),
    Step("and one to attach", "/attach no\t", "/attach notes.md", open=True),
    Step("tab completes an owner", "/owner ch\t", "/owner chain", open=True),
    Step("up brings back what was typed", "\x1b[A", "> 日本語", open=True),
    Step("ctrl-x ctrl-e writes in the editor", "begun and \x18\x05", "begun and written in an editor", open=True),
    Step("a command of the shell", "!echo shown\r", "!echo shown shown >"),
    Step("one that goes along", "!!echo kept; exit 3\r", "/detach removes it"),
    Step("what goes along", "/attach notes.md\r", "notes.md (text"),
    Step("nothing goes along", "/detach notes.md\r", "attachment left"),
    Step("a file in a message", "read @notes.md\r", " output · "),
    Step("a picture goes along", "/attach dot.png\r", "dot.png (image"),
    Step("one in a message as well", "what is @dot.png?\r", " output · "),
    Step("a command that is none", "/xyzzy\r", "or //xyzzy to send it as a message"),
    Step("the state", "/status\r", "the full history"),
    Step("what fills the window", "/context\r", "window"),
    Step("tokens", "/usage\r", "requests ·"),
    Step("cost", "/cost\r", "for 4 requests"),
    Step("tools", "/tools\r", "no tools"),
    Step("servers", "/mcp\r", "no MCP servers"),
    Step("what was thought", "/reasoning\r", "no reasoning in"),
    Step("the effort", "/effort high\r", "reasoning.effort high"),
    Step("and back", "/effort -\r", "no effort is sent"),
    Step("instructions", "/system Be brief.\r", "from the next message on"),
    Step("instructions as they are", "/instructions\r", "Be brief."),
    Step("the same by its other name", "/system\r", "Be brief."),
    Step("the request that comes next", "/next and now?\r", "of the context window of"),
    Step("the chain as a tree", "/inspect\r", "preview"),
    Step("who owns it", "/owner\r", "the full history"),
    Step("nothing to compact", "/compact\r", "try:"),
    Step("no agents to list", "/agent\r", "this chat has no agents"),
    Step("nothing to stop", "/stop\r", "Ctrl-C stops an answer"),
    Step("asking again", "/retry\r", " output · "),
    Step("another message in its place", "/edit thank you\r", " output · "),
    Step("esc esc brings the last message back to be changed", "\x1b\x1b", "edit> thank you", open=True),
    Step("going back", "/undo\r", "undid"),
    Step("and forward", "/redo\r", "redid"),
    Step("going back by another name", "/rewind\r", "went back to before"),
    Step("and forward again", "/redo\r", "redid"),
    Step("a fork", "/branch\r", "is unchanged"),
    Step("one from an earlier turn", "/fork 1\r", "continuing hello-there-3"),
    Step("and back from it", "/resume hello-there-2\r", "> thank you"),
    Step("another name", "/rename other\r", "renamed to other"),
    Step("a copy in a file", "/export\r", "to other.md"),
    Step("the same file again", "/export\r", "already exists"),
    Step("the answer on the clipboard", "/copy\r", "(the terminal)"),
    Step("no code in it", "/copy code\r", "/copy copies all of it"),
    Step("back to a turn", "/rewind 1\r", "went back"),
    Step("another conversation", "/new\r", "new conversation"),
    Step("a first message in it", "first\r", " output · "),
    Step("tab completes a handle", "/resume hello\t", "/resume hello-there", open=True),
    Step("a list of conversations", "/resume\r", "Esc cancel", open=True, preview="> hello there"),
    Step("back to the one before", "/resume hello-there\r", "> thank you"),
    Step("another model", "/model scripted/slow.json\r", "model scripted/slow.json"),
    Step("a list of models", "/model\r", "Esc cancel", open=True),
    Step("another model and the old price", "/cost\r", "for 6 requests"),
    Step("everything there is", "/help\r", "aliases:"),
    Step("a clear screen", "/clear\r", "new conversation"),
)


def visit_screens(
    screen: TerminalScreen, second: Callable[[], AbstractContextManager[TerminalScreen]]
) -> Iterator[tuple[str, str]]:
    """Take every step; yields its sentence and its screen."""
    screen.wait_for_prompt("/help")
    yield "the first prompt", screen.text()
    for step in STEPS:
        screen.clear()
        screen.type_keys(step.keys)
        (screen.wait_for_text if step.open else screen.wait_for_prompt)(step.expected)
        if step.preview and screen.screen.columns >= MIN_PREVIEW_COLUMNS:
            screen.wait_for_text(step.preview)
        yield step.sentence, screen.text()
        if step.open:
            screen.type_keys("\x03")
            screen.wait_for_prompt()
    with second() as other:
        yield from second_terminal_screens(other)
    yield from stopped_answer_screens(screen)
    yield from last_screen(screen)


def screen_after(screen: TerminalScreen, keys: str, expected: str) -> str:
    """Clear the screen, type `keys`, and return the screen with the next prompt."""
    screen.clear()
    screen.type_keys(keys)
    screen.wait_for_prompt(expected)
    return screen.text()


def second_terminal_screens(screen: TerminalScreen) -> Iterator[tuple[str, str]]:
    """A second terminal with vi keys and agents: edited lines, a tool call with an approval, and commands."""
    screen.wait_for_prompt("/help")
    screen.type_keys("\x12hello th")
    screen.wait_for_text("hello there")
    yield "in a second terminal ctrl-r finds what was typed in the first", screen.text()
    screen.type_keys("\x03")
    screen.wait_for_prompt()
    screen.type_keys("py it back")
    screen.wait_for_text("> py it back")
    screen.type_keys("\x1b")
    screen.wait_until(lambda: screen.screen.cursor.x == 11)  # in normal mode the cursor is on the last character
    screen.type_keys("0aa")
    screen.wait_for_text("> pay it back")
    yield "vi's keys change the line", screen.text()
    screen.type_keys("\r")
    screen.wait_for_text("decision:")
    yield "a thought, a call, and one that waits for a decision", screen.text()
    screen.type_keys("y\r")
    screen.wait_for_prompt(" output · ")
    yield "what came of it", screen.text()
    yield "the tools of an agent", screen_after(screen, "/tools\r", "who")
    yield "the thought unfolded", screen_after(screen, "/reasoning\r", "has to be looked up")
    screen.clear()
    screen.type_keys("/cost\r")
    screen.wait_for_prompt("under [prices] in config.toml")
    screen.type_keys("/context\r")
    screen.wait_for_prompt(".context' TOKENS")
    yield "what nobody wrote down", screen.text()
    screen.clear()
    screen.type_keys("/quit\r")
    assert screen.wait_for_exit() == 0
    yield "leaving by another name", screen.text()


def stopped_answer_screens(screen: TerminalScreen) -> Iterator[tuple[str, str]]:
    """The prompt history of the other terminal, then Esc and Ctrl-C during an answer, and Esc twice at the prompt."""
    screen.clear()
    screen.type_keys("\x12")
    screen.wait_for_text("I-search backward:")
    screen.type_keys("pay")
    screen.wait_for_text("pay it back")
    yield "ctrl-r finds what was typed in the second terminal", screen.text()
    screen.type_keys("\x03")
    screen.wait_for_prompt()
    screen.clear()
    screen.type_keys("count\r")
    screen.wait_for_text("one two")
    screen.type_keys("/cost\r")
    screen.wait_for_text("queued: /cost · Up to edit")
    screen.type_keys("\x1b")
    screen.wait_for_text("> /cost")
    yield "esc stops an answer, and the queued message is shown at the prompt", screen.text()
    screen.type_keys("\x03")
    screen.wait_for_prompt()
    screen.clear()
    screen.type_keys("\x1b\x1b")
    screen.wait_for_text("edit> count")
    yield "esc esc changes the last message", screen.text()
    screen.type_keys("\x03")
    screen.wait_for_prompt("nothing was changed")
    yield "and ctrl-c leaves it as it was", screen.text()
    screen.clear()
    screen.type_keys("/retry\r")
    screen.wait_for_text("one two")
    screen.type_keys("\x03")
    screen.wait_for_prompt("undoes the turn")
    yield "ctrl-c stops an answer", screen.text()


def last_screen(screen: TerminalScreen) -> Iterator[tuple[str, str]]:
    screen.clear()
    screen.type_keys("/exit\r")
    assert screen.wait_for_exit() == 0
    yield "leaving", screen.text()


def record_screens(columns: int, folder: Path) -> str:
    """All screens of one width; `folder` is the working folder, and contains the home of convo."""
    config = folder / "home" / "config"
    config.mkdir(parents=True)
    (config / "config.toml").write_text(SETTINGS)
    (folder / "notes.md").write_text("# Notes\n")
    (folder / "dot.png").write_bytes(base64.b64decode(DOT))
    (folder / "slow.json").write_text(SLOW)
    editor = folder / "editor"
    editor.write_text(EDITOR)
    editor.chmod(0o700)
    (folder / "bot.json").write_text(json.dumps({"replies": [REASONING_AND_CALL, REFUND, PAID_BACK]}))
    env = {"VISUAL": "./editor", "CONVO_HOME": str(folder / "home")}
    agent_arguments = ("chat", *agent_flags(), "-m", "scripted/bot.json")
    with open_screen("chat", "-m", "scripted/echo", columns=columns, env=env) as screen:
        second = partial(open_screen, *agent_arguments, columns=columns, env={**env, "CONVO_EDITING": "vi"})
        return "\n".join(f"== {sentence}\n{screen}\n" for sentence, screen in visit_screens(screen, second))


def screens_file(columns: int) -> Path:
    return SCREENS / f"chat-{columns}.txt"


def main() -> None:
    """Write all screens again."""
    for name in [name for name in os.environ if name.startswith(LEAKS)]:
        del os.environ[name]  # UV_RUN_RECURSION_DEPTH puts "uv run convo" into the screens
    SCREENS.mkdir(exist_ok=True)
    cwd = os.getcwd()
    for columns in WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            screens_file(columns).write_text(record_screens(columns, Path(folder)), encoding="utf-8")
            os.chdir(cwd)


if __name__ == "__main__":
    main()
