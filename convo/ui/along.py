"""What goes along with the next message: files, images, and what a command of the shell said.

A file is named by `@` in the message, or attached before it. Only an `@` that was typed attaches a
file: one in a pasted text is text, whatever lies on this disk. What a file is, its bytes say; see
`convo.engine.attaching`.
"""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from convo.engine.attaching import attached
from convo.errors import Usage
from convo.items import Json
from convo.ui.labelled import counted

if TYPE_CHECKING:
    from convo.ui.conversing import Conversing

MENTION = re.compile(r"""(?<!\S)@(?:"(?P<quoted>[^"\n]+)"|(?P<bare>[^\s"]\S*))""")

TRAILING = ".,;:!?)]}'\""
"""What may stand behind a file's name in a sentence."""


def mentioned(words: str, pasted: Iterable[str], is_file: Callable[[str], bool]) -> list[str]:
    """The files that a message names, each once, in their order."""
    elsewhere = "\n".join(pasted)
    found: dict[str, None] = {}
    for mention in MENTION.finditer(words):
        if mention[0] in elsewhere:
            continue
        bare = mention["bare"] or ""
        names = [mention["quoted"]] if mention["quoted"] else [bare, bare.rstrip(TRAILING)]
        found |= dict.fromkeys([name for name in names if name and is_file(name)][:1])
    return list(found)


def parts_of(words: str, pasted: Iterable[str]) -> list[tuple[str, dict[str, Json]]]:
    """The files that a message names, each with its name. raises: Unreadable"""
    return [(name, attached(name)) for name in mentioned(words, pasted, is_there)]


def is_there(name: str) -> bool:
    return os.path.isfile(os.path.expanduser(name))


def said_of(name: str, part: Json) -> str:
    """One line about what goes along: its name, what it travels as, and how large that is."""
    form = {"input_image": "image", "input_file": "file"}.get(part.get("type"), "text")
    size = len(part.get("image_url") or part.get("file_data") or part.get("text") or "")
    return f"  + {name} ({form}, {_size(size if form == 'text' else size * 3 // 4)})"


def _size(size: int) -> str:
    if size < 1024:
        return counted(size, "byte")
    return f"{size / 1024:,.0f} KB" if size < 1024**2 else f"{size / 1024**2:,.1f} MB"


# -- the commands ----------------------------------------------------------------------------------


async def attach(talk: "Conversing", words: str) -> None:
    if words:
        added = [(name, attached(name)) for name in split(words)]
        talk.look.check_takes(talk.chat, [part for _, part in [*talk.along, *added]])
        talk.along.extend(added)
    if not talk.along:
        talk.say("nothing goes along with the next message; /attach FILE, or @FILE in the message")
    for name, part in talk.along:
        talk.say(said_of(name, part))


async def detach(talk: "Conversing", words: str) -> None:
    names = split(words) or [name for name, _ in talk.along]
    left = [one for one in talk.along if one[0] not in names]
    if len(left) == len(talk.along):
        raise Usage("no such thing goes along with the next message", hint="/attach lists what does")
    talk.along[:] = left
    talk.say(f"{counted(len(left), 'thing')} left to go along" if left else "nothing goes along any more")


def split(words: str) -> Sequence[str]:
    """The names in `words`, with quotes around those that have blanks. raises: Usage"""
    try:
        return shlex.split(words)
    except ValueError as wrong:
        raise Usage(f"a quote is not closed in {words!r}", hint='/attach "a name with blanks.txt"') from wrong
