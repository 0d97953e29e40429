"""`convo serve`: its arguments, options and help."""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import App, get_root_options
from convo.config.loader import SettingFlags

app = App()

EXAMPLES = """
Examples:
  convo serve                                       for this machine, over the chat's own store
  convo serve --port 0 --store memory               any free port; nothing is kept
  convo serve --new-key alice --keys ./keys         a key for somebody else
  convo serve --host 0.0.0.0 --keys ./keys --store postgresql://user@host/db
  convo serve --strict --store memory               try what a client sends before it goes to OpenAI

Clients take its address, with /v1, as their base URL:
  OPENAI_BASE_URL=http://127.0.0.1:8788/v1
A browser shows what is kept, who owns it and what each request sent at its address without /v1.

[serve.limits] in config.toml limits the requests of each key (convo config list serve.limits). In the file
of keys the word admin at the end of a line lets that key read the figures of every key at /metrics.

convo models says which models it can ask, and in which file others are described.
"""

LISTEN_PANEL = "Where it listens"
ACCESS_PANEL = "Who may ask"


@app.command(epilog=EXAMPLES)
def serve_command(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", help="An address of this machine.", rich_help_panel=LISTEN_PANEL)
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", help="0 for any free one.", rich_help_panel=LISTEN_PANEL)
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys",
            metavar="FILE",
            help="Names and hashes of keys; each name sees its own.",
            rich_help_panel=ACCESS_PANEL,
        ),
    ] = None,
    new_key: Annotated[
        str | None,
        typer.Option(
            "--new-key", metavar="NAME", help="Print a fresh key, keep its hash, end.", rich_help_panel=ACCESS_PANEL
        ),
    ] = None,
    store: Annotated[
        str | None,
        typer.Option("--store", metavar="STORE", help="none, memory, sqlite:PATH or postgresql://..."),
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Refuse what OpenAI refuses, also where the model would take it.")
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", help="A line a request on stderr; no words, no keys.")] = False,
) -> None:
    """Serve the Responses API over HTTP, in front of any model."""
    from convo.cli import serve

    flags = SettingFlags(store=store, host=host, port=port, keys=keys)
    config: Path | None = get_root_options(ctx).config
    if new_key is not None:
        serve.print_new_key(config, flags, new_key)
    else:
        serve.run_server(config, flags, verbose=verbose, strict=strict)
