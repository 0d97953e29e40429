"""Every command of the cookbook and the README prints the output that its page shows."""

import re
from pathlib import Path

import pytest

from tests.docs.pages import API, COOKBOOK, README, cookbook_pages, getting_started, run_page, sections
from tests.docs.transcript import blocks, differences, parse_console

MARKS = {
    "approve-on-another-machine": [pytest.mark.needs("openssl")],
    "change-a-request-parameter": [pytest.mark.needs("weights")],
    "change-the-colors": [pytest.mark.needs("script")],
    "use-codex-claude-code-or-opencode-with-any-model": [pytest.mark.needs("curl")],
    "share-the-inspector-with-a-team": [pytest.mark.needs("curl"), pytest.mark.needs("openssl")],
    "add-state-to-ollama": [pytest.mark.needs("posix")],
    "see-what-another-program-sends": [pytest.mark.needs("posix")],
    "run-three-replicas-on-postgresql": [pytest.mark.needs("postgresql")],
}


@pytest.mark.needs("bash")
@pytest.mark.parametrize(
    "page", [pytest.param(one, marks=MARKS.get(one.stem, ()), id=one.stem) for one in cookbook_pages()]
)
def test_a_cookbook_page_shows_the_actual_output(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    with run_page(text, tmp_path) as (output, _):
        assert differences(text, output) == ""


README_SECTIONS = {text.splitlines()[0].lstrip("# "): text for text in sections(README.read_text(encoding="utf-8"))}

README_MARKS = {"Serve": [pytest.mark.needs("weights")]}


@pytest.mark.needs("bash")
@pytest.mark.parametrize(
    "title",
    [
        pytest.param(title, marks=README_MARKS.get(title, ()), id=title)
        for title, text in README_SECTIONS.items()
        if "```console" in text
    ],
)
def test_a_section_of_the_readme_shows_the_actual_output(title: str, tmp_path: Path) -> None:
    with run_page(README_SECTIONS[title], tmp_path) as (output, _):
        assert differences(README_SECTIONS[title], output) == ""


def test_every_command_in_the_text_of_the_readme_is_run_on_a_page() -> None:
    pages = [path.read_text(encoding="utf-8") for path in (*cookbook_pages(), *getting_started(), API, README)]
    consoles = [block.text for page in pages for block in blocks(page) if block.language == "console"]
    typed = "\n".join(one.command for console in consoles for one in parse_console(console))
    commands = re.findall(r"`(convo [^`]+)`", README.read_text(encoding="utf-8"))
    assert [command for command in commands if command not in typed] == []


def test_every_cookbook_page_is_in_the_list() -> None:
    readme = (COOKBOOK / "README.md").read_text(encoding="utf-8")
    for page in cookbook_pages():
        title = page.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
        assert title.endswith("?")
        assert f"[{title}]({page.name})" in readme
    assert ".github/cookbook/README.md" in README.read_text(encoding="utf-8")


def test_every_block_of_a_cookbook_page_is_run() -> None:
    for page in cookbook_pages():
        for block in blocks(page.read_text(encoding="utf-8")):
            assert block.name or block.language in ("console", "python")


def test_a_page_shows_the_status_of_each_command_that_fails() -> None:
    for page in (*cookbook_pages(), *getting_started(), API, README):
        assert "(and this failed with" not in page.read_text(encoding="utf-8"), page
