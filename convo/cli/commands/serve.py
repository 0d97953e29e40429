"""`convo serve`: its arguments, options and help."""

from pathlib import Path

import typer

from convo.cli.app import App, flag_option, get_root_options, value_option
from convo.config.loader import SettingFlags

app = App()

EXAMPLES = """
Examples:
  convo serve                                       for this machine, with the store of convo chat
  convo serve --port 0 --store memory               any free port; nothing is saved
  convo serve --new-key alice --keys ./keys         create an API key for another user
  convo serve --host 0.0.0.0 --keys ./keys --store postgresql://user@host/db
  convo serve --config plano_config.yaml            serve the models of a Plano configuration
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
    host: str | None = value_option("--host", "HOST", "Address to listen on.", panel=LISTEN_PANEL),
    port: int | None = value_option("--port", "N", "Port to listen on; 0 for any free port.", panel=LISTEN_PANEL),
    keys: str | None = value_option(
        "--keys",
        "FILE",
        "File with the names and hashes of API keys; each name is a tenant with its own data.",
        panel=ACCESS_PANEL,
    ),
    new_key: str | None = value_option(
        "--new-key", "NAME", "Print a new API key, store its hash, and exit.", panel=ACCESS_PANEL
    ),
    store: str | None = value_option("--store", "STORE", "Store to use: none, memory, sqlite:PATH or postgresql://..."),
    config: Path | None = value_option("--config", "FILE", "Settings file to use: TOML, or a configuration of Plano."),
    strict: bool = flag_option("--strict", "Reject histories that OpenAI rejects, even if the model accepts them."),
    record: bool | None = flag_option(
        "--record/--no-record",
        "Also record requests that are not stored: store=false, chat completions, Anthropic Messages; "
        "see serve.record_keys and serve.record_ttl_s.",
        default=None,
        panel=RECORDING_PANEL,
    ),
    verbose: bool = flag_option("--verbose", "Log each request on stderr, without message text and keys."),
) -> None:
    """Serve the Responses API over HTTP, in front of any model."""
    from convo.cli import serve

    flags = SettingFlags(store=store, host=host, port=port, keys=keys, record=record)
    config = config or get_root_options(ctx).config
    if new_key is not None:
        serve.print_new_key(config, flags, new_key)
    else:
        serve.run_server(config, flags, verbose=verbose, strict=strict)
