"""Line editor of the REPL, built on prompt_toolkit.

Draws on stderr, so that stdout carries only answers. While an answer streams, Esc cancels it, text and Enter go to the
queue of messages, and from the first key on that needs the editor all keys go to the next prompt. All prompts of one
user share a history file.
Slow to import: load it only for a terminal that can be drawn on (see `prompt.can_draw_prompt`).
"""

import asyncio
import fcntl
import os
import re
import sys
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, TextIO

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.application import get_app, run_in_terminal
from prompt_toolkit.buffer import Buffer, CompletionState
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.enums import DEFAULT_BUFFER, EditingMode
from prompt_toolkit.filters import (
    Condition,
    emacs_mode,
    has_completions,
    has_focus,
    is_done,
    is_searching,
    vi_navigation_mode,
)
from prompt_toolkit.formatted_text import FormattedText, StyleAndTextTuples
from prompt_toolkit.history import History, InMemoryHistory
from prompt_toolkit.input.typeahead import get_typeahead, store_typeahead
from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.input.vt100_parser import Vt100Parser
from prompt_toolkit.key_binding import KeyBindings, KeyPress, KeyPressEvent
from prompt_toolkit.key_binding.vi_state import InputMode
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import FormattedTextControl
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.search import SearchDirection, start_search, stop_search

from convo.config.paths import make_private_folder
from convo.errors import ConvoError, Interrupted, StoreFault
from convo.terminal.message_queue import EMPTY_MESSAGE, MessageQueue, TypedMessage
from convo.terminal.prompt import (
    FILE_ARGUMENT,
    PROMPT,
    Choice,
    PromptOptions,
    SuggestCompletions,
    find_completion_target,
)
from convo.terminal.raw_terminal import ESCAPE_TIMEOUT_S, disable_echo, make_terminal_restorer
from convo.terminal.terminal import (
    detect_display_without_color,
    escape_control_chars,
    text_width,
    truncate_text,
    wrap_line,
)
from convo.terminal.theme import make_prompt_style

if TYPE_CHECKING:
    from convo.terminal.picker import PickerEntries

MENU_MARGINS = 5
"""Columns of a completion menu without its texts: two for each of its two columns, and its scroll bar."""

MAX_MENU_ROWS = 8
"""Rows of a completion menu, including the line it belongs to."""


STYLED_PROMPT: StyleAndTextTuples = [("class:id class:sign", PROMPT.rstrip()), ("", " ")]
"""The prompt of a message; only its sign has a style."""


MENU_STYLES: Mapping[str, str] = MappingProxyType(
    {
        "completion-menu": "bg:default default",
        "completion-menu.completion": "id",
        "completion-menu.completion.current": "noreverse id bg:default reverse",
        "completion-menu.meta.completion": "bg:default dim",
        "completion-menu.meta.completion.current": "bg:default id reverse",
        "scrollbar.background": "bg:default dim",
        "scrollbar.button": "bg:default reverse dim",
    }
)
"""Styles of the completion menu: the library has a gray of its own, which few themes of terminals fit."""


def _get_message_styles(environ: Mapping[str, str]) -> Mapping[str, str]:
    """Return the styles of a message that was sent, and of the sign before it: both are bold, unlike the answer."""
    return {} if environ.get("NO_COLOR") else {"accepted": "bold", "sign": "bold"}


class LineEditor:
    """Reads messages; see `convo.terminal.prompt.PromptReader`."""

    has_echo = False
    can_pick = True

    def __init__(self, options: PromptOptions) -> None:
        self.pasted_texts: list[str] = []
        self.queue = MessageQueue()
        self._offers_queue = False
        self._pastes, self._menu = CollapsedPastes(), ChoiceMenu()
        self._editor_tasks: set[asyncio.Task[None]] = set()
        self._without_echo, self._has_disabled_echo = ExitStack(), False
        self._output, self._input = make_editor_output(), PasteDetectingInput(sys.stdin)
        self.restore_terminal = make_terminal_restorer(self._input.fileno(), self._output.fileno())
        self._options = options
        self._session = EditorSession(
            history=open_prompt_history(options.history_path, self._pastes.expand),
            key_bindings=build_key_bindings(
                self.pasted_texts.append,
                self._pastes,
                self._menu,
                self._offers_queued,
                self._take_queued,
                self._add_editor_task,
            ),
            completer=EditorCompleter(options.suggest, lambda: self._output.get_size().columns),
            complete_while_typing=(is_command_name | is_file_mention) & ~has_more_keys,
            multiline=True,
            prompt_continuation=" " * len(PROMPT),
            editing_mode=EditingMode.VI if options.is_vi else EditingMode.EMACS,
            enable_suspend=True,
            tempfile_suffix=".md",
            style=make_prompt_style(
                os.environ, {"bar": "dim", "selected": "bold", **MENU_STYLES, **_get_message_styles(os.environ)}
            ),
            input=self._input,
            output=self._output,
        )
        self._wraps_accepted = False
        self._accept_buffer = self._session.default_buffer.accept_handler
        self._session.default_buffer.accept_handler = self._accept
        self._session.app.ttimeoutlen = ESCAPE_TIMEOUT_S
        if options.render_status_line:
            self._session.app.layout = self._add_status_line(options.render_status_line)

    async def read_line(
        self, prompt: str = PROMPT, default: TypedMessage = EMPTY_MESSAGE, choices: Sequence[Choice] = ()
    ) -> str:
        if not self._has_disabled_echo:  # also between prompts: a terminal with echo would turn Enter into Ctrl-J
            self._has_disabled_echo = True
            self._without_echo.enter_context(disable_echo(self._input.fileno()))
        self.pasted_texts.clear()
        self._pastes.clear()
        self._offers_queue = prompt == PROMPT
        self._session.app.erase_when_done = False
        is_message = self._wraps_accepted = prompt == PROMPT
        sign: StyleAndTextTuples = STYLED_PROMPT if is_message else [("", prompt)]
        self._menu.open(choices)
        text = await self._session.prompt_async(
            lambda: [*self._menu.render(), *sign], default=self._begin_editing(default)
        )
        if text and self._session.app.erase_when_done:
            self._print_message(text)
        return replace_surrogates(self._pastes.expand(text))

    def _accept(self, buffer: Buffer) -> bool:
        """Accept a message; one with a word that the editor has split is erased, and `read_line` prints it again."""
        # The editor wraps at the edge of the terminal, within words; a tab, whose columns depend on its place, stays as
        # drawn.
        columns = self._output.get_size().columns - len(PROMPT)
        is_cut = "\t" not in buffer.text and any(text_width(line) > columns for line in buffer.text.split("\n"))
        self._session.app.erase_when_done = self._wraps_accepted and is_cut
        return self._accept_buffer(buffer) if self._accept_buffer else True

    def _print_message(self, text: str) -> None:
        """Print an erased message with its lines wrapped between words."""
        columns = self._output.get_size().columns
        rows = [
            row
            for line in escape_control_chars(text).split("\n")
            for row in wrap_line(f"{PROMPT}{line}", columns, splits_words=True)
        ]
        body = "\n".join(rows)[len(PROMPT) :].replace(f"\n{PROMPT}", f"\n{' ' * len(PROMPT)}")
        fragments = FormattedText([*STYLED_PROMPT, ("class:accepted", body)])
        print_formatted_text(fragments, output=self._output, style=self._session.style)

    async def withdraw_line(self) -> str | None:
        app = self._session.app
        if self._editor_tasks:
            # The user's editor has the terminal: nothing can be drawn or erased before it ends.
            await asyncio.wait(self._editor_tasks)
        if not app.is_running or app.is_done:
            return None
        if app.layout.is_searching:
            stop_search()
        typed = replace_surrogates(self._pastes.expand(self._session.default_buffer.text))
        if typed.strip():
            self._session.history.append_string(typed)
        app.erase_when_done = True
        app.exit(result="")
        return typed

    async def print_above(self, print_text: Callable[[], None]) -> bool:
        await run_in_terminal(print_text)
        return True

    def _begin_editing(self, message: TypedMessage) -> str:
        """Record the pasted parts of a message, and return its text with the long ones collapsed."""
        text = message.text
        for pasted in message.pasted_texts:
            self.pasted_texts.append(pasted)
            text = text.replace(pasted, self._pastes.collapse(pasted), 1)
        return text

    def _offers_queued(self) -> bool:
        """Whether Up edits the last queued message: not at the questions of an agent's run."""
        return self._offers_queue and bool(self.queue.messages)

    def _take_queued(self) -> str:
        return self._begin_editing(self.queue.take_last())

    def _add_editor_task(self, task: asyncio.Task[None]) -> None:
        self._editor_tasks.add(task)
        task.add_done_callback(self._editor_tasks.discard)

    def begin_message(self, message: TypedMessage) -> None:
        self.pasted_texts[:] = message.pasted_texts
        self._pastes.clear()
        self._session.history.append_string(message.text)

    async def pick(self, entries: "PickerEntries") -> str | None:
        from convo.terminal.picker import run_picker  # a chat in which nothing is picked does not need it

        return await run_picker(entries, self._input, self._output, detect_display_without_color(sys.stderr))

    def close(self) -> None:
        self._without_echo.close()
        with suppress(OSError):  # the terminal may be gone
            self._output.end_bracketed_paste()

    @contextmanager
    def watch_stop_key(self, stop: Callable[[], None]) -> Iterator[None]:
        """Call `stop` on Esc, and queue or store all other keys, until the context exits."""
        loop, flush = asyncio.get_running_loop(), TimerSlot()

        def handle_keys(presses: Sequence[KeyPress], is_complete: bool) -> None:
            if is_complete and presses and presses[-1].key == Keys.Escape:
                stop()
            else:
                self._queue_or_store(presses)

        def read_keys() -> None:
            flush.cancel()
            handle_keys(self._input.read_keys(), is_complete=False)
            flush.timer = loop.call_later(
                ESCAPE_TIMEOUT_S, lambda: handle_keys(self._input.flush_keys(), is_complete=True)
            )

        with disable_echo(self._input.fileno()), self._input.attach(read_keys):
            try:
                yield
            finally:
                flush.cancel()

    def open_queue(self) -> None:
        self.queue.is_open, self.queue.is_forwarding = True, False
        self._queue_or_store(get_typeahead(self._input))

    def _queue_or_store(self, presses: Sequence[KeyPress]) -> None:
        """Apply keys to the open queue; store them for the next prompt from the first one on that needs the editor."""
        queue = self.queue
        for press in presses:
            if queue.is_open and not queue.is_forwarding:
                queue.is_forwarding = not apply_to_queue(press, queue)
            if queue.is_forwarding or not queue.is_open:
                store_typeahead(self._input, [press])
        if presses:
            self._options.on_queue_change()

    @contextmanager
    def release_terminal(self) -> Iterator[None]:
        """Release the terminal for another program until the context exits."""
        with self._input.detach(), self._input.cooked_mode():
            self._output.end_bracketed_paste()
            yield

    def _add_status_line(self, render_status_line: Callable[[int], str]) -> Layout:
        """Add a status line to the layout; below a menu that cannot show all completions it has their number.

        The library's own toolbar waits until the terminal has reported its cursor position.
        """
        app = self._session.app

        def render() -> str:
            state = self._session.default_buffer.complete_state
            menu = _describe_long_menu(state) if state else ""
            return menu or render_status_line(app.output.get_size().columns)

        window = Window(FormattedTextControl(render, style="class:bar"), height=1, dont_extend_height=True)
        container = HSplit([app.layout.container, ConditionalContainer(window, ~is_done)])
        return Layout(container, focused_element=self._session.default_buffer)


def _describe_long_menu(state: CompletionState) -> str:
    """Return the number of shown completions, or of the selected one, and their count; "" if the menu shows all."""
    count, shown_count = len(state.completions), MAX_MENU_ROWS - 1
    if count <= shown_count:
        return ""
    if state.complete_index is None:
        return f"{shown_count} of {count}, Down for more"
    return f"{state.complete_index + 1} of {count}"


async def pick_before_chat(entries: "PickerEntries") -> str | None:
    """Let the user choose an entry before a chat has a prompt; the result is that of `run_picker`."""
    from convo.terminal.picker import run_picker

    output = make_editor_output()
    try:
        return await run_picker(
            entries, PasteDetectingInput(sys.stdin), output, detect_display_without_color(sys.stderr)
        )
    finally:
        output.end_bracketed_paste()


class ChoiceMenu:
    """The answers above the line of a question: Up and Down select one, Enter on an empty line takes it."""

    def __init__(self) -> None:
        self._choices: Sequence[Choice] = ()
        self._position = 0

    def open(self, choices: Sequence[Choice]) -> None:
        """Show `choices` at the next prompt, the first one selected; () for a prompt without a list."""
        self._choices, self._position = choices, 0

    def is_open(self) -> bool:
        return bool(self._choices)

    def move(self, rows: int) -> None:
        self._position = (self._position + rows) % len(self._choices)

    def accept(self, event: KeyPressEvent) -> None:
        """Enter the selected answer, or begin it with its text."""
        text = self._choices[self._position].text
        event.current_buffer.insert_text(text)
        if not text.endswith(" "):
            event.current_buffer.validate_and_handle()

    def render(self) -> StyleAndTextTuples:
        """Render the list; nothing after the answer."""
        if get_app().is_done or not self._choices:
            return []
        width = max(len(choice.key) for choice in self._choices)
        is_typing = bool(get_app().current_buffer.text)
        fragments: StyleAndTextTuples = []
        for index, choice in enumerate(self._choices):
            is_selected = index == self._position and not is_typing
            style = " class:selected" if is_selected else ""
            fragments += [
                (style, "> " if is_selected else "  "),
                (style or "class:id", f"{choice.key:<{width}}"),
                (style, f"  {choice.effect}\n"),
            ]
        return [*fragments, ("class:dim", "  Up, Down select, Enter decides; or type\n")]


class EditorSession(PromptSession[str]):
    """Prompt that reserves rows for a completion menu only while one is shown."""

    @property
    def reserve_space_for_menu(self) -> int:
        state = self.default_buffer.complete_state
        count = len(state.completions) if state else 0
        return min(count + 1, MAX_MENU_ROWS) if count else 0

    @reserve_space_for_menu.setter
    def reserve_space_for_menu(self, rows: int) -> None:
        """Do nothing: the value is computed from the completions."""


QUEUE_KEYS: Mapping[str, Callable[[MessageQueue, str], None]] = MappingProxyType(
    {
        Keys.Ignore: lambda queue, _: None,
        Keys.BracketedPaste: lambda queue, data: queue.paste(normalize_paste(data)),
        Keys.ControlM: lambda queue, _: queue.enter(),
        Keys.ControlJ: lambda queue, _: queue.type_text("\n"),
        # prompt_toolkit reports Backspace as Ctrl-H.
        Keys.ControlH: lambda queue, _: queue.delete_char(),
        Keys.ControlW: lambda queue, _: queue.delete_word(),
        Keys.ControlU: lambda queue, _: queue.clear_draft(),
        Keys.Up: lambda queue, _: queue.edit_last(),
    }
)
"""The keys without a character that change the queue during an answer; Esc stops the answer."""


def apply_to_queue(press: KeyPress, queue: MessageQueue) -> bool:
    """Apply a key to the queue. Returns False, and changes nothing, if only the editor can handle it."""
    if len(press.key) == 1:
        queue.type_text(replace_surrogates(press.data))
        return True
    if press.key not in QUEUE_KEYS or (press.key == Keys.Up and not queue.can_edit_last) or is_paste_too_long(press):
        return False
    QUEUE_KEYS[press.key](queue, press.data)
    return True


class TimerSlot:
    """Holds one timer, which `cancel` stops."""

    timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        if self.timer:
            self.timer.cancel()


class EditorOutput(Vt100_Output):
    """Terminal output that leaves bracketed paste on between two prompts."""

    def disable_bracketed_paste(self) -> None:
        """Do nothing: bracketed paste stays on until `end_bracketed_paste`."""

    def end_bracketed_paste(self) -> None:
        super().disable_bracketed_paste()
        self.flush()


def make_editor_output() -> EditorOutput:
    output = EditorOutput.from_pty(
        sys.stderr, term=os.environ.get("TERM"), default_color_depth=ColorDepth.from_env(), enable_bell=False
    )
    assert isinstance(output, EditorOutput)
    output.enable_cpr = False  # the library warns about terminals that do not report their cursor position
    return output


def replace_surrogates(line: str) -> str:
    """Replace surrogates (undecodable bytes of the input) by the replacement character."""
    # UTF-16 joins a pair of surrogates to its character, so only a lone one is replaced.
    return line.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def normalize_paste(text: str) -> str:
    return text.replace("\r\n", "\n").replace("\r", "\n")


LINE_BREAK_KEYS = (Keys.ControlM, Keys.ControlJ)


PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"

MAX_PASTE_CHARS = 10_000_000
"""Characters of the longest paste that is accepted."""

PASTE_READ_BYTES = 64 * 1024

MAX_READS_PER_CALL = 64
"""Reads of a paste after which the event loop runs."""


class PasteDetectingInput(Vt100Input):
    """Terminal input that detects pastes without bracketed paste, and reads a bracketed one in linear time.

    The library's parser searches all the received text of a paste again at each read, so it gets the text at once. Of a
    paste that is too long it gets one character more than `MAX_PASTE_CHARS`.
    """

    def __init__(self, stdin: TextIO) -> None:
        super().__init__(stdin)
        self._presses: list[KeyPress] = []
        self.vt100_parser = Vt100Parser(self._add_press)
        self._paste: list[str] | None = None
        self._paste_length = 0
        self._last_chars = ""

    def read_keys(self) -> list[KeyPress]:
        self._feed(self.stdin_reader.read())
        for _ in range(MAX_READS_PER_CALL):
            data = self.stdin_reader.read(PASTE_READ_BYTES) if self._paste is not None else ""
            if not data:
                break
            self._feed(data)
        return merge_paste(self._take_presses())

    def flush_keys(self) -> list[KeyPress]:
        self.vt100_parser.flush()
        if self._paste is None:
            self._last_chars = ""  # the parser drops the beginning of a key, too
        return self._take_presses()

    def _add_press(self, press: KeyPress) -> None:
        self._presses.append(press)

    def _take_presses(self) -> list[KeyPress]:
        presses, self._presses = self._presses, []
        return presses

    def _feed(self, data: str) -> None:
        """Parse `data`; collect the text between the marks of a paste."""
        while data:
            data = self._feed_keys(data) if self._paste is None else self._collect_paste(self._paste, data)

    def _feed_keys(self, data: str) -> str:
        """Parse keys up to the start of a paste, and return the rest."""
        # The mark may be split over two reads.
        start = (self._last_chars + data).find(PASTE_START)
        if start < 0:
            self._last_chars = (self._last_chars + data)[1 - len(PASTE_START) :]
            self.vt100_parser.feed(data)
            return ""
        end = start + len(PASTE_START) - len(self._last_chars)
        self.vt100_parser.feed(data[:end])
        self._paste, self._paste_length, self._last_chars = [], 0, ""
        return data[end:]

    def _collect_paste(self, paste: list[str], data: str) -> str:
        """Add text to the open paste. At its end, parse the paste and return the rest."""
        end = (self._last_chars + data).find(PASTE_END)
        length = len(data) if end < 0 else end + len(PASTE_END) - len(self._last_chars)
        self._last_chars = (self._last_chars + data[:length])[1 - len(PASTE_END) :]
        kept = data[: max(0, MAX_PASTE_CHARS + 1 + len(PASTE_END) - self._paste_length)][:length]
        paste.append(kept)
        self._paste_length += len(kept)
        if end >= 0:
            text = "".join(paste).removesuffix(PASTE_END)[: MAX_PASTE_CHARS + 1]
            self._paste, self._last_chars = None, ""
            self.vt100_parser.feed(text + PASTE_END)
        return data[length:]


def is_paste_too_long(press: KeyPress) -> bool:
    return press.key == Keys.BracketedPaste and len(press.data) > MAX_PASTE_CHARS


def print_paste_refusal() -> None:
    sys.stderr.write(
        f"a paste of more than {MAX_PASTE_CHARS:,} characters is ignored; attach a file instead: /attach FILE\n"
    )
    sys.stderr.flush()


def merge_paste(presses: list[KeyPress]) -> list[KeyPress]:
    """Merge the keys of one read into one paste if `is_paste` is true for them."""
    if not is_paste(presses):
        return presses
    return [KeyPress(Keys.BracketedPaste, "".join(press.data for press in presses))]


def is_paste(presses: list[KeyPress]) -> bool:
    """Whether all keys are text, with at least one character after a line break."""
    plain = all(press.key in (*LINE_BREAK_KEYS, Keys.ControlI) or len(press.key) == 1 for press in presses)
    first = next((index for index, press in enumerate(presses) if press.key in LINE_BREAK_KEYS), None)
    return plain and first is not None and any(len(press.key) == 1 for press in presses[first:])


MAX_SHOWN_PASTE_LINES = 20
"""Lines of a paste that are shown; a longer one is collapsed."""

MAX_SHOWN_PASTE_CHARS = 10_000
"""Characters of a paste that are shown; a longer one is collapsed: the editor draws the text again at each key."""


class CollapsedPastes:
    """The long pastes of one message, each shown as "[pasted 500 lines]" until the message is sent."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}

    def clear(self) -> None:
        self._texts.clear()

    def collapse(self, text: str) -> str:
        """Return the text to show for a paste: a placeholder if it is long, else `text`."""
        line_count = len(text.removesuffix("\n").split("\n"))
        if line_count <= MAX_SHOWN_PASTE_LINES and len(text) <= MAX_SHOWN_PASTE_CHARS:
            return text
        numbers = count(2)
        size = f"{line_count:,} lines" if line_count > MAX_SHOWN_PASTE_LINES else f"{len(text):,} characters"
        placeholder = f"[pasted {size}]"
        while placeholder in self._texts:
            placeholder = f"[pasted {size}, {next(numbers)}]"
        self._texts[placeholder] = text
        return placeholder

    def expand(self, message: str) -> str:
        """Replace the placeholders in `message` by their texts."""
        if not self._texts:
            return message
        return re.sub("|".join(map(re.escape, self._texts)), lambda match: self._texts[match[0]], message)

    def find_before(self, text: str) -> str:
        """Return the placeholder at the end of `text`; "" if there is none."""
        return next((placeholder for placeholder in self._texts if text.endswith(placeholder)), "")


PROMPT_HAS_FOCUS = has_focus(DEFAULT_BUFFER)

EDIT_COMMAND = "/edit"
"""The command that the keys for editing the last message enter."""


@Condition
def is_prompt_empty() -> bool:
    return not get_app().current_buffer.text


@Condition
def is_command_name() -> bool:
    """Whether the name of a slash command is typed; "//" begins a message."""
    text = get_app().current_buffer.text
    return text.startswith("/") and not text.startswith("//") and not any(char.isspace() for char in text)


@Condition
def is_file_mention() -> bool:
    """Whether the word before the cursor is an "@" with a part of a file name, in a message."""
    text = get_app().current_buffer.document.text_before_cursor
    return not text.startswith("!") and find_completion_target(text, lambda name: "").kind == FILE_ARGUMENT


@Condition
def has_more_keys() -> bool:
    """Whether keys wait that were typed at once; a completion that has begun would ignore a Tab among them."""
    return bool(get_app().key_processor.input_queue)


def build_key_bindings(
    on_paste: Callable[[str], None],
    pastes: CollapsedPastes,
    menu: ChoiceMenu,
    offers_queued: Callable[[], bool],
    take_queued: Callable[[], str],
    on_editor: Callable[["asyncio.Task[None]"], None],
) -> KeyBindings:
    """Build the key bindings.

    on_paste:       called with each pasted text; the long ones are added to `pastes`
    menu:           the choices above the line
    offers_queued:  whether there is a queued message to edit
    take_queued:    removes the message that was queued last and returns its text
    on_editor:      called with the task that ends when the user's editor is closed
    """
    bindings = KeyBindings()
    is_after_paste = Condition(lambda: bool(pastes.find_before(get_app().current_buffer.document.text_before_cursor)))
    bindings.add("enter", filter=PROMPT_HAS_FOCUS)(accept_line)
    bindings.add("c-j", filter=PROMPT_HAS_FOCUS)(insert_newline)
    bindings.add("escape", "enter", filter=PROMPT_HAS_FOCUS & emacs_mode)(insert_newline)
    bindings.add("escape", "escape", filter=PROMPT_HAS_FOCUS & emacs_mode & is_prompt_empty)(edit_last_message)
    bindings.add("escape", filter=PROMPT_HAS_FOCUS & vi_navigation_mode & is_prompt_empty)(edit_last_message)
    bindings.add("c-r", filter=PROMPT_HAS_FOCUS & is_prompt_empty)(search_history)
    # Eager: otherwise Esc waits for a second key, because "escape", "enter" is a binding, too.
    bindings.add("escape", filter=PROMPT_HAS_FOCUS & has_completions, eager=True)(close_menu)
    bindings.add("backspace", filter=PROMPT_HAS_FOCUS & (is_command_name | is_file_mention))(delete_completed_char)
    bindings.add("escape", "/", filter=PROMPT_HAS_FOCUS & emacs_mode & is_prompt_empty)(insert_slash)
    bindings.add(Keys.Vt100MouseEvent)(ignore_key)
    # In raw mode Ctrl-C is a key; "<sigint>" is a SIGINT that another process sent.
    for interrupt in ("c-c", "<sigint>"):
        bindings.add(interrupt, filter=~is_searching)(interrupt_prompt)
        bindings.add(interrupt, filter=is_searching)(exit_search)

    @bindings.add(Keys.BracketedPaste)
    def paste(event: KeyPressEvent) -> None:
        if len(event.data) > MAX_PASTE_CHARS:
            run_in_terminal(print_paste_refusal)
            return
        text = normalize_paste(event.data)
        on_paste(text)
        event.current_buffer.insert_text(pastes.collapse(text))

    @bindings.add("backspace", filter=PROMPT_HAS_FOCUS & is_after_paste)
    def delete_paste(event: KeyPressEvent) -> None:
        """Delete a collapsed paste as a whole: a part of its placeholder would be sent as text."""
        buffer = event.current_buffer
        buffer.delete_before_cursor(len(pastes.find_before(buffer.document.text_before_cursor)))

    @bindings.add("up", filter=PROMPT_HAS_FOCUS & is_prompt_empty & Condition(offers_queued))
    def edit_queued(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text(take_queued())

    can_choose = PROMPT_HAS_FOCUS & is_prompt_empty & Condition(menu.is_open)
    bindings.add("enter", filter=can_choose)(menu.accept)
    for key, rows in (("up", -1), ("c-p", -1), ("down", 1), ("c-n", 1)):
        bindings.add(key, filter=can_choose)(partial(_move_choice, menu, rows))

    @bindings.add("c-x", "c-e", filter=PROMPT_HAS_FOCUS)
    def open_editor(event: KeyPressEvent) -> None:
        """Open the message in the user's editor and return to the prompt: only Enter sends."""
        buffer = event.current_buffer
        buffer.text = pastes.expand(buffer.text)
        on_editor(buffer.open_in_editor(validate_and_handle=False))

    return bindings


def _move_choice(menu: ChoiceMenu, rows: int, _: KeyPressEvent) -> None:
    menu.move(rows)


def accept_line(event: KeyPressEvent) -> None:
    """Accept the selected completion; without one, accept the message."""
    buffer = event.current_buffer
    if buffer.complete_state and buffer.complete_state.current_completion:
        buffer.complete_state = None
    else:
        buffer.validate_and_handle()


def ignore_key(event: KeyPressEvent) -> None:
    """Do nothing. A color sequence among keys looks like a mouse event, and the library's own binding fails on it."""


def close_menu(event: KeyPressEvent) -> None:
    event.current_buffer.cancel_completion()


def delete_completed_char(event: KeyPressEvent) -> None:
    """Delete a character, and list the commands or files that begin with the rest."""
    event.current_buffer.delete_before_cursor(event.arg)
    if is_command_name() or is_file_mention():
        event.current_buffer.start_completion()


def insert_newline(event: KeyPressEvent) -> None:
    event.current_buffer.newline(copy_margin=False)


def insert_slash(event: KeyPressEvent) -> None:
    event.current_buffer.insert_text("/")


def edit_last_message(event: KeyPressEvent) -> None:
    event.app.exit(result=EDIT_COMMAND)


def search_history(event: KeyPressEvent) -> None:
    """Start a search in the history, which other terminals may have extended."""
    reload_if_stale(event.current_buffer)
    start_search(direction=SearchDirection.BACKWARD)


def exit_search(event: KeyPressEvent) -> None:
    """Stop the search and restore the line; vi bindings would otherwise end in normal mode."""
    stop_search()
    event.app.vi_state.input_mode = InputMode.INSERT


def interrupt_prompt(event: KeyPressEvent) -> None:
    """Discard the typed text; raise Interrupted at an empty prompt."""
    if event.current_buffer.text:
        event.app.exit(result="")
    else:
        event.app.exit(exception=Interrupted("nothing was typed"))


MAX_HISTORY_BYTES = 1024 * 1024
"""Bytes that are read from the end of the file."""

ENTRY_START = "\n# "
"""Prefix of every entry."""


class PromptHistory(History):
    """Prompt history in a file that several terminals share; newest entry first."""

    def __init__(self, path: Path, expand: Callable[[str], str] = str) -> None:
        """`expand` returns the whole text of a message for its entry."""
        super().__init__()
        self._path, self._loaded_size_bytes, self._expand = path, -1, expand

    def append_string(self, string: str) -> None:
        super().append_string(self._expand(string))

    async def load(self) -> AsyncGenerator[str, None]:
        size = self._file_size()
        if size != self._loaded_size_bytes:
            self._loaded_strings, self._loaded_size_bytes = list(self.load_history_strings()), size
        for entry in self._loaded_strings:
            yield entry

    def is_stale(self) -> bool:
        """Whether another process has changed the file since it was loaded."""
        return self._file_size() != self._loaded_size_bytes

    def load_history_strings(self) -> Iterable[str]:
        try:
            with self._path.open("rb") as file:
                start = max(0, self._file_size() - MAX_HISTORY_BYTES)
                file.seek(start)
                text = file.read().decode("utf-8", "replace")
                return _parse_history_entries(text.partition(ENTRY_START)[2] if start else text)
        except OSError:
            return []

    def store_string(self, string: str) -> None:
        with suppress(OSError):
            file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                # If another terminal has written since, its entries are not loaded yet: -1 makes the history stale.
                is_current = os.fstat(file).st_size == self._loaded_size_bytes
                os.write(file, _format_history_entry(string).encode("utf-8", "replace"))
                self._loaded_size_bytes = os.fstat(file).st_size if is_current else -1
            finally:
                os.close(file)

    def _file_size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0


class UnsavedPromptHistory(InMemoryHistory):
    """Prompt history of this process alone; `expand` as in `PromptHistory`."""

    def __init__(self, expand: Callable[[str], str]) -> None:
        super().__init__()
        self._expand = expand

    def append_string(self, string: str) -> None:
        super().append_string(self._expand(string))


def reload_if_stale(buffer: Buffer) -> None:
    """Reload the history into an open, empty prompt if another terminal has added to the file."""
    if isinstance(buffer.history, PromptHistory) and buffer.history.is_stale():
        buffer.reset()
        buffer.load_history_if_not_yet_loaded()


def _format_history_entry(text: str) -> str:
    """Format an entry for the file: a line with the time, then each line of the text with "+" before it."""
    return f"{ENTRY_START}{datetime.now()}\n" + "".join(f"+{line}\n" for line in text.split("\n"))


def _parse_history_entries(text: str) -> list[str]:
    """Parse the entries of a history file, newest first."""
    entries: list[list[str]] = []
    is_open = False
    for line in text.split("\n"):
        if line.startswith("+"):
            if not is_open:
                entries.append([])
            is_open = True
            entries[-1].append(line[1:])
        else:
            is_open = False
    return ["\n".join(lines) for lines in reversed(entries)]


def open_prompt_history(path: Path, expand: Callable[[str], str] = str) -> History:
    """Open the history file at `path` with mode 0600; in memory if it cannot be opened or is a device."""
    if path.exists() and not path.is_file():  # a link to /dev/null, whose mode must not change
        return UnsavedPromptHistory(expand)
    try:
        make_private_folder(path.parent)
        path.touch(mode=0o600, exist_ok=True)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        path.open("ab").close()
    except (OSError, StoreFault):
        return UnsavedPromptHistory(expand)
    return PromptHistory(path, expand)


class EditorCompleter(Completer):
    """Adapts `SuggestCompletions`, which may read the store, to prompt_toolkit."""

    def __init__(self, suggest: SuggestCompletions, measure_columns: Callable[[], int] = lambda: sys.maxsize) -> None:
        """Prepare completion; `measure_columns` returns the columns of the terminal, in which descriptions are cut."""
        self._suggest, self._measure_columns = suggest, measure_columns

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        # Abstract in prompt_toolkit; the prompt calls the asynchronous one.
        return ()

    async def get_completions_async(
        self, document: Document, complete_event: CompleteEvent
    ) -> AsyncGenerator[Completion, None]:
        try:
            length, suggestions = await self._suggest(document.text_before_cursor)
        except ConvoError:  # without a readable store there are no completions
            return
        rows = [tuple(escape_control_chars(text) for text in suggestion) for suggestion in suggestions]
        columns = self._measure_columns() - max((text_width(name) for name, _ in rows), default=0) - MENU_MARGINS
        terminal = detect_display_without_color(sys.stderr)
        for suggestion, (name, description) in zip(suggestions, rows, strict=True):
            meta = terminal.translate_box_chars(truncate_text(description, columns)) if description else ""
            yield Completion(suggestion.text, start_position=-length, display=name, display_meta=meta)
