"""`convo chat`: talk, with the state held where you choose.

The options stand in tables: who keeps the state, how to ask, runs of agents, what comes out.
`convo.cli.talking` does the rest.
"""

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer

from convo.cli.options import Text, Texts, flag, value
from convo.cli.piped_input import read_message
from convo.cli.run_flags import RunFlags
from convo.cli.shape import App, call_of
from convo.errors import Usage
from convo.history import Strategy
from convo.items import Json

app = App()

HOTTEST = 2

EXAMPLES = """
Examples:
  convo chat                                  talk; the conversation is kept on this machine
  convo chat "why is the sky blue?"           one question, one answer
  git diff | convo chat "review this"         a question, and below it the piped input
  convo chat --chain "hello"                  let the Responses API keep the conversation
  convo chat --from resp_... "and then?"      go on from any response
  convo chat --replay --from talk.json "hi"   keep it in a file that you can edit
  convo chat -c                               go on with the session used last
  convo chat --agent support.py:triage "hi"   let agents answer, with their tools and handoffs
"""

Prompt = Annotated[
    list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Ask once. Piped input is appended; - sets its place.")
]


@dataclass(frozen=True)
class Whose:
    """Who keeps the state, and where it is gone on with."""

    replay: bool = flag("--replay", "You: a JSON file that you can edit.")
    session: bool = flag("--session", "The local store; the default.")
    conversation: bool = flag("--conversation", "The endpoint's Conversations API.")
    chain: bool = flag("--chain", "The endpoint's Responses API.")
    handle: Text = value("--from", "HANDLE", "Go on from a file, a session, conv_... or resp_....")
    last: bool = flag("-c --continue", "Continue the last session that has an answer.")
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
    continues = bool(whose.handle or whose.last or whose.fork)
    run.check(system=request.system, schema=request.schema, continues=continues)
    files = (*(request.attach or ()), request.schema, run.context, whose.handle)
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
        prompt=read_message(prompt or [], files, example='convo chat "..."', required=True),
        config=call_of(ctx).config,
        run=run,
    )
    out = Out(printed.quiet, printed.as_json, printed.as_jsonl, live=not printed.no_stream, plain=printed.plain)
    raise typer.Exit(asyncio.run(orderly(talk(asked, out))))
