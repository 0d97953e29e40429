"""`convo resume`: decide on the calls that a paused run waits for, and go on with it.

The arguments alone; `convo.cli.resuming` decides for others to go on, `convo.cli.going_on` goes on.
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convo.cli.options import Text, Texts, flag, value
from convo.cli.run_flags import HISTORY_MAPPER, HISTORY_MARKERS, INPUT_FILTER, NEST_HISTORY, RunFlags
from convo.cli.shape import App, call_of
from convo.errors import Usage

if TYPE_CHECKING:
    from convo.cli.desk import Out

app = App()

EXAMPLES = """
Examples:
  convo resume state.json --approve all              with the agents that the run had here before
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
A name and all mean undecided calls. To change a decision, give the call's id.
Without --decide-only the run goes on here, until it ends (0) or waits for a decision (3).
The key for --sign and --verify is taken from CONVO_SIGNING_KEY, or from --key-env NAME; where no
variable has it, from the keyring (keyring set convo NAME).
"""

State = Annotated[str, typer.Argument(metavar="STATE", help="A file, -, a session or a run.")]


@dataclass(frozen=True)
class Decided:
    """What is decided; a call is named by its id, its tool or `all`."""

    approve: Texts = value("--approve", "CALL", "Let it run.")
    reject: Texts = value("--reject", "CALL[=WHY]", "Tell the model no, and why.")
    edit: Texts = value("--edit", "CALL", "Change its arguments in $EDITOR, then let it run.")
    always: bool = flag("--always", "Decide so on every later call of the tool.")
    rerun: Texts = value("--rerun", "CALL", "Outcome unknown: run it again.")
    output: Texts = value("--output", "CALL=TEXT", "Outcome unknown: this came of it.")
    abort: bool = flag("--abort", "End the run for good.")


@dataclass(frozen=True)
class Going:
    """How the run goes on."""

    agent: Text = value("--agent", "FILE:NAME", "Agents of the run: support.py:triage, or a .toml; default: as before.")
    model: Text = value("-m --model", "MODEL", "Who answers, for all of them.")
    context: Text = value("--context", "FILE", "Values for its tools in place of its own; or FILE.py:NAME.")
    max_turns: int | None = value("--max-turns", "N", "At most N model calls in all.")
    input_filter: Text = value(*INPUT_FILTER)
    nest_history: bool | None = flag(*NEST_HISTORY, default=None)
    history_mapper: Text = value(*HISTORY_MAPPER)
    history_markers: tuple[str, str] | None = value(*HISTORY_MARKERS)

    def flags(self, state: Text) -> RunFlags:
        """The same as for a chat; `state` is the file that a paused run is written to."""
        return RunFlags(**{name: said for name, said in asdict(self).items() if name != "model"}, state=state)


@dataclass(frozen=True)
class Written:
    """What is written, and what is to be proved before."""

    decide_only: bool = flag("--decide-only", "Write the decided state; the SDK goes on.")
    out: Text = value("-o --out", "FILE", "Where a state goes to; - is stdout.")
    schema: Text = value(
        "--schema", "LABEL", "Write another label: 1.0 to 1.21, but no 1.3, 1.7, 1.8, 1.14, 1.19, 1.20."
    )
    sign: bool = flag("--sign", "Sign what is written.")
    verify: bool = flag("--verify", "Refuse a state that is not signed with the key.")
    key_env: str = value("--key-env", "NAME", "The variable that holds the key.", default="CONVO_SIGNING_KEY")


@app.command(epilog=EXAMPLES)
def resume(
    ctx: typer.Context,
    state: State,
    *,
    decided: Annotated[Decided, "What is decided"],
    going: Annotated[Going, "Going on with it"],
    written: Annotated[Written, "What is written"],
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No receipts and no notes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print what happens, one event a line.")] = False,
) -> None:
    """Decide on the calls that a paused run waits for, and go on with it."""
    if decided.always and not (decided.approve or decided.reject or decided.edit):
        raise Usage(
            "--always says how far a decision goes, and none is made", hint="--approve CALL --always, or --reject"
        )
    if written.decide_only:
        raise typer.Exit(_decide_only(state, decided, going.agent, written, as_json=as_json))
    config = call_of(ctx).config
    if written.out == "-" or written.schema or written.sign:
        raise Usage("a run that goes on here writes its state into a file, as it is", hint="-o FILE, or --decide-only")
    from convo.cli.desk import Out

    out = Out(quiet=quiet, as_json=as_json, as_jsonl=as_jsonl)
    raise typer.Exit(_go_on(state, decided, going, written, config, out))


def _decide_only(state: str, decided: Decided, agent: Text, written: Written, *, as_json: bool) -> int:
    """Write the decided state for others. raises: Usage  something said belongs to a run that goes on; as `decide`"""
    from convo.cli import resuming

    if agent:
        raise Usage("--decide-only runs nothing, so it takes no agents", hint="leave one of the two out")
    if decided.rerun or decided.output or decided.abort:
        raise Usage(
            "a written state has no call whose outcome is unknown", hint="convo resume RUN --agent FILE.py:NAME"
        )
    if written.out is None:
        raise Usage("--decide-only writes a state, and -o does not say where to", hint="-o decided.json, or -o -")
    if written.out == "-" and as_json:
        raise Usage("--json and -o - would both be written on stdout", hint="-o with a file")
    approve, reject, edit = (tuple(words or ()) for words in (decided.approve, decided.reject, decided.edit))
    place = resuming.Written(written.out, written.schema, written.sign, written.verify, written.key_env, as_json)
    return resuming.decide(state, resuming.Asked(approve, reject, edit, decided.always), place)


def _go_on(state: str, decided: Decided, going: Going, written: Written, config: Path | None, out: "Out") -> int:
    """Go on with the run here, until it ends or waits. raises: as its parts do"""
    import asyncio  # nothing that only decides waits for anybody

    from convo.cli import going_on
    from convo.cli.resuming import Signing, proved
    from convo.cli.verdicts import Said
    from convo.engine.state_file import writable
    from convo.ui.signals import orderly

    said = Said(
        approve=tuple(decided.approve or ()),
        reject=tuple(decided.reject or ()),
        edit=tuple(decided.edit or ()),
        rerun=tuple(decided.rerun or ()),
        output=tuple(decided.output or ()),
        always=decided.always,
        abort=decided.abort,
    )
    if written.out is not None:
        writable(written.out)
    document = proved(state, config, Signing(written.key_env, written.verify))
    resuming = going_on.Resuming(state, document, said, going.flags(written.out), going.model, config)
    return asyncio.run(orderly(going_on.resume(resuming, out)))
