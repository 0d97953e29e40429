"""`convo lint`: its arguments, options and help."""

from enum import StrEnum
from typing import Annotated

import typer

from convo.cli.app import App, ProviderOption, RemoteOption, get_root_options
from convo.errors import InvalidUsage

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


class LintFormat(StrEnum):
    text = "text"
    json = "json"
    sarif = "sarif"


@app.command(epilog=EXAMPLES)
def lint_command(
    ctx: typer.Context,
    handles: Annotated[
        list[str] | None, typer.Argument(metavar="HANDLE...", help="A session, resp_..., conv_..., @last, a file or -.")
    ] = None,
    explain: Annotated[
        str | None, typer.Option("--explain", metavar="CODE", help="Print what a rule means; `all` lists them.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Let warnings fail, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print a JSON object a line.")] = False,
    output_format: Annotated[LintFormat, typer.Option("--format", help="How findings are printed.")] = LintFormat.text,
    remote: RemoteOption = False,
    provider: ProviderOption = None,
) -> None:
    """Find state that will be refused, before it is sent."""
    from convo.cli import lint

    if explain is not None:
        lint.print_rule(explain)
        return
    if not handles:
        raise InvalidUsage("lint needs a handle", hint="convo lint @last")
    from convo.cli.resolve import LookupOptions

    where = LookupOptions(get_root_options(ctx).config, provider, remote)
    found = lint.run_lint(handles, where, LintFormat.json if as_json else output_format, strict=strict)
    if found:
        raise typer.Exit(lint.FINDINGS_EXIT_CODE)
