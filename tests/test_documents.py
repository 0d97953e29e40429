"""The form of the Markdown documents, and the files that they name."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

from tests.command_runner import ROOT
from tests.docs.prose import WIDTH

DATA = ("tests/terminal/markdown/corpus/", "tests/behaviours/")
"""Folders with Markdown that is the input of tests."""

UNWRAPPED = {"CHANGELOG.md", ".github/API.md", ".github/GATEWAY.md", ".github/SIZING.md"}

CODE = re.compile(r"^```.*?^```$|^<!--.*?-->$", re.DOTALL | re.MULTILINE)

WHOLE = re.compile(r"\s*(?:[*-] )?(?:!?\[[^\]]*\]\([^)]*\)|(?:`[^`]+`[ .]?)+)")
"""A line that cannot be wrapped: a link, or code."""


def long_lines(text: str) -> Iterator[str]:
    """The lines that can be wrapped: not those of tables, of code, and of a link alone."""
    for line in CODE.sub("", text).splitlines():
        if len(line) > WIDTH and not line.startswith(("|", "    ")) and not WHOLE.fullmatch(line):
            yield line


def test_lines_of_documents_have_at_most_100_columns() -> None:
    files = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    documents = [name for name in files.stdout.splitlines() if not name.startswith(DATA) and name not in UNWRAPPED]
    assert "README.md" in documents
    assert [(name, line) for name in documents for line in long_lines((ROOT / name).read_text(encoding="utf-8"))] == []


def test_a_long_line_of_text_is_found_and_one_of_a_table_or_code_is_not() -> None:
    word = "word " * 30
    assert list(long_lines(f"{word}\n\n| {word}|\n\n    {word}\n\n```sh\n{word}\n```\n* [{word}]({word})\n")) == [word]


def test_the_files_that_the_guide_for_contributors_names_exist() -> None:
    guide = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = set(re.findall(r"`((?:\w+/)+[\w.]+\.\w+)`", guide))
    files = {name for name in names if not re.search(r"NAME|CODE|NN", name)}
    assert "convo/cli/app.py" in files
    assert [
        name for name in files if not any((Path(folder) / name).is_file() for folder in (ROOT, ROOT / "convo"))
    ] == []
