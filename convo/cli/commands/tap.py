"""`convo tap`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, StoreOption, get_root_options, value_option
from convo.config.loader import SettingFlags

app = App()

EXAMPLES = """
Examples:
  convo tap -- codex exec "fix the tests"      record the requests of Codex
  convo tap -- claude                          of Claude Code, in its own terminal
  convo tap -- python agent.py                 of a program with the SDK of OpenAI or Anthropic
  convo tap --provider deepseek -- llm hello   relay to a provider of the settings
  convo tap --port 8789                        no command: print the variables to export, and wait

Requests and responses pass through unchanged. The command gets OPENAI_BASE_URL and ANTHROPIC_BASE_URL, Codex and
opencode their own settings. Without --provider and --upstream, requests go to the base URLs of the providers openai
and anthropic. A client's own key is passed on. If it sends none, the key of the provider is used.

Requests to /responses (also over a WebSocket), /chat/completions and /messages are recorded, with their texts and
without keys and cookies, for serve.record_ttl_s seconds. convo sessions lists them, convo inspect @recorded shows
the newest conversation, and convo serve shows all of them in a browser, while they run, too.
"""

UPSTREAM_PANEL = "Upstream"


@app.command(context_settings={"allow_interspersed_args": False}, epilog=EXAMPLES)
def tap_command(
    ctx: typer.Context,
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND ...", help="Program to run, with its arguments. Its exit code is that of convo."
        ),
    ] = None,
    port: int = value_option("--port", "N", "Port to listen on; 0 for any free port.", default=0),
    provider: str | None = value_option(
        "--provider", "NAME", "Relay to this provider of the settings.", panel=UPSTREAM_PANEL
    ),
    upstream: str | None = value_option("--upstream", "URL", "Relay to this base URL.", panel=UPSTREAM_PANEL),
    store: StoreOption = None,
) -> None:
    """Record what another program sends to a model, with a relay on this machine."""
    from convo.cli import tap

    target = tap.TapTarget(provider, upstream)
    code = tap.run_tap(get_root_options(ctx).config, SettingFlags(store=store, port=port), target, command or [])
    if code:
        raise typer.Exit(code)
