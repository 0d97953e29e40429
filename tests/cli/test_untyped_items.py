"""Items without a type, from a model or a state file: refused before a tool runs, and never stored."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cli.agent_files import agent_flags, read_from_store, tool_runs, two_refund_calls
from tests.cli.chat_commands import scripted_flags, stored_conversation
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo, Launch
from tests.hostile_server import JSON, HostileServer, run_hostile_server
from tests.loopback_server import LoopbackServer, raw_stream

LOOK_UP_CALL = {"type": "function_call", "call_id": "c0", "name": "look_up", "arguments": '{"order": "A1"}'}

ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Found."}]}

BAD_ITEMS = {
    "no type": {"text": "hello"},
    "a type of null": {"type": None, "text": "hello"},
    "an empty type": {"type": "", "role": "assistant", "content": []},
    "a type that is a number": {"type": 1},
    "a text": "hello",
    "null": None,
    "a list": [],
}


@pytest.mark.parametrize("item", BAD_ITEMS.values(), ids=BAD_ITEMS)
def test_an_item_of_a_server_without_a_type_is_left_out_and_reported(
    item: Any, server: LoopbackServer, convo: Convo, home: Path
) -> None:
    for output in ([LOOK_UP_CALL, item], [ANSWER]):
        event = {"type": "response.completed", "response": {"id": "resp_1", "status": "completed", "output": output}}
        server.arm(raw_stream(f"data: {json.dumps(event)}\n\n".encode()))
    got = convo("chat", *agent_flags(), "-m", "openai/any", "-n", "mine", "look up")

    assert (got.exit, tool_runs()) == (0, ["look_up A1"]), got.err
    assert "note: an output item without a type was left out" in got.err
    items, _ = stored_conversation(home, "mine")
    assert [one["type"] for one in items] == ["message", "function_call", "function_call_output", "message"]


@pytest.fixture
def invalid_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[HostileServer]:
    with run_hostile_server() as server:
        for name, value in server.environ.items():
            monkeypatch.setenv(name, value)
        yield server


def json_answer(value: object) -> Iterator[bytes]:
    return iter([JSON + json.dumps(value).encode()])


@pytest.mark.parametrize("data", [[{"text": "x"}], ["x"], {"type": "message"}, "x"])
def test_a_listed_item_without_a_type_is_refused(data: Any, invalid_server: HostileServer, convo: Convo) -> None:
    invalid_server.answers = lambda request: json_answer(
        {"data": data, "has_more": False}
        if "/items" in request
        else {"id": "conv_1", "object": "conversation", "created_at": 1}
    )
    got = convo("inspect", "conv_1", "--provider", "openai")

    assert (got.exit, got.out) == (1, "")
    assert got.err.startswith("convo: the endpoint listed an item that has no type or is not an object\n")


@pytest.mark.parametrize("item", BAD_ITEMS.values(), ids=BAD_ITEMS)
def test_a_retrieved_item_without_a_type_is_refused(item: Any, invalid_server: HostileServer, convo: Convo) -> None:
    invalid_server.answers = lambda request: json_answer(
        {"id": "resp_1", "object": "response", "status": "completed", "output": [item]}
    )
    got = convo("inspect", "resp_1", "--provider", "openai")

    assert (got.exit, got.out) == (1, "")
    assert got.err.startswith("convo: openai sent an output item that has no type or is not an object\n")


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({"status": "done"}, "completed"),
        ({"status": "cut", "incomplete_details": {"reason": "max_output_tokens"}}, "incomplete"),
    ],
)
def test_an_unknown_status_of_a_server_is_not_stored(
    fields: dict[str, Any], status: str, server: LoopbackServer, convo: Convo, home: Path
) -> None:
    message = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello."}]}
    event = {"type": "response.completed", "response": {"id": "resp_1", "output": [message], **fields}}
    server.arm(raw_stream(f"data: {json.dumps(event)}\n\n".encode()))
    convo("chat", "--session", "-m", "openai/any", "-n", "mine", "hi")

    _, links = stored_conversation(home, "mine")
    assert [link.status for link in links] == [status]


def test_the_easy_form_of_a_message_is_accepted(convo: Convo, home: Path) -> None:
    model = scripted_flags({"output": [{"role": "assistant", "content": "Hello."}]})
    got = convo("chat", *model, "-n", "mine", "hi")
    assert (got.exit, got.out) == (0, "Hello.\n"), got.err


# -- a state file ---------------------------------------------------------------------------------


@pytest.fixture
def paused_flags(convo: Convo, home: Path) -> tuple[str, str]:
    """Pause a run at two refund calls, with state.json; returns the flags of its model."""
    model = two_refund_calls()
    assert convo("chat", *agent_flags(), *model, "--state", "state.json", "-n", "mine", "pay back").exit == 3
    return model


def change_state(change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(Path("state.json").read_text())
    change(document)
    Path("state.json").write_text(json.dumps(document))


RUN_ITEM_FAULTS: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a run item without a type": (
        lambda state: state["generated_items"][0].pop("type"),
        "$.generated_items[0].type must be the type of the run item",
    ),
    "a session item with a type of null": (
        lambda state: state["session_items"][0].update(type=None),
        "$.session_items[0].type must be the type of the run item",
    ),
    "an item without a type": (
        lambda state: state["generated_items"][0]["raw_item"].pop("type"),
        "$.generated_items[0].raw_item",
    ),
    "an output item without a type": (
        lambda state: state["model_responses"][0]["output"].append({"text": "x"}),
        "$.model_responses[0].output[2] must be an item with a type",
    ),
    "an output item that is a text": (
        lambda state: state["model_responses"][0]["output"].append("x"),
        "$.model_responses[0].output must be a list of items",
    ),
}


@pytest.mark.parametrize(("change", "message"), RUN_ITEM_FAULTS.values(), ids=RUN_ITEM_FAULTS)
def test_a_run_item_of_a_state_without_a_type_is_refused(
    change: Callable[[dict[str, Any]], object],
    message: str,
    paused_flags: tuple[str, str],
    launch: Launch,
    tmp_path: Path,
) -> None:
    change_state(change)
    other_home = tmp_path / "elsewhere"
    flags = ("resume", "state.json", *agent_flags(), *paused_flags, "--approve", "all")
    got = launch(*flags, env={"CONVO_HOME": str(other_home)})

    assert (got.exit, got.out, tool_runs()) == (2, "", [])
    assert message in got.err
    assert got.err.startswith("convo: ")
    assert stored_run_count(other_home) == 0


def stored_run_count(home: Path) -> int:
    async def count(store: Any) -> int:
        return len(await store.agent_runs())

    return read_from_store(home, count)


UNWRITABLE: dict[str, Callable[[dict[str, Any]], object]] = {
    "a reference without an index": lambda state: state.update(nested_history_owned_session_item_refs=[{}]),
    "a reference that is a text": lambda state: state.update(nested_history_owned_session_item_refs=["x"]),
    "the name of another tool": lambda state: state["generated_items"][0].update(tool_name="x"),
}


@pytest.mark.parametrize("change", UNWRITABLE.values(), ids=UNWRITABLE)
def test_a_state_that_cannot_be_written_again_is_refused_before_a_tool_runs(
    change: Callable[[dict[str, Any]], object], paused_flags: tuple[str, str], launch: Launch, tmp_path: Path
) -> None:
    change_state(change)
    other_home = tmp_path / "elsewhere"
    flags = ("resume", "state.json", *agent_flags(), *paused_flags, "--approve", "c1")
    got = launch(*flags, env={"CONVO_HOME": str(other_home)})

    assert (got.exit, got.out, tool_runs()) == (2, "", [])
    assert "written again" in got.err
    assert stored_run_count(other_home) == 0


# -- a run in the store ---------------------------------------------------------------------------

STORED_RUN_FAULTS = {
    "a call whose item has no type": ("json_remove(body, '$.batch[0].item.type')", "$.batch[0].item must be"),
    "a call whose item is a text": ("json_set(body, '$.batch[0].item', 'x')", "$.batch[0].item must be"),
    "an output without a type": ("json_set(body, '$.batch[1].output', json('{}'))", "$.batch[1].output must be"),
    "arguments that are missing": ("json_remove(body, '$.batch[1].arguments')", "is not a complete run"),
    "arguments of null": ("json_set(body, '$.batch[1].arguments', null)", "$.batch[1].arguments must be a text"),
    "an added item without a type": ("json_set(body, '$.staged', json('[{}]'))", "$.staged must be a list of items"),
    "a turn that is a text": ("json_set(body, '$.turn', 'x')", "$.turn must be a number of turns"),
    "a limit that is a text": ("json_set(body, '$.limits.parallel', 'x')", "$.limits must be two numbers"),
    "no checkpoint": ("json_remove(body, '$.standing')", "$.standing is not a complete checkpoint"),
    "a checkpoint of null": ("json_set(body, '$.standing', null)", "$.standing is not a complete checkpoint"),
    "an incomplete checkpoint": ("json_remove(body, '$.standing.view')", "$.standing is not a complete checkpoint"),
    "a view without items": (
        """json_set(body, '$.standing.view', json('{"history": 1, "upto": "x", "items": [{}]}'))""",
        "$.standing is not a complete checkpoint",
    ),
}


@pytest.mark.parametrize(("body", "message"), STORED_RUN_FAULTS.values(), ids=STORED_RUN_FAULTS)
def test_a_damaged_stored_run_is_refused_before_a_tool_runs(
    body: str, message: str, paused_flags: tuple[str, str], convo: Convo, home: Path
) -> None:
    with closing(sqlite3.connect(home / DATABASE, isolation_level=None)) as db:
        db.execute(f"UPDATE agent_documents SET body = {body}")
    got = convo("resume", "mine", *agent_flags(), *paused_flags, "--approve", "all")

    assert (got.exit, got.out, tool_runs()) == (2, "", [])
    assert got.err.startswith("convo: ")
    assert message in got.err
