"""`convo sessions`: its arguments, options and help."""

from dataclasses import asdict, dataclass
from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, flag_option, get_root_options, value_option

app = App()

EXAMPLES = """
Examples:
  convo sessions                                   list the most recent sessions
  convo chat --from monads                         continue one of them
  convo sessions search monad haskell              find items that contain both words, in any order
  convo sessions --since 7d --status failed        those of the last week whose last request failed
  convo sessions rename @last monads
  convo sessions rm monads what-is-a-monad --yes

The list has all conversations in the store: chats, chains of responses and conversations of other clients of convo
serve, recordings of convo tap and convo serve --record, and imports. -c and @last mean own chats only; @recorded is
the newest recording.
"""

DEFAULT_LIMIT = 20

SessionArgument = Annotated[
    str, typer.Argument(metavar="HANDLE", help="Session name or id, a unique prefix of one, @last or @recorded.")
]
FullHandleArgument = Annotated[
    str, typer.Argument(metavar="HANDLE", help="Session name or id in full, @last or @recorded.")
]


@dataclass(frozen=True)
class FilterFlags:
    """Options of the list and of the search."""

    limit: int = value_option(
        "-n --limit",
        "N",
        "Maximum number of conversations; 0 for all, in a search those of the 200 best items.",
        default=DEFAULT_LIMIT,
        min=0,
    )
    since: str | None = value_option("--since", "TIME", "Only those used since TIME: a date, or 7d for seven days ago.")
    until: str | None = value_option("--until", "TIME", "Only those used before TIME.")
    model: str | None = value_option("--model", "MODEL", "Only those with this model.")
    status: str | None = value_option("--status", "STATUS", "Only those with this status, such as failed or paused.")
    client: str | None = value_option("--client", "NAME", "Only requests of this program that convo recorded.")
    sort: str | None = value_option("--sort", "COLUMN", "used, created, name, model, turns or status.")


@app.callback(invoke_without_command=True, epilog=EXAMPLES)
def sessions_command(
    ctx: typer.Context, filters: Annotated[FilterFlags, "Filters"], as_json: JsonOption = False
) -> None:
    """List, search, rename and remove conversations."""
    if ctx.invoked_subcommand is None:
        _print_list(ctx, filters, as_json=as_json)


@app.command("list")
def sessions_list_command(
    ctx: typer.Context, filters: Annotated[FilterFlags, "Filters"], as_json: JsonOption = False
) -> None:
    """List conversations, most recently used first."""
    _print_list(ctx, filters, as_json=as_json)


def _print_list(ctx: typer.Context, filters: FilterFlags, words: str = "", *, as_json: bool) -> None:
    from convo.cli.sessions import build_query, print_sessions

    query = build_query(words, **asdict(filters))
    print_sessions(get_root_options(ctx).config, query, as_json=as_json)


@app.command("show")
def sessions_show_command(ctx: typer.Context, handle: SessionArgument, as_json: JsonOption = False) -> None:
    """Show the record of a session."""
    from convo.cli.sessions import print_session

    print_session(get_root_options(ctx).config, handle, as_json=as_json)


@app.command("search")
def sessions_search_command(
    ctx: typer.Context,
    words: Annotated[
        list[str],
        typer.Argument(metavar="WORDS...", help="Words that one item or name must all contain, in any order."),
    ],
    filters: Annotated[FilterFlags, "Filters"],
    as_json: JsonOption = False,
) -> None:
    """Search the text and the names of all conversations."""
    _print_list(ctx, filters, " ".join(words), as_json=as_json)


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
