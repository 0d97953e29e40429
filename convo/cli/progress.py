"""Progress of long work: one line with a bar on stderr, while a command runs at a terminal.

    with show_progress("checking", settings) as report:
        report("items", 12, 340)        # checking: items ━━━━━━ 12 of 340 0:00:01

The line appears if the work is not done after a short delay, and is erased at the end. rich, which draws it, is
imported then, in the thread that refreshes it. Work in deeper layers reports with `convo.runtime.report_progress`.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, TextIO

from convo.runtime import ReportProgress, redirect_progress

if TYPE_CHECKING:
    from rich.progress import Progress, Task

    from convo.config.settings import Settings


SHOW_DELAY_S = 0.3
"""Seconds of work after which the line appears."""

REFRESH_INTERVAL_S = 0.1
WIDE_BAR, NARROW_BAR = 24, 8
"""Columns of the bar."""

WIDE_COLUMNS = 80
"""Columns of a terminal from which on the bar is wide and the elapsed time is shown."""

ERASE_LINE = "\r\x1b[2K"

_is_allowed: ContextVar[bool] = ContextVar("is_progress_allowed", default=True)


class _ProgressLine:
    """The line on stderr, drawn by a thread of its own."""

    def __init__(self, label: str) -> None:
        from threading import Event, RLock

        self._label, self._latest = label, ("", 0, 0)
        self._lock, self._has_ended = RLock(), Event()
        self._progress: Progress | None = None

    def report(self, step: str, done: int, total: int) -> None:
        self._latest = (step, done, total)

    def start(self, delay_s: float) -> None:
        from threading import Thread

        if delay_s <= 0:
            self._draw()
        Thread(target=self._draw_repeatedly, args=(delay_s,), daemon=True).start()

    def end(self) -> None:
        """Erase the line, after it showed the latest numbers."""
        self._has_ended.set()
        with self._lock, suppress(OSError):  # the terminal may be gone
            if self._progress:
                self._update_task(self._progress.tasks[0])
                self._progress.stop()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Erase the line, and draw it below the output of the block."""
        with self._lock:
            if self._progress:
                sys.stderr.write(ERASE_LINE)
                sys.stderr.flush()
            yield

    def _draw_repeatedly(self, delay_s: float) -> None:
        import signal

        if hasattr(signal, "pthread_sigmask"):  # the main thread gets them, and may have blocked them
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM, signal.SIGHUP})
        pause_s = delay_s
        with suppress(OSError):
            while not self._has_ended.wait(pause_s):
                self._draw()
                pause_s = REFRESH_INTERVAL_S

    def _draw(self) -> None:
        import rich.progress  # noqa: F401  before the lock is acquired: the end of the work waits for it

        with self._lock:
            if self._has_ended.is_set():
                return
            if self._progress is None:
                self._progress = self._start_progress()
            self._update_task(self._progress.tasks[0])
            self._progress.refresh()

    def _start_progress(self) -> "Progress":
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        from convo.terminal.theme import detect_color_system, make_rich_theme

        console = Console(file=sys.stderr, highlight=False, theme=make_rich_theme(detect_color_system(os.environ)))
        is_wide = console.width >= WIDE_COLUMNS
        progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(WIDE_BAR if is_wide else NARROW_BAR),
            TextColumn("{task.fields[count]}", markup=False),
            *([TimeElapsedColumn()] if is_wide else []),
            console=console,
            transient=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        progress.add_task(self._label, count="")
        self._update_task(progress.tasks[0])
        progress.start()
        console.show_cursor(True)  # a process that is killed cannot show it again
        return progress

    def _update_task(self, task: "Task") -> None:
        step, done, total = self._latest
        task.description = f"{self._label}: {step}" if step else self._label
        task.completed, task.total = min(done, total) if total else done, total or None
        task.fields["count"] = f"{done:,} of {total:,}" if total else f"{done:,}" if done else ""


_line: ContextVar[_ProgressLine | None] = ContextVar("progress_line", default=None)


@contextmanager
def show_progress(label: str, settings: "Settings", *, delay_s: float | None = None) -> Iterator[ReportProgress]:
    """Show the progress of the block's work; yields a function that reports it, as `report_progress` does.

    Nothing is shown unless stderr is a terminal whose cursor can be moved, with --json, with editing = "plain", and
    if stdout is a pipe, whose reader may use the terminal.

    label:    the work: "checking"
    delay_s:  seconds after which the line appears; 0: at once; None: `SHOW_DELAY_S`
    """
    if not _can_show(settings):
        yield lambda step, done, total: None
        return
    line = _ProgressLine(label)
    token = _line.set(line)
    try:
        with redirect_progress(line.report):
            line.start(SHOW_DELAY_S if delay_s is None else delay_s)
            yield line.report
    finally:
        line.end()
        _line.reset(token)


@contextmanager
def hide_progress() -> Iterator[None]:
    """Erase the line for the output of the block, if it is shown."""
    line = _line.get()
    if line is None:
        yield
        return
    with line.hidden():
        yield


@contextmanager
def forbid_progress() -> Iterator[None]:
    """Show no progress in the block, whose output a program reads."""
    token = _is_allowed.set(False)
    try:
        yield
    finally:
        _is_allowed.reset(token)


def _can_show(settings: "Settings") -> bool:
    if not (_is_allowed.get() and sys.stderr.isatty()) or _is_pipe(sys.stdout):
        return False
    from convo.config.settings import EDITING_PLAIN
    from convo.terminal.terminal import DUMB_TERMINALS

    return settings.editing != EDITING_PLAIN and os.environ.get("TERM", "dumb") not in DUMB_TERMINALS


def _is_pipe(stream: TextIO) -> bool:
    try:
        mode = os.fstat(stream.fileno()).st_mode
    except (OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
