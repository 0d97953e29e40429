"""Carry out ATTRIBUTES and PARAMETERS of a plan in convo/ and tests/, after `move.py` ran on the tree.

    python -m tests.codemod.attributes . tests/codemod/plan.py

    ATTRIBUTES = {"items.kinds": {"Part.words": "text"}}      old module -> old class and attribute -> new attribute
    PARAMETERS = {"items.kinds": {"find.what": "pattern", "Part.cut.at": "offset"}}

An attribute is renamed in its class, in every class that inherits or implements it (protocols), in
expressions by the type of the object, in keywords of constructors, replace and _replace, in patterns,
and in strings of monkeypatch.setattr, __slots__ and object.__setattr__. A parameter is renamed in the
function, in overriding methods, and in calls by keyword. Types are mypy's (several minutes, 3 GB).
A rename that would meet another name is left out, and printed with all that needs a look.
Needs Python 3.12; run the formatter afterwards.
"""

import ast
import re
import runpy
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from tests.codemod.scopes import Scope, SourceFile
from tests.codemod.types_of import ANY, MODULE, TOPS, Callee, Class, FunctionKey, Position, Types, read_types

HAND: list[tuple[str, str, str]] = [
    ("convo/usage/models.toml", "upto = ", "max_input_tokens = "),
    ("convo/usage/models.toml", "above = [", "long_input_factors = ["),
    (
        "convo/usage/models.toml",
        "more input than `upto` is priced at `above` times input and output; without\n# `above` it has no cost.",
        "more input than `max_input_tokens` is priced at `long_input_factors`\n"
        "# times input and output; without `long_input_factors` it has no cost.",
    ),
    (
        "convo/usage/models.py",
        """Price(**({**row, "above": tuple(row["above"])} if "above" in row else row)) for name, row in rows}""",
        """Price(**{**row, "long_input_factors": _factors(row)}) for name, row in rows}


def _factors(row: Mapping[str, Any]) -> tuple[float, ...] | None:
    return tuple(row["long_input_factors"]) if "long_input_factors" in row else None""",
    ),
    ("tests/endpoints/test_parameters.py", '"input_items.', '"list_input_items.'),
    ("tests/endpoints/test_parameters.py", '"conversation.', '"retrieve_conversation.'),
    ("tests/endpoints/test_parameters.py", '"add_items.', '"add_conversation_items.'),
    ("tests/endpoints/test_parameters.py", '"conversation_items.', '"list_conversation_items.'),
    ("tests/endpoints/test_parameters.py", '"conversation_item.', '"retrieve_conversation_item.'),
    ("tests/endpoints/test_parameters.py", '"delete_item.', '"delete_conversation_item.'),
    ("tests/stores/test_side_by_side.py", 'self.both("tail"', 'self.both("items_after"'),
    ("tests/stores/test_side_by_side.py", 'self.both("answers"', 'self.both("responses_to"'),
    ("tests/stores/test_side_by_side.py", 'self.both("family"', 'self.both("related_links"'),
    ("tests/stores/test_side_by_side.py", 'self.both("calls"', 'self.both("agent_calls"'),
    ("tests/stores/test_side_by_side.py", 'self.both("find"', 'self.both("find_handles"'),
    ("tests/stores/test_side_by_side.py", '["head", "mark", "written"]', '["head", "confirmed_head", "file_head"]'),
    ("tests/stores/test_changes.py", '["mark", "written"]', '["confirmed_head", "file_head"]'),
    ("tests/stores/test_changes.py", '{"mark": back', '{"confirmed_head": back'),
    ("tests/stores/test_agent_runs.py", '{"session": "ses_1"}', '{"session_id": "ses_1"}'),
    ("tests/stores/test_agent_runs.py", '{"state": "s1"}', '{"source_state_hash": "s1"}'),
    (
        "tests/stores/test_agent_runs.py",
        '"session": "ses_2", "state": "s1"}',
        '"session_id": "ses_2", "source_state_hash": "s1"}',
    ),
    ("tests/stores/test_agent_runs.py", r'{"session": "\ud800"}', r'{"session_id": "\ud800"}'),
    ("tests/models/test_stream.py", 'st.just("text")', 'st.just("write_text")'),
    ("tests/models/test_stream.py", 'st.just("refusal")', 'st.just("write_refusal")'),
    ("tests/models/test_stream.py", 'st.just("thinking")', 'st.just("write_reasoning")'),
    ("tests/models/test_stream.py", 'st.just("seal")', 'st.just("write_encrypted_content")'),
    ("tests/models/test_bodies.py", "there.count(BODY)", "there.count_input_tokens(BODY)"),
    ("tests/models/test_bodies.py", "there.conversation_items(", "there.list_conversation_items("),
    ("tests/models/test_bodies.py", "there.models()", "there.list_models()"),
    ("tests/models/test_bodies.py", "model.models()", "model.list_models()"),
    ("tests/engine/test_looking.py", "endpoint.conversation_items(", "endpoint.list_conversation_items("),
    ("tests/transfer/test_handing.py", "endpoint.conversation_items(", "endpoint.list_conversation_items("),
    ("tests/transfer/test_handing.py", 'hall.endpoint, "add_items"', 'hall.endpoint, "add_conversation_items"'),
    (
        "tests/transfer/faults.py",
        '"create_conversation", "add_items"',
        '"create_conversation", "add_conversation_items"',
    ),
    ("tests/engine/test_turns.py", 'name != "upkeep"', 'name != "admin"'),
    ("tests/history/test_prefix.py", "copy.behind(", "copy.shared_element("),
    ("tests/history/test_prefix.py", "copies[0].behind(", "copies[0].shared_element("),
    ("tests/history/test_prefix.py", "copies[1].behind(", "copies[1].shared_element("),
    ("tests/limits/test_answers.py", "told[-1].limit ==", "told[-1].limit_name =="),
    ("tests/transfer/test_handing.py", "endpoint.delete_item(", "endpoint.delete_conversation_item("),
    ("tests/transfer/test_handing.py", "endpoint.conversation(", "endpoint.retrieve_conversation("),
    ("tests/engine/test_looking.py", "endpoint.delete_item(", "endpoint.delete_conversation_item("),
    ("tests/stores/test_side_by_side.py", 'both("append"', 'both("append_events"'),
    ("tests/stores/test_side_by_side.py", ", dry=ask", ", dry_run=ask"),
    ("tests/stores/test_side_by_side.py", "in there.ids if", "in there.item_ids if"),
    ("tests/inspection/linting/corpus.py", ", stored=", ", is_stored="),
    ("tests/inspection/linting/test_mending.py", ", stored=", ", is_stored="),
    ("tests/inspection/linting/test_rules.py", ", stored=", ", is_stored="),
    (
        "convo/server/app.py",
        'self.is_shutting_down, exchange.tenant,\n            scope["path_params"]',
        'self.is_shutting_down,\n            exchange.tenant, scope["path_params"]',
    ),
    (
        "convo/server/server.py",
        "listening_socket: socket.socket, stop_event: asyncio.Event,\n    report:",
        "listening_socket: socket.socket,\n    stop_event: asyncio.Event, report:",
    ),
    (
        "tests/gateway/server.py",
        "log=told.append, report_store_fault=",
        "log=told.append,\n        report_store_fault=",
    ),
    (
        "convo/cli/agent_run.py",
        """return f"{get_command_prefix()} resume {session} {self._setup.format_options(self.chat.options.model)}"""
        """{self._format_decision_options()}\"""",
        """options = self._setup.format_options(self.chat.options.model)
        return f"{get_command_prefix()} resume {session} {options}{self._format_decision_options()}\"""",
    ),
    (
        "convo/cli/doctor_checks.py",
        """    said = f"{server.location} ({facts.source}): PostgreSQL {version}, role {server.role!r}, """
        """schema {server.schema_version}\"""",
        """    place = f"{server.location} ({facts.source})"
    said = f"{place}: PostgreSQL {version}, role {server.role!r}, schema {server.schema_version}\"""",
    ),
    (
        "convo/terminal/report_views.py",
        """    folded = f"compacted {format_count(len(made.plan.compacted_items))}, """
        """{format_token_reduction(made.count_before, compaction.count_after)}\"""",
        """    tokens = format_token_reduction(made.count_before, compaction.count_after)
    folded = f"compacted {format_count(len(made.plan.compacted_items))}, {tokens}\"""",
    ),
    (
        "convo/terminal/report_views.py",
        """    head = f"{display.apply_style(escape_control_chars(name), 'bold')}: """
        """{format_count(len(repair.view.items))}, held by {owner}\"""",
        """    title = display.apply_style(escape_control_chars(name), "bold")
    head = f"{title}: {format_count(len(repair.view.items))}, held by {owner}\"""",
    ),
]
"""File, text before, text after: places that types do not reach."""


WIDTH = 120


class Attribute(NamedTuple):
    class_name: str
    name: str


class Parameter(NamedTuple):
    function: FunctionKey
    name: str


Slot = Attribute | Parameter


@dataclass
class Row:
    """One row of a table. `owner` is the class or function by its name today."""

    table: str
    module: str
    key: str
    owner: str
    old: str
    new: str
    state: str = "not found"
    slots: list[Slot] = field(default_factory=list)

    def __str__(self) -> str:
        return f"{self.table} {self.module} {self.key} -> {self.new}"


def read_rows(plan: Path) -> list[Row]:
    read = runpy.run_path(str(plan))
    new_modules = {old: new for new, olds in read["MOVES"].items() for old in olds}
    rows = []
    for file in sorted((plan.parent / "names").glob("*.py")):
        part = runpy.run_path(str(file))
        for table in ("ATTRIBUTES", "PARAMETERS"):
            for module, names in part.get(table, {}).items():
                renamed = read["NAMES"].get(module, {})
                for key, new in names.items():
                    owner, _, old = key.rpartition(".")
                    first, dot, rest = owner.partition(".")
                    place = f"convo.{new_modules.get(module, module)}.{renamed.get(first, first)}{dot}{rest}"
                    rows.append(Row(table, module, key, place, old, new))
    return rows


class Groups:
    """Things that must have one name: sets that are joined."""

    def __init__(self) -> None:
        self._parents: dict[Slot, Slot] = {}

    def find(self, slot: Slot) -> Slot:
        while (parent := self._parents.get(slot, slot)) != slot:
            self._parents[slot] = self._parents.get(parent, parent)
            slot = parent
        return slot

    def join(self, one_slot: Slot, other_slot: Slot) -> None:
        one, other = self.find(one_slot), self.find(other_slot)
        self._parents.setdefault(one, one)
        self._parents.setdefault(other, other)
        if one != other:
            self._parents[other] = one

    def members(self) -> dict[Slot, list[Slot]]:
        found: dict[Slot, list[Slot]] = defaultdict(list)
        for slot in self._parents:
            found[self.find(slot)].append(slot)
        return found


def wrapped(line: str) -> str:
    """A line of a docstring, in two where it is too long. A summary ends at its last mark."""
    if len(line.rstrip()) <= WIDTH:
        return line
    margin = " " * (len(line) - len(line.lstrip()))
    if line.lstrip().startswith('"""'):
        at = max(line.rfind(mark, 0, WIDTH) for mark in (". ", "; ", ", "))
        rest = line[at + 2 :].strip()
        ending = f'\n{margin}"""\n' if rest.endswith('"""') else "\n"
        rest = rest.removesuffix('"""')
        return f"{line[:at]}.\n\n{margin}{rest[0].upper()}{rest[1:]}{ending}"
    at = line.rindex(" ", 0, WIDTH + 1)
    entry = re.match(r" +(?:\w+, )*\w+:  +", line)
    return f"{line[:at]}\n{' ' * entry.end() if entry else margin}{line[at + 1 :]}"


class Renamer:
    def __init__(self, root: Path, types: Types, rows: list[Row]) -> None:
        self.root, self.types, self.rows = root, types, rows
        self.reports: dict[str, list[str]] = defaultdict(list)
        self.files: dict[str, SourceFile] = {}
        for top in TOPS:
            for path in sorted((root / top).rglob("*.py")):
                if path.is_relative_to(root / "tests" / "codemod"):
                    continue
                self.files[str(path.relative_to(root))] = SourceFile(path.read_text("utf-8"))
        self.edits: dict[str, dict[tuple[int, int], str]] = defaultdict(dict)
        self.documented: dict[str, set[int]] = defaultdict(set)
        """Lines of docstrings in which there are edits."""
        self.groups = Groups()
        self.new: dict[Slot, str] = {}
        """First slot of a group -> its new name."""
        self.old_names: tuple[set[str], set[str]] = set(), set()
        """Old names of attributes, and of all that can be a keyword."""
        self.scopes: dict[FunctionKey, Scope] = {}
        self.bodies: dict[str, list[tuple[str, Scope]]] = defaultdict(list)
        for name, file in self.files.items():
            for scope in file.scopes:
                node = scope.node
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    self.scopes[name, node.lineno, node.col_offset] = scope
                elif isinstance(node, ast.ClassDef):
                    self.bodies[types.class_at.get((name, node.lineno, node.col_offset), "")].append((name, scope))

    def report(self, kind: str, *words: object) -> None:
        self.reports[kind].append(" ".join(map(str, words)))

    # -- what has one name ----------------------------------------------------------------------

    def ours(self) -> Iterator[Class]:
        return (each for each in self.types.classes.values() if each.name.split(".")[0] in TOPS)

    def attribute(self, class_name: str, name: str) -> Attribute | None:
        """The definition behind an attribute of a class."""
        known = self.types.classes.get(class_name)
        for base in known.lookup if known else ():
            if name in self.types.classes[base].own:
                return Attribute(base, name)
        return None

    def join_names(self) -> None:
        for each in self.ours():
            for name in each.own:
                for base in each.lookup[1:]:
                    if name in self.types.classes[base].own:
                        self.groups.join(Attribute(each.name, name), Attribute(base, name))
        for implementation, protocol in [*self.types.implementations, *self._delegations()]:
            for base in self.types.classes[protocol].lookup:
                if base.split(".")[0] in TOPS:
                    for name in self.types.classes[base].own:
                        slot = self.attribute(implementation, name)
                        if slot and not name.startswith("__"):
                            self.groups.join(slot, Attribute(base, name))
        methods: dict[Slot, list[FunctionKey]] = defaultdict(list)
        for each in self.ours():
            for name, keys in each.methods.items():
                if name not in ("__init__", "__new__"):
                    methods[self.groups.find(Attribute(each.name, name))] += keys
        for keys in [*methods.values(), *self.types.overloads]:
            first: dict[str, Parameter] = {}
            for key in keys:
                for name in self.types.functions[key].parameters:
                    parameter = Parameter(key, name)
                    self.groups.join(first.setdefault(name, parameter), parameter)

    def _delegations(self) -> Iterator[tuple[str, str]]:
        """Classes whose `__getattr__` passes names on to an object, each with the class of the object."""
        for class_name, bodies in self.bodies.items():
            for path, scope in bodies:
                for method in ast.iter_child_nodes(scope.node):
                    if isinstance(method, ast.FunctionDef) and method.name == "__getattr__":
                        for node in ast.walk(method):
                            end = (getattr(node, "end_lineno", 0), getattr(node, "end_col_offset", 0))
                            found = self.types.reached.get((path, *end), set()) if isinstance(node, ast.Call) else set()
                            yield from ((class_name, each) for each in found & self.types.classes.keys() if class_name)

    def settle(self) -> None:
        """Give every row its slots, and every group its new name."""
        functions: dict[str, list[FunctionKey]] = defaultdict(list)
        for key, function in self.types.functions.items():
            if function.class_name is None:
                module = key[0].removesuffix(".py").removesuffix("/__init__").replace("/", ".")
                functions[function.name if "." in function.name else f"{module}.<local>.{function.name}"].append(key)
        self._find_moved(functions)
        attributes = {(row.owner, row.old): row.new for row in self.rows if row.table == "ATTRIBUTES"}
        wanted: dict[Slot, dict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
        for row in self.rows:
            if row.table == "ATTRIBUTES":
                attribute = self.attribute(row.owner, row.old)
                row.slots = [attribute] if attribute else []
                if not attribute and self.attribute(row.owner, row.new):
                    row.state = "done before"
                if row.owner not in self.types.classes:
                    row.state = f"no class {row.owner}"
            else:
                keys = functions.get(row.owner, [])
                class_name, _, method = row.owner.rpartition(".")
                if known := self.types.classes.get(class_name):
                    other = attributes.get((class_name, method), method)
                    keys = known.methods.get(method) or known.methods.get(other) or []
                if not keys:
                    row.state = f"no function {row.owner}"
                taken = [name for key in keys for name in self.types.functions[key].parameters]
                row.slots = [Parameter(key, row.old) for key in keys if row.old in self.types.functions[key].parameters]
                if keys and not row.slots and row.new in taken:
                    row.state = "done before"
            for slot in row.slots:
                row.state = "done"
                wanted[self.groups.find(slot)][row.new].append(row)
        for group, names in wanted.items():
            if len(names) > 1:
                self.report("TWO NEW NAMES", "; ".join(str(row) for rows in names.values() for row in rows))
                for row in (row for rows in names.values() for row in rows):
                    row.state = "conflict"
            else:
                self.new[group] = next(iter(names))
        for group, members in self.groups.members().items():
            if group in self.new:
                for slot in members:
                    if isinstance(slot, Attribute) and slot.class_name.split(".")[0] not in TOPS:
                        self.drop(group, f"{slot.class_name}.{slot.name} is defined elsewhere")

    def _find_moved(self, functions: Mapping[str, list[FunctionKey]]) -> None:
        """Classes and functions that are in another module than the plan says, if only one has the name."""
        classes = [each.name for each in self.ours()]
        for row in self.rows:
            parts = row.owner.split(".")
            depth = next((number for number, part in enumerate(parts) if part.lstrip("_")[:1].isupper()), None)
            depth = len(parts) - 1 if depth is None else depth
            names = classes if parts[depth].lstrip("_")[:1].isupper() else [*functions]
            place = ".".join(parts[: depth + 1])
            if place not in names:
                found = [name for name in names if name.endswith(f".{parts[depth]}") and "<local>" not in name]
                if len(found) == 1:
                    self.report("MOVED", row, ":", found[0])
                    row.owner = ".".join([found[0], *parts[depth + 1 :]])

    def new_slots(self) -> list[Slot]:
        """Definitions that get a new name."""
        grouped = [slot for group, members in self.groups.members().items() if group in self.new for slot in members]
        return [*grouped, *self.new]

    def renamed(self, slot: Slot | None) -> str | None:
        return self.new.get(self.groups.find(slot)) if slot else None

    def drop(self, group: Slot, reason: str) -> None:
        self.new.pop(group, None)
        for row in self.rows:
            if any(self.groups.find(slot) == group for slot in row.slots):
                row.state = "conflict"
                self.report("CONFLICT", row, ":", reason)

    def drop_conflicts(self) -> None:
        """Leave out what would meet another name, until nothing does."""
        while found := [*self._attribute_conflicts(), *self._parameter_conflicts()]:
            for group, reason in dict(found).items():
                if group in self.new:
                    self.drop(group, reason)

    def _attribute_conflicts(self) -> Iterator[tuple[Slot, str]]:
        news = set(self.new.values())
        for each in self.ours():
            final: dict[str, set[Slot]] = defaultdict(set)
            for base in each.lookup:
                for name in self.types.classes[base].own:
                    group = self.groups.find(Attribute(base, name))
                    final[self.new.get(group, name)].add(group)
            for name in final.keys() & news:
                if len(final[name]) > 1:
                    for group in final[name] & self.new.keys():
                        others = [str(other.name) for other in final[name] if other != group]
                        yield group, f"{each.name} has {name} (today {', '.join(others)})"
        for class_name, bodies in self.bodies.items():
            for path, scope in bodies:
                for name in scope.bound:
                    slot = self.attribute(class_name, name)
                    if slot and (new := self.renamed(slot)):
                        for outer in self._outer_uses(path, scope, new):
                            yield self.groups.find(slot), f"{path}:{outer} the body of the class uses another {new}"

    def _outer_uses(self, path: str, scope: Scope, name: str) -> list[int]:
        """Lines in the body of a class where a name of an outer scope is used."""
        file = self.files[path]
        return [
            file.raw[: reference.span[0]].count(b"\n") + 1
            for outer in file.scopes
            if outer is not scope
            for reference in outer.references.get(name, ())
            if reference.scope is scope
        ]

    def _parameter_conflicts(self) -> Iterator[tuple[Slot, str]]:
        for key, scope in self.scopes.items():
            function = self.types.functions.get(key)
            if not function:
                continue
            final = {name: self.renamed(Parameter(key, name)) or name for name in function.parameters}
            for name, new in final.items():
                if name == new:
                    continue
                group = self.groups.find(Parameter(key, name))
                where = f"{key[0]}:{key[1]} {function.name}"
                if new in scope.bound - final.keys() or [*final.values()].count(new) > 1:
                    yield group, f"{where}: {new} is bound in the function"
                elif new in scope.outer:
                    yield group, f"{where}: another {new} is used in the function"
                elif reason := self._shadowed(key[0], scope, name, new):
                    yield group, f"{where}: {reason}"

    def _shadowed(self, path: str, scope: Scope, old: str, new: str) -> str | None:
        for reference in scope.references.get(old, ()):
            at: Scope | None = reference.scope
            while at is not None and at is not scope:
                node = at.node
                bound = set(at.bound)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    key = (path, node.lineno, node.col_offset)
                    bound = {self.renamed(Parameter(key, name)) or name for name in bound}
                if new in bound and (at.kind != "class" or at is reference.scope):
                    return f"{new} is local where {old} is used"
                at = at.parent
        return None

    # -- edits ----------------------------------------------------------------------------------

    def edit(self, path: str, start: int, old: str, new: str) -> None:
        span = (start, start + len(old.encode()))
        if self.files[path].raw[slice(*span)] != old.encode():
            self.report("NO TOKEN", path, self.line(path, start), old)
        elif self.edits[path].setdefault(span, new) != new:
            self.report("TWO EDITS", path, self.line(path, start), old, "->", self.edits[path][span], "or", new)

    def line(self, path: str, at: int) -> int:
        return self.files[path].raw[:at].count(b"\n") + 1

    def rename(self) -> None:
        for class_name, bodies in self.bodies.items():
            for path, scope in bodies:
                for name in scope.bound:
                    if new := self.renamed(Attribute(class_name, name)):
                        references = scope.references.get(name, ())
                        first = min(
                            reference.span[0]
                            for reference in references
                            if not isinstance(getattr(reference.node, "ctx", None), ast.Load)
                        )
                        for reference in references:
                            if reference.span[0] >= first:  # before, the name is that of an outer scope
                                self.edit(path, reference.span[0], name, new)
        for key, scope in self.scopes.items():
            if function := self.types.functions.get(key):
                for name in function.parameters:
                    if new := self.renamed(Parameter(key, name)):
                        for reference in scope.references.get(name, ()):
                            self.edit(key[0], reference.span[0], name, new)
        slots = self.new_slots()
        attributes = {slot.name for slot in slots if isinstance(slot, Attribute)}
        self.old_names = attributes, attributes | {slot.name for slot in slots}
        for path in self.files:
            _FileEdits(self, path).run()
        for class_name, bodies in self.bodies.items():
            for path, scope in bodies:
                self._docstring(path, scope, {name: self.renamed(Attribute(class_name, name)) for name in scope.bound})
        for key, scope in self.scopes.items():
            if function := self.types.functions.get(key):
                names = {name: self.renamed(Parameter(key, name)) for name in function.parameters}
                self._docstring(key[0], scope, names)

    def _docstring(self, path: str, scope: Scope, new: Mapping[str, str | None]) -> None:
        """Rename in the entries `name:  text` of a docstring, and between backticks."""
        node = scope.node
        names = [name for name, new_name in new.items() if new_name]
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) or not names:
            return
        match node.body[0]:
            case ast.Expr(value=ast.Constant(value=str()) as text):
                start, end = self.files[path].span(text)
                any_name = "|".join(sorted(map(re.escape, names)))
                entry = rf"^ +(?:\w+, )*({any_name})(?:, \w+)*: |(?<!`)`({any_name})`(?!`)"
                at = start
                while found := re.compile(entry.encode(), re.MULTILINE).search(self.files[path].raw, at, end):
                    group = 1 if found[1] else 2
                    name = found[group].decode()
                    self.edit(path, found.start(group), name, new[name] or name)
                    self.documented[path].add(self.line(path, found.start(group)))
                    at = found.end(group)

    def write(self) -> None:
        for path, edits in self.edits.items():
            raw = self.files[path].raw
            for (start, end), new in sorted(edits.items(), reverse=True):
                raw = raw[:start] + new.encode() + raw[end:]
            lines = raw.decode().splitlines(keepends=True)
            for number in self.documented[path]:
                lines[number - 1] = wrapped(lines[number - 1])
            (self.root / path).write_text("".join(lines), encoding="utf-8")
        for path, before, after in HAND:
            file = self.root / path
            text = file.read_text("utf-8") if file.exists() else ""
            if before in text:
                file.write_text(text.replace(before, after), encoding="utf-8")
            elif after not in text:
                self.report("HAND", path, repr(before), "is not there")


class _FileEdits:
    """Edits of the expressions and patterns of one file."""

    def __init__(self, renamer: Renamer, path: str) -> None:
        self.renamer, self.types, self.path = renamer, renamer.types, path
        self.file = renamer.files[path]
        self.olds, self.keyword_names = renamer.old_names
        self.unpacked_names = {
            node.kwarg.arg for node in ast.walk(self.file.tree) if isinstance(node, ast.arguments) and node.kwarg
        }

    def place(self, node: ast.expr | ast.pattern) -> Position:
        return self.path, node.end_lineno or 0, node.end_col_offset or 0

    def report(self, kind: str, node: ast.expr | ast.pattern, *words: object) -> None:
        self.renamer.report(kind, f"{self.path}:{node.lineno}", *words)

    def run(self) -> None:
        for node in ast.walk(self.file.tree):
            match node:
                case ast.Attribute(attr=name) if name in self.olds:
                    self.attribute(node)
                case ast.Call():
                    self.keywords(node)
                    self.strings(node)
                case ast.MatchClass() if node.kwd_attrs:
                    self.pattern(node)
                case ast.ClassDef():
                    self.slots(node)

    def new_name(self, node: ast.expr | ast.pattern, name: str, classes: Iterable[str]) -> str | None:
        """The new name of an attribute of an object that has one of these classes."""
        found: dict[str, list[str]] = defaultdict(list)
        for each in sorted(set(classes) - {ANY, MODULE}):
            if slot := self.renamer.attribute(each, name):
                found[self.renamer.renamed(slot) or name].append(each)
        if len(found) > 1:
            self.report("MIXED", node, f".{name}", dict(found))
            return None
        new = next(iter(found), None)
        return new if new != name else None

    def attribute(self, node: ast.Attribute) -> None:
        classes = self.types.members.get(self.place(node))
        if not classes:
            self.report("NO TYPE", node, self.file.source(node))
        elif new := self.new_name(node, node.attr, classes):
            end = self.file.span(node)[1]
            self.renamer.edit(self.path, end - len(node.attr.encode()), node.attr, new)
        elif ANY in classes:
            self.report("ANY", node, self.file.source(node))

    def keywords(self, node: ast.Call) -> None:
        place = self.place(node)
        for keyword in node.keywords:
            if keyword.arg is None:
                if not (isinstance(keyword.value, ast.Name) and keyword.value.id in self.unpacked_names):
                    self.unpacked(node, self.types.callees.get(place, []))
                continue
            if keyword.arg not in self.keyword_names:
                continue
            found = self.keyword(node, keyword.arg, self.types.callees.get(place, []))
            if not found:
                found = self.keyword(node, keyword.arg, self.types.forwarded.get(place, []))
            if len(found) > 1:
                self.report("MIXED", node, f"{keyword.arg}=", found)
            elif found and (new := next(iter(found))) != keyword.arg:
                start = self.file.offset(keyword.lineno, keyword.col_offset)
                self.renamer.edit(self.path, start, keyword.arg, new)
            elif not found and not isinstance(node.func, ast.Name) and place not in self.types.callees:
                self.report("NO TYPE", node, f"{ast.unparse(node.func)}({keyword.arg}=)")

    def keyword(self, node: ast.Call, name: str, callees: Iterable[Callee]) -> set[str]:
        found = set()
        for callee in callees:
            slot: Slot | None = None
            if callee.fields_of:
                slot = self.renamer.attribute(callee.fields_of, name)
            elif callee.function and name in self.types.functions[callee.function].parameters:
                slot = Parameter(callee.function, name)
            elif callee.function:
                found |= self.keyword(node, name, self.types.passed_on.get(callee.function, ()))
            if slot:
                found.add(self.renamer.renamed(slot) or name)
        return found

    def unpacked(self, node: ast.Call, callees: Iterable[Callee]) -> None:
        """Report `**` into something that has a name to be renamed."""
        for callee in callees:
            names = self.names_of(callee.fields_of) if callee.fields_of else set()
            if callee.function:
                parameters = self.types.functions[callee.function].parameters
                names = {name for name in parameters if self.renamer.renamed(Parameter(callee.function, name))}
            if names:
                self.report("UNPACKED", node, ast.unparse(node.func), "(**) has", *sorted(names))

    def names_of(self, class_name: str) -> set[str]:
        """Attributes of a class that get a new name."""
        known = self.types.classes.get(class_name)
        return {
            name
            for base in (known.lookup if known else ())
            for name in self.types.classes[base].own
            if self.renamer.renamed(Attribute(base, name))
        }

    def strings(self, node: ast.Call) -> None:
        classes = self.types.reached.get(self.place(node))
        if classes is None:
            return
        function = ast.unparse(node.func)
        certain = function.endswith(("monkeypatch.setattr", "monkeypatch.delattr", "object.__setattr__"))
        named = False
        for argument in node.args:
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                named = True
                name = argument.value
                if name not in self.olds or "attr" not in function:
                    continue
                new = self.new_name(node, name, classes)
                if new and certain and argument is node.args[1]:
                    self.renamer.edit(self.path, self.file.span(argument)[0] + 1, name, new)
                elif new or (ANY in classes and not certain) or function.endswith(("attrgetter", "methodcaller")):
                    self.report("BY NAME", node, f"{function}({name!r})", *sorted(classes))
        reads_all = function.split(".")[-1] in ("asdict", "astuple", "_asdict", "vars", "fields", "getattr", "setattr")
        names = {name for each in classes for name in self.names_of(each)}
        if reads_all and names and not named:
            self.report("ALL FIELDS", node, f"{function}()", *sorted(classes), ":", *sorted(names))

    def pattern(self, node: ast.MatchClass) -> None:
        class_name = self.types.patterns.get(self.place(node))
        if class_name is None:
            self.report("NO TYPE", node, "pattern", ast.unparse(node.cls))
            return
        at = self.file.span(node.patterns[-1] if node.patterns else node.cls)[1]
        for name, inner in zip(node.kwd_attrs, node.kwd_patterns, strict=True):
            start, end = self.file.span(inner)
            found = re.compile(rf"\b{name}\b(?=\s*=)".encode()).search(self.file.raw, at, start)
            if (new := self.new_name(node, name, [class_name])) and found:
                self.renamer.edit(self.path, found.start(), name, new)
            at = end

    def slots(self, node: ast.ClassDef) -> None:
        class_name = self.types.class_at.get((self.path, node.lineno, node.col_offset), "")
        for statement in node.body:
            match statement:
                case ast.Assign(targets=[ast.Name("__slots__" | "__match_args__")], value=value):
                    for part in ast.walk(value):
                        name = part.value if isinstance(part, ast.Constant) else None
                        if isinstance(name, str) and (new := self.renamer.renamed(Attribute(class_name, name))):
                            self.renamer.edit(self.path, self.file.span(part)[0] + 1, name, new)


def carry_out(root: Path, types: Types, rows: list[Row]) -> Renamer:
    renamer = Renamer(root, types, rows)
    renamer.join_names()
    renamer.settle()
    renamer.drop_conflicts()
    renamer.rename()
    renamer.write()
    return renamer


def main(root: Path, plan: Path) -> None:
    rows = read_rows(plan)
    renamer = carry_out(root, read_types(root), rows)
    for kind, lines in renamer.reports.items():
        for line in dict.fromkeys(lines):
            print(kind, line)
    for row in rows:
        if row.state not in ("done", "done before", "conflict"):
            print("NOT FOUND", row, ":", row.state)
    print(*(f"{state}: {count}" for state, count in Counter(row.state.split(" ")[0] for row in rows).items()))


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
