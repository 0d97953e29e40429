"""The modules of the package and their imports, parsed from the source.

No module is imported, so imports inside functions, below `TYPE_CHECKING` and in branches that do not run on
this machine are included.
"""

import ast
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from tests.command_runner import ROOT


@dataclass(frozen=True)
class Import:
    """`importer` imports `target` at `line`; `at_start` is true if the import runs when the module is loaded."""

    importer: str
    target: str
    line: int
    at_start: bool

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


@dataclass(frozen=True)
class Module:
    """One file of the package: its dotted name and its text."""

    name: str
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def imports(self) -> tuple[Import, ...]:
        return tuple(
            Import(self.name, target, node.lineno, at_start)
            for node, at_start in import_statements(self.tree, at_start=True)
            for target in imported_modules(node)
        )


def walk_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield every statement, exception handler and match case below `node`; expressions contain none of them."""
    for child in child_statements(node):
        yield child
        yield from walk_statements(child)


def child_statements(node: ast.AST) -> Iterator[ast.AST]:
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        value = getattr(node, name, ())
        if isinstance(value, list):
            yield from value


def import_statements(node: ast.AST, *, at_start: bool) -> Iterator[tuple[ast.Import | ast.ImportFrom, bool]]:
    """Yield every import below `node`, and whether it runs when the module is loaded."""
    for child in child_statements(node):
        if isinstance(child, ast.Import | ast.ImportFrom):
            yield child, at_start
        later = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) or is_type_checking_block(child)
        yield from import_statements(child, at_start=at_start and not later)


def is_type_checking_block(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def imported_modules(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield the modules that a statement imports; `from a import b` imports `a.b` if that is a file of this project."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
        return
    assert node.level == 0, "imports are written out in full"
    assert node.module is not None
    for alias in node.names:
        submodule = f"{node.module}.{alias.name}"
        yield submodule if is_own_module(submodule) else node.module


@cache
def is_own_module(module: str) -> bool:
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def modules(top: str = "convo") -> tuple[Module, ...]:
    """Parse all files of the package, or with `tests` all files of its tests."""
    found = tuple(Module(module_name(path), path.read_text("utf-8")) for path in sorted((ROOT / top).rglob("*.py")))
    gc.disable()  # garbage collections during the creation of a million nodes take twice as long as the parsing
    try:
        for module in found:
            _ = module.tree
    finally:
        gc.enable()
    return found
