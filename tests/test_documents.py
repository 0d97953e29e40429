"""The form of the Markdown documents, and the files and headings that they name."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_runner import ROOT
from tests.docs.prose import WIDTH

DATA = ("tests/terminal/markdown/corpus/", "tests/behaviours/")
"""Folders with Markdown that is the input of tests."""

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
    documents = [name for name in files.stdout.splitlines() if not name.startswith(DATA)]
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


DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / ".github").rglob("*.md"))]


def read_prose(document: Path) -> str:
    """Return the text without its blocks of code."""
    return re.sub(r"^```.*?^```", "", document.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)


def anchors(document: Path) -> set[str]:
    """Return the anchors that GitHub gives to the headings."""
    headings = re.findall(r"^#+ (.*)$", read_prose(document), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.stem)
def test_every_link_to_a_document_leads_to_its_heading(document: Path) -> None:
    for target in re.findall(r"\]\(((?!https?:)[^)]+)\)", read_prose(document)):
        name, _, anchor = target.partition("#")
        linked = document.parent / name if name else document
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target
