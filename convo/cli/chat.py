"""`convo chat`: talk, with the state held where you choose.

The options stand in tables: who keeps the state, how to ask, runs of agents, what comes out.
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
from dataclasses import dataclass
from typing import Annotated

import typer

from convo.cli.options import Text, Texts, flag, value
from convo.cli.run_flags import RunFlags
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

Prompt = Annotated[
    list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Ask once; - stands for what is piped in.")
]


@dataclass(frozen=True)
class Whose:
    """Who keeps the state, and where it is gone on with."""

    replay: bool = flag("--replay", "You: a JSON file that you can edit.")
    session: bool = flag("--session", "The local store; the default.")
    conversation: bool = flag("--conversation", "The endpoint's Conversations API.")
    chain: bool = flag("--chain", "The endpoint's Responses API.")
    handle: Text = value("--from", "HANDLE", "Go on from a file, a session, conv_... or resp_....")
    last: bool = flag("-c --continue", "Go on with the session used last.")
    fork: Text = value(
        "--fork", "HANDLE[@N]", "A second session from where HANDLE stands, or stood after its N-th turn."
    )
    name: Text = value("-n --name", "NAME", "Name the new session.")
    store: bool = flag("--store", "Leave a copy at the endpoint as well.")

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """The owners that were named; a conversation has one."""
        return tuple(strategy for strategy in Strategy if getattr(self, strategy))


@dataclass(frozen=True)
class Request:
    """What every request of the chat says."""

    model: Text = value("-m --model", "MODEL", "Who answers: provider/model.")
    system: Text = value("-s --system", "TEXT", "Instructions, sent with every turn.")
    attach: Texts = value("-a --attach", "FILE", "Send a file along.")
    schema: Text = value("--schema", "FILE", "Answer in JSON of this schema.")
    temperature: float | None = value("--temperature", "T", "From 0, the likeliest words, to 2.")
    max_output_tokens: int | None = value("--max-output-tokens", "N", "Stop an answer after N tokens.")

    def parameters(self) -> dict[str, Json]:
        """Fields of every request. raises: Usage  a figure that no model takes"""
        if self.temperature is not None and not 0 <= self.temperature <= HOTTEST:
            raise Usage(f"--temperature goes from 0 to {HOTTEST}", hint="convo chat --temperature 0.7")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise Usage("--max-output-tokens is at least 1", hint="convo chat --max-output-tokens 1000")
        fields = {"temperature": self.temperature, "max_output_tokens": self.max_output_tokens}
        return {field: given for field, given in fields.items() if given is not None}


@dataclass(frozen=True)
class Printed:
    """What comes out, and in which form."""

    quiet: bool = flag("-q --quiet", "No receipts and no notes.")
    as_json: bool = flag("--json", "One JSON object about the turn.")
    as_jsonl: bool = flag("--jsonl", "The events of the turn, one a line.")
    plain: bool = flag("--plain", "No layout: the words as they are.")
    no_stream: bool = flag("--no-stream", "Print an answer when it is whole.")

    def check(self) -> None:
        """Make sure that one form was asked for. raises: Usage"""
        if self.as_json and self.as_jsonl:
            raise Usage("--json is one object and --jsonl a line for each event", hint="use one of them")


@app.command(epilog=EXAMPLES)
def chat(
    ctx: typer.Context,
    prompt: Prompt = None,
    *,
    whose: Annotated[Whose, "Who keeps the state (one of the first four)"],
    request: Annotated[Request, "How to ask"],
    run: Annotated[RunFlags, "Runs of agents"],
    printed: Annotated[Printed, "What comes out"],
) -> None:
    """Talk to a model, with the state held where you choose."""
    from convo.cli.desk import Asked, Out
    from convo.cli.talking import talk
    from convo.ui.signals import orderly

    printed.check()
    run.check(system=request.system, schema=request.schema)
    asked = Asked(
        strategies=whose.strategies,
        handle=whose.handle,
        last=whose.last,
        fork=whose.fork,
        name=whose.name,
        store=whose.store,
        model=request.model,
        system=request.system,
        attach=tuple(request.attach or ()),
        schema=request.schema,
        parameters=request.parameters(),
        prompt=words(prompt or []),
        config=call_of(ctx).config,
        run=run,
    )
    out = Out(printed.quiet, printed.as_json, printed.as_jsonl, live=not printed.no_stream, plain=printed.plain)
    if prompt and "-" not in prompt and is_piped_in():
        out.note("what is piped in was not read: add - where it belongs")
    raise typer.Exit(asyncio.run(orderly(talk(asked, out))))


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
