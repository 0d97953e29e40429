"""The man page: it is up to date, lists every command and renders without a warning."""

import subprocess

import pytest

from convo.cli.app import COMMANDS
from tests.command_runner import ROOT, Convo

MAN_PAGE_FILE = ROOT / "completions" / "convo.1"
MAN_PAGE = MAN_PAGE_FILE.read_text(encoding="utf-8")


def test_the_manual_page_in_the_repository_equals_the_printed_one(convo: Convo) -> None:
    got = convo("--man")
    assert (got.exit, got.out, got.err) == (0, MAN_PAGE, ""), "convo --man > completions/convo.1"


def test_the_manual_page_contains_every_command() -> None:
    lines = MAN_PAGE.splitlines()
    for name in COMMANDS:
        assert any(line.replace("\\-", "-").startswith(f".SS convo {name} ") for line in lines), name


@pytest.mark.needs("man")
def test_man_renders_the_page_without_a_warning() -> None:
    done = subprocess.run(
        ["man", "--warnings", "-l", MAN_PAGE_FILE],
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    text = done.stdout.replace("\N{HYPHEN}", "-")
    assert "NAME convo - Choose where conversation state lives" in " ".join(text.split())
    assert '  convo chat --from resp_... "and then?"      continue from any response\n' in text
