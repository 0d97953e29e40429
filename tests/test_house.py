"""The house stands as DESIGN.md draws it.

The tables below are the design: which package stands on which, which modules of a seam others may
know, what is heavy and where it may be loaded, what a decision may not touch. An exception is a row
with its reason. Every rule is also tried on a line that breaks it. What holds for each file by
itself stands in `tests/test_files.py`.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator

import pytest

from convo.cli.commands import COMMANDS
from tests.house import Import, Module, modules
from tests.running import ROOT

ROWS = (
    ("__main__",),
    ("cli",),
    ("ui", "gateway"),
    ("pages", "transfer"),
    ("engine",),
    ("endpoints",),
    ("models", "stores"),
    ("runstate",),
    ("run", "strategies", "compaction", "handoffs", "inspection"),
    ("agents", "tools", "tokens"),
    ("history",),
    ("items",),
    ("errors", "clock", "config", "ids", "notices", "processes", "temporary"),
)
"""From the roof to the ground. A package imports from the rows below its own, and from itself."""

BESIDE = {
    ("config", "errors"): "settings that cannot be used are an error with a name",
    ("config", "notices"): "a project file that is ignored is a notice",
    ("config", "temporary"): "model lists are written into a temporary file first",
    ("temporary", "processes"): "the name of a temporary file says which process made it",
    ("strategies", "compaction"): "going back ends at a compaction",
    ("run", "handoffs"): "a call of a run is a tool's, or hands over in the words that handoffs have for it",
    ("agents", "tools"): "an agent carries its tools, and says its output as a tool says its arguments",
}
"""Imports within a row."""

SEAMS = {
    "endpoints": {"contract", "errors"},
    "models": {
        *("contract", "account", "bodies", "catalogue", "sealed", "stream", "foreign", "ignored", "limited", "line"),
        "turns",
    },
    "stores": {"contract", "condition", "forms", "leasing", "rules", "terms", "upkeep", "verbatim"},
}
"""What a seam's own modules, and the rows above, may know of it: its contract and what all its sides share.

Every other module there is a concrete one, known to `open` alone and to its own family (`chat`,
`chat_request`, `chat.parts`). `open` is known to the command line and to another seam's `open`.
"""

STANDS_ON = {
    ("models", "local", "chat"): "the local engine speaks chat completions over its socket",
}
"""Families of a seam that are made of another one."""

CONTRACTS_ONLY = {"engine", "gateway"}
"""Packages that know of a seam its contract, and what works against the contract alone."""

ON_CONTRACTS = {"leasing", "errors"}
"""Modules of a seam that work against its contract alone, whichever side they are given."""

HEAVY = {
    "aiohttp": (),
    "anthropic": (),
    "cryptography": (),
    "httpx2": (),
    "markdown_it": ("convo.ui.markdown",),
    "keyring": (),
    "openai": ("convo.endpoints.remote",),
    "prompt_toolkit": ("convo.ui.editor",),
    "psycopg": ("convo.stores.postgres",),
    "pydantic": (),
    "pygments": ("convo.ui.markdown",),
    "rich": (),
    "sqlite3": ("convo.stores.sqlite",),
    "prometheus_client": ("convo.gateway",),
    "starlette": ("convo.gateway",),
    "toktok": (),
    "tomlkit": (),
    "uvicorn": ("convo.gateway",),
    "xllamacpp": (),
    "typer": ("convo.cli",),
}
"""What takes long to import, and the modules that may do so as they are loaded: those that are loaded late."""

DECISIONS = {"items", "history", "tools", "run", "strategies", "compaction", "handoffs", "inspection", "runstate"}
"""Plain functions over frozen values: no clock, no chance, no files, no waiting."""

EFFECTS = {
    *("asyncio", "concurrent", "contextvars", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets"),
    *("select", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time"),
    *("urllib.request", "uuid", "warnings"),
    *("convo.clock", "convo.ids", "convo.processes", "convo.temporary"),
}

IN_MEMORY = {("convo.items.partial", "io"): "StringIO: adding each piece to a string would copy all before it"}
"""A module with effects that is used for what touches nothing outside."""

CHANCE = {"time", "random", "secrets"}

HANDED_IN = {
    "convo.clock": "this is what is handed in",
    "convo.ids": "this is what is handed in",
    "convo.cli.checkup": "all checks share the seconds that a person waits",
    "convo.cli.fetching": "the seconds that a download has taken are for whoever waits",
    "convo.endpoints.embedded.sealing": "a key that nobody chose",
    "convo.gateway.keys": "a key that nobody chose",
    "convo.models.local.child": "a key that nobody chose",
    "convo.models.local.weights": "the age of a folder that another process left",
    "convo.stores.memory.store": "a database has a clock of its own",
    "convo.stores.sqlite.checking": "the seconds that a person waits for the quick check of a file",
    "convo.stores.sqlite.database": "a thread waits for a lock, and no loop runs in it",
    "convo.temporary": "the age of a file that another machine left",
    "convo.ui.listing": "the day and hour of a time that it was given",
    "convo.ui.tree": "the day and hour of a time that it was given",
}
"""Who takes time and chance from the machine; everybody else takes what it is given."""

EFFECTFUL_CALLS = {"breakpoint", "exec", "eval", "input", "open", "print"}

EFFECTFUL_METHODS = {"now", "today", "utcnow", "read_text", "read_bytes", "write_text", "write_bytes"}


def package(module: str) -> str:
    """The package of ours that `module` belongs to: `items` for `convo.items.kinds`; empty for `convo` itself."""
    return module.split(".")[1] if "." in module else ""


def is_ours(module: str) -> bool:
    return module == "convo" or module.startswith("convo.")


def row(module: str) -> int:
    """How far below the roof `module` stands; `convo` itself holds the version and carries everything."""
    name = package(module)
    return next((depth for depth, names in enumerate(ROWS) if name in names), len(ROWS))


def within(module: str, roots: Iterable[str]) -> bool:
    """Whether `module` is one of `roots`, below one, or of one's family (`a.chat_parts` for `a.chat`)."""
    return any(module == root or module.startswith((f"{root}.", f"{root}_")) for root in roots)


def child(module: str) -> str:
    """`chat_request` for `convo.models.chat_request`; empty for the package itself."""
    parts = module.split(".")
    return parts[2] if len(parts) > 2 else ""


def family(module: str) -> str:
    """`chat` for `convo.models.chat_request` and for `convo.models.chat.parts`."""
    return child(module).split("_")[0]


# -- the rules: each yields what it has against a module -------------------------------------------


def undrawn(module: Module) -> Iterator[str]:
    if package(module.name) and row(module.name) == len(ROWS):
        yield f"{module.name} stands in no row"


def upward(module: Module) -> Iterator[str]:
    for found in ours(module):
        if row(found.target) < row(module.name):
            yield f"{found}, which stands above it"


def sideways(module: Module) -> Iterator[str]:
    for found in ours(module):
        pair = package(module.name), package(found.target)
        if row(found.target) == row(module.name) and pair[0] != pair[1] and pair not in BESIDE:
            yield f"{found}, which stands beside it"


def past_a_contract(module: Module) -> Iterator[str]:
    for found in ours(module):
        if not may_know(module.name, found.target):
            yield f"{found}, which is no contract"


def may_know(importer: str, target: str) -> bool:
    seam, known = package(target), child(target)
    if seam not in SEAMS or known in ("", "contract"):
        return True
    if known in SEAMS[seam]:
        return package(importer) not in CONTRACTS_ONLY or known in ON_CONTRACTS
    if known == "open":
        return package(importer) == "cli" or child(importer) == "open"
    if package(importer) != seam:
        return False
    pair = family(importer), family(target)
    return child(importer) == "open" or pair[0] == pair[1] or (seam, *pair) in STANDS_ON


def heavy_at_start(module: Module) -> Iterator[str]:
    for found in module.imports:
        top = found.target.split(".")[0]
        if found.at_start and top in HEAVY and not within(module.name, HEAVY[top]):
            yield f"{found} as it is loaded"


def one_command_in_another(module: Module) -> Iterator[str]:
    commands = {entry.module for entry in COMMANDS.values()}
    for found in ours(module):
        if found.target in commands:
            yield f"{found}, which is a command"


def effects_in_a_decision(module: Module) -> Iterator[str]:
    if package(module.name) not in DECISIONS:
        return
    touched = (found for found in module.imports if (module.name, found.target) not in IN_MEMORY)
    yield from (str(found) for found in touched if within(found.target, EFFECTS))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith):
            yield f"{module.name}:{node.lineno} waits"
        elif isinstance(node, ast.Call) and has_effect(node.func):
            yield f"{module.name}:{node.lineno} calls {ast.unparse(node.func)}"


def time_of_its_own(module: Module) -> Iterator[str]:
    if module.name not in HANDED_IN:
        yield from (str(found) for found in module.imports if found.target.split(".")[0] in CHANCE)


def has_effect(called: ast.expr) -> bool:
    named = isinstance(called, ast.Name) and called.id in EFFECTFUL_CALLS
    return named or (isinstance(called, ast.Attribute) and called.attr in EFFECTFUL_METHODS)


def ours(module: Module) -> Iterator[Import]:
    return (found for found in module.imports if is_ours(found.target))


Rule = Callable[[Module], Iterator[str]]

RULES: tuple[Rule, ...] = (
    undrawn,
    upward,
    sideways,
    past_a_contract,
    heavy_at_start,
    one_command_in_another,
    effects_in_a_decision,
    time_of_its_own,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_module_breaks_a_rule_of_the_house(rule: Rule) -> None:
    complaints = "\n".join(complaint for module in modules() for complaint in rule(module))
    assert complaints == ""


BROKEN = [
    (undrawn, "convo.helpers", ""),
    (upward, "convo.items.kinds", "import convo.history"),
    (upward, "convo.items.kinds", "def f():\n    from convo.engine import turn"),
    (upward, "convo.errors", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from convo.items import Item"),
    (sideways, "convo.models.chat", "from convo.stores.contract import Store"),
    (sideways, "convo.strategies.sending", "import convo.run.machine"),
    (sideways, "convo.errors", "import convo.config"),
    (past_a_contract, "convo.cli.chat", "import convo.stores.sqlite"),
    (past_a_contract, "convo.stores.memory", "import convo.stores.sqlite"),
    (past_a_contract, "convo.stores.contract", "import convo.stores.open"),
    (past_a_contract, "convo.engine.turn", "import convo.models.stream"),
    (past_a_contract, "convo.engine.turn", "import convo.endpoints.open"),
    (heavy_at_start, "convo.ui.prompt", "from prompt_toolkit import PromptSession"),
    (heavy_at_start, "convo.cli.chat", "class A:\n    import openai.types"),
    (heavy_at_start, "convo.ui.answer", "try:\n    import rich.markdown\nexcept ImportError:\n    pass"),
    (effects_in_a_decision, "convo.strategies.sending", "import time"),
    (effects_in_a_decision, "convo.items.text", "from os import environ"),
    (effects_in_a_decision, "convo.history.tree", "async def f(): ..."),
    (effects_in_a_decision, "convo.history.tree", "datetime.now()"),
    (effects_in_a_decision, "convo.history.tree", "open('x')"),
    (effects_in_a_decision, "convo.history.tree", "from convo.clock import SystemClock"),
    (time_of_its_own, "convo.engine.turn", "def f():\n    from time import monotonic"),
]


@pytest.mark.parametrize(("rule", "name", "source"), BROKEN)
def test_a_rule_is_broken_by_a_line_that_it_forbids(rule: Rule, name: str, source: str) -> None:
    assert len(list(rule(Module(name, source)))) == 1


KEPT = [
    (upward, "convo.history.tree", "import convo.items"),
    (sideways, "convo.config", "from convo.errors import BadSettings"),
    (past_a_contract, "convo.models.chat", "import convo.models.chat_request"),
    (past_a_contract, "convo.stores.open", "import convo.stores.sqlite"),
    (past_a_contract, "convo.endpoints.open", "import convo.stores.open"),
    (past_a_contract, "convo.cli.chat", "import convo.endpoints.open"),
    (past_a_contract, "convo.engine.turn", "from convo.stores.contract import Store"),
    (heavy_at_start, "convo.endpoints.remote", "import openai"),
    (heavy_at_start, "convo.ui.prompt", "def f():\n    import prompt_toolkit"),
    (effects_in_a_decision, "convo.engine.turn", "import time"),
    (time_of_its_own, "convo.engine.turn", "from convo.clock import Clock"),
    (effects_in_a_decision, "convo.history.tree", "import oscillator"),
]


@pytest.mark.parametrize(("rule", "name", "source"), KEPT)
def test_a_rule_is_kept_by_a_line_that_it_allows(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module(name, source))) == []


def test_a_row_beside_another_is_still_needed() -> None:
    """An exception that nobody uses any more is taken out of the table."""
    used = {(package(module.name), package(found.target)) for module in modules() for found in ours(module)}
    standing = {package(module.name) for module in modules()}
    assert {pair for pair in BESIDE if set(pair) <= standing} <= used


def test_the_readme_maps_every_package_and_each_stands_on_those_before_it() -> None:
    """So that the map can be read from its first row to its last."""
    cells = re.findall(r"^\| ((?:`\w+` ?)+)\| ", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE)
    mapped = [(name, depth) for depth, cell in enumerate(cells) for name in re.findall(r"\w+", cell)]
    depths = dict(mapped)
    pairs = {(package(module.name), package(found.target)) for module in modules() for found in ours(module)}

    assert sorted(name for name, _ in mapped) == sorted(
        {package(module.name) for module in modules()} - {"", "__main__"}
    )
    assert [pair for pair in pairs if set(pair) <= set(depths) and depths[pair[0]] < depths[pair[1]]] == []


def test_whoever_may_take_time_from_the_machine_still_does() -> None:
    takers = {module.name for module in modules() for found in module.imports if found.target.split(".")[0] in CHANCE}
    assert takers == set(HANDED_IN)
