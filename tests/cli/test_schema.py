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
from tests.cli.agent_files import LOOK_UP, PAID_BACK, REFUND, agent_flags
from tests.cli.chat_commands import ECHO, LONG, scripted_flags
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.command_runner import Convo, write_project_file
from tests.runstate.snapshots import snapshot

LINES = {"inspect", "lint", "import"}
"""Commands that print one JSON object per line, for each handle or conversation."""

SNAPSHOT = "0.24.0__schema1.21__parallel_mixed_decided.json"


# -- schema files ----------------------------------------------------------------------------------


def kept() -> dict[str, Any]:
    """All schemas in the package, by file name without the suffix."""
    there = files("convo").joinpath("schemas").iterdir()
    return {one.name.removesuffix(".json"): json.loads(one.read_text(encoding="utf-8")) for one in there}


def test_every_schema_is_valid_and_has_its_name_and_version() -> None:
    for name, schema in kept().items():
        Draft202012Validator.check_schema(schema)
        assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        start, _, version = schema["$id"].rpartition(":")
        assert (start, version.isdigit()) == (f"urn:convo-state:schema:{name}", True)


def test_every_schema_belongs_to_the_output_of_a_command() -> None:
    assert set(kept()) == set(SCHEMA_FILES.values())


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


def commands(one: Any, words: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    yield " ".join(words), one
    if isinstance(one, Group):
        ctx = one.context_class(one, info_name="convo")
        for name in one.list_commands(ctx):
            found = one.get_command(ctx, name)
            assert found
            yield from commands(found, (*words, name))


def closed(schema: Any, place: str) -> Iterator[str]:
    """The paths of objects with required keys that allow additional keys."""
    if isinstance(schema, dict):
        if "required" in schema and schema.get("additionalProperties", True) is not False:
            yield place
        for name, part in schema.items():
            yield from closed(part, f"{place}/{name}")


def test_an_object_with_named_keys_allows_no_others() -> None:
    open_places = [place for name, schema in kept().items() for place in closed(schema, name)]
    assert open_places == ["events/$defs/response"], "an event of a model is whatever came"


# -- convo schema ----------------------------------------------------------------------------------


def test_the_command_prints_the_schema_file(convo: Convo) -> None:
    got = convo("schema", "sessions", "search")
    assert got.json() == kept()["sessions.search"]
    assert convo("schema", "chat", "--jsonl").json() == kept()["events"]


def test_without_a_name_all_schemas_are_listed(convo: Convo) -> None:
    lines = convo("schema").out.splitlines()
    assert len(lines) == len(SCHEMA_FILES)
    assert lines[0].split() == ["chat", "urn:convo-state:schema:chat:1"]


def test_a_command_without_json_output_has_no_schema(convo: Convo) -> None:
    got = convo("schema", "serve")
    assert (got.exit, got.err) == (5, "convo: no schema 'serve'\n  try: convo schema\n")


# -- command output --------------------------------------------------------------------------------


@cache
def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(kept()[SCHEMA_FILES[name]])


class Trying:
    """Runs commands and validates their output with their schemas."""

    def __init__(self, convo: Convo) -> None:
        self._convo = convo
        self.tried: set[str] = set()
        self.wrong: list[str] = []

    def __call__(self, name: str, *argv: str, exit: int = 0) -> None:  # noqa: A002  the name in `CommandResult`
        """Run `convo NAME ARGV`, with `--json` unless the name ends with `--jsonl`."""
        words, flag = name.removesuffix(" --jsonl").split(), "--jsonl" if name.endswith("--jsonl") else "--json"
        got = self._convo(*words, *argv, flag)
        if got.exit != exit:
            self.wrong.append(f"{name} {argv}: {got}")
        told = got.out.splitlines() if flag == "--jsonl" or words[0] in LINES else [got.out]
        for one in told:
            found = validator(name).iter_errors(json.loads(one))
            self.wrong += [f"{name} {argv}: {best_match([error]).message}" for error in found]
        self.tried.add(name)

    def fails(self, *argv: str) -> None:
        """Run a command that fails, and validate its output as an error."""
        got = self._convo(*argv)
        assert got.exit, got
        validator("error").validate(json.loads(got.out.splitlines()[-1]))
        self.tried.add("error")


@pytest.fixture
def tried(convo: Convo, home: Path) -> Trying:
    async def story(writer: ChatWriter) -> None:
        await writer.chat(Strategy.SESSION, "mine", "hi", "and then?")
        await writer.chat(Strategy.CHAIN, "chained", "hi", "and then?")
        await writer.chat(Strategy.REPLAY, "file", "hi")

    write_chats(home, story)
    write_project_file('[aliases]\nfast = "scripted/echo"\n[prices."scripted/echo"]\ninput=1\noutput=2\n')
    return Trying(convo)


def test_the_json_output_of_every_command_matches_its_schema(tried: Trying, home: Path) -> None:
    talk(tried)
    look(tried)
    move(tried)
    shorten(tried)
    decide(tried)
    keep_house(tried, home)
    assert "\n".join(tried.wrong) == ""
    assert tried.tried == set(SCHEMA_FILES)


def talk(tried: Trying) -> None:
    for owner in Strategy:
        tried("chat", *ECHO, f"--{owner}", "-n", f"by {owner}", "hello")
    tried("chat", *ECHO, "--max-output-tokens", "1", "hello there", exit=1)
    tried("chat --jsonl", *ECHO, "hello")
    refused = scripted_flags({"error": {"code": "odd", "message": "That is not taken", "status": 400}})
    tried("chat --jsonl", *refused, "hello", exit=1)
    tried.fails("chat", *refused, "hello", "--json")
    tried.fails("chat", *refused, "hello", "--jsonl")
    tried.fails("inspect", "nope", "--json")
    tried.fails("nonsense", "--json")
    tried("race", *ECHO, "hello", "and then?")
    tried("race", *refused, "hello", exit=1)
    tried("race --jsonl", *ECHO, "hello", "and then?")
    tried("race --jsonl", *refused, "hello", exit=1)


def look(tried: Trying) -> None:
    Path("state.json").write_bytes(snapshot(SNAPSHOT))
    Path("broken.json").write_text('[{"type": "function_call_output", "call_id": "c1", "output": "x"}]')
    tried("inspect", "mine", "chained", "file", "./state.json")
    for handle in ("mine", "chained", "file"):
        tried("next", handle, "what then?", *ECHO)
    tried("diff", "mine", "mine")
    tried("diff", "mine@1", "chained")
    tried("diff", "--wire", "mine@1", "mine@2")
    tried("diff", "--server", "chained")
    tried("lint", "mine", "./broken.json", exit=4)
    tried("repair", "./broken.json", "--as", "mended")
    tried("repair", "mine", "--as", "not needed")


def move(tried: Trying) -> None:
    Path("key.txt").write_text("my key is sk-" + "abcdef0123456789" * 3)
    tried("chat", *ECHO, "-n", "with a key", Path("key.txt").read_text())
    tried("convert", "mine", "--to", "chain", "--dry-run")
    tried("convert", "with a key", "--to", "conversation", "--as", "carried", "--redact")
    tried("export", "mine", "-o", "mine.jsonl", "--links")
    tried("export", "with a key", "-o", "plain.md", "--redact")
    tried("import", "mine.jsonl", "--dry-run")
    tried("import", "mine.jsonl", "--as", "brought back")


def shorten(tried: Trying) -> None:
    brief = scripted_flags({"text": "Short."}, {"text": LONG})
    for words in (["-n", "long", "one"], ["--from", "long", "two"]):
        tried("chat", *brief, *words[:-1], f"{words[-1]} {LONG}")
    tried("compact", "long", "--preview")
    tried("compact", "long")


def decide(tried: Trying) -> None:
    refunds = scripted_flags(REFUND, PAID_BACK)
    tried("chat --jsonl", *agent_flags(), *scripted_flags(LOOK_UP, REFUND, PAID_BACK), "pay A1 back", exit=3)
    for name in ("first", "second", "third"):
        tried("chat", *agent_flags(), *refunds, "-n", name, "pay A1 back", exit=3)
    tried("chat", *agent_flags("guarded"), *ECHO, "hello")
    tried("chat --jsonl", *agent_flags("guarded"), *ECHO, "you fool", exit=1)
    tried(
        "chat --jsonl",
        *agent_flags("triage"),
        *scripted_flags({"call": {"name": "transfer_to_billing"}}, PAID_BACK),
        "A1?",
    )
    tried("export", "first", "--format", "runstate", *agent_flags(), "-o", "paused.json")
    tried("resume", "./paused.json", "--decide-only", "-o", "decided.json", "--approve", "all")
    tried("resume", "./state.json", "--decide-only", "-o", "older.json", "--schema", "1.6")
    for name in ("approvals", "approvals list"):
        tried(name)
    tried("approvals show", "all")
    edit(tried)
    tried("approvals reject", "all", "--run", "second")
    tried("approvals approve", "all", "--run", "third")
    tried("resume", "second", *agent_flags(), *refunds)
    tried("resume --jsonl", "third", *agent_flags(), *refunds)


def edit(tried: Trying) -> None:
    """Edit arguments with an editor that does not change them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EDITOR", "true")
        tried("approvals edit", "all", "--run", "first")


def keep_house(tried: Trying, home: Path) -> None:
    for group in ("sessions", "models", "config"):
        tried(group)
        tried(f"{group} list")
    tried("models known")
    tried("doctor")
    tried("sessions show", "mine")
    tried("sessions search", "hello")
    tried("store migrate")
    tried("store migrate", "--print-sql")
    tried("store stats")
    tried("store check")
    tried("store backup", "copy.db")
    tried("store recover", "recovered.db")
    tried("store prune", "--older-than", "1s")
    weights = home / "data" / "models" / BUILT_IN_WEIGHTS.file
    weights.parent.mkdir()
    with weights.open("wb") as file:
        file.truncate(BUILT_IN_WEIGHTS.size_bytes)
    tried("models pull")
