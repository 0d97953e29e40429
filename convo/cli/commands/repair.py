"""`convo repair`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, JsonObjectOption, ProviderOption, RemoteOption, get_root_options

app = App()

EXAMPLES = """
Examples:
  convo repair @last --as mended             a new session; the old one stays as it is
  convo repair resp_4f1c --as mended         goes on from the last response that is good
  convo repair ./broken.json --as ./good.json
  convo repair ./broken.json --as mended     a session out of a file
  convo repair @last --as mended --dry-run   what would change
"""


@app.command(epilog=EXAMPLES)
def repair_command(
    ctx: typer.Context,
    handle: Annotated[
        str, typer.Argument(metavar="HANDLE", help="A session, resp_..., conv_..., @last, a file of items, or -.")
    ],
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="The new session's name, or a new file: other.json.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change; make nothing.")] = False,
    as_json: JsonObjectOption = False,
    remote: RemoteOption = False,
    provider: ProviderOption = None,
) -> None:
    """Write a valid history beside a broken one."""
    from convo.cli.repair import RepairOptions, run_repair
    from convo.cli.resolve import LookupOptions

    run_repair(
        RepairOptions(handle, name, dry_run),
        LookupOptions(get_root_options(ctx).config, provider, remote),
        as_json=as_json,
    )
