"""`convo cost`: what each part of a conversation cost, and /cost in a chat."""

from pathlib import Path
from typing import Any

import pytest

from convo.history.items import Item, assistant_message, user_message
from tests.cli.agent_files import LOOK_UP, PAYMENTS_HANDOFF, agent_flags
from tests.cli.chat_commands import ECHO, scripted_flags
from tests.command_runner import Convo
from tests.prompt_cache.stored_requests import ITEMS, OPENAI, Request, store_requests
from tests.terminal.plain_repl import run_repl

PRICE = "{ input = 1000, cached = 100, written = 1250, output = 5000 }"


def set_price(convo: Convo, model: str) -> None:
    assert convo("config", "set", f'prices."{model}"', PRICE).exit == 0


def priced_flags(convo: Convo, *replies: dict[str, Any]) -> tuple[str, str]:
    """The flags of a scripted model that has a price."""
    flags = scripted_flags(*replies)
    set_price(convo, flags[1])
    return flags


def read_rows(convo: Convo, handle: str, by: str) -> dict[str, dict[str, Any]]:
    """Run `convo cost ... --json`; returns the rows by name. They sum to the cost of the requests."""
    got = convo("cost", handle, "--by", by, "--json")
    assert (got.exit, got.err) == (0, "")
    report = got.json()
    assert report["total"]["cost_usd"] == pytest.approx(sum(row["cost_usd"] for row in report["rows"]))
    return {row["name"]: row for row in report["rows"]}


def test_the_most_expensive_parts_are_listed_and_the_others_in_one_row(convo: Convo) -> None:
    set_price(convo, ECHO[1])
    assert convo("chat", *ECHO, "--name", "talk", "one two three").exit == 0
    assert convo("chat", "--from", "talk", "four").exit == 0
    assert convo("chat", "--fork", "talk@1", "--name", "other", "five six").exit == 0
    got = convo("cost", "talk", "-n", "3")
    assert (got.exit, got.err) == (0, "")
    assert got.out.splitlines() == [
        "$0.0480 for 3 requests; last turn $0.0120",
        "part           kind             first  cached  uncached   output    total  share",
        "one two three  answers        $0.0026       -   $0.0028  $0.0150  $0.0204  42.5%",
        "five six       answers              -       -         -  $0.0100  $0.0100  20.8%",
        "one two three  your messages  $0.0030       -   $0.0054        -  $0.0084  17.5%",
        "3 others                      $0.0042       -         -  $0.0050  $0.0092  19.3%",
    ]
    assert convo("cost", "talk", "-n", "0").out.count("\n") == 8
    assert convo("cost", "talk@1").out.splitlines()[0] == "$0.0480 for 3 requests; this turn $0.0180"


def test_a_tool_has_the_cost_of_its_definition_its_calls_and_their_outputs(convo: Convo) -> None:
    call = {"call": {"name": "look_up", "call_id": "c2", "arguments": {"order": "A1"}}}
    model = priced_flags(convo, PAYMENTS_HANDOFF, LOOK_UP, call, {"text": "Done."})
    assert convo("chat", *agent_flags("gate"), *model, "-n", "mine", "hello").exit == 0
    tools = read_rows(convo, "mine", "tool")
    assert {name: (row["first"]["requests"], row["output"]["requests"]) for name, row in tools.items()} == {
        "look_up": (5, 2),  # the definition, two calls and two outputs
        "transfer_to_payments": (3, 1),
        "no tool": (1, 1),
    }
    agents = read_rows(convo, "mine", "agent")
    assert {name: row["output"]["requests"] for name, row in agents.items()} == {"gate": 1, "payments": 3}


def test_a_changed_setting_has_the_cost_of_the_cache_miss_that_it_caused(convo: Convo) -> None:
    model = priced_flags(convo, {"text": "yes", "usage": {"cached": 200}}, {"text": "no", "usage": {"cached": 0}})
    assert convo("chat", *model, "-n", "mine", "-s", "It is 27 November.", "is it? " * 200).exit == 0
    assert convo("chat", "--from", "mine", "-s", "It is 28 November.", "really").exit == 0
    missed = {name: row["missed_usd"] for name, row in read_rows(convo, "mine", "item").items() if row["missed_usd"]}
    assert missed == {"It is 28 November.": pytest.approx(convo("why", "mine", "--json").json()["cost_usd"])}
    by_model = read_rows(convo, "mine", "model")
    assert [row["missed_usd"] for row in by_model.values()] == [pytest.approx(*missed.values())]
    total = convo("cost", "mine", "--json").json()["total"]
    by_day = read_rows(convo, "mine", "day")
    rates = [row["hit_rate"] for row in (*by_model.values(), *by_day.values())]
    assert rates == [total["cached_tokens"] / total["input_tokens"]] * 2
    heading, row = convo("cost", "mine", "--by", "day").out.splitlines()[1:]
    assert row[: heading.index("hit rate") + len("hit rate")].endswith(f"  {rates[0]:.1%}")
    assert "hit rate" not in convo("cost", "mine").out


def test_a_model_whose_endpoint_reports_no_cached_tokens_has_no_hit_rate(convo: Convo) -> None:
    assert convo("chat", *priced_flags(convo, {"text": "yes"}), "-n", "mine", "is it?").exit == 0
    assert [row["hit_rate"] for row in read_rows(convo, "mine", "model").values()] == [None]
    assert "hit rate" not in convo("cost", "mine", "--by", "model").out


def test_two_reasoning_items_of_one_response_are_numbered(convo: Convo, home: Path) -> None:
    reasoning: list[Item] = [
        {"type": "reasoning", "summary": [], "encrypted_content": text} for text in ("first", "the second")
    ]
    store_requests(home, [Request(items=(user_message("Hi."), *reasoning, *ITEMS))], OPENAI)
    names = [line[:24].rstrip() for line in convo("cost", "trip").out.splitlines() if line.startswith("[reas")]
    assert sorted(names) == ["[reasoning] resp_1 (1)", "[reasoning] resp_1 (2)"]


def test_an_uploaded_file_has_the_cost_of_its_share_of_the_message(convo: Convo) -> None:
    set_price(convo, ECHO[1])
    Path("notes.md").write_text("word " * 40, "utf-8")
    assert convo("chat", *ECHO, "--name", "talk", "-a", "notes.md", "one two three").exit == 0
    files = read_rows(convo, "talk", "file")
    assert 0.8 < files["notes.md"]["cost_usd"] / (44 * 1_000 / 1e6) < 0.95
    assert files["no file"]["output"]["cost_usd"] == pytest.approx(44 * 5_000 / 1e6)


def test_rows_of_the_same_name_have_the_id_of_their_response(convo: Convo) -> None:
    reasoning: dict[str, Any] = {"type": "reasoning", "summary": []}
    outputs = [[{**reasoning, "encrypted_content": text}, assistant_message("Yes.")] for text in ("one", "two")]
    model = priced_flags(convo, *[{"output": output} for output in outputs])
    assert convo("chat", *model, "-n", "mine", "is it?").exit == 0
    assert convo("chat", "--from", "mine", "really?").exit == 0
    ids = [link["response_id"] for link in convo("inspect", "mine", "--json").json()["links"]]
    named = [line.split()[1] for line in convo("cost", "mine").out.splitlines() if line.startswith("[reasoning]")]
    assert sorted(named) == sorted(id_[: len("resp_12345678")] for id_ in ids)
    rows = convo("cost", "mine", "--json").json()["rows"]
    assert sorted(row["response_id"] for row in rows if row["kind"] == "your messages") == sorted(ids)


def test_without_a_price_the_rows_have_tokens(convo: Convo) -> None:
    assert convo("chat", *ECHO, "--name", "talk", "one two three").exit == 0
    assert convo("cost", "talk").out.splitlines() == [
        "no price for scripted/echo; add it under [prices] in config.toml",
        "part           kind           first  cached  uncached  output  total  share",
        "one two three  answers            -       -         -       3      3  50.0%",
        "one two three  your messages      3       -         -       -      3  50.0%",
    ]


def test_an_unknown_group_is_refused_by_name(convo: Convo) -> None:
    got = convo("cost", "talk", "--by", "week")
    assert (got.exit, got.err.splitlines()[0]) == (
        2,
        "convo: --by accepts item, tool, file, agent, model, day, kind, not 'week'",
    )


@pytest.mark.needs("posix")
def test_a_chat_shows_the_most_expensive_parts_below_its_cost(convo: Convo) -> None:
    set_price(convo, ECHO[1])
    got = run_repl(*ECHO, "-n", "mine", lines=["one two three", "/cost"])
    assert got.err.splitlines()[2:-1] == [
        "  $0.0180 for 1 request; last turn $0.0180",
        "part           kind             first  cached  uncached   output    total  share",
        "one two three  answers              -       -         -  $0.0150  $0.0150  83.3%",
        "one two three  your messages  $0.0030       -         -        -  $0.0030  16.7%",
    ]
