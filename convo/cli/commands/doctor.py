"""`convo doctor`: its arguments, options and help."""

from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, StoreOption, flag_option, get_root_options
from convo.config.loader import SettingFlags

app = App()

EXAMPLES = """
Examples:
  convo doctor                            run all local checks
  convo doctor --network                  also check the providers' servers
  convo doctor store serve                run two of the checks
  convo doctor store --store postgresql://user@host/db
  convo doctor --json | jq '.checks[] | select(.level != "ok")'
"""


def complete_check_name(incomplete: str) -> list[tuple[str, str]]:
    """Return the checks that begin with `incomplete`, each with its description."""
    from convo.cli.doctor import DOCTOR_CHECKS

    return [(name, check.description) for name, check in DOCTOR_CHECKS.items() if name.startswith(incomplete)]


@app.command(epilog=EXAMPLES)
def doctor_command(
    ctx: typer.Context,
    checks: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME]...", help="Run only these checks.", autocompletion=complete_check_name, show_default=False
        ),
    ] = None,
    store: StoreOption = None,
    network: bool = flag_option("--network", "Also check that the providers' servers can be reached; no key is sent."),
    as_json: JsonOption = False,
) -> None:
    """Diagnose problems and suggest fixes."""
    from convo.cli.doctor import run_doctor

    if not run_doctor(
        get_root_options(ctx).config, SettingFlags(store=store), checks or (), network=network, as_json=as_json
    ):
        raise typer.Exit(1)
