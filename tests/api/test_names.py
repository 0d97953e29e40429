"""The public names: each is on the page, typed, imported with its first use; the page's examples run."""

import ast
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import convo
from tests.command_runner import ROOT
from tests.docs.pages import API, run_page
from tests.docs.transcript import differences

HEAVY = {"agents", "httpx2", "openai", "pydantic", "sqlite3", "starlette", "uvicorn"}

LOADED = f"""
import sys
before = set(sys.modules)
import convo
print(*sorted(name for name in set(sys.modules) - before if name.startswith("convo.")))
for name in convo.__all__:
    getattr(convo, name)
print(*sorted({HEAVY} & set(sys.modules)))
"""


def test_the_page_and_the_types_have_the_public_names() -> None:
    names = sorted(convo.__all__)
    assert sorted(re.findall(r"^## `(\w+)`$", API.read_text(encoding="utf-8"), re.MULTILINE)) == names
    stub = ast.parse((ROOT / "convo" / "__init__.pyi").read_text(encoding="utf-8"))
    typed = {
        alias.asname: (node.module, alias.name)
        for node in ast.walk(stub)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(map(str, typed)) == names
    for name, (module, attribute) in typed.items():
        assert getattr(convo, str(name)) is getattr(import_module(str(module)), attribute)
    assert ".github/API.md" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_a_name_is_loaded_with_its_first_use_and_without_heavy_packages() -> None:
    command = [sys.executable, "-c", LOADED]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "\n\n"


@pytest.mark.needs("bash")
def test_the_page_shows_the_actual_output(tmp_path: Path) -> None:
    text = API.read_text(encoding="utf-8")
    with run_page(text, tmp_path) as (output, _):
        assert differences(text, output) == ""
