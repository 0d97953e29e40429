"""Puts the last answer on the clipboard.

The terminal is asked to do it (OSC 52), which works over ssh too, and so is the program of the
desktop or of tmux where there is one. Nobody answers the first question, so both are done.
"""

import asyncio
import base64
import os
import re
import shutil
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from convo.errors import Usage
from convo.items import is_assistant, text
from convo.ui.labelled import counted

if TYPE_CHECKING:
    from convo.ui.conversing import Conversing

MOST = 74_994
"""Bytes that terminals take at once: a hundred thousand characters in base64."""

PATIENCE_S = 2.0
"""Seconds that a program has; some stay to hold what was copied, behind a copy of themselves."""

PROGRAMS: Sequence[tuple[str, Sequence[str]]] = (
    ("TMUX", ("tmux", "load-buffer", "-w", "-")),
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("", ("pbcopy",)),
)
"""Programs that take what is to be copied, and the variable without which there is no use in asking them."""

FENCE = re.compile(r"^(?P<fence>```+|~~~+)[^\n]*\n(?P<code>.*?)^(?P=fence)[ \t]*$", re.MULTILINE | re.DOTALL)


async def copy(talk: "Conversing", words: str) -> None:
    if words not in ("", "code"):
        raise Usage(f"/copy takes nothing or 'code', not {words!r}", hint="/copy, or /copy code")
    answers = [said for item in talk.chat.reread().path.items if is_assistant(item) and (said := text(item))]
    if not answers:
        raise Usage("there is no answer to copy yet", hint="type a message")
    what = last_block(answers[-1]) if words else answers[-1]
    takers = [*(["the terminal"] if talk.to_terminal(osc52(what)) else []), *await handed_on(what, os.environ)]
    if not takers:
        raise Usage("nothing here takes what is copied", hint="install xclip or wl-clipboard, or /export it")
    talk.say(f"copied {counted(len(what), 'character')} ({', '.join(takers)})")


def last_block(answer: str) -> str:
    """The last fenced block of an answer, without its fence. raises: Usage  it has none"""
    blocks = [found["code"] for found in FENCE.finditer(answer)]
    if not blocks:
        raise Usage("the last answer has no block of code", hint="/copy takes all of it")
    return blocks[-1]


def osc52(words: str) -> str:
    """What tells a terminal to copy `words`; "" where they are more than terminals take."""
    raw = words.encode("utf-8", "replace")
    return f"\x1b]52;c;{base64.b64encode(raw).decode('ascii')}\x07" if len(raw) <= MOST else ""


async def handed_on(words: str, environ: Mapping[str, str]) -> list[str]:
    """The programs that took `words`."""
    there = [argv for variable, argv in PROGRAMS if (not variable or environ.get(variable)) and shutil.which(argv[0])]
    return [argv[0] for argv in there if await _took(argv, words)]


async def _took(argv: Sequence[str], words: str) -> bool:
    try:
        process = await asyncio.create_subprocess_exec(*argv, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL)
    except OSError:
        return False
    try:
        async with asyncio.timeout(PATIENCE_S):
            await process.communicate(words.encode("utf-8", "replace"))
    except TimeoutError:
        process.kill()
        await process.wait()
    return process.returncode == 0
