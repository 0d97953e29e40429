"""`convo chat`: its arguments, options and help."""

import asyncio
from dataclasses import dataclass
from typing import Annotated

import typer

from convo.cli.app import App, OptionalText, OptionalTexts, flag_option, get_root_options, value_option
from convo.cli.input import read_message
from convo.cli.run_options import RunFlags
from convo.errors import InvalidUsage
from convo.history.items import Json
from convo.history.records import Strategy

app = App()

MAX_TEMPERATURE = 2

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

PromptArgument = Annotated[
    list[str] | None, typer.Argument(metavar="[PROMPT]...", help="Ask once. Piped input is appended; - sets its place.")
]


@dataclass(frozen=True)
class StrategyFlags:
    """Who keeps the state, and where it is gone on with."""

    replay: bool = flag_option("--replay", "You: a JSON file that you can edit.")
    session: bool = flag_option("--session", "The local store; the default.")
    conversation: bool = flag_option("--conversation", "The endpoint's Conversations API.")
    chain: bool = flag_option("--chain", "The endpoint's Responses API.")
    handle: OptionalText = value_option("--from", "HANDLE", "Go on from a file, a session, conv_... or resp_....")
    continue_last: bool = flag_option("-c --continue", "Continue the last session that has an answer.")
    fork: OptionalText = value_option(
        "--fork", "HANDLE[@N]", "A second session from where HANDLE stands, or stood after its N-th turn."
    )
    name: OptionalText = value_option("-n --name", "NAME", "Name the new session.")
    store_remotely: bool = flag_option("--store", "Leave a copy at the endpoint as well.")

    @property
    def strategies(self) -> tuple[Strategy, ...]:
        """The owners that were named; a conversation has one."""
        return tuple(strategy for strategy in Strategy if getattr(self, strategy))


@dataclass(frozen=True)
class RequestFlags:
    """What every request of the chat says."""

    model: OptionalText = value_option("-m --model", "MODEL", "Who answers: provider/model.")
    instructions: OptionalText = value_option("-s --system", "TEXT", "Instructions, sent with every turn.")
    attachments: OptionalTexts = value_option("-a --attach", "FILE", "Send a file along.")
    schema_file: OptionalText = value_option("--schema", "FILE", "Answer in JSON of this schema.")
    temperature: float | None = value_option("--temperature", "T", "From 0, the likeliest words, to 2.")
    max_output_tokens: int | None = value_option("--max-output-tokens", "N", "Stop an answer after N tokens.")

    def parameters(self) -> dict[str, Json]:
        """Fields of every request. raises: InvalidUsage  a figure that no model takes"""
        if self.temperature is not None and not 0 <= self.temperature <= MAX_TEMPERATURE:
            raise InvalidUsage(f"--temperature goes from 0 to {MAX_TEMPERATURE}", hint="convo chat --temperature 0.7")
        if self.max_output_tokens is not None and self.max_output_tokens < 1:
            raise InvalidUsage("--max-output-tokens is at least 1", hint="convo chat --max-output-tokens 1000")
        fields = {"temperature": self.temperature, "max_output_tokens": self.max_output_tokens}
        return {field: given for field, given in fields.items() if given is not None}


@dataclass(frozen=True)
class ChatOutputFlags:
    """What comes out, and in which form."""

    quiet: bool = flag_option("-q --quiet", "No receipts and no notes.")
    as_json: bool = flag_option("--json", "One JSON object about the turn.")
    as_jsonl: bool = flag_option("--jsonl", "The events of the turn, one a line.")
    plain: bool = flag_option("--plain", "No layout: the words as they are.")
    no_stream: bool = flag_option("--no-stream", "Print an answer when it is whole.")

    def validate(self) -> None:
        """Make sure that one form was asked for. raises: Usage"""
        if self.as_json and self.as_jsonl:
            raise InvalidUsage("--json is one object and --jsonl a line for each event", hint="use one of them")


@app.command(epilog=EXAMPLES)
def chat_command(
    ctx: typer.Context,
    prompt: PromptArgument = None,
    *,
    strategy: Annotated[StrategyFlags, "Who keeps the state (one of the first four)"],
    request: Annotated[RequestFlags, "How to ask"],
    run: Annotated[RunFlags, "Runs of agents"],
    output: Annotated[ChatOutputFlags, "What comes out"],
) -> None:
    """Talk to a model, with the state held where you choose."""
    from convo.cli.chat import run_chat
    from convo.cli.context import ChatOptions, ChatOutput
    from convo.terminal.signals import run_until_terminated

    output.validate()
    continues = bool(strategy.handle or strategy.continue_last or strategy.fork)
    run.validate(instructions=request.instructions, schema_file=request.schema_file, is_continued=continues)
    files = (*(request.attachments or ()), request.schema_file, run.context, strategy.handle)
    asked = ChatOptions(
        strategies=strategy.strategies,
        handle=strategy.handle,
        continue_last=strategy.continue_last,
        fork=strategy.fork,
        name=strategy.name,
        store_remotely=strategy.store_remotely,
        model=request.model,
        instructions=request.instructions,
        attachments=tuple(request.attachments or ()),
        schema_file=request.schema_file,
        parameters=request.parameters(),
        prompt=read_message(prompt or [], files, example='convo chat "..."', required=True),
        config=get_root_options(ctx).config,
        run_flags=run,
    )
    out = ChatOutput(
        output.quiet, output.as_json, output.as_jsonl, is_streamed=not output.no_stream, is_plain=output.plain
    )
    raise typer.Exit(asyncio.run(run_until_terminated(run_chat(asked, out))))
