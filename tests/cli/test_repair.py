"""`convo repair`: a valid copy of an invalid history, which is not changed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from convo.history.canonical import item_hash
from convo.history.records import Strategy
from convo.history.tree import child_key
from convo.stores.base import AppendItems, Transaction
from tests.cli.broken_histories import ANSWER, BROKEN, CALL, HI, broken_session, unanswered_call, write_items
from tests.cli.chat_commands import ECHO, stored_sessions
from tests.cli.stored_chats import ChatWriter, write_chats
from tests.command_runner import Convo, write_project_file
from tests.runstate.snapshots import snapshot

REPAIR_OUTPUT = """\
mended: 4 items, owner: the local store
  $[1]  replaced      the arguments of weather are truncated: they are now {"city": "Bo"} [invalid-arguments]
  $[2]  dropped       this function call output has no earlier call c0 [output-without-call]
  $[1]  added         function call c1 has no output: an 'interrupted' output was added [call-without-output]
"""

INTERRUPTED_OUTPUT = {
    "type": "function_call_output",
    "call_id": "c1",
    "output": "The call was interrupted before it gave an output.",
}


def raw_items(convo: Convo, handle: str) -> object:
    return convo("inspect", handle, "--raw").json()


def test_a_repaired_session_is_a_new_session_beside_the_original(convo: Convo, home: Path) -> None:
    write_chats(home, broken_session("broken"))
    before = convo("inspect", "broken", "--json").out
    got = convo("repair", "broken", "--as", "mended")
    assert (got.exit, got.out, got.err) == (0, REPAIR_OUTPUT, "")
    assert raw_items(convo, "mended") == [HI, {**CALL, "arguments": '{"city": "Bo"}'}, INTERRUPTED_OUTPUT, ANSWER]
    assert convo("lint", "mended", "--strict").exit == 0
    assert convo("inspect", "broken", "--json").out == before


def test_a_repaired_session_can_be_continued(convo: Convo, home: Path) -> None:
    write_chats(home, broken_session("broken"))
    convo("repair", "broken", "--as", "mended")
    got = convo("chat", "--from", "mended", *ECHO, "go on")
    assert (got.exit, got.out) == (0, "go on\n")
    assert convo("chat", "--from", "broken", *ECHO, "go on").exit == 1


def test_a_repaired_session_is_a_fork_at_the_last_shared_response(convo: Convo, home: Path) -> None:
    async def script(writer: ChatWriter) -> None:
        chat = await writer.chat(Strategy.SESSION, "talk", "one", "two")
        before = chat.session
        head = child_key(before.head, item_hash(CALL))
        await writer.store.commit(Transaction((AppendItems(before.head, (CALL,)),), session=replace(before, head=head)))

    write_chats(home, script)
    assert convo("repair", "talk", "--as", "mended").exit == 0
    convo("chat", "--from", "mended", *ECHO, "three")
    old, new = (convo("inspect", name, "--json").json() for name in ("talk", "mended"))
    assert [one["children"] for one in new["links"]] == [["resp_2"], [new["links"][2]["response_id"]], []]
    assert set(list(old["items"])[:5]) <= set(new["items"])


def test_an_interrupted_chain_continues_from_the_same_response_with_the_missing_output(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    write_chats(home, unanswered_call(tmp_path))
    got = convo("repair", "resp_2", "--as", "mended", "--json")
    result = got.json()
    assert (got.exit, result["strategy"], result["made"], result["items"]) == (0, "chain", "mended", 5)
    assert [(one["code"], one["change"], one["path"]) for one in result["changes"]] == [
        ("call-without-output", "added", "$[3]")
    ]
    (record,) = stored_sessions(home)
    assert (record.handle, record.link_id, record.head == record.confirmed_head) == ("resp_2", "resp_2", False)
    assert convo("chat", "--from", "mended", *ECHO, "go on").exit == 0
    (link,) = [one for one in convo("inspect", "mended", "--json").json()["links"] if len(one["sent"]) == 2]
    assert link["previous_response_id"] == "resp_2"
    assert convo("lint", "mended", "--strict").exit == 0


def test_a_repaired_conversation_is_a_local_session_and_the_conversation_is_unchanged(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    async def script(writer: ChatWriter) -> None:
        await writer.chat(Strategy.CONVERSATION, "talk", "hello")
        await unanswered_call(tmp_path, conversation="conv_1")(writer)

    write_chats(home, script)
    result = convo("repair", "conv_1", "--as", "mended", "--json").json()
    assert [one["change"] for one in result["changes"]] == ["owner", "added"]
    assert [one.strategy for one in stored_sessions(home) if one.name == "mended"] == [Strategy.SESSION]
    assert convo("lint", "mended").exit == 0
    assert convo("lint", "conv_1").exit == 4


def test_a_file_is_repaired_into_another_file(convo: Convo, tmp_path: Path) -> None:
    got = convo("repair", write_items(tmp_path / "broken.json"), "--as", "good.json")
    assert (got.exit, got.out.splitlines()[0]) == (0, "good.json: 4 items, owner: the application: a JSON file")
    assert json.loads((tmp_path / "broken.json").read_text()) == BROKEN
    assert convo("lint", "good.json", "--strict").exit == 0
    assert convo("chat", "--replay", "--from", "good.json", *ECHO, "go on").exit == 0


def test_a_file_is_repaired_into_a_session_with_the_default_model(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_project_file('model = "scripted/echo"\n')
    got = convo("repair", write_items(tmp_path / "broken.json"), "--as", "mended")
    assert got.exit == 0
    assert [(one.name, one.model, str(one.scope)) for one in stored_sessions(home)] == [
        ("mended", "scripted/echo", "embedded")
    ]


def test_a_session_is_repaired_into_a_file(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, broken_session("broken"))
    assert convo("repair", "broken", "--as", "./good.jsonl").exit == 0
    lines = (tmp_path / "good.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines][2] == INTERRUPTED_OUTPUT


def test_a_request_is_repaired_into_a_request(convo: Convo, tmp_path: Path) -> None:
    request = {"model": "m", "previous_response_id": "resp_1", "input": [CALL]}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert convo("repair", "request.json", "--as", "good.json").exit == 0
    assert json.loads((tmp_path / "good.json").read_text()) == {**request, "input": [CALL, INTERRUPTED_OUTPUT]}
    assert convo("repair", "request.json", "--as", "mended").exit == 2


def test_a_dry_run_lists_the_changes_and_creates_nothing(convo: Convo, home: Path, tmp_path: Path) -> None:
    write_chats(home, broken_session("broken"))
    got = convo("repair", "broken", "--as", "mended", "--dry-run")
    assert got.out.splitlines()[0] == "mended: 4 items, owner: the local store (dry run)"
    assert got.out.splitlines()[1:] == REPAIR_OUTPUT.splitlines()[1:]
    assert convo("repair", "broken", "--as", "good.json", "--dry-run", "--json").json()["made"] is None
    assert [one.name for one in stored_sessions(home)] == ["broken"]
    assert not (tmp_path / "good.json").exists()


@pytest.mark.parametrize("name", ["good.json", "good.jsonl"])
def test_a_valid_history_is_copied_to_a_file(convo: Convo, tmp_path: Path, name: str) -> None:
    source = write_items(tmp_path / "fine.json", [HI])
    assert convo("repair", source, "--as", name, "--dry-run").out == "nothing to repair\n"
    assert not (tmp_path / name).exists()
    got = convo("repair", source, "--as", name)
    assert (got.exit, got.out) == (0, f"nothing to repair: copied 1 item to {name}\n")
    assert convo("lint", name, "--strict").exit == 0
    assert convo("repair", source, "--as", name).exit == 2
    document = convo("repair", source, "--as", f"2-{name}", "--json").json()
    assert (document["made"], document["items"], document["changes"]) == (f"2-{name}", 1, [])
    assert (tmp_path / f"2-{name}").read_text() == (tmp_path / name).read_text()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("taken", "convo: a session named 'taken' already exists\n  try: choose another name: --as taken-2\n"),
        ("resp_1", "convo: 'resp_1' is not a name: it looks like an option, an id or a file\n"),
        ("a@2", "convo: 'a@2' is not a name: it looks like an option, an id or a file\n"),
        ("there.json", "convo: there.json already exists\n"),
    ],
)
@pytest.mark.parametrize("flags", [[], ["--dry-run"]], ids=["", "dry"])
def test_a_taken_or_invalid_name_is_refused(
    name: str, message: str, flags: list[str], convo: Convo, home: Path, tmp_path: Path
) -> None:
    write_chats(home, broken_session("broken"))
    write_chats(home, broken_session("taken", [HI]))
    (tmp_path / "there.json").write_text("mine")
    got = convo("repair", "broken", "--as", name, *flags)
    assert (got.exit, got.out) == (2, "")
    assert got.err.startswith(message)
    assert (tmp_path / "there.json").read_text() == "mine"
    assert {one.name for one in stored_sessions(home)} == {"broken", "taken"}


def test_a_history_that_another_provider_encrypted_is_not_discarded(convo: Convo, home: Path) -> None:
    compaction = {"type": "compaction", "encrypted_content": "convo1:openai/gpt-5:0:x"}
    write_chats(home, broken_session("broken", [compaction, HI]))
    got = convo("repair", "broken", "--as", "mended", "--json")
    assert (got.exit, got.json()["error"]["code"]) == (1, "unmendable")
    assert [one.name for one in stored_sessions(home)] == ["broken"]


def test_a_paused_run_is_refused_with_the_resume_command(convo: Convo, tmp_path: Path) -> None:
    (tmp_path / "state.json").write_bytes(snapshot("0.24.0__schema1.21__parallel_mixed_decided.json"))
    got = convo("repair", "./state.json", "--as", "mended")
    assert (got.exit, got.err) == (
        2,
        "convo: a paused run cannot be repaired\n  try: convo resume ./state.json\n",
    )
