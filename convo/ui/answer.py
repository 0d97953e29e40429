"""Prints an answer on stdout while it comes.

Only the words of the answer go there. Reasoning, calls and refusals are announced on stderr, so
that `convo chat ... > file` holds the answer and nothing else. Control characters in what a model
wrote are spelled out: a terminal would obey them.
"""

import re
from typing import TextIO

from convo.items import Event, Item, kind, text

OBEYED = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class Printer:
    """Takes the events of one answer and prints its words.

    live:   print every piece when it comes; else each item when it is whole
    """

    def __init__(self, out: TextIO, err: TextIO, *, live: bool) -> None:
        self._out, self._err, self._live = out, err, live
        self._open_line = False
        self._shown: set[int] = set()

    def take(self, event: Event) -> None:
        match event["type"]:
            case "response.output_text.delta" | "response.refusal.delta" if self._live:
                self._shown.add(event["output_index"])
                self._say(event["delta"])
            case "response.output_item.done":
                self._item(event["output_index"], event["item"])

    def end(self) -> None:
        """Finish the last line, whether the answer was whole or not."""
        if self._open_line:
            self._say("\n")
            self._open_line = False

    def _item(self, at: int, item: Item) -> None:
        if kind(item) == "message":
            if at not in self._shown:
                self._say(text(item))
            self.end()
        elif kind(item) not in ("reasoning", "compaction"):
            self.end()
            self._err.write(
                safe(f"[{kind(item)}] {item.get('name') or ''} {item.get('arguments') or ''}".rstrip()) + "\n"
            )

    def _say(self, words: str) -> None:
        if words:
            self._out.write(safe(words))
            self._out.flush()
            self._open_line = not words.endswith("\n")


def safe(words: str) -> str:
    """`words` with control characters spelled out; line breaks and tabs stay."""
    return OBEYED.sub(lambda found: f"\\x{ord(found[0]):02x}", words)
