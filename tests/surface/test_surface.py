"""The surface comparison reports exactly the changes that affect programs, files or other releases."""

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.command_runner import ROOT
from tests.surface.__main__ import main
from tests.surface.commands import help_arguments, help_options
from tests.surface.difference import Difference, difference_lines, differences, is_refused
from tests.surface.document import Collection, Surface, expand_schema
from tests.surface.masks import Masks
from tests.surface.revisions import copy_checkout, surface_of
from tests.surface.stored import add_rows, statement

SURFACE: Surface = {
    "commands": {"convo chat --model": "-m, --model; one value", "convo lint --format": "--format; one of text|json"},
    "settings": {"default serve.port": "8788", "words editing": ["emacs", "vi"]},
    "headers": {"retrieve": ["content-type: application/json", "x-request-id"]},
    "sqlite": {"table runs": "CREATE TABLE runs (link INTEGER)"},
    "printed JSON": {"chat $.usage.total_tokens": ["number"], "chat $.status": ["completed", "failed"]},
}


def altered_surface(section: str, name: str, entry: str | list[str] | None) -> Surface:
    """`SURFACE` with one entry replaced, or without it."""
    surface = deepcopy(SURFACE)
    surface[section].pop(name, None)
    return surface if entry is None else {**surface, section: {**surface[section], name: entry}}


BREAKING = [
    ("commands", "convo chat --model", None, "removed"),
    ("commands", "convo chat --model", "-m, --model; flag", "changed"),
    ("settings", "default serve.port", "8789", "changed"),
    ("settings", "words editing", ["emacs"], "removed"),
    ("headers", "retrieve", ["content-type: application/json", "x-request-number"], "removed"),
    ("headers", "retrieve", ["content-type: text/plain", "x-request-id"], "removed"),
    ("sqlite", "table runs", "CREATE TABLE runs (response INTEGER)", "changed"),
    ("printed JSON", "chat $.usage.total_tokens", None, "removed"),
    ("printed JSON", "chat $.status", ["done", "failed"], "removed"),
]


@pytest.mark.parametrize(("section", "name", "entry", "kind"), BREAKING)
def test_a_breaking_change_is_refused(section: str, name: str, entry: Any, kind: str) -> None:
    found = differences(SURFACE, altered_surface(section, name, entry))
    assert (section, kind, name) in [(one.section, one.kind, one.name) for one in found]
    assert is_refused(found)
    assert f"  {kind:<8} {name}" in "\n".join(difference_lines(found))


@pytest.mark.parametrize(
    ("section", "name", "entry"),
    [
        ("commands", "convo chat --new", "--new; flag"),
        ("settings", "words editing", ["emacs", "plain", "vi"]),
        ("metrics", "convo_new", "gauge"),
    ],
)
def test_an_addition_is_listed_and_refused_only_on_request(section: str, name: str, entry: str | list[str]) -> None:
    found = differences(
        SURFACE, altered_surface(section, name, entry) if section in SURFACE else {**SURFACE, section: {name: entry}}
    )
    assert [(one.section, one.kind, one.name) for one in found] == [(section, "added", name)]
    assert not is_refused(found)
    assert is_refused(found, additions=True)


def test_equal_surfaces_have_no_differences() -> None:
    assert differences(SURFACE, deepcopy(SURFACE)) == []
    assert list(difference_lines([])) == ["no differences"]


def test_differences_are_sorted_by_section_with_removals_first() -> None:
    before: Surface = {"b": {"one": "1", "two": "2"}, "a": {"x": "1"}}
    after: Surface = {"b": {"one": "3", "three": "3"}, "a": {}}
    assert differences(before, after) == [
        Difference("a", "removed", "x", "1"),
        Difference("b", "removed", "two", "2"),
        Difference("b", "changed", "one", "1 -> 3"),
        Difference("b", "added", "three", "3"),
    ]


# -- patterns of values ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "pattern"),
    [
        ("resp_07c02818318c0206bdbbbe341ee49b99", "resp_<hex32>"),
        ("d1:" + "0a" * 32, "d1:<hex64>"),
        ("convo1:up/m:3f2a9c41d0b7:gAAAAABsealed", "convo1:up/m:<hex12>:gAAAAABsealed"),
        ("http://127.0.0.1:4711/v1", "http://127.0.0.1:<port>/v1"),
        ("2026-11-22T08:00:00Z", "<time>"),
        ("/tmp/place/x.json", "<folder>/x.json"),
        ("response.reasoning_summary_text.delta", "response.reasoning_summary_text.delta"),
        ("WAITING", "WAITING"),
        ("the model answered", "<text>"),
        ("3,0,1", "<figures>"),
        (1763801234, "number"),
        (None, "null"),
        (True, "true"),
        ([], "[]"),
        ("", "''"),
    ],
)
def test_random_parts_of_a_value_are_masked_and_its_words_stay(value: object, pattern: str) -> None:
    assert Masks({"/tmp/place": "<folder>"}).pattern("$.x", value) == pattern


def test_version_numbers_are_not_masked() -> None:
    assert Masks({}).pattern("$.version", 1) == "1"


# -- collected entries -----------------------------------------------------------------------------


def collection_of(add: Callable[[Collection], None]) -> Surface:
    collection = Collection(Masks({}))
    add(collection)
    return collection.surface


def test_a_document_has_an_entry_per_path() -> None:
    document = {"items": [{"type": "message", "role": "user"}, {"type": "message", "role": "assistant"}], "n": 3}
    assert collection_of(lambda collection: collection.add_document("s", "chat", document)) == {
        "s": {
            "chat $.items[message].role": ["assistant", "user"],
            "chat $.items[message].type": ["message"],
            "chat $.n": ["number"],
        }
    }


SCHEMA = {
    "description": "A sentence.",
    "required": ["status", "description"],
    "properties": {
        "description": {"type": "string", "description": "Another."},
        "status": {"enum": ["done", "failed"], "title": "Status"},
    },
}


def schema_surface(schema: object) -> Surface:
    return collection_of(lambda collection: collection.add_schema("schemas", "x", schema))


def test_descriptions_in_a_schema_are_omitted_and_properties_with_that_name_are_not() -> None:
    assert schema_surface(SCHEMA) == {
        "schemas": {
            "x $.required": "description, status",
            "x $.properties.description.type": '"string"',
            "x $.properties.status.enum": ['"done"', '"failed"'],
        }
    }


def test_a_property_that_is_no_longer_required_is_a_change() -> None:
    (found,) = differences(schema_surface(SCHEMA), schema_surface({**SCHEMA, "required": ["status"]}))
    assert (found.kind, found.words) == ("changed", "description, status -> status")


@pytest.mark.parametrize(
    ("schema", "other"),
    [
        (
            {"$ref": "#/$defs/a", "$defs": {"a": {"type": ["null", "string"]}}},
            {"anyOf": [{"type": "string", "title": "A"}, {"type": "null"}]},
        ),
        ({"enum": ["b", "a", None]}, {"anyOf": [{"type": "null"}, {"enum": ["a", "b"]}]}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        (
            {"type": "array", "items": {"anyOf": [{"type": "null"}, {"type": "integer", "minimum": 0}]}},
            {"type": "array", "items": {"type": ["integer", "null"], "minimum": 0}},
        ),
    ],
)
def test_schemas_with_the_same_meaning_are_equal(schema: object, other: object) -> None:
    assert schema_surface(expand_schema(schema)) == schema_surface(expand_schema(other))


def test_a_type_that_is_no_longer_allowed_is_a_change() -> None:
    before, after = ({"properties": {"a": {"type": types}}} for types in (["string", "null"], "string"))
    found = differences(schema_surface(expand_schema(before)), schema_surface(expand_schema(after)))
    assert is_refused(found)


HELP = """\
Usage: convo thing [OPTIONS] NAME [FILE]...

  Do a thing.

What is done:
  -m, --model MODEL       Model to use,
                          as provider/model.
  --keep-last N           Keep N turns.  [default: 0;
                          x>=0]
  --nest / --no-nest
                          Nest.
  --markers START END     Around it.
  --format <text|json>    Form.

Options:
  -h, --help  Show this message and exit.
"""


def test_options_are_parsed_from_the_help() -> None:
    assert dict(help_options(HELP)) == {
        "--model": "-m, --model; one value",
        "--keep-last": "--keep-last; one value; default: 0; x>=0",
        "--nest": "--nest / --no-nest; flag",
        "--markers": "--markers; 2 values",
        "--format": "--format; one of text|json",
        "--help": "-h, --help; flag",
    }
    assert help_arguments(HELP) == ["required", "optional, several"]


def test_changed_texts_and_columns_of_the_help_change_no_options() -> None:
    wide = re.sub(r"(?m)^( {2}-\S.*?) {2,}(?=\S)", r"\1      ", HELP).replace("Model to use", "Who answers")
    assert dict(help_options(wide)) == dict(help_options(HELP))


def test_comments_and_whitespace_of_a_statement_are_ignored() -> None:
    assert statement("CREATE TABLE t ( -- a table\n  n  INTEGER\n)") == statement("CREATE TABLE t (\n n INTEGER )")


def test_rows_are_described_by_the_patterns_of_their_columns() -> None:
    rows = [(b"{\xfb" * 16, '{"phase": "PAUSED"}', '["chat", 1]', "ses_" + "0f" * 16)]
    columns = ["key", "body", "record", "id"]
    assert collection_of(lambda collection: add_rows(collection, "sqlite", "runs", columns, rows)) == {
        "sqlite": {
            "runs.key": ["32 bytes"],
            "runs.body $.phase": ["PAUSED"],
            "runs.record $.0": ["chat"],
            "runs.record $.1": ["number"],
            "runs.id": ["ses_<hex32>"],
        }
    }


# -- whole revisions -------------------------------------------------------------------------------


def altered_checkout(folder: Path, **replaced: tuple[str, str]) -> str:
    """Copy this checkout and replace texts in all files of the package; returns the folder."""
    folder.mkdir()
    copy_checkout(ROOT, folder)
    for before, after in replaced.values():
        files = [file for file in folder.rglob("convo/**/*.*") if before.encode() in file.read_bytes()]
        assert files, before
        for file in files:
            file.write_bytes(file.read_bytes().replace(before.encode(), after.encode()))
    return str(folder)


def compare(after: str, *parts: str) -> list[Difference]:
    """The differences between this checkout and the checkout in the folder `after`."""
    with ThreadPoolExecutor(2) as pool:
        return differences(*pool.map(lambda side: surface_of(side, parts), (str(ROOT), after)))


def test_exactly_the_changes_of_a_checkout_are_found(tmp_path: Path) -> None:
    after = altered_checkout(
        tmp_path / "after",
        variable=("CONVO_TENANT", "CONVO_CUSTOMER"),
        parameter=("reset_tool_choice", "reset_choice"),
        sentence=("the response is incomplete", "the response is not complete"),
    )
    found = compare(after, "sources", "imports")
    assert [(one.section, one.kind, one.name) for one in found] == [
        ("environment", "removed", "CONVO_TENANT"),
        ("environment", "added", "CONVO_CUSTOMER"),
        ("imports", "changed", "convo.Agent"),
        ("imports", "changed", "convo.agents.Agent"),
    ]


@pytest.mark.full(every_commit=True)
def test_exactly_the_changed_lint_rules_are_found(tmp_path: Path) -> None:
    after = altered_checkout(
        tmp_path / "after",
        code=("call-without-output", "call-without-answer"),
        sentence=("the response is incomplete", "the response is not complete"),
    )
    assert [(one.section, one.kind, one.name) for one in compare(after, "rules")] == [
        ("lint rules", "removed", "call-without-output"),
        ("lint rules", "added", "call-without-answer"),
    ]


@pytest.mark.full
def test_exactly_the_changes_of_a_server_are_found(tmp_path: Path) -> None:
    after = altered_checkout(
        tmp_path / "after",
        header=("x-request-id", "x-request-number"),
        metric=("convo_streams_open", "convo_open_streams"),
        index=("agent_runs_by_session", "agent_runs_by_owner"),
        summary=("Create a response.", "Respond to an input."),
    )
    found = compare(after, "server")
    headers = [one for one in found if one.section == "headers"]
    assert {(one.kind, one.words) for one in headers} == {("removed", "x-request-id"), ("added", "x-request-number")}
    assert [(one.section, one.kind, one.name) for one in found if one not in headers] == [
        ("metrics", "removed", "convo_streams_open"),
        ("metrics", "removed", "sample convo_streams_open"),
        ("metrics", "added", "convo_open_streams"),
        ("metrics", "added", "sample convo_open_streams"),
        ("sqlite", "removed", "index agent_runs_by_session"),
        ("sqlite", "added", "index agent_runs_by_owner"),
    ]


@pytest.mark.full
def test_exactly_the_changed_commands_settings_and_stored_values_are_found(tmp_path: Path) -> None:
    after = altered_checkout(
        tmp_path / "after",
        option=('"--until-idle"', '"--until-quiet"'),
        port=("8788", "8789"),
        words=('"emacs"', '"readline"'),
        stored=("staged", "waiting_items"),
        severity=("call-without-output", "call-without-answer"),
    )
    found = compare(after, "commands", "settings", "rules", "runs")
    assert {(one.section, one.kind, one.name) for one in found} >= {
        ("commands", "removed", "convo inspect --until-idle"),
        ("settings", "changed", "default serve.port"),
        ("settings", "removed", "words editing"),
        ("lint rules", "removed", "call-without-output"),
        ("sqlite paused runs", "removed", "agent_documents.body $.staged"),
    }


@pytest.mark.full
def test_a_revision_does_not_differ_from_itself(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tests.surface", "HEAD", "HEAD"])
    assert main() == 0
    assert capsys.readouterr().out == "no differences\n"
