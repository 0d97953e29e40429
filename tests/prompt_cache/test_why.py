"""`convo why`: planted causes of cache misses, their place and their cost."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as some

from convo.history.items import Item, assistant_message, developer_message, user_message
from convo.prompt_cache.why import explain_miss, find_missed_tokens
from tests.call_count import CallCount
from tests.command_runner import Convo, run_in_process
from tests.prompt_cache.stored_requests import (
    CLAUDE,
    ITEMS,
    OPENAI,
    PARAMETERS,
    START_TIME,
    Request,
    make_view,
    store_requests,
    tool,
    usage,
)

FIRST, NEXT = Request(), Request().next(user_message("And in Oslo?"))
MODELS = (OPENAI, CLAUDE)
MISS_USD = {OPENAI: 6.25 - 0.5, CLAUDE: 5.0 - 0.2, "openai/gpt-5.6-terra": 2.5 - 0.2}
"""The price of a million tokens that were written instead of read."""


def with_parameters(**parameters: Any) -> Request:
    return NEXT._replace(parameters={**PARAMETERS, **parameters})


def with_items(*items: Item) -> Request:
    return NEXT._replace(items=(*items, *NEXT.items[len(ITEMS) :]))


def later(seconds: float) -> Request:
    return NEXT._replace(fields={"created_at": START_TIME + 60 + seconds})


class Case(NamedTuple):
    """A planted cause: the second request, what is found, and the models that have it.

    place:   the path and the byte, as `convo why` prints them
    fix:     a part of it
    usd:     the price of a million of them; None if they were written
    """

    cause: str
    second: Request
    place: tuple[str | None, int | None] = (None, None)
    fix: str = ""
    first: Request = FIRST
    models: Sequence[str] = MODELS
    missed: int = 12_000
    certainty: str = "yes"
    usd: float | None = None


WEATHER, BOOK, CANCEL = PARAMETERS["tools"]
TOMORROW = tool("get_weather", "For example 2026-11-28.")
SAME_CALL = {**ITEMS[1], "arguments": '{"date":"today"}'}
EXPLICIT = {"prompt_cache_options": {"mode": "explicit"}}
SUMMARY = "Summary of the conversation up to here, in place of its earlier messages:\nIt rains in Oslo."
COMPACTION = {"type": "compaction", "content": "It rains in Oslo."}
RECAP = "The user asked for the weather in Oslo and Bergen."
DATE_PATH = "tools[0].parameters.properties.date.description"

CASES = {
    "a date in a tool": Case(
        "tools_changed",
        with_parameters(tools=[TOMORROW, BOOK, CANCEL]),
        (DATE_PATH, 21),
        "keep the date out of the tool get_weather",
    ),
    "a tool removed": Case("tools_changed", with_parameters(tools=[WEATHER, BOOK]), ("tools[2]", 0), "keep the tools"),
    "tools in another order": Case(
        "tools_reordered", with_parameters(tools=[BOOK, WEATHER, CANCEL]), ("tools[0].name", 0), "in the same order"
    ),
    "instructions": Case(
        "instructions_changed",
        with_parameters(instructions="You are brief."),
        ("instructions", 8),
        "keep the instructions",
    ),
    "an item edited": Case(
        "item_edited",
        with_items(*ITEMS[:2], {**ITEMS[2], "output": "Rain, 5 degrees."}, *ITEMS[3:]),
        ("input[2].output", 6),
        "convo chat --fork resp_1",
    ),
    "an item removed": Case("item_removed", with_items(*ITEMS[:3], ITEMS[4]), ("input[3].content[0].text", 0)),
    "an item added": Case("item_added", with_items(user_message("Hi."), *ITEMS), ("input[0].content[0].text", 0)),
    "items in another order": Case(
        "items_reordered", with_items(ITEMS[4], *ITEMS[1:4], ITEMS[0]), ("input[0].content[0].text", 0)
    ),
    "the same item in other bytes": Case(
        "item_bytes_changed",
        with_items(ITEMS[0], SAME_CALL, *ITEMS[2:]),
        ("input[1].arguments", 8),
        "exactly as they were received",
    ),
    "effort": Case("reasoning_effort_changed", with_parameters(reasoning={"effort": "high"}), ("reasoning.effort", 0)),
    "text format": Case(
        "text_format_changed",
        with_parameters(text={"format": {**PARAMETERS["text"]["format"], "name": "two"}}),
        ("text.format.name", 0),
        models=(OPENAI,),
    ),
    "verbosity": Case(
        "verbosity_changed",
        with_parameters(text={**PARAMETERS["text"], "verbosity": "high"}),
        ("text.verbosity", 0),
        models=(OPENAI,),
    ),
    "key": Case(
        "prompt_cache_key_changed",
        with_parameters(prompt_cache_key="two"),
        ("prompt_cache_key", 0),
        models=(OPENAI,),
        certainty="may",
    ),
    "tool choice": Case("setting_changed", with_parameters(tool_choice="none"), ("tool_choice", 0), models=(CLAUDE,)),
    "model": Case(
        "model_changed",
        NEXT._replace(fields={"model": "openai/gpt-5.6-terra"}),
        ("model", 15),
        "each model has its own cache",
        models=(OPENAI,),
    ),
    "service tier": Case(
        "service_tier_changed",
        NEXT._replace(fields={"reported": {"service_tier": "priority"}}),
        ("service_tier", 0),
        models=(OPENAI,),
        certainty="may",
        usd=2 * MISS_USD[OPENAI],
    ),
    "compaction": Case(
        "context_compacted", with_items(user_message(SUMMARY)), ("input[0].content[0].text", 0), "after a compaction"
    ),
    "a compaction by the vendor": Case(
        "context_compacted", with_items(*ITEMS, COMPACTION, assistant_message("Rain.")), ("input[5]", None)
    ),
    "a compaction after another one": Case(
        "context_compacted",
        with_items({**COMPACTION, "content": "One day: rain."}, ITEMS[4]),
        ("input[0].content", 0),
        first=FIRST._replace(items=(COMPACTION, ITEMS[4])),
    ),
    "items left out before a compaction": Case(
        "unknown",
        with_items(COMPACTION, *ITEMS[3:]),
        first=FIRST._replace(items=(*ITEMS, COMPACTION, *ITEMS[3:])),
        certainty="may",
    ),
    "a summary of the client": Case(
        "context_compacted",
        with_items(user_message(f"So far: {RECAP}")),
        ("input[0].content[0].text", 0),
        first=FIRST._replace(answer=RECAP),
    ),
    "half an hour": Case("ttl_expired", later(1_860), fix="12h", models=(OPENAI,), certainty="may"),
    "five minutes": Case("ttl_expired", later(360), fix="24h", models=(CLAUDE,)),
    "a short prompt": Case(
        "below_minimum",
        NEXT._replace(fields={"usage": usage(450)}),
        first=FIRST._replace(fields={"usage": usage(400)}),
        missed=0,
    ),
    "no breakpoint": Case(
        "no_breakpoint",
        NEXT._replace(parameters={**PARAMETERS, **EXPLICIT}, fields={"usage": usage(12_500)}),
        first=FIRST._replace(parameters={**PARAMETERS, **EXPLICIT}, fields={"usage": usage(12_000)}),
        models=(OPENAI,),
        usd=5.0 - 0.5,
    ),
    "a distant breakpoint": Case(
        "breakpoint_too_far", FIRST.next(*[user_message(f"Then {city}?") for city in range(21)]), models=(CLAUDE,)
    ),
    "a parallel request": Case(
        "parallel_request",
        FIRST._replace(fields={"parent_id": None, "created_at": START_TIME + 60.5}),
        models=(CLAUDE,),
    ),
    "nothing": Case("unknown", NEXT, certainty="may"),
}


@pytest.mark.parametrize(
    ("name", "model"), [(name, model) for name, case in CASES.items() for model in case.models], ids=str
)
def test_a_planted_cause_is_found_with_its_place_and_its_cost(convo: Convo, home: Path, name: str, model: str) -> None:
    case = CASES[name]
    store_requests(home, [case.first, case.second], model)
    got = convo("why", "resp_2", "--json").json()
    found = got["cause"], (got["path"], got["byte"]), got["certainty"], got["compared_id"], got["missed_tokens"]
    assert found == (case.cause, case.place, case.certainty, "resp_1", case.missed), got
    assert case.fix in got["fix"], got
    assert got["cost_usd"] == pytest.approx(case.missed * (case.usd or MISS_USD[got["model"]]) / 1e6)


def test_the_unpublished_price_of_writes_for_12_hours_is_named_by_why_and_cost(convo: Convo, home: Path) -> None:
    kept = {**PARAMETERS, "prompt_cache_options": {"ttl": "12h"}}
    store_requests(home, [FIRST._replace(parameters=kept), NEXT._replace(parameters=kept)], OPENAI)
    note = "the price of a cache write for 12 hours is not published: that of 30 minutes was used"
    assert f"\n  note     {note}\n" in convo("why", "resp_2").out
    assert convo("cost", "trip").out.splitlines()[1] == note
    assert [convo(name, "trip", "--json").json()["note"] for name in ("why", "cost")] == [note] * 2


REPORTED = {"type": "cache_miss", "reason": "tools_changed", "cache_missed_tokens": 11_840}

MISS = """\
  request      resp_2, openai/gpt-5.6-sol, compared with resp_1
  cache        missed: 0 of 12,000 reusable tokens were read from it
  OpenAI says  tools_changed, 11,840 tokens
  we see       tools changed: tools[0].parameters.properties.date.description, byte 21: "For example 2026-11-27." -> \
"For example 2026-11-28."
  cost         $0.0690 for 12,000 tokens not reused
  fix          keep the date out of the tool get_weather; put it into the newest user message
  later        convo chat --strict-prefix refuses such a change, --keep-prefix appends it where it can
"""


def test_without_a_handle_the_last_miss_of_the_last_conversation_is_explained(convo: Convo, home: Path) -> None:
    second = CASES["a date in a tool"].second._replace(fields={"reported": {"prompt_cache_diagnostics": REPORTED}})
    third = second.next(user_message("Thanks."), usage=usage(13_000, cached=12_500, written=500))
    store_requests(home, [FIRST, second, third], OPENAI)
    assert convo("why").out == convo("why", "resp_2").out == convo("why", "trip").out == MISS
    hit = convo("why", "resp_3").out
    assert hit.splitlines()[1:] == [
        "  cache    hit: 12,500 of 12,500 reusable tokens were read from it",
        "  cost     $0.0100: 500 new input tokens, 20 output tokens",
    ]
    assert "not used" in convo("why", "resp_1").out
    assert convo("why", "resp_9").exit == 5


def test_of_a_turn_the_request_that_missed_most_is_explained_and_the_others_are_named(convo: Convo, home: Path) -> None:
    less = NEXT.next(usage=usage(13_000, cached=6_000, written=7_000))
    hit = less.next(usage=usage(13_500, cached=13_000, written=500))
    miss = hit.next(user_message("Thanks."), usage=usage(14_000, written=14_000))
    store_requests(home, [FIRST, NEXT, less, hit, miss], OPENAI)
    for handle, explained, others in [
        ("trip@3", "resp_2", ["resp_3"]),
        ("trip@4", "resp_5", []),
        ("trip", "resp_5", ["resp_2", "resp_3"]),
        ("resp_4", "resp_4", []),
    ]:
        got = convo("why", handle, "--json").json()
        assert (got["response_id"], got["other_missed_ids"]) == (explained, others), handle
    assert convo("why", "trip").out.splitlines()[-1] == "  also missed  resp_2, resp_3"


@pytest.mark.parametrize("earlier_tokens", [12_000, 400], ids=["a longer prompt", "a short earlier prompt"])
def test_never_more_than_all_reusable_tokens_are_read(convo: Convo, home: Path, earlier_tokens: int) -> None:
    hit = NEXT._replace(fields={"usage": usage(13_000, cached=12_800)})
    store_requests(home, [FIRST._replace(fields={"usage": usage(earlier_tokens)}), hit], OPENAI)
    assert "hit: 12,800 of 12,800 reusable tokens" in convo("why", "resp_2").out


def test_names_from_a_request_print_no_rows_of_their_own_and_no_control_characters(convo: Convo, home: Path) -> None:
    key = "b\n  fix      run: other \x1b[31m"
    first, second = ({**PARAMETERS, "tools": [7, {"name": "f", "parameters": {key: value}}]} for value in (1, 2))
    store_requests(home, [FIRST._replace(parameters=first), NEXT._replace(parameters=second)], "up/\x1b[31mred")
    for command in ("why", "cost"):
        got = convo(command, "trip")
        assert (got.exit, "\x1b" in got.out + got.err) == (0, False)
        assert not any(line.startswith("  fix      run") for line in got.out.splitlines())


@pytest.mark.parametrize(("messages", "reusable"), [(0, 11_000), (1, 12_000)])
def test_only_the_field_with_instructions_is_not_reusable(
    convo: Convo, home: Path, messages: int, reusable: int
) -> None:
    text = "brief " * 666 + "text"
    items = (*[developer_message(text)] * messages, *ITEMS)
    first = Request(items, {**PARAMETERS, "instructions": text}, {"usage": usage(12_000)})
    store_requests(home, [first, first.next(user_message("And?"), usage=usage(12_500))], "openai/gpt-6.2-sol")
    assert convo("why", "resp_2", "--json").json()["reusable_tokens"] == reusable


def test_inspect_marks_the_requests_that_missed(convo: Convo, home: Path) -> None:
    hit = NEXT.next(user_message("Thanks."), usage=usage(13_000, cached=12_500, written=500))
    store_requests(home, [FIRST, NEXT, hit], OPENAI)
    lines = convo("inspect", "trip").out.splitlines()
    assert "  cache        missed by 1 request: convo why trip" in lines
    assert [" miss " in line for line in lines[-3:]] == [False, True, False]
    assert "! miss" in run_in_process("inspect", "trip", "--no-pager", is_terminal=True).out


@pytest.mark.parametrize("status", ["failed", "cancelled"])
def test_without_a_completed_request_the_last_failure_is_named(status: str, convo: Convo, home: Path) -> None:
    failed = FIRST._replace(fields={"status": status, "usage": None, "error": {"code": "c", "message": "no credit"}})
    store_requests(home, [failed], OPENAI)
    got = convo("why", "trip")
    message = f"no completed request of 'trip'; the last one is {status}: no credit"
    assert (got.exit, got.err) == (5, f"convo: {message}\n  try: convo inspect trip\n")


def test_a_failed_request_and_a_compaction_are_no_baseline(convo: Convo, home: Path) -> None:
    failed = NEXT._replace(fields={"status": "failed", "usage": None, "parent_id": "resp_1"}, parameters={})
    store_requests(home, [FIRST, failed, NEXT._replace(fields={"parent_id": "resp_2"})], OPENAI)
    got = convo("why", "--json").json()
    assert (got["response_id"], got["compared_id"], got["cause"]) == ("resp_3", "resp_1", "unknown")


@pytest.mark.parametrize("figures", [{"input_tokens": 12_000, "output_tokens": 1}, usage(12_000)])
def test_without_cache_figures_the_first_difference_is_shown(convo: Convo, home: Path, figures: dict[str, Any]) -> None:
    edited = CASES["an item edited"].second._replace(fields={"usage": figures})
    store_requests(home, [FIRST._replace(fields={"usage": figures}), edited], "ollama/llama3.2")
    out = convo("why", "resp_2").out
    assert "unknown: the endpoint has reported no cached tokens in this conversation yet" in out
    assert "item edited: input[2].output, byte 6" in out
    assert "cost" not in out


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Now: 2026-11-2{}", "date"),
        ("It is {}:15:00.", "time"),
        ("Today is Saturday, November {}.", "date"),
        ("Run 3f2b8c1{}-1f2e-4d3c-8b7a-112233445566", "id"),
        ("Now 179000000{}", "time"),
        ("You have {} tools since 2026-11-27.", None),
    ],
)
def test_a_date_time_or_id_in_the_instructions_is_named(convo: Convo, home: Path, text: str, kind: str | None) -> None:
    first, second = (with_parameters(instructions=text.format(digit)) for digit in (7, 8))
    store_requests(home, [first._replace(items=ITEMS), second], CLAUDE)
    fix = convo("why", "--json").json()["fix"]
    assert fix.startswith(f"keep the {kind} out of the instructions" if kind else "keep the instructions as"), fix


@given(
    some.lists(
        some.tuples(
            some.lists(some.sampled_from(ITEMS), min_size=1, max_size=10),
            some.sampled_from((1.0, 200.0, 400.0, 4_000.0)),
            some.integers(100, 3_000),
            some.floats(0, 1),
        ),
        max_size=6,
    ),
    some.sampled_from((OPENAI, CLAUDE, "openai/gpt-6.2-sol", "openai/gpt-5.1")),
)
def test_a_client_that_only_appends_has_no_other_cause_than_time_and_size(
    turns: list[tuple[list[Item], float, int, float]], model: str
) -> None:
    requests, now, size = [FIRST], START_TIME, 600
    for items, seconds, tokens, share in turns:
        now, size = now + seconds, size + tokens
        requests.append(requests[-1].next(*items, created_at=now, usage=usage(size, cached=int(share * size))))
    requests[0] = FIRST._replace(fields={"created_at": START_TIME, "usage": usage(600)})
    view = make_view(requests, model)
    causes = {explain_miss(view, link).cause for link in view.links}
    assert causes <= {None, "ttl_expired", "below_minimum", "unknown"}


def test_a_thousand_turns_are_measured_with_a_bounded_number_of_calls() -> None:
    requests = [FIRST]
    for number in range(999):
        requests.append(requests[-1].next(user_message(f"And in city {number}?")))
    view = make_view(requests, OPENAI)
    with CallCount() as calls:
        assert len(find_missed_tokens(view)) == 999
        assert explain_miss(view, view.links[-1]).cause == "unknown"
    assert calls.total < 150 * len(requests)
