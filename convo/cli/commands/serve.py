"""`convo serve`: its arguments, options and help."""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import App, get_root_options
from convo.config.loader import SettingFlags

app = App()

EXAMPLES = """
Examples:
  convo serve                                       for this machine, with the store of convo chat
  convo serve --port 0 --store memory               any free port; nothing is saved
  convo serve --new-key alice --keys ./keys         create an API key for another user
  convo serve --host 0.0.0.0 --keys ./keys --store postgresql://user@host/db
  convo serve --config plano_config.yaml            serve what a configuration of Plano describes
  convo serve --record                              record requests that are not stored, for the inspector
  convo serve --strict --store memory               test the requests of a client before it uses OpenAI

Clients use the server's address with /v1 as their base URL:
  OPENAI_BASE_URL=http://127.0.0.1:8788/v1
To see conversations, their owners and their requests, open the address without /v1 in a browser.

[serve.limits] in config.toml limits the requests of each key (convo config list serve.limits). A line of the
keys file that ends with the word admin lets its key read the metrics of all keys at /metrics.

convo models lists the available models. Add providers under [providers] in config.toml (convo config path).
"""

LISTEN_PANEL = "Address"
ACCESS_PANEL = "Access"
RECORDING_PANEL = "Recording"


@app.command(epilog=EXAMPLES)
def serve_command(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", metavar="HOST", help="Address to listen on.", rich_help_panel=LISTEN_PANEL)
    ] = None,
    port: Annotated[
        int | None,
        typer.Option(
            "--port", metavar="N", help="Port to listen on; 0 for any free port.", rich_help_panel=LISTEN_PANEL
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help="File with the names and hashes of API keys; each name is a tenant with its own data.",
            rich_help_panel=ACCESS_PANEL,
        ),
    ] = None,
    new_key: Annotated[
        str | None,
        typer.Option(
            "--new-key",
            metavar="NAME",
            help="Print a new API key, store its hash, and exit.",
            rich_help_panel=ACCESS_PANEL,
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="STORE", help="Store to use: none, memory, sqlite:PATH or postgresql://..."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option("--config", metavar="FILE", help="Settings file to use: TOML, or a configuration of Plano."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Reject requests that OpenAI rejects, even if the model accepts them.")
    ] = False,
    record: Annotated[
        bool | None,
        typer.Option(
            "--record/--no-record",
            help="Record requests with store=false, chat completions and Anthropic Messages too, but no embeddings; "
            "see serve.record_keys and serve.record_ttl_s.",
            rich_help_panel=RECORDING_PANEL,
        ),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Log each request on stderr, without message text and keys.")
    ] = False,
) -> None:
    """Serve the Responses API over HTTP, in front of any model."""
    from convo.cli import serve

    flags = SettingFlags(store=store, host=host, port=port, keys=keys, record=record)
    config = config or get_root_options(ctx).config
    if new_key is not None:
        serve.print_new_key(config, flags, new_key)
    else:
        serve.run_server(config, flags, verbose=verbose, strict=strict)
