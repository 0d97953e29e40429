"""`convo next --forecast`: the tokens and the cost of the next request, as it is and with a change."""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from convo.history.items import item_text
from convo.usage.model_info import find_price
from tests.cli.chat_commands import ECHO
from tests.command_runner import Convo, write_project_file
from tests.prompt_cache.test_next_usage import make_counter
from tests.vendor_rules import anthropic_server, openai_server
from tests.vendor_rules.anthropic_server import AnthropicRules, run_anthropic_server
from tests.vendor_rules.openai_server import OpenAIRules, run_openai_server
from tests.vendor_rules.rules_server import RulesServer

OPENAI, SMALLER = "openai/gpt-6.1-sol", "openai/gpt-6.1-terra"
CLAUDE = "anthropic/claude-opus-5-5"
PAGE = "The ferry from Oslo leaves at seven, because the weather in the mountains is better there. " * 60
TOOLS = """
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

def sub(a: int, b: int) -> int:
    "Subtract a number."
    return a - b
"""
NOW = 1_795_824_000.0


def price_of(model: str) -> tuple[Decimal, Decimal]:
    price = find_price(model, {})
    assert price is not None
    return Decimal(str(price.input)), Decimal(str(price.output))


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, RulesServer]]:
    """Servers with the vendors' rules as the providers `openai` and `anthropic`."""
    count, unstated = make_counter(1.2), openai_server.Unstated(reads=lambda made_by, asked: True)
    prices = {model.partition("/")[2]: [openai_server.Price(*price_of(model))] for model in (OPENAI, SMALLER)}
    claude_prices = {CLAUDE.partition("/")[2]: [anthropic_server.Price(*price_of(CLAUDE))]}
    openai = OpenAIRules(prices, count=count, unstated=unstated)
    anthropic = AnthropicRules(claude_prices, count=count)
    with run_openai_server(openai, NOW) as first, run_anthropic_server(anthropic, NOW) as second:
        monkeypatch.setenv("OPENAI_BASE_URL", first.url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", second.url.removesuffix("/v1"))
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        yield {"openai": first, "anthropic": second}


def begin(convo: Convo, model: str, *flags: str, turns: int = 3) -> None:
    """Make the session `mine` with some turns."""
    for number in range(turns):
        start = ["-m", model, "-n", "mine", "-s", PAGE[:900], *flags] if not number else ["-c"]
        got = convo("chat", *start, f"{number}: {PAGE}")
        assert got.exit == 0, got.err


def forecast(convo: Convo, *flags: str) -> dict[str, Any]:
    got = convo("next", "mine", "and then?", "--forecast", *flags, "--json")
    assert got.exit == 0, got.err
    found: dict[str, Any] = got.json()["forecast"]
    return found


def check_bill(server: RulesServer, found: dict[str, Any]) -> None:
    """Compare a forecast with the bill of the last request, whose tokens the server counts in its own way."""
    bill = server.answers[-1].bill
    written = bill.written_30m if hasattr(bill, "written_30m") else bill.written_5m
    tokens = bill.uncached + bill.cached + written
    assert found["input_tokens"] == pytest.approx(tokens, rel=0.03)
    assert found["cached_tokens"] == pytest.approx(bill.cached, abs=0.03 * tokens)
    assert found["cache_write_tokens"] == pytest.approx(written, abs=0.03 * tokens)
    input_usd = bill.cost - bill.output * price_of(found["model"])[1] / 1_000_000
    assert found["input_usd"] == pytest.approx(float(input_usd), rel=0.03)


CHANGES = {
    "nothing": [],
    "instructions": ["-s", PAGE[:2_000]],
    "effort": ["--reasoning-effort", "high"],
    "model": ["-m", SMALLER],
}


@pytest.mark.parametrize(
    ("model", "change"), [*((OPENAI, change) for change in CHANGES), (CLAUDE, "nothing"), (CLAUDE, "instructions")]
)
def test_the_forecast_is_the_bill_of_the_chat_that_follows(
    convo: Convo, servers: dict[str, RulesServer], model: str, change: str
) -> None:
    flags = CHANGES[change]
    begin(convo, model)
    found = forecast(convo, *flags)

    assert convo("chat", "--from", "mine", *flags, "and then?").exit == 0

    check_bill(servers[model.partition("/")[0]], found)
    assert (found["unchanged"] is None) == (not flags)
    if flags:
        assert found["unchanged"]["cached_tokens"] > 0.9 * found["unchanged"]["input_tokens"]


def test_an_item_is_left_out_by_its_number_its_path_its_id_or_its_key(
    convo: Convo, servers: dict[str, RulesServer]
) -> None:
    Path("tools.py").write_text(TOOLS)
    begin(convo, OPENAI, "--tool", "tools.py:add", "--tool", "tools.py:sub")
    key, item = list(convo("inspect", "mine", "--json").json()["items"].items())[2]
    before, sent = convo("inspect", "mine", "--json").out, len(servers["openai"].requests)

    for name in ("3", "input[2]", item["id"], key[:12]):
        flags = ["--drop", name, "--without-tool", "add", "--forecast"]
        request = convo("next", "mine", "go on", *flags, "--json").json()
        body, found = request["body"], request["forecast"]
        assert [tool["name"] for tool in body["tools"]] == ["sub"]
        assert [item["type"] for item in body["input"][:3]] == ["message"] * 2 + ["reasoning"]  # both of an answer
        assert found["input_tokens"] < found["unchanged"]["input_tokens"]
        assert found["cached_tokens"] < found["unchanged"]["cached_tokens"]
        assert found["input_usd"] > found["unchanged"]["input_usd"]
        assert found["break_even_requests"] > 0

    assert convo("inspect", "mine", "--json").out == before
    assert len(servers["openai"].requests) == sent


@pytest.mark.parametrize("strategy", ["chain", "conversation"])
def test_without_an_item_of_a_server_side_history_a_new_chain_begins(convo: Convo, strategy: str) -> None:
    assert convo("chat", f"--{strategy}", "-n", "mine", *ECHO, "one").exit == 0
    assert convo("chat", "-c", "two").exit == 0
    body = convo("next", "mine", "three", "--drop", "1", "--json").json()["body"]
    assert "previous_response_id" not in body
    assert "conversation" not in body
    assert [item_text(item) for item in body["input"]] == ["one", "two", "two", "three"]


def test_an_unknown_item_or_tool_is_refused_by_name(convo: Convo) -> None:
    assert convo("chat", "-n", "mine", *ECHO, "one").exit == 0
    item, tool = convo("next", "mine", "--drop", "9"), convo("next", "mine", "--without-tool", "add")
    assert (item.exit, tool.exit) == (5, 5)
    assert "no item '9'" in item.err
    assert "no tool 'add'" in tool.err


def test_only_the_option_of_the_prefix_guard_refuses_a_forecast(convo: Convo, servers: dict[str, RulesServer]) -> None:
    begin(convo, OPENAI, turns=2)
    write_project_file("strict_prefix = true\n")
    change = ["next", "mine", "--reasoning-effort", "high"]
    assert [convo(*change, *flags).exit for flags in ([], ["--forecast"], ["--forecast", "--strict-prefix"])] == [
        1,
        0,
        1,
    ]
    assert convo(*change, "--forecast", "--curl").exit == 2


def test_the_terminal_shows_one_fact_a_line(convo: Convo, servers: dict[str, RulesServer]) -> None:
    begin(convo, OPENAI, turns=2)
    alone = convo("next", "mine", "and then?", "--forecast").out.splitlines()
    both = convo("next", "mine", "and then?", "--forecast", "-m", SMALLER).out.splitlines()
    assert [line.split("  ")[0].strip() for line in both] == [
        "",
        "model",
        "input",
        "window",
        "read from the cache",
        "written to the cache",
        "lost reasoning items",
        "cost of the input",
        "cost of the output, as before",
        "cost of each later request",
        "",
        "break-even",
    ]
    assert "as it is" in both[0]
    assert "perhaps 2" in both[6]
    assert "break-even" not in "".join(alone)
