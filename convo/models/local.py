"""Adapter for models on this machine: the built-in one, and GGUF files.

`LocalEngine` starts one process for each set of weights, connects to it over a unix socket (or loopback
with a key) and restarts it after a crash. Only text is supported: images, tools and reasoning effort
raise `Unsupported`. The engine's tokenizer counts the input before each request, so that an input
that is too long fails at once.
"""

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from convo.config.sections import HostedTools
from convo.config.settings import DEFAULT_RESPONSE_LIMITS, ResponseLimits
from convo.errors import (
    REPEAT_HINT,
    ModelFault,
    StreamBroken,
    Unreachable,
    Unreadable,
    UnsupportedValue,
    WindowExceeded,
)
from convo.history.items import Json, StreamEvent, is_client_call, is_client_output
from convo.models.base import Model, ModelRequest
from convo.models.chat_completions import ChatDialect, ChatModel, build_chat_body, list_ignored_chat_fields
from convo.models.chat_messages import list_media_types
from convo.models.errors import ErrorContext
from convo.models.http import HttpxTransport, import_packages, limit_response_bodies
from convo.models.stream import REPETITION
from convo.models.tool_mapping import map_request
from convo.models.weights import BUILT_IN_WEIGHTS, locate_weights, make_engine_start_error, verify_weights_once
from convo.runtime import NewId, make_temporary_folder
from convo.secrets import Secret
from convo.usage.model_info import ENGINE_RESERVED_TOKENS

if TYPE_CHECKING:
    from httpx2 import AsyncClient


_PROCESS_SCRIPT = Path(__file__).with_name("local_process.py")
_MAX_FOLDER_BYTES = 80
"""Bytes of a folder's path that leave room for the socket's name: the path of a socket is limited to about 100."""

_STOP_TIMEOUT_S = 2.0
"""Seconds that a process may take to stop before it is killed."""

_EXIT_GRACE_S = 0.5
"""Seconds that a process may take to exit after its connections broke."""

_LOAD_ERROR = re.compile(r"error loading model: (.+)")
_ENGINE_ERROR = re.compile(r"^[\d.]+ E \S+\s+(.+)", re.MULTILINE)


def count_engine_threads() -> int:
    """Return the number of compute threads. One core stays free: with all cores in use it is 20 times slower."""
    # The process may be limited to fewer cores than the machine has.
    cpu_count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, cpu_count - 1))


class EngineProcess:
    """One process that runs weights."""

    def __init__(self, name: str, weights: Path, *, loopback: bool = False) -> None:
        self._weights, self._read_lock = weights, threading.Lock()
        self.folder = None if loopback else _make_socket_folder()
        self._stderr_file = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process runs
        options = {"name": name, "weights": str(weights), "threads": count_engine_threads(), "folder": self.folder}
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", str(_PROCESS_SCRIPT), json.dumps(options)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr_file,
            # Ctrl-C at the terminal must reach convo only, which stops the process itself.
            start_new_session=True,
        )

    def wait_for_address(self) -> dict[str, str]:
        """Wait until the process listens; returns `socket`, or `url` and `key`. Blocks.

        Raises Unreadable if the weights cannot be loaded, ModelFault if the process does not start for another reason.
        """
        assert self.process.stdout is not None
        with self._read_lock:
            # `stop` may have run between the start and this thread.
            if self.process.stdout.closed:
                raise ModelFault("the local engine was stopped while it started")
            line = self.process.stdout.readline()
            if not line:
                raise self._make_start_error()
        address: dict[str, str] = json.loads(line)
        return address

    def exit_reason(self, timeout_s: float = 0.0) -> str | None:
        """Return the exit code or signal as text, None while the process runs. Blocks `timeout_s` seconds at most."""
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def stop(self, *, kill: bool = False) -> None:
        """Stop the process, wait for it and delete its folder. Blocks. May be called twice."""
        if kill:
            self.process.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.exit_reason(_STOP_TIMEOUT_S) is None:
            self.process.kill()
            self.process.wait()
        with self._read_lock:
            self.process.stdout.close()
            self._stderr_file.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _make_start_error(self) -> ModelFault | Unreadable:
        exit_reason = self.exit_reason(_STOP_TIMEOUT_S)
        self._stderr_file.seek(0)
        stderr = self._stderr_file.read().decode(errors="replace")
        if match := _LOAD_ERROR.search(stderr):
            return Unreadable(
                f"{self._weights} cannot be loaded: {match[1]}", hint="choose another file with -m local/PATH"
            )
        match = _ENGINE_ERROR.search(stderr)
        reason = (
            match[1] if match else next((line for line in reversed(stderr.splitlines()) if line.strip()), exit_reason)
        )
        return make_engine_start_error(reason)


MAX_REPEATED_CHARS, MIN_REPETITIONS, MIN_REPEATED_CHARS = 400, 4, 600
"""An answer repeats itself if it ends in a text of up to 400 characters at least four times, in all of 600 characters.

A model of this size falls into such a loop and does not leave it; a chorus, or a word that is repeated on request, is
shorter.
"""


def ends_in_repetition(text: str) -> bool:
    for size in range(1, MAX_REPEATED_CHARS + 1):
        end = text[-max(MIN_REPEATED_CHARS, MIN_REPETITIONS * size) :]
        if len(end) < max(MIN_REPEATED_CHARS, MIN_REPETITIONS * size):
            return False
        if end[size:] == end[:-size]:
            return True
    return False


class EngineChat(ChatModel):
    """The server of the process; an answer that repeats itself ends."""

    async def _stream_chunks(self, body: Mapping[str, Json], context: ErrorContext) -> AsyncGenerator[Json, None]:
        text = ""
        async with aclosing(super()._stream_chunks({**body, "timings_per_token": True}, context)) as chunks:
            async for chunk in chunks:
                yield chunk
                choices = chunk.get("choices") if isinstance(chunk, dict) else None  # "[DONE]" is a text
                text += (choices[0]["delta"].get("content") or "") if choices else ""
                text = text[-MIN_REPETITIONS * MAX_REPEATED_CHARS :]
                if ends_in_repetition(text):
                    # The usage comes after the end, but the counts so far come with each token.
                    timings = chunk["timings"]
                    usage = {
                        "prompt_tokens": timings["cache_n"] + timings["prompt_n"],
                        "completion_tokens": timings["predicted_n"],
                        "prompt_tokens_details": {"cached_tokens": timings["cache_n"]},
                    }
                    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": REPETITION}], "usage": usage}
                    return


class LocalEngine:
    """The process for one set of weights: started on first use, restarted after a crash."""

    def __init__(
        self,
        name: str,
        weights: Path,
        new_id: NewId,
        *,
        defaults: Mapping[str, Json],
        loopback: bool | None = None,
        limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
    ) -> None:
        self.name, self._weights, self._new_id, self._defaults = name, weights, new_id, defaults
        self._limits = limits
        self._loopback = not hasattr(socket, "AF_UNIX") if loopback is None else loopback
        self.process: EngineProcess | None = None
        """The process, set as soon as it is started."""
        self._chat: ChatModel | None = None
        self._starting: asyncio.Task[ChatModel] | None = None
        self.context_tokens = 0
        """Context window in tokens, input and output together; 0 until the engine is connected."""

    async def connect(self) -> ChatModel:
        """Start the process if necessary and return the connection. Cancelling the caller does not stop the process."""
        if self._starting is not None and self._starting.done() and self._needs_restart(self._starting):
            await self.stop()
        if self._starting is None:
            self.process = EngineProcess(self.name, self._weights, loopback=self._loopback)
            self._starting = asyncio.create_task(self._start(self.process))
            self._starting.add_done_callback(_retrieve_exception)
        # Several requests wait for one start; a cancelled one must not end it for the others.
        return await asyncio.shield(self._starting)

    async def stop(self) -> None:
        """Close the connection and stop the process."""
        starting, chat, process = self._starting, self._chat, self.process
        self._starting = self._chat = self.process = None
        if chat is not None:
            await chat.aclose()
        if process is not None:
            # A process that still loads does not read its standard input.
            await asyncio.to_thread(process.stop, kill=chat is None)
        if starting is not None:
            await asyncio.wait([starting])

    async def wait_for_exit_reason(self) -> str | None:
        """Return the exit code or signal as text, None while the process runs. Waits briefly for a pending exit."""
        return await asyncio.to_thread(self.process.exit_reason, _EXIT_GRACE_S) if self.process else None

    def _needs_restart(self, start_task: asyncio.Task[ChatModel]) -> bool:
        return start_task.exception() is not None or self.process is None or self.process.exit_reason() is not None

    async def _start(self, process: EngineProcess) -> ChatModel:
        importing = asyncio.create_task(import_packages(is_served=False))
        try:
            address = await asyncio.to_thread(process.wait_for_address)
        except BaseException:
            await asyncio.to_thread(process.stop, kill=True)
            raise
        finally:
            await importing
        key = Secret(address["key"]) if "key" in address else None
        url = address.get("url", "http://local")
        chat = EngineChat(
            "local",
            url,
            self._new_id,
            key=key,
            transport=HttpxTransport(limit_response_bodies(_make_http_client(address), self._limits)),
            defaults=self._defaults,
            limits=self._limits,
        )
        properties: Json = await chat.request_json("/props")
        self.context_tokens = properties["default_generation_settings"]["n_ctx"]
        self._chat = chat
        return chat


def _make_http_client(address: dict[str, str]) -> "AsyncClient":
    """Create a client without timeouts: reading a long input takes long, and a crash closes the connection.

    Each request uses a new connection, because the server closes an idle one without notice.
    """
    import httpx2

    limits = httpx2.Limits(max_keepalive_connections=0)
    if "socket" in address:
        # Loading the certificates takes 20 ms, and a unix socket uses no TLS.
        transport = httpx2.AsyncHTTPTransport(uds=address["socket"], verify=False, limits=limits)
        return httpx2.AsyncClient(transport=transport, timeout=None)
    # A proxy of the environment must not get the requests to loopback.
    return httpx2.AsyncClient(trust_env=False, timeout=None, limits=limits)


def _make_socket_folder() -> str:
    folder = make_temporary_folder("convo-local-")
    if len(os.fsencode(folder)) <= _MAX_FOLDER_BYTES:
        return folder
    os.rmdir(folder)
    return make_temporary_folder("convo-local-", "/tmp")  # noqa: S108  a private folder with a short path


def _retrieve_exception(task: asyncio.Task[ChatModel]) -> None:
    """Mark the exception of a failed start as retrieved: the next request raises it, the event loop does not log it."""
    if not task.cancelled():
        task.exception()


SAMPLING_DEFAULTS = {"temperature": 0.2, "top_p": 0.9, "repeat_penalty": 1.05}
"""Sampling parameters with the best results for models of this size."""

BUILT_IN_DEFAULTS: dict[str, float] = {"temperature": 0, "repeat_penalty": 1.1, "max_tokens": 1024}
"""Parameters of the built-in model, with which the same question gets the same answer.

`tests/bench/built_in_model.py` measures them: 34 of 50 answers are right, with `SAMPLING_DEFAULTS` 33 to 35, with no
penalty 31. The model sometimes repeats itself; an answer that `ends_in_repetition` misses takes up to 40 seconds.
"""

_ENGINE_EXTRA_FIELDS = frozenset({"top_k", "seed", "stop"})
"""The extra fields that the engine accepts (see `convo.models.base`)."""

_MEDIA_NAMES = {"input_image": "images", "input_file": "files", "input_audio": "sounds"}


def check_local_request(request: ModelRequest, model_label: str, hosted_tools: HostedTools = "refuse") -> None:
    """Reject a request that the engine cannot honour or would ignore; `hosted_tools` as in `map_request`.

    Raises Unsupported.
    """
    request = map_request(request, model_label, hosted_tools).request
    for media_type in list_media_types(request.input):
        raise UnsupportedValue(model_label, _MEDIA_NAMES.get(media_type, f"{media_type} parts"), param="input")
    for item in request.input:
        if is_client_call(item) or is_client_output(item):
            raise UnsupportedValue(model_label, "tool calls", param="input")
    # The engine ignores tools without an error.
    if request.parameters.get("tools"):
        raise UnsupportedValue(model_label, "tools", param="tools")
    if (request.parameters.get("reasoning") or {}).get("effort") not in (None, "none"):
        raise UnsupportedValue(model_label, "a reasoning effort", param="reasoning.effort")
    for name in ("top_logprobs", "include"):
        if build_chat_body(
            ModelRequest(request.model, (), parameters={name: request.parameters.get(name)}), model_label
        ).get("logprobs"):
            raise UnsupportedValue(model_label, "logprobs", param=name)
    build_chat_body(request, model_label)


class LocalModel(Model):
    """All local models, with one process for each set of weights in use.

    weights_folder:  the folder of the downloaded weights
    loopback:        use loopback instead of a unix socket; None: only where there are no unix sockets
    """

    def __init__(
        self,
        weights_folder: Path,
        new_id: NewId,
        *,
        loopback: bool | None = None,
        limits: ResponseLimits = DEFAULT_RESPONSE_LIMITS,
        hosted_tools: HostedTools = "refuse",
    ) -> None:
        self._weights_folder, self._new_id, self._loopback, self._limits = weights_folder, new_id, loopback, limits
        self.hosted_tools: HostedTools = hosted_tools
        self._engines: dict[Path, LocalEngine] = {}
        self._verified_files: set[Path] = set()

    async def warm(self, model: str) -> None:
        """Load the weights of `model`. Raises ModelMissing, Unreadable or ModelFault."""
        await self._verify_weights(model)
        await self.get_engine(model).connect()

    async def check_request(self, request: ModelRequest) -> None:
        """Check that the weights exist and the request is supported; nothing is loaded.

        Raises Unsupported, ModelMissing or Unreadable.
        """
        check_local_request(request, f"local/{self.get_engine(request.model).name}", self.hosted_tools)

    async def respond(self, request: ModelRequest) -> AsyncGenerator[StreamEvent, None]:
        engine, chat, request = await self._start_engine(request)
        try:
            input_tokens, available_tokens = (
                await _count_input_tokens(chat, request),
                engine.context_tokens - _reserved_output_tokens(request),
            )
            if input_tokens > available_tokens:
                raise WindowExceeded(f"local/{request.model}", input_tokens, available_tokens)
            async with aclosing(chat.respond(request)) as events:
                async for event in events:
                    yield event
        except (StreamBroken, Unreachable) as error:
            # A crash and a broken connection look alike; the process tells them apart.
            exit_reason = await engine.wait_for_exit_reason()
            if exit_reason is None:
                raise
            message = f"the local engine stopped during the request ({exit_reason})"
            fault = StreamBroken(message, code="engine_stopped")
            raise fault.replace_hint(REPEAT_HINT, "/retry restarts it") from error

    async def count(self, request: ModelRequest) -> int:
        """Return the exact number of input tokens, including the model's chat template."""
        _, chat, request = await self._start_engine(request)
        return await _count_input_tokens(chat, request)

    def ignored_fields(self, request: ModelRequest) -> tuple[str, ...]:
        dialect = ChatDialect(has_reasoning=False, extra_fields=_ENGINE_EXTRA_FIELDS)
        return list_ignored_chat_fields(request, dialect, hosted_tools=self.hosted_tools)

    async def aclose(self) -> None:
        while self._engines:
            _, engine = self._engines.popitem()
            await engine.stop()

    def get_engine(self, model: str) -> LocalEngine:
        """Return the engine of `model`, started or not."""
        name, weights = locate_weights(model, self._weights_folder)
        if weights not in self._engines:
            defaults = {**SAMPLING_DEFAULTS, **(BUILT_IN_DEFAULTS if name == BUILT_IN_WEIGHTS.name else {})}
            self._engines[weights] = LocalEngine(
                name, weights, self._new_id, defaults=defaults, loopback=self._loopback, limits=self._limits
            )
        return self._engines[weights]

    async def _verify_weights(self, model: str) -> None:
        """Verify the weights before the first load, in a thread because they are large.

        Raises ModelMissing or Unreadable.
        """
        _, weights = locate_weights(model, self._weights_folder)
        if weights not in self._verified_files:
            await asyncio.to_thread(verify_weights_once, weights, self._weights_folder)
            self._verified_files.add(weights)

    async def _start_engine(self, request: ModelRequest) -> tuple[LocalEngine, ChatModel, ModelRequest]:
        """Start the engine; return it, its connection, and the request with the model's name instead of its path."""
        await self._verify_weights(request.model)
        engine = self.get_engine(request.model)
        request = replace(request, model=engine.name)
        label = f"local/{request.model}"
        check_local_request(request, label, self.hosted_tools)
        return engine, await engine.connect(), map_request(request, label, self.hosted_tools).request


async def _count_input_tokens(chat: ChatModel, request: ModelRequest) -> int:
    response = await chat.request_json("/chat/completions/input_tokens", chat.build_body(request))
    return int(response["input_tokens"])


def _reserved_output_tokens(request: ModelRequest) -> int:
    """Return the tokens of the context window to reserve for the output, at most the request's limit."""
    max_tokens = request.parameters.get("max_output_tokens")
    return min(max_tokens, ENGINE_RESERVED_TOKENS) if max_tokens else ENGINE_RESERVED_TOKENS
