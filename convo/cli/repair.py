"""`convo repair`: a valid history beside a broken one.

The arguments alone; `convo.cli.repairing` does the rest.
"""

from typing import Annotated

import typer

from convo.cli.options import AsObject, Provider, Remote
from convo.cli.shape import App, call_of

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
def repair(
    ctx: typer.Context,
    handle: Annotated[
        str, typer.Argument(metavar="HANDLE", help="A session, resp_..., conv_..., @last, a file of items, or -.")
    ],
    name: Annotated[
        str, typer.Option("--as", metavar="NAME", help="The new session's name, or a new file: other.json.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would change; make nothing.")] = False,
    as_json: AsObject = False,
    remote: Remote = False,
    provider: Provider = None,
) -> None:
    """Write a valid history beside a broken one."""
    from convo.cli.repairing import Repair, repaired
    from convo.cli.subject import Where

    repaired(Repair(handle, name, dry_run), Where(call_of(ctx).config, provider, remote), as_json=as_json)
