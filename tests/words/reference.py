"""The reference: what every command and every option is for, as the commands themselves say it.

    python -m tests.words.reference > .github/REFERENCE.md

It is the text of `--help` at eighty columns, so it cannot say anything else than the program does.
"""

import os
import sys
from collections.abc import Iterator
from unittest.mock import patch

from typer._click import Command, Context

from convo.cli.app import shell
from convo.cli.shape import Group
from tests.running import ROOT

PLACE = ROOT / ".github" / "REFERENCE.md"

HEAD = """\
# Reference

Every command and every option, as `--help` says it. `tests/test_reference.py` keeps this page up to date;
`python -m tests.words.reference > .github/REFERENCE.md` writes it.
"""


def reference() -> str:
    """The page."""
    with patch.dict(os.environ, {"COLUMNS": "80", "CONVO_HOME": "/nowhere"}):
        pages = [*pages_of(shell(), None, "convo")]
    listed = "\n".join(f"* [`{name}`](#{name.replace(' ', '-')})" for name, _ in pages)
    return "\n".join([HEAD, listed, *(f"\n## {name}\n\n```text\n{help_}\n```" for name, help_ in pages)]) + "\n"


def pages_of(command: Command, parent: Context | None, name: str) -> Iterator[tuple[str, str]]:
    """A command's full name and its help, and those of all commands below it."""
    ctx = Context(command, parent=parent, info_name=name.rpartition(" ")[2], help_option_names=["-h", "--help"])
    yield name, command.get_help(ctx).rstrip()
    if isinstance(command, Group):
        for below in command.list_commands(ctx):
            found = command.get_command(ctx, below)
            assert found
            yield from pages_of(found, ctx, f"{name} {below}")


if __name__ == "__main__":
    sys.stdout.write(reference())
