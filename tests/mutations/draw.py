"""Draw mutations by a seed: each is one random change to one random line."""

import ast
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OPPOSITE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
}  # fmt: skip
OTHER: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Add, ast.BitOr: ast.BitAnd, ast.BitAnd: ast.BitOr, ast.Pow: ast.Mult,
}  # fmt: skip

GENERIC = {"Callable", "Generic", "Iterator", "Literal", "Mapping", "Sequence", "cast", "dict", "list", "tuple"}
"""Subscripts of these names are types."""


@dataclass(frozen=True)
class Mutation:
    """A replacement of one span of one file.

    file:        relative to the project's folder
    start, end:  byte offsets of the span
    """

    file: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str

    def applied(self, raw: bytes) -> bytes:
        return raw[: self.start] + self.new.encode() + raw[self.end :]


def draw(root: Path, seed: int, count: int) -> list[Mutation]:
    """Draw `count` mutations of lines below root/convo; all lines are equally likely."""
    rng = random.Random(seed)
    lines = [
        (path, number)
        for path in sorted((root / "convo").rglob("*.py"))
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        if line.strip() and not line.strip().startswith("#")
    ]
    rng.shuffle(lines)
    sources: dict[Path, Source] = {}
    mutations: list[Mutation] = []
    for path, number in lines:
        if len(mutations) == count:
            break
        if path not in sources:
            sources[path] = Source(path.relative_to(root).as_posix(), path.read_text("utf-8"))
        possible = list(sources[path].mutations(number, rng))
        while possible:
            mutation = possible.pop(rng.randrange(len(possible)))
            if sources[path].compiles(mutation):
                mutations.append(mutation)
                break
    return mutations


class Source:
    """A file of the package, and the nodes on each of its lines that can be mutated."""

    def __init__(self, file: str, text: str) -> None:
        self.file, self.raw = file, text.encode()
        self._tree = ast.parse(text)
        self._starts = [0]
        for line in self.raw.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))
        excluded_ids = {
            id(inner) for node in ast.walk(self._tree) for left in _without_behaviour(node) for inner in ast.walk(left)
        }
        self._lines: dict[int, list[ast.AST]] = {}
        for node in ast.walk(self._tree):
            if id(node) not in excluded_ids and hasattr(node, "lineno"):
                self._lines.setdefault(node.lineno, []).append(node)

    def mutations(self, line: int, rng: random.Random) -> Iterator[Mutation]:
        for node in self._lines.get(line, []):
            for kind, piece, new in changes(node, rng):
                start, end = self._span(piece)
                yield Mutation(self.file, line, kind, start, end, self.raw[start:end].decode(), new)

    def compiles(self, mutation: Mutation) -> bool:
        try:
            compile(mutation.applied(self.raw), self.file, "exec")
        except SyntaxError:
            return False
        return True

    def _span(self, node: Any) -> tuple[int, int]:
        start = self._starts[node.lineno - 1] + node.col_offset
        return start, self._starts[node.end_lineno - 1] + node.end_col_offset


def _without_behaviour(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node without behaviour: types, docstrings, imports, assertions."""
    match node:
        case ast.Import() | ast.ImportFrom() | ast.Assert() | ast.JoinedStr():
            yield node  # before Python 3.12 the parts of an f-string have no usable positions
        case ast.Expr(ast.Constant(str())):
            yield node
        case ast.AnnAssign():
            yield node.annotation
        case ast.FunctionDef() | ast.AsyncFunctionDef():
            arguments = node.args
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            yield from (each.annotation for each in every if each and each.annotation)
            if node.returns:
                yield node.returns
        case ast.ClassDef():
            yield from node.bases
            if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in node.bases):
                yield node
        case ast.If(test=ast.Name("TYPE_CHECKING")):
            yield node
        case ast.Assign(targets=[ast.Name("__all__")]):
            yield node
        case ast.Subscript(value=ast.Name(name)) if name in GENERIC:
            yield node
        case ast.Call(func=ast.Name("TypeVar" | "ParamSpec" | "NewType")):
            yield node
        case ast.Call(func=ast.Name("cast")):
            yield node.args[0]


def changes(node: ast.AST, rng: random.Random) -> Iterator[tuple[str, ast.AST, str]]:
    """Yield (kind, node, new source) for each mutation of one node; only half of the strings are mutated."""
    match node:
        case ast.Compare(left, [operator], comparators) if type(operator) in OPPOSITE:
            yield "comparison", node, _source_text(ast.Compare(left, [OPPOSITE[type(operator)]()], comparators))
        case ast.BoolOp(op=joined, values=values):
            other = ast.Or() if isinstance(joined, ast.And) else ast.And()
            yield "and/or", node, _source_text(ast.BoolOp(other, values))
            dropped = rng.randrange(len(values))
            remaining = [value for index, value in enumerate(values) if index != dropped]
            yield (
                "operand dropped",
                node,
                _source_text(ast.BoolOp(joined, remaining) if len(remaining) > 1 else remaining[0]),
            )
        case ast.BinOp(left, operator, right) if type(operator) in OTHER and not _is_text(left):
            yield "operator", node, _source_text(ast.BinOp(left, OTHER[type(operator)](), right))
        case ast.UnaryOp(ast.Not(), operand):
            yield "not dropped", node, _source_text(operand)
        case ast.IfExp(_, body, orelse):
            yield "always", node, _source_text(body)
            yield "never", node, _source_text(orelse)
        case ast.Constant(value=bool(value)):
            yield "bool", node, repr(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield "number", node, repr(value + 1)
        case ast.Constant(value=str(value)) if value and rng.random() < 0.5:
            yield "string", node, repr("XX" + value)
        case ast.Return(value) if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            yield "return None", node, "return None"
        case ast.Expr(ast.Call() | ast.Await()):
            yield "call dropped", node, "pass"
        case ast.Raise(exc) if exc is not None:
            yield "raise dropped", node, "pass"
        case ast.If(test) | ast.While(test):
            yield "condition negated", test, f"not {_source_text(test)}"
        case ast.Continue():
            yield "continue", node, "break"
        case ast.Break():
            yield "break", node, "continue"
        case ast.Assign([ast.Attribute()]) | ast.AugAssign():
            yield "assignment dropped", node, "pass"


def _source_text(node: ast.expr) -> str:
    return f"({ast.unparse(node)})"


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))
