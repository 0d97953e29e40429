"""`convo inspect`: who owns a conversation, and what each of its requests sent, saw and cost.

The arguments alone; `convo.cli.known` finds out and `convo.cli.forms` prints. A file that holds a
paused run is shown by `convo.cli.states`, without whatever knows conversations.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from convo.cli.options import Provider, Remote, Text, flag, named_file, value
from convo.cli.shape import App, call_of
from convo.errors import Usage

app = App()

EXAMPLES = """
Examples:
  convo inspect @last                        the conversation used last
  convo inspect what-is-a-monad --items      everything that was said
  convo inspect @last --chart                what its tokens went into, request by request
  convo inspect @last --watch                the same screen, as the conversation goes on elsewhere
  convo inspect @last --html page.html       the same and more as a page in a browser
  convo inspect resp_                        the newest responses; conv_ and ses_ do the same
  convo inspect resp_4f1c --json             links and items for a program
  convo inspect ./conversation.json          a replay file
  convo inspect ./state.json                 a paused run, and what it waits for
  convo inspect resp_4f1c... --provider openai
                                             a chain that only its endpoint knows
"""

PREFIXES = ("resp_", "conv_", "ses_")
"""Handles without an id: the newest of their kind are listed."""

Handles = Annotated[
    list[str], typer.Argument(metavar="HANDLE...", help="A session, resp_..., conv_..., @last, a file or -.")
]


@dataclass(frozen=True)
class Shown:
    """What is shown; the tree where nothing else is asked for."""

    items: bool = flag("--items", "What was said, in full.")
    raw: bool = flag("--raw", "The items as JSON, as they are stored.")
    as_json: bool = flag("--json", "Links and items as one JSON object a line.")
    html: Text = value("--html", "FILE", "A page in one file, to look at offline; - is stdout.")
    chart: bool = flag("--chart", "Bars of tokens: sent, seen, cached.")

    def form(self) -> str:
        """The one form that was asked for; "" for the tree. raises: Usage  more than one was"""
        forms = {"--items": self.items, "--raw": self.raw, "--json": self.as_json, "--chart": self.chart}
        chosen = [flag for flag, on in {**forms, "--html": self.html is not None}.items() if on]
        if len(chosen) > 1:
            raise Usage(f"{' and '.join(chosen)} are two answers to one question", hint="use one of them")
        return chosen[0] if chosen else ""


@dataclass(frozen=True)
class Live:
    """How it is shown."""

    watch: bool = flag("--watch", "Go on showing it while it goes on.")
    until_idle: bool = flag("--until-idle", "With --watch: end once no answer is to come.")
    no_pager: bool = flag("--no-pager", "Print it, however tall it is.")


@app.command(epilog=EXAMPLES)
def inspect(
    ctx: typer.Context,
    handles: Handles,
    *,
    shown: Annotated[Shown, "What is shown (one of these)"],
    live: Annotated[Live, "How it is shown"],
    remote: Remote = False,
    provider: Provider = None,
) -> None:
    """Show who owns a conversation and what each request sent."""
    form, config = shown.form(), call_of(ctx).config
    if live.watch or live.until_idle:
        follow(handles, config, live, {form: bool(form), "--remote": remote, "--provider": bool(provider)})
        return
    if not form and len(handles) == 1 and handles[0] in PREFIXES:
        from convo.cli.known import print_newest

        print_newest(handles[0], config)
        return
    from convo.cli.states import print_states, state_at

    states = {handle: state_at(handle, config) for handle in dict.fromkeys(handles)}
    if all(states.values()) and shown.html is None:
        print_states(handles, states, form, paged=not live.no_pager)
        return
    import asyncio

    from convo.cli.forms import printed
    from convo.cli.known import Where, known_of

    others = [handle for handle in handles if not states[handle]]
    found = iter(asyncio.run(known_of(others, Where(config, provider, remote))))
    subjects = [states[handle] or next(found) for handle in handles]
    if shown.html is not None:
        from convo.cli.inspecting_page import written

        written(subjects, handles, named_file(shown.html))
    else:
        printed(subjects, handles, form, paged=not live.no_pager)


def follow(handles: list[str], config: Path | None, live: Live, beside: dict[str, bool]) -> None:
    """Watch one handle. raises: Usage  there are several, or something stands beside it"""
    other = next((flag for flag, on in beside.items() if on), None)
    if not live.watch:
        raise Usage("--until-idle says when --watch ends", hint="add --watch")
    if len(handles) > 1 or handles == ["-"]:
        raise Usage("--watch follows one conversation", hint=f"convo inspect {handles[0]} --watch")
    if other:
        raise Usage(
            f"--watch paints the tree of what the store knows; {other} does not go with it", hint="leave it out"
        )
    import asyncio

    from convo.cli.watching import watched

    asyncio.run(watched(handles[0], config, until_idle=live.until_idle))
