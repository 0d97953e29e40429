"""Carry out a plan: move and merge modules, rename top-level names, rewrite imports in convo/ and tests/.

A plan is a Python file; modules are named below `convo`:

    MOVES = {"history.items": ["items.kinds", "items.shapes"]}     new module -> the ones it is made of
    NAMES = {"items.kinds": {"is_call": "is_function_call"}}       old module -> old name -> new name
    LOCAL = {("transfer.compact", "pathlib.Path"): "FilePath"}     name of an import in a new module
    DOCS = {"history.items": "Items: ..."}                         docstrings; else that of the first module
    FACADES = {"agents", "tools"}                                  packages that keep what they export
    DROPPED = {"items"}                                            packages that are removed

Definitions are put in an order in which the module can be imported. Clashes that a plan does not
settle get a name with the old module's in it and are printed, as is everything that needs a look.
Comments and spacing inside import statements are lost; run the formatter afterwards.
"""

import ast
import runpy
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.codemod.scopes import ImportStatement, Reference, Scope, SourceFile, rename_conflict, shadowed

TOPS = ("convo", "tests")


class Symbol(NamedTuple):
    """A top-level name of a module. `name` is None for the module itself; `ours` is False outside of TOPS."""

    module: str
    name: str | None
    ours: bool = True


class Wanted(NamedTuple):
    """One name of an import statement; `module` is None for `import name`."""

    module: str | None
    name: str
    local: str | None


@dataclass(frozen=True)
class Plan:
    moves: Mapping[str, list[str]]
    names: dict[str, dict[str, str]]
    local: Mapping[tuple[str, str], str] = field(default_factory=dict)
    docs: Mapping[str, str] = field(default_factory=dict)
    facades: frozenset[str] = frozenset()
    dropped: frozenset[str] = frozenset()

    @classmethod
    def load(cls, file: str) -> "Plan":
        read = runpy.run_path(file)
        return cls(
            moves={_full(new): [_full(old) for old in olds] for new, olds in read["MOVES"].items()},
            names={_full(module): dict(names) for module, names in read.get("NAMES", {}).items()},
            local={(_full(new), name): local for (new, name), local in read.get("LOCAL", {}).items()},
            docs={_full(new): text for new, text in read.get("DOCS", {}).items()},
            facades=frozenset(_full(name) for name in read.get("FACADES", ())),
            dropped=frozenset(_full(name) for name in read.get("DROPPED", ())),
        )


def _full(module: str) -> str:
    return module if module.split(".")[0] in TOPS else f"convo.{module}"


class Project:
    """Every module below TOPS, and what a plan makes of it."""

    def __init__(self, root: Path, plan: Plan) -> None:
        self.root, self.plan = root, plan
        self.problems: list[str] = []
        self.paths: dict[str, Path] = {}
        for top in TOPS:
            for path in sorted((root / top).rglob("*.py")):
                dotted = ".".join(path.relative_to(root).with_suffix("").parts)
                self.paths[dotted.removesuffix(".__init__")] = path
        self.files = {module: SourceFile(path.read_text("utf-8")) for module, path in self.paths.items()}
        self.new = {old: new for new, olds in plan.moves.items() for old in olds}
        for old in self.new.keys() - self.files.keys():
            self.problem("no module", old)
        for new, olds in plan.moves.items():
            self._settle_collisions(new, [old for old in olds if old in self.files])

    def problem(self, *words: object) -> None:
        self.problems.append(" ".join(map(str, words)))

    def _settle_collisions(self, new: str, olds: Iterable[str]) -> None:
        taken: dict[str, str] = {}
        for old in olds:
            for name in sorted(self.files[old].defined - {"__all__"}):
                wanted = self.plan.names.get(old, {}).get(name, name)
                if wanted in taken:
                    last = old.rpartition(".")[2]
                    bare = wanted.lstrip("_")
                    tail = f"_{last.upper()}" if bare.isupper() else last.title() if bare[0].isupper() else f"_{last}"
                    self.problem("COLLISION", new, f"{old}.{name}", "and", taken[wanted], "->", wanted + tail)
                    wanted += tail
                    self.plan.names.setdefault(old, {})[name] = wanted
                taken[wanted] = f"{old}.{name}"

    def symbol(self, module: str, name: str) -> Symbol:
        """The definition behind `from module import name`."""
        seen = set()
        while (module, name) not in seen:
            seen.add((module, name))
            file = self.files.get(module)
            if file and name in file.defined:
                return Symbol(module, name)
            imported = file.root.imports.get(name) if file else None
            if imported is None or imported.name is None:
                break
            if imported.module.split(".")[0] not in TOPS:
                return Symbol(imported.module, imported.name, ours=False)
            module, name = imported.module, imported.name
        if f"{module}.{name}" in self.files:
            return Symbol(f"{module}.{name}", None)
        self.problem("unknown name", module, name)
        return Symbol(module, name)

    def renamed(self, symbol: Symbol) -> Symbol:
        """The symbol's place and name after the move."""
        name = symbol.name and self.plan.names.get(symbol.module, {}).get(symbol.name, symbol.name)
        return Symbol(self.new.get(symbol.module, symbol.module), name)

    def carry_out(self) -> None:
        texts: dict[Path, str] = {}
        moved: dict[str, Rewrite] = {}
        gone = {self.paths[module] for module in self.plan.dropped if module in self.paths}
        for module, file in self.files.items():
            if module in self.plan.dropped:
                continue
            rewrite = Rewrite(self, module)
            rewrite.carry_out()
            if module in self.new:
                moved[module] = rewrite
                gone.add(self.paths[module])
            elif rewrite.text != file.text:
                texts[self.paths[module]] = rewrite.text
        for new, olds in self.plan.moves.items():
            path = (self.root / Path(*new.split("."))).with_suffix(".py")
            texts[path] = self._merged(new, [moved[old] for old in olds if old in moved])
        for path in gone - texts.keys():
            path.unlink()
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            for folder in path.relative_to(self.root).parents[:-1]:
                marker = self.root / folder / "__init__.py"
                if not marker.exists():
                    marker.write_text(f'"""{folder.name}."""\n', encoding="utf-8")

    def _merged(self, new: str, rewrites: list["Rewrite"]) -> str:
        """The text of a new module: docstring, imports, and the bodies in an order that can be imported."""
        defined: dict[str, Rewrite] = {rewrite.module: rewrite for rewrite in rewrites}
        needs = {module: rewrite.needs() & defined.keys() for module, rewrite in defined.items()}
        order: list[Rewrite] = []
        while defined:
            ready = [module for module in defined if not needs[module] & defined.keys()]
            if not ready:
                self.problem("CIRCLE of definitions", new, list(defined))
            order.append(defined.pop((ready or list(defined))[0]))
        own = {self.plan.names.get(r.module, {}).get(name, name) for r in rewrites for name in r.file.defined}
        imports: dict[bool, dict[Wanted, None]] = {False: {}, True: {}}
        meanings: dict[str, tuple[str | None, str]] = {}
        for rewrite in order:
            for wanted, checking in rewrite.top:
                local = wanted.local or wanted.name.split(".")[0]
                if meanings.setdefault(local, wanted[:2]) != wanted[:2] or (wanted.module and local in own):
                    self.problem("IMPORT CLASH", new, f"{rewrite.module} imports", wanted, "beside", meanings[local])
                imports[checking][wanted] = None
        later = [wanted for wanted in imports[True] if wanted not in imports[False]]
        imports[False].pop(Wanted("typing", "TYPE_CHECKING", "TYPE_CHECKING"), None)
        if later:
            imports[False][Wanted("typing", "TYPE_CHECKING", "TYPE_CHECKING")] = None
        split = {rewrite.module: split_docstring(rewrite.text) for rewrite in order}
        docstring = split[rewrites[0].module][0]
        if new in self.plan.docs:
            docstring = f'"""{self.plan.docs[new]}"""'
        parts = [docstring, render(imports[False], "")]
        if later:
            parts.append("if TYPE_CHECKING:\n" + render(later, "    "))
        return "\n\n".join([*parts, *("\n" + split[rewrite.module][1] for rewrite in order)]) + "\n"


class Rewrite:
    """The new text of one file, and the imports that it wants at the top of its new module."""

    def __init__(self, project: Project, module: str) -> None:
        self.project, self.module = project, module
        self.file = project.files[module]
        self.home = project.new.get(module, module)
        self.moves = module in project.new
        self.top: list[tuple[Wanted, bool]] = []
        self.text = self.file.text
        self._edits: dict[tuple[int, int], str] = {}
        self._parents = {id(child): node for node in ast.walk(self.file.tree) for child in ast.iter_child_nodes(node)}

    def needs(self) -> set[str]:
        """Modules of which importing this one uses a name."""
        found = set()
        for name in self.file.eager & self.file.root.imports.keys():
            imported = self.file.root.imports[name]
            if imported.name and imported.module.split(".")[0] in TOPS:
                found.add(self.project.symbol(imported.module, imported.name).module)
        return found - {self.module}

    def carry_out(self) -> None:
        for old, new in self.project.plan.names.get(self.module, {}).items():
            if conflict := rename_conflict(self.file, self.file.root, old, new) if old != new else None:
                self.project.problem("UNSAFE", self.module, old, "->", new, ":", conflict)
            self._rename(self.file.root, old, new)
        for statement in self.file.statements:
            self._rewrite_import(statement)
        self._rewrite_strings()
        raw, at, parts = self.file.raw, 0, []
        for (start, end), text in sorted(self._edits.items()):
            if start >= at:
                parts += [raw[at:start].decode(), text]
                at = end
        self.text = "".join([*parts, raw[at:].decode()])

    def _edit(self, start: int, end: int, text: str) -> None:
        if self._edits.setdefault((start, end), text) != text:
            self.project.problem("two edits", self.module, self._edits[start, end], text)

    def _rename(self, scope: Scope, old: str, new: str) -> None:
        for reference in scope.references.get(old, []):
            self._edit(*reference.span, new)

    def _line(self, at: int) -> int:
        return self.file.raw[:at].count(b"\n") + 1

    def _rewrite_import(self, statement: ImportStatement) -> None:
        node, scope = statement.node, statement.scope
        wanted: list[Wanted] = []
        for alias in node.names:
            local = alias.asname or alias.name
            if isinstance(node, ast.Import):
                if alias.name.split(".")[0] in TOPS and alias.name not in TOPS:
                    self.project.problem("import statement", self.module, ast.unparse(node))
                wanted.append(Wanted(None, alias.name, alias.asname))
            elif not node.module or node.level or node.module.split(".")[0] not in TOPS:
                wanted.append(self._settled(scope, local, node.module or "", alias.name))
            else:
                symbol = self.project.symbol(node.module, alias.name)
                if not symbol.ours:
                    wanted.append(Wanted(symbol.module, symbol.name or "", local))
                elif symbol.name is None:
                    wanted += self._module_import(scope, local, symbol.module)
                else:
                    wanted += self._name_import(scope, local, symbol)
        self._replace(statement, wanted)

    def _settled(self, scope: Scope, local: str, module: str, name: str) -> Wanted:
        other = self.project.plan.local.get((self.home, f"{module}.{name}"))
        if other and other != local:
            self._rename(scope, local, other)
            local = other
        return Wanted(module, name, local)

    def _name_import(self, scope: Scope, local: str, symbol: Symbol) -> list[Wanted]:
        module, name, _ = self.project.renamed(symbol)
        assert name
        if module == self.home and self.moves:  # one module now: no import
            if local != name:
                reason = shadowed(scope, local, name)
                if reason or (scope is not self.file.root and name in scope.bound):
                    self.project.problem("SHADOW", self.module, local, "->", name, ":", reason or "it is bound there")
                self._rename(scope, local, name)
            return []
        if (self.home, f"{module}.{name}") in self.project.plan.local:
            return [self._settled(scope, local, module, name)]
        if local != name:
            if reason := rename_conflict(self.file, scope, local, name):
                if local == symbol.name:
                    self.project.problem("ALIAS", self.module, f"{module}.{name} as {local} :", reason)
            else:
                self._rename(scope, local, name)
                local = name
        return [Wanted(module, name, local)]

    def _module_import(self, scope: Scope, local: str, old: str) -> list[Wanted]:
        """`from package import module`, used as `module.name`."""
        new = self.project.new.get(old, old)
        package, _, last = new.rpartition(".")
        references = scope.references.get(local, [])
        if old not in self.project.new:
            return [Wanted(package, last, local)]
        for reference in references:
            attribute = self._attribute(reference)
            if attribute is None:
                self._patched(reference, old)
                if new == self.home:
                    self.project.problem("BARE use", self.module, local, "line", self._line(reference.span[0]))
                continue
            name, start, end = attribute
            symbol = self.project.symbol(old, name)
            module, renamed, _ = self.project.renamed(symbol)
            if module != new or renamed is None:
                self.project.problem("ELSEWHERE", self.module, f"{local}.{name}", module)
            elif new == self.home:
                at: Scope | None = reference.scope
                while at is not None and at is not self.file.root:
                    if renamed in at.bound:
                        self.project.problem("SHADOW", self.module, f"{local}.{name}", "line", self._line(start))
                    at = at.parent
                self._edit(reference.span[0], end, renamed)
            elif renamed != name:
                self._edit(start, end, renamed)
        if new == self.home:
            return []
        if last != local and rename_conflict(self.file, scope, local, last) is None:
            self._rename(scope, local, last)
            local = last
        return [Wanted(package, last, local)]

    def _attribute(self, reference: Reference) -> tuple[str, int, int] | None:
        """Name and bytes of the attribute that is read from a module."""
        parent = self._parents.get(id(reference.node))
        if not isinstance(parent, ast.Attribute):
            return None
        end = self.file.span(parent)[1]
        return parent.attr, end - len(parent.attr.encode()), end

    def _patched(self, reference: Reference, old: str) -> None:
        """`monkeypatch.setattr(module, "name", ...)`."""
        call = self._parents.get(id(reference.node))
        if isinstance(call, ast.Call) and len(call.args) > 1 and isinstance(call.args[1], ast.Constant):
            name = call.args[1].value
            if call.args[0] is reference.node and isinstance(name, str):
                renamed = self.project.renamed(self.project.symbol(old, name)).name
                if renamed != name:
                    self._edit(*self.file.span(call.args[1]), f'"{renamed}"')

    def _replace(self, statement: ImportStatement, wanted: list[Wanted]) -> None:
        raw = self.file.raw
        start, end = self.file.span(statement.node)
        line = raw.rfind(b"\n", 0, start) + 1
        after = raw.find(b"\n", end)
        indent, trailing = raw[line:start].decode(), raw[end:after].decode().strip()
        if self.moves and statement.scope is self.file.root:
            self.top += [(each, statement.checking) for each in wanted]
            if trailing:
                self.project.problem("comment lost", self.home, ast.unparse(statement.node), trailing)
            self._edit(line, after + 1, "")
        elif wanted:
            self._edit(start, after, render(wanted, indent).lstrip() + (f"  {trailing}" if trailing else ""))
        else:
            self._edit(line, after + 1, "")

    def _rewrite_strings(self) -> None:
        """Dotted names of modules and their definitions in strings."""
        for node in ast.walk(self.file.tree):
            if not isinstance(node, ast.Constant) or not isinstance(node.value, str):
                continue
            module, colon, rest = node.value.partition(":")
            outer, _, name = module.rpartition(".")
            if module in self.project.new:
                text = self.project.new[module] + colon + rest
            elif outer in self.project.new and name in self.project.files[outer].defined:
                text = ".".join(filter(None, self.project.renamed(Symbol(outer, name))[:2])) + colon + rest
            else:
                continue
            self._edit(*self.file.span(node), f'"{text}"')


def render(imports: Iterable[Wanted], indent: str) -> str:
    lines, by_module = [], defaultdict(set)
    for module, name, local in imports:
        written = name if local in (None, name) else f"{name} as {local}"
        if module is None:
            lines.append(f"{indent}import {written}")
        else:
            by_module[module].add(written)
    lines += [f"{indent}from {module} import {', '.join(sorted(names))}" for module, names in sorted(by_module.items())]
    return "\n".join(lines)


def split_docstring(text: str) -> tuple[str, str]:
    """A module's docstring as it is written, and the rest without an empty `if TYPE_CHECKING`."""
    text = text.replace("if TYPE_CHECKING:\n\n", "")
    file = SourceFile(text)
    body = file.tree.body
    if not body or not isinstance(body[0], ast.Expr) or not isinstance(body[0].value, ast.Constant):
        return "", text.strip("\n")
    end = file.span(body[0])[1]
    return file.raw[:end].decode(), file.raw[end:].decode().strip("\n")


if __name__ == "__main__":
    project = Project(Path(sys.argv[1]), Plan.load(sys.argv[2]))
    project.carry_out()
    print("\n".join(project.problems))
    print(f"{len(project.problems)} to look at")
