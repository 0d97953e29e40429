"""Prints an answer on stdout while it comes.

Only the words of the answer go there, a refusal among them: it is what the model said. Calls are
announced on stderr and reasoning is folded or left out, so that `convo chat ... > file` holds the answer and
nothing else, the same text whether it came in pieces or whole. Control characters in what a model
wrote are spelled out: a terminal would obey them. So are those that turn the order of the others
round, in which a call that waits for a decision would read as another one, and, except in an answer that goes
to a file or a pipe, characters that nobody sees. In a terminal the words
may go to a sheet instead, which lays them out.
"""

import re
from collections.abc import Callable, Container
from typing import Protocol, TextIO, TypeAlias

from convo.items import Event, Item, kind, text, with_characters

CONTROLS = r"\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069"
"""What a terminal obeys, and what turns the order of characters round."""

INVISIBLE = (
    r"\u00ad\u115f\u1160\u180e\u200b\u2060-\u2064\u206a-\u206f\u3164\ufeff\uffa0\ufff9-\ufffb"
    r"\U000e0000-\U000e007f\U000e0100-\U000e01ef"
)
"""Invisible characters: they make different words look alike, or hide words in others. Joiners of scripts
and of emoji, and the marks of direction of single characters, are not among them: text needs these."""

OBEYED = re.compile(f"[{CONTROLS}]")
UNSEEN = re.compile(f"[{CONTROLS}{INVISIBLE}]")

SILENT = ("reasoning", "compaction")
"""Kinds of items that are no words to anybody."""

PIECES = ("response.output_text.delta", "response.refusal.delta")
ENDS = ("response.completed", "response.incomplete")


Fold: TypeAlias = Callable[[Item], str]
"""Makes of a reasoning item the line that is announced; "" for none."""


class Sheet(Protocol):
    """What the words of an answer are laid out on."""

    def say(self, words: str) -> None:
        """Show `words`, in which control characters are spelled out."""
        ...

    def end(self) -> None:
        """Leave the cursor at the beginning of a line; what comes next is another text."""
        ...


class Printer:
    """Takes the events of one answer and prints its words.

    live:       print every piece when it comes; else each item when it is whole
    open_line:  whether what was printed last does not end its line
    """

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        live: bool,
        silent: Container[str] = SILENT,
        sheet: Sheet | None = None,
        folded: Fold | None = None,
    ) -> None:
        """Print on `out`, and announce on `err` what is not made of words; `silent` kinds are not announced.

        sheet:   takes the words in place of `out`
        folded:  what is announced of reasoning; None for nothing
        """
        self._sheet, self._folded = sheet, folded
        self._out, self._err, self._live, self._silent = out, err, live, silent
        self.open_line = False
        self._shown: set[int] = set()
        self._part: tuple[int, int] | None = None

    def take(self, event: Event) -> None:
        kind_of_event = event["type"]
        if kind_of_event in PIECES and self._live:
            self._piece(event)
        elif kind_of_event == "response.output_item.done":
            self._item(event.get("output_index", 0), event["item"])
        elif kind_of_event in ENDS and not self._shown:  # an endpoint that tells the whole alone
            for at, item in enumerate(event["response"].get("output") or ()):
                self._item(at, item)
        if kind_of_event in ENDS:  # the next answer counts from the beginning
            self._shown, self._part = set(), None

    def end(self) -> None:
        """Finish the last line, whether the answer was whole or not."""
        if self.open_line and self._sheet:
            self._sheet.end()
            self.open_line = False
        elif self.open_line:
            self._say("\n")

    def _piece(self, event: Event) -> None:
        part = event.get("output_index", 0), event.get("content_index", 0)
        if event["delta"]:
            if self._part and self._part != part and self._part[0] == part[0]:
                self._say("\n")  # the next part of one message, set apart as `text` does it
            self._shown.add(part[0])
            self._part = part
            self._say(event["delta"])

    def _item(self, at: int, item: Item) -> None:
        if kind(item) == "message":
            if at not in self._shown:
                self._say(text(item))
            self.end()
        elif kind(item) == "reasoning" and self._folded:
            self._announce(self._folded(item))
        elif kind(item) not in self._silent:
            self._announce(safe(announced(item)))
        self._shown.add(at)

    def _announce(self, line: str) -> None:
        if line:
            self.end()
            self._err.write(line + "\n")
            self._err.flush()

    def _say(self, words: str) -> None:
        if words and self._sheet:
            self._sheet.say(safe(words))
            self.open_line = True
        elif words:
            self._out.write(safe(words) if self._out.isatty() else OBEYED.sub(spelled, words))
            self._out.flush()
            self.open_line = not words.endswith("\n")


def announced(item: Item) -> str:
    """One line about an item that is not made of words."""
    said = with_characters(str(item.get("arguments") or ""))
    return " ".join(str(part) for part in (f"[{kind(item)}]", item.get("name"), said) if part)


def safe(words: str) -> str:
    """`words` with control characters and invisible ones spelled out; line breaks and tabs stay."""
    return UNSEEN.sub(spelled, words)


def spelled(found: re.Match[str]) -> str:
    """One character as Python writes it."""
    code = ord(found[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"
