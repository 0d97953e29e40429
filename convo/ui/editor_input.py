"""What comes from the keyboard, with pastes told from typing also where a terminal does not bracket them.

Nobody types a line break and the beginning of the next line within one read. Where both come
together, it is a paste, and its line breaks are text as in one that is bracketed.
"""

from prompt_toolkit.input.vt100 import Vt100Input
from prompt_toolkit.key_binding import KeyPress
from prompt_toolkit.keys import Keys

BREAKS = (Keys.ControlM, Keys.ControlJ)


class Keyboard(Vt100Input):
    """The keys of this terminal."""

    def read_keys(self) -> list[KeyPress]:
        return as_paste(super().read_keys())


def as_paste(presses: list[KeyPress]) -> list[KeyPress]:
    """`presses` of one read, or the one paste that they are."""
    if not is_paste(presses):
        return presses
    return [KeyPress(Keys.BracketedPaste, "".join(press.data for press in presses))]


def is_paste(presses: list[KeyPress]) -> bool:
    """Whether there is text behind a line break, and nothing but text."""
    plain = all(press.key in (*BREAKS, Keys.ControlI) or len(press.key) == 1 for press in presses)
    first = next((at for at, press in enumerate(presses) if press.key in BREAKS), None)
    return plain and first is not None and any(len(press.key) == 1 for press in presses[first:])
