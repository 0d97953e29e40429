"""`convo sessions`: the conversations that this machine has a record of.

The arguments alone; `convo.cli.records` does the rest.
"""

from typing import Annotated

import typer

from convo.cli.options import AsJson
from convo.cli.shape import App, call_of

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

AT_ONCE = 20

Handle = Annotated[
    str, typer.Argument(metavar="HANDLE", help="A session's name or id, the beginning of one, or @last.")
]
Many = Annotated[int, typer.Option("-n", "--limit", metavar="N", min=0, help="At most N of them; 0 for all.")]


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def sessions(ctx: typer.Context, limit: Many = AT_ONCE, as_json: AsJson = False) -> None:
    """List, search, rename and remove conversations."""
    if ctx.invoked_subcommand is None:
        list_(ctx, limit, as_json)


@app.command("list")
def list_(ctx: typer.Context, limit: Many = AT_ONCE, as_json: AsJson = False) -> None:
    """List them, last used first."""
    from convo.cli.records import list_sessions

    list_sessions(call_of(ctx).config, limit, as_json=as_json)


@app.command("show")
def show(ctx: typer.Context, handle: Handle, as_json: AsJson = False) -> None:
    """Show what the record of one says."""
    from convo.cli.records import show_session

    show_session(call_of(ctx).config, handle, as_json=as_json)


@app.command("search")
def search(
    ctx: typer.Context,
    words: Annotated[list[str], typer.Argument(metavar="WORDS...", help="All of them are in what is found.")],
    limit: Many = AT_ONCE,
    as_json: AsJson = False,
) -> None:
    """Find where words were said."""
    from convo.cli.records import search_sessions

    search_sessions(call_of(ctx).config, " ".join(words), limit, as_json=as_json)


@app.command("rename")
def rename(
    ctx: typer.Context, handle: Handle, name: Annotated[str, typer.Argument(metavar="NAME", help="The new name.")]
) -> None:
    """Give one another name."""
    import asyncio

    from convo.cli.records import rename_session

    asyncio.run(rename_session(call_of(ctx).config, handle, name))


@app.command("rm")
def rm(
    ctx: typer.Context,
    handles: Annotated[list[str], typer.Argument(metavar="HANDLE...", help="Sessions, as for show.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Remove some, with all that only they hold."""
    import asyncio

    from convo.cli.records import remove_sessions

    asyncio.run(remove_sessions(call_of(ctx).config, handles, yes=yes))
