"""The reports of `convo race`, `compact` and `repair`, and the rows of a new session, as whole screens."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from convo.compaction.planning import CompactionMethod, CompactionOptions, CompactionPlan
from convo.config.sections import Price
from convo.errors import InvalidUsage
from convo.history.items import Item, assistant_message, user_message
from convo.history.records import Session, Strategy
from convo.history.tree import Path, root_key
from convo.lint.model import LintView, RepairChange
from convo.lint.repair import RepairResult
from convo.terminal.report_views import (
    format_compaction,
    new_session_rows,
    parse_compact_arguments,
    render_compaction,
    render_compaction_preview,
    render_race,
    render_repair,
)
from convo.terminal.terminal import DisplayOptions
from convo.transfer.compact import CompactionResult, PreparedCompaction
from convo.transfer.race import RaceResult, RaceTurn
from convo.usage.cost import Usage
from convo.usage.counting import TokenCount

RACE = [
    RaceResult(
        Strategy.REPLAY,
        (
            RaceTurn(1_000, 1, Usage(100, 0, 10), 0.5, 1.25),
            RaceTurn(3_000, 3, Usage(1_200, 500, 20), 0.7, 1.5),
        ),
    ),
    RaceResult(Strategy.CHAIN, (RaceTurn(1_000, 1, Usage(100, 0, 10), 0.25, 1.0),)),
    RaceResult(Strategy.SESSION, (RaceTurn(50, 1, None, None, 0.125),)),
    RaceResult(Strategy.CONVERSATION, error={"code": "not_found", "message": "the endpoint has no conversations"}),
]
EMPTY = Path(root_key("local"))
PRICE = Price(2.0, 10.0, 1.0)


def test_a_race_compares_the_strategies_in_a_table_and_in_bars() -> None:
    assert render_race(RACE, PRICE, DisplayOptions()).splitlines() == [
        "owner         turns  bytes  items  input  cached  output      cost  first token   total  status",
        "replay            2  4,000      4  1,300     500      30   $0.0024       0.60 s  2.75 s  done",
        "chain             1  1,000      1    100       0      10  $0.00030       0.25 s  1.00 s  done",
        "session           1     50      1      -       -       -         -            -  0.12 s  done",
        "conversation      0      0      0      -       -       -         -            -  0.00 s  not_found",
        "",
        "bytes sent",
        "replay        ████████████████████████████████████████ 4,000",
        "chain         ██████████ 1,000",
        "session       █ 50",
        "conversation   0",
        "conversation: the endpoint has no conversations",
    ]


def test_a_race_without_a_price_has_no_costs_and_fits_a_narrow_terminal() -> None:
    assert render_race(RACE, None, DisplayOptions(60, has_box_chars=False)).splitlines() == [
        "owner         bytes  input  output   total  status",
        "replay        4,000  1,300      30  2.75 s  + done",
        "chain         1,000    100      10  1.00 s  + done",
        "session          50      -       -  0.12 s  + done",
        "conversation      0      -       -  0.00 s  x not_found",
        "",
        "bytes sent",
        "replay        ################################## 4,000",
        "chain         ######## 1,000",
        "session       # 50",
        "conversation   0",
        "x conversation: the endpoint has no conversations",
        "",
        "  cheapest      unknown without a price",
        "  fewest bytes  session, 50: 99 % less than replay",
        "  fastest       session, 0.12 s: 95 % less than replay",
    ]


def test_on_a_terminal_a_race_names_the_cheapest_strategy() -> None:
    replay, chain, *_ = RACE
    lines = render_race([replay, chain], PRICE, DisplayOptions(80)).splitlines()
    assert lines[-3:] == [
        "  cheapest      chain, $0.00030: 88 % less than replay",
        "  fewest bytes  chain, 1,000: 75 % less than replay",
        "  fastest       chain, 1.00 s: 64 % less than replay",
    ]
    colored = render_race([replay, chain], PRICE, DisplayOptions(80, has_color=True))
    assert "\x1b[32m$0.00030\x1b[0m" in colored
    assert "\x1b[32m$0.0024" not in colored
    without_price = render_race([replay, chain], None, DisplayOptions(80)).splitlines()
    assert "  fewest input tokens  chain, 100: 92 % less than replay" in without_price
    same = [replay, replace(chain, turns=replay.turns)]
    assert "  cheapest      all equal, $0.0024" in render_race(same, PRICE, DisplayOptions(80)).splitlines()
    assert "cheapest" not in render_race([replay], PRICE, DisplayOptions(80))


def test_in_the_narrowest_terminal_a_race_keeps_cost_time_and_status() -> None:
    assert render_race(RACE, PRICE, DisplayOptions(40)).splitlines()[:5] == [
        "owner           cost   total  status",
        "replay       $0.0024  2.75 s  ✓ done",
        "chain       $0.00030  1.00 s  ✓ done",
        "session            -  0.12 s  ✓ done",
        "conversat…         -  0.00 s  ✗ not_fou…",
    ]


@pytest.mark.parametrize(
    ("strategy", "handle", "rows"),
    [
        (
            Strategy.CHAIN,
            None,
            [("handle", "none yet: the first turn creates it and sends the full history"), ("items", "2 items")],
        ),
        (Strategy.CHAIN, "resp_1", [("handle", "resp_1"), ("items", "2 items")]),
        (Strategy.SESSION, None, [("items", "2 items")]),
    ],
)
def test_a_new_session_shows_its_owner_and_its_handle(
    strategy: Strategy, handle: str | None, rows: list[tuple[str, str]]
) -> None:
    found = list(new_session_rows("mine", strategy, handle, 2, 0))
    assert found[0] == ("session", "mine")
    assert found[1][0] == "owner"
    assert found[1][1].endswith(f" (--{strategy})")
    assert found[2:] == rows


def test_unconfirmed_items_of_a_new_session_are_counted() -> None:
    assert list(new_session_rows("mine", Strategy.SESSION, None, 1_200, 3))[-1] == (
        "items",
        "1,200 items, 3 unconfirmed",
    )


def make_session(strategy: Strategy = Strategy.SESSION, handle: str | None = None) -> Session:
    return Session("ses_1", "mine", strategy, "openai/gpt-5", EMPTY.head, EMPTY.head, 0.0, 0.0, handle=handle)


def prepare(
    after: int = 150, *, kept: Sequence[Item] = (), method: CompactionMethod = CompactionMethod.SUMMARY
) -> PreparedCompaction:
    items = (user_message("one"), assistant_message("two"))
    return PreparedCompaction(
        CompactionPlan(method, items, tuple(kept)),
        EMPTY,
        (user_message("a summary"), {"type": "compaction", "encrypted_content": "x"}),
        TokenCount(1_000, True),
        TokenCount(after, True),
        notes=("the model has no tokenizer",),
    )


def test_a_compaction_shows_its_size_method_and_both_histories() -> None:
    kept = [user_message("three")]
    prepared = prepare(kept=kept)
    prepared = replace(prepared, replacement=(*prepared.replacement, *kept))
    result = CompactionResult(prepared, TokenCount(150, True), "resp_old one", 2)
    assert render_compaction(make_session(Strategy.CHAIN, "resp_new"), result, DisplayOptions()).splitlines() == [
        "  compacted     about 1,000 → about 150 tokens, 85 % less",
        "  items         2 compacted, 1 kept unchanged",
        "  dropped       2 messages, about 1,000 tokens",
        "  method        by a summary from the model",
        "  summary       about 40 tokens, encrypted by the endpoint",
        "  turns         numbered again: 1 is the compacted history, the kept turns follow from 2",
        "  later         2 items after the compacted ones: added meanwhile or unconfirmed",
        "  continues as  chain resp_new",
        "  previous      convo chat --from 'resp_old one'",
    ]


@pytest.mark.parametrize(
    ("method", "text"),
    [
        (CompactionMethod.IN_PLACE, "by the endpoint, in the conversation itself"),
        (CompactionMethod.PREVIOUS, "by the endpoint, from the previous response id"),
        (CompactionMethod.INPUT, "by the endpoint's compaction API"),
        (CompactionMethod.SUMMARY, "by a summary from the model"),
    ],
)
def test_a_compaction_in_a_conversation_keeps_the_old_items_there(method: CompactionMethod, text: str) -> None:
    result = CompactionResult(prepare(method=method), TokenCount(999, True), None)
    session = make_session(Strategy.CONVERSATION, "conv_1")
    assert render_compaction(session, result, DisplayOptions()).splitlines() == [
        "  compacted     about 1,000 → about 999 tokens, 0 % less",
        "  items         2 compacted",
        "  dropped       2 messages, about 1,000 tokens",
        f"  method        {text}",
        "  summary       about 60 tokens, encrypted by the endpoint",
        *(
            []
            if method is CompactionMethod.IN_PLACE
            else ["  turns         numbered again: 1 is the compacted history"]
        ),
        "  continues as  conversation conv_1",
        "  previous      the compacted items stay in the conversation, before the compaction item",
    ]


def test_a_compaction_and_its_summary_are_two_lines_in_a_chat() -> None:
    result = CompactionResult(prepare(), TokenCount(150, True), "/tmp/old one.json")
    assert format_compaction(make_session(Strategy.REPLAY, "/tmp/a.json"), result) == (
        "compacted 2 items, about 1,000 → about 150 tokens, 85 % less; dropped 2 messages, about 1,000 tokens; "
        "turns are numbered again: 1 is the compacted history; "
        "previous history: convo chat --replay --from '/tmp/old one.json'; the model has no tokenizer\n"
        "summary: about 60 tokens, encrypted by the endpoint"
    )
    in_place = CompactionResult(prepare(1_000), TokenCount(1_000, True), None)
    assert format_compaction(make_session(), in_place) == (
        "compacted 2 items, about 1,000 → about 1,000 tokens, not smaller; dropped 2 messages, about 1,000 tokens; "
        "turns are numbered again: 1 is the compacted history; the model has no tokenizer\n"
        "summary: about 400 tokens, encrypted by the endpoint"
    )


def test_a_preview_lists_the_new_history() -> None:
    assert render_compaction_preview(prepare(kept=[user_message("three")]), DisplayOptions()).splitlines() == [
        "  would compact  about 1,000 → about 150 tokens, 85 % less",
        "  items          2 compacted, 1 kept unchanged",
        "  dropped        2 messages, about 1,000 tokens",
        "  method         by a summary from the model",
        "  summary        about 60 tokens, encrypted by the endpoint",
        "  new history    user: a summary",
        "                 compaction: [compaction]",
    ]


@pytest.mark.parametrize(
    ("text", "options", "yes"),
    [
        ("", CompactionOptions(focus=None, keep_turns=0), False),
        ("the plan of today", CompactionOptions(focus="the plan of today", keep_turns=0), False),
        ("--keep-last 2 --yes", CompactionOptions(focus=None, keep_turns=2), True),
        ("the --yes plan --keep-last 999999", CompactionOptions(focus="the plan", keep_turns=999_999), True),
    ],
)
def test_the_arguments_of_compact_in_a_chat(text: str, options: CompactionOptions, yes: bool) -> None:
    assert parse_compact_arguments(text) == (options, yes)


@pytest.mark.parametrize("text", ["--keep-last", "--keep-last x", "--keep-last -1", "--keep-last 1000000"])
def test_keep_last_takes_a_number(text: str) -> None:
    with pytest.raises(InvalidUsage, match=r"^--keep-last takes a number of turns$") as caught:
        parse_compact_arguments(text)
    assert caught.value.hint == "/compact --keep-last 2"


def test_a_repair_lists_its_changes_with_their_items() -> None:
    view = LintView((user_message("one"),), Strategy.CHAIN)
    changes = (
        RepairChange("orphan-output", "dropped", "no call has this output", 1),
        RepairChange("", "anchor", "the response \x1b[2J is gone"),
    )
    repaired = RepairResult(view, changes)
    paths = ["input[0]", "items\x07[1]"]
    assert render_repair("mi\x1bne", repaired, paths, DisplayOptions(has_color=True)).splitlines() == [
        "\x1b[1mmi\\x1bne\x1b[0m: 1 item, owner: the endpoint's Responses API",
        "  items\\x07[1]  dropped       no call has this output [orphan-output]",
        "                anchor        the response \\x1b[2J is gone",
    ]
    assert (
        render_repair("mine", repaired, paths, DisplayOptions(), is_saved=False).splitlines()[0].endswith(" (dry run)")
    )
    assert render_repair("mine", None, [], DisplayOptions()) == "nothing to repair"
