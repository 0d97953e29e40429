"""`convo resume`: its arguments, options and help."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convo.cli.app import App, OptionalText, OptionalTexts, flag_option, get_root_options, value_option
from convo.cli.run_options import (
    HISTORY_MAPPER_OPTION,
    HISTORY_MARKERS_OPTION,
    INPUT_FILTER_OPTION,
    NEST_HISTORY_OPTION,
    RunFlags,
)
from convo.errors import InvalidUsage

if TYPE_CHECKING:
    from convo.cli.context import ChatOutput


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

StateArgument = Annotated[str, typer.Argument(metavar="STATE", help="A file, -, a session or a run.")]


@dataclass(frozen=True)
class ApprovalFlags:
    """What is decided; a call is named by its id, its tool or `all`."""

    approve: OptionalTexts = value_option("--approve", "CALL", "Let it run.")
    reject: OptionalTexts = value_option("--reject", "CALL[=WHY]", "Tell the model no, and why.")
    edit: OptionalTexts = value_option("--edit", "CALL", "Change its arguments in $EDITOR, then let it run.")
    always: bool = flag_option("--always", "Decide so on every later call of the tool.")
    rerun: OptionalTexts = value_option("--rerun", "CALL", "Outcome unknown: run it again.")
    output: OptionalTexts = value_option("--output", "CALL=TEXT", "Outcome unknown: this came of it.")
    abort: bool = flag_option("--abort", "End the run for good.")


@dataclass(frozen=True)
class ResumeRunFlags:
    """How the run goes on."""

    agent: OptionalText = value_option(
        "--agent", "FILE:NAME", "Agents of the run: support.py:triage, or a .toml; default: as before."
    )
    model: OptionalText = value_option("-m --model", "MODEL", "Who answers, for all of them.")
    context: OptionalText = value_option(
        "--context", "FILE", "Values for its tools in place of its own; or FILE.py:NAME."
    )
    max_turns: int | None = value_option("--max-turns", "N", "At most N model calls in all.")
    input_filter: OptionalText = value_option(*INPUT_FILTER_OPTION)
    nest_history: bool | None = flag_option(*NEST_HISTORY_OPTION, default=None)
    history_mapper: OptionalText = value_option(*HISTORY_MAPPER_OPTION)
    history_markers: tuple[str, str] | None = value_option(*HISTORY_MARKERS_OPTION)

    def to_run_flags(self, state: OptionalText) -> RunFlags:
        """The same as for a chat; `state` is the file that a paused run is written to."""
        return RunFlags(**{name: said for name, said in asdict(self).items() if name != "model"}, state=state)


@dataclass(frozen=True)
class StateFileFlags:
    """What is written, and what is to be proved before."""

    decide_only: bool = flag_option("--decide-only", "Write the decided state; the SDK goes on.")
    out: OptionalText = value_option("-o --out", "FILE", "Where a state goes to; - is stdout.")
    schema: OptionalText = value_option(
        "--schema", "LABEL", "Write another label: 1.0 to 1.21, but no 1.3, 1.7, 1.8, 1.14, 1.19, 1.20."
    )
    sign: bool = flag_option("--sign", "Sign what is written.")
    verify: bool = flag_option("--verify", "Refuse a state that is not signed with the key.")
    key_env: str = value_option("--key-env", "NAME", "The variable that holds the key.", default="CONVO_SIGNING_KEY")


@app.command(epilog=EXAMPLES)
def resume_command(
    ctx: typer.Context,
    state: StateArgument,
    *,
    decisions: Annotated[ApprovalFlags, "What is decided"],
    run_flags: Annotated[ResumeRunFlags, "Going on with it"],
    state_file: Annotated[StateFileFlags, "What is written"],
    quiet: Annotated[bool, typer.Option("-q", "--quiet", help="No receipts and no notes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was done as JSON.")] = False,
    as_jsonl: Annotated[bool, typer.Option("--jsonl", help="Print what happens, one event a line.")] = False,
) -> None:
    """Decide on the calls that a paused run waits for, and go on with it."""
    if decisions.always and not (decisions.approve or decisions.reject or decisions.edit):
        raise InvalidUsage(
            "--always says how far a decision goes, and none is made", hint="--approve CALL --always, or --reject"
        )
    if state_file.decide_only:
        raise typer.Exit(_decide_without_resuming(state, decisions, run_flags.agent, state_file, as_json=as_json))
    config = get_root_options(ctx).config
    if state_file.out == "-" or state_file.schema or state_file.sign:
        raise InvalidUsage(
            "a run that goes on here writes its state into a file, as it is", hint="-o FILE, or --decide-only"
        )
    from convo.cli.context import ChatOutput

    out = ChatOutput(quiet=quiet, as_json=as_json, as_jsonl=as_jsonl)
    raise typer.Exit(_resume_here(state, decisions, run_flags, state_file, config, out))


def _decide_without_resuming(
    state: str, decisions: ApprovalFlags, agents: OptionalText, output: StateFileFlags, *, as_json: bool
) -> int:
    """Write the decided state for others.

    raises:  InvalidUsage  something said belongs to a run that goes on; as `decide`
    """
    from convo.cli import resume

    if agents:
        raise InvalidUsage("--decide-only runs nothing, so it takes no agents", hint="leave one of the two out")
    if decisions.rerun or decisions.output or decisions.abort:
        raise InvalidUsage(
            "a written state has no call whose outcome is unknown", hint="convo resume RUN --agent FILE.py:NAME"
        )
    if output.out is None:
        raise InvalidUsage(
            "--decide-only writes a state, and -o does not say where to", hint="-o decided.json, or -o -"
        )
    if output.out == "-" and as_json:
        raise InvalidUsage("--json and -o - would both be written on stdout", hint="-o with a file")
    approve, reject, edit = (tuple(words or ()) for words in (decisions.approve, decisions.reject, decisions.edit))
    place = resume.DecidedStateOutput(output.out, output.schema, output.sign, output.verify, output.key_env, as_json)
    return resume.write_decided_state(state, resume.StateDecisions(approve, reject, edit, decisions.always), place)


def _resume_here(
    state: str,
    decisions: ApprovalFlags,
    run_flags: ResumeRunFlags,
    output: StateFileFlags,
    config: Path | None,
    out: "ChatOutput",
) -> int:
    """Go on with the run here, until it ends or waits. raises: as its parts do"""
    import asyncio  # nothing that only decides waits for anybody

    from convo.chat.state_file import check_state_path
    from convo.cli import resumed_run
    from convo.cli.decision_flags import RequestedDecisions
    from convo.cli.resume import SigningOptions, load_verified_state
    from convo.terminal.signals import run_until_terminated

    said = RequestedDecisions(
        approve=tuple(decisions.approve or ()),
        reject=tuple(decisions.reject or ()),
        edit=tuple(decisions.edit or ()),
        rerun=tuple(decisions.rerun or ()),
        output=tuple(decisions.output or ()),
        always=decisions.always,
        abort=decisions.abort,
    )
    if output.out is not None:
        check_state_path(output.out)
    document = load_verified_state(state, config, SigningOptions(output.key_env, output.verify))
    resuming = resumed_run.ResumeRequest(
        state, document, said, run_flags.to_run_flags(output.out), run_flags.model, config
    )
    return asyncio.run(run_until_terminated(resumed_run.resume_paused_run(resuming, out)))
