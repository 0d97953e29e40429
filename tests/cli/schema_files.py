"""The schemas of the JSON output of commands, generated from the types of the reports.

python -m tests.cli.schema_files
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

from convo.agent_runner import events
from convo.chat.conversation_list import SessionReport
from convo.chat.next_request import NextRequestReport
from convo.chat.run_decisions import DecisionReport
from convo.cli import approvals, models, race, store
from convo.cli.agent_run import RunReport
from convo.cli.commands.schema import SCHEMA_FILES
from convo.cli.compact import CompactionPreviewReport, CompactionReport
from convo.cli.convert import ConversionReport
from convo.cli.cost import CostReport
from convo.cli.diff import HistoriesReport, RequestsReport
from convo.cli.export import ExportReport
from convo.cli.import_ import ImportReport
from convo.cli.output import FailureReport
from convo.cli.repair import RepairReport
from convo.cli.resume import DecidedStateReport
from convo.cli.templates import TemplateReport
from convo.cli.turn_report import TurnReport
from convo.inspect.report import ConversationReport
from convo.lint.report import LintSummary
from convo.prompt_cache.why import MissReport
from convo.report import Keywords
from convo.runstate.reader import StateReport
from convo.stores.base import TenantStats
from convo.stores.unstored_requests import UnstoredRequest
from convo.terminal.report_views import DoctorReport
from convo.terminal.settings_views import KeyLocation, KnownModelsReport, SettingReport
from tests.cli.report_schema import report_schema
from tests.command_runner import ROOT

ApiEvent = Annotated[
    Mapping[str, Any],
    Keywords(properties={"type": {"type": "string", "pattern": r"^(response\.|error$)"}}, required=["type"]),
    "An event of the Responses API, unchanged.",
]

REPORTS: dict[str, tuple[Any, int]] = {
    "chat": (TurnReport | RunReport, 1),
    "compact": (CompactionReport | CompactionPreviewReport, 1),
    "convert": (ConversionReport, 1),
    "cost": (CostReport, 1),
    "diff": (HistoriesReport | RequestsReport, 1),
    "events": (
        Annotated[
            ApiEvent
            | FailureReport
            | events.StartedEvent
            | events.ToolStartedEvent
            | events.ToolOutputEvent
            | events.HandoffEvent
            | events.GuardrailEvent
            | events.WarningEvent
            | events.PausedEvent
            | events.FinishedEvent
            | events.FailedEvent,
            "One line: an unchanged event of the model, an event of an agent run, or the error that ended it.",
        ],
        1,
    ),
    "export": (ExportReport, 1),
    "import": (ImportReport, 1),
    "lint": (LintSummary, 1),
    "next": (NextRequestReport, 1),
    "race": (race.RaceReport, 1),
    "race.events": (race.RaceTurnEvent | race.RaceOwnerEvent | FailureReport, 1),
    "repair": (RepairReport, 1),
    "why": (MissReport, 1),
    "resume": (RunReport | DecidedStateReport, 1),
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
    "sessions.search": (Sequence[SessionReport], 1),
    "sessions.show": (SessionReport, 1),
    "templates": (Sequence[TemplateReport], 1),
    "doctor": (DoctorReport, 1),
    "inspect": (ConversationReport | StateReport | UnstoredRequest, 1),
    "models.known": (KnownModelsReport, 1),
    "store.backup": (store.BackupReport, 1),
    "store.check": (store.StoreReport, 1),
    "store.migrate": (store.MigrationReport | store.SchemaSqlReport, 1),
    "store.prune": (store.PruneReport, 1),
    "store.recover": (store.RecoverReport, 1),
    "store.stats": (Sequence[TenantStats], 1),
}
"""The type and the version of each schema file. The version grows when a key is removed or changes its meaning."""

MAX_LINE_CHARS = 100

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
    return format_json(make_schema(name)) + "\n"


def format_json(value: Any, indent: str = "") -> str:
    """Format JSON with two spaces a level; what is short is on one line."""
    line, inner = json.dumps(value), f"{indent}  "
    if not isinstance(value, dict | list) or len(indent + line) < MAX_LINE_CHARS:
        return line
    names = [f"{json.dumps(name)}: " for name in value] if isinstance(value, dict) else [""] * len(value)
    members = value.values() if isinstance(value, dict) else value
    parts = [name + format_json(member, inner) for name, member in zip(names, members, strict=True)]
    return f"{line[0]}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{line[-1]}"


if __name__ == "__main__":
    for name in REPORTS:
        Path(FOLDER, f"{name}.json").write_text(format_schema(name), encoding="utf-8")
