"""Reading messages and completing words at the prompt.

`make_prompt_reader` returns the line editor, or a plain reader for TERM=dumb, for stderr in a file and for the
setting editing = "plain". Completion covers slash commands, their arguments and file names after "@".
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol, TypeAlias

from convo.errors import Interrupted
from convo.terminal.signals import on_signal

FILE_ARGUMENT = "file"
COMMAND_NAME = "command"

MAX_FILE_SUGGESTIONS = 1_000
"""Names of one folder that are offered."""


class CompletionTarget(NamedTuple):
    """Where something is to be completed.

    kind:  "command", "file", or what a command takes; "" for nothing
    word:  what stands there already
    """

    kind: str
    word: str


class Suggestion(NamedTuple):
    """One thing that could stand there, and a few words about it."""

    word: str
    about: str = ""


SuggestCompletions: TypeAlias = Callable[[str], Awaitable[tuple[int, Sequence[Suggestion]]]]
"""From what stands before the cursor to how many characters are replaced, and by what."""


def find_completion_target(before: str, taken: Callable[[str], str]) -> CompletionTarget:
    """What is to be completed behind `before`; `taken` says what a command takes, by its name."""
    if before.startswith("/") and not before.startswith("//"):
        name, space, words = before[1:].partition(" ")
        return (
            CompletionTarget(taken(name.lower()), words.lstrip()) if space else CompletionTarget(COMMAND_NAME, before)
        )
    last = before[_last_word_start(before) :]
    if last.startswith("@"):
        return CompletionTarget(FILE_ARGUMENT, last[1:])
    return CompletionTarget(FILE_ARGUMENT, last) if before.startswith("!") else CompletionTarget("", "")


def _last_word_start(before: str) -> int:
    """Where the last word begins, one in quotes behind an @ as a whole."""
    quoted = before.rfind('@"')
    if quoted >= 0 and before.count('"', quoted) == 1:
        return quoted
    return max(before.rfind(blank) for blank in " \t\n") + 1


def suggest_files(word: str) -> list[Suggestion]:
    """The files and folders that begin like `word`; names with blanks in quotes."""
    written = word.lstrip("\"'")
    folder, begin = os.path.split(written)
    try:
        there = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda one: one.name)
    except OSError:
        return []
    shown = [one for one in there if one.name.startswith(begin) and (begin or not one.name.startswith("."))]
    return list(_file_suggestions(folder, shown[:MAX_FILE_SUGGESTIONS]))


def _file_suggestions(folder: str, there: Sequence["os.DirEntry[str]"]) -> Iterator[Suggestion]:
    for one in there:
        whole = os.path.join(folder, one.name)
        is_folder = one.is_dir()
        if any(sign.isspace() for sign in whole):
            yield Suggestion(f'"{whole}/' if is_folder else f'"{whole}"')
        else:
            yield Suggestion(f"{whole}/" if is_folder else whole)


def filter_suggestions(offers: Sequence[Suggestion], word: str) -> list[Suggestion]:
    """Those that begin like `word`; where none does, those that have it in them."""
    low = word.lower()
    begin = [one for one in offers if one.word.lower().startswith(low)]
    return begin or [one for one in offers if low in one.word.lower()]


PROMPT = "> "

DUMB_TERMINALS = ("dumb", "unknown")
"""What TERM says of a terminal that knows no cursor."""


EDITING_VI, EDITING_PLAIN = "vi", "plain"
"""Values of the setting `editing`; any other is the editor with its usual keys."""


@dataclass(frozen=True, slots=True)
class PromptOptions:
    """What a prompt is made with.

    history:  the file that remembers what was typed
    words:    what Tab completes
    editing:  the setting
    bar:      the line below the prompt, for so many columns; None for no line
    """

    history: Path
    words: SuggestCompletions
    editing: str = ""
    bar: Callable[[int], str] | None = None

    @property
    def vi(self) -> bool:
        return self.editing == EDITING_VI


class PromptReader(Protocol):
    """Something that messages come from. Whoever made it closes it.

    pasted:  the texts in the last message that were not typed
    echoes:  whether the terminal shows what is typed while an answer comes
    """

    pasted: list[str]
    echoes: bool

    async def line(self, prompt: str = PROMPT, default: str = "") -> str:
        """The next message; empty for nothing, or for a line that was thrown away.

        default:  what stands there to be changed, where a line can be changed
        raises:  EOFError     there will be no more
                 Interrupted  Ctrl-C, and nothing was typed
        """
        ...

    def listening(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """While something else is done: `stop` is called for the key that stops it, the others wait."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """While another program has the terminal."""
        ...

    def close(self) -> None: ...


def make_prompt_reader(at: PromptOptions) -> PromptReader:
    """A reader at this terminal."""
    if at.editing == EDITING_PLAIN or os.environ.get("TERM") in DUMB_TERMINALS or not sys.stderr.isatty():
        return PlainReader()
    from convo.terminal.line_editor import LineEditor

    return LineEditor(at)


class PlainReader:
    """Reads with the line editing that the terminal itself has."""

    echoes = True

    def __init__(self) -> None:
        self.pasted: list[str] = []

    async def line(self, prompt: str = PROMPT, default: str = "") -> str:
        if default:
            write_to_terminal(f"{default}\n")
        return await read_plain_line(prompt)

    def listening(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    def close(self) -> None:
        """Nothing was changed at the terminal."""


async def read_plain_line(question: str) -> str:
    """The line that a person types to `question`. raises: EOFError; Interrupted  Ctrl-C"""
    loop = asyncio.get_running_loop()
    heard: asyncio.Future[bool] = loop.create_future()

    def settle(there: bool) -> None:
        if not heard.done():
            heard.set_result(there)

    write_to_terminal(question)
    loop.add_reader(sys.stdin.fileno(), settle, True)
    try:
        with on_signal(signal.SIGINT, lambda: settle(False)):
            there = await heard
    finally:
        loop.remove_reader(sys.stdin.fileno())
    line = sys.stdin.buffer.readline().decode(sys.stdin.encoding, "replace") if there else ""
    if not line.endswith("\n"):
        write_to_terminal("\n")
    if not there:
        raise Interrupted("nothing was typed")
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def write_to_terminal(words: str) -> None:
    """Show `words` where a person sees them; a file needs no prompts."""
    if sys.stderr.isatty():
        sys.stderr.write(words)
        sys.stderr.flush()
