"""The screen of `convo inspect`."""

from dataclasses import replace

import pytest

from convo.history.items import user_message
from convo.history.records import Scope, Session, Strategy
from convo.history.tree import Path
from convo.inspect.view import ConversationView
from convo.terminal.inspect_view import render_conversation, render_path_items
from convo.terminal.terminal import DisplayOptions, text_width
from tests.inspect.conversation_builder import (
    ROOT,
    START_TIME,
    ConversationBuilder,
    alternating_messages,
    build_chain,
    path_index_of,
)


def session(view: ConversationView, **fields: object) -> Session:
    record = Session(
        id="ses_1",
        name="monads",
        strategy=view.strategy,
        model="local/demo",
        head=view.path.head,
        confirmed_head=view.confirmed_head,
        created_at=START_TIME,
        used_at=START_TIME,
    )
    return replace(record, **fields)  # type: ignore[arg-type]  # any fields of a session


SCREEN = """\
╭─ monads ─────────────────────────────────────────────────────────────────────╮
│ owner        the endpoint's Responses API (--chain)                          │
│ model        local/demo                                                      │
│ head         5 items, @ resp_2                                               │
│ total        2 requests · 24 input, 33.3% cached · 18 output (4 reasoning)   │
│ re-sent      12 input tokens, 50.0% of the input                             │
╰──────────────────────────────────────────────────────────────────────────────╯
  unconfirmed  1 item
               user: and then?
  continue     convo chat --from monads

response  sent     input  output  context       preview
● resp_1  full 1      12       9  ▓▓▓▓████████  question 1 → answer 1
@ resp_2  delta 1     12       9  ░░░░▒███████  question 2 → answer 2

█ sent · ▓ sent, cached · ▒ prepended by the server · ░ prepended, cached"""


def test_a_session_shows_its_strategy_its_head_and_its_unconfirmed_items() -> None:
    view = build_chain(2).view("resp_2")
    path = view.path.append([user_message("and then?")])
    view = replace(view, path=path, handle="monads", session=session(view, handle="resp_2", head=path.head))
    assert render_conversation(view, DisplayOptions(80)) == SCREEN
    ascii_screen = render_conversation(view, DisplayOptions(80, has_box_chars=False))
    assert ascii_screen.isascii()
    assert ascii_screen.startswith("+- monads ---")
    assert max(map(text_width, SCREEN.splitlines())) <= 80


def test_with_all_columns_a_terminal_shows_every_fact_and_the_chart() -> None:
    view = build_chain(2).view("resp_2")
    view = replace(view, handle="monads", session=session(view, handle="resp_2"))
    full = render_conversation(view, DisplayOptions(80, has_all_columns=True)).splitlines()
    facts = [line.split()[0] for line in full if line.startswith("  ") and line[2] != " "]
    assert facts == ["session", "handle", "endpoint", "unconfirmed", "last", "continue"]
    headings = [line.split() for line in full if line.startswith("response")]
    every = "response owner sent ~tokens context input cached output reasoning model date time status seconds preview"
    assert headings == [every.split(), ["response", "owner", "input", "cached", "~sent", "context"]]


def test_a_pipe_gets_every_fact_and_every_column() -> None:
    view = build_chain(2).view("resp_2")
    lines = render_conversation(replace(view, session=session(view)), DisplayOptions()).splitlines()
    facts = [line.split()[0] for line in lines if line.startswith("  ") and line[2] != " "]
    assert facts == ["owner", "session", "endpoint", "model", "head", "unconfirmed", "last", "total", "continue"]
    assert lines[-3].split()[:4] == ["response", "owner", "sent", "~tokens"]


def test_in_forty_columns_a_long_id_continues_below_itself() -> None:
    view = replace(build_chain(1).view("resp_1"), notes=("resp_" + "0a1b" * 12 + " is gone",))
    lines = render_conversation(view, DisplayOptions(40)).splitlines()
    assert max(map(text_width, lines)) <= 40
    assert "  note      resp_0a1b0a1b0a1b0a1b0a1b0a1\n            b0a1b0a1b" in "\n".join(lines)


def test_in_forty_columns_a_long_model_name_begins_after_its_label() -> None:
    builder = build_chain(1)
    builder.links[0] = replace(builder.links[0], model="together/meta-llama-3.3-70b-instruct")
    view = builder.view("resp_1")
    lines = [line.strip("│ ") for line in render_conversation(view, DisplayOptions(40)).splitlines()]
    index = next(index for index, line in enumerate(lines) if line.startswith("model"))
    assert lines[index : index + 2] == ["model  together/meta-llama-3.3-70b-", "instruct"]


def test_a_response_suggests_to_continue_only_where_it_is_stored() -> None:
    builder = build_chain(1)
    assert "continue " in render_conversation(builder.view("resp_1"), DisplayOptions())
    builder.links[0] = replace(builder.links[0], is_stored=False)
    assert "continue " not in render_conversation(builder.view("resp_1"), DisplayOptions())


def test_many_unconfirmed_items_are_counted() -> None:
    view = build_chain(1).view("resp_1")
    path = view.path.append([user_message(f"more {number}") for number in range(1, 6)])
    output = render_conversation(replace(view, path=path, session=session(view)), DisplayOptions())
    assert "5 items\n               user: more 1\n" in output
    assert "user: more 3\n               and 2 more\n" in output
    assert "more 4" not in output


def test_a_confirmed_session_has_no_unconfirmed_items() -> None:
    view = build_chain(1).view("resp_1")
    assert "unconfirmed  none" in render_conversation(replace(view, session=session(view)), DisplayOptions())


def test_missing_information_of_an_endpoint_is_stated() -> None:
    view = build_chain(1).view(
        "resp_1", has_all_forks=False, notes=("resp_0 is gone",), scope=Scope("https://x.example/v1")
    )
    output = render_conversation(view, DisplayOptions())
    assert "forks     this endpoint cannot list the other responses that continue a response\n" in output
    assert "note      resp_0 is gone\n" in output
    assert "endpoint  https://x.example/v1\n" in output


ITEMS = """\
╭─ ./talk.json ────────────────────────────────────────────────────────────────╮
│ owner     the application: a JSON file (--replay)                            │
│ head      2 items                                                            │
╰──────────────────────────────────────────────────────────────────────────────╯
  continue  convo chat --replay --from ./talk.json

   1  message user: what is a monad?
   2  message assistant: a box"""


def test_without_links_the_items_are_listed() -> None:
    path = Path(ROOT).append(alternating_messages("what is a monad?", "a box"))
    view = ConversationView("./talk.json", Strategy.REPLAY, None, path, path.head, (), path_index_of([path]))
    assert render_conversation(view, DisplayOptions(80)) == ITEMS


TRANSCRIPT = """\
1  message user
   what is a monad?
   really

2  message assistant msg_1  (incomplete, unconfirmed)
   a bo

3  function_call  (unconfirmed)
   weather
   {"city": "Paris"}

4  strange_kind  (unconfirmed)
   {"type": "strange_kind", "payload": [1, 2]}"""


def test_items_are_shown_completely_with_type_role_and_id() -> None:
    items = [
        user_message("what is a monad?\nreally"),
        {"type": "message", "role": "assistant", "id": "msg_1", "status": "incomplete", "content": "a bo"},
        {"type": "function_call", "call_id": "c", "name": "weather", "arguments": '{"city": "Paris"}'},
        {"type": "strange_kind", "payload": [1, 2]},
    ]
    path = Path(ROOT).append(items)
    view = ConversationView("x", Strategy.SESSION, Scope(), path, path.nodes[0].key, (), path_index_of([path]))
    assert render_path_items(view, DisplayOptions()) == TRANSCRIPT


def test_no_text_of_a_conversation_reaches_the_terminal_as_a_control_sequence() -> None:
    builder = ConversationBuilder()
    builder.turn("resp_1", "\x1b[2J clear", "\x9b31m and red")
    view = builder.view("resp_1", handle="a\x07b", notes=("n\x1b",))
    assert "\x1b" not in render_conversation(view, DisplayOptions())
    assert "\x9b" not in render_path_items(view, DisplayOptions())


def test_an_empty_conversation_can_be_shown() -> None:
    view = ConversationView("empty", Strategy.SESSION, Scope(), Path(ROOT), ROOT, (), path_index_of([]))
    assert "head      0 items" in render_conversation(view, DisplayOptions())
    assert render_path_items(view, DisplayOptions()) == ""


def test_a_name_that_does_not_fit_in_the_border_is_shown_in_full() -> None:
    name = "a-very-long-name-of-a-conversation-that-is-wider-than-the-terminal"
    output = render_conversation(replace(build_chain(1).view("resp_1"), handle=name), DisplayOptions(60))
    assert name in "".join(line.strip("│ ") for line in output.splitlines()[1:4])
    assert "name " not in render_conversation(replace(build_chain(1).view("resp_1"), handle=name), DisplayOptions(72))


@pytest.mark.parametrize("columns", [20, 21, 40, 59, 60, 80, 120])
def test_the_panel_is_as_wide_as_the_terminal(columns: int) -> None:
    view = replace(build_chain(2).view("resp_2"), handle="日本 \x1b[2J [red]a[/red] \u202e")
    panel = render_conversation(view, DisplayOptions(columns)).partition("╯")[0].splitlines()
    assert {text_width(line) for line in panel} == {columns - 1, columns}  # the last line lacks its corner
    assert len(panel) >= 5
    assert "\x1b" not in "".join(panel)
    if columns >= 40:
        assert "日本 \\x1b[2J [red]a[/red] \\u202e" in panel[0]


def test_in_the_narrowest_terminal_everything_is_rendered_without_an_error() -> None:
    for columns in range(1, 20):
        assert render_conversation(build_chain(2).view("resp_2"), DisplayOptions(columns, has_color=True))
