"""`convo inspect` of a paused run: a RunState in a file or from stdin."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from convo.history.records import Strategy
from tests.cli.stored_chats import chat_of, write_chats
from tests.command_runner import Convo
from tests.runstate.snapshots import malformed, snapshot

MIXED = "0.24.0__schema1.21__parallel_mixed_decided.json"
NESTED = "0.19.4__schema1.13__nested_agent_tool_approval.json"


def copy_snapshot(name: str, path: Path) -> None:
    path.write_bytes(snapshot(name))


def test_a_pending_call_inside_an_agent_tool_is_listed(convo: Convo, tmp_path: Path) -> None:
    copy_snapshot(NESTED, tmp_path / "state.json")
    state = convo("inspect", "state.json", "--json").json()
    assert (state["current_agent"], [one["agent"] for one in state["pending"]]) == ("Outer", ["Inner"])


def test_below_1_15_a_note_says_that_decisions_are_unauthenticated(convo: Convo, tmp_path: Path) -> None:
    copy_snapshot(NESTED, tmp_path / "state.json")
    assert "a decision is not bound to its call" in convo("inspect", "state.json").out


def test_a_secret_in_a_state_is_named_without_its_value(convo: Convo, tmp_path: Path) -> None:
    document = json.loads(snapshot(MIXED))
    document["context"]["context"] = {"customer": "A1", "api_key": "Zq7-11-kl0"}
    (tmp_path / "state.json").write_text(json.dumps(document))
    got = convo("inspect", "state.json")
    assert "$.context.context.api_key: a secret, by the name of its field (api_key)" in got.out
    assert "Zq7" not in got.out


def test_several_states_are_one_json_object_per_line(convo: Convo, tmp_path: Path) -> None:
    copy_snapshot(MIXED, tmp_path / "a.json")
    copy_snapshot(NESTED, tmp_path / "b.json")
    lines = convo("inspect", "a.json", "b.json", "--json").out.splitlines()
    assert [json.loads(line)["schema_version"] for line in lines] == ["1.21", "1.13"]


def test_json_has_the_documented_keys(convo: Convo, tmp_path: Path) -> None:
    copy_snapshot(MIXED, tmp_path / "state.json")
    state = convo("inspect", "state.json", "--json").json()
    assert state == {
        "schema_version": "1.21",
        "current_agent": "Writer",
        "pending": [
            {
                "call_id": "toolu_DedkrgCtnz",
                "tool_name": "charge_order5",
                "arguments": '{"id": 441, "city": "Turin", "dry": false}',
                "agent": "Writer",
            },
            {
                "call_id": "call_EmCJtNxtrFB7p4pvriACEhDc",
                "tool_name": "restart_order",
                "arguments": '{"id": 2650, "city": "Lviv", "dry": false}',
                "agent": "Writer",
            },
        ],
        "decisions": [
            {
                "call_id": "toolu_DedkrgCtnz",
                "tool_name": "charge_order5",
                "agent": "Writer",
                "decision": "approve",
                "always": False,
                "message": None,
                "authenticated": True,
            },
            {
                "call_id": "call_EmCJtNxtrFB7p4pvriACEhDc",
                "tool_name": "restart_order",
                "agent": "Writer",
                "decision": "reject",
                "always": False,
                "message": "Denied by Cusco policy — ask again",
                "authenticated": True,
            },
        ],
        "past_decisions": [],
        "conversation_id": None,
        "previous_response_id": None,
        "auto_previous_response_id": False,
        "model_responses": 1,
        "usage": {"requests": 1, "input_tokens": 10, "output_tokens": 3, "total_tokens": 13},
        "current_turn": 1,
        "max_turns": 10,
    }


def test_items_are_shown_as_text_and_raw_prints_the_document(convo: Convo, tmp_path: Path) -> None:
    copy_snapshot(MIXED, tmp_path / "state.json")
    assert convo("inspect", "state.json", "--items").out.startswith(
        "1  message user\n   Please deploy the build in Perth"
    )
    assert json.loads(convo("inspect", "state.json", "--raw").out) == json.loads(snapshot(MIXED))


def test_a_dash_reads_a_state_from_stdin(convo: Convo) -> None:
    got = convo("inspect", "-", "--json", stdin=snapshot(MIXED).decode())
    assert (got.exit, got.json()["schema_version"]) == (0, "1.21")


def test_a_name_takes_precedence_over_a_file_and_a_path_is_always_a_file(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    write_chats(home, chat_of("state", Strategy.SESSION, "hello"))
    copy_snapshot(MIXED, tmp_path / "state")
    assert convo("inspect", "state", "--json").json()["strategy"] == "session"
    assert convo("inspect", "./state", "--json").json()["schema_version"] == "1.21"


def test_a_state_and_a_conversation_are_shown_in_the_order_of_the_arguments(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    write_chats(home, chat_of("monads", Strategy.SESSION, "hello"))
    copy_snapshot(MIXED, tmp_path / "state.json")
    lines = convo("inspect", "monads", "state.json", "monads", "--json").out.splitlines()
    assert ["strategy" in json.loads(line) for line in lines] == [True, False, True]


def test_a_replay_file_that_mentions_states_is_a_replay_file(convo: Convo, tmp_path: Path) -> None:
    items = [{"role": "user", "content": 'what is "$schemaVersion" and current_agent?'}]
    (tmp_path / "talk.json").write_text(json.dumps(items))
    assert convo("inspect", "talk.json", "--json").json()["strategy"] == "replay"


def test_an_invalid_state_never_causes_a_traceback(convo: Convo, tmp_path: Path) -> None:
    for name, data in malformed().items():
        (tmp_path / name).write_bytes(data)
        got = convo("inspect", f"./{name}")
        assert got.exit in (0, 2), name
        assert "internal error" not in got.err
        assert len(got.err.splitlines()) <= 2, name


def test_an_error_names_the_file_and_the_path(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(malformed()["38_max_turns_string.json"])
    got = convo("inspect", "state.json")
    assert (got.exit, got.out) == (2, "")
    assert got.err == (
        "convo: state.json: $.max_turns must be a number of turns, or null for no limit, not '10'\n"
        "  try: use the original file; this one may have been edited or truncated\n"
    )


IMPORTED = """
import sys
from convo.cli.app import run_command_line
code = run_command_line(["inspect", *sys.argv[1:], "--json"])
print(code, sorted({name.partition(".")[0] for name in sys.modules} & set(HEAVY)))
"""


@pytest.mark.parametrize("name", ["./state.json", "state.json"])
def test_showing_a_state_imports_no_large_packages(name: str, tmp_path: Path) -> None:
    copy_snapshot(MIXED, tmp_path / "state.json")
    heavy = ("agents", "anthropic", "asyncio", "httpx2", "openai", "prompt_toolkit", "pydantic", "rich", "xllamacpp")
    code = IMPORTED.replace("HEAVY", repr(heavy))
    done = subprocess.run([sys.executable, "-c", code, name], capture_output=True, encoding="utf-8", check=True)
    assert done.stdout.splitlines()[-1] == "0 []"
