"""Clock, ids, shielded coroutines, process liveness, notices, progress, temporary files: effects that can be injected.

Pure functions take times and ids as arguments; only the outer layers read the clock. A killed process cannot
release its leases: `is_process_dead` recognizes it on the same machine. Temporary files have the tag of their
process, and the next process removes those of ended processes (of other machines: after a day):

    .convo-1f0c9a7e-4711-882193-k3vd0q1z      prefix, process tag, random part
"""

import gc
import os
import re
import shutil
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar
from weakref import WeakSet

if TYPE_CHECKING:
    from asyncio import Task


class Clock(Protocol):
    """A source of the time."""

    def now(self) -> float:
        """Return seconds since 1970, UTC."""
        ...

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back; only differences have a meaning."""
        ...

    async def sleep(self, seconds: float) -> None: ...


class SystemClock:
    """The time of the operating system."""

    def now(self) -> float:
        """Return seconds since 1970, UTC."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds of a clock that never goes back."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        import asyncio  # most commands start without an event loop

        await asyncio.sleep(seconds)


Result = TypeVar("Result")

_SHIELDED_TASKS: "WeakSet[Task[Any]]" = WeakSet()
"""The tasks that run a shielded coroutine."""


async def shielded(coroutine: Coroutine[Any, Any, Result]) -> Result:
    """Shield a coroutine: await it to completion, then raise the cancellation again. Raises its errors first.

    A store works in a thread that cannot be stopped: after a cancellation in between it would be unknown whether the
    transaction was committed. A nested call runs in the same task. `anyio.CancelScope(shield=True)` does not replace
    it: `Task.cancel`, with which Ctrl-C and the disconnect of a client arrive, cancels inside of that scope as well.
    """
    import asyncio

    if asyncio.current_task() in _SHIELDED_TASKS:
        return await coroutine
    task = asyncio.create_task(coroutine)
    _SHIELDED_TASKS.add(task)
    cancellation: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            cancellation = error
    result = task.result()
    if cancellation:
        raise cancellation
    return result


LONG_RUN_GC_THRESHOLD = 2_000
"""New objects before a garbage collection in a command that runs for hours."""


def collect_garbage_often() -> None:
    """Lower the threshold of the garbage collector; called once the modules of a long command are imported.

    With the threshold that `convo.__main__` sets for imports, a server kept up to 20 MB of unused objects. What the
    modules contain lives as long as the process, so no collection looks at it: that would take 0.1 s each time.
    """
    gc.freeze()
    gc.set_threshold(LONG_RUN_GC_THRESHOLD)


NewId: TypeAlias = Callable[[str], str]
"""Makes an id with a prefix: "msg" gives "msg_..."."""


def random_id(prefix: str) -> str:
    """Return `prefix`, "_" and 32 hex digits from the random source of the operating system."""
    return f"{prefix}_{os.urandom(16).hex()}"


def process_identity() -> str:
    """Identify this process for other processes: machine, pid and start time, separated by colons."""
    return f"{_machine_id()}:{os.getpid()}:{_start_time_ticks(os.getpid())}"


def is_process_dead(identity: str) -> bool:
    """Return whether the process ran on this machine and has ended; False when that is unknown.

    identity:  of `process_identity`, possibly with more fields after it
    """
    machine, pid, start_time = _parse_identity(identity)
    if machine not in (_machine_id(), _host_name()) or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        # The process of another user: it is alive.
        return False
    # The kernel uses pids again: a process that started at another time is another one.
    return bool(start_time) and _start_time_ticks(int(pid)) != start_time


def describe_process(identity: str) -> str:
    """Return `identity` as text for messages."""
    machine, pid, _ = _parse_identity(identity)
    return f"process {pid} on {machine.partition('@')[0]}" if pid else identity


def _process_tag() -> str:
    """Identify this process in the characters of a file name: a hash of the machine, the pid and the start time."""
    return f"{_machine_hash()}-{os.getpid()}-{_start_time_ticks(os.getpid())}"


def is_local_tag(tag: str) -> bool:
    """Return whether a process of this machine made `tag`."""
    return tag.partition("-")[0] == _machine_hash()


def is_dead_process_tag(tag: str) -> bool:
    """Return whether the process of this machine that made `tag` has ended."""
    _, pid, start_time = tag.split("-")
    return is_process_dead(f"{_machine_id()}:{pid}:{start_time}")


def _machine_hash() -> str:
    from hashlib import sha256  # imported here, as `socket` is: most commands need neither

    return sha256(_machine_id().encode()).hexdigest()[:8]


def _machine_id() -> str:
    """Return the host name and the pid namespace: a container may have the same host name, and its pids start at 1."""
    try:
        pid_namespace = os.readlink("/proc/self/ns/pid")
    except OSError:
        return _host_name()
    return f"{_host_name()}@{''.join(filter(str.isdigit, pid_namespace))}"


def _host_name() -> str:
    import socket

    return socket.gethostname()


def _parse_identity(identity: str) -> tuple[str, str, str]:
    machine, pid, start_time, *_ = [*identity.split(":"), "", ""]
    return machine, pid, start_time


def _start_time_ticks(pid: int) -> str:
    """Return the start time of a process in the kernel's ticks; "" when unreadable, and for an ended process.

    An ended process stays in the process table until its parent waits for it.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    # The name of the program, in brackets, may contain blanks and brackets itself.
    state, *fields = stat.rpartition(")")[2].split()
    # Field 22 of proc(5), starttime; `fields` begin with the fourth.
    return "" if state in ("Z", "X") else fields[18]


NoticeSink: TypeAlias = Callable[[str], None]

_NOTICE_SINK: ContextVar[NoticeSink | None] = ContextVar("notice_sink", default=None)


def send_notice(line: str) -> None:
    """Pass one line, without its line break, to the sink."""
    sink = _NOTICE_SINK.get()
    if sink is not None:
        sink(line)


@contextmanager
def redirect_notices(sink: NoticeSink) -> Iterator[None]:
    """Send notices to `sink` while the block runs; a repeated line is sent once."""
    sent_lines: set[str] = set()

    def send_once(line: str) -> None:
        if line not in sent_lines:
            sent_lines.add(line)
            sink(line)

    token = _NOTICE_SINK.set(send_once)
    try:
        yield
    finally:
        _NOTICE_SINK.reset(token)


Value = TypeVar("Value")

ReportProgress: TypeAlias = Callable[[str, int, int], None]
"""Called with the units of a step, such as "items", the number of them that are done, and their total; 0: unknown."""

_PROGRESS_SINK: ContextVar[ReportProgress | None] = ContextVar("progress_sink", default=None)


def report_progress(step: str, done: int, total: int = 0) -> None:
    """Pass the progress of long work to the sink."""
    sink = _PROGRESS_SINK.get()
    if sink is not None:
        sink(step, done, total)


def track_progress(step: str, values: Sequence[Value]) -> Iterator[Value]:
    """Yield `values`, and report how many of them are done."""
    for done, value in enumerate(values):
        report_progress(step, done, len(values))
        yield value
    report_progress(step, len(values), len(values))


@contextmanager
def redirect_progress(sink: ReportProgress) -> Iterator[None]:
    """Send the progress of all work in the block to `sink`."""
    token = _PROGRESS_SINK.set(sink)
    try:
        yield
    finally:
        _PROGRESS_SINK.reset(token)


TEMPORARY_FILE_PREFIX = ".convo-"
FOREIGN_LEFTOVER_AGE_S = 86_400.0
"""Age in seconds after which the leftovers of another machine in a shared folder are removed."""

PRIVATE_FILE_MODE, PRIVATE_FOLDER_MODE = 0o600, 0o700
TEMPORARY_NAME = re.compile(r"(?P<tag>[0-9a-f]{8}-\d+-\d*)-[0-9a-f]{8}")


def open_nonblocking(path: str, flags: int) -> int:
    """Open a file without waiting for the writer of a pipe: an `opener` of `open`."""
    return os.open(path, flags | os.O_NONBLOCK)


def open_temporary_file(folder: Path) -> tuple[int, Path]:
    """Make a private file in `folder`; return its descriptor, open for writing, and its path. Raises OSError."""
    _remove_leftovers(folder, TEMPORARY_FILE_PREFIX)
    path = folder / _new_temporary_name(TEMPORARY_FILE_PREFIX)
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), PRIVATE_FILE_MODE), path


def make_temporary_folder(prefix: str, parent: str | None = None) -> str:
    """Make a private folder in `parent`, by default in the system's folder for temporary files. Raises OSError."""
    if parent is None:
        import tempfile  # imported only where the system's folder is needed

        parent = tempfile.gettempdir()
    _remove_leftovers(Path(parent), prefix)
    path = os.path.join(parent, _new_temporary_name(prefix))
    os.mkdir(path, PRIVATE_FOLDER_MODE)
    return path


@contextmanager
def temporary_folder(prefix: str) -> Iterator[Path]:
    """Make a private folder that is removed when the block ends. Raises OSError."""
    path = make_temporary_folder(prefix)
    try:
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _new_temporary_name(prefix: str) -> str:
    return f"{prefix}{_process_tag()}-{os.urandom(4).hex()}"


def _remove_leftovers(folder: Path, prefix: str) -> None:
    """Remove files of ended processes with `prefix`; errors are ignored."""
    with suppress(OSError), os.scandir(folder) as entries:
        leftovers = [entry for entry in entries if entry.name.startswith(prefix) and _is_leftover(entry, prefix)]
        for entry in leftovers:
            # In /tmp another user may place a link here; what it leads to is not removed.
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with suppress(OSError):
                    os.unlink(entry.path)


def _is_leftover(entry: os.DirEntry[str], prefix: str) -> bool:
    match = TEMPORARY_NAME.fullmatch(entry.name.removeprefix(prefix))
    if not match:
        return False
    if is_local_tag(match["tag"]):
        return is_dead_process_tag(match["tag"])
    with suppress(OSError):
        return time.time() - entry.stat(follow_symlinks=False).st_mtime > FOREIGN_LEFTOVER_AGE_S
    return False
