"""The man page: it is up to date, lists every command and renders without a warning."""

import subprocess

import pytest

from convo.cli.app import COMMANDS
from convo.cli.manual import MAN_PAGE_PATH, render_man_page
from tests.command_runner import ROOT, Convo


def test_the_manual_page_in_the_repository_equals_the_generated_one() -> None:
    assert (ROOT / MAN_PAGE_PATH).read_text(encoding="utf-8") == render_man_page(), "python -m convo.cli.manual"


def test_the_command_prints_the_manual_page(convo: Convo) -> None:
    got = convo("--man")
    assert (got.exit, got.out, got.err) == (0, render_man_page(), "")


def test_the_manual_page_contains_every_command() -> None:
    lines = render_man_page().splitlines()
    for name in COMMANDS:
        assert any(line.startswith(f".SS convo {name} ") for line in lines), name


@pytest.mark.needs("man")
def test_man_renders_the_page_without_a_warning() -> None:
    done = subprocess.run(
        ["man", "--warnings", "-l", ROOT / MAN_PAGE_PATH], capture_output=True, encoding="utf-8", timeout=60, check=True
    )
    assert done.stderr == ""
    text = done.stdout.replace("\N{HYPHEN}", "-")
    assert "NAME convo - Choose where conversation state lives" in " ".join(text.split())
    assert '  convo chat --from resp_... "and then?"      continue from any response\n' in text
