"""The reference: the help of every command and option, and the errors.

    python -m tests.docs.reference > .github/REFERENCE.md

It is the output of `--help` at eighty columns, so it cannot differ from the program.
"""

import os
import sys
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from typer import Context

from convo.cli.app import PlainHelpGroup, make_root_group
from convo.errors import ConvoError
from tests.command_runner import ROOT
from tests.docs.errors import error_classes
from tests.docs.prose import wrap_prose

REFERENCE = ROOT / ".github" / "REFERENCE.md"

HEAD = """\
# Reference

All commands and options, as `--help` prints them; [Behaviour](BEHAVIOUR.md) has the rules
and limits behind them. `tests/test_reference.py` keeps this page up to date;
`python -m tests.docs.reference > .github/REFERENCE.md` writes it.
"""

ERRORS = """
## errors

With `--json` an error is `{"error": {"code", "message", "hint"}}` on stdout; `convo serve` responds with the status. If
an endpoint returns its own code and status, they replace these.

| code | exit | status | meaning | hint |
|---|---|---|---|---|"""


def reference() -> str:
    """Return the page."""
    with patch.dict(os.environ, {"COLUMNS": "80", "CONVO_HOME": "/nowhere"}):
        pages = [*pages_of(make_root_group(), None, "convo")]
    links = [f"* [`{name}`](#{name.replace(' ', '-')})" for name, _ in pages] + ["* [errors](#errors)"]
    helps = [f"\n## {name}\n\n```text\n{help_}\n```" for name, help_ in pages]
    return wrap_prose("\n".join([HEAD, *links, *helps, ERRORS, *map(row, error_classes()[1:])]) + "\n")


def row(error: type[ConvoError]) -> str:
    """Return the row of one error: code, exit code, status, meaning and hint."""
    summary = (error.__doc__ or "").split("\n")[0].rstrip(".").replace("`", "")
    return f"| `{error.code}` | {error.exit} | {error.status} | {summary} | {error.hint} |"


def pages_of(command: Any, parent: Context | None, name: str) -> Iterator[tuple[str, str]]:
    """Yield the full name and the help of a command and of its subcommands."""
    ctx = Context(command, parent=parent, info_name=name.rpartition(" ")[2], help_option_names=["-h", "--help"])
    yield name, command.get_help(ctx).rstrip()
    if isinstance(command, PlainHelpGroup):
        for below in command.list_commands(ctx):
            found = command.get_command(ctx, below)
            assert found
            yield from pages_of(found, ctx, f"{name} {below}")


if __name__ == "__main__":
    sys.stdout.write(reference())
