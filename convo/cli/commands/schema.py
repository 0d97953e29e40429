"""`convo schema`: print the JSON Schema of a command's JSON output.

convo/schemas has one JSON Schema 2020-12 file for each form of output. The number at the end of `$id` is the
version: it stays when a key is added, and grows when a key is removed or changes its meaning. A command that fails
prints `error` instead.
"""

import sys
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated

import typer

from convo.cli.app import App, flag_option
from convo.errors import NotFound

app = App()

EXAMPLES = """
Examples:
  convo schema                             list all schemas
  convo schema inspect                     the output of convo inspect --json
  convo schema sessions search             the output of convo sessions search --json
  convo schema chat --jsonl                one line of convo chat --jsonl
  convo schema error                       the output of any command that fails
"""

SCHEMA_FILES: Mapping[str, str] = MappingProxyType(
    {
        "chat": "chat",
        "chat --jsonl": "events",
        "inspect": "inspect",
        "next": "next",
        "cost": "cost",
        "diff": "diff",
        "why": "why",
        "convert": "convert",
        "export": "export",
        "import": "import",
        "lint": "lint",
        "repair": "repair",
        "race": "race",
        "race --jsonl": "race.events",
        "compact": "compact",
        "resume": "resume",
        "resume --jsonl": "events",
        "approvals": "approvals",
        "approvals list": "approvals",
        "approvals show": "approvals",
        "approvals approve": "approvals",
        "approvals reject": "approvals",
        "approvals edit": "approvals",
        "approvals log": "approvals.log",
        "sessions": "sessions",
        "sessions list": "sessions",
        "sessions show": "sessions.show",
        "sessions search": "sessions.search",
        "store check": "store.check",
        "store backup": "store.backup",
        "store recover": "store.recover",
        "store migrate": "store.migrate",
        "store stats": "store.stats",
        "store prune": "store.prune",
        "models": "models",
        "models list": "models",
        "models known": "models.known",
        "models pull": "models.pull",
        "templates": "templates",
        "templates list": "templates",
        "config": "config",
        "config list": "config",
        "config key show": "config.key",
        "doctor": "doctor",
        "error": "error",
    }
)
"""The schema file of each form of output; of `--json` if no flag is named."""


def complete_schema_name(incomplete: str) -> list[str]:
    """Return the command names that begin with `incomplete`."""
    return sorted({name.split()[0] for name in SCHEMA_FILES if name.startswith(incomplete)})


@app.command(epilog=EXAMPLES)
def schema_command(
    command: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND]...",
            help="Command whose output to describe.",
            autocompletion=complete_schema_name,
            show_default=False,
        ),
    ] = None,
    jsonl: bool = flag_option("--jsonl", "Describe one line of its --jsonl output."),
) -> None:
    """Print the JSON Schema of a command's JSON output."""
    if command:
        sys.stdout.write(read_schema(" ".join(command) + (" --jsonl" if jsonl else "")))
        return
    width = max(map(len, SCHEMA_FILES))
    sys.stdout.write("".join(f"{name:<{width}}  {read_schema_id(file)}\n" for name, file in SCHEMA_FILES.items()))


def read_schema(name: str) -> str:
    """Return the schema of one form of output. Raises NotFound."""
    if name not in SCHEMA_FILES:
        from convo.config.values import find_closest_word

        without_jsonl = name.removesuffix(" --jsonl")
        closest = without_jsonl if without_jsonl in SCHEMA_FILES else find_closest_word(name, list(SCHEMA_FILES))
        raise NotFound("schema", name, hint=f"convo schema {closest}" if closest else "convo schema")
    return files("convo").joinpath("schemas", f"{SCHEMA_FILES[name]}.json").read_text(encoding="utf-8")


def read_schema_id(file: str) -> str:
    """Return the `$id` of a schema, which ends with its version."""
    import json

    return str(json.loads(files("convo").joinpath("schemas", f"{file}.json").read_text(encoding="utf-8"))["$id"])
