"""What stands on the terminal, and the least that has to be written to change it.

Rows that are finished are written once. The open rows below them are compared with what stands
there: most of the time a few characters are added at the end; where an earlier one changed, the
cursor goes up to it, and never farther than the open rows reach.
"""

from collections.abc import Sequence
from typing import TextIO

HIGHEST = 6
"""Rows that may be drawn again."""


class Painter:
    """Draws at the place where the cursor is, which stays behind the last open row."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._open: list[str] = []

    def show(self, finished: Sequence[str], still_open: Sequence[str]) -> None:
        """Print `finished` rows above the open ones; where more are open, their last ones are shown."""
        shown = list(still_open[-HIGHEST:])
        rows = [*finished, *shown]
        self._out.write(change(self._open, rows))
        if rows and not shown:
            self._out.write("\n")
        self._out.flush()
        self._open = shown

    def forget(self) -> None:
        """Leave the open rows as they stand, and go on below: nobody knows where they are."""
        if self._open:
            self._out.write("\n")
        self._open = []


def change(before: Sequence[str], after: Sequence[str]) -> str:
    """What makes `after` of the rows `before`, at whose end the cursor is."""
    same = 0
    while same < min(len(before), len(after)) and before[same] == after[same]:
        same += 1
    if same == len(before):
        return ("\n" if before and len(after) > same else "") + "\n".join(after[same:])
    if same == len(before) - 1 and len(after) > same and after[same].startswith(before[same]):
        return after[same][len(before[same]) :] + "".join(f"\n{row}" for row in after[same + 1 :])
    same = max(0, min(same, len(after) - 1))
    up = len(before) - 1 - same
    return (f"\x1b[{up}A" if up else "") + "\r\x1b[J" + "\n".join(after[same:])
