"""The reference: what every command and every option is for, as the commands themselves say it.

    python -m tests.words.reference > .github/REFERENCE.md

It is the text of `--help` at eighty columns, so it cannot say anything else than the program does.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from typer import Context

from convo.cli.app import PlainHelpGroup, make_root_group
from convo.cli.output import SHELL_HINTS
from convo.errors import ConvoError
from tests.running import ROOT
from tests.words.errors import classes

PLACE = ROOT / ".github" / "REFERENCE.md"

HEAD = """\
# Reference

Every command and every option, as `--help` says it. `tests/test_reference.py` keeps this page up to date;
`python -m tests.words.reference > .github/REFERENCE.md` writes it.
"""

ERRORS = """
## errors

With `--json` an error is `{"error": {"code", "message", "hint"}}` on stdout; `convo serve` answers with the status. An
endpoint's own code and status stand in place of these where it gave them.

| code | exit | status | what it means | what to try |
|---|---|---|---|---|"""


def reference() -> str:
    """The page."""
    with patch.dict(os.environ, {"COLUMNS": "80", "CONVO_HOME": "/nowhere"}):
        pages = [*pages_of(make_root_group(), None, "convo")]
    listed = [f"* [`{name}`](#{name.replace(' ', '-')})" for name, _ in pages] + ["* [errors](#errors)"]
    helps = [f"\n## {name}\n\n```text\n{help_}\n```" for name, help_ in pages]
    return "\n".join([HEAD, *listed, *helps, ERRORS, *map(row, classes()[1:])]) + "\n"


def row(error: type[ConvoError]) -> str:
    """An error as a program sees it, and what a person is told to do."""
    meant = (error.__doc__ or "").split("\n")[0].rstrip(".").replace("`", "")
    step = SHELL_HINTS.get(error.hint, error.hint)
    return f"| `{error.code}` | {error.exit} | {error.status} | {meant} | {step} |"


def pages_of(command: Any, parent: Context | None, name: str) -> Iterator[tuple[str, str]]:
    """A command's full name and its help, and those of all commands below it."""
    ctx = Context(command, parent=parent, info_name=name.rpartition(" ")[2], help_option_names=["-h", "--help"])
    yield name, command.get_help(ctx).rstrip()
    if isinstance(command, PlainHelpGroup):
        for below in command.list_commands(ctx):
            found = command.get_command(ctx, below)
            assert found
            yield from pages_of(found, ctx, f"{name} {below}")


if __name__ == "__main__":
    sys.stdout.write(reference())
