"""`convo inspect`: its arguments, options and help."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import (
    TURN_HANDLE_HELP,
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
  convo inspect @last                        the most recent conversation
  convo inspect what-is-a-monad --items      all items with their text
  convo inspect @last --answer > reply.md    the last answer and nothing else
  convo inspect @recorded                    the newest requests that convo tap or convo serve --record recorded
  convo inspect @last --chart                the tokens of each request
  convo inspect @last --full                 all details and columns, even if they are wider than the terminal
  convo inspect @last -i                     browse the requests: search, compare, copy as curl, fork
  convo inspect @last --watch                update the view while the conversation continues elsewhere
  convo inspect @last --html page.html       a page with more details, for a browser
  convo inspect resp_                        the newest requests with their status; conv_ lists conversations
  convo inspect resp_ --server http://127.0.0.1:8788
                                             the requests of a convo serve, also those in progress; CONVO_KEY is the key
  convo inspect resp_4f1c --json             requests and items, for a program
  convo inspect req_91b2...                  a request that left no response, by the id in its error
  convo inspect ./conversation.json          a replay file
  convo inspect ./state.json                 a paused run and its pending calls
  convo inspect resp_4f1c... --provider openai
                                             a chain that is stored only at its endpoint
"""

FORMATS_WITHOUT_TABLES = ("--items", "--answer", "--raw", "--json", "--html")

BARE_PREFIXES = ("resp_", "conv_", "ses_")
"""Prefixes without an id: the newest handles of that kind are listed."""


def check_handles(ctx: typer.Context, value: list[str] | None) -> list[str] | None:
    """Return the handles; without any, --interactive opens the conversation used last. Raises InvalidUsage."""
    if value or ctx.resilient_parsing:
        return value
    if not ctx.params.get("interactive"):
        raise InvalidUsage("missing argument 'HANDLE...'", hint=f"{ctx.command_path} --help")
    return ["@last"]


HandlesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[HANDLE]...",
        help=f"{TURN_HANDLE_HELP}; - for stdin. Without a handle, -i opens @last.",
        callback=check_handles,
        show_default=False,
    ),
]


@dataclass(frozen=True)
class InspectFormatFlags:
    """The output format; the default is the tree."""

    items: bool = flag_option("--items", "Show the items with their complete text.")
    answer: bool = flag_option("--answer", "Print only the text of the last answer.")
    raw: bool = flag_option("--raw", "Print the stored items as JSON; for a recorded request, its body as sent.")
    as_json: bool = flag_option("--json", "Print requests and items as JSON, one object per handle.")
    html: OptionalText = value_option("--html", "FILE", "Write one self-contained HTML page; - for stdout.")
    chart: bool = flag_option("--chart", "Show the tokens of each request as bars: sent, context, cached.")

    def selected_format(self) -> str:
        """Return the requested format; "" for the tree. Raises InvalidUsage for more than one."""
        forms = {"--items": self.items, "--answer": self.answer, "--raw": self.raw, "--json": self.as_json}
        forms["--chart"] = self.chart
        selected = [flag for flag, is_set in {**forms, "--html": self.html is not None}.items() if is_set]
        if len(selected) > 1:
            raise InvalidUsage(f"{' and '.join(selected)} cannot be used together", hint="use one of them")
        return selected[0] if selected else ""


@dataclass(frozen=True)
class InspectDisplayFlags:
    """How the view is displayed."""

    interactive: bool = flag_option("-i --interactive", "Browse the requests in full screen; ? shows the keys.")
    watch: bool = flag_option("--watch", "Keep the view open and update it on every change.")
    until_idle: bool = flag_option("--until-idle", "With --watch: exit when no response is in progress.")
    server: OptionalText = value_option(
        "--server", "URL", "List the requests of the convo serve at URL; the handle is resp_."
    )
    full: bool = flag_option("--full", "Show all details and columns, even wider than the terminal.")
    no_pager: bool = flag_option("--no-pager", "Do not use a pager.")


@app.command(epilog=EXAMPLES)
def inspect_command(
    ctx: typer.Context,
    handles: HandlesArgument = None,
    *,
    output: Annotated[InspectFormatFlags, "Output (choose one)"],
    display: Annotated[InspectDisplayFlags, "Display"],
    remote: RemoteOption = False,
    provider: ProviderOption = None,
) -> None:
    """Inspect a conversation: its owner, requests, items, tokens and cost."""
    assert handles
    output_format, config = output.selected_format(), get_root_options(ctx).config
    if display.full and output_format in FORMATS_WITHOUT_TABLES:
        raise InvalidUsage(
            f"--full and {output_format} cannot be used together: {output_format} shows no table",
            hint="use one of them",
        )
    if display.interactive:
        _check_interactive(handles, display, output_format, config)
        import asyncio

        from convo.cli.inspect import browse_handle
        from convo.cli.resolve import LookupOptions
        from convo.terminal.signals import run_until_terminated

        browsing = browse_handle(handles[0], LookupOptions(config, provider, remote))
        raise typer.Exit(asyncio.run(run_until_terminated(browsing)))
    if display.watch or display.until_idle:
        _watch_one_handle(
            handles,
            config,
            display,
            {
                output_format: bool(output_format),
                "--full": display.full,
                "--remote": remote,
                "--provider": bool(provider),
            },
        )
        return
    if display.server is not None and (handles != ["resp_"] or output_format):
        raise InvalidUsage(
            "--server lists requests and needs the handle resp_", hint="convo inspect resp_ --server URL"
        )
    if not output_format and len(handles) == 1 and handles[0] in BARE_PREFIXES:
        if display.full:
            raise InvalidUsage("--full needs a conversation", hint=f"convo inspect {handles[0]}")
        from convo.cli.resolve import print_newest_handles, print_newest_requests

        if handles[0] == "resp_":
            print_newest_requests(config, display.server)
        else:
            print_newest_handles(handles[0], config)
        return
    from convo.cli.state_input import find_run_state, print_run_states

    states = {handle: find_run_state(handle, config) for handle in dict.fromkeys(handles)}
    if all(states.values()) and output.html is None:
        print_run_states(handles, states, output_format, paged=not display.no_pager, all_columns=display.full)
        return
    from convo.cli.inspect import print_views
    from convo.cli.resolve import LookupOptions, find_unstored_request, load_views

    found = {handle: states[handle] or find_unstored_request(handle, config) for handle in handles}
    lookup = LookupOptions(config, provider, remote, with_body=output.raw)
    resolved = iter(load_views([handle for handle in handles if not found[handle]], lookup))
    views = [found[handle] or next(resolved) for handle in handles]
    if output.html is not None:
        from convo.cli.inspect import write_html_page

        write_html_page(views, handles, parse_output_path(output.html))
    else:
        print_views(views, handles, output_format, paged=not display.no_pager, all_columns=display.full)


def _check_interactive(
    handles: list[str], display: InspectDisplayFlags, output_format: str, config: Path | None
) -> None:
    """Raise InvalidUsage without a terminal, and for options and handles that --interactive does not support."""
    others = {
        output_format: bool(output_format),
        "--watch": display.watch,
        "--until-idle": display.until_idle,
        "--full": display.full,
    }
    other = next((flag for flag, is_set in others.items() if is_set), None)
    if other:
        raise InvalidUsage(f"--interactive and {other} cannot be used together", hint="use one of them")
    if len(handles) > 1 or handles == ["-"]:
        raise InvalidUsage("--interactive accepts one handle", hint=f"convo inspect {handles[0]} --interactive")
    from convo.cli.inspect import check_can_browse
    from convo.cli.state_input import find_run_state

    check_can_browse(handles[0])
    if find_run_state(handles[0], config):
        raise InvalidUsage(
            f"{handles[0]} is a paused run; --interactive shows conversations only", hint=f"convo inspect {handles[0]}"
        )


def _watch_one_handle(
    handles: list[str], config: Path | None, display: InspectDisplayFlags, other_flags: dict[str, bool]
) -> None:
    """Watch one handle. Raises InvalidUsage for several handles, or for an option that is not possible with --watch."""
    other = next((flag for flag, is_set in other_flags.items() if is_set), None)
    if not display.watch:
        raise InvalidUsage("--until-idle requires --watch", hint="add --watch")
    if len(handles) > 1 or handles == ["-"]:
        raise InvalidUsage("--watch accepts one handle", hint=f"convo inspect {handles[0]} --watch")
    if other:
        raise InvalidUsage(
            f"--watch and {other} cannot be used together: --watch shows the tree of the local copy",
            hint=f"omit {other}",
        )
    import asyncio

    from convo.cli.inspect import watch_handle

    asyncio.run(watch_handle(handles[0], config, until_idle=display.until_idle))
