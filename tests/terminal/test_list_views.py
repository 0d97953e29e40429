"""Tables of sessions, search results and stored data, as whole screens."""

import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from convo.chat.conversation_list import HitReport, ListedConversation
from convo.history.items import assistant_message, user_message
from convo.history.records import Session, Strategy
from convo.history.tree import Key, root_key
from convo.inspect.view import OpenRun
from convo.stores.base import PruneResult, TenantStats
from convo.terminal.list_views import (
    format_age,
    format_bytes,
    render_prune_results,
    render_search_results,
    render_session,
    render_session_list,
    render_tenant_stats,
)
from convo.terminal.terminal import DisplayOptions

ROOT = root_key("local")
PLAIN = Session("ses_1", "mine", Strategy.SESSION, "openai/gpt-5", ROOT, ROOT, 0.0, 90_000.0)
CHAIN = Session(
    "ses_2",
    "a\x1bb",
    Strategy.CHAIN,
    "local/model",
    Key("f" * 64),
    Key("e" * 64),
    60.0,
    120.0,
    handle="resp_1",
    instructions="Be short.",
)
NOW = 190_000.0
ITEMS = (user_message("one"), assistant_message("two"))


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_sessions_are_listed_one_on_a_line() -> None:
    summaries = [
        ListedConversation(PLAIN, 1_204, 0, 602, "what is a monad"),
        ListedConversation(CHAIN, 2, 1, 1, "hello"),
    ]
    assert render_session_list(summaries, DisplayOptions(), NOW).splitlines() == [
        "session  owner    model         items  turns  used              first message",
        "mine     session  openai/gpt-5  1,204    602  1970-01-02 01:00  what is a monad",
        "a\\x1bb   chain    local/model       2      1  1970-01-01 00:02  hello",
    ]
    assert render_session_list(summaries, DisplayOptions(64), NOW).splitlines() == [
        "session  owner    items  turns  used        first message",
        "mine     session  1,204    602  1 day ago   what is a monad",
        "a\\x1bb   chain        2      1  2 days ago  hello",
    ]
    assert render_session_list(summaries, DisplayOptions(90), NOW).splitlines() == [
        "╭─────────┬─────────┬──────────────┬───────┬───────┬────────────┬─────────────────╮",
        "│ session │ owner   │ model        │ items │ turns │ used       │ first message   │",
        "├─────────┼─────────┼──────────────┼───────┼───────┼────────────┼─────────────────┤",
        "│ mine    │ session │ openai/gpt-5 │ 1,204 │   602 │ 1 day ago  │ what is a monad │",
        "│ a\\x1bb  │ chain   │ local/model  │     2 │     1 │ 2 days ago │ hello           │",
        "╰─────────┴─────────┴──────────────┴───────┴───────┴────────────┴─────────────────╯",
    ]
    assert render_session_list(summaries, DisplayOptions(45), NOW).splitlines() == [
        "session  owner    used        first message",
        "mine     session  1 day ago   what is a monad",
        "a\\x1bb   chain    2 days ago  hello",
    ]
    assert render_session_list(summaries, DisplayOptions(38, has_color=True), NOW).splitlines() == [
        "\x1b[2msession  used        first message\x1b[0m",
        "\x1b[36mmine   \x1b[0m  1 day ago   what is a monad",
        "\x1b[36ma\\x1bb \x1b[0m  2 days ago  hello",
    ]


def test_a_terminal_shows_the_status_of_conversations_that_are_not_done() -> None:
    rows = [
        ListedConversation(PLAIN, 2, 0, 1, "one", status="paused"),
        ListedConversation(CHAIN, None, 0, 1, "two", status="failed", fork_count=2),
        ListedConversation(replace(PLAIN, id="ses_3", name="answered"), 2, 0, 1, "three"),
        ListedConversation(replace(PLAIN, id="ses_4", name="imported"), 2, 0, 0, "no request"),
    ]
    lines = render_session_list(rows, DisplayOptions(66), NOW).splitlines()
    assert [line[:28].rstrip() for line in lines] == [
        "session             status",
        "mine                ‖ paused",
        "a\\x1bb and 2 forks  ✗ failed",
        "answered            ✓ done",
        "imported",
    ]
    assert "paused" not in render_session_list(rows, DisplayOptions(), NOW)


def test_the_time_of_use_stays_where_messages_that_begin_alike_are_cut() -> None:
    title = "Plan a day in Oslo for two people who like art."
    summaries = [
        ListedConversation(replace(PLAIN, id=f"ses_{number}", name=f"a-day-in-oslo-{number}"), 4, 0, 2, title)
        for number in range(2)
    ]
    assert "1 day ago" in render_session_list(summaries, DisplayOptions(40), NOW)
    assert "1 day ago" in render_session_list(summaries, DisplayOptions(80), NOW)
    wide = render_session_list(summaries, DisplayOptions(120), NOW)
    assert "1 day ago" in wide
    assert title in wide


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-5, "just now"), (119, "just now"), (120, "2 min ago"), (3_599, "59 min ago"), (3_600, "1 h ago")),
        *((86_399, "23 h ago"), (86_400, "1 day ago"), (29.9 * 86_400, "29 days ago"), (30 * 86_400, "1970-01-11")),
    ],
)
def test_an_age_is_in_its_largest_unit(seconds: float, text: str) -> None:
    timestamp = 10 * 86_400.0
    assert format_age(timestamp, timestamp + seconds) == text


def test_a_session_shows_its_whole_record() -> None:
    assert render_session(ListedConversation(PLAIN, 4, 0, 2, "one"), (), DisplayOptions()).splitlines() == [
        "mine",
        "  id           ses_1",
        "  owner        the local store (--session)",
        "  handle       none: use the session name",
        "  endpoint     embedded",
        "  model        openai/gpt-5",
        "  head         068d08196341, 4 items",
        "  confirmed    068d08196341, 4 items",
        "  unconfirmed  none",
        "  turns        2",
        "  created      1970-01-01 00:00",
        "  used         1970-01-02 01:00",
        "  continue     convo chat --from mine",
    ]
    assert render_session(
        ListedConversation(CHAIN, 4, 2, 1, "one"), ITEMS, DisplayOptions(has_color=True)
    ).splitlines() == [
        "\x1b[1ma\\x1bb\x1b[0m",
        "  \x1b[2mid         \x1b[0m  ses_2",
        "  \x1b[2mowner      \x1b[0m  the endpoint's Responses API (--chain)",
        "  \x1b[2mhandle     \x1b[0m  resp_1",
        "  \x1b[2mendpoint   \x1b[0m  embedded",
        "  \x1b[2mmodel      \x1b[0m  local/model",
        "  \x1b[2msystem     \x1b[0m  Be short.",
        "  \x1b[2mhead       \x1b[0m  ffffffffffff, 4 items",
        "  \x1b[2mconfirmed  \x1b[0m  eeeeeeeeeeee, 2 items",
        "  \x1b[2munconfirmed\x1b[0m  2 items",
        "  \x1b[2m           \x1b[0m  user: one",
        "  \x1b[2m           \x1b[0m  assistant: two",
        "  \x1b[2mturns      \x1b[0m  1",
        "  \x1b[2mcreated    \x1b[0m  1970-01-01 00:01",
        "  \x1b[2mused       \x1b[0m  1970-01-01 00:02",
        "  \x1b[2mcontinue   \x1b[0m  convo chat --from 'a\\x1bb'",
    ]


def test_an_open_run_of_a_session_is_shown_with_its_command() -> None:
    run = OpenRun("run_1", ("call_1", "call_2"), is_paused=True)
    assert render_session(ListedConversation(PLAIN, 4, 3, 2, "one"), ITEMS, DisplayOptions(), run).splitlines()[8:] == [
        "  run          an agent run needs approval: call_1, call_2",
        "  unconfirmed  3 items",
        "  turns        2",
        "  created      1970-01-01 00:00",
        "  used         1970-01-02 01:00",
        "  continue     convo resume mine --agent FILE.py:NAME",
    ]
    executing = OpenRun("run_1", process="process 7")
    assert render_session(ListedConversation(PLAIN, 4, 2, 2, "one"), ITEMS, DisplayOptions(), executing).splitlines()[
        8:
    ] == [
        "  run          an agent run is in progress in process 7",
        "  unconfirmed  2 items",
        "               user: one",
        "               assistant: two",
        "  turns        2",
        "  created      1970-01-01 00:00",
        "  used         1970-01-02 01:00",
    ]


def test_search_results_name_the_item_and_its_author() -> None:
    rows = [
        ListedConversation(PLAIN, hit=HitReport(ROOT, 3, 12, "user", "a [monad] is")),
        ListedConversation(CHAIN, hit=HitReport(Key("f" * 64), 2, None, "function_call", "x")),
        ListedConversation(PLAIN, first_words="hello"),
    ]
    assert render_search_results(rows, "monad", DisplayOptions(), NOW).splitlines() == [
        "session  item            role           used              text",
        "mine     3/12            user           1970-01-02 01:00  a [monad] is",
        "a\\x1bb   2, on a branch  function_call  1970-01-01 00:02  x",
        "mine     name                           1970-01-02 01:00  hello",
    ]
    assert render_search_results(rows, "monad", DisplayOptions(40), NOW).splitlines()[0].split() == [
        "session",
        "item",
        "text",
    ]


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_a_search_result_on_a_terminal_shows_the_word_that_was_found(columns: int) -> None:
    snippet = "…2. From there, follow the quay and walk along the harbour to…"
    row = ListedConversation(PLAIN, hit=HitReport(ROOT, 4, None, "assistant", snippet))
    lines = render_search_results([row], "Harbour", DisplayOptions(columns), NOW).splitlines()
    assert any("harbour" in line for line in lines)
    assert max(map(len, lines)) <= columns


def test_tenants_are_listed_with_their_rows_and_size() -> None:
    counts = {"sessions": 2, "responses": 1_000, "conversations": 7, "items": 3, "places": 4, "events": 5, "runs": 6}
    tenants = [
        TenantStats("local", counts, 1_234_567, 0.0, 90_000.0),
        TenantStats("team", dict.fromkeys(counts, 0), 12, None, None),
    ]
    assert render_tenant_stats(tenants, DisplayOptions()).splitlines() == [
        "tenant  sessions  responses  conversations  items  nodes  events  runs    size  oldest            newest",
        "local          2      1,000              7      3      4       5     6  1.2 MB  "
        "1970-01-01 00:00  1970-01-02 01:00",
        "team           0          0              0      0      0       0     0    12 B",
    ]
    headings = [find_headings(render_tenant_stats(tenants, DisplayOptions(width))) for width in (102, 95, 80, 40)]
    assert headings == [
        ["tenant", "sessions", "responses", "conversations", "items", "runs", "size", "oldest", "newest"],
        ["tenant", "sessions", "responses", "conversations", "runs", "size", "oldest", "newest"],
        ["tenant", "sessions", "responses", "conversations", "runs", "size", "newest"],
        ["tenant", "sessions", "size"],
    ]


def find_headings(table: str) -> list[str]:
    """The headings of a table, which is perhaps in a frame."""
    return next(line.replace("│", " ").split() for line in table.splitlines() if "tenant" in line)


def test_deleted_records_are_counted_by_tenant() -> None:
    results = [("local", PruneResult(1, 2_000, 3)), ("team", PruneResult(0, 4, 0, 5))]
    assert render_prune_results(results, DisplayOptions()).splitlines() == [
        "tenant  sessions  responses  conversations  files",
        "local          1      2,000              3      0",
        "team           0          4              0      5",
    ]


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1_000, "1.0 KB"),
        (1_550, "1.6 KB"),
        (999_949, "999.9 KB"),
        (999_950, "1.0 MB"),
        (2_500_000_000, "2.5 GB"),
        (1_000_000_000_000, "1.0 TB"),
        (1_234_000_000_000_000, "1,234.0 TB"),
    ],
)
def test_bytes_are_shown_in_the_largest_unit(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text
