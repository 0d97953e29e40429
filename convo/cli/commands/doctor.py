"""`convo doctor`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, StoreOption, get_root_options
from convo.config.loader import SettingFlags

app = App()

EXAMPLES = """
Examples:
  convo doctor                            everything that can be seen from here
  convo doctor --network                  and whether the providers' servers can be reached
  convo doctor store serve                two of the checks
  convo doctor store --store postgresql://user@host/db
  convo doctor --json | jq '.checks[] | select(.level != "ok")'
"""


def complete_check_name(incomplete: str) -> list[tuple[str, str]]:
    """The checks that could be meant, each with what it looks at."""
    from convo.cli.doctor import DOCTOR_CHECKS

    return [(name, check.description) for name, check in DOCTOR_CHECKS.items() if name.startswith(incomplete)]


@app.command(epilog=EXAMPLES)
def doctor_command(
    ctx: typer.Context,
    checks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="These checks alone.", autocompletion=complete_check_name, show_default=False
        ),
    ] = None,
    store: StoreOption = None,
    network: Annotated[
        bool, typer.Option("--network", help="Try to reach the servers of providers too; no key is sent.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find out what is wrong, and how to mend it."""
    from convo.cli.doctor import run_doctor

    if not run_doctor(
        get_root_options(ctx).config, SettingFlags(store=store), checks or (), network=network, as_json=as_json
    ):
        raise typer.Exit(1)
