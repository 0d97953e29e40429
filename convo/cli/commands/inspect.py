"""`convo inspect`: its arguments, options and help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import (
    App,
    OptionalText,
    ProviderOption,
    RemoteOption,
    flag_option,
    get_root_options,
    parse_output_path,
    value_option,
)
from convo.errors import InvalidUsage

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

BARE_PREFIXES = ("resp_", "conv_", "ses_")
"""Handles without an id: the newest of their kind are listed."""

HandlesArgument = Annotated[
    list[str], typer.Argument(metavar="HANDLE...", help="A session, resp_..., conv_..., @last, a file or -.")
]


@dataclass(frozen=True)
class InspectFormatFlags:
    """What is shown; the tree where nothing else is asked for."""

    items: bool = flag_option("--items", "What was said, in full.")
    raw: bool = flag_option("--raw", "The items as JSON, as they are stored.")
    as_json: bool = flag_option("--json", "Links and items as one JSON object a line.")
    html: OptionalText = value_option("--html", "FILE", "A page in one file, to look at offline; - is stdout.")
    chart: bool = flag_option("--chart", "Bars of tokens: sent, seen, cached.")

    def selected_format(self) -> str:
        """The one form that was asked for; "" for the tree. raises: InvalidUsage  more than one was"""
        forms = {"--items": self.items, "--raw": self.raw, "--json": self.as_json, "--chart": self.chart}
        chosen = [flag for flag, on in {**forms, "--html": self.html is not None}.items() if on]
        if len(chosen) > 1:
            raise InvalidUsage(f"{' and '.join(chosen)} are two answers to one question", hint="use one of them")
        return chosen[0] if chosen else ""


@dataclass(frozen=True)
class InspectDisplayFlags:
    """How it is shown."""

    watch: bool = flag_option("--watch", "Go on showing it while it goes on.")
    until_idle: bool = flag_option("--until-idle", "With --watch: end once no answer is to come.")
    no_pager: bool = flag_option("--no-pager", "Print it, however tall it is.")


@app.command(epilog=EXAMPLES)
def inspect_command(
    ctx: typer.Context,
    handles: HandlesArgument,
    *,
    output: Annotated[InspectFormatFlags, "What is shown (one of these)"],
    display: Annotated[InspectDisplayFlags, "How it is shown"],
    remote: RemoteOption = False,
    provider: ProviderOption = None,
) -> None:
    """Show who owns a conversation and what each request sent."""
    form, config = output.selected_format(), get_root_options(ctx).config
    if display.watch or display.until_idle:
        _watch_one_handle(
            handles, config, display, {form: bool(form), "--remote": remote, "--provider": bool(provider)}
        )
        return
    if not form and len(handles) == 1 and handles[0] in BARE_PREFIXES:
        from convo.cli.resolve import print_newest_handles

        print_newest_handles(handles[0], config)
        return
    from convo.cli.state_input import find_run_state, print_run_states

    states = {handle: find_run_state(handle, config) for handle in dict.fromkeys(handles)}
    if all(states.values()) and output.html is None:
        print_run_states(handles, states, form, paged=not display.no_pager)
        return
    import asyncio

    from convo.cli.inspect import print_views
    from convo.cli.resolve import LookupOptions, resolve_handles

    others = [handle for handle in handles if not states[handle]]
    found = iter(asyncio.run(resolve_handles(others, LookupOptions(config, provider, remote))))
    subjects = [states[handle] or next(found) for handle in handles]
    if output.html is not None:
        from convo.cli.inspect import write_html_page

        write_html_page(subjects, handles, parse_output_path(output.html))
    else:
        print_views(subjects, handles, form, paged=not display.no_pager)


def _watch_one_handle(
    handles: list[str], config: Path | None, display: InspectDisplayFlags, other_flags: dict[str, bool]
) -> None:
    """Watch one handle. raises: InvalidUsage  there are several, or something stands beside it"""
    other = next((flag for flag, on in other_flags.items() if on), None)
    if not display.watch:
        raise InvalidUsage("--until-idle says when --watch ends", hint="add --watch")
    if len(handles) > 1 or handles == ["-"]:
        raise InvalidUsage("--watch follows one conversation", hint=f"convo inspect {handles[0]} --watch")
    if other:
        raise InvalidUsage(
            f"--watch paints the tree of what the store knows; {other} does not go with it", hint="leave it out"
        )
    import asyncio

    from convo.cli.inspect import watch_handle

    asyncio.run(watch_handle(handles[0], config, until_idle=display.until_idle))
