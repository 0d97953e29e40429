"""A request that changes the prefix says before it is sent what it loses; `next` shows it, and a chat warns."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.command_runner import Convo
from tests.models.chat_server import ChatServer, run_chat_server
from tests.models.messages_events import sse, stop
from tests.terminal.plain_repl import run_repl

TOOLS = """
def add(a: int, b: int) -> int:
    "Add two numbers."
    return a + b
"""
AGENTS = """
from convo.agents import Agent
billing = Agent("billing", instructions="Refund.", handoffs=())
triage = Agent("triage", instructions="Hand over.", handoffs=(billing,))
"""
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
USAGE = {
    "input_tokens": 10_000,
    "input_tokens_details": {"cached_tokens": 2_000, "cache_write_tokens": 8_000},
    "output_tokens": 400,
    "output_tokens_details": {"reasoning_tokens": 300},
    "total_tokens": 10_400,
}


@pytest.fixture
def servers(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ChatServer]]:
    """Scripted servers as the providers `openai` and `anthropic`."""
    with run_chat_server() as openai, run_chat_server() as anthropic:
        monkeypatch.setenv("OPENAI_BASE_URL", openai.url)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", anthropic.url.removesuffix("/v1"))
        monkeypatch.setenv("OPENAI_API_KEY", "test-key")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        yield {"openai": openai, "anthropic": anthropic}


def answer(servers: dict[str, ChatServer], model: str, number: int, **fields: Any) -> None:
    """Answer the next request with a sealed reasoning item and a message, for 10,000 cached tokens."""
    vendor = model.partition("/")[0]
    if vendor == "anthropic":
        usage = {"input_tokens": 0, "cache_read_input_tokens": 2_000, "cache_creation_input_tokens": 8_000}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude", "content": []}
        thinking = {"type": "thinking", "thinking": "", "signature": f"seal {number}"}
        blocks = [thinking, {"type": "text", "text": "Hi."}]
        content: list[Any] = [
            event
            for index, block in enumerate(blocks)
            for event in (
                {"type": "content_block_start", "index": index, "content_block": block},
                {"type": "content_block_stop", "index": index},
            )
        ]
        start: Any = {"type": "message_start", "message": {**message, "usage": usage}}
        servers[vendor].stream(*(sse(event) for event in [start, *content]), *stop(), end=b"")
        return
    output = [
        {"id": f"rs_{number}", "type": "reasoning", "summary": [], "encrypted_content": f"seal {number}"},
        {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": "Hi.", "annotations": []}],
        },
    ]
    previous = {"previous_response_id": f"resp_{number - 1}" if number > 1 else None}
    response = {"id": f"resp_{number}", "object": "response", "status": "completed", "output": output, **previous}
    start = {"type": "response.created", "response": {**response, "status": "in_progress", "output": []}}
    servers[vendor].stream(start, {"type": "response.completed", "response": {**response, "usage": USAGE, **fields}})


def begin(convo: Convo, servers: dict[str, ChatServer], model: str, *owner: str) -> None:
    """Make the session `mine` with two turns."""
    answer(servers, model, 1)
    answer(servers, model, 2)
    got = convo("chat", *owner, "-m", model, "-n", "mine", "-s", "Be brief.", "one")
    assert got.exit == 0, got.err
    got = convo("chat", "-c", "two")
    assert (got.exit, "warning" in got.err) == (0, False), got.err


TOOLS_ARGUMENT = 'tools=[{"type": "web_search"}]'
PREVIEWS: list[tuple[str, list[str], tuple[str, str, list[str]] | None]] = [
    ("openai/gpt-6.2-sol", [], None),
    ("openai/gpt-6.2-sol", ["--max-output-tokens", "100"], None),
    ("openai/gpt-6.2-sol", ["-s", "Be long."], None),
    ("openai/gpt-6.2-sol", ["--reasoning-effort", "high"], ("reasoning_effort_changed", "yes", [])),
    ("openai/gpt-6.2-sol", ["--schema", "schema.json"], ("text_format_changed", "yes", ["yes", "yes"])),
    ("openai/gpt-6.2-sol", ["--param", TOOLS_ARGUMENT], ("tools_changed", "yes", ["yes", "yes"])),
    ("openai/gpt-6.2-sol", ["-m", "openai/gpt-6.1-sol"], ("model_changed", "yes", ["may", "may"])),
    ("openai/gpt-6.1-sol", [], None),
    ("openai/gpt-6.1-sol", ["-s", "Be long."], ("instructions_changed", "yes", [])),
    ("openai/gpt-6.1-sol", ["--verbosity", "low"], ("verbosity_changed", "yes", [])),
    ("anthropic/claude-fable-5-2", [], None),
    ("anthropic/claude-fable-5-2", ["-s", "Be long."], ("instructions_changed", "yes", ["yes", "yes"])),
    ("anthropic/claude-fable-5-2", ["--reasoning-effort", "low"], ("reasoning_effort_changed", "yes", [])),
    ("anthropic/claude-fable-5-2", ["--reasoning-effort", "high"], ("reasoning_effort_changed", "may", [])),
    ("anthropic/claude-opus-5-5", ["-s", "Be long."], ("instructions_changed", "yes", ["may", "may"])),
]


@pytest.mark.parametrize(("model", "flags", "expected"), PREVIEWS)
def test_next_previews_what_a_change_loses(
    convo: Convo, servers: dict[str, ChatServer], model: str, flags: list[str], expected: Any
) -> None:
    begin(convo, servers, model)
    Path("schema.json").write_text(json.dumps(SCHEMA), "utf-8")

    got = convo("next", "mine", "three", *flags, "--json")

    prefix = got.json()["prefix"]
    found = prefix and (
        prefix["change"],
        prefix["cache_loss"],
        [item["certainty"] for item in prefix["lost_reasoning"]],
    )
    assert (found, got.err) == (expected, "")
    if expected:
        assert prefix["lost_tokens"] == pytest.approx(10_000, rel=0.15)
        assert prefix["lost_usd"] > 0
        assert [item["item"] for item in prefix["lost_reasoning"]] in ([], [1, 4], [2, 5])


CHAT_CHANGES: list[tuple[str, list[str], str]] = [
    ("openai/gpt-6.1-sol", ["-s", "Be long."], "instructions changed) and loses 10,000 cached tokens ($0.0"),
    ("openai/gpt-6.2-sol", ["--tool", "desk.py:add"], "tools changed) and loses 10,000 cached tokens ($0.0"),
    ("openai/gpt-6.2-sol", ["--reasoning-effort", "high"], "append a configuration_update item"),
    ("openai/gpt-6.2-sol", ["--tool", "desk.py:add", "--session-limit", "3"], "1 reasoning item (300 tokens)"),
    ("anthropic/claude-fable-5-2", ["-s", "Be long."], "append a system message"),
]


@pytest.mark.parametrize(("model", "flags", "expected"), CHAT_CHANGES)
def test_a_chat_warns_in_one_line_or_refuses_before_anything_is_stored(
    convo: Convo, servers: dict[str, ChatServer], model: str, flags: list[str], expected: str
) -> None:
    begin(convo, servers, model)
    Path("desk.py").write_text(TOOLS, "utf-8")
    before = convo("inspect", "mine", "--json").json()

    refused = convo("chat", "-c", "--strict-prefix", *flags, "three")

    assert (refused.exit, expected in refused.err) == (1, True), refused.err
    vendor = model.partition("/")[0]
    assert len(servers[vendor].requests) == 2
    assert convo("inspect", "mine", "--json").json() == before
    answer(servers, model, 3)
    got = convo("chat", "-c", *flags, "three")
    assert got.exit == 0
    warnings = [line for line in got.err.splitlines() if line.startswith("warning: ")]
    assert (len(warnings), expected in warnings[0]) == (1, True), got.err
    answer(servers, model, 4)
    again = convo("chat", "-c", *flags, "four")
    assert (again.exit, "warning" in again.err) == (0, "--session-limit" in flags), again.err


def test_a_refused_tool_is_not_kept_for_the_next_message(convo: Convo, servers: dict[str, ChatServer]) -> None:
    model = "openai/gpt-6.2-sol"
    begin(convo, servers, model)
    Path("desk.py").write_text(TOOLS, "utf-8")
    assert convo("chat", "-c", "--strict-prefix", "--tool", "desk.py:add", "refused").exit == 1
    answer(servers, model, 3)
    got = convo("chat", "-c", "--strict-prefix", "three")
    assert (got.exit, "desk.py" in got.err) == (0, False), got.err
    body = servers["openai"].requests[-1].json
    assert ("tools" in body, "refused" in json.dumps(body["input"])) == (False, False)


@pytest.mark.parametrize("owner", ["--session", "--replay", "--chain"])
def test_each_owner_warns_of_other_instructions(convo: Convo, servers: dict[str, ChatServer], owner: str) -> None:
    begin(convo, servers, "openai/gpt-6.1-sol", owner)
    answer(servers, "openai/gpt-6.1-sol", 3)
    got = convo("chat", "-c", "-s", "Be long.", "three")
    assert "warning: the next request changes the prefix (instructions changed) and loses 10,000 cached" in got.err


def test_an_edited_replay_file_loses_the_reasoning_after_the_edit(convo: Convo, servers: dict[str, ChatServer]) -> None:
    model = "openai/gpt-6.2-sol"
    begin(convo, servers, model, "--replay", "--from", "./talk.json")
    file = Path("talk.json")
    file.write_text(file.read_text("utf-8").replace("two", "other"), "utf-8")
    answer(servers, model, 3)
    got = convo("chat", "-c", "three")
    assert "(item edited, message 5, at content[0].text) and loses" in got.err
    assert "1 reasoning item (300 tokens); instead: leave the earlier items as they are" in got.err


@pytest.mark.parametrize("nesting", ["--nest-history", "--no-nest-history"])
def test_a_handoff_warns_of_the_prefix_of_the_next_agent_and_the_way_back_does_not(
    convo: Convo, servers: dict[str, ChatServer], nesting: str
) -> None:
    Path("desk.py").write_text(AGENTS, "utf-8")
    model = "openai/gpt-6.1-sol"
    call = {"type": "function_call", "call_id": "c1", "name": "transfer_to_billing", "arguments": "{}"}
    answer(servers, model, 1, output=[{**call, "id": "fc_1", "status": "completed"}])
    answer(servers, model, 2)
    answer(servers, model, 3)
    got = convo("chat", "-m", model, "-n", "mine", "--agent", "desk.py:triage", nesting, "one")
    again = convo("chat", "-c", "--start-agent", "triage", "two")
    warnings = [line for line in (got.err + again.err).splitlines() if line.startswith("warning: the next request")]
    assert len(warnings) == 1, (got.err, again.err)
    assert ("(tools changed) and loses 10,000 cached tokens" in warnings[0], "instead" in warnings[0]) == (True, False)


def test_an_interactive_chat_warns_once_of_each_change(servers: dict[str, ChatServer]) -> None:
    model = "openai/gpt-6.1-sol"
    for number in range(1, 10):
        answer(servers, model, number)
    lines = ["one", "two", "/system Be long.", "three", "four", "/model openai/gpt-6-luna", "five"]
    for effort in ("low", "high", "medium", "low"):  # the last one returns to a prefix that is still cached
        lines += [f"/effort {effort}", effort]
    got = run_repl("-m", model, "-n", "mine", "-s", "Be brief.", lines=lines)
    warnings = [line for line in got.err.splitlines() if "changes the prefix" in line]
    changes = ["instructions changed", "model changed", *["reasoning effort changed"] * 3]
    assert [change in warning for change, warning in zip(changes, warnings, strict=True)] == [True] * 5, got.err


def test_a_compaction_says_what_the_next_request_loses_and_the_next_turn_does_not_repeat_it(
    convo: Convo, servers: dict[str, ChatServer]
) -> None:
    model = "openai/gpt-6.2-sol"
    begin(convo, servers, model)
    compaction = {"id": "cmp_1", "type": "compaction", "encrypted_content": "sealed"}
    compacted = {"id": "resp_3", "object": "response.compaction", "output": [compaction], "usage": USAGE}
    servers["openai"].respond(json.dumps(compacted).encode())

    got = convo("compact", "mine", "--json")

    prefix = got.json()["prefix"]
    assert (prefix["change"], prefix["lost_tokens"] > 5_000) == ("context_compacted", True)
    assert "the next request changes the prefix (context compacted, " in got.err
    answer(servers, model, 4)
    after = convo("chat", "-c", "--strict-prefix", "three")
    assert (after.exit, "warning" in after.err) == (0, False), after.err


REMOVED = [
    {"id": f"rs_{number}", "type": "reasoning", "action": "removed", "reason": "prefix_mismatch"} for number in (1, 2)
]


@pytest.mark.parametrize(
    ("flags", "reported", "expected"),
    [
        ([], REMOVED, "2 of the removed reasoning items not expected"),
        (["--param", TOOLS_ARGUMENT], REMOVED, ""),
        (["--param", TOOLS_ARGUMENT], REMOVED[:1], "1 expected as removed and not reported"),
    ],
)
def test_chat_and_inspect_show_where_the_provider_differs_from_the_forecast(
    convo: Convo, servers: dict[str, ChatServer], flags: list[str], reported: Any, expected: str
) -> None:
    model = "openai/gpt-6.2-sol"
    begin(convo, servers, model)
    answer(servers, model, 3, input_transformations=reported)
    got = convo("chat", "-c", *flags, "three", "--json")
    assert got.exit == 0
    shown = [line.split(None, 1)[1] for line in convo("inspect", "mine").out.splitlines() if "forecast " in line]
    assert shown == ([expected] if expected else [])
    assert f"note: the provider removed other reasoning than forecast: {expected}\n" in got.err or not expected
    lost = (got.json()["prefix"] or {"lost_reasoning": []})["lost_reasoning"]
    assert ([item["item"] for item in lost], got.json()["wrong_forecast"]) == (
        [2, 5] if flags else [],
        expected or None,
    )
    assert convo("inspect", "mine", "--json").json().get("wrong_forecast") == (expected or None)
    answer(servers, model, 4, input_transformations=reported)  # what stays removed is no news
    assert "note: " not in convo("chat", "-c", *flags, "four").err


def test_the_setting_refuses_a_changed_prefix_too(convo: Convo, servers: dict[str, ChatServer]) -> None:
    begin(convo, servers, "openai/gpt-6.1-sol")
    assert convo("config", "set", "strict_prefix", "true").exit == 0
    got = convo("next", "mine", "-s", "Be long.", "--json")
    assert (got.exit, got.json()["error"]["code"]) == (1, "prefix_changed")
    assert convo("next", "mine", "more").exit == 0


def answer_compaction(openai: ChatServer, number: int) -> None:
    """Answer a compaction, and its two requests for a number of tokens."""
    output = [{"id": f"cmp_{number}", "type": "compaction", "encrypted_content": f"sealed {number}"}]
    openai.respond(json.dumps({"object": "response.compaction", "output": output, "usage": USAGE}).encode())
    openai.refuse(404, {})
    openai.refuse(404, {})


LOST_BY_COMPACTION = "the next request changes the prefix (context compacted, compaction 1) and loses 10,000 cached"


def test_an_interactive_chat_says_what_compaction_loses_once_and_that_an_edited_last_message_loses_nothing(
    convo: Convo, servers: dict[str, ChatServer]
) -> None:
    model, openai = "openai/gpt-6.2-sol", servers["openai"]
    for number in (1, 2, 3):
        answer(servers, model, number)
    answer_compaction(openai, 1)
    for number in (4, 5):
        answer(servers, model, number)
    lines = ["one", "two", "/edit other", "/compact", "three", "four"]
    got = run_repl("-m", model, "-n", "mine", "--strict-prefix", lines=lines)
    notices = [line for line in got.err.splitlines() if "prefix" in line]
    assert (len(notices), LOST_BY_COMPACTION in notices[0], "; the next" in notices[0]) == (1, True, True), got.err

    assert convo("config", "set", "compact_at", "9000").exit == 0
    answer_compaction(openai, 2)
    answer(servers, model, 6)
    got = convo("chat", "-c", "--strict-prefix", "five")
    assert (got.exit, got.err.count("prefix"), LOST_BY_COMPACTION in got.err) == (0, 1, True), got.err


def test_lint_and_repair_name_the_reasoning_behind_an_edit_and_a_repair_says_what_it_loses(
    convo: Convo, servers: dict[str, ChatServer]
) -> None:
    model = "openai/gpt-6.2-sol"
    begin(convo, servers, model, "--replay", "--from", "./talk.json")
    assert "no problems" in convo("lint", "./talk.json").out
    items = json.loads(Path("talk.json").read_text("utf-8"))
    last = next(item for item in reversed(items) if item.get("role") == "user")
    last["content"] = "other"
    Path("talk.json").write_text(json.dumps(items), "utf-8")

    (finding,) = convo("lint", "./talk.json", "--json").json()["findings"]

    cause = "(item edited, message 5, at content)"
    assert (finding["code"], finding["type"], finding["response_id"]) == ("changed-prefix", "reasoning", "resp_2")
    assert finding["message"] == f"this reasoning was made with another prefix {cause}: {model} does not receive it"
    got = convo("repair", "./talk.json", "--as", "fixed", "--json")
    change = next(change for change in got.json()["changes"] if change["code"])
    assert (change["change"], change["id"], cause in change["message"]) == ("kept", "rs_2", True)
    prefix = got.json()["prefix"]
    assert (prefix["change"], [lost["item"] for lost in prefix["lost_reasoning"]]) == ("item_edited", [5])
    assert f"the next request changes the prefix {cause} and loses" in got.err


def test_lint_names_the_reasoning_of_earlier_tools(convo: Convo, servers: dict[str, ChatServer]) -> None:
    model = "anthropic/claude-opus-5-5"
    begin(convo, servers, model)
    answer(servers, model, 3)
    assert convo("chat", "-c", "-s", "Be long.", "three").exit == 0
    got = convo("lint", "mine")
    text = f"this reasoning was made with another prefix (instructions changed): {model} may not receive it"
    assert (got.exit, got.out.count(text)) == (0, 2), got.out


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("openai/gpt-6.2-sol", None),
        ("openai/gpt-6.1-sol", ("model_changed", True)),
        ("anthropic/claude-fable-5-2", ("model_changed", True)),
    ],
)
def test_a_conversion_says_what_another_model_loses(
    convo: Convo, servers: dict[str, ChatServer], target: str, expected: Any
) -> None:
    begin(convo, servers, "openai/gpt-6.2-sol")
    got = convo("convert", "mine", "--to", "replay", "-m", target, "--dry-run", "--json")
    prefix = got.json()["prefix"]
    assert (prefix and (prefix["change"], prefix["lost_tokens"] == 10_000)) == expected
    assert ("changes the prefix" in got.err) == bool(expected), got.err


RESUMED_AGENTS = """
from convo.agents import Agent
from convo.tools import tool

@tool(needs_approval=True)
def add(a: int, b: int) -> int:
    "Add two numbers."
    open("ran.txt", "a").close()
    return a + b

desk = Agent("desk", instructions="Be brief.", tools=(add,))
"""


@pytest.mark.parametrize(
    ("old", "new", "flags", "expected"),
    [
        ("", "", [], ""),
        ("Be brief.", "Be long.", [], "(instructions changed) and loses 10,000 cached"),
        ("Add two", "Add three", [], "(tools changed, at [0].description) and loses 10,000 cached"),
        ("", "", ["-m", "openai/gpt-6-luna"], "(model changed) and loses 10,000 cached"),
    ],
)
def test_a_resume_with_another_agent_than_before_the_pause_warns_or_refuses_before_the_tool_runs(
    convo: Convo, servers: dict[str, ChatServer], old: str, new: str, flags: list[str], expected: str
) -> None:
    model, openai = "openai/gpt-6.1-sol", servers["openai"]
    Path("desk.py").write_text(RESUMED_AGENTS, "utf-8")
    Path("other.py").write_text(RESUMED_AGENTS.replace(old, new), "utf-8")
    call = {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": '{"a": 1, "b": 2}'}
    answer(servers, model, 1, output=[{**call, "status": "completed"}])
    assert convo("chat", "-m", model, "-n", "mine", "--agent", "desk.py:desk", "one").exit == 3
    resume = ["resume", "mine", "--agent", "other.py:desk", *flags]
    if expected:
        refused = convo(*resume, "--approve", "all", "--strict-prefix")
        assert (refused.exit, expected in refused.err) == (1, True), refused.err
        assert (Path("ran.txt").exists(), len(openai.requests)) == (False, 1)
    openai.respond(b'{"data": []}')  # whether the provider is reachable
    answer(servers, model, 2)
    got = convo(*resume, *([] if expected else ["--approve", "all"]))
    assert (got.exit, Path("ran.txt").exists()) == (0, True), got.err
    warnings = [line for line in got.err.splitlines() if line.startswith("warning: ")]
    assert [expected in warning for warning in warnings] == [True] * bool(expected), got.err


def test_strict_prefix_accepts_a_return_to_a_prefix_that_is_still_cached(
    convo: Convo, servers: dict[str, ChatServer]
) -> None:
    model = "openai/gpt-6.1-sol"
    begin(convo, servers, model)
    answer(servers, model, 3)
    assert convo("chat", "-c", "--reasoning-effort", "high", "three").exit == 0
    answer(servers, model, 4)
    got = convo("chat", "-c", "--strict-prefix", "four")
    assert (got.exit, "prefix" in got.err) == (0, False), got.err
