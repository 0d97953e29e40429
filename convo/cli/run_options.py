"""Options of agent runs, shared by `convo chat`, `convo resume` and `convo next`.

Apart from `agent_options`, which loads what they name: a chat without agents imports nothing of that.
"""

from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from typing import Any

from convo.cli.app import OPTION_METADATA_KEY, STDOUT_ARGUMENT, OptionalText, flag_option, value_option
from convo.errors import InvalidUsage

NO_AGENTS = "none"
"""What --agent says to leave out the agents that a session had before."""

CONTEXT_OPTION = "--context", "FILE", "Values for its tools: a JSON object, or FILE.py:NAME."
SESSION_LIMIT_OPTION = "--session-limit", "N", "Send the newest N kept items alone."
INPUT_FILTER_OPTION = (
    "--input-filter",
    "FILE:NAME",
    "(ModelInput) -> ModelInput, before each model call; or the SDK's form.",
)
NEST_HISTORY_OPTION = "--nest-history/--no-nest-history", "Hand over a summary of what was said."
HISTORY_MAPPER_OPTION = "--history-mapper", "FILE:NAME", "Makes that summary."
HISTORY_MARKERS_OPTION = "--history-markers", "START END", "Stand around it."


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The flags that are about runs of agents; None where one was not given.

    context:  a file with the application's own values, one JSON object, or FILE.py:NAME of what makes them
    state:    the file that a paused run is written to
    """

    agent: OptionalText = value_option(
        "--agent", "FILE:NAME", "Agents to use: support.py:triage, or a .toml; none: no agents."
    )
    context: OptionalText = value_option(*CONTEXT_OPTION)
    max_turns: int | None = value_option("--max-turns", "N", "At most N model calls a run.", min=1)
    session_limit: int | None = value_option(*SESSION_LIMIT_OPTION, min=0)
    input_filter: OptionalText = value_option(*INPUT_FILTER_OPTION)
    nest_history: bool | None = flag_option(*NEST_HISTORY_OPTION, default=None)
    history_mapper: OptionalText = value_option(*HISTORY_MAPPER_OPTION)
    history_markers: tuple[str, str] | None = value_option(*HISTORY_MARKERS_OPTION)
    state: OptionalText = value_option("--state", "FILE", "Where a paused run is written.")

    @property
    def beside(self) -> Sequence[str]:
        """The flags that say something and need --agent."""
        said = {_format_option(one): getattr(self, one.name) for one in fields(self)}
        return [name for name, value in said.items() if name != "--agent" and value is not None]

    def check(self, *, system: str | None = None, schema: str | None = None, continues: bool = False) -> None:
        """Make sure that the flags fit together.

        system, schema:  what an agent says itself
        continues:       agents may be those that the session had before, which is known later
        raises:          InvalidUsage
        """
        agents = None if self.agent == NO_AGENTS else self.agent
        if agents is None and self.beside and not (continues and self.agent is None):
            raise InvalidUsage(
                f"{self.beside[0]} is about runs of agents, and none is named",
                hint=f"--agent FILE.py:NAME {self.beside[0]}",
            )
        if self.state == STDOUT_ARGUMENT:
            raise InvalidUsage("a paused run is written into a file, beside the answer on stdout", hint="--state FILE")
        if agents and (system is not None or schema is not None):
            flag, own = ("-s", "instructions") if system is not None else ("--schema", "output type")
            raise InvalidUsage(
                f"{flag} and --agent do not go together: an agent has {own} of its own", hint=f"leave {flag} out"
            )


def _format_option(field: "Field[Any]") -> str:
    """The option of a field as it is written: "--max-turns"; of a pair the one that switches it on."""
    names: list[str] = field.metadata[OPTION_METADATA_KEY][0]
    return names[0].partition("/")[0]
