"""`convo doctor`: what is wrong with the set-up, and how to mend it.

The arguments alone; `convo.cli.checkup` does the rest.
"""

from typing import Annotated

import typer

from convo.cli.options import AsJson, Database
from convo.cli.shape import App, call_of
from convo.config import Flags

app = App()

EXAMPLES = """
Examples:
  convo doctor                            everything that can be seen from here
  convo doctor --network                  and whether the providers' servers can be reached
  convo doctor store serve                two of the checks
  convo doctor store --store postgresql://user@host/db
  convo doctor --json | jq '.checks[] | select(.level != "ok")'
"""


def names(incomplete: str) -> list[tuple[str, str]]:
    """The checks that could be meant, each with what it looks at."""
    from convo.cli.checkup import CHECKS

    return [(name, check.about) for name, check in CHECKS.items() if name.startswith(incomplete)]


@app.command(epilog=EXAMPLES)
def doctor(
    ctx: typer.Context,
    checks: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="These checks alone.", autocompletion=names, show_default=False),
    ] = None,
    store: Database = None,
    network: Annotated[
        bool, typer.Option("--network", help="Try to reach the servers of providers too; no key is sent.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find out what is wrong, and how to mend it."""
    from convo.cli.checkup import examine

    if not examine(call_of(ctx).config, Flags(store=store), checks or (), network=network, as_json=as_json):
        raise typer.Exit(1)
