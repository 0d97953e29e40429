"""`convo lint`: every kind of handle, every file and output format, and exit codes for scripts."""

import json
from pathlib import Path
from typing import Literal

import pytest

from convo.errors import RequestRefused
from convo.history.records import AgentRun, Strategy
from convo.lint.rules import LINT_RULES
from convo.stores.base import Transaction
from tests.cli.broken_histories import ANSWER, BROKEN, CALL, HI, ORPHAN, broken_session, unanswered_call, write_items
from tests.cli.chat_commands import stored_sessions
from tests.cli.stored_chats import ChatWriter, chat_of, write_chats
from tests.command_runner import Convo
from tests.runstate.snapshots import snapshot

PAUSED = "0.24.0__schema1.21__parallel_mixed_decided.json"

EXPECTED_OUTPUT = """\
./broken.json: 3 errors in 4 items
  ./broken.json:3 $[1].arguments  error    invalid-arguments: the arguments of weather are truncated
  ./broken.json:3 $[1].call_id    error    call-without-output: function call c1 has no output
  ./broken.json:4 $[2].call_id    error    output-without-call: this function call output has no earlier call c0
  try: convo lint --explain invalid-arguments
       convo repair ./broken.json --as ./repaired.json
"""

CODES = ["invalid-arguments", "call-without-output", "output-without-call"]


def test_the_hint_names_a_repair_only_where_all_findings_can_be_fixed(convo: Convo, home: Path, tmp_path: Path) -> None:
    encrypted = {"type": "compaction", "encrypted_content": "convo1:openai/gpt-5:0:x"}
    write_chats(home, broken_session("a b"))
    write_chats(home, broken_session("foreign", [encrypted, HI]))
    assert convo("lint", "a b").out.endswith("\n       convo repair 'a b' --as repaired\n")
    assert convo("repair", "a b", "--as", "repaired").exit == 0
    assert convo("lint", "foreign").out.endswith("\n  try: convo lint --explain sealed-elsewhere\n")
    assert convo("repair", "foreign", "--as", "other").exit == 1
    state = json.loads(snapshot(PAUSED))
    state["context"]["context"] = {"openai": "sk-proj-" + "a1B2" * 8}
    (tmp_path / "state.json").write_text(json.dumps(state))
    assert convo("lint", "./state.json").out.endswith("\n  try: convo lint --explain secret-in-state\n")


@pytest.mark.parametrize("strategy", Strategy)
def test_histories_that_convo_stored_have_no_findings_with_any_owner(
    strategy: Strategy, convo: Convo, home: Path
) -> None:
    write_chats(home, chat_of("monads", strategy, "one", "two", "three"))
    got = convo("lint", "monads", "resp_2", "--strict", "--json")
    assert [json.loads(line)["findings"] for line in got.out.splitlines()] == [[], []]
    assert got.exit == 0


@pytest.mark.parametrize("handle", ["broken", "ses_broken", "@last", "brok"])
def test_findings_of_a_session_contain_keys_and_no_lines(handle: str, convo: Convo, home: Path) -> None:
    write_chats(home, broken_session("broken"))
    got = convo("lint", handle, "--json")
    report = got.json()
    assert (got.exit, report["strategy"], report["endpoint"], report["errors"]) == (4, "session", "embedded", 3)
    assert [one["code"] for one in report["findings"]] == CODES
    assert {len(one["key"]) for one in report["findings"]} == {64}
    assert {one["line"] for one in report["findings"]} == {None}


def test_a_call_without_output_at_the_end_of_a_chain_is_found_until_a_message_answers_it(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    async def script(writer: ChatWriter) -> None:
        await unanswered_call(tmp_path)(writer)
        await writer.fail(await writer.chat(Strategy.CHAIN, "chat", handle="resp_2"), "and now?", RequestRefused("no"))

    write_chats(home, script)
    by_response, by_record = (convo("lint", handle, "--json") for handle in ("resp_2", "chat"))
    assert (by_response.exit, [one["path"] for one in by_response.json()["findings"]]) == (4, ["$[3].call_id"])
    assert (by_record.exit, by_record.json()["findings"]) == (0, [])


@pytest.mark.parametrize(
    ("name", "text", "path"),
    [
        ("items.jsonl", "\n".join(map(json.dumps, [HI, ORPHAN])), "$[1].call_id"),
        ("request.json", json.dumps({"model": "m", "input": [HI, CALL]}), "$.input[1].call_id"),
        ("page.json", json.dumps({"object": "list", "data": [HI, CALL]}), "$.data[1].call_id"),
    ],
)
def test_items_are_found_in_every_format_of_a_file(
    name: str, text: str, path: str, convo: Convo, tmp_path: Path
) -> None:
    (tmp_path / name).write_text(text)
    got = convo("lint", name, "--json")
    assert (got.exit, [one["path"] for one in got.json()["findings"]]) == (4, [path])


def test_items_a_request_or_a_paused_run_are_read_from_a_pipe(convo: Convo, tmp_path: Path) -> None:
    request = json.dumps({"model": "m", "input": [HI, CALL]})
    report = convo("lint", "-", "--json", stdin=request).json()
    assert [one["path"] for one in report["findings"]] == ["$.input[1].call_id"]
    assert convo("lint", "-", stdin=snapshot(PAUSED).decode()).out == "-: no problems in 3 items\n"
    assert convo("lint", "-", stdin="{").err.startswith("convo: piped input is not JSON: ")
    assert convo("repair", "-", "--as", "good.json", stdin=request).exit == 0
    assert len(json.loads((tmp_path / "good.json").read_text())["input"]) == 3


def test_a_pending_call_of_a_paused_run_is_no_finding(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(snapshot(PAUSED))
    assert convo("lint", "./state.json").out == "./state.json: no problems in 3 items\n"


def test_secrets_in_a_paused_run_are_reported_by_path_and_never_shown(convo: Convo, tmp_path: Path) -> None:
    state = json.loads(snapshot(PAUSED))
    key, password = "sk-proj-" + "a1B2" * 8, "correct horse"
    state["context"]["context"] = {
        "openai": key, "db": {"password": password, "url": f"postgresql://me:{password.split()[0]}@db/x"},
        "headers": [{"Authorization": "Bearer abcdefgh12345678"}], key: 1, "max_tokens": "12", "token": "",
        "customer": "Ann <ann@example.org>",
    }  # fmt: skip
    (tmp_path / "state.json").write_text(json.dumps(state))
    got = convo("lint", "./state.json", "--json")
    findings = got.json()["findings"]

    assert (got.exit, convo("lint", "./state.json", "--strict").exit) == (0, 4)
    assert {one["code"] for one in findings} == {"secret-in-state"}
    assert sorted(one["path"] for one in findings) == [
        "$.context.context.*",
        "$.context.context.db.password",
        "$.context.context.db.url",
        "$.context.context.headers[0].Authorization",
        "$.context.context.openai",
    ]
    output = got.out + convo("lint", "./state.json").out + convo("lint", "./state.json", "--format", "sarif").out
    assert not [one for one in (key, password, "correct", "abcdefgh") if one in output]


@pytest.mark.parametrize(("status", "exit_code"), [("paused", 0), ("running", 0), ("stopped", 4)])
def test_a_running_call_of_an_agent_run_is_no_finding(
    status: Literal["paused", "running", "stopped"], exit_code: int, convo: Convo, home: Path
) -> None:
    async def script(writer: ChatWriter) -> None:
        await broken_session("agents", [HI, CALL])(writer)
        run = AgentRun("run_1", "ses_agents", 1, status, {}, 1.0, 1.0)
        await writer.store.commit(Transaction(agent_run=run))

    write_chats(home, script)
    assert convo("lint", "agents").exit == exit_code


def test_encrypted_items_of_a_file_without_provider_are_reported_as_not_checked(convo: Convo, tmp_path: Path) -> None:
    reasoning = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"}
    got = convo("lint", write_items(tmp_path / "sealed.json", [HI, reasoning, ANSWER]))
    assert got.exit == 0
    assert "  sealed-elsewhere: 1 encrypted item not checked: its origin or the next model is unknown" in got.out


def test_instructions_that_another_client_omitted_from_a_request_are_a_finding(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        await writer.other_client("one", instructions="Be brief.")
        await writer.other_client("two", previous_response_id="resp_1")

    write_chats(home, script)
    (finding,) = convo("lint", "resp_2", "--json").json()["findings"]
    assert (finding["code"], finding["response_id"], finding["path"]) == ("instructions-absent", "resp_2", "$[3]")
    assert convo("repair", "resp_2", "--as", "mended").exit == 0
    (record,) = stored_sessions(home)
    assert (record.handle, record.instructions) == ("resp_2", "Be brief.")
    assert convo("lint", "mended", "--strict").exit == 0


def test_warnings_set_the_exit_code_only_with_strict(convo: Convo, tmp_path: Path) -> None:
    path = write_items(tmp_path / "ids.json", [HI, {"type": "reasoning", "id": "rs_1", "summary": []}, ANSWER])
    assert convo("lint", path).out.startswith("./ids.json: 1 warning in 3 items\n")
    assert [convo("lint", path).exit, convo("lint", path, "--strict").exit] == [0, 4]


def test_several_handles_are_one_object_per_line_and_any_error_sets_the_exit_code(convo: Convo, home: Path) -> None:
    write_chats(home, broken_session("broken"))
    write_chats(home, broken_session("fine", [HI]))
    got = convo("lint", "fine", "broken", "fine", "--json")
    assert [json.loads(line)["handle"] for line in got.out.splitlines()] == ["fine", "broken"]
    assert got.exit == 4


def test_an_unreadable_file_does_not_stop_the_check_of_the_others(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "cut.json").write_text("{")
    broken = write_items(tmp_path / "broken.json")
    got = convo("lint", "cut.json", broken, "nope")
    assert (got.exit, got.out) == (2, EXPECTED_OUTPUT)
    assert got.err.startswith("convo: cut.json is not JSON: ")
    assert "convo: no session 'nope'" in got.err

    lines = [json.loads(line) for line in convo("lint", "nope", "cut.json", broken, "--json").out.splitlines()]
    assert [one["handle"] for one in lines] == ["nope", "cut.json", broken]
    assert [one["error"]["code"] for one in lines[:2]] == ["not_found", "unreadable"]
    assert lines[2]["errors"] == 3
    assert convo("lint", "nope", "cut.json", broken, "--json").exit == 5

    sarif = convo("lint", "cut.json", broken, "--format", "sarif")
    (run,) = sarif.json()["runs"]
    assert (sarif.exit, len(run["results"])) == (2, 3)
    assert run["invocations"][0]["executionSuccessful"] is False
    url = "postgresql://u:SECRET@host:5432/db"
    for output_format in ("text", "json", "sarif"):
        refused = convo("lint", url, broken, "--format", output_format)
        assert (refused.exit, "SECRET" in refused.out + refused.err) == (5, False)
    assert run["invocations"][0]["toolExecutionNotifications"][0]["message"]["text"].startswith("cut.json is not JSON")


def test_sarif_is_one_document_for_all_handles(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, broken_session("broken"))
    got = convo("lint", write_items(tmp_path / "broken.json"), "broken", "--format", "sarif")
    (run,) = got.json()["runs"]
    assert got.exit == 4
    assert [one["ruleId"] for one in run["results"]] == CODES * 2
    locations = [one["locations"][0] for one in run["results"]]
    assert [location["physicalLocation"]["region"]["startLine"] for location in locations[:3]] == [3, 3, 4]
    assert [sorted(location) for location in locations[3:]] == [["logicalLocations"]] * 3


@pytest.mark.parametrize("rule", LINT_RULES, ids=lambda rule: rule.code)
def test_every_code_is_explained(rule: object, convo: Convo) -> None:
    code = getattr(rule, "code", "")
    got = convo("lint", "--explain", code)
    assert (got.exit, got.err, got.out.startswith(f"# {code}\n")) == (0, "", True)


def test_lint_changes_nothing(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, broken_session("broken"))
    path = write_items(tmp_path / "broken.json")
    before = (tmp_path / "broken.json").read_bytes(), convo("inspect", "broken", "--json").out
    convo("lint", "broken", path)
    assert ((tmp_path / "broken.json").read_bytes(), convo("inspect", "broken", "--json").out) == before
    assert json.loads(before[0]) == BROKEN


def test_odd_and_deep_values_of_a_file_are_linted_and_inspected(convo: Convo) -> None:
    odd = {"role": "user", "content": [{"type": ["a list"], "text": "Hi."}], "deep": json.loads("[" * 700 + "]" * 700)}
    Path("odd.json").write_text(json.dumps([odd]))
    assert convo("lint", "./odd.json").exit == 0
    assert [*convo("inspect", "./odd.json", "--json").json()["items"].values()] == [odd]
