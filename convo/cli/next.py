"""`convo next`: the next request of a conversation, before anybody sends it.

The arguments alone; `convo.cli.upcoming` finds out. Nothing is sent but, where it was asked for, the
request to count.
"""

from dataclasses import dataclass
from typing import Annotated

import typer

from convo.cli.options import Handle, Provider, Text, Texts, flag, value
from convo.cli.run_flags import CONTEXT, INPUT_FILTER, SESSION_LIMIT, RunFlags
from convo.cli.shape import App, call_of
from convo.errors import Usage

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

COUNTS = ("auto", "endpoint", "offline")

CountedBy = Annotated[
    str,
    typer.Option(
        "--count",
        metavar="WHO",
        help="Who counts tokens: endpoint (asks it), offline (nobody), or auto: an endpoint on this machine.",
    ),
]
Prompt = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROMPT]...", help="The next message. Piped input is appended; - sets its place."),
]
Url = Annotated[Text, typer.Option("--url", metavar="URL", help="Where --curl sends it: the base URL of an API.")]


@dataclass(frozen=True)
class Shown:
    """What is shown; a screen for a person where nothing else is asked for."""

    curl: bool = flag("--curl", "A command that sends it, for a POSIX shell.")
    as_json: bool = flag("--json", "One JSON object.")

    def form(self) -> str:
        """The one form that was asked for; "" for the screen. raises: Usage  both were"""
        if self.curl and self.as_json:
            raise Usage("--curl and --json are two answers to one question", hint="use one of them")
        return "--curl" if self.curl else "--json" if self.as_json else ""


@dataclass(frozen=True)
class Request:
    """What the next request would say."""

    model: Text = value("-m --model", "MODEL", "Who would answer.")
    system: Text = value("-s --system", "TEXT", "Other instructions.")
    attach: Texts = value("-a --attach", "FILE", "A file that would go along.")
    store: bool = flag("--store", "As chat has it.")


@dataclass(frozen=True)
class Agents:
    """Runs of agents: who would answer, and what makes their input."""

    agent: Text = value("--agent", "FILE:NAME", "Agents to use: support.py:triage, or a .toml; none: no agents.")
    context: Text = value(*CONTEXT)
    session_limit: int | None = value(*SESSION_LIMIT, min=0)
    input_filter: Text = value(*INPUT_FILTER)

    def flags(self, system: str | None) -> RunFlags:
        """What they say of a run. raises: Usage  they do not fit together"""
        said = RunFlags(
            agent=self.agent,
            context=self.context,
            session_limit=self.session_limit,
            input_filter=self.input_filter,
        )
        said.check(system=system, continues=True)
        return said


@app.command("next", epilog=EXAMPLES)
def next_(
    ctx: typer.Context,
    handle: Handle,
    prompt: Prompt = None,
    *,
    shown: Annotated[Shown, "What is shown (one of these)"],
    request: Annotated[Request, "How to ask"],
    agents: Annotated[Agents, "Runs of agents"],
    provider: Provider = None,
    count: CountedBy = "auto",
    url: Url = None,
) -> None:
    """Show the exact next request, and what its owner will put before it."""
    form = shown.form()
    if count not in COUNTS:
        raise Usage(f"--count takes {', '.join(COUNTS)}, not {count!r}", hint="convo next --help")
    import asyncio

    from convo.cli.piped_input import read_message
    from convo.cli.upcoming import Wished, printed, upcoming

    files = (handle, *(request.attach or ()), agents.context)
    wished = Wished(
        handle=handle,
        prompt=read_message(prompt or [], files, example='convo next HANDLE "..."') or "",
        model=request.model,
        system=request.system,
        attach=tuple(request.attach or ()),
        store=request.store,
        provider=provider,
        count="offline" if shown.curl else count,
        config=call_of(ctx).config,
        run=agents.flags(request.system),
    )
    printed(*asyncio.run(upcoming(wished)), form=form, base_url=url)
