"""`convo resume`: its arguments, options and help."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from convo.cli.app import App, OptionalText, OptionalTexts, flag_option, get_root_options, value_option
from convo.cli.run_options import SOURCE_FIELDS, STRICT_PREFIX_HELP, RunFlags
from convo.errors import InvalidUsage

if TYPE_CHECKING:
    from convo.cli.context import ChatOutput
    from convo.cli.decision_flags import RequestedDecisions
    from convo.config.loader import SettingFlags


app = App()

EXAMPLES = """
Examples:
  convo resume state.json --approve all              with the agents that the run used before
  convo resume state.json --agent support.py:triage --approve all
  convo resume @last --agent support.py:triage --reject call_1="not on a Friday"
  convo resume run_... --agent support.py:triage --output call_1="it went through"
  convo resume state.json --decide-only -o decided.json --approve call_1 --reject call_2="not on a Friday"
  convo resume state.json --decide-only -o decided.json --approve send_mail --always
  cat state.json | convo resume - --decide-only -o - --reject all
  convo resume state.json --decide-only -o older.json --schema 1.13
                                             for an older release of the Agents SDK; losses are reported
  convo resume state.json --decide-only -o signed.json --approve all --sign

STATE is a RunState file, - for stdin, or a session or run of the local store.
CALL is a call id, a tool name, or all; an id takes precedence over a name, and a name over all.
A tool name and all select undecided calls only. To change a decision, use the call id.

A state of the JavaScript SDK (@openai/agents) needs --decide-only; JavaScript finishes it.
Without --decide-only the run continues here, until it ends (0) or needs a decision (3).

The key for --sign and --verify is read from CONVO_SIGNING_KEY, or from the variable of --key-env NAME; if the
variable is not set, from the keyring (keyring set convo NAME).
"""

StateArgument = Annotated[str, typer.Argument(metavar="STATE", help="State file, - for stdin, session or run.")]


@dataclass(frozen=True)
class ApprovalFlags:
    """The decisions on calls; a call is named by its id, its tool or `all`."""

    approve: OptionalTexts = value_option("--approve", "CALL", "Approve a call.")
    reject: OptionalTexts = value_option("--reject", "CALL[=WHY]", "Reject a call; WHY is sent to the model.")
    edit: OptionalTexts = value_option("--edit", "CALL", "Edit the arguments of a call in $EDITOR, then approve it.")
    always: bool = flag_option("--always", "Apply the decision to every later call of the tool.")
    rerun: OptionalTexts = value_option("--rerun", "CALL", "Outcome unknown: run the call again.")
    output: OptionalTexts = value_option("--output", "CALL=TEXT", "Outcome unknown: TEXT is the output of the call.")
    abort: bool = flag_option("--abort", "End the run; it cannot be resumed.")

    def to_request(self) -> "RequestedDecisions":
        """Return the options as RequestedDecisions."""
        from convo.cli.decision_flags import RequestedDecisions

        return RequestedDecisions(
            approve=tuple(self.approve or ()),
            reject=tuple(self.reject or ()),
            edit=tuple(self.edit or ()),
            rerun=tuple(self.rerun or ()),
            output=tuple(self.output or ()),
            always=self.always,
            abort=self.abort,
        )


RESUMED_RUN_PANEL = "Resumed run"

RESUMED_RUN_OPTIONS = {
    "agent": "Agents of the run: support.py:triage, or a .toml file; default: as before.",
    "context": "Context values that replace those of the run: a JSON file, or FILE.py:NAME.",
    "max_turns": "Maximum number of model calls, including those before the pause.",
    **dict.fromkeys(
        (
            "tool",
            "mcp",
            "run_config",
            "sdk_session",
            "input_filter",
            "nest_history",
            "history_mapper",
            "history_markers",
        )
    ),
}


@dataclass(frozen=True)
class StateFileFlags:
    """The state file to write, and its signature."""

    decide_only: bool = flag_option("--decide-only", "Write the decided state for the Agents SDK; do not resume.")
    out: OptionalText = value_option("-o --out", "FILE", "File to write the state to; - for stdout.")
    schema: OptionalText = value_option(
        "--schema", "LABEL", "Schema version to write: 1.0 to 1.21, except 1.3, 1.7, 1.8, 1.14, 1.19, 1.20."
    )
    sign: bool = flag_option("--sign", "Sign the state.")
    verify: bool = flag_option("--verify", "Refuse a state that is not signed with this key.")
    key_env: str = value_option(
        "--key-env", "NAME", "Environment variable with the signing key.", default="CONVO_SIGNING_KEY"
    )


@app.command(epilog=EXAMPLES)
def resume_command(
    ctx: typer.Context,
    state: StateArgument,
    *,
    decisions: Annotated[ApprovalFlags, "Decisions"],
    model: OptionalText = value_option(
        "-m --model", "MODEL", "Model to use for all agents, as provider/model.", panel=RESUMED_RUN_PANEL
    ),
    run: Annotated[RunFlags, RESUMED_RUN_PANEL, RESUMED_RUN_OPTIONS],
    keep_prefix: bool = flag_option(
        "--keep-prefix",
        "Append changes of the agents at the end, so that the prompt cache stays valid.",
        panel=RESUMED_RUN_PANEL,
    ),
    state_file: Annotated[StateFileFlags, "State file"],
    strict_prefix: bool = flag_option("--strict-prefix", STRICT_PREFIX_HELP),
    quiet: bool = flag_option("-q --quiet", "Print only the response, without token counts and notices."),
    as_json: bool = flag_option("--json", "Print the result as JSON."),
    as_jsonl: bool = flag_option("--jsonl", "Print the events of the run as JSON, one per line."),
) -> None:
    """Approve or reject the pending calls of a paused run, and resume it."""
    if decisions.always and not (decisions.approve or decisions.reject or decisions.edit):
        raise InvalidUsage("--always requires --approve, --reject or --edit", hint="--approve CALL --always")
    if state_file.decide_only and keep_prefix:
        raise InvalidUsage("--decide-only and --keep-prefix cannot be used together", hint="omit one of them")
    if state_file.decide_only:
        raise typer.Exit(_decide_without_resuming(state, decisions, run, state_file, as_json=as_json))
    config = get_root_options(ctx).config
    if state_file.out == "-" or state_file.schema or state_file.sign:
        raise InvalidUsage("-o -, --schema and --sign require --decide-only", hint="add --decide-only, or use -o FILE")
    from convo.cli.context import ChatOutput
    from convo.config.loader import SettingFlags

    out = ChatOutput(quiet=quiet, as_json=as_json, as_jsonl=as_jsonl)
    run = replace(run, state=state_file.out)
    flags = SettingFlags(strict_prefix=strict_prefix or None, keep_prefix=keep_prefix or None)
    raise typer.Exit(_resume_here(state, decisions, run, model, state_file, config, out, flags))


def _decide_without_resuming(
    state: str, decisions: ApprovalFlags, run: RunFlags, output: StateFileFlags, *, as_json: bool
) -> int:
    """Write the decided state; do not resume the run.

    Raises InvalidUsage for an option of a resumed run, and the errors of `write_decided_state`.
    """
    from convo.cli import resume

    if option := next((f"--{name}" for name in SOURCE_FIELDS if getattr(run, name)), None):
        raise InvalidUsage(
            f"--decide-only and {option} cannot be used together: no agent runs", hint="omit one of them"
        )
    if decisions.rerun or decisions.output or decisions.abort:
        raise InvalidUsage(
            "--rerun, --output and --abort cannot be used with --decide-only",
            hint="convo resume RUN --agent FILE.py:NAME",
        )
    if output.out is None:
        raise InvalidUsage("--decide-only requires -o", hint="-o decided.json, or -o -")
    if output.out == "-" and as_json:
        raise InvalidUsage("--json and -o - would both write to stdout", hint="use -o FILE")
    destination = resume.DecidedStateOutput(
        output.out, output.schema, output.sign, output.verify, output.key_env, as_json
    )
    return resume.write_decided_state(state, decisions.to_request(), destination)


def _resume_here(
    state: str,
    decisions: ApprovalFlags,
    run: RunFlags,
    model: str | None,
    output: StateFileFlags,
    config: Path | None,
    out: "ChatOutput",
    flags: "SettingFlags",
) -> int:
    """Resume the run here, until it ends or pauses. Raises the errors of its parts."""
    import asyncio  # --decide-only does not need it

    from convo.chat.state_file import check_state_path
    from convo.cli import resumed_run
    from convo.cli.resume import SigningOptions, load_verified_state
    from convo.terminal.signals import run_until_terminated

    if output.out is not None:
        check_state_path(output.out)
    document = load_verified_state(state, config, SigningOptions(output.key_env, output.verify))
    requested = decisions.to_request()
    request = resumed_run.ResumeRequest(state, document, requested, run, model, config, flags)
    return asyncio.run(run_until_terminated(resumed_run.resume_paused_run(request, out)))
