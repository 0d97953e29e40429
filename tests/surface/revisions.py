"""Preparation of a revision: copying its files to a folder and collecting its surface in a separate process."""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.surface.document import Surface

HERE = Path(__file__).parents[2]
"""The checkout that contains this file; its collector is used for all revisions."""

PARTS = ("convo", "completions", ".github", "README.md", "CHANGELOG.md", "pyproject.toml")
"""Files and folders that are copied from a checkout."""

PASSED_ON = ("PATH", "CONVO_TEST_POSTGRES", "TMPDIR")
"""Environment variables that are passed to a collector."""


def surface_of(side: str, sections: Sequence[str] = ()) -> Surface:
    """Return the surface of a git revision or of a folder with a checkout, or load it from a .json file.

    sections:  the parts of `tests.surface.collect` to run; empty: all parts

    Raises subprocess.CalledProcessError if there is no such revision or its surface cannot be collected.
    """
    if side.endswith(".json"):
        surface: Surface = json.loads(Path(side).read_text(encoding="utf-8"))
        return surface
    with tempfile.TemporaryDirectory(prefix="convo-surface-") as name:
        tree = Path(name) / "tree"
        tree.mkdir()
        if Path(side).is_dir():
            copy_checkout(Path(side), tree)
        else:
            extract(side, tree)
        return collect_in_process(tree, Path(name), sections)


def copy_checkout(folder: Path, tree: Path) -> None:
    """Copy the parts of a checkout, including uncommitted changes."""
    ignored = shutil.ignore_patterns("__pycache__")
    for part in PARTS:
        if (folder / part).is_dir():
            shutil.copytree(folder / part, tree / part, ignore=ignored)
        elif (folder / part).exists():
            shutil.copy2(folder / part, tree / part)


def extract(revision: str, tree: Path) -> None:
    """Extract a revision of the repository without its tests."""
    archive = tree.parent / "archive.tar"
    command = ["git", "archive", "--output", str(archive), revision, ".", ":(exclude)tests"]
    subprocess.run(command, cwd=HERE, check=True)
    with tarfile.open(archive) as archive_file:
        archive_file.extractall(tree, filter="data")


def collect_in_process(tree: Path, folder: Path, sections: Sequence[str]) -> Surface:
    """Run the collector with the package in `tree` and the installed dependencies, without the user's settings."""
    out, home = folder / "surface.json", folder / "user"
    home.mkdir()
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "COLUMNS": "80",
        "NO_PROXY": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join((str(tree), str(HERE))),
        "PYTHONSAFEPATH": "1",
        "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring",
    }
    command = [sys.executable, "-m", "tests.surface.collect", str(tree), str(out), *sections]
    subprocess.run(command, cwd=folder, env=environment, check=True)
    found: Surface = json.loads(out.read_text(encoding="utf-8"))
    return found
