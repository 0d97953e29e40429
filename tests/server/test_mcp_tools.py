"""`mcp` tools that the gateway runs, with real MCP servers over streamable HTTP and stdio."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from convo.errors import EndpointFault
from convo.responses_api.mcp_client import McpConnection, McpTarget
from convo.responses_api.remote_files import RemoteFiles
from tests.models.chat_server import ChatServer, delta, finish, run_chat_server, usage_fields
from tests.models.chat_server import tool as call_delta
from tests.models.messages_events import message_events, text
from tests.models.messages_events import tool as tool_use
from tests.server.conftest import Serve
from tests.server.gateway import RunningGateway

pytestmark = pytest.mark.needs("mcp")

SETTINGS = """
[providers.chat]
api = "chat"
base_url = "{url}"
[providers.claude]
api = "anthropic"
base_url = "{url}"
[providers.native]
api = "responses"
base_url = "{url}"
[mcp.math]
url = "{mcp}"
key_env = "MATH_KEY"
timeout_s = 5
[mcp.process]
command = {command}
key_env = "PROCESS_KEY"
allowed_tools = ["add", "environ"]
[mcp.dead]
url = "http://127.0.0.1:9/mcp"
timeout_s = 5
"""

MATH = {"type": "mcp", "server_label": "math", "require_approval": "never"}


@pytest.fixture(scope="module")
def mcp() -> Iterator[Any]:
    from tests.mcp_server import run_mcp_server

    with run_mcp_server() as server:
        yield server


@pytest.fixture
def upstream() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


@pytest.fixture
def gateway(serve: Serve, upstream: ChatServer, mcp: Any, monkeypatch: pytest.MonkeyPatch) -> RunningGateway:
    mcp.heads.clear()
    mcp.calls.clear()
    monkeypatch.setenv("MATH_KEY", "operator-key")
    monkeypatch.setenv("PROCESS_KEY", "process-key")
    command = json.dumps([sys.executable, "-m", "tests.mcp_server"])
    return serve(toml=SETTINGS.format(url=upstream.url, mcp=mcp.url, command=command))


def call(name: str, arguments: str, call_id: str = "call_1", index: int = 0) -> dict[str, Any]:
    return call_delta(index, call_id=call_id, name=f"mcp__{name}", arguments=arguments)


def script_calls(upstream: ChatServer, *calls: dict[str, Any], answer: str = "5.") -> None:
    """Script a model that makes `calls`, then answers."""
    upstream.stream(*calls, finish("tool_calls"), usage_fields())
    upstream.stream(delta(content=answer), finish("stop"), usage_fields())


def ask(gateway: RunningGateway, *tools: dict[str, Any], model: str = "chat/any", **more: Any) -> dict[str, Any]:
    body = {"model": model, "input": "What is 2 + 3?", "tools": list(tools), **more}
    answer: dict[str, Any] = gateway.create_response(body).json()
    assert gateway.unexpected_errors == []
    return answer


def test_a_chat_model_calls_a_tool_and_the_response_has_all_items_and_the_summed_usage(
    gateway: RunningGateway, upstream: ChatServer, mcp: Any
) -> None:
    script_calls(upstream, call("math__add", '{"a": 2, "b": 3}'))
    with openai.OpenAI(base_url=gateway.url, api_key="any", max_retries=0, _strict_response_validation=True) as client:
        response = client.responses.create(model="chat/any", input="2 + 3?", tools=[{**MATH, "server_url": mcp.url}])  # type: ignore[list-item]

    listed, called, message = response.output
    assert listed.type == "mcp_list_tools"
    assert listed.server_label == "math"
    assert {tool.name for tool in listed.tools} == {"add", "fail", "long", "environ", "sleep"}
    assert called.type == "mcp_call"
    assert (called.name, called.server_label, json.loads(called.arguments)) == ("add", "math", {"a": 2, "b": 3})
    assert (called.output, called.error, called.status) == ("5", None, "completed")
    assert (message.type, response.output_text) == ("message", "5.")
    assert response.usage
    assert (response.usage.input_tokens, response.usage.output_tokens) == (24, 6)
    assert mcp.calls == ["add"]
    assert {head["authorization"] for head in mcp.heads} == {"Bearer operator-key"}
    first, second = (request.json for request in upstream.requests)
    functions = [tool["function"]["name"] for tool in first["tools"]]
    assert "mcp__math__add" in functions
    assert second["messages"][-2]["tool_calls"][0]["id"] == "call_1"
    assert second["messages"][-1] == {"role": "tool", "tool_call_id": "call_1", "content": "5"}


def test_the_events_of_a_call_are_those_of_the_api_in_their_order(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    script_calls(upstream, call("math__add", '{"a": 2,'), call_delta(0, arguments=' "b": 3}'))
    events = gateway.events({"model": "chat/any", "input": "?", "tools": [MATH]})

    kinds = [(event["type"].removeprefix("response."), event.get("output_index")) for event in events]
    assert kinds[2:16] == [
        ("output_item.added", 0), ("mcp_list_tools.in_progress", 0), ("mcp_list_tools.completed", 0),
        ("output_item.done", 0), ("output_item.added", 1), ("mcp_call.in_progress", 1),
        ("mcp_call_arguments.delta", 1), ("mcp_call_arguments.delta", 1), ("mcp_call_arguments.done", 1),
        ("mcp_call.completed", 1), ("output_item.done", 1), ("output_item.added", 2), ("content_part.added", 2),
        ("output_text.delta", 2),
    ]  # fmt: skip
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert events[-1]["response"]["output"] == done


def test_the_next_turn_sends_the_call_as_a_function_and_lists_no_tools_again(
    gateway: RunningGateway, upstream: ChatServer, mcp: Any
) -> None:
    script_calls(upstream, call("math__add", '{"a": 2, "b": 3}'), call("math__add", '{"a": 1, "b": 1}', "call_2", 1))
    first = ask(gateway, MATH)
    requests = len(mcp.heads)
    upstream.stream(delta(content="Yes."), finish("stop"))
    second = ask(gateway, MATH, previous_response_id=first["id"])

    assert [item["type"] for item in first["output"]] == ["mcp_list_tools", "mcp_call", "mcp_call", "message"]
    assert [item["type"] for item in second["output"]] == ["message"]
    assert len(mcp.heads) == requests
    roles = [
        (message["role"], len(message.get("tool_calls", ()))) for message in upstream.requests[-1].json["messages"]
    ]
    assert roles == [("user", 0), ("assistant", 2), ("tool", 0), ("tool", 0), ("assistant", 0), ("user", 0)]


def test_calls_of_one_id_keep_their_results_in_this_response_and_in_the_next(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    upstream.stream(call("math__add", '{"a": 1, "b": 1}'), finish("tool_calls"))
    script_calls(upstream, call("math__add", '{"a": 2, "b": 3}'))
    first = ask(gateway, MATH)
    upstream.stream(delta(content="Yes."), finish("stop"))
    ask(gateway, MATH, previous_response_id=first["id"])

    for request in upstream.requests[2:]:
        messages = request.json["messages"]
        made = {
            one["id"]: one["function"]["arguments"] for message in messages for one in message.get("tool_calls", ())
        }
        results = {message["tool_call_id"]: message["content"] for message in messages if message["role"] == "tool"}
        assert made == {"call_1": '{"a": 1, "b": 1}', "call_1_2": '{"a": 2, "b": 3}'}
        assert results == {"call_1": "2", "call_1_2": "5"}


def test_a_claude_model_gets_tool_use_and_tool_result(gateway: RunningGateway, upstream: ChatServer) -> None:
    upstream.stream(
        *message_events(tool_use(0, "toolu_1", "mcp__math__add", '{"a": 2, "b": 3}'), reason="tool_use"), end=b""
    )
    upstream.stream(*message_events(text(0, "5.")), end=b"")

    answer = ask(gateway, MATH, model="claude/any")

    assert [item["type"] for item in answer["output"]] == ["mcp_list_tools", "mcp_call", "message"]
    use, result = upstream.requests[1].json["messages"][-2:]
    assert use["content"][0]["id"] == result["content"][0]["tool_use_id"] == "toolu_1"
    assert result["content"][0]["content"] == [{"type": "text", "text": "5"}]


@pytest.mark.full(every_commit=True)  # the process imports the mcp package, which takes seconds
def test_a_process_gets_its_key_and_only_the_allowed_tools_are_offered(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    script_calls(
        upstream, call("process__environ", '{"name": "PROCESS_KEY"}'),
        call("process__environ", '{"name": "MATH_KEY"}', "call_2", 1),
    )  # fmt: skip
    answer = ask(gateway, {"type": "mcp", "server_label": "process", "require_approval": "never"})

    listed, *called, _ = answer["output"]
    assert {tool["name"] for tool in listed["tools"]} == {"add", "environ"}
    assert [item["output"] for item in called] == ["process-key", ""]  # other keys are not in its environment


def test_without_the_mcp_extra_the_error_names_it(
    gateway: RunningGateway, upstream: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    error = ask(gateway, MATH)["error"]
    assert (error["code"], error["param"], upstream.requests) == ("mcp_not_installed", "tools", [])
    assert error["message"].startswith("An MCP tool needs the extra [mcp], which is not installed")


@pytest.mark.parametrize(
    ("name", "arguments", "kind", "part"),
    [
        ("fail", '{"reason": "no"}', "mcp_tool_execution_error", "Error executing tool fail"),
        ("add", "[1]", "mcp_protocol_error", "not a JSON object"),
        ("add", "{", "mcp_protocol_error", "not a JSON object"),
        ("add", '{"a": "x"}', "mcp_tool_execution_error", "validation error"),
    ],
)
def test_a_failed_call_has_an_error_and_the_model_is_asked_again(
    gateway: RunningGateway, upstream: ChatServer, name: str, arguments: str, kind: str, part: str
) -> None:
    script_calls(upstream, call(f"math__{name}", arguments), answer="Sorry.")
    answer = ask(gateway, MATH)

    called = answer["output"][1]
    assert (answer["status"], called["status"], called["output"]) == ("completed", "failed", None)
    assert called["error"]["type"] == kind
    assert part in json.dumps(called["error"])
    assert part in upstream.requests[1].json["messages"][-1]["content"]


def test_a_long_output_is_cut_off_and_a_call_without_end_times_out(
    serve: Serve, upstream: ChatServer, mcp: Any
) -> None:
    settings = SETTINGS.format(url=upstream.url, mcp=mcp.url, command='["false"]').replace(
        "timeout_s = 5",
        "timeout_s = 3",  # the first call ends before it, on a busy machine, too
    )
    gateway = serve(toml=settings)
    script_calls(upstream, call("math__long", '{"size": 300000}'), call("math__sleep", "{}", "call_2", 1))
    answer = gateway.create_response({"model": "chat/any", "input": "?", "tools": [MATH]}).json()

    long, sleep = answer["output"][1:3]
    assert len(long["output"]) < 263_000
    assert long["output"].endswith("[cut off: the output has 300,000 characters]")
    assert sleep["error"]["message"] == "MCP server 'math' failed: it did not respond in 3 seconds"


def test_a_server_that_cannot_list_its_tools_fails_the_request_before_the_model_is_called(
    gateway: RunningGateway, upstream: ChatServer
) -> None:
    answer = gateway.create_response(
        {"model": "chat/any", "input": "?", "tools": [{"type": "mcp", "server_label": "dead"}]}
    )

    assert (answer.status_code, answer.json()["error"]["code"]) == (424, "external_connector_error")
    assert "127.0.0.1" not in answer.text
    assert upstream.requests == []


def test_a_program_that_ends_at_once_is_reported_with_the_way_to_see_its_messages(
    serve: Serve, upstream: ChatServer
) -> None:
    gateway = serve(toml=SETTINGS.format(url=upstream.url, mcp=upstream.url, command='["false"]'))
    tool = {"type": "mcp", "server_label": "process"}
    answer = gateway.create_response({"model": "chat/any", "input": "?", "tools": [tool]})

    assert answer.status_code == 424
    message = answer.json()["error"]["message"]
    assert message.startswith("MCP server 'process' failed: ")
    assert message.endswith("; run its command in a terminal to see its messages.")


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (
            ["sh", "-c", "exit 4"],
            "its command sh ended with exit code 4; run its command in a terminal",
        ),
        (["sh", "-c", "kill -9 $$"], "its command sh was ended by signal 9; run its command"),
        (["sh", "-c", "echo no account >&2; exit 4"], "its command sh ended with exit code 4; run its command"),
        (["/nowhere/server"], "its command server cannot be started: no such file or directory; run its command"),
    ],
)
def test_a_program_that_ends_at_once_is_named_with_its_exit_code_and_without_its_messages(
    command: list[str], reason: str, serve: Serve, upstream: ChatServer
) -> None:
    gateway = serve(toml=SETTINGS.format(url=upstream.url, mcp=upstream.url, command=json.dumps(command)))
    tool = {"type": "mcp", "server_label": "process"}
    answer = gateway.create_response({"model": "chat/any", "input": "?", "tools": [tool]})

    message = answer.json()["error"]["message"]
    assert answer.status_code == 424
    assert message.startswith(f"MCP server 'process' failed: {reason}"), message
    assert "no account" not in message


SERVING_PROGRAM = """
import json, subprocess, sys
child = subprocess.Popen(["sleep", "600"])
open(sys.argv[1], "w").write(str(child.pid))
tool = {"name": "add", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    request = json.loads(line)
    if request.get("method") == "initialize":
        version = request["params"]["protocolVersion"]
        result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": tool | {"version": "1"}}
    elif request.get("method") == "tools/list":
        result = {"tools": [tool]}
    else:
        continue
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""


async def test_processes_that_a_program_started_end_when_the_connection_is_closed(tmp_path: Path) -> None:
    started = tmp_path / "pid"
    connection = McpConnection("a", McpTarget(command=(sys.executable, "-c", SERVING_PROGRAM, str(started))))
    tools = await connection.list_tools()
    assert ([tool["name"] for tool in tools], is_process_running(int(started.read_text()))) == (["add"], True)
    await connection.aclose()
    assert has_ended(int(started.read_text()))


@pytest.mark.parametrize("ignored_signals", ["", "TERM"])
def test_processes_that_a_program_started_end_with_it(
    ignored_signals: str, serve: Serve, upstream: ChatServer, tmp_path: Path
) -> None:
    started = tmp_path / "pid"
    program = f"trap '' {ignored_signals or 'USR1'}; sleep 600 & echo $! > {started}; exit 4"
    settings = SETTINGS.format(url=upstream.url, mcp=upstream.url, command=json.dumps(["sh", "-c", program]))
    gateway = serve(toml=settings)
    tool = {"type": "mcp", "server_label": "process"}
    answer = gateway.create_response({"model": "chat/any", "input": "?", "tools": [tool]})

    assert "ended with exit code 4" in answer.text
    assert has_ended(int(started.read_text()))


IMPATIENT_SCRIPT = """
import sys
from convo.responses_api import mcp_process
mcp_process.CLOSED_STDIN_GRACE_S = 0.1
sys.exit(mcp_process.run_program(sys.argv[1:]))
"""


def test_a_program_that_ignores_the_end_of_its_stdin_ends_after_the_gateway_was_killed() -> None:
    program = ["sh", "-c", "sleep 600 & echo $!; wait"]
    with subprocess.Popen(
        [sys.executable, "-c", IMPATIENT_SCRIPT, *program], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            started_id = int(process.stdout.readline())
            process.stdin.close()
            process.wait(timeout=60)
        finally:
            process.terminate()
    assert has_ended(started_id)


def has_ended(process_id: int) -> bool:
    """Wait until a process has ended: one that was killed may still run for a moment on a busy machine."""
    deadline = time.monotonic() + 60
    while is_process_running(process_id):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def is_process_running(process_id: int) -> bool:
    """Whether a process exists and has not ended; one that has ended may wait for its parent."""
    try:
        state = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_call_waits_for_approval_and_continues_after_it(
    gateway: RunningGateway, upstream: ChatServer, mcp: Any
) -> None:
    tool = {**MATH, "require_approval": {"never": {"read_only": True}}}
    upstream.stream(
        call("math__add", '{"a": 2, "b": 3}'), call("math__fail", '{"reason": "x"}', "call_2", 1), finish("tool_calls")
    )
    first = ask(gateway, tool)

    listed, added, request = first["output"]
    assert (listed["type"], added["type"], added["output"]) == ("mcp_list_tools", "mcp_call", "5")
    assert (request["type"], request["name"], request["arguments"]) == (
        "mcp_approval_request", "fail", '{"reason": "x"}',
    )  # fmt: skip
    assert (first["status"], mcp.calls, len(upstream.requests)) == ("completed", ["add"], 1)

    decision = {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": True}
    upstream.stream(delta(content="It failed."), finish("stop"))
    second = ask(gateway, tool, input=[decision], previous_response_id=first["id"])

    called, message = second["output"]
    assert (called["type"], called["approval_request_id"], called["status"]) == ("mcp_call", request["id"], "failed")
    assert (message["type"], mcp.calls) == ("message", ["add", "fail"])
    assert [entry["role"] for entry in upstream.requests[1].json["messages"]][-2:] == ["assistant", "tool"]

    upstream.stream(delta(content="Again."), finish("stop"))
    ask(gateway, tool, previous_response_id=second["id"])
    assert mcp.calls == ["add", "fail"]  # an approval is used once


@pytest.mark.parametrize("store", [True, False])
def test_the_same_approval_sent_again_gets_the_output_of_the_first_request(
    serve: Serve, upstream: ChatServer, mcp: Any, tmp_path: Path, store: bool
) -> None:
    """Also if the model failed after the call; and from another replica, if the response was stored."""
    settings = f'[providers.chat]\napi = "chat"\nbase_url = "{upstream.url}"\n[mcp.math]\nurl = "{mcp.url}"\n'
    gateway, replica = (serve(f"sqlite:{tmp_path / 'convo.db'}", toml=settings) for _ in range(2))
    upstream.stream(call("math__add", '{"a": 2, "b": 3}'), finish("tool_calls"))
    mcp.calls.clear()
    tool = {"type": "mcp", "server_label": "math"}
    first = ask(gateway, tool, store=store)
    decision = {"type": "mcp_approval_response", "approval_request_id": first["output"][-1]["id"], "approve": True}
    body: dict[str, Any] = {"input": [*first["output"], decision], "store": False}
    if store:
        body = {"input": [decision], "previous_response_id": first["id"]}
    upstream.refuse(429, {"error": {"message": "slow down"}})
    assert ask(gateway, tool, **body)["error"]["message"]
    for server, answer in ((gateway, "Five."), (replica if store else gateway, "5.")):
        upstream.stream(delta(content=answer), finish("stop"))
        called, message = ask(server, tool, **body)["output"]
        assert (called["type"], called["output"], called["status"]) == ("mcp_call", "5", "completed")
        assert message["content"][0]["text"] == answer
    assert mcp.calls == ["add"]


def test_a_rejected_call_is_not_run_and_the_model_learns_the_reason(
    gateway: RunningGateway, upstream: ChatServer, mcp: Any
) -> None:
    upstream.stream(call("math__add", '{"a": 2, "b": 3}'), finish("tool_calls"))
    tool = {"type": "mcp", "server_label": "math"}  # the default is "always"
    first = ask(gateway, tool)
    request = first["output"][-1]
    decision = {
        "type": "mcp_approval_response",
        "approval_request_id": request["id"],
        "approve": False,
        "reason": "No.",
    }
    upstream.stream(delta(content="All right."), finish("stop"))
    second = ask(gateway, tool, input=[decision], previous_response_id=first["id"])

    assert ([item["type"] for item in second["output"]], mcp.calls) == (["message"], [])
    assert upstream.requests[1].json["messages"][-1]["content"] == "The user rejected this call: No."


@pytest.mark.parametrize(("answers", "calls"), [([True, True], ["add"]), ([True, False], []), ([False, True], ["add"])])
def test_of_several_answers_to_a_request_the_last_one_counts(
    gateway: RunningGateway, upstream: ChatServer, mcp: Any, answers: list[bool], calls: list[str]
) -> None:
    upstream.stream(call("math__add", '{"a": 2, "b": 3}'), finish("tool_calls"))
    tool = {"type": "mcp", "server_label": "math"}
    request = ask(gateway, tool, store=False)["output"][-1]
    decisions = [
        {"type": "mcp_approval_response", "approval_request_id": request["id"], "approve": answer} for answer in answers
    ]
    upstream.stream(delta(content="Done."), finish("stop"))
    second = ask(gateway, tool, store=False, input=[request, *decisions])
    assert [item["output"] for item in second["output"] if item["type"] == "mcp_call"] == ["5"] * len(calls)
    assert mcp.calls == calls


@pytest.mark.parametrize("value", [["x"], {"x": 1}])
@pytest.mark.parametrize("kind", ["mcp_approval_response", "mcp_call"])
def test_an_id_of_another_type_is_not_an_internal_error(
    gateway: RunningGateway, upstream: ChatServer, kind: str, value: Any
) -> None:
    upstream.stream(delta(content="Done."), finish("stop"))
    item = {"type": kind, "id": "mcp_1", "approval_request_id": value, "approve": True}
    answer = ask(gateway, input=[item, {"role": "user", "content": "?"}])
    assert answer["output"][-1]["content"][0]["text"] == "Done."


def test_a_call_of_the_client_ends_the_response_after_the_mcp_calls_were_run(
    gateway: RunningGateway, upstream: ChatServer, mcp: Any
) -> None:
    weather = {"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}
    own = call_delta(1, call_id="call_2", name="weather", arguments="{}")
    upstream.stream(call("math__add", '{"a": 2, "b": 3}'), own, finish("tool_calls"))
    first = ask(gateway, MATH, weather)

    assert [item["type"] for item in first["output"]] == ["mcp_list_tools", "mcp_call", "function_call"]
    assert (mcp.calls, len(upstream.requests)) == (["add"], 1)
    upstream.stream(delta(content="5 and sunny."), finish("stop"))
    output = {"type": "function_call_output", "call_id": "call_2", "output": "sunny"}
    second = ask(gateway, MATH, weather, input=[output], previous_response_id=first["id"])
    assert second["output"][0]["content"][0]["text"] == "5 and sunny."


def test_max_tool_calls_ends_the_loop(gateway: RunningGateway, upstream: ChatServer, mcp: Any) -> None:
    upstream.stream(
        call("math__add", '{"a": 2, "b": 3}'), call("math__add", '{"a": 1, "b": 1}', "call_2", 1), finish("tool_calls")
    )
    upstream.stream(call("math__add", '{"a": 1, "b": 1}', "call_3"), finish("tool_calls"))
    answer = ask(gateway, MATH, max_tool_calls=1)

    calls = [item for item in answer["output"] if item["type"] == "mcp_call"]
    assert [item["status"] for item in calls] == ["completed", "failed", "failed"]
    assert (answer["status"], mcp.calls) == ("completed", ["add"])
    assert "tools" not in upstream.requests[1].json


def test_a_native_server_gets_other_mcp_tools_unchanged(gateway: RunningGateway, upstream: ChatServer) -> None:
    upstream.refuse(400, {"error": {"message": "Reached.", "code": "reached"}})
    theirs = {
        "type": "mcp",
        "server_label": "theirs",
        "server_url": "https://example.com/mcp",
        "authorization": "s3cret",
    }
    ask(gateway, MATH, theirs, model="native/any")

    tools = upstream.requests[0].json["tools"]
    assert theirs in tools
    assert not any(tool.get("server_label") == "math" for tool in tools)
    assert any(tool.get("name") == "mcp__math__add" for tool in tools)


URL_TOOL = {
    "type": "mcp",
    "server_label": "theirs",
    "server_url": "http://127.0.0.1:1/mcp",
    "require_approval": "never",
}


@pytest.mark.parametrize(
    ("tool", "code", "param"),
    [
        (URL_TOOL, "mcp_server_not_allowed", "tools[0].server_url"),
        ({"type": "mcp", "server_label": "nobody"}, "mcp_server_not_found", "tools[0].server_label"),
        (
            {"type": "mcp", "server_label": "a", "connector_id": "connector_x"},
            "unsupported_parameter",
            "tools[0].connector_id",
        ),
        ({**MATH, "defer_loading": True}, "unsupported_parameter", "tools[0].defer_loading"),
        ({**MATH, "mystery": 1}, "unknown_parameter", "tools[0].mystery"),
        ({**MATH, "authorization": "mine"}, "unsupported_parameter", "tools[0].authorization"),
        ({**MATH, "headers": {"Host": "x"}}, "invalid_value", "tools[0].headers"),
        ({**MATH, "headers": {"x": "a\r\nb: c"}}, "invalid_value", "tools[0].headers"),
        ({**MATH, "require_approval": "sometimes"}, "invalid_value", "tools[0].require_approval"),
    ],
)
def test_a_tool_that_cannot_be_run_is_refused_by_name(
    gateway: RunningGateway, upstream: ChatServer, tool: dict[str, Any], code: str, param: str
) -> None:
    error = ask(gateway, tool)["error"]
    assert (error["code"], error["param"]) == (code, param)
    assert upstream.requests == []


def test_a_server_url_of_a_client_is_never_private_also_where_urls_are_allowed(
    serve: Serve, upstream: ChatServer, mcp: Any
) -> None:
    settings = '[serve]\nmcp_urls = true\nblocked_networks = ["8.8.4.0/24"]\n'
    gateway = serve(toml=f'[providers.chat]\napi = "chat"\nbase_url = "{upstream.url}"\n{settings}')
    mcp.heads.clear()
    urls = (mcp.url, mcp.url.replace("127.0.0.1", "localhost"), mcp.url.replace("127.0.0.1", "[::ffff:127.0.0.1]"))
    for url in (*urls, "http://8.8.4.4/mcp"):
        error = ask(gateway, {**URL_TOOL, "server_url": url, "authorization": "s3cret"})["error"]
        assert error["code"] == "external_connector_error"
        assert "not public" in error["message"]
    assert mcp.heads == []


async def test_a_request_to_a_client_url_goes_to_the_address_that_was_checked(mcp: Any) -> None:
    """The host is resolved for each request, which is sent to a checked address with the name of the host."""
    asked: list[str] = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) < 3 else ["127.0.0.2"]

    check = RemoteFiles(max_bytes=1, timeout_s=1, resolve=resolve, is_allowed=lambda one: str(one) == "127.0.0.1")
    url = mcp.url.replace("127.0.0.1", "localhost")
    mcp.heads.clear()
    connection = McpConnection("theirs", McpTarget(url=url, address_check=check, timeout_s=10))
    with pytest.raises(EndpointFault, match="not public"):
        await connection.list_tools()
    await connection.aclose()

    assert set(asked) == {"localhost"}
    assert [head["host"] for head in mcp.heads] == [url.split("/")[2]] * 2


def test_the_token_of_a_client_is_sent_to_the_server_and_never_stored_or_shown(
    serve: Serve, upstream: ChatServer, mcp: Any, tmp_path: Any
) -> None:
    database = tmp_path / "convo.db"
    settings = f'[providers.chat]\napi = "chat"\nbase_url = "{upstream.url}"\n[mcp.math]\nurl = "{mcp.url}"\n'
    gateway = serve(f"sqlite:{database}", toml=settings)
    mcp.heads.clear()
    script_calls(upstream, call("math__add", '{"a": 2, "b": 3}'))
    answer = ask(gateway, {**MATH, "authorization": "s3cret-token", "headers": {"x-team": "s3cret-header"}})

    assert {(head["authorization"], head["x-team"]) for head in mcp.heads} == {("Bearer s3cret-token", "s3cret-header")}
    assert "s3cret" not in json.dumps(answer)
    assert "s3cret" not in gateway.http.get(f"/v1/responses/{answer['id']}").text
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("convo.db*"))
    assert (b"s3cret" in stored, b"mcp_call" in stored) == (False, True)


def test_the_token_of_a_tool_in_an_item_is_sent_to_the_model_and_never_stored_or_shown(
    serve: Serve, upstream: ChatServer, tmp_path: Any
) -> None:
    database = tmp_path / "convo.db"
    gateway = serve(f"sqlite:{database}", toml=f'[providers.native]\napi = "responses"\nbase_url = "{upstream.url}"\n')
    response = {"id": "resp_1", "object": "response", "status": "completed", "model": "any", "output": []}
    upstream.stream({"type": "response.completed", "response": response, "sequence_number": 0})
    tool = {
        "type": "mcp",
        "server_label": "theirs",
        "server_url": "https://me:s3cret-url@example.com/mcp",
        "authorization": "s3cret-token",
        "headers": {"x-team": "s3cret-header"},
    }
    search = {"type": "tool_search_call", "call_id": "call_1", "execution": "client", "arguments": {}}
    items = [
        {"type": "additional_tools", "role": "developer", "tools": [tool]},
        {"role": "user", "content": "Hi."},
        search,
        {"type": "tool_search_output", "call_id": "call_1", "execution": "client", "tools": [tool]},
    ]
    answer = ask(gateway, model="native/any", input=items)
    assert [item["tools"] for item in upstream.requests[0].json["input"] if "tools" in item] == [[tool], [tool]]

    conversation = gateway.http.post("/v1/conversations", json={"items": items}).json()
    listed = [
        gateway.http.get(f"/v1/responses/{answer['id']}/input_items").text,
        gateway.http.get(f"/v1/conversations/{conversation['id']}/items").text,
    ]
    assert all("theirs" in text and "s3cret" not in text for text in listed)
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("convo.db*"))
    assert (b"s3cret" in stored, b"theirs" in stored) == (False, True)
