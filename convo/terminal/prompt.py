"""Reading messages and completing words at the prompt.

`can_draw_prompt` chooses between the line editor (`line_editor`) and `PlainReader`, for TERM=dumb, for stderr in a file
and for the setting editing = "plain". Completion covers slash commands, their arguments and file names after "@".
"""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

from convo.config.settings import EDITING_PLAIN, EDITING_VI
from convo.errors import Interrupted, InvalidUsage
from convo.terminal.message_queue import EMPTY_MESSAGE, MessageQueue, TypedMessage
from convo.terminal.signals import on_signal
from convo.terminal.terminal import DUMB_TERMINALS

if TYPE_CHECKING:
    from convo.terminal.picker import PickerEntries

FILE_ARGUMENT = "file"
COMMAND_NAME = "command"

MAX_FILE_SUGGESTIONS = 1_000
"""Names of one folder that are suggested."""


class CompletionTarget(NamedTuple):
    """The text to complete at the cursor.

    kind:    "command", "file", or the argument kind of a command; "" for nothing
    prefix:  the text typed so far
    """

    kind: str
    prefix: str


class Suggestion(NamedTuple):
    """A completion and its short description."""

    text: str
    description: str = ""


class Choice(NamedTuple):
    """An answer to a question.

    text:    the text that it enters; the user completes one that ends with a blank
    key:     the shortest text to type, as it is shown
    effect:  what it does
    """

    text: str
    key: str
    effect: str


SuggestCompletions: TypeAlias = Callable[[str], Awaitable[tuple[int, Sequence[Suggestion]]]]
"""Maps the text before the cursor to the number of characters to replace and the suggestions."""


def find_completion_target(before: str, get_argument_kind: Callable[[str], str]) -> CompletionTarget:
    """Find the text to complete at the end of `before`.

    get_argument_kind:  returns the kind of a command's argument, by the command's name
    """
    if before.startswith("/") and not before.startswith("//"):
        name, space, argument = before[1:].partition(" ")
        return (
            CompletionTarget(get_argument_kind(name.lower()), argument.lstrip())
            if space
            else CompletionTarget(COMMAND_NAME, before)
        )
    last_word = before[_last_word_start(before) :]
    if last_word.startswith("@"):
        return CompletionTarget(FILE_ARGUMENT, last_word[1:])
    return CompletionTarget(FILE_ARGUMENT, last_word) if before.startswith("!") else CompletionTarget("", "")


def _last_word_start(before: str) -> int:
    """Find the start of the last word; a quoted name after "@" is one word."""
    quoted = before.rfind('@"')
    if quoted >= 0 and before.count('"', quoted) == 1:
        return quoted
    return max(before.rfind(blank) for blank in " \t\n") + 1


def suggest_files(prefix: str) -> list[Suggestion]:
    """Suggest the files and folders that begin with `prefix`; names with blanks are quoted."""
    typed = prefix.lstrip("\"'")
    folder, name_prefix = os.path.split(typed)
    try:
        entries = sorted(os.scandir(os.path.expanduser(folder) or "."), key=lambda entry: entry.name)
    except OSError:
        return []
    shown = [
        entry
        for entry in entries
        if entry.name.startswith(name_prefix) and (name_prefix or not entry.name.startswith("."))
    ]
    return list(_file_suggestions(folder, shown[:MAX_FILE_SUGGESTIONS]))


def _file_suggestions(folder: str, entries: Sequence[os.DirEntry[str]]) -> Iterator[Suggestion]:
    for entry in entries:
        path = os.path.join(folder, entry.name)
        is_folder = entry.is_dir()
        if any(char.isspace() for char in path):
            yield Suggestion(f'"{path}/' if is_folder else f'"{path}"')
        else:
            yield Suggestion(f"{path}/" if is_folder else path)


def filter_suggestions(suggestions: Sequence[Suggestion], prefix: str) -> list[Suggestion]:
    """Return the suggestions that begin with `prefix`; if there are none, those that contain it."""
    lowered = prefix.lower()
    matches = [suggestion for suggestion in suggestions if suggestion.text.lower().startswith(lowered)]
    return matches or [suggestion for suggestion in suggestions if lowered in suggestion.text.lower()]


async def suggest_nothing(text_before_cursor: str) -> tuple[int, Sequence[Suggestion]]:
    return 0, ()


PROMPT = "> "


class PromptOptions(NamedTuple):
    """Settings of a prompt.

    history_path:        the file of the prompt history
    suggest:             returns the completions for Tab
    editing:             the setting `editing`
    render_status_line:  renders the line below the prompt for a number of columns; None for no line
    on_queue_change:     called after keys that may have changed the queue of messages
    """

    history_path: Path
    suggest: SuggestCompletions = suggest_nothing
    editing: str = ""
    render_status_line: Callable[[int], str] | None = None
    on_queue_change: Callable[[], None] = lambda: None

    @property
    def is_vi(self) -> bool:
        return self.editing == EDITING_VI


class PromptReader(Protocol):
    """Source of messages. Its creator closes it.

    pasted_texts:  the pasted parts of the last message
    has_echo:      whether the terminal shows typed text while an answer streams
    can_pick:      whether `pick` can be called, and `read_line` with choices
    queue:         the messages typed while work runs; always empty if `has_echo`
    """

    pasted_texts: list[str]
    has_echo: bool
    can_pick: bool
    queue: MessageQueue

    async def read_line(
        self, prompt: str = PROMPT, default: TypedMessage = EMPTY_MESSAGE, choices: Sequence[Choice] = ()
    ) -> str:
        """Read the next message; "" for an empty or discarded line.

        default:  the initial text, where a line can be edited
        choices:  a list above the line, whose first entry is selected; empty unless `can_pick`

        Raises EOFError at the end of input, and Interrupted for Ctrl-C at an empty prompt.
        """
        ...

    async def withdraw_line(self) -> str | None:
        """End `read_line`, which then returns "", and return the text typed so far; None if no line is read.

        The prompt is erased where the terminal can be drawn on. A line that is already entered is not withdrawn.
        """
        ...

    async def print_above(self, print_text: Callable[[], None]) -> bool:
        """Print above the prompt, which stays open. Returns False, and prints nothing, where that is not possible."""
        ...

    async def pick(self, entries: "PickerEntries") -> str | None:
        """Let the user choose an entry and return its value; None if the user cancelled."""
        ...

    def watch_stop_key(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        """Call `stop` on the key that cancels work; the other keys wait for the next prompt or go to the queue."""
        ...

    def open_queue(self) -> None:
        """Let the keys that are typed from now on, and those that wait, go to the queue."""
        ...

    def begin_message(self, message: TypedMessage) -> None:
        """Record a message of the queue that is sent now, as if it was entered at the prompt."""
        ...

    def release_terminal(self) -> AbstractContextManager[None]:
        """Release the terminal for another program."""
        ...

    def restore_terminal(self) -> None:
        """Set the terminal to its mode before the first prompt; may be called by a signal handler."""
        ...

    def close(self) -> None: ...


PICK_HINT = "convo sessions lists the conversations, and convo chat --from NAME continues one"
"""The hint of errors about `convo chat --pick`."""


def can_draw_prompt(editing: str) -> bool:
    """Whether prompts can be drawn on stderr, and the setting `editing` allows it."""
    return editing != EDITING_PLAIN and os.environ.get("TERM") not in DUMB_TERMINALS and sys.stderr.isatty()


class PlainReader:
    """Reads with the terminal's own line editing."""

    has_echo = True
    can_pick = False

    def __init__(self) -> None:
        self.pasted_texts: list[str] = []
        self.queue = MessageQueue()
        self._input_ready: asyncio.Future[InputState] | None = None
        self._was_withdrawn = False

    async def read_line(
        self, prompt: str = PROMPT, default: TypedMessage = EMPTY_MESSAGE, choices: Sequence[Choice] = ()
    ) -> str:
        # It may be an answer to the question that was withdrawn, and must not decide the next call.
        if self._was_withdrawn and (typed := read_typed_text()):
            write_to_terminal(f"not sent, because it was typed before the prompt: {typed}\n")
        self._was_withdrawn = False
        if default.text:
            write_to_terminal(f"{default.text}\n")
        self._input_ready = asyncio.get_running_loop().create_future()
        try:
            return await read_plain_line(prompt, self._input_ready)
        finally:
            self._input_ready = None

    async def withdraw_line(self) -> str | None:
        if self._input_ready is None or self._input_ready.done():
            return None
        typed = read_typed_text()
        self._input_ready.set_result(InputState.WITHDRAWN)
        self._was_withdrawn = True
        return typed

    async def print_above(self, print_text: Callable[[], None]) -> bool:
        return False

    async def pick(self, entries: "PickerEntries") -> str | None:
        raise InvalidUsage("this terminal cannot show a list to choose from", hint="type the name after the command")

    def watch_stop_key(self, stop: Callable[[], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def open_queue(self) -> None:
        """Do nothing: the terminal buffers the typed keys for the next prompt."""

    def begin_message(self, message: TypedMessage) -> None:
        """Do nothing: the queue is empty."""

    def release_terminal(self) -> AbstractContextManager[None]:
        return nullcontext()

    def restore_terminal(self) -> None:
        """Do nothing: the terminal's mode was not changed."""

    def close(self) -> None:
        """Do nothing: the terminal's mode was not changed."""


class InputState(Enum):
    """The reason why a plain prompt no longer waits."""

    READY = "ready"
    INTERRUPTED = "interrupted"
    WITHDRAWN = "withdrawn"


async def read_plain_line(prompt: str, ready: "asyncio.Future[InputState] | None" = None) -> str:
    """Print `prompt` and read a line; "" if the caller sets `ready` to WITHDRAWN.

    Raises EOFError, and Interrupted for Ctrl-C.
    """
    loop = asyncio.get_running_loop()
    state_future = loop.create_future() if ready is None else ready

    def settle(state: InputState) -> None:
        if not state_future.done():
            state_future.set_result(state)

    loop.add_reader(sys.stdin.fileno(), settle, InputState.READY)
    try:
        with on_signal(signal.SIGINT, lambda: settle(InputState.INTERRUPTED)):
            write_to_terminal(prompt)  # after the handler is set, so that it receives every Ctrl-C at the prompt
            state = await state_future
    finally:
        loop.remove_reader(sys.stdin.fileno())
    is_ready = state is InputState.READY
    line = sys.stdin.buffer.readline().decode(sys.stdin.encoding, "replace") if is_ready else ""
    if not line.endswith("\n"):
        write_to_terminal("\n")
    if state is InputState.WITHDRAWN:
        return ""
    if state is InputState.INTERRUPTED:
        raise Interrupted("nothing was typed")
    if not line:
        raise EOFError
    return line.removesuffix("\n")


def read_typed_text() -> str:
    """Read the text that was typed at the terminal and not read yet, entered or not; "" without a terminal."""
    if not sys.stdin.isatty():
        return ""
    from convo.terminal.raw_terminal import read_pending_input  # not available on all systems

    return read_pending_input(sys.stdin.fileno()).decode(sys.stdin.encoding, "replace").rstrip("\r\n")


def write_to_terminal(text: str) -> None:
    """Write to stderr if it is a terminal; a file needs no prompts."""
    if sys.stderr.isatty():
        sys.stderr.write(text)
        sys.stderr.flush()
