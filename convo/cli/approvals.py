"""`convo approvals`: the inbox over paused runs.

The arguments alone; `convo.cli.inbox` does the rest.
"""

from typing import Annotated

import typer

from convo.cli.options import AsJson
from convo.cli.shape import App, call_of

app = App()

EXAMPLES = """
Examples:
  convo approvals                                  what waits for somebody, in which session
  convo approvals show call_1
  convo approvals approve call_1 call_2
  convo approvals reject send_mail="not on a Friday" --always
  convo approvals approve all --run monads
  convo resume monads                              performs what was decided

CALL is a call's id, the name of a tool, or all. A name and all mean undecided calls; a call's id can
change a decision, until somebody resumes the run. A decision runs nothing.
"""

Calls = Annotated[list[str], typer.Argument(metavar="CALL...", help="A call's id, a tool's name, or all.")]
Of = Annotated[str | None, typer.Option("--run", metavar="RUN", help="Of this run alone, or of this session's.")]
Always = Annotated[bool, typer.Option("--always", help="Decide so on every later call of the tool.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def approvals(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List and decide what paused runs wait for."""
    if ctx.invoked_subcommand is None:
        list_(ctx, as_json=as_json)


@app.command("list")
def list_(ctx: typer.Context, as_json: AsJson = False) -> None:
    """List the calls that wait, the newest run first."""
    from convo.cli.inbox import list_waiting

    list_waiting(call_of(ctx).config, as_json=as_json)


@app.command("show")
def show(ctx: typer.Context, calls: Calls, of: Of = None, as_json: AsJson = False) -> None:
    """Show calls with all of their arguments."""
    from convo.cli.inbox import show_waiting

    show_waiting(call_of(ctx).config, calls, of, as_json=as_json)


@app.command("approve")
def approve(ctx: typer.Context, calls: Calls, of: Of = None, always: Always = False, as_json: AsJson = False) -> None:
    """Let calls run, once somebody goes on with their run."""
    _decide(ctx, calls, of, as_json, approve=True, always=always)


@app.command("reject")
def reject(
    ctx: typer.Context,
    calls: Annotated[list[str], typer.Argument(metavar="CALL[=WHY]...", help="As for approve; WHY is for the model.")],
    of: Of = None,
    always: Always = False,
    as_json: AsJson = False,
) -> None:
    """Let the model be told no, and why."""
    _decide(ctx, calls, of, as_json, approve=False, always=always)


@app.command("edit")
def edit(ctx: typer.Context, calls: Calls, of: Of = None, as_json: AsJson = False) -> None:
    """Change arguments in $EDITOR, and approve."""
    _decide(ctx, calls, of, as_json, approve=True, edits=True)


def _decide(
    ctx: typer.Context,
    calls: list[str],
    of: str | None,
    as_json: bool,
    *,
    approve: bool,
    always: bool = False,
    edits: bool = False,
) -> None:
    import asyncio

    from convo.cli.inbox import Verdict, decide

    verdict = Verdict(approve, always, edits)
    asyncio.run(decide(call_of(ctx).config, calls, of, verdict, as_json=as_json))
