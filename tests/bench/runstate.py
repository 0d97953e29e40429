"""The cost of parsing a paused run, deciding on it and serializing it, compared with openai-agents.

    python -m tests.bench.runstate [ITEMS ...]

The state is the newest release's, with prepended calls and outputs up to this number of items, each bound
in the ledger; both sides approve the pending call. The floor is `json.loads` and `json.dumps` of the same
text. Figures are the best of five. The last columns are whole commands as processes: `convo resume
--decide-only` and a short script that imports the SDK. A line over its target (5x, and 10x for the
command) ends the script with 1.
"""

import asyncio
import json
import logging
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agents import RunState

from convo.runstate.approvals import apply_verdict
from convo.runstate.format import ApprovalVerdict
from convo.runstate.identity import parse_state_call
from convo.runstate.reader import parse_run_state
from convo.runstate.writer import serialize_run_state
from tests.runstate.sdk import Script, graph
from tests.runstate.snapshots import document, entries_of_label, load_scenario

SCENARIO = "single_approval"
ROUNDS = 5
LIBRARY, COMMAND = 5.0, 10.0
"""The factors by which the library and the command must be faster than the SDK."""

HEAD = (
    "items      MB   json ms   read  decide  write  convo ms   read  decide  write    SDK ms    x"
    "  command ms   SDK ms    x"
)

SCRIPT = """
import asyncio, json, logging, sys
logging.disable(logging.CRITICAL)
from agents import Agent, FunctionTool, RunState
async def none(context, arguments): return ""
tool = FunctionTool(name={tool!r}, description="", params_json_schema={{"type": "object", "properties": {{}}}},
                    on_invoke_tool=none, strict_json_schema=False, needs_approval=True)
state = asyncio.run(RunState.from_string(Agent(name={agent!r}, tools=[tool]), open(sys.argv[1]).read()))
for item in state.get_interruptions(): state.approve(item)
open(sys.argv[2], "w").write(state.to_string())
"""


def long_state(items: int) -> dict[str, Any]:
    """Return a state of about 0.5 KB an item that the SDK can parse."""
    state: dict[str, Any] = document(SCENARIO, "1.21")
    before: list[dict[str, Any]] = []
    for number in range((items - len(state["generated_items"])) // 2):
        before += pair(state, number)
    for key in ("generated_items", "session_items"):
        state[key] = [*before, *state[key]]
    for key in ("current_response_generated_item_ownership", "generated_session_item_indexes"):
        state.pop(key, None)
    return state


def pair(state: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """Return a completed call and its output; bind the call in the ledger."""
    agent, call_id = state["current_agent"], f"call_{number:06}"
    arguments = json.dumps({"id": number, "city": "Turin", "note": "x" * 150})
    raw = {"arguments": arguments, "call_id": call_id, "name": "look", "type": "function_call", "status": "completed"}
    output = {"call_id": call_id, "output": "y" * 300, "type": "function_call_output"}
    call = parse_state_call(raw)
    bound = call.binding() if call else None
    assert bound
    state["context"]["tool_invocations"][call_id] = {
        "type": "function_call",
        "approval_scope": bound.scope,
        "fingerprint": bound.fingerprint,
        "executed": True,
        "completed": True,
    }
    return [
        {"type": "tool_call_item", "raw_item": raw, "agent": agent},
        {"type": "tool_call_output_item", "raw_item": output, "agent": agent, "output": output["output"]},
    ]


def best(function: Callable[[], Any]) -> tuple[float, Any]:
    """Return the milliseconds of the fastest of several rounds, and the result of the last one."""
    found, result = float("inf"), None
    for _ in range(ROUNDS):
        started_at = time.perf_counter()
        result = function()
        found = min(found, (time.perf_counter() - started_at) * 1e3)
    return found, result


def measure_convo(text: str) -> tuple[float, float, float]:
    data = text.encode()
    read_ms, state = best(lambda: parse_run_state(data))
    decide_ms, after = best(lambda: apply_verdict(state, state.pending, ApprovalVerdict(approve=True)))
    write_ms, _ = best(lambda: serialize_run_state(after))
    return read_ms, decide_ms, write_ms


def measure_sdk(text: str, scenario: dict[str, Any]) -> tuple[float, float, float]:
    root = graph(scenario, Script(scenario["spec"]["script"], 1))
    read_ms, state = best(lambda: asyncio.run(RunState.from_string(root, text)))
    (interruption,) = state.get_interruptions()
    decide_ms, _ = best(lambda: state.approve(interruption))
    write_ms, _ = best(state.to_string)
    return read_ms, decide_ms, write_ms


def commands(text: str, scenario: dict[str, Any], folder: Path) -> tuple[float, float]:
    """Return the milliseconds of the two whole commands."""
    input_file, output_file = folder / "state.json", folder / "out.json"
    input_file.write_text(text)
    agent = scenario["spec"]["agents"]["a"]
    code = SCRIPT.format(tool=agent["tools"][0]["name"], agent=agent["name"])
    convo = [
        sys.executable,
        "-m",
        "convo",
        "resume",
        str(input_file),
        "--decide-only",
        "-o",
        str(output_file),
        "--approve",
        "all",
    ]
    sdk = [sys.executable, "-c", code, str(input_file), str(output_file)]
    return best(lambda: process(convo))[0], best(lambda: process(sdk))[0]


def process(argv: list[str]) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def main(*lengths: int) -> int:
    logging.disable(logging.CRITICAL)
    slow = 0
    scenario = load_scenario(next(entry["file"] for entry in entries_of_label("1.21") if entry["scenario"] == SCENARIO))
    print(HEAD)
    for items in lengths:
        text = json.dumps(long_state(items), indent=2)
        floor, _ = best(lambda text=text: json.dumps(json.loads(text)))  # type: ignore[misc]
        convo_times, sdk_times = measure_convo(text), measure_sdk(text, scenario)
        with TemporaryDirectory() as folder:
            command, script = commands(text, scenario, Path(folder))
        library, command_ratio = sum(sdk_times) / sum(convo_times), script / command
        slow += library < LIBRARY or command_ratio < COMMAND
        print(
            f"{items:>5}{len(text) / 1e6:>8.1f}{floor:>10.1f}"
            f"{convo_times[0]:>7.1f}{convo_times[1]:>8.1f}{convo_times[2]:>7.1f}{sum(convo_times):>10.1f}"
            f"{sdk_times[0]:>7.0f}{sdk_times[1]:>8.1f}{sdk_times[2]:>7.0f}{sum(sdk_times):>10.0f}{library:>5.1f}"
            f"{command:>12.0f}{script:>9.0f}{command_ratio:>5.1f}",
            flush=True,
        )
    return 1 if slow else 0


if __name__ == "__main__":
    sys.exit(main(*(int(length) for length in sys.argv[1:] or ("100", "1000", "5000"))))
