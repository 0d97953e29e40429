"""`convo lint`: its arguments, options and help."""

from enum import StrEnum
from typing import Annotated

import typer

from convo.cli.app import App, ProviderOption, RemoteOption, flag_option, get_root_options, value_option
from convo.errors import InvalidUsage

app = App()

EXAMPLES = """
Examples:
  convo lint @last                           the most recent conversation
  convo lint ./history.json ./more.jsonl     files with items, a request or a paused run
  convo lint resp_4f1c --strict              fail on warnings, too
  convo lint ./history.json --format sarif > lint.sarif
  convo lint --explain call-without-output   explain a rule, and how to fix its findings

Exit code: 0 no findings, or only warnings; 4 errors (with --strict also warnings). Of several handles, one that cannot
be read does not stop the others; the exit code is that of its error.
"""


class LintFormat(StrEnum):
    text = "text"
    json = "json"
    sarif = "sarif"


@app.command(epilog=EXAMPLES)
def lint_command(
    ctx: typer.Context,
    handles: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="HANDLE...", help="Session, resp_..., conv_..., @last, @recorded, file, or - for stdin."
        ),
    ] = None,
    explain: str | None = value_option("--explain", "CODE", "Explain a rule; `all` lists the rules."),
    strict: bool = flag_option("--strict", "Fail on warnings, too."),
    as_json: bool = flag_option("--json", "Print one JSON object per handle."),
    output_format: Annotated[LintFormat, typer.Option("--format", help="Output format.")] = LintFormat.text,
    remote: RemoteOption = False,
    provider: ProviderOption = None,
) -> None:
    """Find state that an API would reject, before it is sent."""
    from convo.cli import lint

    if explain is not None:
        lint.print_rule(explain)
        return
    if not handles:
        raise InvalidUsage("no handle was given", hint="convo lint @last")
    from convo.cli.resolve import LookupOptions

    lookup = LookupOptions(get_root_options(ctx).config, provider, remote)
    raise typer.Exit(lint.run_lint(handles, lookup, LintFormat.json if as_json else output_format, strict=strict))
