"""A walk through every key and command of the chat's prompt, and the screens that it leaves.

Each step types something, waits until something is shown, and looks at the screen. The screens of
one width are one file beside this one; `python -m tests.ui.walk` writes them anew.
"""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from tests.ui.glass import Glass, watched_glass

WIDTHS = (40, 80, 120)
SCREENS = Path(__file__).parent / "screens"

SLOW = '{"replies": [{"text": "one two three four five six"}], "chunk": 8, "delay_s": 1.5}'
EDITOR = "#!/bin/sh\nprintf 'written in an editor' >> \"$1\"\n"


class Step(NamedTuple):
    """What is typed, and what is shown then.

    open:  no empty prompt stands afterwards, and what was typed is thrown away
    kept:  whether the screen is written down; those of other commands are tried where they are
    """

    sentence: str
    keys: str
    shows: str
    open: bool = False
    kept: bool = True


STEPS = (
    Step("enter sends", "hello there\r", "session hello-there"),
    Step("ctrl-j and esc enter break the line", "one\ntwo\x1b\rthree", "three", open=True),
    Step("a paste is not sent by its lines", "\x1b[200~one\r\n/undo\r\nthree\x1b[201~", "three", open=True),
    Step("nor is one that the terminal does not bracket", "line one\r/undo\rline three", "line three", open=True),
    Step("wide and combining characters", "日本語 e\u0301te\u0301\r", " out · "),
    Step("ctrl-r searches", "\x12hell", "hello there", open=True),
    Step("tab completes a command", "/us\t", "/usage", open=True),
    Step("an esc before it takes nothing from it", "\x1b/us\t", "/usage", open=True, kept=False),
    Step("tab completes a model", "/model scripted/e\t", "/model scripted/echo", open=True),
    Step("tab completes a file", "see @notes\t", "see @notes.md", open=True),
    Step("ctrl-x ctrl-e writes in the editor", "begun and \x18\x05", "begun and written in an editor", open=True),
    Step("a command of the shell", "!echo shown\r", "!echo shown shown >"),
    Step("one that goes along", "!!echo kept; exit 3\r", "/detach takes it out"),
    Step("what goes along", "/attach notes.md\r", "notes.md (text"),
    Step("nothing goes along", "/detach notes.md\r", "left to go along"),
    Step("a file in a message", "read @notes.md\r", " out · "),
    Step("a command that is none", "/xyzzy\r", "or //xyzzy for a message"),
    Step("the state", "/status\r", "the whole path"),
    Step("what fills the window", "/context\r", "window"),
    Step("tokens", "/usage\r", "requests ·"),
    Step("cost", "/cost\r", "config.toml takes them"),
    Step("tools", "/tools\r", "no tools"),
    Step("what was thought", "/reasoning\r", "nothing is known"),
    Step("instructions", "/system Be brief.\r", "from the next message on"),
    Step("instructions as they are", "/instructions\r", "Be brief."),
    Step("the request that comes next", "/next and now?\r", "and now?", kept=False),
    Step("the chain as a tree", "/inspect\r", "hello there", kept=False),
    Step("who owns it", "/owner\r", "the whole path"),
    Step("nothing to compact", "/compact\r", "try:", kept=False),
    Step("nothing to stop", "/stop\r", "Ctrl-C stops an answer"),
    Step("asking again", "/retry\r", " out · "),
    Step("another message in its place", "/edit thank you\r", " out · "),
    Step("going back", "/back\r", "took back"),
    Step("and forward", "/redo\r", "took up again"),
    Step("a fork", "/branch\r", "stays where it stands"),
    Step("another name", "/rename other\r", "is now other"),
    Step("a copy in a file", "/export\r", "items are in other.md"),
    Step("the same file again", "/export\r", "is there already"),
    Step("the answer on the clipboard", "/copy\r", "(the terminal)"),
    Step("no code in it", "/copy code\r", "/copy takes all of it"),
    Step("back to a turn", "/rewind 1\r", "went back"),
    Step("another conversation", "/new\r", "a new conversation"),
    Step("a first message in it", "first\r", "session first"),
    Step("tab completes a handle", "/resume hello\t", "/resume hello-there", open=True),
    Step("the last conversations", "/sessions\r", "/resume NAME"),
    Step("back to the one before", "/resume hello-there\r", "> thank you"),
    Step("another model", "/model scripted/slow.json\r", "model scripted/slow.json"),
    Step("who answers", "/model\r", "/model model"),
    Step("everything there is", "/?\r", "also:"),
    Step("a clear screen", "/clear\r", "a new conversation"),
)


def walk(glass: Glass) -> Iterator[tuple[str, str]]:
    """Take every step; yields its sentence and the screen."""
    glass.rests("/help lists what else can be typed")
    yield "the first prompt", glass.text()
    for step in STEPS:
        glass.clears()
        glass.types(step.keys)
        (glass.shows if step.open else glass.rests)(step.shows)
        if step.kept:
            yield step.sentence, glass.text()
        if step.open:
            glass.types("\x03")
            glass.rests()
    yield from stopped(glass)


def stopped(glass: Glass) -> Iterator[tuple[str, str]]:
    """Esc while an answer comes, with the next line typed already, then twice at the prompt."""
    glass.clears()
    glass.types("count\r")
    glass.shows("one two")
    glass.types("/cost\r")
    glass.types("\x1b")
    glass.rests("/cost nothing was asked")
    yield "esc stops an answer, and what was typed meanwhile is done next", glass.text()
    glass.clears()
    glass.types("\x1b\x1b")
    glass.shows("edit> count")
    yield "esc esc changes the last message", glass.text()
    glass.types("\x03")
    glass.rests("nothing was changed")
    yield "and ctrl-c leaves it as it was", glass.text()


def recorded(columns: int, folder: Path) -> str:
    """All screens of one width; `folder` is the working folder, and holds convo's home."""
    (folder / "notes.md").write_text("# Notes\n")
    (folder / "slow.json").write_text(SLOW)
    editor = folder / "editor"
    editor.write_text(EDITOR)
    editor.chmod(0o700)
    env = {"VISUAL": "./editor", "CONVO_HOME": str(folder / "home")}
    with watched_glass("chat", "-m", "scripted/echo", columns=columns, env=env) as glass:
        return "\n".join(f"== {sentence}\n{screen}\n" for sentence, screen in walk(glass))


def place(columns: int) -> Path:
    return SCREENS / f"chat-{columns}.txt"


def main() -> None:
    """Write the screens anew."""
    SCREENS.mkdir(exist_ok=True)
    here = os.getcwd()
    for columns in WIDTHS:
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            place(columns).write_text(recorded(columns, Path(folder)), encoding="utf-8")
            os.chdir(here)


if __name__ == "__main__":
    main()
