"""`convo convert`: its output, the unchanged source, and later turns at an endpoint of the Responses API."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from tests.cli.chat_commands import ECHO, stored_conversation, stored_sessions
from tests.command_runner import Convo
from tests.loopback_server import LoopbackServer
from tests.request_items import message_lines

FIELDS = {
    *("source", "strategy", "endpoint", "model", "session", "handle", "items", "unacknowledged", "losses", "notes"),
    "prefix",
}


def start_session(convo: Convo, strategy: str, *flags: str, name: str = "mine") -> None:
    assert convo("chat", f"--{strategy}", "-n", name, *flags, "one").exit == 0


def test_a_dry_run_changes_nothing(convo: Convo, home: Path, tmp_path: Path) -> None:
    start_session(convo, "session", *ECHO)
    before = stored_sessions(home), sorted(tmp_path.rglob("*.json"))
    for to in ("replay", "conversation", "chain"):
        result = convo("convert", "mine", "--to", to, "--dry-run", "--json").json()
        assert set(result) == FIELDS
        assert (result["strategy"], result["session"], result["handle"], result["items"]) == (to, None, None, 2)
    assert (stored_sessions(home), sorted(tmp_path.rglob("*.json"))) == before


def test_a_replay_file_is_named_after_its_session_or_as_requested(convo: Convo, tmp_path: Path) -> None:
    start_session(convo, "session", *ECHO)
    assert convo("convert", "mine", "--to", "replay", "--as", "kept", "--json").json()["handle"] == str(
        tmp_path / "kept.json"
    )
    result = convo("convert", "mine", "--to", "replay", "--as", "./talk.json", "--json").json()
    assert result["handle"] == str(tmp_path / "talk.json")
    assert [item["role"] for item in json.loads((tmp_path / "talk.json").read_text())] == ["user", "assistant"]
    again = convo("convert", "mine", "--to", "replay", "--as", "./talk.json")
    assert (again.exit, again.err.splitlines()[0]) == (1, f"convo: {tmp_path / 'talk.json'} already exists")
    (tmp_path / "other.json").write_text("[]")
    assert convo("convert", "mine", "--to", "replay", "--as", "./other.json").exit == 1
    assert (
        convo("convert", "mine", "--to", "replay", "--as", "other", "--json").json()["handle"].endswith("/other-2.json")
    )
    assert (tmp_path / "other.json").read_text() == "[]"


def test_a_replay_file_without_a_record_is_converted(convo: Convo, tmp_path: Path, home: Path) -> None:
    (tmp_path / "talk.json").write_text(
        json.dumps([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}])
    )
    result = convo("convert", "./talk.json", "--to", "conversation", "-m", "scripted/echo", "--json").json()
    assert result["session"] == "hi"
    assert convo("chat", "--from", result["handle"], "and?").out == "and?\n"
    items, _ = stored_conversation(home, "hi")
    assert message_lines(items) == ["user: hi", "assistant: ho", "user: and?", "assistant: and?"]


def test_an_unrecorded_conversation_is_converted_to_a_local_session(server: LoopbackServer, convo: Convo) -> None:
    conversation_id = str(server.run(server.endpoint().create_conversation([{"role": "user", "content": "hi"}]))["id"])
    result = convo("convert", conversation_id, "--to", "session", "--provider", "openai", "--json").json()
    assert (result["items"], result["strategy"]) == (1, "session")


ENCRYPTED_REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "one"}]}


@pytest.mark.parametrize(
    ("flags", "code", "sent"),
    [((), "item_ids", ["message", "reasoning", "message", "message"]), (("-m", "gpt-5"), "reasoning_elsewhere", None)],
    ids=["same model", "another model"],
)
def test_encrypted_reasoning_is_sent_only_to_its_provider(
    server: LoopbackServer, convo: Convo, flags: tuple[str, ...], code: str, sent: list[str] | None
) -> None:
    server.scripts.replies({"output": [ENCRYPTED_REASONING, ANSWER]})
    start_session(convo, "session", "-m", "gpt-5-mini")
    result = convo("convert", "mine", "--to", "chain", "--as", "new", *flags, "--json").json()
    assert code in [loss["code"] for loss in result["losses"]]
    assert convo("chat", "--from", "new", "two").exit == 0
    kinds = [item["type"] for item in server.bodies[-1]["input"]]
    assert kinds == (sent or ["message", "message", "message"])


def test_another_model_moves_a_history_to_another_endpoint(server: LoopbackServer, convo: Convo) -> None:
    start_session(convo, "conversation")
    result = convo("convert", "mine", "--to", "conversation", "-m", "scripted/echo", "--as", "here", "--json").json()
    assert result["endpoint"] == "embedded"
    assert convo("chat", "--from", "here", "two").out == "two\n"
    assert len(server.bodies) == 1


# -- hints that suggest a conversion ---------------------------------------------------------------


def hinted_command(err: str) -> list[str]:
    """Return the arguments of the command in the last line of an error."""
    hint = err.splitlines()[-1].removeprefix("  try: ")
    return shlex.split(hint[hint.index("convo convert") :].split(", and")[0])[1:]


REFUSED_COMMANDS: list[tuple[str, tuple[str, ...]]] = [
    ("conversation", ("chat", "--session", "--from", "mine", "hi")),
    ("session", ("chat", "--chain", "--from", "mine", "hi")),
    ("conversation", ("chat", "--from", "mine", "-m", "scripted/echo", "hi")),
    ("chain", ("chat", "--from", "mine", "-m", "scripted/echo", "hi")),
    ("conversation", ("chat", "--fork", "mine", "hi")),
]


@pytest.mark.parametrize(("owner", "argv"), REFUSED_COMMANDS, ids=lambda value: value if isinstance(value, str) else "")
def test_a_suggested_convert_command_can_be_pasted(
    server: LoopbackServer, convo: Convo, owner: str, argv: tuple[str, ...]
) -> None:
    start_session(convo, owner)
    refused = convo(*argv)
    assert refused.exit == 2
    got: Any = convo(*hinted_command(refused.err))
    assert (got.exit, got.err) == (0, "")
