"""`convo sessions`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, flag_option, get_root_options

app = App()

EXAMPLES = """
Examples:
  convo sessions                                   list the most recent sessions
  convo chat --from monads                         continue one of them
  convo sessions search monad haskell              find items that contain both words
  convo sessions rename @last monads
  convo sessions rm monads what-is-a-monad --yes

Requests of other clients to convo serve have no session: convo inspect resp_ lists the newest responses, and
convo chat --from resp_... continues one in a new session. -c and @last never select them.
Sessions that convo tap or convo serve --record recorded are listed; @recorded is the newest of them, never @last.
"""

DEFAULT_LIMIT = 20

SessionArgument = Annotated[
    str, typer.Argument(metavar="HANDLE", help="Session name or id, a unique prefix of one, @last or @recorded.")
]
FullHandleArgument = Annotated[
    str, typer.Argument(metavar="HANDLE", help="Session name or id in full, @last or @recorded.")
]
LimitOption = Annotated[
    int, typer.Option("-n", "--limit", metavar="N", min=0, help="Maximum number of results; 0 for all.")
]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def sessions_command(ctx: typer.Context, limit: LimitOption = DEFAULT_LIMIT, as_json: JsonOption = False) -> None:
    """List, search, rename and remove conversations."""
    if ctx.invoked_subcommand is None:
        sessions_list_command(ctx, limit, as_json)


@app.command("list")
def sessions_list_command(ctx: typer.Context, limit: LimitOption = DEFAULT_LIMIT, as_json: JsonOption = False) -> None:
    """List sessions, most recently used first."""
    from convo.cli.sessions import print_sessions

    print_sessions(get_root_options(ctx).config, limit, as_json=as_json)


@app.command("show")
def sessions_show_command(ctx: typer.Context, handle: SessionArgument, as_json: JsonOption = False) -> None:
    """Show the record of a session."""
    from convo.cli.sessions import print_session

    print_session(get_root_options(ctx).config, handle, as_json=as_json)


@app.command("search")
def sessions_search_command(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="Words that an item must contain.")],
    limit: LimitOption = DEFAULT_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """Search the text of all conversations."""
    from convo.cli.sessions import print_search_hits

    print_search_hits(get_root_options(ctx).config, " ".join(words), limit, as_json=as_json)


@app.command("rename")
def sessions_rename_command(
    ctx: typer.Context,
    handle: FullHandleArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="New name.")],
) -> None:
    """Rename a session."""
    import asyncio

    from convo.cli.sessions import rename_session

    asyncio.run(rename_session(get_root_options(ctx).config, handle, name))


@app.command("rm")
def sessions_rm_command(
    ctx: typer.Context,
    handles: Annotated[
        list[str], typer.Argument(metavar="HANDLE...", help="Session names or ids in full, @last or @recorded.")
    ],
    yes: bool = flag_option("--yes -y", "Do not ask for confirmation."),
) -> None:
    """Remove sessions, and the data that only they use."""
    import asyncio

    from convo.cli.sessions import remove_sessions

    asyncio.run(remove_sessions(get_root_options(ctx).config, handles, yes=yes))
