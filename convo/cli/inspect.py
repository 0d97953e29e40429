"""`convo inspect`: who owns a conversation, and what each of its requests sent, saw and cost.

The arguments alone; `convo.cli.known` finds out and `convo.cli.forms` prints. A file that holds a
paused run is shown by `convo.cli.states`, without whatever knows conversations.
"""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.shape import App, Provider, Remote, call_of
from convo.errors import Usage

app = App()

EXAMPLES = """
Examples:
  convo inspect @last                        the conversation used last
  convo inspect what-is-a-monad --items      everything that was said
  convo inspect @last --chart                what its tokens went into, request by request
  convo inspect @last --watch                the same screen, as the conversation goes on elsewhere
  convo inspect @last --html page.html       the same and more as a page in a browser
  convo inspect resp_4f1c --json             links and items for a program
  convo inspect ./conversation.json          a replay file
  convo inspect ./state.json                 a paused run, and what it waits for
  convo inspect resp_4f1c... --provider openai
                                             a chain that only its endpoint knows
"""

SHOW = "What is shown (one of these)"
LIVE = "How it is shown"


@app.command(epilog=EXAMPLES)
def inspect(
    ctx: typer.Context,
    handles: Annotated[
        list[str], typer.Argument(metavar="HANDLE...", help="A session, resp_..., conv_..., @last, a file or -.")
    ],
    items: Annotated[bool, typer.Option("--items", help="What was said, in full.", rich_help_panel=SHOW)] = False,
    raw: Annotated[
        bool, typer.Option("--raw", help="The items as JSON, as they are stored.", rich_help_panel=SHOW)
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Links and items as one JSON object a line.", rich_help_panel=SHOW)
    ] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="A page in one file, to look at offline.", rich_help_panel=SHOW),
    ] = None,
    chart: Annotated[
        bool, typer.Option("--chart", help="Bars of tokens: sent, seen, cached.", rich_help_panel=SHOW)
    ] = False,
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on showing it while it goes on.", rich_help_panel=LIVE)
    ] = False,
    until_idle: Annotated[
        bool,
        typer.Option("--until-idle", help="With --watch: end once no answer is to come.", rich_help_panel=LIVE),
    ] = False,
    no_pager: Annotated[
        bool, typer.Option("--no-pager", help="Print it, however tall it is.", rich_help_panel=LIVE)
    ] = False,
    remote: Remote = False,
    provider: Provider = None,
) -> None:
    """Show who owns a conversation and what each request sent."""
    form = the_one({"--items": items, "--raw": raw, "--json": as_json, "--chart": chart, "--html": bool(html)})
    config = call_of(ctx).config
    if watch or until_idle:
        follow(handles, config, {form: bool(form), "--remote": remote, "--provider": bool(provider)}, watch, until_idle)
        return
    from convo.cli.states import print_states, state_at

    states = {handle: state_at(handle, config) for handle in dict.fromkeys(handles)}
    if all(states.values()) and not html:
        print_states(handles, states, form, paged=not no_pager)
        return
    import asyncio

    from convo.cli.forms import printed
    from convo.cli.known import Where, known_of

    others = [handle for handle in handles if not states[handle]]
    found = iter(asyncio.run(known_of(others, Where(config, provider, remote))))
    shown = [states[handle] or next(found) for handle in handles]
    if html:
        from convo.cli.inspecting_page import written

        written(shown, handles, html)
    else:
        printed(shown, handles, form, paged=not no_pager)


def follow(handles: list[str], config: Path | None, beside: dict[str, bool], watch: bool, until_idle: bool) -> None:
    """Watch one handle. raises: Usage  there are several, or something stands beside it"""
    other = next((flag for flag, on in beside.items() if on), None)
    if not watch:
        raise Usage("--until-idle says when --watch ends", hint="add --watch")
    if len(handles) > 1 or handles == ["-"]:
        raise Usage("--watch follows one conversation", hint=f"convo inspect {handles[0]} --watch")
    if other:
        raise Usage(
            f"--watch paints the tree of what the store knows; {other} does not go with it", hint="leave it out"
        )
    import asyncio

    from convo.cli.watching import watched

    asyncio.run(watched(handles[0], config, until_idle=until_idle))


def the_one(asked: dict[str, bool]) -> str:
    """The one form that was asked for; "" for the tree. raises: Usage  more than one was"""
    chosen = [flag for flag, on in asked.items() if on]
    if len(chosen) > 1:
        raise Usage(f"{' and '.join(chosen)} are two answers to one question", hint="use one of them")
    return chosen[0] if chosen else ""
