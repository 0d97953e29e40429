"""How a run of agents is to behave, as the flags of `convo chat` and `convo resume` say it.

Whatever is named there is loaded before a store is opened or a model is asked, so that a mistake in
a file of the person's own changes nothing.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from shlex import quote
from typing import cast

from convo.agents import AgentTool, ForeignInputFilter, Graph, is_foreign_filter
from convo.cli.loading import foreign_agents_of, function_of, graph_of, made_by, reads_python
from convo.cli.remembered_agents import agents_record
from convo.cli.run_flags import RunFlags
from convo.cli.saying import note
from convo.engine.conduct import Conduct, Route
from convo.engine.named_file import text_of
from convo.errors import InputFault, Unreadable, Usage
from convo.handoffs import MARKERS, Habits, Mapper, Markers
from convo.items import Json
from convo.run import Limits
from convo.stores.contract import Store
from convo.tools import NO_VALUES, Hosted, Tool


@dataclass(frozen=True, slots=True)
class Cast:
    """The agents of a run, and how it behaves.

    model:  the first agent's own
    words:  what was typed to name them
    alike:  whether agents with a model of their own are asked by another one
    """

    graph: Graph
    conduct: Conduct
    model: str | None = None
    words: str = "FILE.py:NAME"
    alike: bool = False

    def routed(self, route: Callable[[str], Route]) -> "Cast":
        """The same, where agents with a model of their own are asked by `route`."""
        return replace(self, conduct=replace(self.conduct, route=route))

    def with_values(self, values: Mapping[str, Json]) -> "Cast":
        """The same with the application's own values."""
        return replace(self, conduct=replace(self.conduct, values=values))

    def asked_alike(self) -> "Cast":
        """The same, where every agent is asked as the chat is: somebody said which model answers."""
        return replace(self, graph=_alike(self.graph), model=None, alike=_has_models(self.graph))

    def of_session(self, session: str, model: str | None, folder: Path) -> "Cast":
        """The same for the runs of one session, which remember the agents and -m; `folder`: convo's own data."""
        return replace(self, conduct=replace(self.conduct, origin=agents_record(self.words, model, session, folder)))

    def flags(self, model: str) -> str:
        """What names them on a command line that goes on with them as they are; `model` is who answers now."""
        said = f" -m {quote(model)}" if self.alike else ""
        return f"--agent {quote(self.words)}{said}"


def _has_models(graph: Graph) -> bool:
    """Whether one of the agents, or of those behind their tools, has a model of its own."""
    agents = graph.agents.values()
    inside = (tool.inside for agent in agents for tool in agent.tools if isinstance(tool, AgentTool))
    return any(agent.model for agent in agents) or any(map(_has_models, inside))


def _alike(graph: Graph) -> Graph:
    """The same agents, and those behind their tools, without models of their own."""
    return replace(
        graph,
        agents={
            identity: replace(agent, model=None, tools=tuple(map(_alike_inside, agent.tools)))
            for identity, agent in graph.agents.items()
        },
    )


def _alike_inside(tool: Tool | Hosted) -> Tool | Hosted:
    return replace(tool, inside=_alike(tool.inside)) if isinstance(tool, AgentTool) else tool


def cast_of(flags: RunFlags, held: Json = None) -> Cast:
    """Load what the flags name.

    held:    the application's own context as a state describes it, whatever it was there
    raises:  Usage, Unreadable, NotFound, InputFault, BadSettings, Unsupported
    """
    assert flags.agent
    graph = graph_of(flags.agent)
    _note_unused(flags, graph)
    conduct = conduct_of(flags, held)
    if flags.input_filter is not None:
        function = function_of(flags.input_filter, "--input-filter")
        found = foreign_agents_of(flags.agent)
        if is_foreign_filter(function, foreign_agents=bool(found)):
            conduct = replace(conduct, input_filter=ForeignInputFilter(function, found))
    return Cast(graph, conduct, graph[graph.start].model, flags.agent)


def conduct_of(flags: RunFlags, held: Json = None) -> Conduct:
    limits = Limits() if flags.max_turns is None else Limits(max_turns=flags.max_turns)
    asked = flags.input_filter
    return Conduct(
        limits=limits,
        habits=_habits(flags),
        input_filter=function_of(asked, "--input-filter") if asked else None,
        session_limit=flags.session_limit,
        values=_values(flags.context, held) if flags.context else NO_VALUES,
        scratch=_scratch,
    )


def _scratch() -> Store:
    from convo.stores.open import open_store

    return open_store("memory")


def _mapper(said: str | None) -> Mapper | None:
    return cast("Mapper", function_of(said, "--history-mapper")) if said else None


def _habits(flags: RunFlags) -> Habits:
    """A mapper and markers say how a history is nested; whether it is, --nest-history and the handoffs say."""
    mapper = _mapper(flags.history_mapper)
    return Habits(nest=bool(flags.nest_history), mapper=mapper, markers=_markers(flags.history_markers))


def _note_unused(flags: RunFlags, graph: Graph) -> None:
    """Say that a mapper or markers have no effect, where no handoff makes a summary of the history."""
    named = "--history-mapper" if flags.history_mapper else "--history-markers" if flags.history_markers else None
    nests = flags.nest_history or any(way.nest for agent in graph.agents.values() for way in agent.ways)
    if named and not nests:
        note(f"{named} has no effect: no handoff nests its history; --nest-history does")


def _markers(said: tuple[str, str] | None) -> Markers:
    if said is None:
        return MARKERS
    if not all(said) or said[0] == said[1]:
        raise Usage("--history-markers takes two different words", hint="--history-markers '<HISTORY>' '</HISTORY>'")
    return Markers(*said)


def _values(said: str, held: Json) -> Mapping[str, Json]:
    """The values in a file, or those that FILE.py:NAME makes of what a state holds."""
    if reads_python(said):
        made = made_by(said, "--context", held)
        if not isinstance(made, dict):
            raise InputFault(f"--context {said} returned {type(made).__name__}, and no dict", hint="return a dict")
        return made
    try:
        found = json.loads(text_of(said))
    except (ValueError, RecursionError) as wrong:
        raise Unreadable(f"{said} is not JSON: {wrong}") from wrong
    if not isinstance(found, dict):
        raise Unreadable(f"{said} is not one JSON object", hint='--context with a file like {"customer": "A1"}')
    return found
