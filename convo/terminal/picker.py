"""Picker: choose one entry of a list, with a search and a preview of the selected entry.

`PickerState`, `divide_rows` and `render_list` decide what is shown; `run_picker` draws it and returns the choice.
Slow to import: load it only for a terminal that can be drawn on (see `prompt.PromptReader.can_pick`).
"""

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Dimension, HSplit, Layout, VSplit, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.output import Output

from convo.errors import ConvoError
from convo.terminal.raw_terminal import ESCAPE_TIMEOUT_S
from convo.terminal.tables import Column, fit_columns, table_lines
from convo.terminal.terminal import DisplayOptions, escape_control_chars, format_count, truncate_text
from convo.terminal.theme import make_prompt_style


class PickerEntries(NamedTuple):
    """The entries of a picker.

    noun:          one entry: "conversation"
    action:        the effect of Enter, as a verb
    values:        one for each entry; the chosen one is returned
    search_texts:  the text of each entry that is searched
    columns:       as of a table, with a cell for each entry
    selected:      the index of the entry that is selected at first
    load_preview:  loads the lines that describe an entry, from its value and a number of columns; None: no preview
    takes_query:   the text of the search can be chosen too, in a last row
    note:          shown after the number of entries
    load_more:     loads the entries that replace these while the list is open; None: there are no more
    find:          searches what is stored and returns the entries that match a text; None: only these are searched
    """

    noun: str
    action: str
    values: Sequence[str]
    search_texts: Sequence[str]
    columns: Sequence[Column]
    selected: int = 0
    load_preview: Callable[[str, int], Awaitable[Sequence[str]]] | None = None
    takes_query: bool = False
    note: str = ""
    load_more: Callable[[], Awaitable["PickerEntries"]] | None = None
    find: Callable[[str], Awaitable["PickerEntries"]] | None = None


QUERY_INDEX = -1
"""The index of the row with the text of the search."""


@dataclass(frozen=True, slots=True)
class PickerState:
    """The search and the selection.

    search_texts:  of all entries, in lower case
    matches:       the indexes of the entries that match, and QUERY_INDEX
    takes_query:   the text of the search can be chosen too
    position:      of the selected entry among the matches
    """

    search_texts: tuple[str, ...]
    matches: tuple[int, ...]
    takes_query: bool = False
    position: int = 0

    @classmethod
    def start(cls, search_texts: Sequence[str], selected: int = 0, *, takes_query: bool = False) -> "PickerState":
        """Return the state before the first key, with `selected` selected."""
        texts = tuple(text.casefold() for text in search_texts)
        return cls(texts, tuple(range(len(texts))), takes_query, selected)

    @property
    def selected(self) -> int | None:
        """The index of the selected entry; None if no entry matches."""
        return self.matches[self.position] if self.matches else None

    def search(self, query: str) -> "PickerState":
        """Keep the entries that contain every word of `query`, and select the first one.

        The text of an entry begins with its name: entries whose text begins with the query come first, and of those
        the ones where it ends at a blank.
        """
        words = query.casefold().split()
        matches = [index for index, text in enumerate(self.search_texts) if all(word in text for word in words)]
        start = " ".join(words)
        if start:
            texts = [f"{text} " for text in self.search_texts]
            matches.sort(
                key=lambda index: (not texts[index].startswith(f"{start} "), not texts[index].startswith(start))
            )
            if self.takes_query and not any(text.startswith(f"{start} ") for text in texts):
                matches.append(QUERY_INDEX)
        return replace(self, matches=tuple(matches), position=0)

    def move(self, rows: int) -> "PickerState":
        """Move the selection down by `rows`, at most to the last match; up if `rows` is negative."""
        return replace(self, position=max(0, min(self.position + rows, len(self.matches) - 1)))


MAX_LIST_ROWS = 8
"""Entries that are shown at once."""

MAX_PREVIEW_ROWS = 9
MIN_PREVIEW_ROWS = 3
MIN_PREVIEW_COLUMNS = 60
"""Columns of the terminal below which there is no preview."""

FIXED_ROWS = 4
"""Rows of the count, the search, the headings and the keys."""


class PickerRows(NamedTuple):
    """The rows of the list, and those of the preview with the line above it; 0: no preview."""

    entries: int
    preview: int


def divide_rows(columns: int, rows: int, entry_count: int, *, has_preview: bool) -> PickerRows:
    """Divide the rows of a terminal; the preview is left out first."""
    entry_rows = max(1, min(MAX_LIST_ROWS, entry_count, rows - FIXED_ROWS - 1))
    preview_rows = min(MAX_PREVIEW_ROWS + 1, rows - FIXED_ROWS - 1 - entry_rows)
    is_shown = has_preview and columns >= MIN_PREVIEW_COLUMNS and preview_rows > MIN_PREVIEW_ROWS
    return PickerRows(entry_rows, preview_rows if is_shown else 0)


def render_list(state: PickerState, lines: Sequence[str], rows: int, noun: str) -> StyleAndTextTuples:
    """Render the matches around the selected one; `lines` has one line for each entry, and the one of the search."""
    if not state.matches:
        return [("class:dim", f"  no {noun} matches")]
    start = max(0, min(state.position - rows // 2, len(state.matches) - rows))
    fragments: StyleAndTextTuples = []
    for position, index in list(enumerate(state.matches))[start : start + rows]:
        is_selected = position == state.position
        fragments.append(("class:selected" if is_selected else "", ("> " if is_selected else "  ") + lines[index]))
        fragments.append(("", "\n"))
    return fragments[:-1]


LINE_BREAK = re.compile(r"[\n\t]")
"""Characters that a name from a server may contain, and that are not escaped."""

SEARCH_LABEL = "search: "

RIGHT_MARGIN_COLUMNS = 1
MARKER_COLUMNS = 2
"""Columns of the mark of the selected entry."""


async def run_picker(
    entries: PickerEntries, terminal_input: Input, terminal_output: Output, display: DisplayOptions
) -> str | None:
    """Let the user choose an entry and return its value; None for Esc or Ctrl-C. The drawn lines are erased.

    display:  the characters that the terminal can show
    """
    return await _Picker(entries, terminal_input, terminal_output, display).run()


class _Picker:
    """One run: the state, the previews that are loaded, and the application that draws them."""

    def __init__(
        self, entries: PickerEntries, terminal_input: Input, terminal_output: Output, display: DisplayOptions
    ) -> None:
        self._listed = self._entries = entries
        self._display = display
        self._state = PickerState.start(entries.search_texts, entries.selected, takes_query=entries.takes_query)
        self._previews: dict[tuple[str, int], Sequence[str]] = {}
        self._loading: asyncio.Task[None] | None = None
        self._finding: asyncio.Task[None] | None = None
        self._table: tuple[int, list[str]] = (0, [])
        self._query = Buffer(multiline=False, on_text_changed=self._search)
        self._app: Application[str | None] = Application(
            layout=self._make_layout(),
            key_bindings=self._make_key_bindings(),
            style=make_prompt_style(os.environ, {"selected": "bold"}),
            input=terminal_input,
            output=terminal_output,
            erase_when_done=True,
        )
        self._app.ttimeoutlen = ESCAPE_TIMEOUT_S

    async def run(self) -> str | None:
        return await self._app.run_async(pre_run=self._begin)

    # -- screen -----------------------------------------------------------------------

    def _make_layout(self) -> Layout:
        search = Window(BufferControl(self._query), height=1)
        return Layout(
            HSplit(
                [
                    Window(FormattedTextControl(self._render_count), height=1),
                    VSplit([Window(FormattedTextControl(SEARCH_LABEL), width=len(SEARCH_LABEL), height=1), search]),
                    Window(FormattedTextControl(self._render_heading), height=1),
                    Window(
                        FormattedTextControl(self._render_entries), height=lambda: Dimension.exact(self._rows.entries)
                    ),
                    Window(
                        FormattedTextControl(self._render_preview), height=lambda: Dimension.exact(self._rows.preview)
                    ),
                    Window(FormattedTextControl(self._render_keys), height=1),
                ]
            ),
            focused_element=search,
        )

    @property
    def _columns(self) -> int:
        return self._app.output.get_size().columns - RIGHT_MARGIN_COLUMNS

    @property
    def _rows(self) -> PickerRows:
        size = self._app.output.get_size()
        has_preview = self._entries.load_preview is not None
        count = len(self._entries.values) + self._entries.takes_query
        return divide_rows(size.columns, size.rows, count, has_preview=has_preview)

    def _dim(self, line: str) -> StyleAndTextTuples:
        return [("class:dim", self._display.translate_box_chars(truncate_text(line, self._columns)))]

    def _render_count(self) -> StyleAndTextTuples:
        total, count = len(self._listed.values), len(self._state.matches) - (QUERY_INDEX in self._state.matches)
        shown = format_count(total, self._entries.noun)
        note = f" · {escape_control_chars(self._entries.note)}" if self._entries.note else ""
        return self._dim((f"{count:,} of {shown}" if count < total else format_count(count, self._entries.noun)) + note)

    def _render_keys(self) -> StyleAndTextTuples:
        return self._dim(f"Enter {self._entries.action} · Esc cancel · Up, Down, PageUp, PageDown select")

    def _table_lines(self) -> list[str]:
        """Return the headings and the line of each entry, laid out once for each width."""
        if self._table[0] != self._columns:
            display = self._display._replace(width=self._columns - MARKER_COLUMNS)
            lines = table_lines(fit_columns(self._entries.columns, display), display)
            self._table = self._columns, [display.translate_box_chars(LINE_BREAK.sub(" ", line)) for line in lines]
        return self._table[1]

    def _render_heading(self) -> StyleAndTextTuples:
        return self._dim(" " * MARKER_COLUMNS + self._table_lines()[0])

    def _render_entries(self) -> StyleAndTextTuples:
        typed = escape_control_chars(f"{self._query.text.strip()}  as typed")
        lines = [*self._table_lines()[1:], truncate_text(typed, self._columns - MARKER_COLUMNS)]
        return render_list(self._state, lines, self._rows.entries, self._entries.noun)

    def _render_preview(self) -> StyleAndTextTuples:
        if not self._rows.preview:
            return []
        rule = self._display.translate_box_chars("─" * self._columns)
        value = self._selected_value
        lines = () if value is None else self._previews.get((value, self._columns), ())
        return [("class:dim", "\n".join([rule, *lines[: self._rows.preview - 1]]))]

    # -- keys -------------------------------------------------------------------------

    def _make_key_bindings(self) -> KeyBindings:
        bindings = KeyBindings()
        for key, apply in PICKER_KEYS.items():
            bindings.add(key, eager=True)(partial(apply, self))
        return bindings

    @property
    def page_rows(self) -> int:
        return self._rows.entries

    def accept(self, event: KeyPressEvent) -> None:
        """Return the selected entry; without a match nothing happens."""
        if self._selected_value is not None:
            event.app.exit(result=self._selected_value)

    @property
    def _selected_value(self) -> str | None:
        selected = self._state.selected
        if selected == QUERY_INDEX:
            return self._query.text.strip()
        return None if selected is None else self._entries.values[selected]

    def move(self, rows: int) -> None:
        self._state = self._state.move(rows)
        self._show_preview()

    def _search(self, buffer: Buffer) -> None:
        query, find = buffer.text.strip(), self._listed.find
        if self._finding:
            self._finding.cancel()
        self._finding = self._app.create_background_task(self._find(find, query)) if find and query else None
        if not query and self._entries is not self._listed:
            self._show_entries(self._listed)
        if self._entries is self._listed:  # those that were found for other words stay until the next ones are found
            self._state = self._state.search(buffer.text)
        self._show_preview()

    async def _find(self, find: Callable[[str], Awaitable[PickerEntries]], query: str) -> None:
        try:
            found = await find(query)
        except ConvoError as error:
            self._entries = self._entries._replace(note=error.message)
        else:
            self._show_entries(found if found.values else self._listed)
            if not found.values:
                self._state = replace(self._state, matches=())
            self._show_preview()
        self._app.invalidate()

    def _show_entries(self, entries: PickerEntries) -> None:
        self._entries, self._table = entries, (0, [])
        self._state = PickerState.start(entries.search_texts, takes_query=entries.takes_query)

    # -- entries ---------------------------------------------------------------------

    def _begin(self) -> None:
        self._show_preview()
        if self._entries.load_more:
            self._app.create_background_task(self._load_more(self._entries.load_more))

    async def _load_more(self, load_more: Callable[[], Awaitable[PickerEntries]]) -> None:
        """Replace the entries; the search and the selected entry stay."""
        entries = await load_more()
        value, self._listed = self._selected_value, entries
        self._show_entries(entries)
        self._state = self._state.search(self._query.text)
        values = [
            self._query.text.strip() if index == QUERY_INDEX else entries.values[index] for index in self._state.matches
        ]
        if value in values:
            self._state = self._state.move(values.index(value))
        self._app.invalidate()

    def _show_preview(self) -> None:
        """Load the preview of the selected entry unless it is loaded; the load for another entry is cancelled."""
        if self._loading:
            self._loading.cancel()
            self._loading = None
        value = self._selected_value
        if value is not None and self._rows.preview:
            key = value, self._columns
            if key not in self._previews:
                self._loading = self._app.create_background_task(self._load_preview(key))

    async def _load_preview(self, key: tuple[str, int]) -> None:
        assert self._entries.load_preview
        try:
            self._previews[key] = await self._entries.load_preview(*key)
        except ConvoError as error:
            self._previews[key] = [
                truncate_text(LINE_BREAK.sub(" ", f"  {escape_control_chars(error.message)}"), key[1])
            ]
        self._app.invalidate()


PICKER_KEYS: Mapping[Keys, Callable[[_Picker, KeyPressEvent], None]] = MappingProxyType(
    {
        **dict.fromkeys((Keys.Up, Keys.ControlP), lambda picker, _: picker.move(-1)),
        **dict.fromkeys((Keys.Down, Keys.ControlN), lambda picker, _: picker.move(1)),
        Keys.PageUp: lambda picker, _: picker.move(-picker.page_rows),
        Keys.PageDown: lambda picker, _: picker.move(picker.page_rows),
        Keys.ControlM: _Picker.accept,
        **dict.fromkeys(
            (Keys.Escape, Keys.ControlC, Keys.ControlD, Keys.SIGINT), lambda _, event: event.app.exit(result=None)
        ),
        # The search has one line.
        Keys.BracketedPaste: lambda _, event: event.current_buffer.insert_text(" ".join(event.data.split())),
        Keys.Vt100MouseEvent: lambda _, event: None,  # the library's binding fails on a color sequence
    }
)
"""All keys except those that edit the search."""
