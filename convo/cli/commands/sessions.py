"""`convo sessions`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, get_root_options

app = App()

EXAMPLES = """
Examples:
  convo sessions                                   the ones used last
  convo sessions search monad haskell              where these words were said
  convo sessions rename @last monads
  convo sessions rm monads what-is-a-monad --yes

What other clients asked convo serve for has no session: convo inspect resp_ lists the newest of it, and
convo chat --from resp_... goes on with it in a session of its own. -c and @last never mean it.
"""

DEFAULT_LIMIT = 20

SessionArgument = Annotated[
    str, typer.Argument(metavar="HANDLE", help="A session's name or id, the beginning of one, or @last.")
]
LimitOption = Annotated[int, typer.Option("-n", "--limit", metavar="N", min=0, help="At most N of them; 0 for all.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def sessions_command(ctx: typer.Context, limit: LimitOption = DEFAULT_LIMIT, as_json: JsonOption = False) -> None:
    """List, search, rename and remove conversations."""
    if ctx.invoked_subcommand is None:
        sessions_list_command(ctx, limit, as_json)


@app.command("list")
def sessions_list_command(ctx: typer.Context, limit: LimitOption = DEFAULT_LIMIT, as_json: JsonOption = False) -> None:
    """List them, last used first."""
    from convo.cli.sessions import print_sessions

    print_sessions(get_root_options(ctx).config, limit, as_json=as_json)


@app.command("show")
def sessions_show_command(ctx: typer.Context, handle: SessionArgument, as_json: JsonOption = False) -> None:
    """Show what the record of one says."""
    from convo.cli.sessions import print_session

    print_session(get_root_options(ctx).config, handle, as_json=as_json)


@app.command("search")
def sessions_search_command(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="All of them are in what is found.")],
    limit: LimitOption = DEFAULT_LIMIT,
    as_json: JsonOption = False,
) -> None:
    """Find where words were said."""
    from convo.cli.sessions import print_search_hits

    print_search_hits(get_root_options(ctx).config, " ".join(words), limit, as_json=as_json)


@app.command("rename")
def sessions_rename_command(
    ctx: typer.Context,
    handle: SessionArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")],
) -> None:
    """Give one another name."""
    import asyncio

    from convo.cli.sessions import rename_session

    asyncio.run(rename_session(get_root_options(ctx).config, handle, name))


@app.command("rm")
def sessions_rm_command(
    ctx: typer.Context,
    handles: Annotated[list[str], typer.Argument(metavar="HANDLE...", help="Sessions, as for show.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove some, with all that only they hold."""
    import asyncio

    from convo.cli.sessions import remove_sessions

    asyncio.run(remove_sessions(get_root_options(ctx).config, handles, yes=yes))
