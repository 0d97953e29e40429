"""The JSON output of every command matches its schema, key by key."""

import json
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from jsonschema.exceptions import best_match
from typer.core import TyperGroup as Group

from convo.cli.app import make_root_group
from convo.cli.commands.schema import SCHEMA_FILES
from convo.history.records import Strategy
from convo.models.weights import BUILT_IN_WEIGHTS
from tests.cli.agent_files import LOOK_UP, PAID_BACK, REFUND, agent_flags, stored_runs
from tests.cli.chat_commands import ECHO, LONG, scripted_flags
from tests.cli.schema_files import FOLDER, REPORTS, format_schema
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.command_runner import Convo, write_project_file
from tests.runstate.snapshots import snapshot

JSONL_COMMANDS = {"inspect", "lint", "import"}
"""Commands that print one JSON object per line, for each handle or conversation."""

SNAPSHOT = "0.24.0__schema1.21__parallel_mixed_decided.json"


# -- schema files ----------------------------------------------------------------------------------


def load_schemas() -> dict[str, Any]:
    """All schemas in the package, by file name without the suffix."""
    schema_files = files("convo").joinpath("schemas").iterdir()
    return {file.name.removesuffix(".json"): json.loads(file.read_text(encoding="utf-8")) for file in schema_files}


def test_every_schema_is_valid_and_has_its_name_and_version() -> None:
    for name, schema in load_schemas().items():
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        start, _, version = schema["$id"].rpartition(":")
        assert (start, version.isdigit()) == (f"urn:convo-state:schema:{name}", True)


def test_every_schema_belongs_to_the_output_of_a_command() -> None:
    assert set(load_schemas()) == set(SCHEMA_FILES.values())


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


@pytest.mark.parametrize("name", REPORTS)
def test_a_schema_file_is_generated_from_the_type_of_the_report(name: str) -> None:
    assert (FOLDER / f"{name}.json").read_text(encoding="utf-8") == format_schema(name)


# -- convo schema ----------------------------------------------------------------------------------


def test_the_command_prints_the_schema_file(convo: Convo) -> None:
    got = convo("schema", "sessions", "search")
    assert got.json() == load_schemas()["sessions.search"]
    assert convo("schema", "chat", "--jsonl").json() == load_schemas()["events"]


def test_without_a_name_all_schemas_are_listed(convo: Convo) -> None:
    schemas, width = load_schemas(), len("approvals approve")
    assert convo("schema").out.splitlines() == [
        f"{name.ljust(width)}  {schemas[file]['$id']}" for name, file in SCHEMA_FILES.items()
    ]


def test_a_command_without_json_output_has_no_schema(convo: Convo) -> None:
    got = convo("schema", "serve")
    assert (got.exit, got.err) == (5, "convo: no schema 'serve'\n  try: convo schema\n")


# -- command output --------------------------------------------------------------------------------


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(load_schemas()[SCHEMA_FILES[name]])


class SchemaChecker:
    """Runs commands and validates their output with their schemas."""

    def __init__(self, convo: Convo) -> None:
        self._convo = convo
        self.checked: set[str] = set()
        self.problems: list[str] = []

    def __call__(self, name: str, *argv: str, exit: int = 0) -> None:  # noqa: A002  the name in `CommandResult`
        """Run `convo NAME ARGV`, with `--json` unless the name ends with `--jsonl`."""
        command, flag = name.removesuffix(" --jsonl").split(), "--jsonl" if name.endswith("--jsonl") else "--json"
        got = self._convo(*command, *argv, flag)
        if got.exit != exit:
            self.problems.append(f"{name} {argv}: {got}")
        documents = got.out.splitlines() if flag == "--jsonl" or command[0] in JSONL_COMMANDS else [got.out]
        for document in documents:
            errors = validator(name).iter_errors(json.loads(document))
            self.problems += [f"{name} {argv}: {best_match([error]).message}" for error in errors]
        self.checked.add(name)

    def fails(self, *argv: str) -> None:
        """Run a command that fails, and validate its output as an error."""
        got = self._convo(*argv)
        assert got.exit, got
        validator("error").validate(json.loads(got.out.splitlines()[-1]))
        self.checked.add("error")


@pytest.fixture
def check(convo: Convo, home: Path) -> SchemaChecker:
    async def script(writer: ChatWriter) -> None:
        await writer.chat(Strategy.SESSION, "mine", "hi", "and then?")
        await writer.chat(Strategy.CHAIN, "chained", "hi", "and then?")
        await writer.chat(Strategy.REPLAY, "file", "hi")

    write_chats(home, script)
    write_project_file('[aliases]\nfast = "scripted/echo"\n[prices."scripted/echo"]\ninput=1\noutput=2\n')
    return SchemaChecker(convo)


def test_the_json_output_of_every_command_matches_its_schema(check: SchemaChecker, home: Path) -> None:
    check_chat(check, home)
    check_views(check)
    check_transfers(check)
    check_compaction(check)
    check_decisions(check, home)
    check_maintenance(check, home)
    assert "\n".join(check.problems) == ""
    assert check.checked == set(SCHEMA_FILES)


def check_chat(check: SchemaChecker, home: Path) -> None:
    for owner in Strategy:
        check("chat", *ECHO, f"--{owner}", "-n", f"by {owner}", "hello")
    check("chat", *ECHO, "--max-output-tokens", "1", "hello there", exit=1)
    check("chat --jsonl", *ECHO, "hello")
    refused = scripted_flags({"error": {"code": "odd", "message": "That is not taken", "status": 400}})
    check("chat --jsonl", *refused, "hello", exit=1)
    check.fails("chat", *refused, "hello", "--json")
    check.fails("chat", *refused, "hello", "--jsonl")
    check.fails("inspect", "nope", "--json")
    check.fails("nonsense", "--json")
    templates = home / "config" / "templates"
    templates.mkdir(parents=True)
    (templates / "ask.toml").write_text('prompt = "$who: $input"\nvars = {who = "me"}\n')
    (templates / "invalid.toml").write_text("prompt = 1\n")
    check("templates")
    check("templates list")
    check("race", *ECHO, "hello", "and then?")
    check("race", *refused, "hello", exit=1)
    check("race --jsonl", *ECHO, "hello", "and then?")
    check("race --jsonl", *refused, "hello", exit=1)


def check_views(check: SchemaChecker) -> None:
    Path("state.json").write_bytes(snapshot(SNAPSHOT))
    Path("broken.json").write_text('[{"type": "function_call_output", "call_id": "c1", "output": "x"}]')
    check("inspect", "mine", "chained", "file", "./state.json")
    for handle in ("mine", "chained", "file"):
        check("next", handle, "what then?", *ECHO)
    check("diff", "mine", "mine")
    check("diff", "mine@1", "chained")
    check("diff", "--wire", "mine@1", "mine@2")
    check("diff", "--server", "chained")
    check("lint", "mine", "./broken.json", exit=4)
    check("repair", "./broken.json", "--as", "mended")
    check("repair", "mine", "--as", "not needed")


def check_transfers(check: SchemaChecker) -> None:
    Path("key.txt").write_text("my key is sk-" + "abcdef0123456789" * 3)
    check("chat", *ECHO, "-n", "with a key", Path("key.txt").read_text())
    check("convert", "mine", "--to", "chain", "--dry-run")
    check("convert", "with a key", "--to", "conversation", "--as", "carried", "--redact")
    check("export", "mine", "-o", "mine.jsonl", "--links")
    check("export", "with a key", "-o", "plain.md", "--redact")
    check("import", "mine.jsonl", "--dry-run")
    check("import", "mine.jsonl", "--as", "brought back")


def check_compaction(check: SchemaChecker) -> None:
    brief = scripted_flags({"text": "Short."}, {"text": LONG})
    for argv in (["-n", "long", "one"], ["--from", "long", "two"]):
        check("chat", *brief, *argv[:-1], f"{argv[-1]} {LONG}")
    check("compact", "long", "--preview")
    check("compact", "long")


def check_decisions(check: SchemaChecker, home: Path) -> None:
    refunds = scripted_flags(REFUND, PAID_BACK)
    check("chat --jsonl", *agent_flags(), *scripted_flags(LOOK_UP, REFUND, PAID_BACK), "pay A1 back", exit=3)
    for name in ("first", "second", "third"):
        check("chat", *agent_flags(), *refunds, "-n", name, "pay A1 back", exit=3)
    check("chat", *agent_flags("guarded"), *ECHO, "hello")
    check("chat --jsonl", *agent_flags("guarded"), *ECHO, "you fool", exit=1)
    check(
        "chat --jsonl",
        *agent_flags("triage"),
        *scripted_flags({"call": {"name": "transfer_to_billing"}}, PAID_BACK),
        "A1?",
    )
    check("export", "first", "--format", "runstate", *agent_flags(), "-o", "paused.json")
    check("resume", "./paused.json", "--decide-only", "-o", "decided.json", "--approve", "all")
    check("resume", "./state.json", "--decide-only", "-o", "older.json", "--schema", "1.6")
    for name in ("approvals", "approvals list"):
        check(name)
    check("approvals show", "all")
    check_edit(check)
    check("approvals reject", "all", "--run", "second")
    check("approvals approve", "all", "--run", "third")
    check("approvals log")
    check("resume", "second", *agent_flags(), *refunds)
    check("resume --jsonl", "third", *agent_flags(), *refunds)
    check("inspect", *(run.id for run in stored_runs(home)))


def check_edit(check: SchemaChecker) -> None:
    """Edit arguments with an editor that does not change them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDITOR", "true")
        check("approvals edit", "all", "--run", "first")


def check_maintenance(check: SchemaChecker, home: Path) -> None:
    for group in ("sessions", "models", "config"):
        check(group)
        check(f"{group} list")
    check("config key show")
    check("models known")
    check("doctor")
    check("sessions show", "mine")
    check("sessions search", "hello")
    check("store migrate")
    check("store migrate", "--print-sql")
    check("store stats")
    check("store check")
    check("store backup", "copy.db")
    check("store recover", "recovered.db")
    check("store prune", "--older-than", "1s")
    weights = home / "data" / "models" / BUILT_IN_WEIGHTS.file
    weights.parent.mkdir()
    with weights.open("wb") as file:
        file.truncate(BUILT_IN_WEIGHTS.size_bytes)
    check("models pull")
