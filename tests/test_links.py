"""Links between the documents lead to a file and a heading that exist."""

import re
from pathlib import Path

import pytest

from tests.command_runner import ROOT

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
