"""The layers of the package, and the rules for imports.

The tables define the architecture: the packages that a package may import, the implementations that only a
factory may import, the libraries that are imported late, and the effects that decisions must not have. An
exception is a row with its reason. Each rule is also tested with a line that breaks it. The rules for single
files are in `tests/test_files.py`.
"""

import ast
from collections.abc import Callable, Iterable, Iterator
from graphlib import CycleError, TopologicalSorter

import pytest

from convo.cli.agent_options import UNUSED_STANDARD_MODULES
from tests.source_modules import Import, Module, modules, walk_statements

LAYERS = (
    ("__main__",),
    ("cli",),
    ("api",),
    ("terminal", "server"),
    ("transfer", "agent_runner"),
    ("chat",),
    ("responses_api",),
    ("endpoints", "runstate", "recording"),
    ("runs", "lint"),
    ("prompt_cache",),
    ("inspect",),
    ("models", "stores", "agents", "compaction"),
    ("tools", "usage", "strategies"),
    ("history", "config"),
    ("errors", "installation", "runtime", "report", "secrets"),
)
"""From top to bottom. A package may import itself and packages of lower layers."""

IMPLEMENTATIONS = {
    "convo.stores.memory": {"convo.stores.factory"},
    "convo.stores.postgres": {"convo.stores.factory"},
    "convo.stores.sqlite": {"convo.stores.factory", "convo.stores.memory"},
    "convo.stores.factory": {"convo.api", "convo.chat.endpoint_factory", "convo.cli"},
    "convo.models.anthropic": {"convo.models.factory"},
    "convo.models.chat_completions": {"convo.models.factory", "convo.models.local"},
    "convo.models.chat_messages": {"convo.models.chat_completions", "convo.models.local"},
    "convo.models.local": {"convo.models.factory"},
    "convo.models.responses": {"convo.models.factory"},
    "convo.models.scripted": {"convo.models.factory"},
    "convo.models.factory": {"convo.chat.endpoint_factory", "convo.cli"},
    "convo.endpoints.remote": {"convo.chat.endpoint_factory"},
    "convo.responses_api": {"convo.chat.endpoint_factory"},
    "convo.chat.endpoint_factory": {"convo.api", "convo.cli"},
}
"""Stores, models and endpoints, and the modules that may import them; all others import only the protocol."""

HEAVY = {
    "aiohttp": (),
    "anthropic": (),
    "cryptography": (),
    "httpx2": (),
    "keyring": (),
    "markdown_it": ("convo.terminal.markdown", "convo.server.markdown_nodes"),
    "mcp": (),
    "openai": ("convo.endpoints.remote",),
    "prometheus_client": ("convo.server",),
    "prompt_toolkit": (
        "convo.terminal.line_editor",
        "convo.terminal.picker",
        "convo.terminal.request_browser",
    ),
    "psycopg": ("convo.stores.postgres",),
    "pydantic": (),
    "python_multipart": (),
    "pygments": ("convo.terminal.markdown",),
    "rich": ("convo.terminal.markdown",),
    "sqlite3": ("convo.stores.sqlite",),
    "starlette": ("convo.server",),
    "toktok": (),
    "tomlkit": (),
    "typer": ("convo.cli",),
    "uvicorn": ("convo.server",),
    "xllamacpp": (),
    "yaml": (),
}
"""Libraries with slow imports, and the modules that may import them at the top; others import them in functions."""

DECISIONS = {"history", "tools", "runs", "strategies", "compaction", "inspect", "lint", "prompt_cache", "runstate"}
"""Packages whose functions have no effects: no clock, no randomness, no files, no await."""

EFFECTS = {
    *("asyncio", "concurrent", "contextvars", "io", "logging", "multiprocessing", "os", "pathlib", "random", "secrets"),
    *("select", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading", "time"),
    *("urllib.request", "uuid", "warnings"),
    "convo.runtime",
}

IN_MEMORY = {("convo.history.accumulator", "io"): "StringIO: adding each piece to a string would copy all before it"}
"""Modules with effects, from which a decision imports a part without effects."""

CLOCKS = {"time", "random", "secrets"}

READS_CLOCK = {
    "convo.runtime": "the clock and the ids that the others are given",
    "convo.cli.doctor": "all checks share one time limit",
    "convo.responses_api.encryption": "a random key",
    "convo.responses_api.mcp_process": "a process of its own: the time limit between two signals",
    "convo.server.auth": "a random key",
    "convo.server.inspector_approvals": "a random key",
    "convo.models.local_process": "a random key",
    "convo.models.weights": "the age of a folder that another process left",
    "convo.stores.sqlite.check": "the time limit of the quick check",
    "convo.stores.sqlite.connection": "a thread waits for a lock, and no event loop runs in it",
    "convo.terminal.list_views": "formats a time that it was given",
    "convo.terminal.inspect_view": "formats a time that it was given",
    "convo.terminal.request_browser": "formats a time that it was given",
}
"""Modules that read the clock or create random values; all others get both as arguments."""

EFFECTFUL_CALLS = {"breakpoint", "exec", "eval", "input", "open", "print"}

EFFECTFUL_METHODS = {"now", "today", "utcnow", "read_text", "read_bytes", "write_text", "write_bytes"}


def package_of(module: str) -> str:
    """`history` for `convo.history.items`; empty for `convo` itself."""
    return module.split(".")[1] if "." in module else ""


def layer_of(module: str) -> int:
    """The index in `LAYERS`, 0 for the top; `convo` itself, which defines the version, is below all layers."""
    name = package_of(module)
    return next((depth for depth, names in enumerate(LAYERS) if name in names), len(LAYERS))


def is_within(module: str, roots: Iterable[str]) -> bool:
    """Whether `module` is one of `roots`, below one, or has its name as a prefix (`a.chat_messages` for `a.chat`)."""
    return any(module == root or module.startswith((f"{root}.", f"{root}_")) for root in roots)


# -- rules: each yields a message for every violation ----------------------------------------------


def in_no_layer(module: Module) -> Iterator[str]:
    if package_of(module.name) and layer_of(module.name) == len(LAYERS):
        yield f"{module.name} is in no layer"


def imports_upward(module: Module) -> Iterator[str]:
    for found in own_imports(module):
        if layer_of(found.target) < layer_of(module.name):
            yield f"{found}, which is in a layer above"


def imports_same_layer(module: Module) -> Iterator[str]:
    for found in own_imports(module):
        pair = package_of(module.name), package_of(found.target)
        if layer_of(found.target) == layer_of(module.name) and pair[0] != pair[1]:
            yield f"{found}, which is in the same layer"


def imports_implementation(module: Module) -> Iterator[str]:
    for found in own_imports(module):
        for implementation, importers in IMPLEMENTATIONS.items():
            if is_within(found.target, [implementation]) and not is_within(module.name, [implementation, *importers]):
                yield f"{found}, which only {' and '.join(sorted(importers))} may import"


def imports_heavy(module: Module) -> Iterator[str]:
    for found in module.imports:
        top = found.target.split(".")[0]
        if found.at_start and top in HEAVY and not is_within(module.name, HEAVY[top]):
            yield f"{found} at the top"


def imports_private(module: Module) -> Iterator[str]:
    for node in walk_statements(module.tree):
        names: list[str] = []
        if isinstance(node, ast.Import | ast.ImportFrom):
            start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            names = [start + alias.name for alias in node.names]
        for name in names:
            package, *inner = name.split(".")
            if package not in ("convo", "tests") and any(part.startswith("_") for part in inner):
                yield f"{module.name} imports {name}, which is private"


def decision_effects(module: Module) -> Iterator[str]:
    if package_of(module.name) not in DECISIONS:
        return
    effects = (found for found in module.imports if (module.name, found.target) not in IN_MEMORY)
    yield from (str(found) for found in effects if is_within(found.target, EFFECTS))
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Await | ast.AsyncFunctionDef | ast.AsyncFor | ast.AsyncWith):
            yield f"{module.name}:{node.lineno} is asynchronous"
        elif isinstance(node, ast.Call) and has_effect(node.func):
            yield f"{module.name}:{node.lineno} calls {ast.unparse(node.func)}"


def reads_clock(module: Module) -> Iterator[str]:
    if module.name not in READS_CLOCK:
        yield from (str(found) for found in module.imports if found.target.split(".")[0] in CLOCKS)


def has_effect(function: ast.expr) -> bool:
    is_named = isinstance(function, ast.Name) and function.id in EFFECTFUL_CALLS
    return is_named or (isinstance(function, ast.Attribute) and function.attr in EFFECTFUL_METHODS)


def own_imports(module: Module) -> Iterator[Import]:
    return (found for found in module.imports if found.target == "convo" or found.target.startswith("convo."))


Rule = Callable[[Module], Iterator[str]]

RULES: tuple[Rule, ...] = (
    in_no_layer,
    imports_upward,
    imports_same_layer,
    imports_implementation,
    imports_heavy,
    imports_private,
    decision_effects,
    reads_clock,
)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_no_module_breaks_a_rule(rule: Rule) -> None:
    complaints = "\n".join(complaint for module in modules() for complaint in rule(module))
    assert complaints == ""


BROKEN = [
    (in_no_layer, "convo.helpers", ""),
    (imports_upward, "convo.history.items", "import convo.stores"),
    (imports_upward, "convo.history.items", "def f():\n    from convo.chat import turn"),
    (
        imports_upward,
        "convo.errors",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from convo.history.items import Item",
    ),
    (imports_same_layer, "convo.models.base", "from convo.stores.base import Store"),
    (imports_same_layer, "convo.lint.rules", "import convo.runs.machine"),
    (imports_implementation, "convo.cli.chat", "import convo.stores.sqlite"),
    (imports_implementation, "convo.stores.codec", "import convo.stores.sqlite"),
    (imports_implementation, "convo.stores.base", "import convo.stores.factory"),
    (imports_implementation, "convo.chat.turn", "import convo.models.anthropic_messages"),
    (imports_implementation, "convo.chat.turn", "import convo.chat.endpoint_factory"),
    (imports_implementation, "convo.server.routes", "import convo.responses_api.turn"),
    (imports_heavy, "convo.terminal.prompt", "from prompt_toolkit import PromptSession"),
    (imports_heavy, "convo.cli.chat", "class A:\n    import openai.types"),
    (imports_heavy, "convo.terminal.terminal", "try:\n    import rich.markdown\nexcept ImportError:\n    pass"),
    (imports_private, "convo.cli.output", "from typer._click import Context"),
    (imports_private, "convo.cli.output", "from typer.core import _main"),
    (decision_effects, "convo.strategies.requests", "import time"),
    (decision_effects, "convo.history.items", "from os import environ"),
    (decision_effects, "convo.history.tree", "async def f(): ..."),
    (decision_effects, "convo.history.tree", "datetime.now()"),
    (decision_effects, "convo.history.tree", "open('x')"),
    (decision_effects, "convo.history.tree", "from convo.runtime import SystemClock"),
    (reads_clock, "convo.chat.turn", "def f():\n    from time import monotonic"),
]


@pytest.mark.parametrize(("rule", "name", "source"), BROKEN)
def test_a_line_that_a_rule_forbids_breaks_it(rule: Rule, name: str, source: str) -> None:
    assert len(list(rule(Module(name, source)))) == 1


ALLOWED = [
    (imports_upward, "convo.history.tree", "import convo.history.items"),
    (imports_same_layer, "convo.config.settings", "from convo.errors import InvalidSettings"),
    (imports_implementation, "convo.stores.factory", "import convo.stores.sqlite"),
    (imports_implementation, "convo.chat.endpoint_factory", "import convo.stores.factory"),
    (imports_implementation, "convo.cli.chat", "import convo.chat.endpoint_factory"),
    (imports_implementation, "convo.chat.turn", "from convo.stores.base import Store"),
    (imports_heavy, "convo.endpoints.remote", "import openai"),
    (imports_heavy, "convo.terminal.prompt", "def f():\n    import prompt_toolkit"),
    (imports_private, "convo.cli.output", "from typer.core import TyperGroup"),
    (decision_effects, "convo.chat.turn", "import time"),
    (decision_effects, "convo.history.tree", "import oscillator"),
    (reads_clock, "convo.chat.turn", "from convo.runtime import Clock"),
]


@pytest.mark.parametrize(("rule", "name", "source"), ALLOWED)
def test_a_line_that_a_rule_allows_keeps_it(rule: Rule, name: str, source: str) -> None:
    assert list(rule(Module(name, source))) == []


def test_every_module_that_may_read_the_clock_does() -> None:
    clocks = {module.name for module in modules() for found in module.imports if found.target.split(".")[0] in CLOCKS}
    assert clocks == set(READS_CLOCK)


def find_circle(sources: Iterable[Module]) -> list[str]:
    """Return modules that import each other in a circle, also in functions or for types; empty without one."""
    try:
        TopologicalSorter(
            {module.name: [found.target for found in own_imports(module)] for module in sources}
        ).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_modules_import_each_other_in_a_circle() -> None:
    assert find_circle(modules()) == []
    circle = [Module("convo.a", "import convo.b"), Module("convo.b", "def f():\n    from convo.a import g")]
    assert set(find_circle(circle)) == {"convo.a", "convo.b"}


def test_convo_imports_no_module_whose_name_a_users_module_may_have() -> None:
    imports = (imported for module in modules() for imported in module.imports)
    assert not [str(one) for one in imports if one.target.partition(".")[0] in UNUSED_STANDARD_MODULES]
