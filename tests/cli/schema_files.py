"""The schemas of the JSON output of commands, generated from the types of the reports.

python -m tests.cli.schema_files
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from convo.chat.lookup import SessionReport
from convo.chat.run_decisions import DecisionReport
from convo.cli import approvals, models, store
from convo.cli.commands.schema import SCHEMA_FILES
from convo.cli.output import FailureReport
from convo.cli.sessions import SearchHitReport
from convo.cli.templates import TemplateReport
from convo.inspect.report import ConversationReport
from convo.runstate.reader import StateReport
from convo.stores.base import TenantStats
from convo.terminal.report_views import DoctorReport
from convo.terminal.settings_views import KeyLocation, KnownModelsReport, SettingReport
from convo.tools.report_schema import report_schema
from tests.command_runner import ROOT

REPORTS: dict[str, tuple[Any, int]] = {
    "approvals": (
        Annotated[
            Sequence[approvals.PendingCallReport],
            "Pending calls: all of them (also of interrupted runs), those that convo approvals show names, or after a "
            "decision those that are still pending in its runs.",
        ],
        1,
    ),
    "approvals.log": (Annotated[Sequence[DecisionReport], "Newest first."], 1),
    "config": (Sequence[SettingReport], 1),
    "config.key": (Sequence[KeyLocation], 1),
    "error": (FailureReport, 1),
    "models": (models.ModelsReport | Sequence[models.LocalServerReport], 1),
    "models.pull": (models.PulledModelReport, 1),
    "sessions": (Annotated[Sequence[SessionReport], "Most recently used first."], 1),
    "sessions.search": (Sequence[SearchHitReport], 1),
    "sessions.show": (SessionReport, 1),
    "templates": (Sequence[TemplateReport], 1),
    "doctor": (DoctorReport, 1),
    "inspect": (ConversationReport | StateReport, 1),
    "models.known": (KnownModelsReport, 1),
    "store.backup": (store.BackupReport, 1),
    "store.check": (store.StoreReport, 1),
    "store.migrate": (store.MigrationReport | store.SchemaSqlReport, 1),
    "store.prune": (store.PruneReport, 1),
    "store.recover": (store.RecoverReport, 1),
    "store.stats": (Sequence[TenantStats], 1),
}
"""The type and the version of each schema file. The version grows when a key is removed or changes its meaning."""

FOLDER = ROOT / "convo" / "schemas"


def make_schema(name: str) -> dict[str, Any]:
    """Return the schema of a file in `REPORTS`; its title is the first command that prints such a report."""
    kind, version = REPORTS[name]
    command = next(command for command, file in SCHEMA_FILES.items() if file == name)
    if name == "error":
        return report_schema(kind, name, "Output of a failed command with --json", version)
    title = f"convo {command}{'' if command.endswith('--jsonl') else ' --json'}"
    return report_schema(kind, name, title, version)


def format_schema(name: str) -> str:
    return json.dumps(make_schema(name), indent=2) + "\n"


if __name__ == "__main__":
    for name in REPORTS:
        Path(FOLDER, f"{name}.json").write_text(format_schema(name), encoding="utf-8")
