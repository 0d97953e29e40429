"""The printed parts of an answer, on stdout and on stderr."""

import io
from collections.abc import Sequence
from typing import Any

import pytest

from convo.history.items import StreamEvent
from convo.terminal.answer import AnswerPrinter
from convo.terminal.terminal import escape_control_chars


def print_events(events: Sequence[StreamEvent], *, streamed: bool = True) -> tuple[str, str]:
    """stdout and stderr after all `events`."""
    out, err = io.StringIO(), io.StringIO()
    printer = AnswerPrinter(out, err, is_streamed=streamed)
    for event in events:
        printer.print_event(event)
    printer.finish()
    return out.getvalue(), err.getvalue()


def delta(text: str, item: int = 0, part: int = 0, kind: str = "output_text") -> StreamEvent:
    return {"type": f"response.{kind}.delta", "output_index": item, "content_index": part, "delta": text}


def item_done(index: int, item: dict[str, Any]) -> StreamEvent:
    return {"type": "response.output_item.done", "output_index": index, "item": item}


def message(*parts: str) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": text} for text in parts],
    }


def response_completed(*output: dict[str, Any]) -> StreamEvent:
    return {"type": "response.completed", "response": {"output": list(output)}}


def test_text_is_printed_as_it_arrives() -> None:
    out, err = io.StringIO(), io.StringIO()
    printer = AnswerPrinter(out, err, is_streamed=True)
    outputs = []
    for piece in ("On", "ce ", "upon"):
        printer.print_event(delta(piece))
        outputs.append(out.getvalue())
    assert outputs == ["On", "Once ", "Once upon"]


def test_without_streaming_an_item_is_printed_when_it_is_complete() -> None:
    assert print_events([delta("On"), delta("ce")], streamed=False) == ("", "")
    assert print_events([delta("On"), delta("ce"), item_done(0, message("Once"))], streamed=False) == ("Once\n", "")


@pytest.mark.parametrize("streamed", [True, False])
def test_an_item_is_printed_once_even_if_several_events_contain_it(streamed: bool) -> None:
    events = [delta("Once"), item_done(0, message("Once")), response_completed(message("Once"))]
    assert print_events(events, streamed=streamed) == ("Once\n", "")


@pytest.mark.parametrize("streamed", [True, False])
def test_a_response_without_deltas_is_printed(streamed: bool) -> None:
    assert print_events([response_completed(message("Once"))], streamed=streamed) == ("Once\n", "")


@pytest.mark.parametrize("streamed", [True, False])
def test_parts_of_a_message_are_printed_on_lines_of_their_own(streamed: bool) -> None:
    events = [delta("a", part=0), delta("", part=1), delta("b", part=2), item_done(0, message("a", "", "b"))]
    assert print_events(events, streamed=streamed) == ("a\nb\n", "")


@pytest.mark.parametrize("streamed", [True, False])
def test_messages_and_calls_are_printed_on_lines_of_their_own(streamed: bool) -> None:
    call = {"type": "function_call", "name": "weather", "arguments": "{}"}
    events = [
        delta("Let me see."),
        item_done(0, message("Let me see.")),
        item_done(1, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}),
        item_done(2, call),
        item_done(3, {"type": "web_search_call", "status": "completed"}),
        delta("Rain.", item=4),
        item_done(4, message("Rain.")),
    ]
    assert print_events(events, streamed=streamed) == (
        "Let me see.\nRain.\n",
        "[function_call] weather {}\n[web_search_call]\n",
    )


def test_an_interrupted_answer_ends_its_line() -> None:
    assert print_events([delta("Half an ans")]) == ("Half an ans\n", "")
    assert print_events([delta("whole line\n")]) == ("whole line\n", "")
    assert print_events([]) == ("", "")


def test_every_control_character_except_tab_and_newline_is_escaped() -> None:
    controls = [chr(number) for number in (*range(0x20), *range(0x7F, 0xA0))]
    assert [char for char in controls if escape_control_chars(char) == char] == ["\t", "\n"]
    assert (escape_control_chars("\x1b"), escape_control_chars("\x9b"), escape_control_chars("\r")) == (
        "\\x1b",
        "\\x9b",
        "\\x0d",
    )
    assert escape_control_chars("Käse 食べる 🧀") == "Käse 食べる 🧀"


def test_invisible_characters_are_escaped() -> None:
    assert escape_control_chars("pay\u200bpal\ufeff \u2060x\u00ad") == "pay\\u200bpal\\ufeff \\u2060x\\xad"
    assert escape_control_chars("hi\U000e0041\U000e0100") == "hi\\U000e0041\\U000e0100"
    joined = "\U0001f469\u200d\U0001f4bb \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \u2764\ufe0f"
    assert escape_control_chars(joined) == joined
