"""Starts the process that runs the weights, reaches it and stops it.

    start: private folder, child, its one line          in a thread, while the openai package loads in another
    up:    the connection to it, once it is ready        every ask waits here; a dead child is started again
    stop:  its input ends, it leaves; else it is killed   its folder goes either way

The child has a session of its own, so that Ctrl-C at the terminal stops an answer and not the
engine that writes it.
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
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from convo.config.secret import Secret
from convo.config.settings import DEFAULT_LIMITS, Limits
from convo.errors import ModelFault, ModelMissing, Unreadable
from convo.ids import NewId
from convo.items import Json
from convo.models.chat import ChatModel
from convo.temporary import make_folder

if TYPE_CHECKING:
    from httpx2 import AsyncClient

CHILD = Path(__file__).with_name("child.py")
LONGEST_FOLDER = 80
"""Bytes of a folder's path that leave room for a socket's name: a socket's whole path may have about 100."""

PATIENCE_S = 2.0
"""How long a child that was told to leave may take."""

MOMENT_S = 0.5
"""How long the end of a child may come after its connections broke."""

LOADING_FAILED = re.compile(r"error loading model: (.+)")
ENGINES_ERROR = re.compile(r"^[\d.]+ E \S+\s+(.+)", re.MULTILINE)


def threads() -> int:
    """How many threads compute: one core stays free, since with all of them taken it is 20 times slower."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(4, allowed - 1))


class Child:
    """One process, from its start to its end."""

    def __init__(self, name: str, weights: Path, *, loopback: bool = False) -> None:
        self._weights, self._reading = weights, threading.Lock()
        self.folder = None if loopback else _private_folder()
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        wanted = {"name": name, "weights": str(weights), "threads": threads(), "folder": self.folder}
        self.process = subprocess.Popen(  # noqa: S603
            [sys.executable, "-P", str(CHILD), json.dumps(wanted)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )

    def address(self) -> dict[str, str]:
        """Wait until it listens; `socket`, or `url` and `key`. Blocks.

        raises:  Unreadable  the weights cannot be loaded
                 ModelFault  it did not come up for another reason
        """
        assert self.process.stdout is not None
        with self._reading:
            if self.process.stdout.closed:
                raise ModelFault("the local engine was stopped while it started")
            line = self.process.stdout.readline()
            if not line:
                raise self._failure()
        address: dict[str, str] = json.loads(line)
        return address

    def ended(self, within_s: float = 0.0) -> str | None:
        """How it ended, in words, or None when it still runs. Blocks for `within_s` seconds at most."""
        try:
            code = self.process.wait(within_s)
        except subprocess.TimeoutExpired:
            return None
        return f"exit code {code}" if code >= 0 else f"signal {signal.Signals(-code).name}"

    def stop(self, *, at_once: bool = False) -> None:
        """End it, wait for it and take its folder away. Blocks. May be called twice."""
        if at_once:
            self.process.kill()
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        if self.ended(PATIENCE_S) is None:
            self.process.kill()
            self.process.wait()
        with self._reading:
            self.process.stdout.close()
            self._said.close()
        if self.folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _failure(self) -> ModelFault | Unreadable:
        how = self.ended(PATIENCE_S)
        self._said.seek(0)
        said = self._said.read().decode(errors="replace")
        if found := LOADING_FAILED.search(said):
            return Unreadable(
                f"{self._weights} cannot be loaded: {found[1]}", hint="choose another file with -m local/PATH"
            )
        found = ENGINES_ERROR.search(said)
        why = found[1] if found else next((line for line in reversed(said.splitlines()) if line.strip()), how)
        return ModelFault(f"the local engine did not start: {why}")


class Engine:
    """The connection to one child, made when it is first needed and again after the child died."""

    def __init__(
        self,
        name: str,
        weights: Path,
        new_id: NewId,
        *,
        defaults: Mapping[str, Json],
        loopback: bool | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.name, self._weights, self._new_id, self._defaults = name, weights, new_id, defaults
        self._limits = limits
        self._loopback = not hasattr(socket, "AF_UNIX") if loopback is None else loopback
        self.child: Child | None = None
        """The process, from the moment it is started."""
        self._chat: ChatModel | None = None
        self._starting: asyncio.Task[ChatModel] | None = None
        self.window = 0
        """Tokens of input and output together, known once it is up."""

    async def up(self) -> ChatModel:
        """The connection, when the child listens. Whoever is cancelled here leaves the child to the others."""
        if self._starting is not None and self._starting.done() and self._must_start_again(self._starting):
            await self.down()
        if self._starting is None:
            if find_spec("xllamacpp") is None:
                raise ModelMissing("the local engine xllamacpp is not installed", hint="pip install xllamacpp")
            self.child = Child(self.name, self._weights, loopback=self._loopback)
            self._starting = asyncio.create_task(self._start(self.child))
            self._starting.add_done_callback(_seen)
        return await asyncio.shield(self._starting)

    async def down(self) -> None:
        """Close the connection and end the child."""
        starting, chat, child = self._starting, self._chat, self.child
        self._starting = self._chat = self.child = None
        if chat is not None:
            await chat.aclose()
        if child is not None:
            await asyncio.to_thread(child.stop, at_once=chat is None)
        if starting is not None:
            await asyncio.wait([starting])

    async def how_it_ended(self) -> str | None:
        """How the child ended, in words; None while it runs. Waits a moment for an end that is under way."""
        return await asyncio.to_thread(self.child.ended, MOMENT_S) if self.child else None

    def _must_start_again(self, started: "asyncio.Task[ChatModel]") -> bool:
        return started.exception() is not None or self.child is None or self.child.ended() is not None

    async def _start(self, child: Child) -> ChatModel:
        address, _ = await asyncio.gather(asyncio.to_thread(child.address), asyncio.to_thread(import_module, "openai"))
        key = Secret(address["key"]) if "key" in address else None
        url = address.get("url", "http://local")
        chat = ChatModel(
            "local", url, self._new_id, key=key, http=_http(address), defaults=self._defaults, limits=self._limits
        )
        properties: Json = await chat.fetch("/props")
        self.window = properties["default_generation_settings"]["n_ctx"]
        self._chat = chat
        return chat


def _http(address: dict[str, str]) -> "AsyncClient":
    """A client that waits without limit: reading a long input takes long, and a dead child closes its end.

    Every request has a connection of its own, for the server drops a kept one without a warning.
    """
    import httpx2

    once = httpx2.Limits(max_keepalive_connections=0)
    if "socket" in address:
        by_socket = httpx2.AsyncHTTPTransport(uds=address["socket"], verify=False, limits=once)
        return httpx2.AsyncClient(transport=by_socket, timeout=None)
    return httpx2.AsyncClient(trust_env=False, timeout=None, limits=once)


def _private_folder() -> str:
    folder = make_folder("convo-local-")
    if len(os.fsencode(folder)) <= LONGEST_FOLDER:
        return folder
    os.rmdir(folder)
    return make_folder("convo-local-", "/tmp")  # noqa: S108  private, and the only short one


def _seen(task: "asyncio.Task[ChatModel]") -> None:
    """A start that fails while nobody waits says so at the next ask, not in the event loop's log."""
    if not task.cancelled():
        task.exception()
