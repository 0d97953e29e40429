"""The process that runs the weights: its start, its access control and its end."""

import asyncio
import os
import select
import signal
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path

import httpx2
import pytest

from convo.errors import ModelFault, ModelMissing, StreamBroken
from convo.history.items import user_message
from convo.models import local as engine
from convo.models.base import ModelRequest
from convo.models.local import EngineProcess, LocalModel
from convo.models.weights import BUILT_IN_WEIGHTS, locate_built_in_weights
from tests.clock import counting_ids
from tests.models.model_calls import final_response, output_text, read_events

pytestmark = pytest.mark.needs("weights")

NOWHERE = Path("/dev/null/models")
NAME = BUILT_IN_WEIGHTS.name
HELLO = ModelRequest(NAME, [user_message("Say hello.")], parameters={"temperature": 0})
LONG_REQUEST = ModelRequest(NAME, [user_message("Tell a very long story.")])

PARENT = """
import sys
from pathlib import Path
from convo.models.local import EngineProcess
from convo.models.weights import locate_built_in_weights

child = EngineProcess("mine", locate_built_in_weights(Path("/dev/null/models")))
if sys.argv[1] == "ready":
    child.wait_for_address()
print(child.process.pid, child.folder, flush=True)
sys.stdin.read()
"""


@pytest.fixture
async def local() -> AsyncIterator[LocalModel]:
    model = LocalModel(NOWHERE, counting_ids())
    yield model
    await model.aclose()


async def test_preloading_starts_the_engine_only_once(local: LocalModel) -> None:
    await asyncio.gather(local.warm(NAME), local.warm(NAME))
    started = child_of(local)

    assert "Hello" in output_text(await final_response(local, HELLO))
    assert child_of(local) is started


async def test_a_start_continues_after_its_last_waiter_is_cancelled(local: LocalModel) -> None:
    start_task, started = await start_engine(local)
    start_task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await start_task

    await local.warm(NAME)

    assert child_of(local) is started


async def test_closing_a_model_while_it_loads_leaves_no_process_or_file(local: LocalModel) -> None:
    start_task, child = await start_engine(local)

    await local.aclose()

    with pytest.raises((ModelFault, asyncio.CancelledError)):
        await start_task
    assert child.process.poll() is not None
    assert is_cleaned_up(child)


async def test_the_socket_is_in_a_folder_that_only_its_user_can_enter(local: LocalModel) -> None:
    await local.warm(NAME)
    child = child_of(local)

    assert child.folder is not None
    assert stat.S_IMODE(os.stat(child.folder).st_mode) == 0o700
    assert os.listdir(child.folder) == ["engine.sock"]

    await local.aclose()
    assert is_cleaned_up(child)


async def test_ctrl_c_at_the_terminal_does_not_reach_the_engine(local: LocalModel) -> None:
    await local.warm(NAME)

    assert os.getsid(child_of(local).process.pid) != os.getsid(0)


async def test_an_engine_that_dies_during_an_answer_is_reported_and_the_next_request_starts_another(
    local: LocalModel,
) -> None:
    async with aclosing(local.respond(LONG_REQUEST)) as events:
        await anext(events)
        died = child_of(local)
        died.process.kill()
        with pytest.raises(StreamBroken, match=r"stopped during the request \(signal SIGKILL\)") as error:
            await drain(events)

    assert (error.value.code, error.value.prompt_hint) == ("engine_stopped", "/retry restarts it")
    assert "Hello" in output_text(await final_response(local, HELLO))
    assert child_of(local).process.pid != died.process.pid
    assert is_cleaned_up(died)


async def test_an_engine_that_died_between_two_requests_is_restarted_silently(local: LocalModel) -> None:
    await local.warm(NAME)
    died = child_of(local).process
    died.kill()
    await asyncio.to_thread(died.wait)

    assert "Hello" in output_text(await final_response(local, HELLO))


async def test_an_engine_that_cannot_start_is_reported_in_one_sentence(
    local: LocalModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    broken = tmp_path / "child.py"
    broken.write_text("raise OSError('no such instruction')")
    with monkeypatch.context() as patched:
        patched.setattr(engine, "_PROCESS_SCRIPT", broken)
        with pytest.raises(ModelFault, match=r"^the local engine did not start: OSError: no such instruction$"):
            await read_events(local, HELLO)
        failed = child_of(local)
        assert failed.process.stdout is not None
        assert (failed.process.stdout.closed, is_cleaned_up(failed)) == (True, True)

    assert "Hello" in output_text(await final_response(local, HELLO))


async def test_missing_weights_start_no_process(local: LocalModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [])

    with pytest.raises(ModelMissing, match=NAME):
        await local.warm(NAME)


async def test_on_loopback_the_engine_requires_its_key() -> None:
    child = EngineProcess("mine", locate_built_in_weights(NOWHERE), loopback=True)
    try:
        address = await asyncio.to_thread(child.wait_for_address)
        async with httpx2.AsyncClient(base_url=address["url"]) as http:
            without_key = await http.get("/props")
            with_key = await http.get("/props", headers={"authorization": f"Bearer {address['key']}"})
    finally:
        await asyncio.to_thread(child.stop)

    assert (without_key.status_code, with_key.status_code) == (401, 200)
    assert address["url"].startswith("http://127.0.0.1:")
    assert address["key"] not in " ".join(map(str, child.process.args))  # type: ignore[arg-type]


async def test_a_model_on_loopback_answers_like_any_other() -> None:
    model = LocalModel(NOWHERE, counting_ids(), loopback=True)

    assert "Hello" in output_text(await final_response(model, HELLO))
    await model.aclose()


@pytest.mark.needs("linux")
@pytest.mark.parametrize("when", ["loading", "ready"])
def test_the_engine_dies_with_its_parent_even_after_sigkill(when: str) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, when], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdout is not None
        pid, folder = parent.stdout.readline().decode().split()
        pidfd = os.pidfd_open(int(pid))
        parent.send_signal(signal.SIGKILL)

    assert select.select([pidfd], [], [], 30)[0] == [pidfd]
    os.close(pidfd)
    assert not os.path.exists(folder)


def test_a_long_temporary_path_does_not_prevent_the_socket(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("x" * 100)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))

    child = EngineProcess("mine", locate_built_in_weights(NOWHERE))
    try:
        assert "socket" in child.wait_for_address()
    finally:
        child.stop()

    assert os.listdir(deep) == []


async def start_engine(model: LocalModel) -> tuple[asyncio.Task[None], EngineProcess]:
    """Start the engine and wait for its process, which starts after a thread has verified the weights."""
    start_task = asyncio.create_task(model.warm(NAME))
    async with asyncio.timeout(30):
        while model.get_engine(NAME).process is None:  # noqa: ASYNC110  # no event reports the start of the child
            await asyncio.sleep(0.001)
    return start_task, child_of(model)


def child_of(model: LocalModel) -> EngineProcess:
    child = model.get_engine(NAME).process
    assert child is not None
    return child


def is_cleaned_up(child: EngineProcess) -> bool:
    return child.folder is not None and not os.path.exists(child.folder)


async def drain(events: AsyncIterator[object]) -> None:
    async for _ in events:
        pass
