"""`convo next`: its arguments, options and help."""

from dataclasses import dataclass
from typing import Annotated

import typer

from convo.cli.app import (
    App,
    OptionalText,
    OptionalTexts,
    ProviderOption,
    TurnHandleArgument,
    flag_option,
    get_root_options,
    value_option,
)
from convo.cli.commands.chat import RequestFlags
from convo.cli.run_options import RunFlags
from convo.config.request_settings import FIELD_BY_SETTING
from convo.errors import InvalidUsage

app = App()

EXAMPLES = """
Examples:
  convo next @last                           the next request, and the context that the server prepends
  convo next @last "and in Haskell?"         the same with this message
  convo next resp_4f1c "and?" --curl | sh    send it without convo
  convo next monads --json                   body, parts and tokens, for a program
  convo next monads --reasoning-effort high  the cached tokens and reasoning that a new effort loses
  convo next monads --forecast               its tokens, its use of the prompt cache, and its cost
  convo next monads --forecast --drop 7 --without-tool search
                                             the same without item 7 and a tool, and from which turn on that is cheaper
  convo next monads --count endpoint         ask the endpoint for the number of tokens
  convo next desk "hi" --agent support.py:triage
                                             with the instructions and tools of the agent that runs next
"""

NEXT_REQUEST_OPTIONS = {
    "model": None,
    "instructions": "Instructions to send instead of the current ones.",
    "attachments": None,
    **dict.fromkeys(("schema_file", *FIELD_BY_SETTING, "other_parameters", "strict_prefix", "keep_prefix")),
}

NEXT_RUN_OPTIONS = dict.fromkeys(
    ("agent", "tool", "mcp", "context", "session_limit", "run_config", "sdk_session", "input_filter")
)

COUNT_CHOICES = ("auto", "endpoint", "offline")


@dataclass(frozen=True)
class ForecastFlags:
    """The forecast, and changes of the request."""

    forecast: bool = flag_option("--forecast", "Compare tokens and cost with and without the changes.")
    drop: OptionalTexts = value_option(
        "--drop", "ITEM", "Leave out an item (number, path or id), or a call and its output; can be repeated."
    )
    without_tool: OptionalTexts = value_option("--without-tool", "NAME", "Leave out a tool; can be repeated.")


PromptArgument = Annotated[
    list[str] | None,
    typer.Argument(metavar="[PROMPT]...", help="Next message. Piped input is appended, or replaces the argument -."),
]


@dataclass(frozen=True)
class NextFormatFlags:
    """The output format; the default is text for a terminal."""

    curl: bool = flag_option("--curl", "Print a curl command for a POSIX shell.")
    as_json: bool = flag_option("--json", "Print one JSON object.")

    def selected_format(self) -> str:
        """Return the requested format; "" for the default. Raises InvalidUsage for both."""
        if self.curl and self.as_json:
            raise InvalidUsage("--curl and --json cannot be used together", hint="use one of them")
        return "--curl" if self.curl else "--json" if self.as_json else ""


@app.command("next", epilog=EXAMPLES)
def next_command(
    ctx: typer.Context,
    handle: TurnHandleArgument,
    prompt: PromptArgument = None,
    *,
    output: Annotated[NextFormatFlags, "Output (choose one)"],
    request: Annotated[RequestFlags, "Request", NEXT_REQUEST_OPTIONS],
    changes: Annotated[ForecastFlags, "Forecast"],
    store_remotely: bool = flag_option("--store", "Also store the response at the endpoint.", panel="Request"),
    run: Annotated[RunFlags, "Agent runs", NEXT_RUN_OPTIONS],
    provider: ProviderOption = None,
    count: str = value_option(
        "--count",
        "METHOD",
        "Token count: endpoint (ask it), offline (estimate), or auto (ask only an endpoint on this machine).",
        default="auto",
    ),
    url: OptionalText = value_option("--url", "URL", "Base URL of the API that --curl sends to."),
) -> None:
    """Show the exact next request, and the context that the server prepends."""
    output_format = output.selected_format()
    if count not in COUNT_CHOICES:
        raise InvalidUsage(f"--count accepts {', '.join(COUNT_CHOICES)}, not {count!r}", hint="convo next --help")
    if output.curl and changes.forecast:
        raise InvalidUsage("--curl and --forecast cannot be used together", hint="use one of them")
    import asyncio

    from convo.cli.input import read_message
    from convo.cli.next import NextOptions, prepare_next_request, print_next_request

    run.validate(instructions=request.instructions, schema_file=request.schema_file, is_continued=True)
    files = (handle, *(request.attachments or ()), request.schema_file, run.context)
    options = NextOptions(
        handle=handle,
        prompt=read_message(prompt or [], files, example='convo next HANDLE "..."') or "",
        model=request.model,
        instructions=request.instructions,
        attachments=tuple(request.attachments or ()),
        schema_file=request.schema_file,
        parameters=request.parameters(),
        store_remotely=store_remotely,
        strict_prefix=request.strict_prefix or None,
        keep_prefix=request.keep_prefix or None,
        provider=provider,
        count_by="offline" if output.curl or (changes.forecast and count == "auto") else count,
        config=get_root_options(ctx).config,
        run_flags=run,
        forecast=changes.forecast,
        dropped_items=tuple(changes.drop or ()),
        removed_tools=tuple(changes.without_tool or ()),
    )
    print_next_request(*asyncio.run(prepare_next_request(options)), output_format=output_format, base_url=url)
