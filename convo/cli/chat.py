"""`convo chat`: talk, with the state held where you choose.

The flags become one frozen value each for who keeps the state, how to ask and what comes out;
`convo.cli.talking` does the rest.
"""

import asyncio
import fcntl
import io
import os
import re
import stat
import sys
import termios
from typing import Annotated

import typer

from convo.cli.shape import App, call_of
from convo.errors import Unreadable, Usage
from convo.history import Strategy
from convo.items import Json

app = App()

HOTTEST = 2

NO_CHARACTER = re.compile(r"[\udc80-\udcff]")
"""What stands in a command line for bytes that are no characters."""

AS_TEXT = "convert it, with iconv for instance, or attach it as a file"

EXAMPLES = """
Examples:
  convo chat                                  talk; the conversation is kept on this machine
  convo chat "why is the sky blue?"           one question, one answer
  git diff | convo chat "review this:" -      a question and what is piped in
  convo chat --chain "hello"                  let the Responses API keep the conversation
  convo chat --from resp_... "and then?"      go on from any response
  convo chat --replay --from talk.json "hi"   keep it in a file that you can edit
  convo chat -c                               go on with the session used last
  convo chat --agent support.py:triage "hi"   let agents answer, with their tools and handoffs
"""

WHO = "Who keeps the state (one of the first four)"
ASK = "How to ask"
RUN = "Runs of agents"
OUT = "What comes out"


def flag(*names: str, panel: str, help: str) -> typer.models.OptionInfo:  # noqa: A002  Typer's own word
    """An option that takes no value."""
    option: typer.models.OptionInfo = typer.Option(*names, help=help, rich_help_panel=panel)
    return option


def value(
    *names: str,
    panel: str,
    metavar: str,
    help: str,  # noqa: A002
    min: int | None = None,  # noqa: A002
) -> typer.models.OptionInfo:
    """An option that takes a value."""
    option: typer.models.OptionInfo = typer.Option(*names, metavar=metavar, help=help, rich_help_panel=panel, min=min)
    return option


@app.command(epilog=EXAMPLES)
def chat(
    ctx: typer.Context,
    prompt: Annotated[
        list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Ask once; - stands for what is piped in.")
    ] = None,
    replay: Annotated[bool, flag("--replay", panel=WHO, help="You: a JSON file that you can edit.")] = False,
    session: Annotated[bool, flag("--session", panel=WHO, help="The local store; the default.")] = False,
    conversation: Annotated[bool, flag("--conversation", panel=WHO, help="The endpoint's Conversations API.")] = False,
    chain: Annotated[bool, flag("--chain", panel=WHO, help="The endpoint's Responses API.")] = False,
    handle: Annotated[
        str | None,
        value("--from", panel=WHO, metavar="HANDLE", help="Go on from a file, a session, conv_... or resp_...."),
    ] = None,
    last: Annotated[bool, flag("-c", "--continue", panel=WHO, help="Go on with the session used last.")] = False,
    fork: Annotated[
        str | None,
        value(
            "--fork",
            panel=WHO,
            metavar="HANDLE[@N]",
            help="A second session from where HANDLE stands, or stood after its N-th turn.",
        ),
    ] = None,
    name: Annotated[str | None, value("-n", "--name", panel=WHO, metavar="NAME", help="Name the new session.")] = None,
    store: Annotated[bool, flag("--store", panel=WHO, help="Leave a copy at the endpoint as well.")] = False,
    model: Annotated[
        str | None, value("-m", "--model", panel=ASK, metavar="MODEL", help="Who answers: provider/model.")
    ] = None,
    system: Annotated[
        str | None, value("-s", "--system", panel=ASK, metavar="TEXT", help="Instructions, sent with every turn.")
    ] = None,
    attach: Annotated[
        list[str] | None, value("-a", "--attach", panel=ASK, metavar="FILE", help="Send a file along.")
    ] = None,
    schema: Annotated[
        str | None, value("--schema", panel=ASK, metavar="FILE", help="Answer in JSON of this schema.")
    ] = None,
    temperature: Annotated[
        float | None, value("--temperature", panel=ASK, metavar="T", help="From 0, the likeliest words, to 2.")
    ] = None,
    max_output_tokens: Annotated[
        int | None, value("--max-output-tokens", panel=ASK, metavar="N", help="Stop an answer after N tokens.")
    ] = None,
    agent: Annotated[
        str | None, value("--agent", panel=RUN, metavar="FILE:NAME", help="Who answers: support.py:triage, or a .toml.")
    ] = None,
    context: Annotated[
        str | None,
        value("--context", panel=RUN, metavar="FILE", help="Values for its tools: a JSON object, or FILE.py:NAME."),
    ] = None,
    max_turns: Annotated[
        int | None, value("--max-turns", panel=RUN, metavar="N", help="At most N model calls a run.", min=1)
    ] = None,
    session_limit: Annotated[
        int | None,
        value("--session-limit", panel=RUN, metavar="N", help="Send the newest N kept items alone.", min=0),
    ] = None,
    input_filter: Annotated[
        str | None,
        value("--input-filter", panel=RUN, metavar="FILE:NAME", help="Makes the input of every model call."),
    ] = None,
    nest_history: Annotated[
        bool | None, flag("--nest-history/--no-nest-history", panel=RUN, help="Hand over a summary of what was said.")
    ] = None,
    history_mapper: Annotated[
        str | None, value("--history-mapper", panel=RUN, metavar="FILE:NAME", help="Makes that summary.")
    ] = None,
    history_markers: Annotated[
        tuple[str, str] | None, value("--history-markers", panel=RUN, metavar="START END", help="Stand around it.")
    ] = None,
    state: Annotated[
        str | None, value("--state", panel=RUN, metavar="FILE", help="Where a paused run is written.")
    ] = None,
    quiet: Annotated[bool, flag("-q", "--quiet", panel=OUT, help="No receipts and no notes.")] = False,
    as_json: Annotated[bool, flag("--json", panel=OUT, help="One JSON object about the turn.")] = False,
    as_jsonl: Annotated[bool, flag("--jsonl", panel=OUT, help="The events of the turn, one a line.")] = False,
    plain: Annotated[bool, flag("--plain", panel=OUT, help="No layout: the words as they are.")] = False,
    no_stream: Annotated[bool, flag("--no-stream", panel=OUT, help="Print an answer when it is whole.")] = False,
) -> None:
    """Talk to a model, with the state held where you choose."""
    from convo.cli.desk import Asked, Out
    from convo.cli.run_flags import RunFlags
    from convo.cli.talking import talk
    from convo.ui.signals import orderly

    if as_json and as_jsonl:
        raise Usage("--json is one object and --jsonl a line for each event", hint="use one of them")
    run = RunFlags(
        agent=agent,
        input_filter=input_filter,
        history_mapper=history_mapper,
        history_markers=history_markers,
        nest_history=nest_history,
        max_turns=max_turns,
        session_limit=session_limit,
        context=context,
        state=state,
    )
    run.check(system=system, schema=schema)
    owners = {
        Strategy.REPLAY: replay,
        Strategy.SESSION: session,
        Strategy.CONVERSATION: conversation,
        Strategy.CHAIN: chain,
    }
    asked = Asked(
        strategies=tuple(strategy for strategy, chosen in owners.items() if chosen),
        handle=handle,
        last=last,
        fork=fork,
        name=name,
        store=store,
        model=model,
        system=system,
        attach=tuple(attach or ()),
        schema=schema,
        parameters=parameters(temperature, max_output_tokens),
        prompt=words(prompt or []),
        config=call_of(ctx).config,
        run=run,
    )
    out = Out(quiet=quiet, as_json=as_json, as_jsonl=as_jsonl, live=not no_stream, plain=plain)
    if prompt and "-" not in prompt and is_piped_in():
        out.note("what is piped in was not read: add - where it belongs")
    raise typer.Exit(asyncio.run(orderly(talk(asked, out))))


def parameters(temperature: float | None, max_output_tokens: int | None) -> dict[str, Json]:
    """The fields of every request that the flags give. raises: Usage  a figure that no model takes"""
    if temperature is not None and not 0 <= temperature <= HOTTEST:
        raise Usage(f"--temperature goes from 0 to {HOTTEST}", hint="convo chat --temperature 0.7")
    if max_output_tokens is not None and max_output_tokens < 1:
        raise Usage("--max-output-tokens is at least 1", hint="convo chat --max-output-tokens 1000")
    fields = {"temperature": temperature, "max_output_tokens": max_output_tokens}
    return {field: given for field, given in fields.items() if given is not None}


def words(prompt: list[str]) -> str | None:
    """The one question of this command line, or None when a person is to be asked.

    raises:  Usage       stdin is a terminal and - asks for what is piped in
             Unreadable  what was said or piped in is not text
    """
    person = sys.stdin.isatty()
    if "-" in prompt and person:
        raise Usage("- reads what is piped in, and nothing is", hint='convo chat "..."')
    if not prompt:
        return None if person else piped_in()
    spoken = " ".join(word for word in prompt if word != "-")
    if NO_CHARACTER.search(spoken):
        raise Unreadable(f"the message is not text in {sys.getfilesystemencoding().upper()}", hint=AS_TEXT)
    return "\n\n".join(part for part in (spoken, piped_in() if "-" in prompt else "") if part)


def is_piped_in() -> bool:
    """Whether something waits in a pipe at stdin."""
    try:
        waiting = fcntl.ioctl(sys.stdin.fileno(), termios.FIONREAD, bytes(4))
        return stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode) and any(waiting)
    except (OSError, ValueError):
        return False


def piped_in() -> str:
    """All of stdin. raises: Unreadable  it is not text, or cannot be read"""
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(errors="strict")
    try:
        return sys.stdin.read()
    except UnicodeDecodeError as wrong:
        raise Unreadable(f"what is piped in is not text in {wrong.encoding.upper()}", hint=AS_TEXT) from wrong
    except OSError as wrong:
        raise Unreadable(f"stdin cannot be read: {(wrong.strerror or str(wrong)).lower()}") from wrong
