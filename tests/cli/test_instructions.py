"""The instructions of -s with models that append the field `instructions` uncached: they are developer messages there.

The server of these tests is the provider `openai`; the scripted model answers under any name.
"""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from convo.history.items import developer_message, user_message
from convo.strategies.instructions import ENDED_INSTRUCTIONS
from tests.cli.chat_commands import LONG
from tests.cli.serve_process import run_serve
from tests.combinations import rotated_combinations
from tests.command_runner import Convo
from tests.loopback_server import Fault, LoopbackServer
from tests.terminal.plain_repl import run_repl

OWNERS = ("--session", "--replay", "--chain", "--conversation")
NEW, OLD = "openai/gpt-6.2-sol-2026-11-17", "openai/gpt-6.1-sol"
BRIEF, KIND = developer_message("Be brief."), developer_message("Be kind.")


def chat(convo: Convo, server: LoopbackServer, *argv: str) -> Any:
    """Send a message; return the body of its request."""
    got = convo("chat", "-q", *argv)
    assert got.exit == 0, got.err
    return server.bodies[-1]


def received_instructions(server: LoopbackServer) -> list[Any]:
    """The developer messages in the last input of the model, with those that its owner prepended."""
    return [item["content"] for item in server.scripts.requests[-1].input if item.get("role") == "developer"]


def contents(*messages: dict[str, Any]) -> list[Any]:
    return [message["content"] for message in messages]


@pytest.mark.parametrize("owner", OWNERS)
def test_instructions_are_the_first_message_once_and_a_change_appends_one(
    convo: Convo, server: LoopbackServer, owner: str
) -> None:
    is_client_side = owner in ("--session", "--replay")

    first = chat(convo, server, owner, "-n", "mine", "-m", NEW, "-s", "Be brief.", "one")
    assert first["input"][0] == BRIEF
    second = chat(convo, server, "--from", "mine", "two")
    assert (second["input"][0] == BRIEF) is is_client_side
    third = chat(convo, server, "--from", "mine", "-s", "Be kind.", "three")
    assert third["input"][-2] == KIND
    fourth = chat(convo, server, "--from", "mine", "four")

    assert not any("instructions" in body for body in server.bodies)
    assert received_instructions(server) == contents(BRIEF, KIND)
    if is_client_side:
        for earlier, later in zip(server.bodies, server.bodies[1:], strict=False):
            assert later["input"][: len(earlier["input"])] == earlier["input"]
    else:
        assert len(fourth["input"]) == 1
    assert convo("sessions", "show", "mine", "--json").json()["instructions"] == "Be kind."
    assert convo("lint", "mine").exit == 0


@pytest.mark.parametrize("owner", OWNERS)
def test_a_model_before_the_rule_gets_the_field_again(convo: Convo, server: LoopbackServer, owner: str) -> None:
    chat(convo, server, owner, "-n", "mine", "-m", OLD, "-s", "Be brief.", "one")
    assert server.bodies[-1]["instructions"] == "Be brief."
    into = chat(convo, server, "--from", "mine", "-m", NEW, "two")
    assert "instructions" not in into
    assert into["input"][-2] == BRIEF

    out = chat(convo, server, "--from", "mine", "-m", OLD, "three")
    assert out["instructions"] == "Be brief."
    assert BRIEF not in out["input"]
    changed = chat(convo, server, "--from", "mine", "-m", OLD, "-s", "Be kind.", "four")
    assert changed["instructions"] == "Be kind."
    assert changed["input"][-2] == KIND  # the earlier message would contradict the field

    back = chat(convo, server, "--from", "mine", "-m", NEW, "five")
    assert "instructions" not in back
    assert received_instructions(server) == contents(BRIEF, KIND)


@pytest.mark.parametrize("owner", OWNERS)
def test_the_bill_and_the_page_have_the_instructions_as_they_were_sent(
    convo: Convo, server: LoopbackServer, owner: str
) -> None:
    is_client_side = owner in ("--session", "--replay")
    chat(convo, server, owner, "-n", "mine", "-m", NEW, "-s", "Be brief.", "one")
    for number, model in enumerate((NEW, OLD)):
        chat(convo, server, "--from", "mine", "-m", model, f"two {number}")
    rows = convo("cost", "mine", "--json").json()["rows"]
    counts = {
        row["kind"]: row["cached"]["requests"] + row["uncached"]["requests"] for row in rows if "brief" in row["name"]
    }
    assert counts == {"system messages": 2} | ({} if is_client_side else {"instructions": 0})
    page = convo("inspect", "mine", "--html", "-").out
    data = json.loads(page.partition('id="convo-data">')[2].partition("</script>")[0])["conversations"]["mine"]
    requests = [data["requests"][link["request"]] for link in data["links"]]
    sent = [body.get("instructions") for body in server.bodies]
    assert [request.get("instructions") for request in requests] == sent == [None, None, "Be brief."]


@pytest.mark.parametrize(("owner", "model"), rotated_combinations(OWNERS, [NEW, OLD]))
def test_next_is_the_request_and_names_its_instructions(
    convo: Convo, server: LoopbackServer, owner: str, model: str, tmp_path: Path
) -> None:
    chat(convo, server, owner, "-n", "mine", "-m", NEW, "-s", "Be brief.", "one")
    if model == OLD:
        chat(convo, server, "--from", "mine", "-m", OLD, "two")
    for instructions in ("Be brief.", "Be kind."):
        planned = convo("next", "mine", "-s", instructions, "more", "--json").json()
        sent = chat(convo, server, "--from", "mine", "-s", instructions, "more")
        assert planned["body"] == sent
        file = tmp_path / "sent.json"
        file.write_text(json.dumps({name: sent[name] for name in sent if name != "stream"}), "utf-8")
        rebuilt = convo("diff", "--wire", str(file), "mine", "--json").json()
        assert rebuilt["path"] is None, rebuilt
    assert ("instructions" in {part["part"] for part in planned["parts"]}) is (KIND in sent["input"] or model == OLD)


@pytest.mark.parametrize("owner", OWNERS)
def test_a_compaction_is_called_without_instructions_and_keeps_the_message(
    convo: Convo, server: LoopbackServer, owner: str
) -> None:
    server.replies({"text": "Short."}, {"text": LONG})
    chat(convo, server, owner, "-n", "mine", "-m", NEW, "-s", "Be brief.", f"one {LONG}")
    chat(convo, server, "--from", "mine", f"two {LONG}")
    got = convo("compact", "mine", "--yes")
    assert got.exit == 0, got.err
    compactions = [request.json for request in server.requests if request.path.endswith("/compact")]
    assert not any("instructions" in body for body in [*compactions, *server.bodies])

    body = chat(convo, server, "--from", "mine", "three")
    assert "instructions" not in body
    assert received_instructions(server) == contents(BRIEF)


@pytest.mark.parametrize("owner", OWNERS)
def test_a_window_without_the_message_gets_it_back(convo: Convo, server: LoopbackServer, owner: str) -> None:
    """OpenAI's compaction returns the user's messages and one compaction item."""
    server.replies({"text": "Short."}, {"text": LONG})
    chat(convo, server, owner, "-n", "mine", "-m", NEW, "-s", "Be brief.", f"one {LONG}")
    window = [user_message("one"), {"type": "compaction", "encrypted_content": "sealed"}]
    body = json.dumps({"object": "response.compaction", "output": window, "usage": {}})
    server.arm(Fault(error_response=(200, json.loads(body), {}), path="/v1/responses/compact"))
    got = convo("compact", "mine", "--mode", "input", "--yes")
    assert got.exit == 0, got.err

    planned = convo("next", "mine", "two", "--json").json()

    items = [*planned["before"]["items"], *planned["body"]["input"]]
    assert [item["content"] for item in items if item.get("role") == "developer"] == contents(BRIEF)
    assert "instructions" not in planned["body"]


@pytest.mark.parametrize(("owner", "model"), rotated_combinations(OWNERS, [NEW, OLD]))
def test_removed_instructions_are_said_to_have_ended(
    convo: Convo, server: LoopbackServer, owner: str, model: str
) -> None:
    chat(convo, server, owner, "-n", "mine", "-m", NEW, "-s", "Be brief.", "one")
    chat(convo, server, "--from", "mine", "-m", model, "-s", "", "two")
    chat(convo, server, "--from", "mine", "three")
    assert received_instructions(server) == contents(BRIEF, developer_message(ENDED_INSTRUCTIONS))
    assert "instructions" not in server.bodies[-1]


@pytest.mark.parametrize("owner", ["--session", "--replay", "--chain"])
def test_undo_retry_rewind_and_fork_work_after_a_change(server: LoopbackServer, owner: str) -> None:
    got = run_repl(
        *(owner, "-n", "mine", "-m", OLD, "-s", "Be brief."),
        lines=["one", f"/model {NEW}", "two", "/system Be kind.", "three", "/undo", "3", "/retry", "/rewind 2", "4"],
    )
    assert got.exit == 0, got.err
    assert "no response" not in got.err
    inputs = [
        [item["content"][0]["text"] for item in request.input if item["role"] != "assistant"]
        for request in server.scripts.requests
    ]
    two, kind = ["one", "Be brief.", "two"], "Be kind."
    assert inputs == [["one"], two, [*two, kind, "three"], *[[*two, kind, "3"]] * 2, [*two, kind, "4"]]
    assert [body.get("instructions") for body in server.bodies] == ["Be brief.", *[None] * 5]

    forked = run_repl("--fork", "mine@1", "-m", NEW, lines=["other"])
    assert forked.exit == 0, forked.err
    assert [item["content"][0]["text"] for item in server.scripts.requests[-1].input] == ["one", "one", kind, "other"]


@pytest.mark.parametrize("flags", [["--tool", "desk.py:look_up"], []])
def test_a_tool_loop_sends_the_message_and_agents_keep_the_field_with_a_warning(
    convo: Convo, server: LoopbackServer, flags: list[str]
) -> None:
    Path("desk.py").write_text(AGENT, "utf-8")
    server.replies({"call": {"name": "look_up", "arguments": {"order": "A1"}}}, {"text": "It cost 5."})
    flags = [*flags, "-s", "Be brief."] if flags else ["--agent", "desk.py:desk"]

    got = convo("chat", *flags, "-m", NEW, "-n", "mine", "--json", "What did A1 cost?")

    assert got.exit == 0, got.err
    assert [item["type"] for item in got.json()["output"]] == ["function_call", "function_call_output", "message"]
    warnings = got.err.count(f"warning: {NEW} bills top-level instructions uncached with every request")
    if "-s" in flags:
        assert not any("instructions" in body for body in server.bodies)
        assert [body["input"][0] for body in server.bodies] == [BRIEF, BRIEF]
        assert warnings == 0
    else:
        assert [body["instructions"] for body in server.bodies] == ["Be brief."] * 2
        assert warnings == 1


@pytest.mark.parametrize(("owner", "is_elsewhere"), rotated_combinations(OWNERS, [False, True]))
def test_a_run_state_has_no_message_with_instructions(
    convo: Convo,
    server: LoopbackServer,
    owner: str,
    is_elsewhere: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path("desk.py").write_text(AGENT, "utf-8")
    server.replies({"text": "Hi."}, {"call": {"name": "look_up", "arguments": {"order": "A1"}}})
    flags = ["--tool", "desk.py:ask", "-m", NEW, "--state", "state.json"]
    assert convo("chat", *flags, owner, "-n", "mine", "-s", "Be brief.", "Hi.").exit == 0
    assert convo("chat", *flags, "-c", "-s", "Be kind.", "What did A1 cost?").exit == 3

    state = json.loads(Path("state.json").read_text("utf-8"))

    assert [item["role"] for item in state["original_input"]] == ["user", "assistant", "user"]
    assert received_instructions(server) == contents(BRIEF, KIND)
    if is_elsewhere:
        monkeypatch.setenv("CONVO_HOME", str(tmp_path / "elsewhere"))
    server.replies({"text": "It cost 5."})
    resumed = convo("resume", "state.json", "--tool", "desk.py:ask", "-m", NEW, "--approve", "all")
    assert resumed.exit == 0, resumed.err
    is_lost = is_elsewhere and owner in ("--session", "--replay")  # a state has the names of the agents only
    assert received_instructions(server) == ([] if is_lost else contents(BRIEF, KIND))


AGENT = """from convo.agents import Agent
from convo.tools import tool

def look_up(order: str) -> str:
    return f"{order} cost 5"

ask = tool(look_up, needs_approval=True)
desk = Agent("desk", instructions="Be brief.", tools=[tool(look_up)])
"""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--reasoning-effort", "none"], "the reasoning effort 'none'"),
        (["--reasoning-effort", "minimal"], "the reasoning effort 'minimal'"),
        (["--temperature", "1"], "the parameter 'temperature'"),
        (["--top-p", "0.5"], "the parameter 'top_p'"),
        (["--param", "top_logprobs=2"], "the parameter 'top_logprobs'"),
        (["--param", 'include=["message.output_text.logprobs"]'], "log probabilities"),
    ],
)
@pytest.mark.parametrize("owner", ["provider", "convo"])
def test_what_the_model_refuses_is_said_before_a_request(
    convo: Convo, server: LoopbackServer, flags: list[str], message: str, owner: str
) -> None:
    assert convo("config", "set", "providers.openai.owner", owner).exit == 0
    got = convo("chat", *flags, "-m", NEW, "hi")
    assert got.exit == 1
    assert f"{NEW} does not support {message}" in got.err
    assert server.requests == []
    assert convo("chat", "-q", *flags, "-m", OLD, "hi").exit == 0


def test_a_setting_for_all_models_is_ignored_and_one_for_the_model_is_named(
    convo: Convo, server: LoopbackServer
) -> None:
    assert convo("config", "set", "request.temperature", "0.5").exit == 0
    got = convo("chat", "-m", NEW, "hi")
    assert got.exit == 0
    assert f"is ignored: {NEW} does not support the parameter 'temperature'" in got.err
    assert "temperature" not in server.bodies[-1]

    assert convo("config", "set", f'models."{NEW}".temperature', "0.5").exit == 0
    refused = convo("chat", "-m", NEW, "hi")
    assert refused.exit == 1
    assert f'temperature is set by models."{NEW}".temperature' in refused.err
    assert len(server.bodies) == 1


def test_a_client_of_serve_keeps_the_field_and_the_operator_is_warned_once(
    server: LoopbackServer, tmp_path: Path
) -> None:
    with run_serve("--store", "memory") as gateway:
        for _ in range(2):
            body = {"model": NEW, "input": "hi", "instructions": "Be brief."}
            assert gateway.http.post("/v1/responses", json=body).status_code == 200
        gateway.stop(signal.SIGTERM)
    assert [body["instructions"] for body in server.bodies] == ["Be brief."] * 2
    assert gateway.err.count(f"convo serve: warning: {NEW} bills top-level instructions uncached") == 1
