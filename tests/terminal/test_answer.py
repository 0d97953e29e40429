"""The printed parts of an answer, on stdout and on stderr."""

import io
from collections.abc import Sequence
from typing import Any

import pytest

from convo.history.items import StreamEvent
from convo.terminal.terminal import AnswerPrinter, escape_control_chars


def printed(events: Sequence[StreamEvent], *, live: bool = True) -> tuple[str, str]:
    """stdout and stderr after all `events`."""
    out, err = io.StringIO(), io.StringIO()
    printer = AnswerPrinter(out, err, is_streamed=live)
    for event in events:
        printer.print_event(event)
    printer.finish()
    return out.getvalue(), err.getvalue()


def delta(words: str, item: int = 0, part: int = 0, kind: str = "output_text") -> StreamEvent:
    return {"type": f"response.{kind}.delta", "output_index": item, "content_index": part, "delta": words}


def done(at: int, item: dict[str, Any]) -> StreamEvent:
    return {"type": "response.output_item.done", "output_index": at, "item": item}


def message(*parts: str) -> dict[str, Any]:
    return {
        "type": "message",
        "role": "assistant",
        "content": [{"type": "output_text", "text": words} for words in parts],
    }


def completed(*output: dict[str, Any]) -> StreamEvent:
    return {"type": "response.completed", "response": {"output": list(output)}}


def test_text_is_printed_as_it_arrives() -> None:
    out, err = io.StringIO(), io.StringIO()
    printer = AnswerPrinter(out, err, is_streamed=True)
    seen = []
    for piece in ("On", "ce ", "upon"):
        printer.print_event(delta(piece))
        seen.append(out.getvalue())
    assert seen == ["On", "Once ", "Once upon"]


def test_without_streaming_an_item_is_printed_when_it_is_complete() -> None:
    assert printed([delta("On"), delta("ce")], live=False) == ("", "")
    assert printed([delta("On"), delta("ce"), done(0, message("Once"))], live=False) == ("Once\n", "")


@pytest.mark.parametrize("live", [True, False])
def test_an_item_is_printed_once_even_if_several_events_contain_it(live: bool) -> None:
    events = [delta("Once"), done(0, message("Once")), completed(message("Once"))]
    assert printed(events, live=live) == ("Once\n", "")


@pytest.mark.parametrize("live", [True, False])
def test_a_response_without_deltas_is_printed(live: bool) -> None:
    assert printed([completed(message("Once"))], live=live) == ("Once\n", "")


@pytest.mark.parametrize("live", [True, False])
def test_parts_of_a_message_are_printed_on_lines_of_their_own(live: bool) -> None:
    events = [delta("a", part=0), delta("", part=1), delta("b", part=2), done(0, message("a", "", "b"))]
    assert printed(events, live=live) == ("a\nb\n", "")


@pytest.mark.parametrize("live", [True, False])
def test_messages_and_calls_are_printed_on_lines_of_their_own(live: bool) -> None:
    call = {"type": "function_call", "name": "weather", "arguments": "{}"}
    events = [
        delta("Let me see."),
        done(0, message("Let me see.")),
        done(1, {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}),
        done(2, call),
        done(3, {"type": "web_search_call", "status": "completed"}),
        delta("Rain.", item=4),
        done(4, message("Rain.")),
    ]
    assert printed(events, live=live) == ("Let me see.\nRain.\n", "[function_call] weather {}\n[web_search_call]\n")


def test_an_interrupted_answer_ends_its_line() -> None:
    assert printed([delta("Half an ans")]) == ("Half an ans\n", "")
    assert printed([delta("whole line\n")]) == ("whole line\n", "")
    assert printed([]) == ("", "")


def test_every_control_character_except_tab_and_newline_is_escaped() -> None:
    controls = [chr(number) for number in (*range(0x20), *range(0x7F, 0xA0))]
    assert [sign for sign in controls if escape_control_chars(sign) == sign] == ["\t", "\n"]
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
