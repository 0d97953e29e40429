"""The schemas of the JSON output of commands: each file is generated, and allows what its report is written as."""

import json
from collections.abc import Iterator, Mapping
from enum import StrEnum
from importlib.resources import files
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from typer.core import TyperGroup as Group

from convo.cli.app import make_root_group
from convo.cli.commands.schema import SCHEMA_FILES
from convo.report import HIDDEN, Keywords, is_report, to_json
from tests.cli.schema_files import FOLDER, REPORTS, ApiEvent, format_schema, make_schema
from tests.command_runner import Convo


def load_schemas() -> dict[str, Any]:
    """All schemas in the package, by file name without the suffix."""
    schema_files = files("convo").joinpath("schemas").iterdir()
    return {file.name.removesuffix(".json"): json.loads(file.read_text(encoding="utf-8")) for file in schema_files}


@pytest.mark.parametrize("name", REPORTS)
def test_a_schema_file_is_generated_from_the_type_of_the_report(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == format_schema(name)
    Draft202012Validator.check_schema(make_schema(name))


def test_every_schema_belongs_to_the_output_of_a_command() -> None:
    assert set(load_schemas()) == set(REPORTS) == set(SCHEMA_FILES.values())


def test_every_command_with_json_has_a_schema_and_every_schema_a_command() -> None:
    assert set(SCHEMA_FILES) - {"error"} == set(commands_for_programs())


def commands_for_programs() -> Iterator[str]:
    """The names of all commands with `--json` or `--jsonl`, as in `SCHEMA_FILES`."""
    for name, command in commands(make_root_group(), ()):
        flags = {flag for param in command.params for flag in param.opts}
        if "--json" in flags:
            yield name
        if "--jsonl" in flags and name != "schema":
            yield f"{name} --jsonl"


def commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    yield " ".join(path), command
    if isinstance(command, Group):
        ctx = command.context_class(command, info_name="convo")
        for name in command.list_commands(ctx):
            subcommand = command.get_command(ctx, name)
            assert subcommand
            yield from commands(subcommand, (*path, name))


# -- reports --------------------------------------------------------------------------------------


SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    str: st.text(max_size=3),
    bool: st.booleans(),
    int: st.integers(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    NoneType: st.none(),
}


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """The values of the type of a report, or of one of its fields."""
    kind = getattr(kind, "__supertype__", kind)
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if kind == ApiEvent:
        return st.just({"type": "response.created", "response": {"id": "resp_1"}})
    if origin is Annotated:
        keywords = next((mark.keywords for mark in parts if isinstance(mark, Keywords)), {})
        if "minimum" in keywords:
            return st.integers(min_value=keywords["minimum"])
        if "enum" in keywords:
            return st.sampled_from(keywords["enum"])
        return st.just([]) if "maxItems" in keywords else values_of(parts[0])
    if kind is Any:
        return st.sampled_from([None, "text", {"a": [1.5, True]}])
    if origin is Literal or (isinstance(kind, type) and issubclass(kind, StrEnum)):
        return st.sampled_from(parts or [*kind])
    if origin in (Union, UnionType, NotRequired):
        return st.one_of([values_of(part) for part in parts])
    if isinstance(origin, type) and issubclass(origin, Mapping) and parts:
        return st.dictionaries(st.text(max_size=3), values_of(parts[1]), max_size=2)
    if origin is tuple and ... not in parts and parts:
        return st.tuples(*map(values_of, parts))
    if parts:
        return st.lists(values_of(parts[0]), max_size=2)
    if is_typeddict(kind) or is_report(kind):
        return records_of(kind)
    return SCALARS[kind]


def records_of(kind: Any) -> st.SearchStrategy[Any]:
    fields = get_type_hints(kind, include_extras=True)
    values = {
        name: st.none() if HIDDEN in getattr(hint, "__metadata__", ()) else values_of(hint)
        for name, hint in fields.items()
    }
    if not is_typeddict(kind):
        return st.builds(kind, **values)
    optional = {name: values.pop(name) for name, hint in fields.items() if get_origin(hint) is NotRequired}
    return st.fixed_dictionaries(values, optional=optional)


@pytest.mark.parametrize("name", REPORTS)
def test_a_report_is_written_as_its_schema_says(name: str) -> None:
    validator = Draft202012Validator(make_schema(name))

    @settings(max_examples=25, deadline=None, database=None)
    @given(values_of(REPORTS[name][0]))
    def check(report: Any) -> None:
        validator.validate(json.loads(json.dumps(to_json(report))))

    check()


# -- convo schema ----------------------------------------------------------------------------------


def test_the_command_prints_the_schema_file(convo: Convo) -> None:
    got = convo("schema", "sessions", "search")
    assert got.json() == load_schemas()["sessions.search"]
    assert convo("schema", "chat", "--jsonl").json() == load_schemas()["events"]
