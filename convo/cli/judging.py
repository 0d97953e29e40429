"""What `convo doctor` makes of what it saw: for each check one plain function from facts to a finding.

Facts are values without secrets: the name of a variable and never what it holds, a URL without its
password. What stands in the way first is told first, with one next step.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from convo.cli.judging_store import EPHEMERAL
from convo.config import Choice, Serve
from convo.config.secret import names_a_variable
from convo.config.trust import ProjectNotice
from convo.ui.findings import Finding, fault, ok, warning
from convo.ui.medium import Medium

# -- this process ---------------------------------------------------------------------------------


class Versions(NamedTuple):
    convo: str
    python: str
    system: str


def versions(seen: Versions) -> Finding:
    return ok(f"{seen.convo}, Python {seen.python}, {seen.system}")


class SettingSources(NamedTuple):
    """places: the files, variables and flags that set something; notice: what is ignored of a project's file"""

    places: Sequence[str]
    notice: ProjectNotice | None = None


def settings(seen: SettingSources) -> Finding:
    if seen.notice:
        return warning(seen.notice.summary, seen.notice.hint)
    places = ", ".join(seen.places)
    return ok(places or "no file and no variable sets anything; all values are defaults")


class Folders(NamedTuple):
    """`open_to_others`: those that somebody else on this machine may look into."""

    paths: Sequence[Path]
    open_to_others: Sequence[Path] = ()


def folders(seen: Folders) -> Finding:
    if seen.open_to_others:
        named = " ".join(map(str, seen.open_to_others))
        return warning(f"other users of this machine may look into {named}", f"chmod 700 {named}")
    return ok(f"{', '.join(map(str, seen.paths))} can be written")


class Terminal(NamedTuple):
    """`out`: what stdout can show; `named`: what TERM says; `encoding`: of stdout."""

    out: Medium
    named: str
    encoding: str


NARROW = 40
"""Columns below which screens are cut."""


def terminal(seen: Terminal) -> Finding:
    if not seen.out.boxes:
        return warning(
            f"its encoding is {seen.encoding}: other characters are spelled out",
            "export LC_ALL=C.UTF-8, or PYTHONUTF8=1",
        )
    if seen.out.width is None:
        return ok("stdout is no terminal: plain text, nothing cut, no colour")
    if seen.out.width < NARROW:
        return warning(f"it has {seen.out.width} columns; tables are cut", f"make it {NARROW} columns wide, or more")
    colour = "colour" if seen.out.colour else "no colour (NO_COLOR, or TERM is dumb)"
    return ok(f"{seen.named or 'TERM is not set'}, {seen.out.width} columns, {colour}, {seen.encoding}")


class Extras(NamedTuple):
    """lacking: by extra the packages that are not here; wanted: extras for which somebody set a key"""

    lacking: Mapping[str, Sequence[str]]
    wanted: frozenset[str] = frozenset()


def extras(seen: Extras) -> Finding:
    missing = [extra for extra, packages in seen.lacking.items() if packages]
    here = [extra for extra in seen.lacking if extra not in missing]
    said = [f"installed: {', '.join(here) or 'none'}", *([f"not installed: {', '.join(missing)}"] if missing else [])]
    if needed := [extra for extra in missing if extra in seen.wanted]:
        return warning(f"{', '.join(needed)} has a key and is not installed", _pip(needed))
    return ok("; ".join(said), _pip(missing) if missing else "")


def _pip(wanted: Sequence[str]) -> str:
    return f"pip install 'convo-state[{','.join(wanted)}]'"


# -- models ---------------------------------------------------------------------------------------


class Key(NamedTuple):
    """place: the variable, the file or the keyring that has it, else the variable that would

    unusable: why a key that is set cannot be one, in words; exposed: other users may read its file
    """

    provider: str
    place: str
    is_set: bool
    unusable: str = ""
    exposed: bool = False


def keys(found: Sequence[Key]) -> Finding:
    for key in found:
        if key.unusable:
            return fault(key.unusable, _again(key))
    if exposed := [key.place for key in found if key.exposed]:
        named = " ".join(exposed)
        return warning(f"other users of this machine may read the key in {named}", f"chmod 600 {named}")
    here = [f"{key.place} ({key.provider})" for key in found if key.is_set]
    away = [f"{key.place} ({key.provider})" for key in found if not key.is_set]
    return ok(f"set: {', '.join(here) or 'none'}; not set: {', '.join(away) or 'none'}")


def _again(key: Key) -> str:
    if names_a_variable(key.place):
        return f"export {key.place}=... again, as the provider shows it"
    return f"convo config key set {key.provider}{' --file' if os.sep in key.place else ''}"


def model(choice: Choice) -> Finding:
    """`choice`: one that can be used as far as that is known without asking anybody."""
    owner = "its provider" if choice.provider.endpoint == "remote" else "convo"
    return ok(f"{choice.name} ({choice.origin}); {owner} keeps the state of chains and conversations")


class Local(NamedTuple):
    """The built-in model: whether its engine is here, and the file of its weights."""

    engine: bool
    weights: Path | None


def local(seen: Local) -> Finding:
    if not seen.engine:
        return warning("the engine of local models, xllamacpp, is not installed", "pip install xllamacpp")
    if seen.weights is None:
        return warning("the weights of the built-in model are not here", "convo models pull")
    return ok(f"{seen.weights}, ready to answer without a key and without a network")


class Ollama(NamedTuple):
    """wanted: its models that are in use; failed: why it gave no list; chosen: the default model is one of them"""

    url: str
    wanted: Sequence[str]
    models: Sequence[str] = ()
    failed: str = ""
    chosen: bool = False


def ollama(seen: Ollama | None) -> Finding:
    if seen is None:
        return ok("not in use: no model and no alias names it")
    if seen.failed:
        verdict = fault if seen.chosen else warning
        return verdict(seen.failed, "ollama serve, or set OLLAMA_HOST to where it runs")
    here = {name.removesuffix(":latest") for name in seen.models}
    if away := [name for name in seen.wanted if name.removesuffix(":latest") not in here]:
        return warning(f"Ollama at {seen.url} does not have {', '.join(away)}", f"ollama pull {away[0]}")
    return ok(f"Ollama answers at {seen.url}")


class Reached(NamedTuple):
    """A provider's server; failed: why it could not be reached, in words"""

    provider: str
    failed: str = ""


def network(seen: Sequence[Reached]) -> Finding:
    if failed := [one.failed for one in seen if one.failed]:
        return fault("; ".join(failed), "check the network, HTTPS_PROXY and the base URL; -m local needs none of them")
    named = ", ".join(one.provider for one in seen)
    return ok(f"{named} can be reached" if seen else "no provider with a key, or in use, is anywhere else")


# -- serving --------------------------------------------------------------------------------------


class Served(NamedTuple):
    """lacking: packages that it needs; exposed: other machines reach its address; keys: how many its file has"""

    serve: Serve
    exposed: bool
    lacking: Sequence[str] = ()
    keys: int | None = None


def serve(seen: Served) -> Finding:
    where = f"{seen.serve.host}, port {seen.serve.port}"
    if seen.exposed and seen.keys is None:
        return fault(
            f"{where} lets other machines in, and there are no keys",
            'convo serve --new-key NAME, then [serve] keys_file; or host = "127.0.0.1"',
        )
    if seen.keys == 0:
        return fault(f"{seen.serve.keys_file} has no key in it: nobody may ask", "convo serve --new-key NAME")
    if seen.lacking:
        return ok(f"not installed: it needs {', '.join(seen.lacking)}", _pip(["serve"]))
    who = f"whoever has one of {seen.keys} keys" if seen.keys else "this machine alone, without a key"
    return ok(f"{where}, for {who}")


class Seal(NamedTuple):
    """variable: the one whose value would seal; is_set: whether it does; kind: of the store"""

    variable: str
    is_set: bool
    kind: str


def seal(seen: Seal) -> Finding:
    if seen.is_set:
        return ok(f"compacted windows are sealed with {seen.variable}, which all replicas must have alike")
    if seen.kind in EPHEMERAL:
        return ok(
            f"compacted windows are sealed with a key that ends with the process ({seen.variable} is not set)",
            f"export {seen.variable}=..., where they are to outlast a restart",
        )
    return ok("compacted windows are sealed with the store's own key, which whoever shares the store shares")
