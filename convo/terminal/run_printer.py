"""Events of an agent run: one line on stderr for each tool call, handoff and guardrail."""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, TextIO

from convo.agents.agent import plain_json
from convo.history.items import Json, StreamEvent, decode_json_escapes, item_text, item_type
from convo.terminal.answer import UNANNOUNCED_TYPES, AnswerPrinter, AnswerRenderer, FormatReasoning
from convo.terminal.terminal import detect_display_without_color, escape_control_chars, wrap_text

if TYPE_CHECKING:
    from convo.terminal.waiting import WaitingLine


SENTENCE_ITEM_TYPES = ("function_call", "mcp_approval_request")
"""Item types that are not announced, because the run's own events print a line for each."""


MAX_SENTENCE_CHARS = 400
"""Characters of arguments or of an output in a line; `convo inspect --items` shows all of them."""


class RunPrinter(AnswerPrinter):
    """Prints the events of a run.

    prints_pending_calls:  print a line for each call that needs a decision
    has_output:            whether anything was printed since it was set to False
    """

    prints_pending_calls = True
    has_output = False

    def __init__(
        self,
        out: TextIO,
        err: TextIO,
        *,
        is_streamed: bool,
        renderer: AnswerRenderer | None = None,
        format_reasoning: FormatReasoning | None = None,
        waiting_line: "WaitingLine | None" = None,
    ) -> None:
        super().__init__(
            out,
            err,
            is_streamed=is_streamed,
            unannounced=(*UNANNOUNCED_TYPES, *SENTENCE_ITEM_TYPES),
            renderer=renderer,
            format_reasoning=format_reasoning,
            waiting_line=waiting_line,
        )
        self._running_tools = 0
        self._last_text: str | None = None

    def print_event(self, event: StreamEvent) -> None:
        if not str(event["type"]).startswith("convo."):
            self._running_tools = 0
            super().print_event(event)
            self._record_last_message(event)
            return
        if event["type"] == "convo.paused" and not self.prints_pending_calls:
            return
        self._running_tools += {"convo.tool_started": 1, "convo.tool_output": -1}.get(event["type"], 0)
        self.finish()
        self._prepare_output()
        for line in format_run_event(event):
            self.has_output = True
            self._err.write(wrap_text(escape_control_chars(line), detect_display_without_color(self._err).width) + "\n")
            self._err.flush()
        if event["type"] == "convo.finished":
            self._print_final_output(event["output"])

    @property
    def is_at_line_start(self) -> bool:
        """Whether the cursor is at the start of a line: a running tool may print as well."""
        return super().is_at_line_start and not self._running_tools

    def _write(self, text: str) -> None:
        self.has_output |= bool(text)
        super()._write(text)

    def _announce(self, line: str) -> None:
        self.has_output |= bool(line)
        super()._announce(line)

    def _record_last_message(self, event: StreamEvent) -> None:
        """Record the text of the last message: it is the final output, except where a tool's output is."""
        items = [event["item"]] if event["type"] == "response.output_item.done" else []
        if event["type"] == "response.incomplete":  # an item that was cut has no end of its own
            items = event["response"].get("output") or []
        for item in items:
            if item_type(item) == "message":
                self._last_text = item_text(item)

    def _print_final_output(self, output: Json) -> None:
        """Print the final output unless the last message is its text."""
        # Unless `after_tools` is "ask again", the output is that of a tool, and no message has it.
        if self._last_text is None or (isinstance(output, str) and output != self._last_text):
            self._write(value_to_text(output))
            self.finish()


def format_run_event(event: StreamEvent) -> list[str]:
    """Describe an event of a run, one sentence a line; an empty list for events that are not announced."""
    match event["type"]:
        case "convo.tool_started":
            arguments = shorten_to_line(decode_json_escapes(event["arguments"]))
            return [f"{event['agent']} calls {event['tool']} {arguments}".rstrip()]
        case "convo.tool_output":
            return [f"{event['tool']} returned {shorten_to_line(value_to_text(event['output'])) or 'nothing'}"]
        case "convo.handoff":
            return [f"{event['source']} hands off to {event['target']}"]
        case "convo.guardrail":
            return [f"guardrail {event['name']} stopped the {event['side']}: {shorten_to_line(event['reason'])}"]
        case "convo.warning":
            return [f"note: {event['message']}"]
        case "convo.paused":
            return [format_pending_call(call) for call in event["pending"]]
    return []


def format_pending_call(call: Mapping[str, Json]) -> str:
    """Describe a pending call and the decision it needs."""
    request = (
        f"{call['agent']} asks for {call['tool']} {shorten_to_line(decode_json_escapes(call['arguments']))}".rstrip()
    )
    status = "outcome unknown" if call["unknown"] else "needs approval"
    return f"{request} ({call['call_id']}); {status}"


def shorten_to_line(text: str) -> str:
    """Put `text` on one line and cut it at `MAX_SENTENCE_CHARS`."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_SENTENCE_CHARS else f"{line[:MAX_SENTENCE_CHARS]}... ({len(line):,} characters)"


def value_to_text(value: Json) -> str:
    """Convert a value to text: a string unchanged, None to "", other values to JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(plain_json(value), ensure_ascii=False)
