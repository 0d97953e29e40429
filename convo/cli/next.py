"""`convo next`: the next request of a conversation, before anybody sends it.

The arguments alone; `convo.cli.upcoming` finds out. Nothing is sent but, where it was asked for, the
request to count.
"""

from typing import Annotated

import typer

from convo.cli.shape import App, Provider, call_of
from convo.errors import Usage

app = App()

EXAMPLES = """
Examples:
  convo next @last                           what a turn sends, and what its owner puts before it
  convo next @last "and in Haskell?"         the same with this message
  convo next resp_4f1c "and?" --curl | sh    send it without convo
  convo next monads --json                   body, parts and tokens for a program
  convo next monads --count endpoint         let the endpoint count, over the network
"""

SHOW = "What is shown (one of these)"
ASK = "How to ask"
COUNTS = ("auto", "endpoint", "offline")

CountedBy = Annotated[
    str,
    typer.Option(
        "--count",
        metavar="WHO",
        help="Who counts tokens: endpoint (asks it), offline (nobody), or auto: an endpoint on this machine.",
    ),
]


@app.command("next", epilog=EXAMPLES)
def next_(
    ctx: typer.Context,
    handle: Annotated[str, typer.Argument(metavar="HANDLE", help="A session, resp_..., conv_..., @last or a file.")],
    prompt: Annotated[list[str] | None, typer.Argument(metavar="[PROMPT]...", help="What would be said.")] = None,
    curl: Annotated[
        bool, typer.Option("--curl", help="A command that sends it, for a POSIX shell.", rich_help_panel=SHOW)
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.", rich_help_panel=SHOW)] = False,
    model: Annotated[
        str | None, typer.Option("-m", "--model", metavar="MODEL", help="Who would answer.", rich_help_panel=ASK)
    ] = None,
    system: Annotated[
        str | None, typer.Option("-s", "--system", metavar="TEXT", help="Other instructions.", rich_help_panel=ASK)
    ] = None,
    attach: Annotated[
        list[str] | None,
        typer.Option("-a", "--attach", metavar="FILE", help="A file that would go along.", rich_help_panel=ASK),
    ] = None,
    store: Annotated[bool, typer.Option("--store", help="As chat has it.", rich_help_panel=ASK)] = False,
    provider: Provider = None,
    count: CountedBy = "auto",
    url: Annotated[
        str | None, typer.Option("--url", metavar="URL", help="Where --curl sends it: the base URL of an API.")
    ] = None,
) -> None:
    """Show the exact next request, and what its owner will put before it."""
    if curl and as_json:
        raise Usage("--curl and --json are two answers to one question", hint="use one of them")
    if count not in COUNTS:
        raise Usage(f"--count takes {', '.join(COUNTS)}, not {count!r}", hint="convo next --help")
    import asyncio

    from convo.cli.upcoming import Wished, printed, upcoming

    wished = Wished(
        handle=handle,
        prompt=" ".join(prompt or ()),
        model=model,
        system=system,
        attach=tuple(attach or ()),
        store=store,
        provider=provider,
        count="offline" if curl else count,
        config=call_of(ctx).config,
    )
    printed(*asyncio.run(upcoming(wished)), form="--curl" if curl else "--json" if as_json else "", base_url=url)
