"""`convo inspect`: who owns a conversation, and what each of its requests sent, saw and cost.

The arguments alone; `convo.cli.known` finds out and `convo.cli.forms` prints. A file that holds a
paused run is shown by `convo.cli.states`, without whatever knows conversations.
"""

from typing import Annotated

import typer

from convo.cli.shape import App, Provider, Remote, call_of
from convo.errors import Usage

app = App()

EXAMPLES = """
Examples:
  convo inspect @last                        the conversation used last
  convo inspect what-is-a-monad --items      everything that was said
  convo inspect resp_4f1c --json             links and items for a program
  convo inspect ./conversation.json          a replay file
  convo inspect ./state.json                 a paused run, and what it waits for
  convo inspect resp_4f1c... --provider openai
                                             a chain that only its endpoint knows
"""

SHOW = "What is shown (one of these)"


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
    remote: Remote = False,
    provider: Provider = None,
) -> None:
    """Show who owns a conversation and what each request sent."""
    form = the_one({"--items": items, "--raw": raw, "--json": as_json})
    from convo.cli.states import print_states, state_at

    config = call_of(ctx).config
    states = {handle: state_at(handle, config) for handle in dict.fromkeys(handles)}
    if all(states.values()):
        print_states(handles, states, form)
        return
    import asyncio

    from convo.cli.forms import printed
    from convo.cli.known import Where, known_of

    others = [handle for handle in handles if not states[handle]]
    found = iter(asyncio.run(known_of(others, Where(config, provider, remote))))
    printed([states[handle] or next(found) for handle in handles], handles, form)


def the_one(asked: dict[str, bool]) -> str:
    """The one form that was asked for; "" for the tree. raises: Usage  more than one was"""
    chosen = [flag for flag, on in asked.items() if on]
    if len(chosen) > 1:
        raise Usage(f"{' and '.join(chosen)} are two answers to one question", hint="use one of them")
    return chosen[0] if chosen else ""
