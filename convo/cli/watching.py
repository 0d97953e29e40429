"""`convo inspect --watch`: the screen of a conversation that is going on, painted again when it moves.

In a terminal the same rows are painted over, as many as there are, until somebody presses q; anywhere else
each response is a line of its own when it has ended, and no line comes twice. What another process says is
read from the store.
"""

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing
from pathlib import Path

from convo.cli.known import is_path, is_there
from convo.cli.wiring import store_of
from convo.clock import SystemClock
from convo.config import load
from convo.engine.watching import UNFINISHED, under_way, watch
from convo.errors import NotFound
from convo.inspection import Known
from convo.stores.contract import Store
from convo.ui.inspecting import screen
from convo.ui.medium import Medium, medium_of
from convo.ui.tree import seen, table, tree

HOME, CLEAR_LINE, CLEAR_BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
"""A line that is too long is cut by the terminal: it would push the others down."""

FOOT = "watching; q or Ctrl-C ends it"
IDLE = "nothing is under way; q or Ctrl-C ends it"

END = b"qQ\x04"
"""Keys that end it; the last one is Ctrl-D."""


async def watched(handle: str, config: Path | None, *, until_idle: bool) -> None:
    """Show `handle` for as long as somebody wants to see it.

    until_idle:  end as soon as no answer is to come
    raises:      as `look`
    """
    async with store_of(load(config)) as store:
        file = is_path(handle) or await _is_file(store, handle)
        async with aclosing(watch(store, handle, SystemClock(), file=file)) as states:
            if paints():
                await _painted(states, until_idle=until_idle)
            else:
                await _shown(states, Lines(), until_idle=until_idle)


async def _painted(states: AsyncGenerator[Known, None], *, until_idle: bool) -> None:
    """Paint them until a key ends it."""
    from convo.ui.unechoed import on_key

    show, loop = Painter(), asyncio.get_running_loop()
    try:
        async with asyncio.timeout(None) as pressed:
            with on_key(END, lambda: pressed.reschedule(loop.time())):
                await _shown(states, show, until_idle=until_idle)
    except TimeoutError:
        if not pressed.expired():
            raise
    finally:
        show.leave()


async def _shown(states: AsyncGenerator[Known, None], show: "Painter | Lines", *, until_idle: bool) -> None:
    async for known in states:
        show.take(known)
        if until_idle and not under_way(known):
            return


async def _is_file(store: Store, handle: str) -> bool:
    from convo.engine.finding import find

    try:
        await find(store, handle)
    except NotFound:
        return is_there(handle)
    return False


def paints() -> bool:
    """Whether stdout is a screen that can be painted over."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"


class Painter:
    """Paints the whole screen over, so that nothing flickers and nothing scrolls."""

    def __init__(self) -> None:
        self._painted = False

    def take(self, known: Known) -> None:
        medium, rows = medium_of(sys.stdout, os.environ), shutil.get_terminal_size().lines
        foot = FOOT if under_way(known) else IDLE
        lines = [*rows_of(known, medium, rows - 1), medium.paint(foot, "dim")]
        begin = HOME if self._painted else CLEAR_BELOW.join((HOME, ""))
        sys.stdout.write(begin + NO_WRAP + "".join(line + CLEAR_LINE + "\n" for line in lines[:-1]))
        sys.stdout.write(lines[-1] + CLEAR_BELOW + "\r" + WRAP)
        sys.stdout.flush()
        self._painted = True

    def leave(self) -> None:
        """Take the last line away: what comes next stands there."""
        if self._painted:
            sys.stdout.write(CLEAR_BELOW)
            sys.stdout.flush()


def rows_of(known: Known, medium: Medium, room: int) -> list[str]:
    """The screen in at most `room` lines: without its chart, then without what is oldest in the tree."""
    for lines in (screen(known, medium).split("\n"), screen(known, medium, bars=False).split("\n")):
        if len(lines) <= room:
            return lines
    return [lines[0], *lines[len(lines) - room + 1 :]] if room > 1 else lines[:room]


class Lines:
    """Prints each response once, when it has ended; the heads of the columns first."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._begun = False

    def take(self, known: Known) -> None:
        medium = medium_of(sys.stdout, os.environ)
        head, *lines = tree(table(known, medium), medium)
        new = [
            (one.link.id, line)
            for one, line in zip(seen(known), lines, strict=True)
            if one.link.id not in self._told and one.link.status not in UNFINISHED
        ]
        if new and not self._begun:
            self._say(head, medium)
        for id_, line in new:
            self._told.add(id_)
            self._say(line, medium)

    def _say(self, line: str, medium: Medium) -> None:
        self._begun = True
        sys.stdout.write(medium.drawn(line) + "\n")
        sys.stdout.flush()
