"""The flags that are about runs of agents, and which of them fit together.

They stand apart from what they load: `convo chat` without agents imports nothing of those.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from convo.errors import Usage


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The flags that are about runs of agents; None where one was not given.

    context:  a file with the application's own values, one JSON object, or FILE.py:NAME of what makes them
    state:    the file that a paused run is written to
    """

    agent: str | None = None
    input_filter: str | None = None
    history_mapper: str | None = None
    history_markers: tuple[str, str] | None = None
    nest_history: bool | None = None
    max_turns: int | None = None
    session_limit: int | None = None
    context: str | None = None
    state: str | None = None

    @property
    def beside(self) -> Sequence[str]:
        """The flags that say something and need --agent."""
        fields = (name for name in RunFlags.__slots__ if name != "agent")
        return [f"--{name.replace('_', '-')}" for name in fields if getattr(self, name) is not None]

    def check(self, *, system: str | None = None, schema: str | None = None) -> None:
        """Make sure that the flags fit together.

        system, schema:  what an agent says itself
        raises:          Usage
        """
        if self.agent is None and self.beside:
            raise Usage(
                f"{self.beside[0]} is about runs of agents, and none is named",
                hint=f"--agent FILE.py:NAME {self.beside[0]}",
            )
        if self.agent and (system is not None or schema is not None):
            flag, own = ("-s", "instructions") if system is not None else ("--schema", "output type")
            raise Usage(
                f"{flag} and --agent do not go together: an agent has {own} of its own", hint=f"leave {flag} out"
            )
