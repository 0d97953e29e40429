"""With --keep-prefix a changed conversation loses nothing at servers that enforce the rules of the vendors."""

import json
import random
from collections.abc import Iterator
from contextlib import ExitStack
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.combinations import rotated_combinations
from tests.command_runner import Convo
from tests.terminal.plain_repl import run_repl
from tests.vendor_rules import anthropic_server, openai_server
from tests.vendor_rules.anthropic_server import AnthropicRules, run_anthropic_server
from tests.vendor_rules.openai_server import OpenAIRules, run_openai_server
from tests.vendor_rules.rules_server import RulesServer

GPT_6_1, GPT_6_2 = "openai/gpt-6.1-sol", "openai/gpt-6.2-sol"
CLAUDE, OLDER_CLAUDE = "anthropic/claude-fable-5-2", "anthropic/claude-sonnet-4-5"
NOVEMBER_28 = 1_795_824_000.0
LONG_TEXT = "word " * 1_500


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, RulesServer]]:
    """Servers that enforce the rules, as the providers `openai` and `anthropic`."""
    gpt = {model.partition("/")[2]: [openai_server.Price(Decimal(2), Decimal(10))] for model in (GPT_6_1, GPT_6_2)}
    gpt["gpt-5.6-sol"] = gpt["gpt-6.1-sol"]
    claude = {
        model.partition("/")[2]: [anthropic_server.Price(Decimal(2), Decimal(10))] for model in (CLAUDE, OLDER_CLAUDE)
    }
    with ExitStack() as stack:
        openai = stack.enter_context(run_openai_server(OpenAIRules(gpt), NOVEMBER_28))
        anthropic = stack.enter_context(run_anthropic_server(AnthropicRules(claude), NOVEMBER_28))
        monkeypatch.setenv("OPENAI_BASE_URL", openai.url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", anthropic.url.removesuffix("/v1"))
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        yield {"openai": openai, "anthropic": anthropic}


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}}


def tools(*names: str) -> list[str]:
    return ["--param", f"tools={json.dumps([function(name) for name in names])}"]


def begin(convo: Convo, model: str, *flags: str) -> None:
    got = convo("chat", "-m", model, "-n", "mine", "-s", "Be brief.", *flags, LONG_TEXT)
    assert got.exit == 0, got.err


def ask(convo: Convo, *flags: str) -> str:
    """Send a message with --keep-prefix; return what was printed on stderr."""
    got = convo("chat", "--from", "mine", "--keep-prefix", *flags, "and now?")
    assert got.exit == 0, got.err
    return got.err


def count_lost(server: RulesServer) -> list[tuple[int, int]]:
    """Return for each response the removed reasoning items, and the tokens of the cache that it did not read again."""
    lost, cached_before = [], 0
    for answer in server.answers:
        lost.append((len(answer.response["input_transformations"]), max(0, cached_before - answer.bill.cached)))
        cached_before = answer.bill.cached + sum(answer.bill[2:4])
    return lost


@pytest.mark.parametrize("model", [GPT_6_1, CLAUDE])
def test_the_turns_after_an_appended_instruction_keep_the_prefix_without_the_option(
    model: str, convo: Convo, servers: dict[str, RulesServer]
) -> None:
    begin(convo, model)
    ask(convo, "-s", "Be long.")
    for _ in range(2):
        got = convo("chat", "--from", "mine", "and then?")
        assert (got.exit, "changes the prefix" in got.err) == (0, False), got.err
    assert [lost for lost in count_lost(servers[model.partition("/")[0]]) if any(lost)] == []


CHANGES = {
    "instructions": [["-s", "Be long."], ["-s", "Be kind."], ["-s", "Be brief."]],
    "effort": [["--reasoning-effort", effort] for effort in ("low", "high", "max")],
    "schema": [["--schema", "schema.json"], ["--param", 'text.format={"type": "text"}'], []],
    "tools": [tools("add"), tools("add", "subtract"), tools("divide"), tools("subtract", "divide"), []],
}


@pytest.mark.parametrize(
    ("owner", "model"), rotated_combinations(["--session", "--chain", "--replay"], [GPT_6_1, GPT_6_2])
)
@pytest.mark.parametrize("seeds", [range(1), pytest.param(range(1, 15), marks=pytest.mark.full, id="14 sessions")])
def test_random_changes_lose_no_reasoning_and_no_cache(
    convo: Convo, servers: dict[str, RulesServer], seeds: range, model: str, owner: str
) -> None:
    Path("schema.json").write_text(json.dumps({"type": "object", "additionalProperties": False}), "utf-8")
    for seed in seeds:
        choose = random.Random(seed)
        servers["openai"].answers.clear()
        name = ["--from", f"./talk{seed}.json"] if owner == "--replay" else ["-n", f"talk{seed}"]
        assert convo("chat", "-m", model, owner, *name, "-s", "Be brief.", LONG_TEXT).exit == 0
        in_force: dict[str, Any] = {"effort": None, "format": {"type": "text"}}
        for _ in range(20):
            chosen = {kind: choose.choice(values) for kind, values in CHANGES.items() if choose.random() < 0.5}
            flags = [flag for values in chosen.values() for flag in values]
            handle = f"./talk{seed}.json" if owner == "--replay" else f"talk{seed}"
            previewed = convo("next", handle, "and now?", "--keep-prefix", *flags, "--json").json()
            got = convo("chat", "--from", handle, "--keep-prefix", "--strict-prefix", *flags, "and now?")
            assert (got.exit, "warning" in got.err) == (0, False), got.err
            sent = servers["openai"].requests[-1].json
            assert previewed["body"] == sent
            check_in_force(servers["openai"].answers[-1].effective, sent, chosen, in_force)
        assert set(count_lost(servers["openai"])) == {(0, 0)}


def check_in_force(effective: Any, sent: Any, chosen: dict[str, Any], in_force: dict[str, Any]) -> None:
    """Compare what the server applied with what was asked; the effort and the schema stay in force."""
    if chosen.get("effort"):
        in_force["effort"] = chosen["effort"][1]
    if chosen.get("schema"):
        in_force["format"] = {"type": "json_schema" if chosen["schema"][0] == "--schema" else "text"}
    assert (effective["effort"], effective["format"]["type"]) == (in_force["effort"], in_force["format"]["type"])
    wanted = {tool["name"] for tool in json.loads(chosen["tools"][1][6:])} if chosen.get("tools") else set()
    choice = sent.get("tool_choice", "auto")
    offered = {tool["name"] for tool in sent.get("tools", ())} | set(effective["tools"])
    allowed = set() if choice == "none" else offered if choice == "auto" else {tool["name"] for tool in choice["tools"]}
    assert allowed == wanted


OWNERS = ["--session", *(pytest.param(owner, marks=pytest.mark.full) for owner in ("--chain", "--conversation"))]


@pytest.mark.parametrize("owner", OWNERS)
def test_claude_gets_other_instructions_as_a_system_message_after_the_users(
    convo: Convo, servers: dict[str, RulesServer], owner: str
) -> None:
    begin(convo, CLAUDE, owner)
    choose, texts = random.Random(owner), ["Be brief."]
    for _ in range(20):
        texts.append(choose.choice(["Be brief.", "Be long.", "Be kind."]))
        assert "warning" not in ask(convo, "-s", texts[-1])
    sent = servers["anthropic"].requests[-1].json
    assert sent["system"] == [{"type": "text", "text": "Be brief."}]
    later = [message["content"][0]["text"] for message in sent["messages"] if message["role"] == "system"]
    assert later == [text for before, text in pairwise(texts) if text != before]
    assert set(count_lost(servers["anthropic"])) == {(0, 0)}


NO_WAY = [
    (GPT_6_1, ["--verbosity", "low"], "text.verbosity"),
    (GPT_6_1, ["--reasoning-effort", "high", "--param", "reasoning.mode=pro"], "reasoning.effort"),
    (GPT_6_1, ["--param", 'text.format={"type": "json_object"}'], "text.format"),
    ("openai/gpt-5.6-sol", ["-s", "Be long."], "instructions"),
    (CLAUDE, ["--reasoning-effort", "low"], "reasoning.effort"),
    (OLDER_CLAUDE, ["-s", "Be long."], "instructions"),
]


@pytest.mark.parametrize(("model", "flags", "name"), NO_WAY)
def test_a_change_that_cannot_be_appended_is_sent_as_it_is_with_the_warning(
    convo: Convo, servers: dict[str, RulesServer], model: str, flags: list[str], name: str
) -> None:
    begin(convo, model)
    printed = ask(convo, *flags)
    assert f"--keep-prefix cannot append this change of {name} on {model}" in printed, printed


def test_a_new_effort_applies_until_another_one_also_after_a_compaction_and_without_the_option(
    convo: Convo, servers: dict[str, RulesServer]
) -> None:
    def efforts() -> list[str]:
        items = servers["openai"].requests[-1].json["input"]
        return [item["reasoning"]["effort"] for item in items if item["type"] == "configuration_update"]

    begin(convo, GPT_6_1, "--reasoning-effort", "low")
    ask(convo, "--reasoning-effort", "high")
    ask(convo)
    assert efforts() == ["high"]
    assert convo("config", "set", "request.reasoning_effort", "low").exit == 0
    ask(convo)
    assert (efforts(), servers["openai"].answers[-1].effective["effort"]) == (["high"], "high")
    assert convo("chat", "--from", "mine", "--reasoning-effort", "max", "and now?").exit == 0
    assert (efforts(), servers["openai"].answers[-1].effective["effort"]) == (["high", "max"], "max")
    assert convo("compact", "mine").exit == 0
    ask(convo)
    assert efforts() == ["max"]
    shown = convo("inspect", "mine", "--items").out
    assert "configuration_update" in shown


def test_a_retry_and_an_undone_turn_send_each_change_once(servers: dict[str, RulesServer]) -> None:
    lines = [LONG_TEXT, "/system Be long.", "/effort high", "two", "/retry", "/undo", "/effort low", "three"]
    lines += ["/effort max", "/retry", "/effort -"]
    got = run_repl("-m", GPT_6_1, "--keep-prefix", "-n", "mine", "-s", "Be brief.", lines=lines)
    assert "warning" not in got.err, got.err
    sent = [request.json for request in servers["openai"].requests]
    assert {body["instructions"] for body in sent} == {"Be brief."}
    effective = [answer.effective["effort"] for answer in servers["openai"].answers]
    assert effective == [None, "high", "high", "low", "max"]
    changes = [[item["type"] for item in body["input"][3:-1]] for body in sent]
    once = ["configuration_update", "message"]
    assert changes == [[], once, once, once, [*once, "message"]]
    assert sent[-1]["input"][-1] == {"type": "configuration_update", "reasoning": {"effort": "max"}}
    assert "reasoning.effort max  (by a configuration_update of the history)" in got.err


AGENTS = """
from convo.agents import Agent
from convo.tools import tool

@tool(needs_approval=True)
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b

@tool
def subtract(a: int, b: int) -> int:
    "Subtract two numbers."
    return a - b

calculator = Agent("calculator", instructions={instructions!r}, tools=({tools},))
"""


def test_a_run_keeps_the_prefix_when_its_agent_changed_before_it_or_during_a_pause(
    convo: Convo, servers: dict[str, RulesServer]
) -> None:
    agents = {"one": ("Add.", "add"), "two": ("Go.", "add, subtract"), "three": ("Sum.", "add")}
    for name, (instructions, names) in agents.items():
        Path(f"{name}.py").write_text(AGENTS.format(instructions=instructions, tools=names), "utf-8")
    one, two, three = (["--agent", f"{name}.py:calculator"] for name in agents)
    assert convo("chat", "-m", GPT_6_1, "-n", "mine", *one, LONG_TEXT).exit == 0
    previewed = convo("next", "mine", "and now?", "--keep-prefix", *two, "--json").json()
    call = {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1, "b": 2}'}
    servers["openai"].replies.append([{"type": "reasoning", "summary": []}, call])
    paused = convo("chat", "--from", "mine", "--keep-prefix", *two, "and now?")
    assert (paused.exit, "warning" in paused.err) == (3, False), paused.err
    assert previewed["body"] == servers["openai"].requests[-1].json

    resumed = convo("resume", "mine", "--keep-prefix", "--approve", "all", *three)

    assert (resumed.exit, "warning" in resumed.err) == (0, False), resumed.err
    body = servers["openai"].requests[-1].json
    assert (body["instructions"], [tool["name"] for tool in body["tools"]]) == ("Add.", ["add"])
    developer = [item for item in body["input"] if item.get("role") == "developer"]
    added, *messages = [item.get("tools", [{}])[0].get("name") or item["content"][0]["text"] for item in developer]
    assert (added, messages) == ("subtract", ["Go.", "Sum."])
    assert body["tool_choice"]["tools"] == [{"type": "function", "name": "add"}]
    assert set(count_lost(servers["openai"])) == {(0, 0)}
    assert convo("export", "mine", "--format", "runstate", *three).exit == 0
    again = convo("chat", "--from", "mine", "again")
    assert ("warning" in again.err, set(count_lost(servers["openai"]))) == (False, {(0, 0)}), again.err


def test_a_converted_history_offers_its_tools_once_and_a_handle_repeats_what_is_in_force(
    convo: Convo, servers: dict[str, RulesServer]
) -> None:
    begin(convo, GPT_6_1)
    ask(convo, "--reasoning-effort", "high", *tools("add", "subtract"))
    response_id = servers["openai"].answers[-1].response["id"]
    for flags in ([], ["--keep-prefix"]):
        body = convo("next", response_id, "and now?", *flags, "--json").json()["body"]
        assert [item["type"] for item in body["input"][-2:]] == ["message", "message"]
        assert {"tools", "tool_choice", "reasoning"}.isdisjoint(body)
    assert convo("convert", "mine", "--to", "chain").exit == 0
    got = convo("chat", "-c", "--keep-prefix", *tools("divide", "add"), "and now?")
    assert got.exit == 0, got.err
    sent = servers["openai"].requests[-1].json
    assert [tool["name"] for tool in sent["tools"]] == ["divide"]
    assert [tool["name"] for tool in sent["tool_choice"]["tools"]] == ["divide", "add"]
    assert servers["openai"].answers[-1].effective["effort"] == "high"
