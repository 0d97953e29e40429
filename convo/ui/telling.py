"""Prints a run of agents while it happens.

The words of the answers go to stdout as in any chat. What the run does, who calls which tool, what
came of it, who hands over to whom, is said on stderr: a plain sentence a line, in the order in which
it happened, the same in a terminal, on a pipe and to somebody who has it read aloud.
"""

import json
from collections.abc import Mapping
from typing import TextIO

from convo.agents import plain_json
from convo.items import Event, Json, kind, text, with_characters
from convo.ui.answer import SILENT, Fold, Printer, Sheet, safe
from convo.ui.medium import drawn_on, fitted

TOLD_OTHERWISE = ("function_call", "mcp_approval_request")
"""Kinds of items that a sentence of the run's own stands for."""


LONGEST = 400
"""Characters of arguments or of an output in a sentence; `convo inspect --items` shows all of them."""


class Teller(Printer):
    """Takes the events of a run."""

    def __init__(
        self, out: TextIO, err: TextIO, *, live: bool, sheet: Sheet | None = None, folded: Fold | None = None
    ) -> None:
        super().__init__(out, err, live=live, silent=(*SILENT, *TOLD_OTHERWISE), sheet=sheet, folded=folded)
        self._last: str | None = None

    def take(self, event: Event) -> None:
        if not str(event["type"]).startswith("convo."):
            super().take(event)
            self._remember(event)
            return
        self.end()
        for line in sentences(event):
            self._err.write(fitted(safe(line), drawn_on(self._err).width) + "\n")
            self._err.flush()
        if event["type"] == "convo.finished":
            self._final(event["output"])

    def _remember(self, event: Event) -> None:
        """The words of the last message, which are the answer unless a tool's output is."""
        if event["type"] == "response.output_item.done" and kind(event["item"]) == "message":
            self._last = text(event["item"])

    def _final(self, output: Json) -> None:
        """Print an answer that no model said in words."""
        if self._last is None or (isinstance(output, str) and output != self._last):
            self._say(as_words(output))
            self.end()


def sentences(event: Event) -> list[str]:
    """What happened, a sentence a line; none for what needs no words."""
    match event["type"]:
        case "convo.tool_started":
            return [f"{event['agent']} calls {event['tool']} {one_line(with_characters(event['arguments']))}".rstrip()]
        case "convo.tool_output":
            return [f"{event['tool']} gave {one_line(as_words(event['output'])) or 'nothing'}"]
        case "convo.handoff":
            return [f"{event['source']} hands over to {event['target']}"]
        case "convo.guardrail":
            return [f"guardrail {event['name']} stopped the {event['side']}: {one_line(event['reason'])}"]
        case "convo.warning":
            return [f"note: {event['message']}"]
        case "convo.paused":
            return [waits(call) for call in event["pending"]]
    return []


def waits(call: Mapping[str, Json]) -> str:
    """One call that a person has to decide on."""
    asks = f"{call['agent']} asks for {call['tool']} {one_line(with_characters(call['arguments']))}".rstrip()
    said = "its outcome is unknown" if call["unknown"] else "it waits for a decision"
    return f"{asks} ({call['call_id']}); {said}"


def one_line(words: str) -> str:
    """`words` on one line, and no more of them than a person reads there."""
    line = " ".join(words.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST]}... ({len(line):,} characters)"


def as_words(value: Json) -> str:
    """A value as text: text as it is, nothing as nothing, else JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(plain_json(value), ensure_ascii=False)
