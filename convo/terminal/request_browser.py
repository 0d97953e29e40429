"""Full-screen browser of one conversation, for `convo inspect --interactive`.

`RequestBrowser` is the state: `press` applies a key and returns an action for the caller, `render` returns the lines
of the screen. Neither has an effect outside, and only the visible rows are formatted, so that thousands of requests
are shown without delay. `browse_requests` runs it in the terminal with prompt_toolkit.
Slow to import: load it only for a terminal that can be drawn on.
"""

import asyncio
import json
import os
import re
import sys
import time
from bisect import bisect_left, bisect_right
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from prompt_toolkit.application import Application
from prompt_toolkit.data_structures import Point
from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.input import create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.keys import Keys
from prompt_toolkit.layout import Layout, UIContent, UIControl, Window
from prompt_toolkit.output import ColorDepth
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.utils import get_cwidth

from convo.chat.next_request import rebuild_link_request
from convo.errors import ConvoError, NotFound
from convo.history.items import Item, searchable_text
from convo.history.records import (
    IGNORED_PARAMETER,
    RECORDING_PARAMETER,
    Link,
    client_parameters,
    describe_client,
    describe_translation,
)
from convo.history.tree import Key
from convo.inspect.diff import HistoryDiff, RequestDiff, SentRequest, diff_histories, diff_requests
from convo.inspect.tree import LinkRow, iter_link_rows, split_branch_links
from convo.inspect.view import (
    ConversationView,
    LinkStats,
    compute_link_stats,
    count_resent_tokens,
    input_token_share,
    link_cost_usd,
    sum_link_usage,
)
from convo.strategies.strategy import STRATEGIES
from convo.terminal.clipboard import build_osc52_sequence, copy_with_programs
from convo.terminal.diff_view import DiffSide, render_history_diff, render_request_diff
from convo.terminal.inspect_view import (
    TreeRow,
    build_tree_row,
    chart_legend,
    conversation_rows,
    format_fork_command,
    format_item_line,
    format_optional_number,
    preview_cell,
    render_item,
    render_token_bar,
    session_name,
    tree_labels,
)
from convo.terminal.raw_terminal import ESCAPE_TIMEOUT_S
from convo.terminal.status_line import PART_SEPARATOR, format_cost, format_token_counts
from convo.terminal.statuses import STATUS_MARKS, WARNING, StatusMark, format_sign, open_run_mark
from convo.terminal.terminal import (
    ASCII_FALLBACKS,
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    format_count,
    key_value_lines,
    shorten_ids,
    truncate_text,
)
from convo.terminal.theme import detect_color_system, make_prompt_style
from convo.terminal.usage_views import format_cost_of_totals, reported_rows
from convo.usage.cost import Usage

Line: TypeAlias = Sequence[tuple[str, str]]
"""One line of the screen: styles of prompt_toolkit, each with its text."""


class ItemRow(NamedTuple):
    """An item that takes one line, which is formatted when it becomes visible; `number` counts from 1."""

    number: int
    key: Key


Row: TypeAlias = Line | ItemRow


class Overlay(NamedTuple):
    """A document that is shown instead of the selected request.

    build:           returns its rows for a number of columns
    had_tree_focus:  whether the keys moved the selection before it was opened
    detail_top:      the first visible line before it was opened
    """

    title: str
    build: Callable[[int], list[Row]]
    had_tree_focus: bool
    detail_top: int


class ActionKind(Enum):
    """The kinds of `Action`."""

    LEAVE = "leave"
    INTERRUPT = "interrupt"
    FORK = "fork"
    COPY = "copy"
    COMPARE = "compare"


class Action(NamedTuple):
    """The effect of a key that the caller performs; `links` are the affected requests."""

    kind: ActionKind
    links: tuple[Link, ...] = ()


class RequestDifference(NamedTuple):
    """The comparison of two requests, as they were sent, and of their histories with the output."""

    requests: tuple[SentRequest, SentRequest]
    request_diff: RequestDiff
    histories: tuple[DiffSide, DiffSide]
    history_diff: HistoryDiff


class Screen(NamedTuple):
    """The whole screen; `cursor` is the column and the line of the cursor, None where it is hidden."""

    lines: list[Line]
    cursor: tuple[int, int] | None = None


MIN_SPLIT_COLUMNS = 90
"""Columns from which on the tree and the detail are shown side by side."""

MIN_TREE_COLUMNS, MAX_TREE_COLUMNS = 44, 72
SEPARATOR = " │ "

MIN_PREVIEW_COLUMNS, PREFERRED_PREVIEW_COLUMNS = 12, 24
"""Minimum columns of the preview beside the numbers of input tokens, and beside the other numbers."""

MAX_MESSAGE_LINES = 3
MAX_QUERY_CHARS = 200
MAX_BAR_COLUMNS = 60

MAX_FULL_ITEMS = 20
"""Items of one request that are shown with their complete text; of those before them only the first words."""

MAX_ITEM_CHARS, MAX_FACT_CHARS, MAX_COMMAND_CHARS = 20_000, 500, 100_000
"""Characters of one item, of one fact about a request, and of a curl command that are shown."""

MAX_LABEL_COLUMNS = 20
"""Columns of the name of a fact, which may be the name of a parameter that another client sent."""

TAB = " " * 4

HEAD_STYLE, DIM_STYLE, ID_STYLE, BAD_STYLE = "bold", "class:dim", "class:id", "class:bad"
"""Styles of the theme as classes of prompt_toolkit; see `make_prompt_style`."""

SELECTED_STYLE, UNFOCUSED_STYLE = "reverse", "bold underline"
MATCH_STYLE, SELECTED_MATCH_STYLE = "reverse", "noreverse underline"

NO_MARKS: Mapping[str, StatusMark] = MappingProxyType({})

KEY_HELP: Sequence[KeyValue] = (
    ("Up Down j k", "select a request, or scroll the detail"),
    ("PageUp PageDown", "move by a page"),
    ("g G", "go to the start, or to the end"),
    ("Enter", "go to the detail of the request"),
    ("Tab", "switch between the tree and the detail"),
    ("Esc", "go back; in the tree: leave"),
    ("/", "search: in the tree all requests, in the detail its lines"),
    ("n N", "next match, previous match"),
    ("m Space", "mark the request, or remove its mark"),
    ("d", "compare the two marked requests; with one mark this one with the selected request; without marks the "
     "selected request with its parent"),
    ("f", "fork: leave, and continue from the response in a chat"),
    ("c", "copy the request as a curl command; again: show it"),
    ("q Ctrl-C", "leave"),
)  # fmt: skip

TREE_HINTS = ("Enter details", "/ search", "m mark", "d diff", "f fork", "c curl")
DETAIL_HINTS = ("Esc back", "/ search", "d diff", "f fork", "c curl")
LAST_HINTS = ("? help", "q quit")


class RequestBrowser:
    """The requests of one conversation, the selected one, and its displayed part.

    The first row is the conversation as a whole.

    keys:  the keys outside the search and their actions
    """

    def __init__(self, view: ConversationView, *, has_box_chars: bool = True) -> None:
        self.view = view
        self._has_box_chars = has_box_chars
        self._link_rows: Sequence[LinkRow] = [*iter_link_rows(view.links, view.current_link_id)]
        self._short_ids = shorten_ids([link.id for link in view.links])
        self._links = {link.id: link for link in view.links}
        self._resent_tokens = count_resent_tokens(view.links, view.path_index)
        self._indexes = {row.link.id: index for index, row in enumerate(self._link_rows, 1)}
        usages = [Usage.from_json(link.usage) for link in view.links]
        self._max_input = max((usage.input_tokens for usage in usages if usage), default=0)
        self._max_output = max((usage.output_tokens for usage in usages if usage), default=0)
        self._max_sent = max((link.sent_count for link in view.links), default=0)
        self._max_depth = max((row.depth for row in self._link_rows), default=0)
        self._summary = self._summarize()
        self._selected = self._indexes.get(view.current_link_id or "", len(self._link_rows))
        self._tree_top = self._detail_top = 0
        self._has_tree_focus = True
        self._overlay: Overlay | None = None
        self._marked: list[str] = []
        self._typed_query: str | None = None
        self._query, self._matches, self._found_line = "", list[int](), -1
        self._message = ""
        self._copied: tuple[str, str] | None = None
        self._page_rows, self._detail_columns = 20, 80
        self._cached_rows: tuple[object, list[Row]] | None = None
        self.keys: Mapping[Keys | str, Callable[[], Action | None]] = {
            **dict.fromkeys((Keys.Up, "k"), lambda: self._move(-1)),
            **dict.fromkeys((Keys.Down, "j"), lambda: self._move(1)),
            Keys.PageUp: lambda: self._move(1 - self._page_rows),
            Keys.PageDown: lambda: self._move(self._page_rows - 1),
            **dict.fromkeys((Keys.Home, "g"), self._move_to_start),
            **dict.fromkeys((Keys.End, "G"), self._move_to_end),
            **dict.fromkeys((Keys.ControlM, Keys.ControlJ), self._enter_detail),
            Keys.ControlI: self._switch_focus,
            Keys.Escape: self._go_back,
            "/": self._start_search,
            "n": lambda: self._find_match(1),
            "N": lambda: self._find_match(-1),
            **dict.fromkeys(("m", " "), self._mark),
            "d": self._compare,
            "f": self._fork,
            "c": self._copy,
            "?": self._show_help,
            "q": lambda: Action(ActionKind.LEAVE),
        }

    @property
    def selected_link(self) -> Link | None:
        """The selected request; None for the conversation as a whole."""
        return self._link_rows[self._selected - 1].link if self._selected else None

    # -- keys ---------------------------------------------------------------------------------------

    def press(self, key: Keys | str) -> Action | None:
        """Apply one key, a character or a key of prompt_toolkit; an unknown one changes nothing."""
        self._message = ""
        if key == Keys.ControlC:
            return Action(ActionKind.INTERRUPT)
        if self._typed_query is not None:
            self._type_query(key)
            return None
        apply = self.keys.get(key)
        return apply() if apply else None

    def paste(self, text: str) -> None:
        """Add the first line of a pasted text to the search; ignore it elsewhere."""
        if self._typed_query is not None:
            for char in next(iter(text.splitlines()), ""):
                self._type_query(char)

    def show_message(self, text: str) -> None:
        """Show `text` in place of the keys until the next key."""
        self._message = escape_control_chars(text)

    def show_copied(self, link: Link, command: str, targets: Sequence[str]) -> None:
        """Show that `command` was copied to `targets`; without one show the command itself."""
        self._copied = link.id, command
        if targets:
            self.show_message(
                f"copied {format_count(len(command), 'character')} ({', '.join(targets)}); press c again to show them"
            )
        else:
            self._show_curl(link.id, command)
            self.show_message("no clipboard available; install xclip or wl-clipboard")

    def _move(self, lines: int) -> None:
        if self._has_tree_focus:
            self._select(self._selected + lines)
        else:
            self._scroll(self._detail_top + lines)

    def _move_to_end(self) -> None:
        self._move(len(self._link_rows) + len(self._detail_rows()))

    def _move_to_start(self) -> None:
        self._move(-len(self._link_rows) - len(self._detail_rows()))

    def _select(self, index: int) -> None:
        index = max(0, min(len(self._link_rows), index))
        if index != self._selected:
            self._selected, self._detail_top, self._found_line = index, 0, -1
            self._overlay = None

    def _scroll(self, top: int) -> None:
        self._detail_top = max(0, min(len(self._detail_rows()) - self._page_rows, top))

    def _enter_detail(self) -> None:
        if self._has_tree_focus and self._overlay:
            self._detail_top, self._overlay = self._overlay.detail_top, None
        self._has_tree_focus = False

    def _switch_focus(self) -> None:
        self._has_tree_focus = not self._has_tree_focus

    def _go_back(self) -> Action | None:
        if self._overlay:
            self._has_tree_focus, self._detail_top = self._overlay.had_tree_focus, self._overlay.detail_top
            self._overlay = None
        elif not self._has_tree_focus:
            self._has_tree_focus = True
        elif self._query:
            self._query, self._matches = "", []
        else:
            return Action(ActionKind.LEAVE)
        return None

    def _show(self, title: str, build: Callable[[int], list[Row]]) -> None:
        if self._overlay:
            self._overlay = self._overlay._replace(title=title, build=build)
        else:
            self._overlay = Overlay(title, build, self._has_tree_focus, self._detail_top)
        self._has_tree_focus, self._detail_top, self._found_line = False, 0, -1

    def _show_help(self) -> None:
        self._show("keys", lambda columns: _key_value_rows(KEY_HELP, columns))

    def _mark(self) -> None:
        link = self.selected_link
        if link is None:
            self.show_message("select a request to mark it")
        elif link.id in self._marked:
            self._marked.remove(link.id)
        else:
            self._marked = [*self._marked[-1:], link.id]
            self.show_message(f"{len(self._marked)} marked; d shows the difference")

    def _compare(self) -> Action | None:
        """Ask for the difference between two requests, the earlier one first."""
        selected = self.selected_link
        if len(self._marked) == 2:
            links = [self._links[id_] for id_ in self._marked]
        elif selected is None:
            self.show_message("select a request, or mark two with m")
            return None
        elif self._marked and self._marked[0] != selected.id:
            links = [self._links[self._marked[0]], selected]
        elif selected.parent_id in self._links:
            links = [self._links[selected.parent_id], selected]
        else:
            self.show_message(f"{selected.id} has no parent to compare it with; mark two requests with m")
            return None
        self.show_message("comparing")
        return Action(ActionKind.COMPARE, tuple(sorted(links, key=lambda link: link.created_at)))

    def show_difference(self, difference: RequestDifference) -> None:
        """Show the result of `compare_requests`."""
        self._message = ""

        def build(columns: int) -> list[Row]:
            display = DisplayOptions(columns, has_color=True)
            requests = render_request_diff(*difference.requests, difference.request_diff, display)
            histories = render_history_diff(*difference.histories, difference.history_diff, display)
            return [
                *_styled_rows([(HEAD_STYLE, "requests as they were sent")]),
                *_sgr_rows(requests, columns),
                *_styled_rows([], [(HEAD_STYLE, "histories, with the output")]),
                *_sgr_rows(histories, columns),
            ]

        self._show("difference", build)

    def _fork(self) -> Action | None:
        link = self.selected_link
        if link is not None and format_fork_command(link):
            return Action(ActionKind.FORK, (link,))
        self.show_message(
            f"{link.id} has no stored response to continue from" if link else "select a response to fork from"
        )
        return None

    def _copy(self) -> Action | None:
        link = self.selected_link
        if link is None:
            self.show_message("select a request to copy it")
        elif self._copied and self._copied[0] == link.id and not self._overlay:
            self._show_curl(*self._copied)
        else:
            return Action(ActionKind.COPY, (link,))
        return None

    def _show_curl(self, link_id: str, command: str) -> None:
        # A command of megabytes took seconds to wrap.
        text = escape_control_chars(command[:MAX_COMMAND_CHARS])
        rest = format_count(len(command) - MAX_COMMAND_CHARS, "more character")
        note = f"{rest}, which a clipboard program can copy" if len(command) > MAX_COMMAND_CHARS else ""
        self._show(
            f"curl command of {link_id}",
            lambda columns: [*_text_rows(text, columns), *_text_rows(note, columns, DIM_STYLE)],
        )

    # -- search -------------------------------------------------------------------------------------

    def _start_search(self) -> None:
        self._typed_query = ""

    def _type_query(self, key: Keys | str) -> None:
        query = self._typed_query or ""
        if key in (Keys.ControlM, Keys.ControlJ):
            self._typed_query = None
            if query:
                self._query, self._matches = query, []
            self._find_match(1, is_first=bool(query))
        elif key == Keys.Escape or (key == Keys.ControlH and not query):
            self._typed_query = None
        elif key == Keys.ControlH:
            self._typed_query = query[:-1]
        elif key == Keys.ControlU:
            self._typed_query = ""
        elif len(key) == 1 and key.isprintable() and len(query) < MAX_QUERY_CHARS:
            self._typed_query = query + key

    def _find_requests(self, query: str) -> Iterator[int]:
        """Yield the indexes of the rows whose request, new items or output contain `query`."""
        lowered = query.lower()
        for index, row in enumerate(self._link_rows, 1):
            link = row.link
            texts = [link.id, link.model, link.status, str((link.error or {}).get("message") or "")]
            new, output = find_new_items(link, self._links.get(link.parent_id or ""), self.view)
            texts += [searchable_text(self._item(key)) for key in (*new, *output)]
            if any(lowered in text.lower() for text in texts):
                yield index

    def _find_match(self, direction: int, *, is_first: bool = False) -> None:
        """Go to the next match in `direction`, 1 or -1; `is_first`: the present position may be one."""
        if not self._query:
            self.show_message("nothing to search for; press / and type a text")
        elif self._has_tree_focus:
            self._find_request(direction, is_first)
        else:
            self._find_line(direction, is_first)

    def _find_request(self, direction: int, is_first: bool) -> None:
        if not self._matches:
            self._matches = [*self._find_requests(self._query)]
        if not self._matches:
            self.show_message(f"no request contains {self._query!r}")
            return
        if direction > 0:
            find = bisect_left if is_first else bisect_right
            position = find(self._matches, self._selected) % len(self._matches)
        else:
            position = bisect_left(self._matches, self._selected) - 1
        self._select(self._matches[position])
        number = position % len(self._matches) + 1
        self.show_message(f"{number:,} of {format_count(len(self._matches), 'matching request')}")
        self._found_line = next(iter(self._matching_lines()), -1)
        self._scroll(self._found_line - 1 if self._found_line >= self._page_rows else 0)

    def _find_line(self, direction: int, is_first: bool) -> None:
        lines = [*self._matching_lines()]
        if not lines:
            self.show_message(f"no line here contains {self._query!r}")
            return
        current = self._detail_top if is_first or self._found_line < 0 else self._found_line
        if direction > 0:
            find = bisect_left if is_first or self._found_line < 0 else bisect_right
            position = find(lines, current) % len(lines)
        else:
            position = bisect_left(lines, current) - 1
        self._found_line = lines[position]
        if not self._detail_top <= self._found_line < self._detail_top + self._page_rows:
            self._scroll(self._found_line - 1)
        self.show_message(f"{position % len(lines) + 1:,} of {format_count(len(lines), 'matching line')}")

    def _matching_lines(self) -> Iterator[int]:
        lowered = self._query.lower()
        for index, row in enumerate(self._detail_rows()):
            if lowered in _line_text(self._format_row(row)).lower():
                yield index

    # -- data ---------------------------------------------------------------------------------------

    def _item(self, key: Key) -> Item:
        return self.view.path_index.item(key) or {}

    def _parts(self, link: Link) -> "RequestParts":
        parent = self._links.get(link.parent_id or "")
        return split_request(link, parent, self.view)

    def _tree_row(self, index: int) -> TreeRow:
        row = self._link_rows[index - 1]
        return build_tree_row(row, self._short_ids[row.link.id], self.view, is_first=index == 1)

    def _summarize(self) -> str:
        view = self.view
        branch_links, other_links = split_branch_links(view)
        totals = sum_link_usage(branch_links, view.prices)
        usage = [*format_token_counts(totals.usage), *format_cost_of_totals(totals)] if totals else []
        others = [f"{len(other_links):,} others"] if other_links else []
        return PART_SEPARATOR.join([f"--{view.strategy}", format_count(len(branch_links), "request"), *usage, *others])

    # -- screen -------------------------------------------------------------------------------------

    def render(self, columns: int, rows: int) -> Screen:
        """Render the screen for a terminal of this size."""
        columns, rows = max(1, columns), max(1, rows)
        footer, cursor_column = self._footer(columns)
        header_rows = min(2, max(0, rows - len(footer) - 1))
        self._page_rows = max(1, rows - len(footer) - header_rows)
        if columns >= MIN_SPLIT_COLUMNS:
            tree_columns = min(MAX_TREE_COLUMNS, max(MIN_TREE_COLUMNS, columns * 2 // 5))
            self._detail_columns = columns - tree_columns - len(SEPARATOR)
            tree, detail = self._tree_pane(tree_columns), self._detail_pane(self._detail_columns)
            panes: list[Line] = [
                [*_fit(left, tree_columns), (DIM_STYLE, SEPARATOR), *_fit(right, self._detail_columns)]
                for left, right in zip(tree, detail, strict=True)
            ]
        else:
            self._detail_columns = columns
            panes = self._tree_pane(columns) if self._has_tree_focus else self._detail_pane(columns)
        lines = [self._title(columns), *panes][2 - header_rows :][: header_rows + self._page_rows] + footer
        lines = [_fit(line, columns) for line in lines[:rows]]
        if not self._has_box_chars:
            lines = [[(style, text.translate(ASCII_FALLBACKS)) for style, text in line] for line in lines]
        return Screen(lines, None if cursor_column is None else (cursor_column, len(lines) - 1))

    def _title(self, columns: int) -> Line:
        marks = f"  {len(self._marked)} marked" if self._marked else ""
        position = f"{self._selected:,}/{len(self._link_rows):,}" if self._link_rows else ""
        left = [(HEAD_STYLE, _one_line(self.view.handle)), (DIM_STYLE, f"  {self._summary}"), (ID_STYLE, marks)]
        return [*_fit(left, columns - len(position) - 2), ("", "  "), (DIM_STYLE, position)]

    def _tree_pane(self, columns: int) -> list[Line]:
        """Return the heading of the tree, then one line for each visible row."""
        count = len(self._link_rows) + 1
        self._tree_top = max(self._selected - self._page_rows + 1, min(self._tree_top, self._selected))
        self._tree_top = max(0, min(self._tree_top, count - self._page_rows))
        label_columns, numbers = self._choose_tree_columns(columns)
        heading = "  " + _cut("response", label_columns).ljust(label_columns)
        heading += "".join(f"  {name:>{width}}" for name, width in numbers) + "    preview"
        lines: list[Line] = [[(HEAD_STYLE if self._has_tree_focus else DIM_STYLE, heading)]]
        for index in range(self._tree_top, min(count, self._tree_top + self._page_rows)):
            line = self._tree_line(index, label_columns, numbers) if index else self._conversation_line()
            lines.append(self._style_tree_line(_fit(self._highlight(line, MATCH_STYLE), columns), index))
        return lines + [[]] * (self._page_rows + 1 - len(lines))

    def _choose_tree_columns(self, columns: int) -> tuple[int, list[tuple[str, int]]]:
        """Return the width of the labels, and heading and width of the columns with numbers that fit."""
        longest_id = max(map(len, self._short_ids.values()), default=0)
        label_columns = max(8, min(longest_id + 2 * self._max_depth + 2, columns // 2))
        remaining = columns - 2 - label_columns - 2
        numbers: list[tuple[str, int]] = []
        for name, value, least in (
            ("input", f"{self._max_input:,}", MIN_PREVIEW_COLUMNS),
            ("output", f"{self._max_output:,}", PREFERRED_PREVIEW_COLUMNS),
            ("sent", f"delta {self._max_sent:,}", PREFERRED_PREVIEW_COLUMNS),
        ):
            width = max(len(name), len(value))
            if remaining - width - 2 >= least:
                numbers.append((name, width))
                remaining -= width + 2
        return label_columns, numbers

    def _conversation_line(self) -> Line:
        return [("", "  conversation  "), (DIM_STYLE, STRATEGIES[self.view.strategy].description)]

    def _tree_line(self, index: int, label_columns: int, numbers: Sequence[tuple[str, int]]) -> Line:
        row = self._tree_row(index)
        label = _one_line(tree_labels([row])[0])
        if len(label) > label_columns:
            label = "…" + label[len(label) - label_columns + 1 :]
        usage = row.stats.usage
        cells = {
            "input": format_optional_number(usage.input_tokens if usage else None),
            "output": format_optional_number(usage.output_tokens if usage else None),
            "sent": f"{'full' if row.stats.is_full_history else 'delta'} {row.stats.sent_count:,}",
        }
        mark, preview = STATUS_MARKS[row.link.status], _one_line(preview_cell(row, with_status=True))
        return [
            (HEAD_STYLE, "* " if row.link.id in self._marked else "  "),
            (ID_STYLE, label.ljust(label_columns)),
            ("", "".join(f"  {cells[name]:>{width}}" for name, width in numbers)),
            (f"class:{mark.style}", f"  {mark.sign} "),
            (BAD_STYLE if row.link.status == "failed" else "", preview),
        ]

    def _style_tree_line(self, line: Line, index: int) -> Line:
        if index != self._selected:
            return line
        if not self._has_tree_focus:
            return [(f"{style} {UNFOCUSED_STYLE}", text) for style, text in line]
        return [(SELECTED_MATCH_STYLE if style.endswith(MATCH_STYLE) else SELECTED_STYLE, text) for style, text in line]

    def _detail_pane(self, columns: int) -> list[Line]:
        """Return the heading of the detail, then its visible lines."""
        rows = self._detail_rows()
        self._detail_top = max(0, min(self._detail_top, len(rows) - self._page_rows))
        end = self._detail_top + self._page_rows
        position = f"lines {self._detail_top + 1:,}-{end:,} of {len(rows):,}" if len(rows) > self._page_rows else ""
        style = DIM_STYLE if self._has_tree_focus else HEAD_STYLE
        heading = [
            *_fit([(style, self._detail_title())], columns - len(position) - 2),
            ("", "  "),
            (DIM_STYLE, position),
        ]
        lines = [self._highlight(self._format_row(row), MATCH_STYLE) for row in rows[self._detail_top : end]]
        return [heading, *lines, *[[]] * (self._page_rows - len(lines))]

    def _detail_title(self) -> str:
        if self._overlay:
            return _one_line(self._overlay.title)
        return _one_line(self.selected_link.id) if self.selected_link else "conversation"

    def _detail_rows(self) -> list[Row]:
        """Return the rows of the detail; those of the last one that was shown are kept."""
        columns = self._detail_columns
        key = (self._overlay, self._selected, columns)
        if self._cached_rows is None or self._cached_rows[0] != key:
            self._cached_rows = key, self._overlay.build(columns) if self._overlay else self._build_rows(columns)
        return self._cached_rows[1]

    def _build_rows(self, columns: int) -> list[Row]:
        link = self.selected_link
        return self._request_rows(link, columns) if link else self._conversation_rows(columns)

    def _format_row(self, row: Row) -> Line:
        if not isinstance(row, ItemRow):
            return row
        line = format_item_line(row.number, self._item(row.key), self._detail_columns)
        return [("", line.replace("\n", " ").replace("\t", " "))]

    def _conversation_rows(self, columns: int) -> list[Row]:
        """Return the facts about the conversation, its unconfirmed items, and without requests all its items."""
        view = self.view
        marks = {"run": open_run_mark(view.open_run)} if view.open_run else {}
        rows = _key_value_rows(conversation_rows(view), columns, {"warning": WARNING, **marks})
        nodes = view.path.nodes
        if not view.links and nodes:
            rows += _styled_rows([], [(HEAD_STYLE, format_count(len(nodes)))])
            rows += [ItemRow(number, node.key) for number, node in enumerate(nodes, 1)]
        elif view.unconfirmed_nodes:
            unconfirmed = view.unconfirmed_nodes
            rows += _styled_rows([], [(HEAD_STYLE, f"unconfirmed, {format_count(len(unconfirmed))}")])
            first = len(nodes) - len(unconfirmed) + 1
            for number, node in enumerate(unconfirmed, first):
                rows += _item_rows(number, node.item, columns, is_unconfirmed=True)
        return rows

    def _request_rows(self, link: Link, columns: int) -> list[Row]:
        """Return the facts about a request, its new items and its output in full, then the earlier items."""
        stats, parts = compute_link_stats(link, self.view.path_index), self._parts(link)
        rows = _key_value_rows(self._facts(link, stats, parts), columns, {"status": STATUS_MARKS[link.status]})
        share = input_token_share(stats)
        bar = render_token_bar(share, min(columns - 4, MAX_BAR_COLUMNS), self._max_input)
        if bar:
            rows += _styled_rows([], [("", f"  {bar}")])
            rows += _text_rows(f"  {chart_legend(bar)}", columns, DIM_STYLE)
        if parts.is_incomplete:
            rows += _styled_rows([], [(BAD_STYLE, "an item of this input was deleted; the items cannot be shown")])
        resent = f", after {format_count(len(parts.resent), 'earlier item')}" if parts.resent else ""
        rows += self._section(f"sent, {format_count(len(parts.new), 'new item')}{resent}", parts.new, columns)
        rows += self._section(f"output, {format_count(len(parts.output))}", parts.output, columns)
        for heading, keys in (("sent again", parts.resent), ("prepended by the server", parts.prepended)):
            if keys:
                first = self.view.path_index.depth(keys[0])
                rows += _styled_rows([], [(HEAD_STYLE, f"{heading}, {format_count(len(keys))}")])
                rows += [ItemRow(number, key) for number, key in enumerate(keys, first)]
        return rows

    def _section(self, heading: str, keys: Sequence[Key], columns: int) -> list[Row]:
        """Return the rows of items in full; of a long list the first items take one line each."""
        if not keys:
            return []
        rows = _styled_rows([], [(HEAD_STYLE, heading)])
        first = self.view.path_index.depth(keys[0])
        for number, key in enumerate(keys, first):
            if number < first + len(keys) - MAX_FULL_ITEMS:
                rows.append(ItemRow(number, key))
            else:
                rows += _item_rows(number, self._item(key), columns)
        return rows

    def _facts(self, link: Link, stats: LinkStats, parts: "RequestParts") -> Iterator[KeyValue]:
        view, parameters = self.view, client_parameters(link.parameters)
        yield "status", link.status
        error = link.error or {}
        if error:
            yield (
                "error",
                PART_SEPARATOR.join(str(error[name]) for name in ("code", "limit", "message") if error.get(name)),
            )
        yield "owner", f"{STRATEGIES[link.strategy].description} (--{link.strategy})"
        if len({other.session_id for other in view.links}) > 1:
            yield "session", session_name(link, view)
        yield "model", link.model
        if link.scope != view.scope:
            yield "endpoint", str(link.scope)
        yield "parent", self._short_ids.get(link.parent_id or "", link.parent_id or "none, the first request")
        if link.conversation_id:
            yield "conversation", link.conversation_id
        if link.previous_response_id and link.previous_response_id != link.parent_id:
            yield "previous", link.previous_response_id
        tokens = "" if stats.sent_tokens is None else f", about {format_count(stats.sent_tokens, 'token')}"
        sent = "full history" if stats.is_full_history else "delta"
        yield "sent", f"{sent}, {format_count(stats.sent_count)}{tokens}"
        if stats.input_count is not None:
            prepended = f", {len(parts.prepended):,} of them prepended by the server" if parts.prepended else ""
            yield "received", f"{format_count(stats.input_count)}{prepended}"
        yield from self._usage_facts(link, stats)
        if link.duration_s is not None:
            first = "" if link.first_token_s is None else f", first output after {link.first_token_s:.1f} s"
            yield "latency", f"{link.duration_s:.1f} s{first}"
        yield "date", time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(link.created_at))
        if client := describe_client(link.parameters):
            yield "client", client
            if translation := describe_translation(link.parameters):
                yield "form", translation
            for note in link.parameters[RECORDING_PARAMETER].get("notes", ()):
                yield "note", str(note)
        if not link.is_stored:
            yield "stored", "no" if describe_translation(link.parameters) else "no, sent with store=false"
        yield from reported_rows(link.reported)
        for name in sorted(parameters):
            value = parameters[name]
            yield name, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if ignored := link.parameters.get(IGNORED_PARAMETER):
            yield "ignored", f"not sent to the model: {', '.join(map(str, ignored))}"

    def _usage_facts(self, link: Link, stats: LinkStats) -> Iterator[KeyValue]:
        usage = stats.usage
        if usage is None:
            yield "tokens", "not reported"
            return
        resent = self._resent_tokens.get(link.id, 0)
        yield (
            "input",
            PART_SEPARATOR.join(
                [format_count(usage.input_tokens, "token"), f"{usage.cached_tokens:,} cached", f"{resent:,} re-sent"]
            ),
        )
        reasoning = [f"{usage.reasoning_tokens:,} reasoning"] if usage.reasoning_tokens else []
        yield "output", PART_SEPARATOR.join([format_count(usage.output_tokens, "token"), *reasoning])
        yield "cost", "".join(format_cost(link_cost_usd(link, self.view.prices))) or "unknown, no price for this model"

    def _highlight(self, line: Line, style: str) -> Line:
        """Return `line` with the matches of the search in `style`."""
        if not self._query:
            return line
        text = _line_text(line)
        spans = [match.span() for match in re.finditer(re.escape(self._query), text, re.IGNORECASE)]
        if not spans:
            return line
        styles = [own for own, part in line for _ in part]
        for start, end in spans:
            styles[start:end] = [f"{own} {style}" for own in styles[start:end]]
        return _merge(zip(styles, text, strict=True))

    def _footer(self, columns: int) -> tuple[list[Line], int | None]:
        """Return the last lines, and the column of the cursor while a search is typed."""
        if self._typed_query is not None:
            shown = self._typed_query
            while get_cwidth(shown) > max(0, columns - 2):
                shown = shown[1:]
            return [[(HEAD_STYLE, "/"), ("", shown)]], min(columns - 1, 1 + get_cwidth(shown))
        if self._message:
            lines = [*_wrap([(HEAD_STYLE, " ".join(self._message.split()))], columns)]
            return lines[:MAX_MESSAGE_LINES], None
        hints, last = [*(TREE_HINTS if self._has_tree_focus else DETAIL_HINTS)], [*LAST_HINTS]
        while hints and len(PART_SEPARATOR.join(hints + last)) > columns:
            hints.pop()
        return [[(DIM_STYLE, PART_SEPARATOR.join(hints + last))]], None


def compare_requests(a: Link, b: Link, view: ConversationView) -> RequestDifference:
    """Compare two requests of a conversation; this may take seconds. Raises NotFound when an item was deleted."""
    requests = rebuild_link_request(a, view), rebuild_link_request(b, view)
    index = view.path_index
    sides: list[DiffSide] = []
    for link in (a, b):
        end = link.head if link.head in index else link.input_head
        items = [index.item(key) or {} for key in index.keys_after(end)]
        sides.append(DiffSide(link.id, STRATEGIES[link.strategy].description, items))
    histories = sides[0], sides[1]
    return RequestDifference(
        requests, diff_requests(*requests), histories, diff_histories(histories[0].items, histories[1].items)
    )


class RequestParts(NamedTuple):
    """The items of one request by origin, as keys in the order of the path.

    prepended:      by the server, from the state that it stores
    resent:         sent although an earlier request sent them, too
    new:            sent for the first time
    is_incomplete:  an item was deleted, and the others are unknown
    """

    prepended: Sequence[Key] = ()
    resent: Sequence[Key] = ()
    new: Sequence[Key] = ()
    output: Sequence[Key] = ()
    is_incomplete: bool = False


def split_request(link: Link, parent: Link | None, view: ConversationView) -> RequestParts:
    """Return the items of `link` by origin; `parent` is the request that it continues."""
    index = view.path_index
    if link.input_head not in index:
        return RequestParts(is_incomplete=True)
    depth, new, output = index.depth(link.input_head), *find_new_items(link, parent, view)
    keys = index.last_keys(link.input_head, depth)
    sent_start, new_start = depth - link.sent_count, depth - len(new)
    return RequestParts(keys[:sent_start], keys[sent_start:new_start], new, output)


def find_new_items(link: Link, parent: Link | None, view: ConversationView) -> tuple[Sequence[Key], Sequence[Key]]:
    """Return the items that `link` sent for the first time, and its output, without a walk through the whole path."""
    index = view.path_index
    if link.input_head not in index:
        return (), ()
    depth, new_count = index.depth(link.input_head), link.sent_count
    for known in (parent.head, parent.input_head) if parent else ():
        count = depth - index.depth(known) if known in index else -1
        if 0 <= count < new_count and index.key_before_last(link.input_head, count) == known:
            new_count = count
            break
    new = index.last_keys(link.input_head, new_count)
    return new, index.keys_after(link.head, depth) if link.head in index else ()


# -- lines ------------------------------------------------------------------------------------------


def _one_line(text: str) -> str:
    """Return `text`, which is untrusted, without line breaks and control characters."""
    return escape_control_chars(text.replace("\n", " ").replace("\t", " "))


def _line_text(line: Line) -> str:
    return "".join(text for _, text in line)


def _merge(chars: Iterable[tuple[str, str]]) -> Line:
    """Join neighbours of the same style."""
    return [(style, "".join(text for _, text in group)) for style, group in groupby(chars, key=lambda part: part[0])]


def _cut(text: str, columns: int) -> str:
    """Return the part of `text` that fits into `columns`, as prompt_toolkit measures it."""
    if len(text) <= columns and text.isascii():
        return text
    used = 0
    for index, char in enumerate(text):
        used += get_cwidth(char)
        if used > columns:
            return text[:index]
    return text


def _fit(line: Line, columns: int) -> Line:
    """Cut or pad `line` to exactly `columns`; a cut line ends with an ellipsis."""
    columns = max(0, columns)
    is_cut = sum(get_cwidth(text) for _, text in line) > columns
    fitted: list[tuple[str, str]] = []
    remaining, style = columns - is_cut, ""
    for style, text in line:
        shown = _cut(text, remaining)
        fitted.append((style, shown))
        remaining -= get_cwidth(shown)
        if len(shown) < len(text):
            break
    return [*fitted, (style, "…"[:columns] * is_cut), ("", " " * remaining)]


def _wrap(line: Line, columns: int) -> Iterator[Line]:
    """Wrap a line at blanks, and a longer word at the edge; the other parts get the indent of the first."""
    text = _line_text(line)
    if get_cwidth(text) <= columns:
        yield line
        return
    indent = min(len(text) - len(text.lstrip(" ")), columns // 2)
    chars = [(style, char) for style, part in line for char in part]
    start = 0
    while start < len(chars):
        space = columns - (indent if start else 0)
        end = start + max(1, len(_cut(text[start : start + columns], space)))
        blank = text.rfind(" ", start + space // 2, end + 1)
        end = blank if end < len(chars) and blank > start else end
        yield _merge([*([("", " " * indent)] if start else []), *chars[start:end]])
        start = end + (text[end : end + 1] == " ")


def _styled_rows(*lines: Line) -> list[Row]:
    return [*lines]


def _sgr_rows(text: str, columns: int) -> list[Row]:
    """Convert lines with the styles of `DisplayOptions`; everything else in them is escaped already."""
    rows: list[Row] = []
    for line in text.replace("\t", TAB).split("\n"):
        styled = _merge((style, char) for style, char, *_ in to_formatted_text(ANSI(line)))
        rows += _wrap(styled, columns)
    return rows


def _key_value_rows(pairs: Iterable[KeyValue], columns: int, marks: Mapping[str, StatusMark] = NO_MARKS) -> list[Row]:
    """Return the rows of facts; `marks` has the mark before a label."""
    lines = [
        (truncate_text(_one_line(label), MAX_LABEL_COLUMNS), truncate_text(" ".join(value.split()), MAX_FACT_CHARS))
        for label, value in pairs
    ]
    display = DisplayOptions(columns, has_color=True)
    signs = {label: format_sign(mark, display) for label, mark in marks.items()}
    return _sgr_rows("\n".join(key_value_lines(lines, display, signs=signs)), columns)


def _text_rows(text: str, columns: int, style: str = "") -> list[Row]:
    """Return the lines of plain text, wrapped."""
    return [row for line in text.replace("\t", TAB).split("\n") for row in _wrap([(style, line)], columns)]


def _item_rows(number: int, item: Item, columns: int, *, is_unconfirmed: bool = False) -> list[Row]:
    """Return one item with its text, or the start of a long text."""
    text = render_item(number, item, is_unconfirmed=is_unconfirmed, display=DisplayOptions(columns))
    head, _, body = text[:MAX_ITEM_CHARS].partition("\n")
    rows = [*_text_rows(head, columns, DIM_STYLE), *_text_rows(body, columns)]
    if len(text) > MAX_ITEM_CHARS:
        more = format_count(len(text) - MAX_ITEM_CHARS, "more character")
        rows += _text_rows(f"   {more}; convo inspect HANDLE --items shows them", columns, DIM_STYLE)
    return rows


# -- terminal ---------------------------------------------------------------------------------------

NAMED_KEYS = (
    *(Keys.Up, Keys.Down, Keys.PageUp, Keys.PageDown, Keys.Home, Keys.End, Keys.ControlM, Keys.ControlJ, Keys.ControlI),
    *(Keys.ControlH, Keys.ControlU, Keys.ControlC, Keys.Escape, Keys.BracketedPaste),
)
"""Keys without a character that the browser reads; the library has its own bindings for them."""


class BrowserControl(UIControl):
    """Shows a browser in the whole window."""

    def __init__(self, browser: RequestBrowser) -> None:
        self._browser = browser

    def create_content(self, width: int, height: int) -> UIContent:
        lines, cursor = self._browser.render(width, height)
        return UIContent(
            get_line=lambda index: [*lines[index]],
            line_count=len(lines),
            cursor_position=Point(*cursor) if cursor else Point(0, 0),
            show_cursor=cursor is not None,
        )

    def is_focusable(self) -> bool:
        return True


BuildCurl: TypeAlias = Callable[[Link], Awaitable[str]]
"""Builds the curl command of a request. Raises ConvoError."""


async def browse_requests(browser: RequestBrowser, build_curl: BuildCurl) -> Action:
    """Run `browser` in the terminal; return the action that ended it: to leave, to fork, or an interrupt.

    The terminal is restored before this returns, is cancelled or raises the first error of a key or of the drawing.
    """
    color_depth = ColorDepth.from_env()
    if color_depth is None and detect_color_system(os.environ) == "truecolor":
        color_depth = ColorDepth.TRUE_COLOR
    output = Vt100_Output.from_pty(
        sys.stdout, term=os.environ.get("TERM"), default_color_depth=color_depth, enable_bell=False
    )
    output.enable_cpr = False  # the library warns about terminals that do not report their cursor position
    bindings = KeyBindings()
    app: Application[Action] = Application(
        layout=Layout(Window(BrowserControl(browser), wrap_lines=False)),
        key_bindings=bindings,
        style=make_prompt_style(os.environ),
        full_screen=True,
        erase_when_done=True,
        input=create_input(sys.stdin),
        output=output,
    )
    app.ttimeoutlen = ESCAPE_TIMEOUT_S

    async def copy_as_curl(link: Link) -> None:
        try:
            command = await build_curl(link)
        except ConvoError as error:
            browser.show_message(f"{error.message}; {error.hint}" if error.hint else error.message)
        else:
            sequence = build_osc52_sequence(command)
            output.write_raw(sequence)
            output.flush()
            programs = await copy_with_programs(command, os.environ)
            browser.show_copied(link, command, [*(["the terminal"] if sequence else []), *programs])
        app.invalidate()

    async def compare(a: Link, b: Link) -> None:
        try:
            # The first comparison loads the tokenizer, which stopped the screen for a second.
            browser.show_difference(await asyncio.to_thread(compare_requests, a, b, browser.view))
        except NotFound as error:
            browser.show_message(error.message)
        app.invalidate()

    def press(event: KeyPressEvent) -> None:
        press_key = event.key_sequence[0]
        if press_key.key == Keys.BracketedPaste:
            browser.paste(press_key.data)
            return
        action = browser.press(press_key.key)
        if action and action.kind is ActionKind.COPY:
            app.create_background_task(copy_as_curl(*action.links))
        elif action and action.kind is ActionKind.COMPARE:
            app.create_background_task(compare(*action.links))
        elif action:
            app.exit(result=action)

    bindings.add(Keys.Any)(press)
    for key in NAMED_KEYS:
        bindings.add(key, eager=True)(press)

    bindings.add(Keys.Vt100MouseEvent)(lambda event: None)  # the library's binding fails on a color sequence

    @bindings.add(Keys.ControlZ)
    def suspend(event: KeyPressEvent) -> None:
        event.app.suspend_to_background()

    @bindings.add(Keys.SIGINT)
    def interrupt(event: KeyPressEvent) -> None:
        app.exit(result=Action(ActionKind.INTERRUPT))

    def stop_on_error(loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        error = context.get("exception")
        if isinstance(error, BaseException) and app.is_running and not app.is_done:
            app.exit(exception=error)
        else:
            loop.default_exception_handler(context)

    loop = asyncio.get_running_loop()
    old_handler = loop.get_exception_handler()
    loop.set_exception_handler(stop_on_error)
    try:
        action = await app.run_async(set_exception_handler=False)
    except EOFError:  # the terminal is gone
        action = Action(ActionKind.LEAVE)
    finally:
        loop.set_exception_handler(old_handler)
        app.renderer.reset()  # an error of the first drawing leaves the alternate screen on
    return action
