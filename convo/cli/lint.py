"""`convo lint`: state that the next turn would be refused for, found before it is sent.

The arguments alone; `convo.cli.linting` does the rest.
"""

from enum import StrEnum
from typing import Annotated

import typer

from convo.cli.options import Provider, Remote
from convo.cli.shape import App, call_of
from convo.errors import Usage

app = App()

EXAMPLES = """
Examples:
  convo lint @last                           the conversation used last
  convo lint ./history.json ./more.jsonl     items in files, a request, a paused run
  convo lint resp_4f1c --strict              warnings count, too
  convo lint ./history.json --format sarif > lint.sarif
  convo lint --explain call-without-output   what a finding means, and how it is mended

Exit code: 0 nothing found, or warnings alone; 4 errors (with --strict: warnings, too).
"""


class Format(StrEnum):
    text = "text"
    json = "json"
    sarif = "sarif"


@app.command(epilog=EXAMPLES)
def lint(
    ctx: typer.Context,
    handles: Annotated[
        list[str] | None, typer.Argument(metavar="HANDLE...", help="A session, resp_..., conv_..., @last, a file or -.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="CODE", help="Print what a rule means; `all` lists them.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    form: Annotated[Format, typer.Option("--format", help="How findings are printed.")] = Format.text,
    remote: Remote = False,
    provider: Provider = None,
) -> None:
    """Find state that will be refused, before it is sent."""
    from convo.cli import linting

    if explain is not None:
        linting.explain(explain)
        return
    if not handles:
        raise Usage("lint needs a handle", hint="convo lint @last")
    from convo.cli.subject import Where

    where = Where(call_of(ctx).config, provider, remote)
    found = linting.findings(handles, where, Format.json if as_json else form, strict=strict)
    if found:
        raise typer.Exit(linting.FOUND)
