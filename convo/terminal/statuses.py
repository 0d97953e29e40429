"""Statuses on a terminal: each has one sign, one style, and the word that it has in pipes and in JSON.

A terminal without color shows the sign and the word; a pipe or a file gets the word alone.
"""

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from convo.installation import get_program
from convo.terminal.tables import Column
from convo.terminal.terminal import DisplayOptions, escape_control_chars, wrap_sentence

if TYPE_CHECKING:
    from convo.inspect.view import OpenRun


class StatusMark(NamedTuple):
    """The sign of a status, one column wide and in `BOX_CHARS` or ASCII, and its style in the theme."""

    sign: str
    style: str


DONE = StatusMark("✓", "good")
FAILED = StatusMark("✗", "bad")
WARNING = StatusMark("!", "warn")
PAUSED = StatusMark("‖", "warn")
CANCELLED = StatusMark("⊘", "dim")
UNAVAILABLE = StatusMark("⊘", "warn")
IN_PROGRESS = StatusMark("…", "bold")

STATUS_MARKS: Mapping[str, StatusMark] = MappingProxyType(
    {
        "completed": DONE,
        "incomplete": WARNING,
        "failed": FAILED,
        "cancelled": CANCELLED,
        "queued": IN_PROGRESS,
        "in_progress": IN_PROGRESS,
    }
)
"""The marks of the statuses of a response."""


def open_run_mark(run: "OpenRun") -> StatusMark:
    """Return the mark of an agent run that is open in a session."""
    if run.is_paused:
        return PAUSED
    return WARNING if run.is_orphaned else IN_PROGRESS


class Status(NamedTuple):
    """A status as a word or a few; without a mark it is plain text on a terminal too."""

    text: str
    mark: StatusMark | None = None

    def format(self, display: DisplayOptions) -> str:
        """Return the text, on a terminal after its sign."""
        return f"{self.mark.sign} {self.text}" if self.mark and display.width is not None else self.text


def format_sign(mark: StatusMark, display: DisplayOptions) -> str:
    """Return the sign in its color; "" for a pipe or a file."""
    return "" if display.width is None else display.apply_style(mark.sign, mark.style)


def format_line_start(mark: StatusMark, display: DisplayOptions) -> str:
    """Return the sign of a line and a blank; "" for a pipe or a file."""
    sign = format_sign(mark, display)
    return display.translate_box_chars(f"{sign} ") if sign else ""


def status_column(
    heading: str,
    statuses: Sequence[Status],
    display: DisplayOptions,
    *,
    suffixes: Sequence[str] = (),
    drop_order: int | None = None,
) -> Column:
    """Return the column of these statuses.

    suffixes:  the text after each status, without a style
    """
    starts = [status.format(display) for status in statuses]
    return Column(
        heading,
        [start + rest for start, rest in zip(starts, suffixes or [""] * len(starts), strict=True)],
        drop_order=drop_order,
        start_styles=[
            (len(start), status.mark.style) if status.mark else None
            for start, status in zip(starts, statuses, strict=True)
        ],
    )


FAILURE_LABEL, HINT_LABEL = "convo:", "  try:"


def format_failure(message: str, hint: str, display: DisplayOptions) -> str:
    """Format an error as lines, without the last line break: the reason, and below it the next step if there is one.

    On a terminal the reason begins with a sign, it is bold, and both are wrapped; a command in the step is not split.
    Commands of convo in the step are written as this installation runs them.
    """
    start = f"{FAILED.sign} {FAILURE_LABEL}" if display.width is not None else FAILURE_LABEL
    lines = _wrap_labelled(start, message, display, keeps_commands=False)
    styled = [_style_after_label(lines[0], start, "bad", "bold", display)]
    styled += [display.apply_style(line, "bold") for line in lines[1:]]
    if hint:
        program = get_program()
        if program != "convo" and not hint.startswith(("uvx ", "uv run ")):
            hint = re.sub(r"\bconvo (?=[a-z-])", lambda _: f"{program} ", hint)
        first, *rest = _wrap_labelled(HINT_LABEL, hint, display, keeps_commands=True)
        styled += [_style_after_label(first, HINT_LABEL, "dim", "", display), *rest]
    return "\n".join(styled)


def _wrap_labelled(label: str, text: str, display: DisplayOptions, *, keeps_commands: bool) -> list[str]:
    line = display.translate_box_chars(f"{label} ") + escape_control_chars(text)
    return wrap_sentence(line, display.width, splits_words=True, keeps_commands=keeps_commands).split("\n")


def _style_after_label(line: str, label: str, label_style: str, style: str, display: DisplayOptions) -> str:
    """Style the label at the start of a line, and the rest of the line."""
    name, rest = line[: len(label)], line[len(label) + 1 :]
    return f"{display.apply_style(name, label_style)} {display.apply_style(rest, style) if style else rest}".rstrip()
