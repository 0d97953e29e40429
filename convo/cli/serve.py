"""`convo serve`: the Responses and Conversations API over HTTP, in front of any model.

The arguments alone; `convo.cli.serving` does the rest.
"""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.shape import App, call_of
from convo.config import Flags

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

WHERE = "Where it listens"
WHO = "Who may ask"


@app.command(epilog=EXAMPLES)
def serve(
    ctx: typer.Context,
    host: Annotated[
        str | None, typer.Option("--host", help="An address of this machine.", rich_help_panel=WHERE)
    ] = None,
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", help="0 for any free one.", rich_help_panel=WHERE)
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option(
            "--keys", metavar="FILE", help="Names and hashes of keys; each name sees its own.", rich_help_panel=WHO
        ),
    ] = None,
    new_key: Annotated[
        str | None,
        typer.Option("--new-key", metavar="NAME", help="Print a fresh key, keep its hash, end.", rich_help_panel=WHO),
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
    from convo.cli import serving

    flags = Flags(store=store, host=host, port=port, keys=keys)
    config: Path | None = call_of(ctx).config
    if new_key is not None:
        serving.add_key(config, flags, new_key)
    else:
        serving.serve(config, flags, verbose=verbose, strict=strict)
