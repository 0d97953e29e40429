"""Agents and run settings named on the command line.

Loads FILE.py:NAME, package.module:NAME and FILE.toml before a store is opened or a model is called, so that a mistake
in the user's file changes nothing. The file runs once a process; what it prints goes to stderr.

The agents of a session are remembered with its runs as an absolute path with an HMAC, whose key is in
this user's data folder and never in the store: a path from elsewhere is refused, never imported.
"""

import hmac
import inspect
import json
import os
import re
import shlex
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import module_from_spec, spec_from_file_location
from inspect import isawaitable, isroutine
from itertools import count
from pathlib import Path
from shlex import quote
from types import ModuleType, TracebackType
from typing import Any, NamedTuple, TextIO, cast

from convo.agent_runner.config import ModelRoute, RunConfig
from convo.agent_runner.prepare import open_tool_servers
from convo.agent_runner.user_code import IN_USER_CODE, format_exception, user_code_scope
from convo.agents.agent import TOOL_NAME_PATTERN, Agent, CustomModel
from convo.agents.graph import AgentTool, Graph, graph
from convo.agents.handoff_history import DEFAULT_HISTORY_MARKERS, HistoryMapper, HistoryMarkers
from convo.agents.handoffs import HandoffDefaults
from convo.agents.sdk import (
    ForeignInputFilter,
    call_session_input,
    foreign_agents,
    from_object,
    is_foreign_filter,
    make_rejection_formatter,
)
from convo.agents.sdk_internals import list_ignored_settings
from convo.agents.sdk_run import SDK_PACKAGE, SdkRun, read_sdk_run
from convo.agents.toml import from_tables
from convo.chat.files import read_text_file
from convo.chat.view_loader import AGENTS_SOURCE_KEY
from convo.cli.output import print_notice
from convo.cli.run_options import NONE, REMEMBERED_FIELDS, AgentSource, RunFlags, format_option
from convo.config.paths import make_private_folder
from convo.config.sections import split_mcp_reference
from convo.config.settings import OPENAI_PREFIXES, Settings
from convo.config.values import find_closest_word
from convo.errors import ConvoError, InputFault, InvalidSettings, InvalidUsage, NotFound, StoreFault, Unreadable
from convo.history.canonical import describe_json_error
from convo.history.items import Item, Json
from convo.history.records import AgentRun
from convo.runs.state import RunLimits
from convo.runtime import open_temporary_file, random_id
from convo.stores.base import Store
from convo.tools.tool import NO_VALUES, Hosted, Tool, tool, toolbox


@dataclass(frozen=True, slots=True)
class AgentSetup:
    """The agents of a run and the run's configuration.

    model:                 the model of the first agent
    source:                the options that name the agents or tools
    input_items:           the input that --run-config has
    ignores_agent_models:  whether the models that agents name are replaced by the chat's
    """

    graph: Graph
    run_config: RunConfig
    model: str | None
    source: AgentSource
    input_items: tuple[Item, ...] = ()
    ignores_agent_models: bool = False

    def with_route(self, route: Callable[[str | CustomModel], ModelRoute]) -> "AgentSetup":
        """Return a copy in which `route` resolves the models that agents name."""
        return replace(self, run_config=replace(self.run_config, resolve_model=route))

    async def connect(self, settings: Settings, exit_stack: AsyncExitStack) -> "AgentSetup":
        """Return a copy with the tools of the MCP servers, which stay connected until `exit_stack` is closed.

        Raises the errors of `open_mcp_servers` and `open_tool_servers`.
        """
        graph = self.graph
        if self.source.mcp:
            from convo.chat.endpoint_factory import open_mcp_servers

            servers = open_mcp_servers(self.source.mcp, settings)
            graph = replace(graph, agents={graph.start: replace(graph[graph.start], servers=servers)})
        return replace(self, graph=await open_tool_servers(graph, self.run_config.values, exit_stack))

    def with_context(self, reference: str | None, described: Json) -> "AgentSetup":
        """Return a copy with the application's context: what --context names, else the values of a state.

        Raises the errors of `load_function` and of the context's own code.
        """
        if reference is None:
            return replace(self, run_config=replace(self.run_config, values=described))
        values, serializer = _load_context(reference, described)
        return replace(self, run_config=replace(self.run_config, values=values, context_serializer=serializer))

    def without_agent_models(self) -> "AgentSetup":
        """Return a copy in which every agent uses the chat's model, because the user named one."""
        return replace(
            self,
            graph=_replace_agent_models(self.graph, lambda _: None),
            model=None,
            ignores_agent_models=_has_agent_models(self.graph),
        )

    def with_agents_record(self, session: str, model: str | None, folder: Path) -> "AgentSetup":
        """Return a copy for the runs of one session, with a record of the agents and -m.

        folder:  convo's data folder, which has the key for the record
        """
        record = make_agents_record(self.source, model, session, folder)
        if record and self.run_config.values is not NO_VALUES:
            record = {**record, CONTEXT_TYPE_KEY: type(self.run_config.values).__name__}
        return replace(self, run_config=replace(self.run_config, agents_source=record))

    def format_options(self, model: str) -> str:
        """Return the options that resume a run of these agents; `model` is included if it replaces the agents' models.

        The context is left out if it is restored from the values that a state saved.
        """
        config, source = self.run_config, self.source
        is_remembered = config.agents_source and source.context and restores_context(source.context)
        if isinstance(config.values, Mapping) or is_remembered:
            source = source._replace(context=None)
        return source.options + (f" -m {quote(model)}" if self.ignores_agent_models else "")


def _has_agent_models(graph: Graph) -> bool:
    """Return whether an agent, or an agent that is a tool of one, has a model of its own."""
    agents = graph.agents.values()
    nested_graphs = (tool.graph for agent in agents for tool in agent.tools if isinstance(tool, AgentTool))
    return any(agent.model for agent in agents) or any(map(_has_agent_models, nested_graphs))


def _replace_agent_models(graph: Graph, choose: Callable[[Agent], str | CustomModel | None]) -> Graph:
    """Return the graph with other models of its agents and of the agents that are their tools."""

    def replace_nested(tool: Tool | Hosted) -> Tool | Hosted:
        return replace(tool, graph=_replace_agent_models(tool.graph, choose)) if isinstance(tool, AgentTool) else tool

    return replace(
        graph,
        agents={
            identity: replace(agent, model=choose(agent), tools=tuple(map(replace_nested, agent.tools)))
            for identity, agent in graph.agents.items()
        },
    )


async def load_agent_setup(flags: RunFlags, *, with_context: bool = True) -> AgentSetup:
    """Load the agents and the run configuration that the flags name, and the context unless that of a run follows.

    Raises InvalidUsage, Unreadable, NotFound, InputFault, InvalidSettings or Unsupported.
    """
    source = flags.source
    assert source
    start = await _load_start(source.agent) if source.agent else load_tool_graph(source.tools)
    sdk_run = (
        read_sdk_run(load_named_object(source.run_config, "--run-config"), "--run-config")
        if source.run_config
        else SdkRun()
    )
    graph = start if isinstance(start, Graph) else from_object(start, sdk_run)
    sdk_agents = {} if isinstance(start, Graph) else foreign_agents(start)
    for note in list_ignored_settings(sdk_agents.values(), sdk_run) if sdk_agents else ():
        print_notice(note)
    _note_unused_history_flags(flags, graph)
    run_config = load_run_config(flags, sdk_run)
    if source.run_config and not sdk_agents:
        raise InvalidUsage("--run-config applies to agents of the Agents SDK", hint="leave it out: --run-config none")
    own_filter, sdk_filter = run_config.input_filter, sdk_run.get("call_model_input_filter")
    if own_filter and is_foreign_filter(own_filter, foreign_agents=bool(sdk_agents)):
        sdk_filter, own_filter = own_filter, None
    if sdk_filter and not own_filter:
        run_config = replace(run_config, input_filter=ForeignInputFilter(sdk_filter, sdk_agents))
    if flags.start_agent:
        run_config = replace(run_config, start_agent=_find_agent(flags.start_agent, source, graph))
    model = graph[graph.start].model
    if sdk_agents and isinstance(model, str) and model.removeprefix("openai/").startswith(OPENAI_PREFIXES):
        # In the SDK the other agents do not inherit it. Those of another provider do: its users may have no OpenAI key.
        default_model: str = import_module(f"{SDK_PACKAGE}.models").get_default_model()
        graph = _replace_agent_models(graph, lambda agent: agent.model or default_model)
    setup = AgentSetup(graph, run_config, model if isinstance(model, str) else None, source, tuple(sdk_run.input))
    return setup.with_context(source.context, None) if source.context and with_context else setup


def _find_agent(name: str, source: AgentSource, graph: Graph) -> str:
    """Return the identity of an agent that is named by its name, or by its variable in the file. Raises NotFound."""
    reference = parse_file_reference(source.agent or "", "--agent")
    if name not in graph.agents and reference.file.suffix != ".toml":
        variable = getattr(_load_module(reference, ReferenceSource("--agent")), name, None)
        name = next((identity for identity in graph.agents if identity == getattr(variable, "name", None)), name)
    return graph.find_identity(name)


def load_run_config(flags: RunFlags, sdk_run: SdkRun) -> RunConfig:
    """Build the run configuration from the flags; they replace arguments of `sdk_run`.

    Raises InvalidUsage, Unreadable, NotFound or InputFault.
    """
    max_turns = sdk_run.max_turns if flags.max_turns is None else flags.max_turns
    limits = RunLimits() if max_turns is None else RunLimits(max_turns=max_turns)
    if execution := sdk_run.get("tool_execution"):
        limits = replace(limits, max_parallel_calls=execution.max_function_tool_concurrency or sys.maxsize)
    source, filter_reference, session_input = flags.source, flags.input_filter, sdk_run.get("session_input_callback")
    session_limit = getattr(sdk_run.get("session_settings"), "limit", None)
    return RunConfig(
        limits=limits,
        handoff_defaults=_load_handoff_defaults(flags, sdk_run),
        input_filter=load_function(filter_reference, "--input-filter") if filter_reference else None,
        session_limit=session_limit if flags.session_limit is None else flags.session_limit,
        session_input_callback=session_input and partial(call_session_input, session_input),
        sdk_session=_load_sdk_session(source.sdk_session) if source and source.sdk_session else None,
        format_rejection=make_rejection_formatter(sdk_run),
        open_scratch_store=_open_scratch_store,
    )


def _open_scratch_store() -> Store:
    from convo.stores.factory import open_store

    return open_store("memory")


def _load_handoff_defaults(flags: RunFlags, sdk_run: SdkRun) -> HandoffDefaults:
    """A mapper and markers set the form of nesting; --nest-history and the handoffs set whether it is done."""
    mapper = sdk_run.get("handoff_history_mapper")
    if flags.history_mapper:
        mapper = cast("HistoryMapper", load_function(flags.history_mapper, "--history-mapper"))
    nest = sdk_run.get("nest_handoff_history") if flags.nest_history is None else flags.nest_history
    return HandoffDefaults(nest=bool(nest), mapper=mapper, markers=_parse_history_markers(flags.history_markers))


def _note_unused_history_flags(flags: RunFlags, graph: Graph) -> None:
    """Print a notice if a mapper or markers have no effect, because no handoff nests its history."""
    option = "--history-mapper" if flags.history_mapper else "--history-markers" if flags.history_markers else None
    is_nested = flags.nest_history or any(handoff.nest for agent in graph.agents.values() for handoff in agent.ways)
    if option and not is_nested:
        print_notice(f"{option} has no effect: no handoff nests its history; add --nest-history")


def _parse_history_markers(markers: tuple[str, str] | None) -> HistoryMarkers:
    if markers is None:
        return DEFAULT_HISTORY_MARKERS
    if not all(markers) or markers[0] == markers[1]:
        raise InvalidUsage(
            "--history-markers requires two different values", hint="--history-markers '<HISTORY>' '</HISTORY>'"
        )
    return HistoryMarkers(*markers)


CONTEXT_TYPE_KEY = "context"
"""The member of an agents record with the type of the application's context, which is in the state file alone."""


def _load_sdk_session(reference: str) -> object:
    """Return the session of the Agents SDK that FILE.py:NAME names, or that the function of that name returns.

    Raises InvalidUsage for another object, and the errors of `load_named_object` and of the function's own code.
    """
    session: Any = load_named_object(reference, "--sdk-session")
    if callable(session) and not hasattr(session, "get_items"):
        with translate_user_code_errors(parse_file_reference(reference, "--sdk-session").file):
            session = session()
    if not (hasattr(session, "get_items") and hasattr(session, "add_items")):
        raise InvalidUsage(
            f"--sdk-session {reference!r} is not a session of the Agents SDK",
            hint="name a Session, or a function without arguments that returns one",
        )
    return session


def _load_context(reference: str, described: Json) -> tuple[Any, Callable[[Any], Any] | None]:
    """Load the application's context from a JSON file, or from FILE.py:NAME, an object or a function that returns it.

    described:  the context as a RunState describes it, the argument of the function; may be any JSON value

    The file's own `context_serializer` is returned too; a described context is made by its `context_deserializer`.
    """
    if is_python_reference(reference):
        file, module, context = _load_context_object(reference)
        with translate_user_code_errors(file.file):
            restore = _find_restore(module, context) if described is not None else None
            if restore:
                context = restore(described)
            elif callable(context):
                context = context(None) if inspect.signature(context).parameters else context()
        serializer: Any = getattr(module, "context_serializer", None)

        def serialize(value: Any) -> Any:
            with translate_user_code_errors(file.file):
                return serializer(value)

        return (NO_VALUES if context is None else context), serialize if serializer else None
    try:
        document = json.loads(read_text_file(reference))
    except (ValueError, RecursionError) as error:
        raise Unreadable(f"{reference} is not JSON: {describe_json_error(error)}") from error
    if not isinstance(document, dict):
        raise Unreadable(f"{reference} is not a JSON object", hint='use a file like {"customer": "A1"}')
    return document, None


EXAMPLE_REFERENCE = "support.py:triage"

FIX_FILE_HINT = "fix the file; CONVO_DEBUG=1 shows the traceback"

AGENT_ATTRIBUTES = ("name", "instructions", "tools", "handoffs")
"""Attributes that an agent of every package has; a hint names such an object of the file."""


class FileReference(NamedTuple):
    """A file, or a module as its root and its dotted name, and a name in it; "" for no name.

    root:  a folder whose modules user code can import, after the installed packages; "" for none
    """

    file: Path
    name: str
    root: str = ""

    @property
    def is_module(self) -> bool:
        return self.file.suffix not in FILE_SUFFIXES


FILE_SUFFIXES = (".py", ".toml")

MODULE_NAME = r"[^\W\d]\w*(\.[^\W\d]\w*)*"

ROOT_MARKER = "/./"
"""Follows the root in a stored reference, as in /work/./bots/support.py:triage."""


class ReferenceSource(NamedTuple):
    """The source of a reference: an option or a file.

    folder:  the folder of that file; None for an option
    """

    name: str
    folder: Path | None = None

    def describe(self, reference_text: str) -> str:
        """Format the reference and its source for an error message."""
        return f"{self.name} {reference_text!r}" if self.folder is None else f"{self.name}: {reference_text!r}"

    def format_hint(self, reference_text: str, placeholder: str = "FILE.py:NAME") -> str:
        """Format a hint: the example for an option, `placeholder` for a file."""
        return f"{self.name} {reference_text}" if self.folder is None else f"write {placeholder} in {self.name}"


async def _load_start(reference_text: str) -> object:
    """Load what --agent names: the graph of FILE.toml[:NAME], where NAME is the first agent; else an agent.

    An agent is an object, or made by a function without arguments, which may be async.

    Raises InvalidUsage, Unreadable, NotFound, InputFault, InvalidSettings or Unsupported.
    """
    reference = parse_file_reference(reference_text, "--agent")
    if reference.file.suffix == ".toml":
        return _load_toml_graph(reference)
    loaded = _load_object(reference, ReferenceSource("--agent"))
    if not callable(loaded):
        return loaded
    with translate_user_code_errors(reference.file):
        made = loaded()
        return await made if isawaitable(made) else made


TOOL_AGENT_NAME = "assistant"
"""The name of the agent of a chat with --tool or --mcp: its messages have this role."""


def load_tool_graph(references: Sequence[str]) -> Graph:
    """Load the functions that --tool names, as the tools of one agent without a model and without instructions.

    Raises the errors of `load_named_object`, and InputFault for an object that cannot be a tool.
    """
    tools = tuple(_load_tool(reference) for reference in references)
    toolbox(tools)
    return graph(Agent(TOOL_AGENT_NAME, tools=tools))


def _load_tool(reference_text: str) -> Tool:
    """Load a `Tool`, or make one from a function. Raises the errors of `load_tool_graph`."""
    reference = parse_file_reference(reference_text, "--tool")
    if reference.file.suffix == ".toml":
        raise InvalidUsage(f"--tool {reference_text!r} does not name a .py file", hint="--tool FILE.py:NAME")
    loaded = _load_object(reference, ReferenceSource("--tool"))
    if isinstance(loaded, Tool):
        return loaded
    if not isroutine(loaded):
        raise InputFault(
            f"--tool {reference_text} is neither a function nor a tool", hint="decorate a function with @tool"
        )
    with translate_user_code_errors(reference.file):
        made = tool(loaded)
        if not TOOL_NAME_PATTERN.fullmatch(made.name):
            raise InputFault(f"{made.name!r} is not a name for a tool", hint="define it with def, or @tool(name=...)")
    return made


def load_function(reference_text: str, option: str) -> Callable[..., object]:
    """Return the function that an option names as FILE.py:NAME.

    Raises the errors of `load_named_object`, and InputFault for an object that is not callable.
    """
    function = load_named_object(reference_text, option)
    if not callable(function):
        raise InputFault(
            f"{option} {reference_text} is not a function", hint=f"{option} FILE.py:NAME, where NAME is a function"
        )
    return function


def load_named_object(reference_text: str, option: str) -> object:
    """Return the object that FILE.py:NAME names.

    Raises InvalidUsage, Unreadable, NotFound or InputFault.
    """
    return _load_object(parse_file_reference(reference_text, option), ReferenceSource(option))


def is_python_reference(reference_text: str) -> bool:
    """Return whether the value of an option that takes a file names an object of a Python file instead."""
    file, colon, _ = reference_text.rpartition(":")
    is_module = colon and not file.endswith(".json") and re.fullmatch(MODULE_NAME, file)
    return reference_text.endswith(".py") or file.endswith(".py") or bool(is_module)


def _load_context_object(reference: str) -> tuple[FileReference, ModuleType, Any]:
    context = load_named_object(reference, "--context")
    file = parse_file_reference(reference, "--context")
    return file, import_module(file.file.name) if file.is_module else load_python_file(file.file), context


def _find_restore(module: ModuleType, context: Any) -> Callable[[Any], Any] | None:
    """Return the function that makes the context from the values of a state; None without one."""
    takes_values = callable(context) and inspect.signature(context).parameters
    restore: Callable[[Any], Any] | None = getattr(module, "context_deserializer", context if takes_values else None)
    return restore


def restores_context(reference: str) -> bool:
    """Return whether what --context names is made from the values of a state. Raises the errors of loading it."""
    return is_python_reference(reference) and _find_restore(*_load_context_object(reference)[1:]) is not None


def parse_file_reference(reference_text: str, option: str) -> FileReference:
    """Split FILE:NAME or package.module:NAME. Raises InvalidUsage for a file that is neither Python nor TOML."""
    return _parse_reference(reference_text, ReferenceSource(option))


def _parse_reference(reference_text: str, source: ReferenceSource) -> FileReference:
    file, colon, name = reference_text.rpartition(":")
    if not colon or name.endswith(FILE_SUFFIXES):
        file, name = reference_text, ""
    root, has_root, rest = file.partition(ROOT_MARKER)
    if not (file.endswith(FILE_SUFFIXES) or (name and re.fullmatch(MODULE_NAME, rest if has_root else file))):
        raise InvalidUsage(
            f"{source.describe(reference_text)} does not name a .py or .toml file",
            hint=source.format_hint(EXAMPLE_REFERENCE),
        )
    path, root = os.path.expanduser(file), os.path.abspath(root)
    if not has_root:  # of an absolute file, as of an earlier session, the working folder may be anyone's
        root = "" if os.path.isabs(path) else str(source.folder or os.getcwd())
    return FileReference(Path(os.path.abspath(os.path.join(source.folder or "", path))), name, root)


def _load_object(reference: FileReference, source: ReferenceSource) -> object:
    module = _load_module(reference, source)
    if not reference.name:
        raise InvalidUsage(
            f"{source.name}: the name after {reference.file.name} is missing",
            hint=_suggest_reference(reference, module, source),
        )
    try:
        return getattr(module, reference.name)
    except AttributeError:
        raise NotFound(
            "name",
            reference.name,
            note=f" in {reference.file.name}",
            hint=_suggest_reference(reference, module, source),
        ) from None


def _load_module(reference: FileReference, source: ReferenceSource) -> ModuleType:
    route_user_output_to_stderr()
    if reference.root:
        _LIBRARY_FINDER.search_last(reference.root)
    if reference.is_module:
        return _import_module(reference, source)
    if os.path.isfile(reference.file):  # unlike Path.is_file, False for a folder that may not be searched
        return load_python_file(reference.file)
    raise Unreadable(
        f"{_format_path(reference.file)} is missing or not a file", hint=source.format_hint(EXAMPLE_REFERENCE)
    )


def _suggest_reference(reference: FileReference, module: ModuleType, source: ReferenceSource) -> str:
    """Format a hint: for an option an agent of this file, for a file the nearest name of any kind."""
    if source.name == "--tool":
        return f"--tool {_suggest_tool(reference, module)}"
    closest = find_closest_word(reference.name, [name for name in vars(module) if not name.startswith("_")])
    path = reference.file.name if source.folder is None else os.path.relpath(reference.file, source.folder)
    return source.format_hint(_suggest_agent(reference, module), f"{path}:{closest or 'NAME'}")


def _suggest_tool(reference: FileReference, module: ModuleType) -> str:
    """Return a reference to the tool or function of this file with the nearest name, or to the last one."""
    names = [
        name
        for name, value in vars(module).items()
        if isinstance(value, Tool)
        or (isroutine(value) and value.__module__ == module.__name__ and TOOL_NAME_PATTERN.fullmatch(value.__name__))
    ]
    name = find_closest_word(reference.name, names) or next(reversed(names), "NAME")
    return quote(f"{_format_path(reference.file)}:{name}")


def _suggest_agent(reference: FileReference, module: ModuleType) -> str:
    """Return a reference to an agent in this file."""
    agent_names = [
        name for name, value in vars(module).items() if all(hasattr(value, field) for field in AGENT_ATTRIBUTES)
    ]
    instances = [name for name in agent_names if not isinstance(getattr(module, name), type)]
    return quote(f"{_format_path(reference.file)}:{instances[-1] if instances else 'NAME'}")


def _import_module(reference: FileReference, source: ReferenceSource) -> ModuleType:
    """Import the module of a reference. Raises Unreadable for an unknown one, InputFault for one that fails to run."""
    name = reference.file.name
    try:
        with translate_user_code_errors(reference.file):
            return import_module(name)
    except InputFault as error:
        missing = error.__cause__.name if isinstance(error.__cause__, ModuleNotFoundError) else None
        if missing is None or not f"{name}.".startswith(f"{missing}."):
            raise
        raise Unreadable(
            f"{name!r} is neither a .py or .toml file nor a module in {reference.root} or the installed packages",
            hint=source.format_hint(EXAMPLE_REFERENCE),
        ) from error


@cache
def load_python_file(file: Path) -> ModuleType:
    """Import an existing file as a module, once a process.

    The module has the same name in each process, so that pickles of its objects can be read later.

    Raises InputFault for a file that fails to run; the message names the line.
    """
    name = unused_name = f"convo_file_{re.sub(r'[^0-9A-Za-z_]', '_', file.stem)}"
    for number in count(2):
        if unused_name not in sys.modules:
            break
        unused_name = f"{name}_{number}"
    spec = spec_from_file_location(unused_name, file)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    for folder in reversed(_list_module_folders(file)):
        _LIBRARY_FINDER.search_first(folder)
    sys.modules[unused_name] = module
    try:
        with translate_user_code_errors(file):
            spec.loader.exec_module(module)
    except InputFault:
        del sys.modules[unused_name]
        raise
    finally:
        _LIBRARY_FINDER.install()  # the file may have replaced the finders
    return module


def _list_module_folders(file: Path) -> list[str]:
    """Return the folders in which Python would find the modules of a script: of a link, first that of its target."""
    folder, target_folder = str(file.parent), os.path.dirname(os.path.realpath(file))
    return [folder] if target_folder == os.path.realpath(folder) else [target_folder, folder]


UNUSED_STANDARD_MODULES = frozenset(
    {"chunk", "graphlib", "imaplib", "mailbox", "pipes", "profile", "sched", "shelve", "symtable", "syslog", "trace"}
)
"""Modules of the standard library whose names a user's module may have.

No source of convo, of its libraries or of a module of the standard library that these import contains an import of
them, on Python 3.11 to 3.13. Names that are unusual for a user's module, such as `this`, are left out.
"""


class _LibraryFinder:
    """Finds the standard library and convo's libraries, also if a user's folder has a module of the same name.

    convo imports most libraries late, and all imports of a process share one `sys.path`. The user's folders are those
    of the loaded files and all entries that were added to `sys.path` since.
    """

    def __init__(self) -> None:
        self._library_folders: list[str] | None = None
        self._file_folders: list[str] = []

    @property
    def library_folders(self) -> list[str]:
        """The entries of `sys.path` before the first file was loaded, without the user's folders."""
        return self._library_folders or []

    def search_first(self, folder: str) -> None:
        """Let user code import modules of `folder`, as in a script; they shadow no library that convo imports."""
        if self._library_folders is None:
            self._library_folders = [*sys.path]
        if folder not in self._file_folders or folder not in sys.path:
            sys.path.insert(0, folder)
            self._file_folders.append(folder)
            self._library_folders = [entry for entry in self._library_folders if entry != folder]
        self.install()

    def search_last(self, folder: str) -> None:
        """Let user code import modules of `folder`, after all others."""
        self._library_folders = self._library_folders or [*sys.path]
        if folder not in sys.path:
            sys.path.append(folder)
        self.install()

    def install(self) -> None:
        if self not in sys.meta_path:
            # First: a rich.py beside the user's file was imported in place of the package, and the chat ended.
            sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the library that a user's module would shadow; None for all other modules."""
        if path is not None or self.find_user_module(name) is None:  # a module in a package, or no user's module
            return None
        if name in sys.stdlib_module_names:
            is_library = name not in UNUSED_STANDARD_MODULES
        else:
            is_library = name in _list_library_names()
        return PathFinder.find_spec(name, self._library_folders) if is_library else None

    def find_user_module(self, name: str) -> ModuleSpec | None:
        """Find a module in the user's folders; a folder without __init__.py shadows nothing and is none."""
        libraries = self._library_folders or ()
        spec = PathFinder.find_spec(name, [folder for folder in sys.path if folder not in libraries])
        return spec if spec and spec.loader else None


_LIBRARY_FINDER = _LibraryFinder()

REQUIREMENT = re.compile(r"([\w.-]+)\s*(?:\[([^\]]*)\])?(?:.*extra\s*==\s*['\"]([\w.-]+))?")
"""A requirement of a package: its name, its extras, and the extra that it belongs to."""


@cache
def _list_library_names() -> frozenset[str]:
    """Return the modules of the installed packages that convo requires, directly or not."""
    from importlib.metadata import PackageNotFoundError, distribution

    from convo.installation import DISTRIBUTION, PACKAGES_BY_EXTRA

    pending = [(DISTRIBUTION, ",".join(PACKAGES_BY_EXTRA))]
    visited, names = set[tuple[str, str]](), set[str]()
    while pending:
        package, extras = pending.pop()
        if (package, extras) in visited:
            continue
        visited.add((package, extras))
        with suppress(PackageNotFoundError):
            installed = distribution(package)
            names.update(file.parts[0].partition(".")[0] for file in installed.files or () if file.suffix != ".pth")
            requirements = filter(None, map(REQUIREMENT.match, installed.requires or ()))
            pending += [
                (name, (more_extras or "").replace(" ", ""))
                for name, more_extras, extra in (match.groups() for match in requirements)
                if extra is None or extra in extras.split(",")
            ]
    return frozenset(names)


@contextmanager
def translate_user_code_errors(file: Path) -> Iterator[None]:
    """Run user code, which may raise any exception.

    Raises InputFault for every exception except KeyboardInterrupt; the message names the line.
    """
    try:
        with user_code_scope():
            yield
    except KeyboardInterrupt:
        raise
    # A file may raise SystemExit.
    except BaseException as error:
        hint = error.hint if isinstance(error, ConvoError) and error.hint else _suggest_file_fix(error)
        raise InputFault(_format_user_error(error, file), hint=hint) from error


def _suggest_file_fix(error: BaseException) -> str:
    """Format a hint: to rename a module of the user if another one of that name was imported."""
    module = getattr(error, "obj", None)  # of an AttributeError
    module_name = module.__name__ if isinstance(module, ModuleType) else isinstance(error, ImportError) and error.name
    name = (module_name or "").partition(".")[0]
    own = _LIBRARY_FINDER.find_user_module(name) if name else None
    if own is None or own.origin is None:
        return FIX_FILE_HINT
    if getattr(sys.modules.get(name), "__file__", own.origin) != own.origin:
        reason = f"convo has imported another module named {name!r}"
    elif PathFinder.find_spec(name, _LIBRARY_FINDER.library_folders):
        reason = f"it hides the installed package {name!r}"
    else:
        return FIX_FILE_HINT
    path = Path(own.origin)
    path = path.parent if path.name == "__init__.py" else path
    return f"rename {_format_path(path)}: {reason}"


def _format_user_error(error: BaseException, file: Path) -> str:
    """Format an error with its file and line, as in "support.py:12: NameError: name 'desk' is not defined"."""
    path, line = _locate_error(error, file)
    if isinstance(error, ConvoError):
        message = error.message
    else:
        message = f"{type(error).__name__}: {error.msg}" if isinstance(error, SyntaxError) else format_exception(error)
    return f"{_format_path(path)}:{line}: {' '.join(message.split())}"


def _locate_error(error: BaseException, file: Path) -> tuple[Path, int]:
    """Return the file and line of the last traceback frame below the folder of `file`, but in no library there.

    A folder with the user's file often has a virtual environment, too.
    """
    if isinstance(error, SyntaxError) and error.filename and error.lineno and os.path.isfile(error.filename):
        return Path(error.filename), error.lineno
    folders = _list_module_folders(file)
    libraries = [
        library
        for library in _LIBRARY_FINDER.library_folders
        if library not in folders and any(Path(library).is_relative_to(folder) for folder in folders)
    ]
    frames = [(Path(frame.filename), frame.lineno or 0) for frame in _list_user_frames(error.__traceback__)]
    own_frames = [
        (path, line)
        for path, line in frames
        if any(map(path.is_relative_to, folders)) and not any(map(path.is_relative_to, libraries))
    ]
    return own_frames[-1] if own_frames else (file, 1)


def _list_user_frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(trace) if frame.filename != __file__]


def _format_path(file: Path) -> str:
    relative = os.path.relpath(file)
    return str(file) if relative.startswith("..") else relative


def _load_toml_graph(reference: FileReference) -> Graph:
    """Load the graph of a TOML file; its references are relative to its folder."""
    tables = _read_toml(reference.file)
    if reference.name:
        tables = {**tables, "start": reference.name}
    source = ReferenceSource(_format_path(reference.file), reference.file.parent)
    try:
        return from_tables(
            tables, lambda reference_text: _load_object(_parse_reference(reference_text, source), source)
        )
    except InvalidSettings as error:
        raise InvalidSettings(f"{_format_path(reference.file)}: {error.message}", hint=error.hint) from error


def _read_toml(file: Path) -> dict[str, object]:
    if not os.path.exists(file):
        raise Unreadable(f"{_format_path(file)} does not exist", hint="--agent agents.toml")
    try:
        return tomllib.loads(read_text_file(_format_path(file)))
    except ValueError as error:
        raise InvalidSettings(f"{_format_path(file)} is not TOML: {error}", hint="fix the file") from error


class StdoutRouter:
    """A stdout that writes to stderr while user code runs."""

    def __init__(self, stdout: TextIO) -> None:
        self._out = stdout

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr if IN_USER_CODE.get() else self._out, name)


def route_user_output_to_stderr() -> None:
    """Write the output of user code to stderr from now on."""
    # An agent file that printed put its text in front of the JSON that a script reads.
    if not isinstance(sys.stdout, StdoutRouter):
        sys.stdout = cast(TextIO, StdoutRouter(sys.stdout))


NAME_AGENTS_HINT = "name them with --agent FILE.py:NAME"
NAME_AGENTS_OR_NONE_HINT = f"{NAME_AGENTS_HINT}; or continue without agents: --agent none"

OPTIONS_KEY = "options"
"""The member of an agents record with the values of REMEMBERED_FIELDS."""


class StoredAgents(NamedTuple):
    """The agents, or the tools, of an earlier run.

    source:  with absolute paths
    model:   the value of -m
    """

    source: AgentSource
    model: str | None


def make_agents_record(source: AgentSource, model: str | None, session: str, folder: Path) -> Mapping[str, Json] | None:
    """Build the record of --agent, or of --tool and --mcp, and of -m, for a stored run; None if no key can be stored.

    folder:  convo's data folder, which has the key
    """
    key = _load_user_key(folder, create=True)
    if key is None:
        return None
    fields: dict[str, Json] = {"agent": _to_absolute_reference(source.agent)} if source.agent else {}
    if source.tools:
        fields["tools"] = list(map(_to_absolute_reference, source.tools))
    if source.mcp:
        fields["mcp"] = list(map(_to_absolute_command, source.mcp))
    if source.remembered:
        fields[OPTIONS_KEY] = {name: _to_absolute_option(value) for name, value in source.remembered.items()}
    return {**fields, "model": model, "proof": _compute_proof(key, session, fields, model)}


def _to_absolute_reference(reference_text: str) -> str:
    reference = parse_file_reference(reference_text, "--agent")
    file, root = str(reference.file), reference.root
    if root and file.startswith(f"{root}/") and (reference.is_module or root != str(reference.file.parent)):
        file = root + ROOT_MARKER + file.removeprefix(f"{root}/")
    return f"{file}:{reference.name}" if reference.name else file


def _to_absolute_option(value: str) -> str:
    return _to_absolute_reference(value) if is_python_reference(value) else os.path.abspath(value)


def _to_absolute_command(reference_text: str) -> str:
    """Return an MCP server with the paths of existing files in its command as absolute ones."""
    if not {"/", "."} & {*reference_text}:  # no path
        return reference_text
    name, command = split_mcp_reference(reference_text)
    words = [
        os.path.abspath(word) if {"/", "."} & {*word} and os.path.exists(word) else word
        for word in shlex.split(command)
    ]
    return f"{name}={shlex.join(words)}" if name else shlex.join(words)


def add_stored_options(
    flags: RunFlags, model: str | None, row: AgentRun, folder: Path, note: Callable[[str], None], owner: str = "session"
) -> tuple[RunFlags, str | None]:
    """Return the options and -m; those that were not given are the ones of a stored run, and a note names each.

    folder:  convo's data folder
    owner:   "session" or "run", for messages

    Raises the errors of `load_run_agents`.
    """
    options = _get_stored_options(row.document.get(AGENTS_SOURCE_KEY))
    missing = [name for name in options if getattr(flags, name) is None]
    hint = NAME_AGENTS_OR_NONE_HINT if owner == "session" else NAME_AGENTS_HINT
    if flags.has_source_option:
        if flags.agent == NONE or not missing:
            return flags, model
        hint = f"give {format_option(missing[0])} again, or none: {format_option(missing[0])} none"
    agents = load_run_agents(row, folder, hint)
    if agents is None:
        return flags, model
    if not flags.has_source_option:
        note(f"using this {owner}'s {agents.source.kind}: {agents.source}")
        model = agents.model if model is None else model
    for name in missing:
        note(f"using this {owner}'s {format_option(name)}: {options[name]}")
    return flags.with_source(agents.source), model


def _get_stored_options(record: Json) -> dict[str, Any]:
    """Return the values of REMEMBERED_FIELDS in a record of agents, without those that it does not have."""
    options = record.get(OPTIONS_KEY) if isinstance(record, dict) else None
    return {name: options[name] for name in REMEMBERED_FIELDS if options.get(name)} if isinstance(options, dict) else {}


def load_run_agents(row: AgentRun, folder: Path, hint: str = NAME_AGENTS_HINT) -> StoredAgents | None:
    """Return the agents of one run; None without a record of them.

    Raises InvalidUsage for a record by another user or from another machine, and Unreadable for a missing file.
    """
    record = row.document.get(AGENTS_SOURCE_KEY)
    if not isinstance(record, dict):
        return None
    fields = {name: record[name] for name in ("agent", "tools", "mcp") if name in record}
    agent, tools, mcp = fields.get("agent"), fields.get("tools", []), fields.get("mcp", [])
    if isinstance(agent, str):
        source = AgentSource(agent)
    elif _is_text_list(tools) and _is_text_list(mcp) and (tools or mcp):
        source = AgentSource(tools=tuple(tools), mcp=tuple(mcp))
    else:
        return None
    if options := _get_stored_options(record):
        fields[OPTIONS_KEY], source = options, source._replace(**options)
    model, proof = record.get("model"), record.get("proof")
    key = _load_user_key(folder)
    if (
        key is None
        or not isinstance(proof, str)
        or not hmac.compare_digest(proof.encode(), _compute_proof(key, row.session_id, fields, model).encode())
    ):
        raise InvalidUsage(
            f"the {source.kind} of this session, {source}, were stored by another user or on another machine",
            hint=_name_again_hint(hint, source),
        )
    for reference in (source.agent,) if source.agent else source.tools:
        file = parse_file_reference(reference, "--agent")
        if not file.is_module and not os.path.isfile(file.file):
            raise Unreadable(
                f"the {source.kind} of this session were in {file.file}, which is missing or not a file",
                hint=_name_again_hint(hint, source),
            )
    return StoredAgents(source, model if isinstance(model, str) else None)


def _name_again_hint(hint: str, source: AgentSource) -> str:
    option = "--tool FILE.py:NAME" if source.tools else "--mcp NAME"
    return hint if source.agent else hint.replace("--agent FILE.py:NAME", option).replace("agents", "tools")


def _is_text_list(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _compute_proof(key: bytes, session: str, fields: Mapping[str, Json], model: Json) -> str:
    # Without servers and options in the form of earlier versions.
    files: Json = dict(fields) if {"mcp", OPTIONS_KEY} & {*fields} else next(iter(fields.values()))
    return hmac.new(key, json.dumps([session, files, model]).encode(), sha256).hexdigest()


def _load_user_key(folder: Path, *, create: bool = False) -> bytes | None:
    """Return the key of this user; None if it does not exist, or can be neither read nor created."""
    path = folder / "agents.key"
    try:
        if create and not path.exists():
            handle, temporary = open_temporary_file(make_private_folder(folder))
            with open(handle, "wb") as file:
                file.write(random_id("key").encode())
            try:
                os.link(temporary, path)  # if two processes create it at once, the first key stays
            except FileExistsError:
                pass
            finally:
                os.unlink(temporary)
        return path.read_bytes() or None
    # With PostgreSQL the home folder may be read-only; that must not end a run.
    except (OSError, StoreFault):
        return None
