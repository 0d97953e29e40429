"""Requests that the local engine refuses, and the errors of its process, without any weights."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from convo.errors import ModelFault, ModelMissing, Unreadable, Unsupported
from convo.history.items import Item, user_message
from convo.installation import make_install_command
from convo.models import local as engine
from convo.models.base import ModelRequest
from convo.models.local import (
    EngineChat,
    EngineProcess,
    LocalEngine,
    LocalModel,
    check_local_request,
    count_engine_threads,
)
from tests.clock import counting_ids
from tests.models.chat_server import ChatServer
from tests.models.model_calls import deltas, make_request, read_events

HELLO = user_message("hi")


def user_parts(part_type: str, **fields: Any) -> Item:
    return {"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": part_type, **fields}]}


OMIT = '; hosted_tools = "omit" for the provider leaves them out'


@pytest.mark.parametrize(
    ("items", "parameters", "feature", "param"),
    [
        ([user_parts("input_image", image_url="data:x")], {}, "images", "input"),
        ([user_parts("input_file", file_data="data:x")], {}, "files", "input"),
        ([user_parts("input_audio")], {}, "sounds", "input"),
        ([user_parts("input_video")], {}, "input_video parts", "input"),
        ([HELLO, {"type": "function_call", "call_id": "c", "name": "f"}], {}, "tool calls", "input"),
        ([HELLO, {"type": "function_call_output", "call_id": "c", "output": "1"}], {}, "tool calls", "input"),
        ([HELLO, {"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""}], {}, "tool calls", "input"),
        ([HELLO], {"tools": [{"type": "function", "name": "f"}]}, "tools", "tools"),
        ([HELLO], {"tools": [{"type": "shell"}]}, "tools", "tools"),
        ([HELLO], {"tools": [{"type": "web_search"}]}, f"web_search tools{OMIT}", "tools"),
        ([HELLO], {"reasoning": {"effort": "low"}}, "a reasoning effort", "reasoning.effort"),
        ([HELLO], {"top_logprobs": 2}, "logprobs", "top_logprobs"),
        ([HELLO], {"include": ["message.output_text.logprobs"]}, "logprobs", "include"),
        ([HELLO], {"truncation": "auto"}, "the parameter 'truncation'", "truncation"),
        ([{"type": "compaction", "encrypted_content": "x"}], {}, "compaction items", "input"),
    ],
)
def test_an_unsupported_request_is_refused_with_its_feature(
    items: list[Item], parameters: dict[str, Any], feature: str, param: str
) -> None:
    with pytest.raises(Unsupported) as error:
        check_local_request(ModelRequest("m", items, parameters=parameters), "local/m")

    assert (error.value.message, error.value.param) == (f"local/m does not support {feature}", param)


@pytest.mark.parametrize(
    "parameters",
    [
        {"tools": [], "reasoning": None, "top_logprobs": 0, "include": ["reasoning.encrypted_content"]},
        {"reasoning": {"effort": "none"}, "temperature": 0.5, "tool_choice": "auto"},
        {"reasoning": {"summary": "auto"}, "text": {"format": {"type": "json_object"}}},
    ],
)
def test_a_request_without_unsupported_values_is_accepted(parameters: dict[str, Any]) -> None:
    check_local_request(ModelRequest("m", [HELLO], parameters=parameters), "local/m")


def test_hosted_tools_can_be_left_out_and_their_calls_are_text() -> None:
    call = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "tides"}}
    request = ModelRequest("m", [HELLO, call], parameters={"tools": [{"type": "web_search"}]})

    check_local_request(request, "local/m", "omit")


async def test_the_engine_ignores_summaries_and_all_fields_but_three() -> None:
    model = LocalModel(Path("models"), counting_ids())
    parameters = {"reasoning": {"summary": "auto"}, "top_k": 1, "seed": 1, "stop": "x", "user": "u"}

    assert model.ignored_fields(ModelRequest("m", [HELLO], parameters=parameters)) == ("reasoning.summary", "user")
    assert await model.compact(ModelRequest("m", [HELLO])) is None


@pytest.mark.parametrize(("cores", "threads"), [(1, 1), (2, 1), (3, 2), (5, 4), (6, 4), (64, 4)])
def test_one_core_stays_free(cores: int, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)), raising=False)

    assert count_engine_threads() == threads


async def test_without_the_engine_the_error_names_its_installation(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    (tmp_path / "mine.gguf").write_bytes(b"GGUF")
    model = LocalModel(tmp_path, counting_ids())

    with pytest.raises(ModelMissing, match=r"mine\.gguf needs the extra \[local\], which is not installed$") as error:
        await model.warm(str(tmp_path / "mine.gguf"))

    assert error.value.hint == make_install_command("local")
    await model.aclose()


START_ERRORS = {
    "damaged weights": (
        "print('0.01 E load: no', 'error loading model: it is short', sep='\\n', file=sys.stderr)",
        Unreadable("mine.gguf cannot be loaded: it is short", hint="choose another file with -m local/PATH"),
    ),
    "an error of the engine": (
        "print('0.00.1 E srv  first', '0.00.2 E srv  second', 'bye', sep='\\n', file=sys.stderr)",
        ModelFault("the local engine did not start: first"),
    ),
    "another error": (
        "print('Traceback', 'OSError: no', '  ', sep='\\n', file=sys.stderr)",
        ModelFault("the local engine did not start: OSError: no"),
    ),
    "a missing library": (
        "raise ImportError('libgomp.so.1: cannot open shared object file')",
        ModelFault(
            "the local engine did not start: ImportError: libgomp.so.1: cannot open shared object file",
            hint="apt install libgomp1 (Debian, Ubuntu), or choose another model",
        ),
    ),
    "an exit code": ("os._exit(3)", ModelFault("the local engine did not start: exit code 3")),
    "a signal": ("os.kill(os.getpid(), 9)", ModelFault("the local engine did not start: signal SIGKILL")),
}


@pytest.fixture
def child_script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The script that runs in place of the engine; it fails unless a test writes another."""
    path = tmp_path / "child.py"
    path.write_text("import os\nos._exit(3)\n", encoding="utf-8")
    monkeypatch.setattr(engine, "_PROCESS_SCRIPT", path)
    return path


@pytest.mark.parametrize(("code", "expected"), START_ERRORS.values(), ids=START_ERRORS)
def test_a_process_that_does_not_start_is_reported_with_its_reason(
    child_script: Path, code: str, expected: ModelFault | Unreadable
) -> None:
    child_script.write_text(f"import os, sys\n{code}\n", encoding="utf-8")
    child = EngineProcess("mine", Path("mine.gguf"))
    try:
        with pytest.raises((ModelFault, Unreadable)) as error:
            child.wait_for_address()
    finally:
        child.stop()

    assert (type(error.value), error.value.message, error.value.hint) == (
        type(expected),
        expected.message,
        expected.hint,
    )


def test_a_stopped_process_has_no_address_and_no_folder(child_script: Path) -> None:
    child_script.write_text("import sys\nsys.stdin.read()\n", encoding="utf-8")
    child = EngineProcess("mine", Path("mine.gguf"))
    assert child.folder is not None
    assert (os.path.isdir(child.folder), child.exit_reason()) == (True, None)

    child.stop()
    child.stop()

    assert (os.path.isdir(child.folder), child.exit_reason()) == (False, "exit code 0")
    with pytest.raises(ModelFault, match=r"^the local engine was stopped while it started$"):
        child.wait_for_address()


def test_a_process_may_be_killed(child_script: Path) -> None:
    child_script.write_text("import sys\nsys.stdin.read()\n", encoding="utf-8")
    child = EngineProcess("mine", Path("mine.gguf"), loopback=True)

    child.stop(kill=True)

    assert (child.folder, child.exit_reason()) == (None, "signal SIGKILL")


@pytest.mark.usefixtures("child_script")
async def test_an_engine_that_failed_is_started_again_and_one_that_never_started_is_stopped() -> None:
    local = LocalEngine("mine", Path("mine.gguf"), counting_ids(), defaults={})
    assert await local.wait_for_exit_reason() is None
    await local.stop()
    children = set()
    for _ in range(2):
        with pytest.raises(ModelFault, match="exit code 3"):
            await local.connect()
        children.add(local.process)

    assert len(children) == 2
    assert await local.wait_for_exit_reason() == "exit code 3"
    await local.stop()
    assert local.process is None


def test_a_process_that_does_not_end_is_killed(child_script: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_STOP_TIMEOUT_S", 0.01)
    child_script.write_text("import time\ntime.sleep(60)\n", encoding="utf-8")
    child = EngineProcess("mine", Path("mine.gguf"))

    child.stop()

    assert child.exit_reason() == "signal SIGKILL"


@pytest.fixture
def silent_script(child_script: Path) -> None:
    child_script.write_text("import sys\nsys.stdin.read()\n", encoding="utf-8")


@pytest.mark.usefixtures("silent_script")
async def test_stopping_an_engine_that_starts_leaves_no_task() -> None:
    local = LocalEngine("mine", Path("mine.gguf"), counting_ids(), defaults={})
    before = asyncio.all_tasks()
    connecting = asyncio.create_task(local.connect())
    await asyncio.sleep(0)
    assert local.process is not None

    await local.stop()

    assert asyncio.all_tasks() - before <= {connecting}
    with pytest.raises(ModelFault, match=r"^the local engine (did not start: signal SIGKILL|was stopped)"):
        await connecting


ANSWERS: dict[str, list[str]] = json.loads(Path(__file__).with_name("built_in_answers.json").read_text("utf-8"))
"""Tokens of the built-in model by its prompt: a song up to its fourth equal paragraph, and a whole list."""


@pytest.mark.parametrize(
    ("tokens", "is_stopped"),
    [
        (ANSWERS["Write a song with a chorus."], True),
        (ANSWERS["Write a list of 50 animals."], False),
        (["no "] * 200, True),
        (["no "] * 199, False),
        (["| 0 | 0 |\n"] * 59, False),
        ([f"{number}, " for number in range(400)], False),
        ([], False),
    ],
)
async def test_an_answer_that_repeats_itself_is_stopped(
    server: ChatServer, tokens: list[str], is_stopped: bool
) -> None:
    sent = [*tokens, *(tokens[-60:] if is_stopped else ())]
    timings = [{"cache_n": 5, "prompt_n": 2, "predicted_n": number} for number in range(1, len(sent) + 1)]
    chunks = [
        {"choices": [{"index": 0, "delta": {"content": token}}], "timings": counts}
        for token, counts in zip(sent, timings, strict=True)
    ]
    server.stream(*chunks, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})

    model = EngineChat("local", server.url, counting_ids())

    events = await read_events(model, make_request(HELLO))
    await model.aclose()

    response = events[-1]["response"]
    assert deltas(events) == tokens
    if not is_stopped:
        assert (response["status"], "convo_notices" in response) == ("completed", False)
        return
    assert response["incomplete_details"] == {"reason": "max_output_tokens"}
    assert response["convo_notices"] == ["the response was stopped because it repeated itself"]
    assert (response["usage"]["input_tokens"], response["usage"]["output_tokens"]) == (7, len(tokens))
