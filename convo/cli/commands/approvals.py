"""`convo approvals`: its arguments, options and help."""

from typing import Annotated, Any

import typer

from convo.cli.app import App, JsonOption, PlainHelpGroup, get_root_options, value_option


class ApprovalsGroup(PlainHelpGroup):
    """The commands; without the name of one, a state file is an argument of `list`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        is_file = args[0] == "-" or "/" in args[0] or args[0].endswith(".json")
        return super().resolve_command(ctx, ["list", *args] if is_file else args)


app = App(cls=ApprovalsGroup)

EXAMPLES = """
Examples:
  convo approvals                                  list pending calls with their sessions
  convo approvals state.json                       list those of a state file, of either Agents SDK
  convo approvals show call_1
  convo approvals approve call_1 call_2
  convo approvals reject send_mail="not on a Friday" --always
  convo approvals approve all --run monads
  convo approvals log --run monads                 decisions, with the time and the name of the API key
  convo resume monads                              resume the run with these decisions

CALL is a call id, a tool name, or all. A tool name and all select undecided calls only; use the call id to
change a decision before the run is resumed. A decision alone runs nothing; a chat that waits for it continues.
The calls of a state file are decided with convo resume STATE --decide-only.
"""

CallsArgument = Annotated[list[str], typer.Argument(metavar="CALL...", help="Call id, tool name, or all.")]
RunOption = Annotated[str | None, typer.Option("--run", metavar="RUN", help="Only calls of this run or session.")]
AlwaysOption = Annotated[bool, typer.Option("--always", help="Apply the decision to every later call of the tool.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def approvals_command(ctx: typer.Context, as_json: JsonOption = False) -> None:
    """List pending approvals, and approve or reject them."""
    if ctx.invoked_subcommand is None:
        approvals_list_command(ctx, None, as_json=as_json)


@app.command("list")
def approvals_list_command(
    ctx: typer.Context,
    state: Annotated[str | None, typer.Argument(metavar="STATE", help="State file, or - for stdin.")] = None,
    as_json: JsonOption = False,
) -> None:
    """List pending calls, newest run first."""
    from convo.cli.approvals import print_pending_calls, print_state_calls

    if state is not None:
        print_state_calls(state, as_json=as_json)
        return
    raise typer.Exit(print_pending_calls(get_root_options(ctx).config, as_json=as_json))


@app.command("show")
def approvals_show_command(
    ctx: typer.Context, calls: CallsArgument, run: RunOption = None, as_json: JsonOption = False
) -> None:
    """Show calls with all their arguments."""
    from convo.cli.approvals import print_call_details

    print_call_details(get_root_options(ctx).config, calls, run, as_json=as_json)


@app.command("log")
def approvals_log_command(
    ctx: typer.Context,
    run: str | None = value_option("--run", "RUN", "Only this run, or the newest run of this session."),
    as_json: JsonOption = False,
) -> None:
    """List the decisions on calls, newest first."""
    from convo.cli.approvals import print_decision_log

    print_decision_log(get_root_options(ctx).config, run, as_json=as_json)


@app.command("approve")
def approvals_approve_command(
    ctx: typer.Context,
    calls: CallsArgument,
    run: RunOption = None,
    always: AlwaysOption = False,
    as_json: JsonOption = False,
) -> None:
    """Approve calls; they run when the run is resumed."""
    _decide_from_options(ctx, run, as_json, approve=tuple(calls), always=always)


@app.command("reject")
def approvals_reject_command(
    ctx: typer.Context,
    calls: Annotated[
        list[str], typer.Argument(metavar="CALL[=WHY]...", help="Call id, tool name, or all; WHY is sent to the model.")
    ],
    run: RunOption = None,
    always: AlwaysOption = False,
    as_json: JsonOption = False,
) -> None:
    """Reject calls, with an optional reason for the model."""
    _decide_from_options(ctx, run, as_json, reject=tuple(calls), always=always)


@app.command("edit")
def approvals_edit_command(
    ctx: typer.Context, calls: CallsArgument, run: RunOption = None, as_json: JsonOption = False
) -> None:
    """Edit the arguments of calls in $EDITOR, then approve them."""
    _decide_from_options(ctx, run, as_json, edit=tuple(calls))


def _decide_from_options(ctx: typer.Context, run: str | None, as_json: bool, **decisions: Any) -> None:
    """Store decisions; `decisions` are the members of a `RequestedDecisions`."""
    import asyncio

    from convo.cli.approvals import decide_calls
    from convo.cli.decision_flags import RequestedDecisions

    requested = RequestedDecisions(can_approve_unknown=True, **decisions)
    raise typer.Exit(asyncio.run(decide_calls(get_root_options(ctx).config, requested, run, as_json=as_json)))
