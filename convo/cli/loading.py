"""From `FILE.py:NAME` and `FILE.toml` to values: agents, filters, mappers.

The file is the person's own and is run as it stands, once a process, with its folder importable as
if it had been started itself. Whatever it raises is told in one sentence with the file and the line;
the traceback is shown to whoever set CONVO_DEBUG.
"""

import os
import sys
import tomllib
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from shlex import quote
from types import ModuleType, TracebackType
from typing import NamedTuple

from convo.agents import Graph, foreign_agents, from_object, from_tables
from convo.cli.apart import divide
from convo.engine.named_file import text_of
from convo.engine.theirs import as_theirs, spoken
from convo.errors import BadSettings, ConvoError, InputFault, NotFound, Unreadable, Usage

EXAMPLE = "support.py:triage"

MEND = "mend the file; CONVO_DEBUG=1 shows the traceback"

AGENT_LIKE = ("name", "instructions", "tools", "handoffs")
"""What an agent of any package has, for a hint that names those in a file."""


class Reference(NamedTuple):
    """A file, and a name in it; "" where none is said."""

    file: Path
    name: str


class Asker(NamedTuple):
    """Where a reference stands: behind an option, or in a file.

    beside:  the folder of that file; None for an option
    """

    name: str
    beside: Path | None = None

    def naming(self, words: str) -> str:
        """How it is said that a reference stands there."""
        return f"{self.name} {words!r}" if self.beside is None else f"{self.name}: {words!r}"

    def to_write(self, words: str, anything: str = "FILE.py:NAME") -> str:
        """What to write instead: an example for an option, what a file says in general."""
        return f"{self.name} {words}" if self.beside is None else f"write {anything} in {self.name}"


def graph_of(words: str) -> Graph:
    """The agents that `--agent` names: FILE.py:NAME, or FILE.toml with a NAME to begin with.

    raises:  Usage, Unreadable, NotFound, InputFault, BadSettings, Unsupported
    """
    found = reference(words, "--agent")
    if found.file.suffix == ".toml":
        return _from_toml(found)
    return from_object(_named(found, Asker("--agent")))


def foreign_agents_of(words: str) -> Mapping[str, object]:
    """The SDK's own agents that `--agent` names, by identity; none where it names others. raises: as `graph_of`"""
    found = reference(words, "--agent")
    return {} if found.file.suffix == ".toml" else foreign_agents(_named(found, Asker("--agent")))


def function_of(words: str, option: str) -> Callable[..., object]:
    """The function that an option names as FILE.py:NAME. raises: as `loaded`; InputFault  it is none"""
    found = loaded(words, option)
    if not callable(found):
        raise InputFault(f"{option} {words} is no function", hint=f"{option} FILE.py:NAME, of something to call")
    return found


def made_by(words: str, option: str, *given: object) -> object:
    """What the function that an option names as FILE.py:NAME returns. raises: as `function_of`; InputFault"""
    function = function_of(words, option)
    with theirs(reference(words, option).file):
        return function(*given)


def loaded(words: str, option: str) -> object:
    """What FILE.py:NAME names. raises: Usage, Unreadable, NotFound, InputFault"""
    return _named(reference(words, option), Asker(option))


def reads_python(words: str) -> bool:
    """Whether an option that takes a file names something in a Python file instead."""
    return words.endswith(".py") or words.rpartition(":")[0].endswith(".py")


def reference(words: str, option: str) -> Reference:
    """The two parts of FILE:NAME. raises: Usage  it is no Python and no TOML"""
    return _parts(words, Asker(option))


def _parts(words: str, asker: Asker) -> Reference:
    file, colon, name = words.rpartition(":")
    if not colon or name.endswith((".py", ".toml")):
        file, name = words, ""
    if not file.endswith((".py", ".toml")):
        raise Usage(f"{asker.naming(words)} does not say which file", hint=asker.to_write(EXAMPLE))
    return Reference(Path(os.path.abspath(os.path.join(asker.beside or "", os.path.expanduser(file)))), name)


def _named(found: Reference, asker: Asker) -> object:
    divide()
    if not found.file.is_file():
        raise Unreadable(f"{_shown(found.file)} is not there, or is no file", hint=asker.to_write(EXAMPLE))
    module = run_file(found.file)
    if not found.name:
        raise Usage(
            f"{asker.name} does not say which name in {found.file.name} it means", hint=_other(found, module, asker)
        )
    try:
        return getattr(module, found.name)
    except AttributeError:
        raise NotFound(f"name in {found.file.name}", found.name, hint=_other(found, module, asker)) from None


def _other(found: Reference, module: ModuleType, asker: Asker) -> str:
    """A reference into this file that could have been meant; a file refers to more than agents."""
    near = get_close_matches(found.name, [name for name in vars(module) if not name.startswith("_")], n=1)
    place = found.file.name if asker.beside is None else os.path.relpath(found.file, asker.beside)
    return asker.to_write(_first(found, module), f"{place}:{near[0] if near else 'NAME'}")


def _first(found: Reference, module: ModuleType) -> str:
    """A reference to an agent in this file."""
    agents = [name for name, value in vars(module).items() if all(hasattr(value, field) for field in AGENT_LIKE)]
    named = [name for name in agents if not isinstance(getattr(module, name), type)]
    return quote(f"{_shown(found.file)}:{named[-1] if named else 'NAME'}")


@cache
def run_file(file: Path) -> ModuleType:
    """The module that a file is; it is run the first time.

    file:    one that is there
    raises:  InputFault  it cannot be run; the sentence names the line
    """
    name = f"convo_file_{file.stem}_{len(sys.modules)}"
    spec = spec_from_file_location(name, file)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    sys.modules[name] = module
    try:
        with theirs(file):
            spec.loader.exec_module(module)
    except InputFault:
        del sys.modules[name]
        raise
    return module


@contextmanager
def theirs(file: Path) -> Iterator[None]:
    """Run what is somebody's own and may raise anything. raises: InputFault  it did; the sentence names the line"""
    try:
        with as_theirs():
            yield
    except KeyboardInterrupt:
        raise
    except BaseException as wrong:
        mend = wrong.hint if isinstance(wrong, ConvoError) and wrong.hint else MEND
        raise InputFault(_told(wrong, file), hint=mend) from wrong


def _told(wrong: BaseException, file: Path) -> str:
    """Where it went wrong, and what: "support.py:12: NameError: name 'desk' is not defined"."""
    at, line = _place(wrong, file)
    if isinstance(wrong, ConvoError):
        said = wrong.message
    else:
        said = f"{type(wrong).__name__}: {wrong.msg}" if isinstance(wrong, SyntaxError) else spoken(wrong)
    return f"{_shown(at)}:{line}: {' '.join(said.split())}"


def _place(wrong: BaseException, file: Path) -> tuple[Path, int]:
    """The last line beside the file that the error passed through."""
    if isinstance(wrong, SyntaxError) and wrong.filename and wrong.lineno:
        return Path(wrong.filename), wrong.lineno
    frames = [(Path(frame.filename), frame.lineno or 0) for frame in _frames(wrong.__traceback__)]
    beside = [(path, line) for path, line in frames if path.is_relative_to(file.parent)]
    return beside[-1] if beside else (file, 1)


def _frames(trace: TracebackType | None) -> list[traceback.FrameSummary]:
    return [frame for frame in traceback.extract_tb(trace) if frame.filename != __file__]


def _shown(file: Path) -> str:
    near = os.path.relpath(file)
    return str(file) if near.startswith("..") else near


def _from_toml(found: Reference) -> Graph:
    """The graph of a TOML file; what it refers to lies beside it."""
    tables = _tables(found.file)
    if found.name:
        tables = {**tables, "start": found.name}
    asker = Asker(_shown(found.file), found.file.parent)
    try:
        return from_tables(tables, lambda words: _named(_parts(words, asker), asker))
    except BadSettings as wrong:
        raise BadSettings(f"{_shown(found.file)}: {wrong.message}", hint=wrong.hint) from wrong


def _tables(file: Path) -> dict[str, object]:
    if not file.exists():
        raise Unreadable(f"{_shown(file)} is not there", hint="--agent agents.toml")
    try:
        return tomllib.loads(text_of(_shown(file)))
    except ValueError as wrong:
        raise BadSettings(f"{_shown(file)} is not TOML: {wrong}", hint="mend the file") from wrong
