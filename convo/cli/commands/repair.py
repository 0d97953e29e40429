"""`convo repair`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, JsonObjectOption, ProviderOption, RemoteOption, flag_option, get_root_options

app = App()

EXAMPLES = """
Examples:
  convo repair @last --as fixed              a new session; the old one is unchanged
  convo repair resp_4f1c --as fixed          continue from the last valid response
  convo repair ./broken.json --as ./good.json
  convo repair ./broken.json --as fixed      a session from a file
  convo repair @last --as fixed --dry-run    only show the changes
"""


@app.command(epilog=EXAMPLES)
def repair_command(
    ctx: typer.Context,
    handle: Annotated[
        str, typer.Argument(metavar="HANDLE", help="Session, resp_..., conv_..., @last, file of items, or - for stdin.")
    ],
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="Name of the new session, or a new file: other.json.")
    ],
    dry_run: bool = flag_option("--dry-run", "Only show the changes."),
    as_json: JsonObjectOption = False,
    remote: RemoteOption = False,
    provider: ProviderOption = None,
) -> None:
    """Write a repaired copy of an invalid history.

    A valid history is copied unchanged if NAME is a file; otherwise nothing is written.
    """
    from convo.cli.repair import RepairOptions, run_repair
    from convo.cli.resolve import LookupOptions

    run_repair(
        RepairOptions(handle, name, dry_run),
        LookupOptions(get_root_options(ctx).config, provider, remote),
        as_json=as_json,
    )
