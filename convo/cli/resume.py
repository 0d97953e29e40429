"""`convo resume`: decide on the calls that a paused run waits for.

The arguments alone; `convo.cli.resuming` does the rest.
"""

from typing import Annotated

import typer

from convo.cli.shape import App
from convo.errors import Usage

app = App()

EXAMPLES = """
Examples:
  convo resume state.json --decide-only -o decided.json --approve all
  convo resume state.json --decide-only -o decided.json --approve call_1 --reject call_2="not on a Friday"
  convo resume state.json --decide-only -o decided.json --approve send_mail --always
  cat state.json | convo resume - --decide-only -o - --reject all
  convo resume state.json --decide-only -o older.json --schema 1.13
                                             for a release that reads no newer label; what is lost is told
  convo resume state.json --decide-only -o signed.json --approve all --sign

CALL is a call's id, the name of a tool, or all; an id wins over a name, and a name over all.
The key for --sign and --verify is taken from CONVO_SIGNING_KEY, or from --key-env NAME.
"""

DECIDE = "What is decided"
WRITE = "What is written"


@app.command(epilog=EXAMPLES)
def resume(
    state: Annotated[str, typer.Argument(metavar="STATE", help="A RunState: a file, or - for what is piped in.")],
    approve: Annotated[
        list[str] | None, typer.Option("--approve", metavar="CALL", help="Let it run.", rich_help_panel=DECIDE)
    ] = None,
    reject: Annotated[
        list[str] | None,
        typer.Option("--reject", metavar="CALL[=WHY]", help="Tell the model no, and why.", rich_help_panel=DECIDE),
    ] = None,
    edit: Annotated[
        list[str] | None,
        typer.Option(
            "--edit", metavar="CALL", help="Change its arguments in $EDITOR, then let it run.", rich_help_panel=DECIDE
        ),
    ] = None,
    always: Annotated[
        bool, typer.Option("--always", help="Decide so on every later call of the tool.", rich_help_panel=DECIDE)
    ] = False,
    decide_only: Annotated[
        bool, typer.Option("--decide-only", help="Write the decided state; the SDK goes on.", rich_help_panel=WRITE)
    ] = False,
    out: Annotated[
        str | None, typer.Option("-o", "--out", metavar="FILE", help="Where to; - is stdout.", rich_help_panel=WRITE)
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="LABEL", help="Write another label, 1.0 to 1.21.", rich_help_panel=WRITE),
    ] = None,
    sign: Annotated[bool, typer.Option("--sign", help="Sign what is written.", rich_help_panel=WRITE)] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Refuse a state that is not signed with the key.", rich_help_panel=WRITE)
    ] = False,
    key_env: Annotated[
        str, typer.Option("--key-env", metavar="NAME", help="The variable that holds the key.", rich_help_panel=WRITE)
    ] = "CONVO_SIGNING_KEY",
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
) -> None:
    """Decide on the calls that a paused run waits for."""
    if not decide_only:
        raise Usage(
            "convo cannot go on with a run by itself yet; it decides, and the Agents SDK goes on",
            hint=f"convo resume {state} --decide-only -o decided.json --approve all",
        )
    if out is None:
        raise Usage("--decide-only writes a state, and -o does not say where to", hint="-o decided.json, or -o -")
    if out == "-" and as_json:
        raise Usage("--json and -o - would both be written on stdout", hint="-o with a file")
    from convo.cli.resuming import Asked, Written, decide

    asked = Asked(tuple(approve or ()), tuple(reject or ()), tuple(edit or ()), always)
    raise typer.Exit(decide(state, asked, Written(out, schema, sign, verify, key_env, as_json)))
