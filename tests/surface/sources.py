"""The parts of a surface that are read from source files: variables, error codes, project file, documented imports."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from tests.surface.document import Collection

VARIABLE = re.compile(r"\b_?CONVO_(?!TEST)[A-Z]+(?:_[A-Z]+)*\b")

FOREIGN = re.compile(
    r"(?:OPENAI|ANTHROPIC|AZURE|DEEPSEEK|OLLAMA|XDG|PG|LC)_?[A-Z_]*[A-Z]|NO_COLOR|FORCE_COLOR|CLICOLOR_FORCE|TERM|"
    r"COLUMNS|LINES|EDITOR|VISUAL|PAGER|LESS|SHELL|[A-Z]+_PROXY"
)
"""Variables of other programs, if one is a complete string literal."""

ROW = re.compile(r"^\| `(?P<code>\w+)` \| (?P<exit>\d+) \| (?P<status>\d+) \|", re.MULTILINE)

BLOCK = re.compile(r"^```python[^\n]*\n(.*?)^```", re.MULTILINE | re.DOTALL)

DOCUMENTED = (("convo.agents", "Agent"), ("convo.tools", "tool"))
"""Import paths that are always collected, in addition to those that a revision documents."""

SHOWN = (str, int, float, bool, tuple, frozenset, type(None))
"""Types of defaults that are compared by their `repr`."""


def collect_sources(collection: Collection, tree: Path) -> None:
    """Collect environment variables, error codes, and the name, extras and scripts in the project file."""
    files = sorted((tree / "convo").rglob("*.py"))
    for file in files:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            collection.add_names("environment", _variables(node))
            collection.add_names("error codes", (f"code {code}" for code in _codes(node)))
    for page in user_pages(tree):
        collection.add_names("documented environment", VARIABLE.findall(page))
    for row in ROW.finditer((tree / ".github" / "REFERENCE.md").read_text(encoding="utf-8")):
        collection.add_value("error codes", f"reference {row['code']}", f"exit {row['exit']}, status {row['status']}")
    project = tomllib.loads((tree / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    collection.add_value("package", "name", project["name"])
    collection.add_value("package", "requires-python", project["requires-python"])
    collection.add_names("package", (f"extra {name}" for name in project["optional-dependencies"]))
    for name, target in project["scripts"].items():
        collection.add_value("package", f"script {name}", target)


def user_pages(tree: Path) -> list[str]:
    """The text of the README and of the pages for users."""
    files = [tree / "README.md", *sorted((tree / ".github").rglob("*.md"))]
    return [file.read_text(encoding="utf-8") for file in files if file.name != "CONTRIBUTING.md"]


def _variables(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield from VARIABLE.findall(node.value)
        if FOREIGN.fullmatch(node.value):
            yield node.value


def _codes(node: ast.AST) -> Iterator[str]:
    """Yield the literals that are passed as `code=...` or that a class assigns to `code`."""
    if isinstance(node, ast.keyword) and node.arg == "code":
        yield from _text(node.value)
    elif isinstance(node, ast.ClassDef):
        for statement in node.body:
            if isinstance(statement, ast.Assign):
                yield from _code_of(statement.targets[0], statement.value)
            elif isinstance(statement, ast.AnnAssign) and statement.value:
                yield from _code_of(statement.target, statement.value)


def _code_of(target: ast.expr, value: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for name, one in zip(target.elts, value.elts, strict=True):
            yield from _code_of(name, one)
    elif isinstance(target, ast.Name) and target.id == "code":
        yield from _text(value)


def _text(value: ast.expr) -> Iterator[str]:
    if isinstance(value, ast.Constant) and isinstance(value.value, str) and value.value:
        yield value.value


def collect_imports(collection: Collection, tree: Path) -> None:
    """Collect the documented import paths with the signatures of the imported objects."""
    for module, name in sorted({*DOCUMENTED, *documented(tree)}):
        try:
            found = getattr(import_module(module), name)
        except (ImportError, AttributeError) as error:
            collection.add_value("imports", f"{module}.{name}", type(error).__name__)
            continue
        collection.add_value("imports", f"{module}.{name}", signature(found))
        for member in sorted(vars(found)) if isinstance(found, type) else ():
            value = inspect.getattr_static(found, member)
            if not member.startswith("_") and (inspect.isroutine(value) or isinstance(value, property)):
                described = signature(value) if inspect.isfunction(value) else "attribute"
                collection.add_value("imports", f"{module}.{name}.{member}", described)


def documented(tree: Path) -> Iterator[tuple[str, str]]:
    """Yield every `from convo... import ...` in a Python block of a page."""
    for page in user_pages(tree):
        for block in BLOCK.findall(page):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "convo":
                    yield from ((str(node.module), one.name) for one in node.names)


def signature(found: object) -> str:
    """The parameters of a function or class: names, kinds, and defaults of the types in `SHOWN`."""
    assert callable(found)
    return f"({', '.join(map(_parameter, inspect.signature(found).parameters.values()))})"


def _parameter(parameter: inspect.Parameter) -> str:
    kind = "" if parameter.kind is parameter.POSITIONAL_OR_KEYWORD else f"{parameter.kind.name.lower()} "
    if parameter.default is parameter.empty:
        return f"{kind}{parameter.name}"
    return f"{kind}{parameter.name} = {repr(parameter.default) if type(parameter.default) in SHOWN else '...'}"
