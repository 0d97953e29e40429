"""Tools that a model is offered as functions, and the items that its calls become."""

import json
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.responses import ResponseOutputItem
from pydantic import TypeAdapter

from convo.errors import InputFault, Unsupported
from convo.history.items import Json, StreamEvent, user_message
from convo.models.anthropic import AnthropicModel
from convo.models.base import Model, ModelRequest
from convo.models.chat_completions import ChatModel
from convo.models.stream import ResponseEventWriter
from convo.models.tool_mapping import ClientTool, CustomInputDecoder, map_request
from convo.secrets import Secret
from tests.clock import counting_ids
from tests.models import chat_server, messages_events
from tests.models.chat_server import ChatServer
from tests.models.model_calls import make_request, read_events

GRAMMAR = {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"}


def function(name: str, **fields: Json) -> dict[str, Json]:
    return {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}, **fields}


def namespace(name: str, *tools: Json, description: str = "d") -> dict[str, Json]:
    return {"type": "namespace", "name": name, "description": description, "tools": list(tools)}


def mapped(*tools: Json, items: Iterable[Json] = (), **parameters: Json) -> Any:
    return map_request(ModelRequest("m", (user_message("hi"), *items), parameters={"tools": tools, **parameters}), "m")


def offered_names(*tools: Json, **parameters: Json) -> list[str]:
    return [tool["name"] for tool in mapped(*tools, **parameters).request.parameters.get("tools", ())]


# -- names ----------------------------------------------------------------------------------------


def test_the_functions_of_namespaces_get_names_that_are_unique_valid_and_stable() -> None:
    long_name = "x" * 60
    tools = [
        namespace("a", function("b"), function("b__c"), {"type": "custom", "name": "b"}),
        namespace("a__b", function("c")),
        namespace("crm.eu", function("find")),
        namespace("long", function(long_name)),
        function("a__b"),
        function("shell"),
        {"type": "shell"},
    ]

    names = offered_names(*tools)

    assert len(set(names)) == len(names)
    assert names == offered_names(*tools)
    assert all(len(name) <= 64 and name.replace("_", "").replace("-", "").isalnum() for name in names)
    assert [name for name in names if name in ("a__b", "shell", "a__b__c")] == ["a__b__c", "a__b", "shell"]


def test_an_output_without_a_call_is_a_message_of_the_user_with_the_name_of_its_tool() -> None:
    image = {"type": "input_image", "image_url": "data:image/png;base64,AA=="}
    goal = {"type": "function_call_output", "namespace": "agent", "name": "goal_objective", "output": "Find the bug."}
    screen = {"type": "function_call_output", "name": "screen", "call_id": None, "output": [image]}

    items = list(mapped(items=[goal, screen]).request.input[1:])

    assert items == [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}, *parts]}
        for text, parts in (("[agent.goal_objective]\nFind the bug.", []), ("[screen]", [image]))
    ]
    with pytest.raises(InputFault, match="name"):
        mapped(items=[{"type": "function_call_output", "output": "a"}])


def test_a_call_in_the_history_gets_the_name_that_its_tool_is_offered_with() -> None:
    call = {"type": "function_call", "call_id": "c", "namespace": "a", "name": "b", "arguments": "{}"}
    custom = {"type": "custom_tool_call", "call_id": "d", "namespace": "a", "name": "t", "input": 'say "ä"'}

    request = mapped(namespace("a", function("b"), {"type": "custom", "name": "t"}), items=[call, custom]).request

    assert [item.get("name") for item in request.input[1:]] == ["a__b", "a__t"]
    assert json.loads(request.input[2]["arguments"]) == {"input": 'say "ä"'}


# -- offers ---------------------------------------------------------------------------------------

SEARCH = {"type": "tool_search", "execution": "client", "description": "Search."}
DEFERRED = [
    SEARCH,
    function("later", description="For later.", defer_loading=True),
    namespace("crm", function("find", defer_loading=True), description="Customers."),
]


def test_deferred_tools_are_offered_only_after_a_search_has_loaded_them() -> None:
    call = {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "crm"}}
    output = {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": [DEFERRED[2]]}

    before, after = mapped(*DEFERRED), mapped(*DEFERRED, items=[call, output])

    [search] = before.request.parameters["tools"]
    assert search["description"] == "Search.\n\n- later: For later.\n- crm: Customers."
    assert [tool["name"] for tool in after.request.parameters["tools"]] == ["tool_search", "crm__find"]
    assert after.request.input[1]["type"] == "function_call"
    assert after.request.input[2]["output"] == "These tools can be called now: crm__find"
    assert before.ignored == after.ignored == ()


def test_the_output_of_a_function_may_answer_a_search() -> None:
    call = {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "crm"}}
    output = {"type": "function_call_output", "call_id": "s", "output": "nothing"}
    _, search, answer = mapped(SEARCH, items=[call, output]).request.input
    assert (search["type"], search["call_id"], search["name"]) == ("function_call", "s", "tool_search")
    assert answer == output


def test_a_search_in_the_history_may_have_found_tools_that_only_a_server_can_run() -> None:
    output = {"type": "tool_search_output", "execution": "server", "tools": [{"type": "mcp", "server_label": "s"}]}

    result = mapped(function("f"), items=[output])

    assert result.request.input[1]["content"][0]["text"] == "No tools were found."
    assert result.ignored == ("tools.mcp",)


def test_a_search_by_the_server_is_left_out_and_all_tools_are_offered() -> None:
    result = mapped({"type": "tool_search"}, *DEFERRED[1:])

    assert [tool["name"] for tool in result.request.parameters["tools"]] == ["later", "crm__find"]
    assert result.ignored == ("tools.tool_search", "tools.defer_loading", "tools.defer_loading")


def test_a_grammar_is_described_and_reported_as_not_enforced() -> None:
    result = mapped({"type": "custom", "name": "c", "description": "d", "format": GRAMMAR})

    [tool] = result.request.parameters["tools"]
    assert tool["description"].endswith("The input must match this lark grammar:\nstart: /a+/")
    assert result.ignored == ("tools.format",)


def test_additional_tools_are_offered_and_a_configuration_update_replaces_the_settings() -> None:
    items = [
        {"type": "additional_tools", "role": "developer", "tools": [function("g")]},
        {"type": "configuration_update", "reasoning": {"effort": "high"}},
        {"type": "configuration_update", "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_object"}}},
    ]

    request = mapped(function("f"), items=items, reasoning={"effort": "none", "summary": "auto"}).request

    assert [tool["name"] for tool in request.parameters["tools"]] == ["f", "g"]
    assert request.parameters["reasoning"] == {"effort": "low", "summary": "auto"}
    assert request.parameters["text"] == {"format": {"type": "json_object"}}
    assert len(request.input) == 1


@pytest.mark.parametrize(
    ("choice", "names", "sent"),
    [
        ({"type": "namespace", "name": "a"}, ["a__b", "a__t"], "required"),
        ({"type": "custom", "name": "t"}, ["a__t"], "required"),
        ({"type": "web_search"}, [], None),
    ],
)
def test_only_the_allowed_tools_are_offered(choice: Json, names: list[str], sent: str | None) -> None:
    tools = (function("f"), namespace("a", function("b"), {"type": "custom", "name": "t"}))
    result = mapped(*tools, tool_choice={"type": "allowed_tools", "mode": "required", "tools": [choice]})

    assert [tool["name"] for tool in result.request.parameters.get("tools", ())] == names
    assert result.request.parameters.get("tool_choice") == sent
    assert result.ignored == (() if names else ("tool_choice",))


@pytest.mark.parametrize(
    ("tool", "message"),
    [
        ({"type": "hologram"}, "hologram tools"),
        ({"type": "shell", "environment": {"type": "container_auto"}}, "shell tools in a container"),
        ({"type": "web_search"}, "web_search tools"),
    ],
)
def test_a_tool_that_only_a_server_can_run_is_refused_by_name(tool: Json, message: str) -> None:
    with pytest.raises(Unsupported, match=message) as error:
        mapped(tool)
    assert error.value.param == "tools"


@pytest.mark.parametrize(
    "item",
    [
        {"type": "shell_call", "call_id": "c", "action": "ls"},
        {"type": "custom_tool_call", "call_id": "c", "name": "n", "input": 7},
        {"type": "additional_tools", "tools": [7]},
        {"type": "additional_tools", "tools": [{"type": "namespace", "name": "n", "tools": [{"type": "mcp"}]}]},
        {"type": "configuration_update", "text": "x"},
        {"type": "tool_search_output", "call_id": "c", "tools": {}},
    ],
    ids=lambda item: item["type"],
)
def test_a_malformed_item_is_refused(item: Json) -> None:
    with pytest.raises((InputFault, Unsupported)):
        mapped(items=[item])


def test_items_of_hosted_tools_become_notes_without_their_image_data() -> None:
    items = [
        {"type": "web_search_call", "id": "ws", "status": "completed", "action": {"type": "search", "query": "tides"}},
        {"type": "image_generation_call", "id": "ig", "status": "completed", "result": "iVBORw0KGgo="},
        {"type": "mcp_approval_response", "approval_request_id": "a", "approve": True},
    ]

    result = mapped(items=items)

    [search, image, approval] = result.request.input[1:]
    assert search["role"] == "assistant"
    assert '"query": "tides"' in search["content"][0]["text"]
    assert image["content"][0]["text"] == "[image_generation_call]\nstatus: completed\nresult: (not shown)"
    assert (approval["role"], result.ignored) == ("user", ("input.image_generation_call.result",))


# -- calls ----------------------------------------------------------------------------------------

TOOLS = [
    namespace("crm", function("find"), {"type": "custom", "name": "query"}),
    {"type": "custom", "name": "patch"},
    {"type": "shell"},
    {"type": "local_shell"},
    {"type": "apply_patch"},
    SEARCH,
]

CALLS: dict[str, tuple[str, str, dict[str, Json]]] = {
    "a function of a namespace": (
        "crm__find",
        '{"q": 1}',
        {"type": "function_call", "name": "find", "namespace": "crm", "arguments": '{"q": 1}'},
    ),
    "a custom tool": ("patch", '{"input": "a\\nb"}', {"type": "custom_tool_call", "name": "patch", "input": "a\nb"}),
    "a custom tool of a namespace": (
        "crm__query",
        '{"input": "x"}',
        {"type": "custom_tool_call", "name": "query", "namespace": "crm", "input": "x"},
    ),
    "a custom tool with plain text": ("patch", "a{b", {"type": "custom_tool_call", "name": "patch", "input": "a{b"}),
    "a shell": (
        "shell",
        '{"commands": ["ls", "pwd"], "timeout_ms": 5}',
        {
            "type": "shell_call",
            "action": {"commands": ["ls", "pwd"], "timeout_ms": 5, "max_output_length": None},
            "environment": {"type": "local"},
        },
    ),
    "a shell with malformed arguments": (
        "shell",
        '{"commands": ["ls"',
        {"type": "function_call", "name": "shell", "arguments": '{"commands": ["ls"'},
    ),
    "a local shell": (
        "local_shell",
        '{"command": ["ls"], "env": {"A": "b"}, "user": 7}',
        {
            "type": "local_shell_call",
            "action": {
                "type": "exec",
                "command": ["ls"],
                "env": {"A": "b"},
                "timeout_ms": None,
                "user": None,
                "working_directory": None,
            },
        },
    ),
    "a patch": (
        "apply_patch",
        '{"type": "delete_file", "path": "a", "diff": ""}',
        {"type": "apply_patch_call", "operation": {"type": "delete_file", "path": "a"}},
    ),
    "a patch without a diff": (
        "apply_patch",
        '{"type": "update_file", "path": "a"}',
        {"type": "function_call", "name": "apply_patch", "arguments": '{"type": "update_file", "path": "a"}'},
    ),
    "a search": (
        "tool_search",
        '{"query": "crm"}',
        {"type": "tool_search_call", "arguments": {"query": "crm"}, "execution": "client"},
    ),
    "a tool that is not offered": ("no", "[", {"type": "function_call", "name": "no", "arguments": "["}),
}


@pytest.fixture(params=["chat", "claude"])
async def model(request: pytest.FixtureRequest, server: ChatServer) -> AsyncIterator[Model]:
    key, new_id = Secret("sk-1"), counting_ids()
    model: Model = (
        ChatModel("x", server.url, new_id, key=key)
        if request.param == "chat"
        else AnthropicModel("x", server.url, new_id, key=key)
    )
    yield model
    await model.aclose()


def prepare_call(server: ChatServer, model: Model, name: str, arguments: str) -> None:
    """Let the server call a function, with the arguments in pieces of three characters."""
    pieces = [arguments[start : start + 3] for start in range(0, len(arguments), 3)]
    if isinstance(model, AnthropicModel):
        blocks = messages_events.text(0, "ok"), messages_events.tool(1, "call_1", name, *pieces)
        server.stream(*messages_events.message_events(*blocks, reason="tool_use"), end=b"")
        return
    calls = (chat_server.tool(0, arguments=piece) for piece in pieces)
    start = chat_server.tool(0, call_id="call_1", name=name)
    server.stream(chat_server.delta(content="ok"), start, *calls, chat_server.finish("tool_calls"))


@pytest.mark.parametrize(("name", "arguments", "item"), CALLS.values(), ids=CALLS)
async def test_a_call_comes_back_as_the_item_of_its_tool_streamed_and_final(
    server: ChatServer, model: Model, name: str, arguments: str, item: dict[str, Json]
) -> None:
    prepare_call(server, model, name, arguments)

    events = await read_events(model, make_request(user_message("hi"), model="claude-opus-5", tools=TOOLS))

    final = events[-1]["response"]["output"][1]
    expected = {**item, "call_id": "call_1", "status": "completed"}
    assert {field: value for field, value in final.items() if field != "id"} == expected
    assert TypeAdapter(ResponseOutputItem).validate_python(final).type == item["type"]
    assert final in [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert list(streamed_arguments(events)) == [
        (str(item[field]), str(item[field])) for field in ("arguments", "input") if isinstance(item.get(field), str)
    ]


def streamed_arguments(events: Iterable[StreamEvent]) -> Iterator[tuple[str, str]]:
    """Yield, for each call, the text of its deltas and the text of its done event."""
    text = ""
    for event in events:
        kind = event["type"]
        if kind in ("response.function_call_arguments.delta", "response.custom_tool_call_input.delta"):
            text += event["delta"]
        elif kind in ("response.function_call_arguments.done", "response.custom_tool_call_input.done"):
            yield text, event["arguments"] if "arguments" in event else event["input"]
            text = ""


@pytest.mark.parametrize("name", ["shell", "patch"])
def test_a_call_that_is_cut_off_is_never_complete(name: str) -> None:
    tools = {"shell": ClientTool("shell", "shell"), "patch": ClientTool("custom", "patch")}
    writer = ResponseEventWriter(counting_ids(), "m", tools=tools)

    events = [*writer.start_function_call("c", name), *writer.write_arguments('{"input": "a')]
    events += writer.write_incomplete("max_output_tokens", None)

    output = events[-1]["response"]["output"]
    assert [(item["status"], item["input"]) for item in output] == ([("incomplete", "a")] if name == "patch" else [])


# -- text of custom tools -------------------------------------------------------------------------


@given(st.text(), st.booleans(), st.lists(st.integers(1, 9), min_size=1))
def test_the_input_of_a_custom_tool_is_decoded_while_it_arrives(text: str, ascii_only: bool, sizes: list[int]) -> None:
    arguments, decoder, pieces = json.dumps({"input": text}, ensure_ascii=ascii_only), CustomInputDecoder(), []
    start = 0
    while start < len(arguments):
        size = sizes[start % len(sizes)]
        pieces.append(decoder.decode(arguments[start : start + size]))
        start += size
    decoded = "".join(pieces)

    assert decoded.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass") == text
    assert decoder.finish() == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("", ""),
        ("{}", ""),
        ("ls -la", "ls -la"),
        ('"ls"', "ls"),
        ('{"text": "x", "input": "y"}', "y"),
        ('{"text": "x"}', '{"text": "x"}'),
        ('{"input": 7}', '{"input": 7}'),
        ('{"input": "a\\d\n"}', "a\\d\n"),
        ('{"input": "a"} and more', "a"),
        ('{"input": "cut \\u00', "cut \\u00"),
        ("[" * 100_000, "[" * 100_000),
    ],
    ids=lambda value: str(value)[:20],
)
def test_malformed_arguments_of_a_custom_tool_give_a_defined_input(arguments: str, text: str) -> None:
    whole, pieces = CustomInputDecoder(), CustomInputDecoder()

    assert whole.decode(arguments) + whole.finish() == text
    assert "".join(pieces.decode(character) for character in arguments[:500]) + pieces.finish() == text[:500]
