"""`convo next`: its arguments, options and help."""

from dataclasses import dataclass
from typing import Annotated

import typer

from convo.cli.app import (
    App,
    HandleArgument,
    OptionalText,
    OptionalTexts,
    ProviderOption,
    flag_option,
    get_root_options,
    value_option,
)
from convo.cli.run_options import CONTEXT_OPTION, INPUT_FILTER_OPTION, SESSION_LIMIT_OPTION, RunFlags
from convo.errors import InvalidUsage

app = App()

EXAMPLES = """
Examples:
  convo next @last                           what a turn sends, and what its owner puts before it
  convo next @last "and in Haskell?"         the same with this message
  convo next resp_4f1c "and?" --curl | sh    send it without convo
  convo next monads --json                   body, parts and tokens for a program
  convo next monads --count endpoint         let the endpoint count, over the network
  convo next desk "hi" --agent support.py:triage
                                             with the instructions and tools of the agent that would answer
"""

COUNT_CHOICES = ("auto", "endpoint", "offline")

CountOption = Annotated[
    str,
    typer.Option(
        "--count",
        metavar="WHO",
        help="Who counts tokens: endpoint (asks it), offline (nobody), or auto: an endpoint on this machine.",
    ),
]
PromptArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROMPT]...", help="The next message. Piped input is appended; - sets its place."),
]
UrlOption = Annotated[
    OptionalText, typer.Option("--url", metavar="URL", help="Where --curl sends it: the base URL of an API.")
]


@dataclass(frozen=True)
class NextFormatFlags:
    """What is shown; a screen for a person where nothing else is asked for."""

    curl: bool = flag_option("--curl", "A command that sends it, for a POSIX shell.")
    as_json: bool = flag_option("--json", "One JSON object.")

    def selected_format(self) -> str:
        """The one form that was asked for; "" for the screen. raises: InvalidUsage  both were"""
        if self.curl and self.as_json:
            raise InvalidUsage("--curl and --json are two answers to one question", hint="use one of them")
        return "--curl" if self.curl else "--json" if self.as_json else ""


@dataclass(frozen=True)
class NextRequestFlags:
    """What the next request would say."""

    model: OptionalText = value_option("-m --model", "MODEL", "Who would answer.")
    instructions: OptionalText = value_option("-s --system", "TEXT", "Other instructions.")
    attachments: OptionalTexts = value_option("-a --attach", "FILE", "A file that would go along.")
    store_remotely: bool = flag_option("--store", "As chat has it.")


@dataclass(frozen=True)
class NextAgentFlags:
    """Runs of agents: who would answer, and what makes their input."""

    agent: OptionalText = value_option(
        "--agent", "FILE:NAME", "Agents to use: support.py:triage, or a .toml; none: no agents."
    )
    context: OptionalText = value_option(*CONTEXT_OPTION)
    session_limit: int | None = value_option(*SESSION_LIMIT_OPTION, min=0)
    input_filter: OptionalText = value_option(*INPUT_FILTER_OPTION)

    def to_run_flags(self, system: str | None) -> RunFlags:
        """What they say of a run. raises: InvalidUsage  they do not fit together"""
        said = RunFlags(
            agent=self.agent,
            context=self.context,
            session_limit=self.session_limit,
            input_filter=self.input_filter,
        )
        said.validate(instructions=system, is_continued=True)
        return said


@app.command("next", epilog=EXAMPLES)
def next_command(
    ctx: typer.Context,
    handle: HandleArgument,
    prompt: PromptArgument = None,
    *,
    output: Annotated[NextFormatFlags, "What is shown (one of these)"],
    request: Annotated[NextRequestFlags, "How to ask"],
    agents: Annotated[NextAgentFlags, "Runs of agents"],
    provider: ProviderOption = None,
    count: CountOption = "auto",
    url: UrlOption = None,
) -> None:
    """Show the exact next request, and what its owner will put before it."""
    form = output.selected_format()
    if count not in COUNT_CHOICES:
        raise InvalidUsage(f"--count takes {', '.join(COUNT_CHOICES)}, not {count!r}", hint="convo next --help")
    import asyncio

    from convo.cli.input import read_message
    from convo.cli.next import NextOptions, prepare_next_request, print_next_request

    files = (handle, *(request.attachments or ()), agents.context)
    wished = NextOptions(
        handle=handle,
        prompt=read_message(prompt or [], files, example='convo next HANDLE "..."') or "",
        model=request.model,
        instructions=request.instructions,
        attachments=tuple(request.attachments or ()),
        store_remotely=request.store_remotely,
        provider=provider,
        count_by="offline" if output.curl else count,
        config=get_root_options(ctx).config,
        run_flags=agents.to_run_flags(request.instructions),
    )
    print_next_request(*asyncio.run(prepare_next_request(wished)), output_format=form, base_url=url)
