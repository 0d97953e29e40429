"""States of the JavaScript SDK are shown and decided, and the SDK finishes them; damaged ones are refused.

`javascript.tar.xz` has states that three releases of @openai/agents paused, and the same decided by the SDK itself;
`javascript.mjs` writes and finishes them.
"""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from convo.runstate.document import MAX_DEPTH, replace_path
from tests.command_runner import Convo
from tests.needs import NODE_MODULES
from tests.runstate.snapshots import javascript_states

SCRIPT = Path(__file__).with_name("javascript.mjs")
PAUSED, DECIDED = javascript_states("paused"), javascript_states("decided")
OPTIONS = {
    "one_call.approve": ["--approve", "call_a"],
    "one_call.reject": ["--reject", "call_a=not today"],
    "one_call.always": ["--approve", "transfer", "--always"],
    "one_call.never": ["--reject", "call_a=never", "--always"],
    "two_calls.mixed": ["--approve", "call_a", "--reject", "call_b=too much"],
    "two_calls.one": ["--approve", "call_a"],
    "handoff.approve": ["--approve", "all"],
    "agent_tool.approve": ["--approve", "all"],
    "agent_tool.reject": ["--reject", "call_a=no"],
    "hosted_mcp.approve": ["--approve", "all"],
    "hosted_mcp.always": ["--approve", "all", "--always"],
    "hosted_mcp.reject": ["--approve", "call_a", "--reject", "mcpr_1=private"],
    "odd_arguments.approve": ["--approve", "all"],
}
"""Scenario and decision in `javascript.tar.xz` -> options that decide the same."""

OUTPUTS = {
    "one_call.approve": "done: sent 1.5 to ann",
    "one_call.reject": "done: not today",
    "one_call.always": "done: sent 1.5 to ann",
    "one_call.never": "done: never",
    "two_calls.mixed": "done: sent 1.5 to ann | too much",
    "two_calls.one": None,
    "handoff.approve": 'done: {"assistant":"Bank"} | sent 1.5 to ann',
    "agent_tool.approve": "done: done: sent 1.5 to ann",
    "agent_tool.reject": "done: done: no",
    "hosted_mcp.approve": "done: sent 1.5 to ann mcpr_1=true",
    "hosted_mcp.always": "done: sent 1.5 to ann mcpr_1=true",
    "hosted_mcp.reject": "done: sent 1.5 to ann mcpr_1=false",
}
"""The final output of each after the SDK finished it."""

INTERRUPTION = ("currentStep", "data", "interruptions", 0)
FUNCTION = ("lastProcessedResponse", "functions", 0)
REFUSED = 2


def decide_options(release: str, name: str) -> list[str]:
    """Return the options of a decision; states of 0.3.4 have no messages."""
    return [option.partition("=")[0] if release == "0.3.4" else option for option in OPTIONS[name]]


def split_name(name: str) -> tuple[str, str, str]:
    """Split "0.20.0.one_call.approve.json" in release, scenario and decision."""
    *release, scenario, decision, _ = name.split(".")
    return ".".join(release), scenario, decision


def load(name: str) -> Any:
    return json.loads(PAUSED[name])


def approvals(document: Any) -> dict[str, Any]:
    return {key: value for key, value in document["context"].items() if key.lower().endswith(("ls", "invocations"))}


@pytest.mark.parametrize("name", DECIDED)
def test_a_decision_is_written_as_the_sdk_writes_it_and_nothing_else_changes(name: str, convo: Convo) -> None:
    release, scenario, decision = split_name(name)
    paused = PAUSED[f"{release}.{scenario}.json"]
    options = decide_options(release, f"{scenario}.{decision}")
    got = convo("resume", "-", "--decide-only", "-o", "-", *options, stdin=paused)
    assert got.exit == (3 if decision == "one" else 0), got.err
    expected = json.loads(paused)
    expected["context"] |= approvals(json.loads(DECIDED[name]))
    assert json.loads(got.out) == expected
    again = convo("inspect", "-", "--json", stdin=got.out)
    assert json.loads(again.out)["decisions"], "the decision is read again"


@pytest.mark.parametrize("name", PAUSED)
def test_a_state_without_a_decision_is_written_byte_by_byte_and_lint_finds_nothing(name: str, convo: Convo) -> None:
    got = convo("resume", "-", "--decide-only", "-o", "-", stdin=PAUSED[name])
    assert (got.exit, got.out) == (3, PAUSED[name] + "\n"), got.err
    checked = convo("lint", "-", stdin=PAUSED[name])
    assert checked.exit == 0 or "odd_arguments" in name, checked.out


def test_a_state_is_shown_with_its_agents_calls_and_items(convo: Convo) -> None:
    got = convo("inspect", "-", stdin=PAUSED["0.20.0.agent_tool.json"])
    assert "RunState 1.22 of the JavaScript SDK" in got.out
    assert "call_a  Bank   -         transfer  {" in got.out
    assert "agent    Front" in got.out
    items = convo("inspect", "-", "--items", stdin=PAUSED["0.11.7.handoff.json"]).out
    assert items.index("please pay") < items.index("transfer_to_Bank") < items.index("call_a")


@pytest.mark.parametrize("release", ["0.3.4", "0.11.7", "0.20.0"])
def test_approvals_lists_the_pending_calls_and_names_the_command_that_decides_them(
    release: str, convo: Convo, tmp_path: Path
) -> None:
    file = tmp_path / "paused"
    file.write_text(PAUSED[f"{release}.two_calls.json"], encoding="utf-8")
    got = convo("approvals", str(file))
    ids = [line.split()[0] for line in got.out.splitlines()[1:]]
    assert ids == ["call_a", "call_b"]
    command = f"convo resume {file} --decide-only -o decided.json --approve call_a"
    assert got.err == f"to decide: {command}\n"
    assert convo(*command.split()[1:]).exit == 3
    decided = convo("approvals", "-", stdin=Path("decided.json").read_text(encoding="utf-8"))
    assert [line.split()[2] for line in decided.out.splitlines()[1:]] == ["approved", "-"]


def test_a_secret_in_the_context_is_found_at_its_place(convo: Convo) -> None:
    state = load("0.20.0.one_call.json")
    state["context"]["context"] = {"apiKey": "sk-proj-" + "a1B2" * 10}
    got = convo("lint", "-", stdin=json.dumps(state))
    assert "$.context.context.apiKey  warning  secret-in-state" in got.out


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        ("0.3.4.one_call", ["--reject", "call_a=no"], "0.3.4 cannot contain the reason of a rejection"),
        ("0.3.4.hosted_mcp", ["--approve", "mcpr_1"], "0.3.4 loses the id of mcpr_1"),
        ("0.3.4.agent_tool", ["--approve", "call_a"], "agent used as a tool, whose run @openai/agents 0.3.4 does not"),
        ("0.20.0.one_call", ["--approve", "all", "--schema", "1.13"], "--schema, --sign and --verify do not apply"),
    ],
)
def test_a_decision_that_the_label_cannot_have_is_refused(
    name: str, options: list[str], problem: str, convo: Convo
) -> None:
    got = convo("resume", "-", "--decide-only", "-o", "-", *options, stdin=PAUSED[f"{name}.json"])
    assert (got.exit, got.out) == (REFUSED, ""), got.err
    assert problem in got.err


def test_arguments_of_a_call_cannot_be_edited(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EDITOR", "sed -i s/ann/eve/")
    got = convo("resume", "-", "--decide-only", "-o", "-", "--edit", "call_a", stdin=PAUSED["0.20.0.one_call.json"])
    assert (got.exit, got.out) == (REFUSED, ""), got.err
    assert "cannot be edited" in got.err


def test_a_sticky_decision_that_overrides_one_on_a_call_is_not_hidden(convo: Convo) -> None:
    """Up to 1.18 the SDK runs a call of a tool that is approved always, also if this call was rejected."""
    sticky = {"transfer": {"approved": True, "rejected": []}}
    for label, exit_code in (("0.11.7", REFUSED), ("0.3.4", REFUSED)):
        state = replace_path(load(f"{label}.one_call.json"), ("context", "approvals"), sticky)
        got = convo("resume", "-", "--decide-only", "-o", "-", "--reject", "call_a", stdin=json.dumps(state))
        assert got.exit == exit_code, got.err
        assert "transfer is approved always" in got.err
        shown = replace_path(state, ("context", "approvals", "transfer", "rejected"), ["call_a"])
        assert "approved always" in convo("inspect", "-", stdin=json.dumps(shown)).out


@pytest.mark.parametrize(
    "command", ["export", "diff", "next", "convert --to session", "resume --approve all", "import"]
)
def test_other_commands_say_what_the_file_is_and_what_can_be_done(command: str, convo: Convo, tmp_path: Path) -> None:
    file = tmp_path / "state.json"
    file.write_text(PAUSED["0.20.0.one_call.json"], encoding="utf-8")
    verb, *options = command.split()
    got = convo(verb, *([str(file)] if verb == "diff" else []), str(file), *options)
    assert (got.exit, got.out) == (REFUSED, ""), got.err
    assert "is a RunState of the JavaScript SDK, @openai/agents (label 1.22)" in got.err
    assert "--decide-only -o decided.json, and finish it with @openai/agents in JavaScript" in got.err


def replaced(name: str, *changes: tuple[tuple[str | int, ...], Any]) -> str:
    state = load(name)
    for steps, value in changes:
        state = replace_path(state, steps, value)
    return json.dumps(state)


def nested(steps: tuple[str | int, ...], value: Any) -> str:
    """Return a state in whose nested run a value is replaced."""
    state = load("0.20.0.agent_tool.json")
    ((key, run),) = state["pendingAgentToolRuns"].items()
    state["pendingAgentToolRuns"][key] = json.dumps(replace_path(json.loads(run), steps, value))
    return json.dumps(state)


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def hostile_states() -> Iterator[tuple[str, str]]:
    one, two, hosted = "0.20.0.one_call.json", "0.20.0.two_calls.json", "0.20.0.hosted_mcp.json"
    for label in ("1.1", "1.13", "1.21", "1.23", "9.9", "", 1.22, None, ["1.22"], {"a": 1}):
        yield f"label {label!r}", replaced(one, (("$schemaVersion",), label))
    for member in ("currentAgent", "originalInput", "currentTurn", "maxTurns", "context", "generatedItems"):
        yield f"{member} is true", replaced(one, ((member,), True))
    for member in ("lastProcessedResponse", "modelResponses", "generatedItems"):
        state = load(one)
        del state[member]
        yield f"no {member}", json.dumps(state)
    for steps in (("currentStep",), ("currentStep", "data"), INTERRUPTION, (*INTERRUPTION, "rawItem"), FUNCTION):
        yield f"{steps[-1]} is a text", replaced(one, (steps, "x"))
    yield "unknown step", replaced(one, (("currentStep", "type"), "next_step_x"))
    raw = (*INTERRUPTION, "rawItem")
    yield "no call id", replaced(one, ((*raw, "callId"), None))
    yield "call id is a number", replaced(one, ((*raw, "callId"), 1))
    yield "not a call", replaced(one, ((*raw, "type"), "message"))
    yield "other arguments shown", replaced(one, ((*raw, "arguments"), "{}"))
    yield "other arguments run", replaced(one, ((*FUNCTION, "toolCall", "arguments"), "{}"))
    yield (
        "arguments are an object",
        replaced(one, ((*raw, "arguments"), {}), ((*FUNCTION, "toolCall", "arguments"), {})),
    )
    yield "other tool shown", replaced(one, ((*raw, "name"), "read"))
    yield "other tool runs", replaced(one, ((*FUNCTION, "tool", "name"), "delete"))
    yield "decision on another tool", replaced(one, ((*INTERRUPTION, "toolName"), "delete"))
    yield "key of another tool", replaced(one, ((*INTERRUPTION, "functionToolStateKey"), '["bare","delete"]'))
    yield "other agent", replaced(one, ((*INTERRUPTION, "agent"), {"name": "Eve"}))
    yield "agent without name", replaced(one, ((*INTERRUPTION, "agent"), {}))
    yield "a call that does not run", replaced(one, ((*raw, "callId"), "call_z"))
    yield (
        "the same id twice",
        replaced(
            two, (("currentStep", "data", "interruptions", 1), load(two)["currentStep"]["data"]["interruptions"][0])
        ),
    )
    for name in ("__proto__",):
        calls = ((*raw, "callId"), name), ((*FUNCTION, "toolCall", "callId"), name)
        yield f"call id {name}", replaced(one, *calls)
        yield (
            f"tool {name}",
            replaced(
                one,
                ((*raw, "name"), name),
                ((*FUNCTION, "toolCall", "name"), name),
                ((*FUNCTION, "tool", "name"), name),
                ((*INTERRUPTION, "toolName"), name),
                ((*INTERRUPTION, "functionToolStateKey"), f'["bare","{name}"]'),
            ),
        )
        yield (
            f"approvals of {name}",
            replaced(one, (("context", "approvals"), {name: {"approved": True, "rejected": []}})),
        )
    both = {'["bare","transfer"]': {"approved": ["call_a"], "rejected": ["call_a"]}}
    scoped = ("context", "functionApprovals")
    yield "approved and rejected", replaced(one, (scoped, [{"agentIdentity": "Bank", "approvals": both}]))
    yield "approved by a number", replaced(one, (("context", "approvals"), {"x": {"approved": 1, "rejected": []}}))
    yield "approvals are a list", replaced(one, (("context", "approvals"), []))
    yield (
        "message is a number",
        replaced(one, (("context", "approvals"), {"x": {"approved": [], "rejected": [], "messages": {"call_a": 1}}})),
    )
    yield "an agent twice", replaced(one, (scoped, [{"agentIdentity": "Bank", "approvals": {}}] * 2))
    yield "an agent without approvals", replaced(one, (scoped, [{"agentIdentity": "Bank"}]))
    bound = [{"agentIdentity": "Bank", "invocations": {"call_a": "{}"}, "approvals": {}}]
    yield "decided with other arguments", replaced(one, (("context", "approvalInvocations"), bound))
    yield "decisions of a newer label", replaced("0.11.7.one_call.json", (("context", "approvalInvocations"), bound))
    yield (
        "hosted call of another name",
        replaced(hosted, (("currentStep", "data", "interruptions", 1, "rawItem", "name"), "delete_repo")),
    )
    yield (
        "hosted call of another id",
        replaced(hosted, (("currentStep", "data", "interruptions", 1, "rawItem", "id"), "mcpr_2")),
    )
    yield (
        "hosted call without server",
        replaced(
            hosted, (("currentStep", "data", "interruptions", 1, "rawItem", "providerData", "server_label"), None)
        ),
    )
    yield "nested run is an object", replaced(one, (("pendingAgentToolRuns",), {"x:call_a": {}}))
    yield "nested run of no call", replaced(one, (("pendingAgentToolRuns",), {"x:call_z": PAUSED[one]}))
    yield "nested run is not JSON", replaced(one, (("pendingAgentToolRuns",), {"x:call_a": "{"}))
    yield "nested run of another label", nested(("$schemaVersion",), "1.12")
    yield "nested run with other arguments", nested((*INTERRUPTION, "rawItem", "arguments"), "{}")
    yield "nested run with another call", nested((*INTERRUPTION, "rawItem", "callId"), "call_z")
    yield "nested run without context", nested(("context",), None)
    yield "too deep", replaced(one, (("context", "context"), {"x": deep(MAX_DEPTH)}))
    bottomless = "[" * 100_000 + "]" * 100_000
    yield (
        "arguments too deep",
        replaced(one, ((*raw, "arguments"), bottomless), ((*FUNCTION, "toolCall", "arguments"), bottomless)),
    )
    yield "a key twice", PAUSED[one].replace('"currentTurn":1', '"currentTurn":1,"currentTurn":2')
    yield "truncated", PAUSED[one][:-20]


HOSTILE = dict(hostile_states())


@pytest.mark.parametrize("name", HOSTILE)
def test_a_damaged_state_is_refused_and_nothing_is_decided(name: str, convo: Convo) -> None:
    assert len(HOSTILE) >= 50
    got = convo("resume", "-", "--decide-only", "-o", "-", "--approve", "all", stdin=HOSTILE[name])
    assert (got.exit, got.out) == (REFUSED, ""), got.err
    assert "Traceback" not in got.err


@pytest.mark.needs("node clients")
def test_the_sdk_finishes_a_state_that_was_decided_here(convo: Convo, tmp_path: Path) -> None:
    """With the installed release of @openai/agents; install another one to test it."""
    release = json.loads((Path(NODE_MODULES) / "@openai/agents/package.json").read_text(encoding="utf-8"))["version"]
    (tmp_path / "node_modules").symlink_to(NODE_MODULES)
    (tmp_path / SCRIPT.name).write_bytes(SCRIPT.read_bytes())

    def run_sdk(*argv: str) -> str:
        environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        command = ["node", SCRIPT.name, *argv]
        done = subprocess.run(
            command, cwd=tmp_path, env=environ, capture_output=True, encoding="utf-8", timeout=60, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    for name, output in OUTPUTS.items():
        scenario, decision = name.split(".")
        if release == "0.3.4" and scenario in ("agent_tool", "hosted_mcp"):
            continue
        state, decided = tmp_path / "state.json", tmp_path / "decided.json"
        state.write_text(run_sdk("pause", scenario), encoding="utf-8")
        convo("resume", str(state), "--decide-only", "-o", str(decided), *decide_options(release, name))
        finished = json.loads(run_sdk("finish", scenario, decided.name))
        if release == "0.3.4" and decision in ("reject", "never", "mixed"):
            assert finished["output"].endswith("Tool execution was not approved."), name
        else:
            assert finished["output"] == output, name
