"""The flags that are about runs of agents, and which of them fit together.

They stand apart from what they load: `convo chat` without agents imports nothing of those.
"""

from collections.abc import Sequence
from dataclasses import Field, dataclass, fields
from typing import Any

from convo.cli.options import OPTION, STDOUT, Text, flag, value
from convo.errors import Usage

NO_AGENTS = "none"
"""What --agent says to leave out the agents that a session had before."""

CONTEXT = "--context", "FILE", "Values for its tools: a JSON object, or FILE.py:NAME."
SESSION_LIMIT = "--session-limit", "N", "Send the newest N kept items alone."
INPUT_FILTER = (
    "--input-filter",
    "FILE:NAME",
    "(ModelInput) -> ModelInput, before each model call; or the SDK's form.",
)
NEST_HISTORY = "--nest-history/--no-nest-history", "Hand over a summary of what was said."
HISTORY_MAPPER = "--history-mapper", "FILE:NAME", "Makes that summary."
HISTORY_MARKERS = "--history-markers", "START END", "Stand around it."


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The flags that are about runs of agents; None where one was not given.

    context:  a file with the application's own values, one JSON object, or FILE.py:NAME of what makes them
    state:    the file that a paused run is written to
    """

    agent: Text = value("--agent", "FILE:NAME", "Agents to use: support.py:triage, or a .toml; none: no agents.")
    context: Text = value(*CONTEXT)
    max_turns: int | None = value("--max-turns", "N", "At most N model calls a run.", min=1)
    session_limit: int | None = value(*SESSION_LIMIT, min=0)
    input_filter: Text = value(*INPUT_FILTER)
    nest_history: bool | None = flag(*NEST_HISTORY, default=None)
    history_mapper: Text = value(*HISTORY_MAPPER)
    history_markers: tuple[str, str] | None = value(*HISTORY_MARKERS)
    state: Text = value("--state", "FILE", "Where a paused run is written.")

    @property
    def beside(self) -> Sequence[str]:
        """The flags that say something and need --agent."""
        said = {_option(one): getattr(self, one.name) for one in fields(self)}
        return [name for name, value in said.items() if name != "--agent" and value is not None]

    def check(self, *, system: str | None = None, schema: str | None = None, continues: bool = False) -> None:
        """Make sure that the flags fit together.

        system, schema:  what an agent says itself
        continues:       agents may be those that the session had before, which is known later
        raises:          Usage
        """
        agents = None if self.agent == NO_AGENTS else self.agent
        if agents is None and self.beside and not (continues and self.agent is None):
            raise Usage(
                f"{self.beside[0]} is about runs of agents, and none is named",
                hint=f"--agent FILE.py:NAME {self.beside[0]}",
            )
        if self.state == STDOUT:
            raise Usage("a paused run is written into a file, beside the answer on stdout", hint="--state FILE")
        if agents and (system is not None or schema is not None):
            flag, own = ("-s", "instructions") if system is not None else ("--schema", "output type")
            raise Usage(
                f"{flag} and --agent do not go together: an agent has {own} of its own", hint=f"leave {flag} out"
            )


def _option(field: "Field[Any]") -> str:
    """The option of a field as it is written: "--max-turns"; of a pair the one that switches it on."""
    names: list[str] = field.metadata[OPTION][0]
    return names[0].partition("/")[0]
