"""`convo resume`: decide on the calls that a paused run waits for, and go on with it.

The arguments alone; `convo.cli.resuming` decides for others to go on, `convo.cli.going_on` goes on.
"""

import asyncio
from typing import Annotated, TypeAlias

import typer

from convo.cli.run_flags import RunFlags
from convo.cli.shape import App, call_of
from convo.errors import Usage

app = App()

EXAMPLES = """
Examples:
  convo resume state.json --agent support.py:triage --approve all
  convo resume @last --agent support.py:triage --reject call_1="not on a Friday"
  convo resume run_... --agent support.py:triage --output call_1="it went through"
  convo resume state.json --decide-only -o decided.json --approve call_1 --reject call_2="not on a Friday"
  convo resume state.json --decide-only -o decided.json --approve send_mail --always
  cat state.json | convo resume - --decide-only -o - --reject all
  convo resume state.json --decide-only -o older.json --schema 1.13
                                             for a release that reads no newer label; what is lost is told
  convo resume state.json --decide-only -o signed.json --approve all --sign

STATE is a RunState in a file, - for one that is piped in, or a session or run that this store has.
CALL is a call's id, the name of a tool, or all; an id wins over a name, and a name over all.
Without --decide-only the run goes on here, until it ends (0) or waits for a decision (3).
The key for --sign and --verify is taken from CONVO_SIGNING_KEY, or from --key-env NAME; where no
variable has it, from the keyring (keyring set convo NAME).
"""

DECIDE = "What is decided"
RUN = "Going on with it"
WRITE = "What is written"

Text: TypeAlias = str | None
Texts: TypeAlias = list[str] | None


def option(*names: str, panel: str, help: str, metavar: str | None = None) -> typer.models.OptionInfo:  # noqa: A002
    made: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel)
    return made


@app.command(epilog=EXAMPLES)
def resume(
    ctx: typer.Context,
    state: Annotated[str, typer.Argument(metavar="STATE", help="A file, -, a session or a run.")],
    approve: Annotated[Texts, option("--approve", metavar="CALL", help="Let it run.", panel=DECIDE)] = None,
    reject: Annotated[
        Texts, option("--reject", metavar="CALL[=WHY]", help="Tell the model no, and why.", panel=DECIDE)
    ] = None,
    edit: Annotated[
        Texts, option("--edit", metavar="CALL", help="Change its arguments in $EDITOR, then let it run.", panel=DECIDE)
    ] = None,
    always: Annotated[
        bool, option("--always", help="Decide so on every later call of the tool.", panel=DECIDE)
    ] = False,
    rerun: Annotated[
        Texts, option("--rerun", metavar="CALL", help="Outcome unknown: run it again.", panel=DECIDE)
    ] = None,
    output: Annotated[
        Texts, option("--output", metavar="CALL=TEXT", help="Outcome unknown: this came of it.", panel=DECIDE)
    ] = None,
    abort: Annotated[bool, option("--abort", help="End the run for good.", panel=DECIDE)] = False,
    agent: Annotated[
        Text, option("--agent", metavar="FILE:NAME", help="Whose run it is: support.py:triage, or a .toml.", panel=RUN)
    ] = None,
    model: Annotated[
        Text, option("-m", "--model", metavar="MODEL", help="Who answers, for all of them.", panel=RUN)
    ] = None,
    context: Annotated[
        Text,
        option(
            "--context",
            metavar="FILE",
            help="Values for its tools in place of its own; or FILE.py:NAME.",
            panel=RUN,
        ),
    ] = None,
    max_turns: Annotated[
        int | None, option("--max-turns", metavar="N", help="At most N model calls in all.", panel=RUN)
    ] = None,
    input_filter: Annotated[
        Text, option("--input-filter", metavar="FILE:NAME", help="Makes the input of every model call.", panel=RUN)
    ] = None,
    nest_history: Annotated[
        bool | None,
        option("--nest-history/--no-nest-history", help="Hand over a summary of what was said.", panel=RUN),
    ] = None,
    history_mapper: Annotated[
        Text, option("--history-mapper", metavar="FILE:NAME", help="Makes that summary.", panel=RUN)
    ] = None,
    history_markers: Annotated[
        tuple[str, str] | None, option("--history-markers", metavar="START END", help="Stand around it.", panel=RUN)
    ] = None,
    decide_only: Annotated[
        bool, option("--decide-only", help="Write the decided state; the SDK goes on.", panel=WRITE)
    ] = False,
    out: Annotated[
        Text, option("-o", "--out", metavar="FILE", help="Where a state goes to; - is stdout.", panel=WRITE)
    ] = None,
    schema: Annotated[
        Text, option("--schema", metavar="LABEL", help="Write another label, 1.0 to 1.21.", panel=WRITE)
    ] = None,
    sign: Annotated[bool, option("--sign", help="Sign what is written.", panel=WRITE)] = False,
    verify: Annotated[
        bool, option("--verify", help="Refuse a state that is not signed with the key.", panel=WRITE)
    ] = False,
    key_env: Annotated[
        str, option("--key-env", metavar="NAME", help="The variable that holds the key.", panel=WRITE)
    ] = "CONVO_SIGNING_KEY",
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No receipts and no notes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print what happens, one event a line.")] = False,
) -> None:
    """Decide on the calls that a paused run waits for, and go on with it."""
    from convo.cli.resuming import Asked, Signing, Written, check_there, decide, proved

    if decide_only:
        asked = Asked(tuple(approve or ()), tuple(reject or ()), tuple(edit or ()), always)
        _check_decide_only(agent, (rerun, output, abort), out, as_json=as_json)
        assert out is not None
        raise typer.Exit(decide(state, asked, Written(out, schema, sign, verify, key_env, as_json)))
    if agent is None:
        check_there(state, call_of(ctx).config)
        raise Usage(
            "to go on with a run takes its agents, and none are named",
            hint=f"convo resume {state} --agent FILE.py:NAME; or --decide-only -o decided.json, and the SDK goes on",
        )
    if out == "-" or schema or sign:
        raise Usage("a run that goes on here writes its state into a file, as it is", hint="-o FILE, or --decide-only")
    from convo.cli.desk import Out
    from convo.cli.going_on import Resuming
    from convo.cli.going_on import resume as go_on
    from convo.cli.verdicts import Said
    from convo.ui.signals import orderly

    flags = RunFlags(
        agent=agent,
        context=context,
        max_turns=max_turns,
        input_filter=input_filter,
        nest_history=nest_history,
        history_mapper=history_mapper,
        history_markers=history_markers,
        state=out,
    )
    said = Said(
        approve=tuple(approve or ()),
        reject=tuple(reject or ()),
        edit=tuple(edit or ()),
        rerun=tuple(rerun or ()),
        output=tuple(output or ()),
        always=always,
        abort=abort,
    )
    document = proved(state, call_of(ctx).config, Signing(key_env, verify))
    resuming = Resuming(state, document, said, flags, model, call_of(ctx).config)
    shown = Out(quiet=quiet, as_json=as_json, as_jsonl=as_jsonl)
    raise typer.Exit(asyncio.run(orderly(go_on(resuming, shown))))


def _check_decide_only(agent: Text, unknown: tuple[object, ...], out: Text, *, as_json: bool) -> None:
    if agent:
        raise Usage("--decide-only runs nothing, so it takes no agents", hint="leave one of the two out")
    if any(unknown):
        raise Usage(
            "a written state has no call whose outcome is unknown", hint="convo resume RUN --agent FILE.py:NAME"
        )
    if out is None:
        raise Usage("--decide-only writes a state, and -o does not say where to", hint="-o decided.json, or -o -")
    if out == "-" and as_json:
        raise Usage("--json and -o - would both be written on stdout", hint="-o with a file")
