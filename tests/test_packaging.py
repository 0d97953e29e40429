"""The contents of the wheel that `pip install convo-state` installs."""

import subprocess
import sys
from email.parser import HeaderParser
from pathlib import Path
from zipfile import ZipFile

import pytest

from convo import __version__
from tests.command_runner import ROOT

MAN_PAGE = f"convo_state-{__version__}.data/data/share/man/man1/convo.1"
"""The path in the wheel of a file that is installed outside the packages."""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built by the build backend of the project."""
    folder = tmp_path_factory.mktemp("wheel")
    build = f"from hatchling.build import build_wheel; print(build_wheel({str(folder)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, capture_output=True, timeout=120, check=True)
    return next(folder.glob("*.whl"))


def package_files() -> set[str]:
    """All files in `convo/` except bytecode caches: modules, migrations, schemas, `py.typed`."""
    paths = (path for path in (ROOT / "convo").rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in paths}


def test_the_wheel_holds_every_file_of_the_package_and_nothing_else(wheel: Path) -> None:
    names = {name for name in ZipFile(wheel).namelist() if ".dist-info/" not in name}
    assert names == package_files() | {MAN_PAGE}
    assert {"convo/py.typed", "convo/schemas/chat.json"} <= names
    assert ZipFile(wheel).read(MAN_PAGE) == (ROOT / "completions" / "convo.1").read_bytes()


def test_the_wheel_is_named_and_licensed_as_the_project(wheel: Path) -> None:
    info = f"convo_state-{__version__}.dist-info"
    with ZipFile(wheel) as files:
        metadata = HeaderParser().parsestr(files.read(f"{info}/METADATA").decode())
        entry_points = files.read(f"{info}/entry_points.txt").decode()
        assert f"{info}/licenses/LICENSE" in files.namelist()
    assert (metadata["Name"], metadata["Version"]) == ("convo-state", __version__)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert "convo = convo.__main__:main" in entry_points


def test_the_changelog_begins_with_this_version() -> None:
    headings = [line for line in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines() if line[:3] == "## "]
    assert headings[0].startswith((f"## [{__version__}] - ", "## [Unreleased]"))


def test_the_wheel_brings_neither_weights_nor_tools_for_tests(wheel: Path) -> None:
    with ZipFile(wheel) as files:
        metadata = HeaderParser().parsestr(files.read(f"convo_state-{__version__}.dist-info/METADATA").decode())
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert not [line for line in required if line.startswith(("llm", "pytest", "mypy", "ruff"))]
    assert [line for line in required if line.startswith("typer")] == ["typer<0.29,>=0.28"]


def test_the_unpacked_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    ZipFile(wheel).extractall(tmp_path)
    code = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import convo.cli.app; print(convo.__file__)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=60, check=True)
    assert Path(result.stdout.strip()) == tmp_path / "convo" / "__init__.py"
