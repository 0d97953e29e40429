"""`convo store`: its arguments, options and help."""

from pathlib import Path
from typing import Annotated

import typer

from convo.cli.app import App, JsonOption, StoreOption, flag_option, get_root_options, value_option
from convo.config.loader import SettingFlags

app = App()

EXAMPLES = """
Examples:
  convo store stats                                rows and bytes of each tenant
  convo store prune --older-than 30d               count unused data
  convo store prune --older-than 30d --yes         delete it
  convo store check                                verify every row
  convo store backup convo-2026-11-22.db           a complete copy, even during writes
  CONVO_STORE=sqlite:convo-2026-11-22.db convo sessions
  convo store recover new.db                       copy the readable rows of a damaged database
  convo store migrate --store postgresql://user@host/db
  convo store migrate --print-sql > schema.sql     SQL for a database administrator to run
"""


NewFileArgument = Annotated[
    Path, typer.Argument(metavar="FILE", help="File to create; it must not exist.", show_default=False)
]


@app.callback(epilog=EXAMPLES)
def store_command() -> None:
    """Check, back up, recover, migrate, measure and prune the database."""


@app.command("migrate")
def store_migrate_command(
    ctx: typer.Context,
    store: StoreOption = None,
    print_sql: bool = flag_option("--print-sql", "Print the SQL statements of the schema; change nothing."),
    partitions: int = value_option(
        "--partitions",
        "N",
        "With --print-sql: split the tables of tenants' data into N partitions.",
        default=0,
        min=0,
        max=1024,
    ),
    after_migration: int = value_option(
        "--above", "N", "With --print-sql: only migrations after number N.", default=0, min=0
    ),
    as_json: JsonOption = False,
) -> None:
    """Migrate the schema to this version of convo."""
    from convo.cli import store as store_commands
    from convo.errors import InvalidUsage

    if print_sql:
        options = store_commands.SchemaSqlOptions(partitions, after_migration)
        store_commands.print_schema_sql(
            get_root_options(ctx).config, SettingFlags(store=store), options, as_json=as_json
        )
    elif partitions:
        raise InvalidUsage("--partitions requires --print-sql", hint="convo store migrate --print-sql --partitions 16")
    elif after_migration:
        raise InvalidUsage("--above requires --print-sql", hint="convo store migrate --print-sql --above 1")
    else:
        store_commands.run_migrations(get_root_options(ctx).config, SettingFlags(store=store), as_json=as_json)


@app.command("stats")
def store_stats_command(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Show rows, bytes and age by tenant."""
    from convo.cli import store as store_commands

    store_commands.print_tenant_stats(get_root_options(ctx).config, SettingFlags(store=store), as_json=as_json)


@app.command("check")
def store_check_command(ctx: typer.Context, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """Verify the database file and every row, without changes."""
    from convo.cli import store as store_commands

    if not store_commands.print_store_check(get_root_options(ctx).config, SettingFlags(store=store), as_json=as_json):
        raise typer.Exit(1)


@app.command("backup")
def store_backup_command(
    ctx: typer.Context,
    file: NewFileArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the database to a new file, or print the pg_dump command."""
    from convo.cli import store as store_commands

    store_commands.copy_to_backup(get_root_options(ctx).config, SettingFlags(store=store), file, as_json=as_json)


@app.command("recover")
def store_recover_command(
    ctx: typer.Context,
    file: NewFileArgument,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy the readable rows of a damaged database to a new file."""
    from convo.cli import store as store_commands

    if not store_commands.copy_readable_rows(
        get_root_options(ctx).config, SettingFlags(store=store), file, as_json=as_json
    ):
        raise typer.Exit(1)


@app.command("prune")
def store_prune_command(
    ctx: typer.Context,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than", metavar="TIME", help="Time without use: a number with s, m, h, d or w, such as 30d."
        ),
    ],
    tenant: str | None = value_option("--tenant", "NAME", "Only the data of this tenant."),
    yes: bool = flag_option("--yes -y", "Delete the data; without this option it is only counted."),
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete data unused since a cutoff (dry run by default)."""
    from convo.cli import store as store_commands

    options = store_commands.PruneOptions(older_than, tenant, yes)
    store_commands.prune_tenants(get_root_options(ctx).config, SettingFlags(store=store), options, as_json=as_json)
