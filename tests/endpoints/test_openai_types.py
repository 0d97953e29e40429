"""Every parameter, tool, tool choice and item of the openai package, on a chat model, on Claude and on a native server.

The members are read from the package, with a sample for each. Each is sent, done by the endpoint, refused by name, or
reported as ignored: the request that the server received is compared with the one without the member. A member that
the tables do not list fails: decide what becomes of it.
"""

import json
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, get_args, get_origin, is_typeddict

import pytest
from openai.types.beta.beta_response_input_item_param import BetaResponseInputItemParam
from openai.types.responses import response_create_params
from openai.types.responses.easy_input_message_param import EasyInputMessageParam
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from openai.types.responses.tool_param import ToolParam
from typing_extensions import get_type_hints
from typing_extensions import is_typeddict as is_extension_typeddict

from convo.config.sections import HostedTools
from convo.errors import ConvoError
from convo.history.items import OUTPUT_BY_CLIENT_CALL, Json, item_type
from convo.models.anthropic import AnthropicModel
from convo.models.base import Model
from convo.models.chat_completions import ChatModel
from convo.models.http import OpenAIClientOptions
from convo.models.request_fields import MODEL_FIELDS
from convo.models.responses import ResponsesModel
from convo.responses_api.endpoint import EmbeddedEndpoint
from convo.runtime import SystemClock, random_id
from convo.secrets import Secret
from convo.stores.memory import MemoryStore
from tests.models import messages_events
from tests.models.chat_server import ChatServer, delta, finish, run_chat_server
from tests.request_values import FIELD_VALUES, TOOL

# -- samples --------------------------------------------------------------------------------------

SAMPLES: Mapping[str, Json] = {
    "allowed_callers": ["programmatic"],
    "caller": {"type": "program", "caller_id": "prog_1"},
    "output_schema": {"type": "object"},
    "parameters": {"type": "object", "properties": {"p": {"type": "string"}}},
    "container": "cntr_1",
    "image_url": "https://example.org/a.png",
    "file_data": "data:application/pdf;base64,JVBERi0=",
    "id": "item_1",
    "call_id": "call_1",
    "format of custom": {"type": "grammar", "syntax": "lark", "definition": "start: /a+/"},
    "text of configuration_update": {"format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}}},
    "arguments of tool_search_call": {"query": "q"},
    "arguments": "{}",
    "execution of tool_search": "client",
    "execution of tool_search_call": "client",
    "execution of tool_search_output": "client",
    "environment of shell": {"type": "local", "skills": [{"name": "s", "description": "d", "path": "p"}]},
    "environment of shell_call": {"type": "container_reference", "container_id": "cntr_1"},
    "status": "completed",
    "status of apply_patch_call_output": "failed",
    "defer_loading": True,
    "async": True,
}
"""Values by field, or by field and type, for which a value of the field's type would change or mean nothing."""


def sample(hint: Any, field: str = "", owner: str = "") -> Json:
    """Return a value of a type, with all fields of an object."""
    for key in (f"{field} of {owner}", field):
        if key in SAMPLES:
            return SAMPLES[key]
    if is_typeddict(hint) or is_extension_typeddict(hint):
        return sample_object(hint)
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Literal:
        return arguments[-1]
    if hint in (bool, int, float, str, object):
        return {bool: True, int: 7, float: 0.5, str: f"{field} text", object: f"{field} object"}[hint]
    if origin is dict:
        return {"key": sample(arguments[1], "key")}
    members = [member for member in arguments if member is not type(None)]
    if origin is not None and isinstance(origin, type) and issubclass(origin, Iterable):
        return [sample(members[0], field)]
    return sample(members[0], field, owner)


def sample_object(hint: Any) -> dict[str, Json]:
    owner = next(iter(type_names(hint)), "")
    return {name: sample(member, name, owner) for name, member in get_type_hints(hint).items()}


def type_names(hint: Any) -> list[str]:
    """Return the possible values of `type`, without null."""
    literal = get_type_hints(hint).get("type")
    members = [literal, *get_args(literal)]
    return [str(value) for member in members if get_origin(member) is Literal for value in get_args(member)]


def union_members(*unions: Any) -> dict[str, dict[str, Json]]:
    """Return a sample for each value of `type`; of several members with one type the first, with all their fields."""
    samples: dict[str, dict[str, Json]] = {}
    for member in (member for union in unions for member in get_args(union)):
        for name in type_names(member):
            samples[name] = {**sample_object(member), **samples.get(name, {}), "type": name}
    return samples


# -- decisions ------------------------------------------------------------------------------------

HOSTED, OFFERED = "hosted", "offered"

TOOLS: Mapping[str, str] = {
    **dict.fromkeys(
        ("function", "custom", "namespace", "local_shell", "shell", "apply_patch", "tool_search"),
        OFFERED,
    ),
    **dict.fromkeys(
        (
            *("file_search", "computer", "computer_use_preview", "web_search", "web_search_2025_08_26"),
            *("web_search_preview", "web_search_preview_2025_03_11", "mcp", "code_interpreter"),
            *("programmatic_tool_calling", "image_generation"),
        ),
        HOSTED,
    ),
}
"""What becomes of a tool: it is offered as functions, or only a server can run it."""

SENT, APPLIED, BY_ENDPOINT, REPORTED = "sent", "applied", "by the endpoint", "reported"

ITEMS: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output"),
            *("local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output"),
            *("apply_patch_call", "apply_patch_call_output", "tool_search_call", "tool_search_output"),
            *("file_search_call", "computer_call", "computer_call_output", "web_search_call", "image_generation_call"),
            *("code_interpreter_call", "mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "mcp_call"),
            *("program", "program_output", "agent_message", "multi_agent_call", "multi_agent_call_output"),
        ),
        SENT,
    ),
    **dict.fromkeys(("additional_tools", "configuration_update"), APPLIED),
    **dict.fromkeys(("compaction", "compaction_trigger", "item_reference"), BY_ENDPOINT),
    "reasoning": REPORTED,
}
"""What becomes of an item that another model or server made."""

WITHOUT_MEANING: Mapping[str, str] = {
    "id": "the server's name of the item",
    "status": "only servers set it; failures of a tool are sent",
    "type": "chooses the translation",
    "role": "an item of additional_tools always has the role developer",
    "name of function_call_output": "the call has the name",
    "namespace of function_call_output": "the call has the namespace",
    "execution": "a tool search with a call id is the client's",
}
"""Fields of items that a model need not see, with the reason."""

DONE_BY_ADAPTER = {
    ("chat", "reasoning.summary"): "reasoning that arrives is written as a summary",
    ("chat", "reasoning.generate_summary"): "reasoning that arrives is written as a summary",
}
"""Fields that change the response instead of the request."""

TOOL_CHOICES: Mapping[str, Json] = {
    "allowed_tools": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "shell"}]},
    "function": {"type": "function", "name": "f"},
    "custom": {"type": "custom", "name": "c"},
    "apply_patch": {"type": "apply_patch"},
    "shell": {"type": "shell"},
}
"""The tool choices that name a tool that is offered; those that name a hosted tool are refused."""
HOSTED_CHOICES = frozenset(
    {
        *("file_search", "web_search_preview", "web_search_preview_2025_03_11", "computer", "computer_use_preview"),
        *("computer_use", "image_generation", "code_interpreter", "mcp", "programmatic_tool_calling"),
    }
)

TOOL_SAMPLES = union_members(ToolParam)
ITEM_SAMPLES = union_members(ResponseInputItemParam, BetaResponseInputItemParam)
CREATE_PARAMETERS = {
    name: hint
    for params in get_args(response_create_params.ResponseCreateParams)
    for name, hint in get_type_hints(params).items()
}


def test_every_member_of_the_package_has_a_decision() -> None:
    choices = get_args(get_type_hints(response_create_params.ResponseCreateParamsBase)["tool_choice"])
    choice_types = {name for choice in choices if get_origin(choice) is not Literal for name in type_names(choice)}

    assert set(TOOL_SAMPLES) <= set(TOOLS)  # an older release of the package has fewer members
    assert set(ITEM_SAMPLES) <= set(ITEMS)
    assert set(CREATE_PARAMETERS) <= set(FIELD_VALUES)
    assert choice_types <= set(TOOL_CHOICES) | HOSTED_CHOICES


# -- requests -------------------------------------------------------------------------------------

API_NAMES = ("chat", "claude", "native")


class Outcome(NamedTuple):
    """The body that the server received, and the ignored fields; or the refusal."""

    body: Mapping[str, Json] | None
    ignored: Sequence[str] = ()
    refused_param: str | None = None
    refusal: str = ""


class Upstreams:
    """One server with three APIs, behind an endpoint for each API and each value of `hosted_tools`."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self._endpoints: dict[tuple[str, bool], EmbeddedEndpoint] = {}
        self._models: list[Model] = []

    async def send(self, api: str, body: Mapping[str, Json], *, omit: bool = False) -> Outcome:
        endpoint = self._endpoints.get((api, omit)) or self._open(api, omit=omit)
        self._server.answers.clear()
        self._server.requests.clear()
        match api:
            case "chat":
                self._server.stream(delta(content="ok"), finish("stop"))
            case "claude":
                self._server.stream(*messages_events.message_events(messages_events.text(0, "ok")), end=b"")
            case _:
                response: Json = {"id": "resp_1", "status": "completed", "output": [], "usage": None}
                self._server.stream({"type": "response.completed", "response": response})
        try:
            request: dict[str, Json] = {"model": "x/claude-opus-5", "input": "hi", **body}
            events = [event async for event in endpoint.create(request)]
        except ConvoError as error:
            assert self._server.requests == []
            return Outcome(None, (), getattr(error, "param", None) or error.code, error.message)
        return Outcome(self._server.requests[0].json, events[0].get("ignored") or ())

    async def aclose(self) -> None:
        for model in self._models:
            await model.aclose()

    def _open(self, api: str, *, omit: bool) -> EmbeddedEndpoint:
        key = Secret("sk-1")
        hosted_tools: HostedTools = "omit" if omit else "refuse"
        model: Model
        match api:
            case "chat":
                model = ChatModel("x", self._server.url, random_id, key=key, hosted_tools=hosted_tools)
            case "claude":
                model = AnthropicModel("x", self._server.url, random_id, key=key, hosted_tools=hosted_tools)
            case _:
                model = ResponsesModel(OpenAIClientOptions("x", self._server.url, key=key), random_id)
        self._models.append(model)
        endpoint = EmbeddedEndpoint(MemoryStore(), OneModel(model), SystemClock(), random_id)
        self._endpoints[api, omit] = endpoint
        return endpoint


class OneModel:
    """Opens the same model for every name."""

    def __init__(self, model: Model) -> None:
        self._model = model

    def __call__(self, name: str) -> tuple[Model, str]:
        return self._model, name.partition("/")[2]

    async def aclose(self) -> None:
        """Leave the model open."""


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with run_chat_server() as server:
        yield server


@pytest.fixture
async def upstreams(server: ChatServer) -> AsyncIterator[Upstreams]:
    upstreams = Upstreams(server)
    yield upstreams
    await upstreams.aclose()


def is_visible(outcome: Outcome, without: Outcome, *names: str) -> bool:
    """Whether a member changed the request, or is named in the refusal or among the ignored fields."""
    if outcome.body is None:
        return any(name in (outcome.refused_param or "") or name in outcome.refusal for name in names)
    return outcome.body != without.body or any(name in outcome.ignored for name in names)


def texts_of(value: Json) -> list[str]:
    """Return the texts in a value that `sample` made up."""
    if isinstance(value, dict | list):
        return [text for member in (value.values() if isinstance(value, dict) else value) for text in texts_of(member)]
    return [value] if isinstance(value, str) and value.endswith((" text", " object")) else []


def is_sent(value: Json, outcome: Outcome) -> bool:
    """Whether every made-up text of a value, of which there is one at least, is in the request."""
    texts, body = texts_of(value), json.dumps(outcome.body)
    return bool(texts) and all(text in body for text in texts)


# -- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("api", API_NAMES)
async def test_a_parameter_is_sent_refused_or_reported(upstreams: Upstreams, api: str) -> None:
    dropped: list[str] = []
    for name in (MODEL_FIELDS - {"truncation"} | {"instructions"}) & set(CREATE_PARAMETERS):  # the endpoint truncates
        value = FIELD_VALUES[name]
        base: dict[str, Json] = {"tools": [TOOL]} if name in ("tool_choice", "parallel_tool_calls") else {}
        without = await upstreams.send(api, base)
        hints = object_hints(CREATE_PARAMETERS[name]) if isinstance(value, dict) else {}
        for field, hint in hints.items():
            extended = {**value, field: value.get(field, sample(hint, field))}
            reduced = {inner: extended[inner] for inner in extended if inner != field}
            with_field = await upstreams.send(api, {**base, name: extended})
            without_field = await upstreams.send(api, {**base, name: reduced})
            is_done = (api, f"{name}.{field}") in DONE_BY_ADAPTER
            if not is_done and not is_visible(with_field, without_field, f"{name}.{field}", name):
                dropped.append(f"{name}.{field}")
        if not is_visible(await upstreams.send(api, {**base, name: value}), without, name):
            dropped.append(name)
    assert dropped == []


def object_hints(hint: Any) -> Mapping[str, Any]:
    """Return the fields of a parameter that is an object."""
    for member in (hint, *get_args(hint)):
        if is_typeddict(member) or is_extension_typeddict(member):
            return get_type_hints(member)
    return {}


# -- tools ----------------------------------------------------------------------------------------

SEARCH = {"type": "tool_search", "execution": "client"}


@pytest.mark.parametrize("api", ["chat", "claude"])
@pytest.mark.parametrize("kind", TOOL_SAMPLES)
async def test_a_tool_is_offered_with_all_its_fields_or_refused(upstreams: Upstreams, api: str, kind: str) -> None:
    tool = TOOL_SAMPLES[kind]
    offered = await upstreams.send(api, {"tools": [TOOL, tool]})
    omitted = await upstreams.send(api, {"tools": [TOOL, tool]}, omit=True)
    plain = await upstreams.send(api, {"tools": [TOOL]})

    if TOOLS[kind] == HOSTED:
        if kind == "mcp":  # run by the gateway if its server is in the settings
            assert (offered.body, offered.refused_param) == (None, "tools[1].server_label")
        else:
            assert (offered.body, offered.refused_param) == (None, "tools")
            assert f"{kind} tools" in offered.refusal
        assert omitted.body == plain.body
        assert omitted.ignored == [f"tools.{kind}"]
        return
    assert omitted == offered
    assert offered.body is not None
    assert len(offered.body["tools"]) > 1
    dropped = []
    for field in (field for field in tool if not is_sent(tool[field], offered)):
        reduced = {name: tool[name] for name in tool if name != field}
        without = await upstreams.send(api, {"tools": [TOOL, reduced]})
        if not is_visible(offered, without, f"tools.{field}"):
            dropped.append(field)
    assert dropped == []


@pytest.mark.parametrize("api", ["chat", "claude"])
async def test_a_tool_choice_is_sent_or_refused(upstreams: Upstreams, api: str) -> None:
    tools = [TOOL, {"type": "custom", "name": "c"}, {"type": "shell"}, {"type": "apply_patch"}]
    plain = await upstreams.send(api, {"tools": tools})
    assert plain.body is not None
    for kind, choice in TOOL_CHOICES.items():
        outcome = await upstreams.send(api, {"tools": tools, "tool_choice": choice})
        assert outcome.body is not None
        sent, name = json.dumps(outcome.body["tool_choice"]), choice.get("name", kind)
        assert (f'"{name}"' in sent, outcome.ignored) == (kind != "allowed_tools", ())
        assert len(outcome.body["tools"]) == (1 if kind == "allowed_tools" else len(tools))
    for kind in HOSTED_CHOICES:
        body = {"tools": tools, "tool_choice": {"type": kind, "server_label": "s"}}
        refused, omitted = await upstreams.send(api, body), await upstreams.send(api, body, omit=True)
        assert (refused.body, refused.refused_param) == (None, "tool_choice")
        assert (omitted.body, omitted.ignored) == (plain.body, ["tool_choice"])


# -- items ----------------------------------------------------------------------------------------

CALL_BY_OUTPUT = {
    **{output: call for call, output in OUTPUT_BY_CLIENT_CALL.items()},
    "tool_search_output": "tool_search_call",
}


def with_partner(item: Mapping[str, Json]) -> list[Mapping[str, Json]]:
    """Return the items of a valid history that contains `item`."""
    kind = item_type(item)
    if kind in CALL_BY_OUTPUT:
        call = {**ITEM_SAMPLES[CALL_BY_OUTPUT[kind]], "call_id": item.get("call_id", item.get("id"))}
        return [call, item]
    if kind in CALL_BY_OUTPUT.values():
        output = next(output for output, call in CALL_BY_OUTPUT.items() if call == kind)
        return [item, {**ITEM_SAMPLES[output], "call_id": item.get("call_id"), "id": item.get("call_id")}]
    return [item]


def history(item: Mapping[str, Json]) -> list[Json]:
    """Return a history with `item`; every id occurs once."""
    items = [{"role": "user", "content": "hi"}, *with_partner(item)]
    return [
        {**one, "id": f"{item_type(one)}_{number}"}
        if "id" in one and item_type(one) != "local_shell_call_output"
        else one
        for number, one in enumerate(items)
    ]


@pytest.mark.parametrize("api", ["chat", "claude"])
@pytest.mark.parametrize("kind", [kind for kind in ITEM_SAMPLES if ITEMS[kind] != BY_ENDPOINT])
async def test_an_item_is_sent_applied_or_reported_with_all_its_fields(
    upstreams: Upstreams, api: str, kind: str
) -> None:
    item = ITEM_SAMPLES[kind]
    outcome = await upstreams.send(api, {"input": history(item)})
    assert outcome.body is not None, outcome.refusal
    if ITEMS[kind] == REPORTED:
        assert outcome.ignored == [f"input.{kind}"]
        return
    dropped = []
    for field in item:
        if field in WITHOUT_MEANING or f"{field} of {kind}" in WITHOUT_MEANING or is_sent(item[field], outcome):
            continue
        reduced = {name: item[name] for name in item if name != field}
        without = await upstreams.send(api, {"input": history(reduced)})
        if not is_visible(outcome, without, f"input.{kind}.{field}"):
            dropped.append(field)
    assert dropped == []


CONTENT_PARTS = {
    type_names(part)[0]: sample_object(part)
    for part in get_args(get_args(get_args(get_type_hints(EasyInputMessageParam)["content"])[1])[0])
}


@pytest.mark.parametrize("api", ["chat", "claude"])
@pytest.mark.parametrize("kind", CONTENT_PARTS)
async def test_a_content_part_is_sent_or_refused_with_all_its_fields(upstreams: Upstreams, api: str, kind: str) -> None:
    part = {name: value for name, value in CONTENT_PARTS[kind].items() if name not in ("file_id", "file_url")}
    part |= {"type": kind}
    dropped = []
    outcome = await upstreams.send(api, {"input": [{"role": "user", "content": [part]}]})
    for field in part:
        reduced = {name: part[name] for name in part if name != field}
        without = await upstreams.send(api, {"input": [{"role": "user", "content": [reduced]}]})
        if not is_visible(outcome, without, f"input.{kind}.{field}"):
            dropped.append(field)
    assert (outcome.body is not None, dropped) == (True, [])


# -- native servers -------------------------------------------------------------------------------


async def test_a_native_server_gets_every_tool_and_item_unchanged(upstreams: Upstreams) -> None:
    for kind, tool in TOOL_SAMPLES.items():
        outcome = await upstreams.send("native", {"tools": [tool]})
        assert outcome.body is not None, (kind, outcome.refusal)
        assert outcome.body["tools"] == [tool]
    for kind, item in ITEM_SAMPLES.items():
        if ITEMS[kind] == BY_ENDPOINT:
            continue
        outcome = await upstreams.send("native", {"input": history(item)})
        assert outcome.body is not None, (kind, outcome.refusal)
        sent = [{name: one[name] for name in one if name != "id"} for one in outcome.body["input"]]
        assert {name: item[name] for name in item if name != "id"} in sent
