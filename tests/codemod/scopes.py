"""Bindings, references and imports of one Python file, with byte positions.

Needs Python 3.12: before, names inside f-strings have no usable positions.
"""

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Span = tuple[int, int]
"""First byte, and the byte after the last."""

GENERIC = {"Awaitable", "Callable", "Coroutine", "Iterable", "Iterator", "AsyncIterator", "Mapping", "Sequence"} | {
    "Generic", "Protocol", "dict", "frozenset", "list", "set", "tuple", "type",
}  # fmt: skip
"""Strings in their brackets are types."""


@dataclass(eq=False)
class Import:
    """One name that an import statement binds. `name` is None for `import module`."""

    module: str
    name: str | None
    local: str
    statement: ast.Import | ast.ImportFrom


@dataclass(eq=False)
class Reference:
    span: Span
    scope: "Scope"
    node: ast.AST | None  # None in a quoted annotation


@dataclass(eq=False)
class Scope:
    """A module, class, function or comprehension.

    references:  name -> its uses that resolve to this scope
    outer:       names used below this scope that resolve outside of it
    """

    kind: str
    node: ast.AST
    parent: "Scope | None"
    bound: set[str] = field(default_factory=set)
    globals: set[str] = field(default_factory=set)
    nonlocals: set[str] = field(default_factory=set)
    imports: dict[str, Import] = field(default_factory=dict)
    references: dict[str, list[Reference]] = field(default_factory=dict)
    outer: set[str] = field(default_factory=set)


@dataclass(frozen=True)
class ImportStatement:
    """`checking`: below `if TYPE_CHECKING`."""

    node: ast.Import | ast.ImportFrom
    scope: Scope
    checking: bool


class SourceFile:
    """One parsed file. `eager` are the module's names that importing the file needs."""

    def __init__(self, text: str) -> None:
        self.text, self.raw = text, text.encode()
        self.tree = ast.parse(text)
        self._lines = [0]
        for line in self.raw.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self.root = Scope("module", self.tree, None)
        self.scopes = [self.root]
        self.statements: list[ImportStatement] = []
        self.eager: set[str] = set()
        self._checking, self._at_import = False, True
        self._uses: list[tuple[str, Span, Scope, ast.AST | None, bool]] = []
        for statement in self.tree.body:
            self._statement(statement, self.root)
        for name, span, scope, node, eager in self._uses:
            self._resolve(name, span, scope, node, eager)

    def offset(self, line: int, column: int) -> int:
        return self._lines[line - 1] + column

    def span(self, node: Any) -> Span:
        return self.offset(node.lineno, node.col_offset), self.offset(node.end_lineno, node.end_col_offset)

    def source(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.raw[start:end].decode()

    @property
    def defined(self) -> set[str]:
        """Top-level names that the file binds itself."""
        return self.root.bound - set(self.root.imports)

    # -- collection -----------------------------------------------------------------------------

    def _inner(self, kind: str, node: ast.AST, parent: Scope) -> Scope:
        scope = Scope(kind, node, parent)
        self.scopes.append(scope)
        return scope

    def _bind(self, name: str, scope: Scope) -> None:
        if name in scope.globals:
            self.root.bound.add(name)
        elif name not in scope.nonlocals:
            scope.bound.add(name)

    def _use(self, name: str, span: Span, scope: Scope, node: ast.AST | None, *, loads: bool = False) -> None:
        self._uses.append((name, span, scope, node, loads and self._at_import))

    def _find(self, pattern: str, start: int, end: int | None = None) -> Span:
        found = re.compile(pattern.encode()).search(self.raw, start, len(self.raw) if end is None else end)
        assert found, pattern
        return found.span(found.re.groups and 1)

    def _statement(self, node: ast.stmt, scope: Scope) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                self._function(node, scope)
            case ast.ClassDef():
                self._class(node, scope)
            case ast.Import() | ast.ImportFrom():
                self.statements.append(ImportStatement(node, scope, self._checking))
                module = node.module if isinstance(node, ast.ImportFrom) else None
                for alias in node.names:
                    local = alias.asname or alias.name.split(".")[0]
                    self._bind(local, scope)
                    named = Import(module or alias.name, alias.name if module else None, local, node)
                    scope.imports[local] = named
            case ast.If(test=ast.Name("TYPE_CHECKING")) if scope is self.root:
                self._expression(node.test, scope)
                before, self._checking = self._checking, True
                for inner in node.body:
                    self._statement(inner, scope)
                self._checking = before
                for inner in node.orelse:
                    self._statement(inner, scope)
            case ast.Global() | ast.Nonlocal():
                (scope.globals if isinstance(node, ast.Global) else scope.nonlocals).update(node.names)
                for name in node.names:
                    self._use(name, self._find(rf"\b{name}\b", *self.span(node)), scope, node)
            case ast.AnnAssign():
                self._annotation(node.annotation, scope)
                self._expression(node.target, scope)
                if node.value:
                    self._expression(node.value, scope)
            case _:
                for part in _parts(node):
                    self._part(part, scope)

    def _part(self, part: ast.AST, scope: Scope) -> None:
        if isinstance(part, ast.stmt):
            self._statement(part, scope)
        elif isinstance(part, ast.ExceptHandler):
            if part.type:
                self._expression(part.type, scope)
            if part.name and part.type:
                self._bind(part.name, scope)
                self._use(part.name, self._find(rf"\bas\s+({part.name})\b", self.span(part.type)[1]), scope, part)
            for inner in part.body:
                self._statement(inner, scope)
        elif isinstance(part, ast.match_case):
            self._pattern(part.pattern, scope)
            if part.guard:
                self._expression(part.guard, scope)
            for inner in part.body:
                self._statement(inner, scope)
        elif isinstance(part, ast.withitem):
            self._expression(part.context_expr, scope)
            if part.optional_vars:
                self._expression(part.optional_vars, scope)
        elif isinstance(part, ast.expr):
            self._expression(part, scope)

    def _class(self, node: ast.ClassDef, scope: Scope) -> None:
        self._bind(node.name, scope)
        self._use(node.name, self._find(rf"class\s+({node.name})\b", self.span(node)[0]), scope, node)
        for outer in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self._expression(outer, scope)
        inner = self._inner("class", node, scope)
        for statement in node.body:
            self._statement(statement, inner)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef, scope: Scope) -> None:
        self._bind(node.name, scope)
        self._use(node.name, self._find(rf"def\s+({node.name})\b", self.span(node)[0]), scope, node)
        for outer in (*node.decorator_list, *node.args.defaults, *node.args.kw_defaults):
            if outer is not None:
                self._expression(outer, scope)
        for argument in _arguments(node.args):
            self._annotation(argument.annotation, scope)
        self._annotation(node.returns, scope)
        inner = self._inner("function", node, scope)
        self._take_arguments(node.args, inner)
        for part in ast.walk(node):
            if isinstance(part, ast.Global):
                inner.globals.update(part.names)
            elif isinstance(part, ast.Nonlocal):
                inner.nonlocals.update(part.names)
        before, self._at_import = self._at_import, False
        for statement in node.body:
            self._statement(statement, inner)
        self._at_import = before

    def _take_arguments(self, arguments: ast.arguments, scope: Scope) -> None:
        for argument in _arguments(arguments):
            scope.bound.add(argument.arg)
            start = self.span(argument)[0]
            self._use(argument.arg, (start, start + len(argument.arg.encode())), scope, argument)

    def _pattern(self, pattern: ast.pattern, scope: Scope) -> None:
        for part in ast.walk(pattern):
            if isinstance(part, ast.MatchAs | ast.MatchStar) and part.name:
                self._bind(part.name, scope)
                end = self.span(part)[1]
                self._use(part.name, (end - len(part.name.encode()), end), scope, part)
            elif isinstance(part, ast.MatchValue):
                self._expression(part.value, scope)
            elif isinstance(part, ast.MatchClass):
                self._expression(part.cls, scope)
            elif isinstance(part, ast.MatchMapping):
                if part.rest:
                    self._bind(part.rest, scope)
                for key in part.keys:
                    self._expression(key, scope)

    def _annotation(self, node: ast.expr | None, scope: Scope) -> None:
        if node is not None:
            self._quoted_in(node, scope)
            self._expression(node, scope)

    def _quoted_in(self, node: ast.AST, scope: Scope) -> None:
        """References in the strings of a type."""
        for part in ast.walk(node):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                written = self.source(part)
                if written[:1] not in ('"', "'") or written[:3] == '"""':
                    continue
                try:
                    quoted = ast.parse(part.value, mode="eval")
                except SyntaxError:
                    continue
                start = self.span(part)[0] + 1
                for name in ast.walk(quoted):
                    if isinstance(name, ast.Name):
                        at = (start + name.col_offset, start + (name.end_col_offset or 0))
                        self._use(name.id, at, scope, None)

    def _expression(self, node: ast.expr, scope: Scope) -> None:
        match node:
            case ast.Name():
                loads = isinstance(node.ctx, ast.Load)
                if not loads:
                    self._bind(node.id, scope)
                self._use(node.id, self.span(node), scope, node, loads=loads)
                return
            case ast.Lambda():
                for default in (*node.args.defaults, *node.args.kw_defaults):
                    if default is not None:
                        self._expression(default, scope)
                inner = self._inner("function", node, scope)
                self._take_arguments(node.args, inner)
                before, self._at_import = self._at_import, False
                self._expression(node.body, inner)
                self._at_import = before
                return
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                inner = self._inner("comprehension", node, scope)
                for number, part in enumerate(node.generators):
                    self._expression(part.iter, inner if number else scope)
                    self._expression(part.target, inner)
                    for condition in part.ifs:
                        self._expression(condition, inner)
                for each in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
                    self._expression(each, inner)
                return
            case ast.NamedExpr():
                target = scope
                while target.kind == "comprehension" and target.parent:
                    target = target.parent
                self._bind(node.target.id, target)
                self._use(node.target.id, self.span(node.target), target, node.target)
                self._expression(node.value, scope)
                return
            case ast.Call(func=ast.Name("cast"), args=[first, *_]):
                self._quoted_in(first, scope)
            case ast.Call(func=ast.Name("TypeVar")):
                for keyword in node.keywords:
                    self._quoted_in(keyword.value, scope)
            case ast.Subscript(value=ast.Name(name)) if name in GENERIC:
                self._quoted_in(node.slice, scope)
        for child in _parts(node):
            self._part(child.value if isinstance(child, ast.keyword) else child, scope)

    def _resolve(self, name: str, span: Span, scope: Scope, node: ast.AST | None, eager: bool) -> None:
        at: Scope | None = scope
        passed = []
        while at is not None:
            if name in at.globals and at is not self.root:
                passed.append(at)
                at = self.root
                break
            if name in at.bound and name not in at.nonlocals and (at.kind != "class" or at is scope):
                break
            passed.append(at)
            at = at.parent
        for inner in passed:
            inner.outer.add(name)
        home = at or self.root
        home.references.setdefault(name, []).append(Reference(span, scope, node))
        if eager and home is self.root:
            self.eager.add(name)


def rename_conflict(file: SourceFile, scope: Scope, old: str, new: str) -> str | None:
    """The reason why the binding `old` of a scope cannot be called `new`."""
    if new in scope.bound:
        return f"{new} is bound in the same scope"
    if scope is not file.root and new in scope.outer:
        return f"{new} of an outer scope is used there"
    if scope is file.root and new in scope.references:
        return f"the built-in {new} is used"
    return shadowed(scope, old, new)


def shadowed(scope: Scope, old: str, new: str) -> str | None:
    """The reason why uses of `old` in inner scopes would mean another `new`."""
    for reference in scope.references.get(old, []):
        at: Scope | None = reference.scope
        while at is not None and at is not scope:
            if new in at.bound and (at.kind != "class" or at is reference.scope):
                return f"{new} is local where {old} is used"
            at = at.parent
    return None


def _arguments(arguments: ast.arguments) -> Iterator[ast.arg]:
    named = (*arguments.posonlyargs, *arguments.args, arguments.vararg, *arguments.kwonlyargs, arguments.kwarg)
    return (argument for argument in named if argument is not None)


def _parts(node: ast.AST) -> Sequence[ast.AST]:
    return list(ast.iter_child_nodes(node))
