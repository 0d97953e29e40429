"""Types and definitions behind the expressions of convo/ and tests/, by mypy.

Positions are those of Python's `ast` (columns in bytes), so a syntax tree of the same file can be looked up.
"""

import os
from collections.abc import Iterable, Iterator
from contextlib import chdir
from dataclasses import dataclass, field
from pathlib import Path

from mypy.build import BuildResult, build
from mypy.fscache import FileSystemCache
from mypy.main import process_options
from mypy.nodes import (
    ARG_POS,
    ARG_STAR2,
    Argument,
    CallExpr,
    ClassDef,
    Context,
    Decorator,
    Expression,
    FuncDef,
    IndexExpr,
    MemberExpr,
    MypyFile,
    NameExpr,
    Node,
    OverloadedFuncDef,
    RefExpr,
    SuperExpr,
    SymbolNode,
    TypeAlias,
    TypeInfo,
    Var,
)
from mypy.patterns import ClassPattern
from mypy.state import state
from mypy.subtypes import is_protocol_implementation
from mypy.typeops import tuple_fallback
from mypy.types import (
    AnyType,
    CallableType,
    Instance,
    LiteralType,
    Overloaded,
    TupleType,
    Type,
    TypedDictType,
    TypeType,
    TypeVarType,
    UnionType,
    get_proper_type,
)
from mypy.typevars import fill_typevars_with_any

TOPS = ("convo", "tests")

Position = tuple[str, int, int]
"""File below the root, line and column of the end. (The beginning of a node in an f-string is another in mypy.)"""

FunctionKey = tuple[str, int, int]
"""File, line and column of `def`."""

ANY, MODULE = "Any", "module"
"""Found in place of a class."""

BY_NAME = {"getattr", "hasattr", "setattr", "delattr", "__setattr__", "object"}
BY_NAME |= {"asdict", "astuple", "_asdict", "vars", "fields", "attrgetter", "methodcaller", "replace"}
"""Functions that reach attributes by their names, or all of them."""


@dataclass(frozen=True)
class Callee:
    """A function, or a class whose fields are the keywords."""

    function: FunctionKey | None = None
    fields_of: str | None = None


@dataclass
class Class:
    name: str
    lookup: list[str]
    own: set[str]
    methods: dict[str, list[FunctionKey]]
    file: str | None


@dataclass
class Function:
    name: str
    class_name: str | None
    parameters: list[str]


@dataclass
class Types:
    """members: attribute -> classes of the object; forwarded: call -> functions among its arguments;
    passed_on: function -> those that it calls with its own `**parameters`;
    reached: call of a function in BY_NAME -> classes of its first argument"""

    classes: dict[str, Class] = field(default_factory=dict)
    functions: dict[FunctionKey, Function] = field(default_factory=dict)
    class_at: dict[tuple[str, int, int], str] = field(default_factory=dict)
    members: dict[Position, set[str]] = field(default_factory=dict)
    callees: dict[Position, list[Callee]] = field(default_factory=dict)
    forwarded: dict[Position, list[Callee]] = field(default_factory=dict)
    patterns: dict[Position, str] = field(default_factory=dict)
    reached: dict[Position, set[str]] = field(default_factory=dict)
    passed_on: dict[FunctionKey, list[Callee]] = field(default_factory=dict)
    overloads: list[list[FunctionKey]] = field(default_factory=list)
    implementations: list[tuple[str, str]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def read_types(root: Path) -> Types:
    """Check the tree with its own settings; a tree with errors is read as far as mypy understands it."""
    cache = FileSystemCache()
    with chdir(root):
        sources, options = process_options([], fscache=cache)
        options.export_types = options.preserve_asts = True
        options.incremental = False
        options.cache_dir = os.devnull
        options.native_parser = False
        result = build(sources, options, fscache=cache)
        with state.strict_optional_set(True):
            return _Reader(result, Path.cwd().resolve()).read()


class _Reader:
    def __init__(self, result: BuildResult, root: Path) -> None:
        self.result, self.root = result, root
        self.types = result.types
        self.found = Types(errors=result.errors)
        self.keys: dict[SymbolNode, FunctionKey] = {}
        self.infos: dict[str, TypeInfo] = {}
        self.overloaded: list[OverloadedFuncDef] = []

    def read(self) -> Types:
        ours = {
            str(Path(file.path).resolve().relative_to(self.root)): file
            for module, file in self.result.files.items()
            if module.split(".")[0] in TOPS and Path(file.path).resolve().is_relative_to(self.root)
        }
        for path, file in ours.items():
            for node, _ in _walk(file):
                self._define(node, path)
        for function in self.overloaded:
            self.found.overloads.append([callee.function for callee in self.functions(function) if callee.function])
        self._read_classes()
        for path, file in ours.items():
            for node, around in _walk(file):
                self._use(node, path, around)
        self._read_implementations()
        return self.found

    def _define(self, node: Node, path: str) -> None:
        if isinstance(node, ClassDef):
            self.infos[node.info.fullname] = node.info
            self.found.class_at[path, node.line, node.column] = node.info.fullname
        elif isinstance(node, FuncDef):
            key = (path, node.line, node.column)
            self.keys[node] = key
            owner = node.info.fullname if node.info else None
            names = [argument.variable.name for argument in node.arguments]
            self.found.functions[key] = Function(node.name if owner else node.fullname, owner, names)
        elif isinstance(node, OverloadedFuncDef) and not node.is_property:
            self.overloaded.append(node)

    def _use(self, node: Node, path: str, around: tuple[FuncDef, ...]) -> None:
        place = _place(path, node)
        methods = [function for function in around if function.info and function.arguments]

        def objects(expression: Expression) -> tuple[list[TypeInfo], set[str]]:
            infos, markers = self.objects(expression)
            own = methods[-1].arguments[0].variable.name if methods else None
            if not infos and isinstance(expression, NameExpr) and expression.name == own:
                return [methods[-1].info], set()
            return infos, markers

        if isinstance(node, MemberExpr):
            infos, markers = objects(node.expr)
            self.found.members.setdefault(place, set()).update({info.fullname for info in infos} | markers)
        elif isinstance(node, SuperExpr) and node.info:
            bases = [base.fullname for base in node.info.mro[1:] if node.name in base.names]
            self.found.members.setdefault(place, set()).update(bases[:1])
        elif isinstance(node, ClassPattern):
            symbol = node.class_ref.node
            target = get_proper_type(symbol.target) if isinstance(symbol, TypeAlias) else None
            info = target.type if isinstance(target, Instance) else symbol
            if isinstance(info, TypeInfo):
                self.found.patterns[place] = info.fullname
        elif isinstance(node, CallExpr):
            name = node.callee.name if isinstance(node.callee, NameExpr | MemberExpr | SuperExpr) else ""
            if any(keyword is not None for keyword in node.arg_names) or ARG_STAR2 in node.arg_kinds:
                callees = self.callees(node.callee)
                if name == "replace" and node.args and not callees:
                    callees = [Callee(fields_of=info.fullname) for info in objects(node.args[0])[0]]
                self.found.callees.setdefault(place, []).extend(callees)
                positional = [
                    argument for argument, kind in zip(node.args, node.arg_kinds, strict=True) if kind == ARG_POS
                ]
                self.found.forwarded[place] = [callee for argument in positional for callee in self.callees(argument)]
                unpacked = [arg for arg, kind in zip(node.args, node.arg_kinds, strict=True) if kind == ARG_STAR2]
                for argument in unpacked:
                    for function in around:
                        if isinstance(argument, NameExpr) and argument.name == _unpacked_name(function):
                            self.found.passed_on.setdefault(self.keys[function], []).extend(callees)
            if name in BY_NAME or name.endswith("attr"):
                reads_own = name == "_asdict" and isinstance(node.callee, MemberExpr)
                first = [node.callee.expr] if reads_own and isinstance(node.callee, MemberExpr) else node.args[:1]
                for expression in first:
                    infos, markers = objects(expression)
                    self.found.reached[place] = {info.fullname for info in infos} | markers

    def _read_classes(self) -> None:
        for info in list(self.infos.values()):
            for base in info.mro:
                known = self.found.classes.get(base.fullname)
                if known is None:
                    self.found.classes[base.fullname] = Class(
                        base.fullname,
                        [each.fullname for each in base.mro],
                        set(base.names),
                        {
                            name: [callee.function for callee in self.functions(symbol.node) if callee.function]
                            for name, symbol in base.names.items()
                        },
                        None,
                    )

    def _read_implementations(self) -> None:
        protocols = [info for info in self.infos.values() if info.is_protocol]
        for protocol in protocols:
            right = fill_typevars_with_any(protocol)
            members = {name for name in protocol.protocol_members if not name.startswith("__")}
            assert isinstance(right, Instance)
            if not members:
                continue
            for info in self.infos.values():
                if info is protocol or protocol in info.mro or any(info.get(name) is None for name in members):
                    continue
                left = fill_typevars_with_any(info)
                if isinstance(left, Instance | TupleType) and is_protocol_implementation(
                    left if isinstance(left, Instance) else tuple_fallback(left), right
                ):
                    self.found.implementations.append((info.fullname, protocol.fullname))

    # -- what an expression is ------------------------------------------------------------------

    def functions(self, node: SymbolNode | None) -> list[Callee]:
        match node:
            case Decorator():
                return self.functions(node.func)
            case OverloadedFuncDef():
                parts: list[SymbolNode | None] = [*node.items, node.impl]
                return [callee for part in parts for callee in self.functions(part)]
            case FuncDef() if node in self.keys:
                return [Callee(function=self.keys[node])]
        return []

    def constructor(self, info: TypeInfo) -> list[Callee]:
        for base in info.mro:
            if base.is_named_tuple or base.typeddict_type:
                return [Callee(fields_of=info.fullname)]
            for name in ("__init__", "__new__"):
                symbol = base.names.get(name)
                if symbol and symbol.plugin_generated:
                    return [Callee(fields_of=info.fullname)]
                if symbol:
                    return self.functions(symbol.node)
        return []

    def methods(self, infos: Iterable[TypeInfo], name: str) -> list[Callee]:
        found = []
        for info in infos:
            if name == "_replace":
                found.append(Callee(fields_of=info.fullname))
            elif symbol := info.get(name):
                if symbol.plugin_generated and name == "__init__":
                    found.append(Callee(fields_of=info.fullname))
                elif isinstance(symbol.node, Var):
                    found += self.called(symbol.node.type)
                else:
                    found += self.functions(symbol.node)
        return found

    def called(self, kind: Type | None) -> list[Callee]:
        kind = get_proper_type(kind)
        match kind:
            case CallableType():
                return self.constructor(kind.type_object()) if kind.is_type_obj() else self.functions(kind.definition)
            case Overloaded():
                return list(dict.fromkeys(callee for item in kind.items for callee in self.called(item)))
            case UnionType():
                return [callee for item in kind.items for callee in self.called(item)]
            case TypeType(item=Instance() as item):
                return self.constructor(item.type)
            case Instance():
                return self.methods([kind.type], "__call__")
        return []

    def callees(self, expression: Expression) -> list[Callee]:
        if isinstance(expression, RefExpr):
            node = expression.node
            if isinstance(node, FuncDef | OverloadedFuncDef | Decorator):
                return self.functions(node)
            if isinstance(node, TypeInfo):
                return self.constructor(node)
            if isinstance(node, TypeAlias):
                target = get_proper_type(node.target)
                return self.constructor(target.type) if isinstance(target, Instance) else []
        if isinstance(expression, MemberExpr):
            infos, _ = self.objects(expression.expr)
            if found := self.methods(infos, expression.name):
                return found
        if isinstance(expression, SuperExpr) and expression.info:
            for base in expression.info.mro[1:]:
                if expression.name in base.names:
                    return self.methods([base], expression.name)
        if isinstance(expression, IndexExpr):
            return self.callees(expression.base)
        return self.called(self.types.get(expression))

    def objects(self, expression: Expression) -> tuple[list[TypeInfo], set[str]]:
        """Classes whose attribute `expression.x` is, and markers."""
        if isinstance(expression, RefExpr):
            if isinstance(expression.node, TypeInfo):
                return [expression.node], set()
            if isinstance(expression.node, MypyFile):
                return [], {MODULE}
        kind = self.types.get(expression)
        if kind is None and isinstance(expression, RefExpr) and isinstance(expression.node, Var):
            kind = expression.node.type
        return self._objects(kind) if kind is not None else ([], set())

    def _objects(self, kind: Type) -> tuple[list[TypeInfo], set[str]]:
        kind = get_proper_type(kind)
        match kind:
            case AnyType():
                return [], {ANY}
            case Instance():
                return [kind.type], set()
            case LiteralType():
                return [kind.fallback.type], set()
            case TupleType():
                return [kind.partial_fallback.type], set()
            case TypedDictType():
                return [kind.fallback.type], set()
            case TypeVarType():
                return self._join(kind.values or [kind.upper_bound])
            case TypeType():
                return self._objects(kind.item)
            case UnionType():
                return self._join(kind.items)
            case CallableType() if kind.is_type_obj():
                return [kind.type_object()], set()
            case CallableType():
                return [kind.fallback.type], set()
            case Overloaded():
                return self._join(kind.items[:1])
        return [], set()

    def _join(self, kinds: Iterable[Type]) -> tuple[list[TypeInfo], set[str]]:
        infos: list[TypeInfo] = []
        markers = set()
        for kind in kinds:
            more, marked = self._objects(kind)
            infos += more
            markers |= marked
        return infos, markers


CHILDREN = [
    "analyzed", "args", "arguments", "assert_type", "base", "base_type_exprs", "begin_index", "bodies", "body",
    "call", "callee", "class_ref", "cond", "condlists", "decorators", "defs", "else_body", "else_expr", "end_index",
    "expr", "exprs", "finally_body", "from_expr", "func", "generator", "guards", "handlers", "if_expr", "impl",
    "index", "indices", "initializer", "items", "key", "keys", "keyword_values", "keywords", "left", "left_expr",
    "lvalue", "lvalues", "metaclass", "msg", "operands", "pattern", "patterns", "positionals", "rest", "right",
    "rvalue", "sequences", "stride", "subject", "target", "types", "value", "values", "vars",
]  # fmt: skip
"""Attributes of nodes that hold the nodes below them. A visitor of mypy's cannot be used: it is compiled."""


def _walk(top: Node) -> Iterator[tuple[Node, tuple[FuncDef, ...]]]:
    """Every node, with the functions around it, the outermost first."""
    seen = set()
    stack: list[tuple[object, tuple[FuncDef, ...]]] = [(top, ())]
    while stack:
        node, around = stack.pop()
        if isinstance(node, dict):
            stack += [(each, around) for each in node.values()]
        elif isinstance(node, list | tuple):
            stack += [(each, around) for each in node]
        elif isinstance(node, Node | Argument) and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, Node):
                yield node, around
            if isinstance(node, FuncDef):
                around = (*around, node)
            if not isinstance(node, TypeInfo | Var):
                stack += [(getattr(node, name, None), around) for name in CHILDREN]


def _unpacked_name(function: FuncDef) -> str | None:
    """The name of `**parameters`."""
    return next((each.variable.name for each in function.arguments if each.kind == ARG_STAR2), None)


def _place(path: str, node: Context) -> Position:
    return path, node.end_line or 0, node.end_column or 0
