"""Options of agent runs, shared by `convo chat`, `convo resume` and `convo next`.

Separate from `agent_options`, which loads the agents: a chat without agents does not import it.
"""

from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from typing import Any

from convo.cli.app import OPTION_METADATA_KEY, STDOUT_ARGUMENT, OptionalText, flag_option, value_option
from convo.errors import InvalidUsage

NO_AGENTS = "none"
"""The value of --agent that omits the agents that a session had before."""

CONTEXT_OPTION = "--context", "FILE", "Context values for tools: a JSON file, or FILE.py:NAME."
SESSION_LIMIT_OPTION = "--session-limit", "N", "Send only the newest N items of the history."
INPUT_FILTER_OPTION = (
    "--input-filter",
    "FILE:NAME",
    "Filter each model call: (ModelInput) -> ModelInput, or as in the SDK.",
)
NEST_HISTORY_OPTION = "--nest-history/--no-nest-history", "Pass a summary of the history on a handoff."
HISTORY_MAPPER_OPTION = "--history-mapper", "FILE:NAME", "Function that makes that summary."
HISTORY_MARKERS_OPTION = "--history-markers", "START END", "Text before and after that summary."


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The options of agent runs; None for one that was not given.

    context:  a file with the application's own values as one JSON object, or FILE.py:NAME of a function that returns it
    state:    the file that a paused run is written to
    """

    agent: OptionalText = value_option(
        "--agent", "FILE:NAME", "Agents to use: support.py:triage, or a .toml file; none for no agents."
    )
    context: OptionalText = value_option(*CONTEXT_OPTION)
    max_turns: int | None = value_option("--max-turns", "N", "Maximum number of model calls in a run.", min=1)
    session_limit: int | None = value_option(*SESSION_LIMIT_OPTION, min=0)
    input_filter: OptionalText = value_option(*INPUT_FILTER_OPTION)
    nest_history: bool | None = flag_option(*NEST_HISTORY_OPTION, default=None)
    history_mapper: OptionalText = value_option(*HISTORY_MAPPER_OPTION)
    history_markers: tuple[str, str] | None = value_option(*HISTORY_MARKERS_OPTION)
    state: OptionalText = value_option("--state", "FILE", "File for the state of a paused run.")

    @property
    def list_agent_options(self) -> Sequence[str]:
        """The given options that need --agent."""
        given = [
            option_field
            for option_field in fields(self)
            if option_field.name != "agent" and getattr(self, option_field.name) is not None
        ]
        return [_format_option(option_field) for option_field in given]

    def validate(
        self, *, instructions: str | None = None, schema_file: str | None = None, is_continued: bool = False
    ) -> None:
        """Check that the options fit together.

        instructions, schema_file:  an agent has its own
        is_continued:               the session's previous agents may be used, which are known later

        Raises InvalidUsage.
        """
        agents = None if self.agent == NO_AGENTS else self.agent
        if agents is None and self.list_agent_options and not (is_continued and self.agent is None):
            raise InvalidUsage(
                f"{self.list_agent_options[0]} applies to agent runs and needs --agent",
                hint="add --agent FILE.py:NAME",
            )
        if self.state == STDOUT_ARGUMENT:
            raise InvalidUsage("--state needs a file, because stdout has the answer", hint="--state FILE")
        if agents and (instructions is not None or schema_file is not None):
            flag, setting = ("-s", "instructions") if instructions is not None else ("--schema", "output type")
            raise InvalidUsage(
                f"{flag} and --agent cannot be used together: an agent has its own {setting}", hint=f"leave {flag} out"
            )


def _format_option(field: Field[Any]) -> str:
    """Return the option of a field, as in "--max-turns"; for a pair the one that switches it on."""
    names: list[str] = field.metadata[OPTION_METADATA_KEY][0]
    return names[0].partition("/")[0]
