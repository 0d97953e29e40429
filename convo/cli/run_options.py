"""Options of agent runs, shared by `convo chat`, `convo resume` and `convo next`.

Separate from `agent_options`, which loads the agents: a chat without agents does not import it.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from shlex import quote
from typing import TYPE_CHECKING, Any, NamedTuple

from convo.cli.app import STDOUT_ARGUMENT, OptionalText, OptionalTexts, flag_option, value_option
from convo.errors import InvalidUsage

if TYPE_CHECKING:
    from convo.history.items import Item

NONE = "none"
"""The value of --agent, and of an option in REMEMBERED_FIELDS, that omits what a session had before."""

SOURCE_FIELDS = ("agent", "tool", "mcp")
"""The fields of `RunFlags` that name agents or tools."""

REMEMBERED_FIELDS = ("run_config", "sdk_session", "context")
"""The fields of `RunFlags` that a session remembers beside its agents or tools."""

HANDOFF_FIELDS = ("start_agent", "nest_history", "history_mapper", "history_markers")
"""The fields of `RunFlags` that apply to handoffs, which a chat with --tool or --mcp does not have."""

STRICT_PREFIX_HELP = (
    "Refuse a request whose prefix changed, so that cached tokens or reasoning would be lost. The prefix is the "
    "beginning that the prompt cache reads."
)


class AgentSource(NamedTuple):
    """The agents of a chat: the value of --agent, or the values of --tool and --mcp, and what else it remembers.

    tools:  the functions that the model of a chat without --agent may call
    mcp:    the MCP servers whose tools it may call
    """

    agent: str | None = None
    tools: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()
    run_config: str | None = None
    sdk_session: str | None = None
    context: str | None = None

    def __str__(self) -> str:
        return self.agent or ", ".join((*self.tools, *self.mcp))

    @property
    def remembered(self) -> dict[str, str]:
        """The values in REMEMBERED_FIELDS, without those that are not set."""
        return {name: value for name in REMEMBERED_FIELDS if (value := getattr(self, name)) is not None}

    @property
    def kind(self) -> str:
        return "agents" if self.agent else "tools"

    @property
    def options(self) -> str:
        """The options that name them, quoted for a shell."""
        references = [("--agent", self.agent)] if self.agent else []
        references += [("--tool", reference) for reference in self.tools]
        references += [("--mcp", reference) for reference in self.mcp]
        references += [(format_option(name), reference) for name, reference in self.remembered.items()]
        return " ".join(f"{option} {quote(reference)}" for option, reference in references)


@dataclass(frozen=True, slots=True)
class RunFlags:
    """The options of agent runs; None for one that was not given.

    context:  a file with the application's own values as one JSON object, or FILE.py:NAME of any object, or of a
              function that returns one
    state:    the file that a paused run is written to
    """

    agent: OptionalText = value_option(
        "--agent",
        "FILE:NAME",
        "Agents to use: support.py:triage, package.module:NAME, or a .toml file; none disables agents and tools.",
    )
    start_agent: OptionalText = value_option(
        "--start-agent", "NAME", "Agent that answers the message; default: the one that answered last."
    )
    tool: OptionalTexts = value_option(
        "--tool", "FILE.py:NAME", "Python function that the model may call; can be repeated."
    )
    mcp: OptionalTexts = value_option(
        "--mcp",
        "NAME|COMMAND|URL",
        "MCP server whose tools the model may call, as mcp__NAME__TOOL; can be repeated.",
    )
    context: OptionalText = value_option(
        "--context",
        "FILE",
        "Context for tools: a JSON file; or FILE.py:NAME, an object or a function that makes one from saved values.",
    )
    max_turns: int | None = value_option("--max-turns", "N", "Maximum number of model calls in a run.", min=1)
    session_limit: int | None = value_option(
        "--session-limit", "N", "Send only the newest N items of the history.", min=0
    )
    input_filter: OptionalText = value_option(
        "--input-filter",
        "FILE:NAME",
        "Filter each model call: (ModelInput) -> ModelInput, or as in the SDK.",
    )
    run_config: OptionalText = value_option(
        "--run-config", "FILE.py:NAME", "RunConfig of the Agents SDK, or a dict of arguments of Runner.run."
    )
    sdk_session: OptionalText = value_option(
        "--sdk-session",
        "FILE.py:NAME",
        "Session of the Agents SDK; a new session starts with its items, and new items are added to it.",
    )
    nest_history: bool | None = flag_option(
        "--nest-history/--no-nest-history", "On a handoff, pass a summary of the history.", default=None
    )
    history_mapper: OptionalText = value_option(
        "--history-mapper", "FILE:NAME", "Function that makes the summary for a handoff."
    )
    history_markers: tuple[str, str] | None = value_option(
        "--history-markers", "START END", "Text before and after the summary for a handoff."
    )
    state: OptionalText = value_option("--state", "FILE", "File for the state of a paused run.")

    @property
    def source(self) -> AgentSource | None:
        """The agents or tools that the options name; None for none."""
        if self.agent in (None, NONE) and not (self.tool or self.mcp):
            return None
        values = {name: getattr(self, name) for name in REMEMBERED_FIELDS if getattr(self, name) != NONE}
        tools, servers = tuple(dict.fromkeys(self.tool or ())), tuple(dict.fromkeys(self.mcp or ()))
        return AgentSource(self.agent, tools, servers, **values)

    @property
    def has_source_option(self) -> bool:
        """Whether an option names agents or tools, or disables them: those of the session are not used then."""
        return self.agent is not None or self.source is not None

    def with_source(self, source: AgentSource) -> "RunFlags":
        """Return the options with those that a session had before and that were not given."""
        values: dict[str, Any] = {name: getattr(self, name) or value for name, value in source.remembered.items()}
        if not self.has_source_option:
            values |= {"agent": source.agent, "tool": list(source.tools) or None, "mcp": list(source.mcp) or None}
        return replace(self, **values)

    def validate(
        self, *, instructions: str | None = None, schema_file: str | None = None, is_continued: bool = False
    ) -> None:
        """Check that the options fit together.

        instructions, schema_file:  an agent has its own
        is_continued:               the session's previous agents may be used, which are known later

        Raises InvalidUsage.
        """
        source = self.source
        given = [field.name for field in fields(self) if getattr(self, field.name) is not None]
        run_option = next((format_option(name) for name in given if name not in SOURCE_FIELDS), None)
        tool_option = "--tool" if self.tool else "--mcp" if self.mcp else None
        if self.agent is not None and tool_option:
            raise InvalidUsage(
                f"--agent and {tool_option} cannot be used together: an agent has its own tools", hint="use one"
            )
        if source is None and run_option and not (is_continued and self.agent is None):
            raise InvalidUsage(f"{run_option} applies to agent runs and needs --agent", hint="add --agent FILE.py:NAME")
        handoff_option = next((format_option(name) for name in given if name in HANDOFF_FIELDS), None)
        if tool_option and handoff_option:
            raise InvalidUsage(
                f"{handoff_option} applies to handoffs, and {tool_option} has none",
                hint=f"leave {handoff_option} out",
            )
        if self.state == STDOUT_ARGUMENT:
            raise InvalidUsage("--state needs a file, because stdout has the answer", hint="--state FILE")
        if source and source.agent and (instructions is not None or schema_file is not None):
            flag, setting = ("-s", "instructions") if instructions is not None else ("--schema", "output type")
            raise InvalidUsage(
                f"{flag} and --agent cannot be used together: an agent has its own {setting}", hint=f"leave {flag} out"
            )


def format_option(field: str) -> str:
    """Return the option of a field of `RunFlags`, as in "--max-turns"; for a pair the one that switches it on."""
    return f"--{field.replace('_', '-')}"


def choose_input(message: "Item | None", configured_input: "Sequence[Item]") -> "list[Item]":
    """Return the message, or the input that --run-config has; neither for an interactive chat. Raises InvalidUsage."""
    if message and configured_input:
        raise InvalidUsage("a message and the input of --run-config cannot be used together", hint="use one")
    return [message] if message else list(configured_input)
