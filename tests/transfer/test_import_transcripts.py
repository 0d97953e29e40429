"""Import of transcripts of Codex 0.169 and Claude Code 2.1.330, which `tests.clients.transcripts` made."""

import json
import re
import tarfile
from collections import Counter
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from convo.errors import InputFault
from convo.history.items import item_text, item_type
from convo.inspect.serialize import ConversationDocument
from convo.models.anthropic_messages import build_anthropic_messages
from convo.models.base import make_issuer_tag
from convo.transfer.import_ import parse_conversation_document
from tests.command_runner import Convo

CODEX, NEW_CODEX, CLAUDE = "openai/gpt-5.5", "openai/gpt-5.6-sol", "anthropic/claude-opus-5"


NO_TOOLS = "t.jsonl: the file has no definitions of the tools that were called\n"


def read_archive() -> dict[str, str]:
    with tarfile.open(Path(__file__).parent / "transcripts.tar.xz") as archive:
        files = {member.name.removesuffix(".jsonl"): archive.extractfile(member) for member in archive}
        return {name: file.read().decode() for name, file in files.items() if file}


TRANSCRIPTS = read_archive()

# For each transcript: the model; its items; the number of items of requests on other branches; input and output tokens
# of its requests, None for one that was interrupted or failed; and the exit code of lint.
TABLE: dict[str, tuple[str, str, int, list[tuple[int, int] | None], int]] = {
    "codex-plain": (
        NEW_CODEX, "additional_tools developer*4 user*2 reasoning assistant user assistant", 0,
        [(1000, 50), (1100, 50)], 0,
    ),
    "codex-tools": (
        CODEX,
        "developer user*2 reasoning function_call*2 function_call_output*2 reasoning custom_tool_call"
        " custom_tool_call_output function_call function_call_output assistant",
        0, [(1000, 50)] * 4, 0,
    ),
    "codex-compacted": (
        CODEX, "developer user*2 compaction user assistant", 4, [(1000, 50), (1000, 400), (150_000, 50)], 0,
    ),
    "codex-interrupted": (
        CODEX, "developer user*2 reasoning assistant user reasoning user*2 assistant", 0,
        [(1000, 50), None, (1000, 50)], 4,
    ),
    "codex-error": (CODEX, "developer user*3 assistant", 0, [(1000, 50)], 0),
    "claude-plain": (
        CLAUDE, "user system*4 user reasoning assistant user system assistant", 0, [(12, 50), (912, 50)], 0,
    ),
    "claude-tools": (
        CLAUDE,
        "user system*4 user reasoning assistant function_call*2 function_call_output*2 system reasoning function_call"
        " function_call_output system function_call function_call_output system assistant",
        0, [(12, 50)] * 4, 0,
    ),
    "claude-compacted": (CLAUDE, "user*4 system*2 user system*2 user assistant", 8, [(12, 50)] * 2, 0),
    "claude-autocompacted": (
        CLAUDE, "system user function_call function_call_output system user system*2 user assistant", 13,
        [(12, 50), (12, 50), (190_000, 50), (12, 50)], 0,
    ),
    "claude-edited": (
        CLAUDE, "user system*4 user assistant user system assistant", 3, [(12, 50)] * 3, 0,
    ),
    "claude-interrupted": (
        CLAUDE,
        "user system*4 user reasoning assistant user system assistant user assistant user system user system assistant",
        0, [(12, 50), (12, 1), None, (12, 50)], 0,
    ),
}  # fmt: skip


def describe_items(items: Any) -> str:
    """The types of items, or roles of messages, with the number of equal ones: "user*2 assistant"."""
    kinds = [item["role"] if item_type(item) == "message" else item_type(item) for item in items]
    return " ".join(kind + f"*{count}" * (count > 1) for kind, group in groupby(kinds) for count in [len([*group])])


@pytest.mark.parametrize("name", TABLE)
def test_a_transcript_is_imported_with_its_items_and_requests(
    name: str, convo: Convo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "k")
    model, kinds, branch_count, tokens, lint_exit = TABLE[name]
    (tmp_path / "t.jsonl").write_text(TRANSCRIPTS[name], encoding="utf-8")

    imported = convo("import", str(tmp_path / "t.jsonl"), "--as", "mine", "--json")

    assert (imported.exit, imported.err.endswith(NO_TOOLS)) == (0, name == "codex-tools")
    view = convo("inspect", "mine", "--json").json()
    path_keys = view["links"][-1]["saw"] + view["links"][-1]["output"]
    path = [view["items"][key] for key in path_keys]
    assert imported.json()["model"] == model
    assert describe_items(path) == kinds
    assert len(view["items"]) - len(path) == branch_count
    usages = [link["usage"] for link in view["links"]]
    assert Counter(usage and (usage["input_tokens"], usage["output_tokens"]) for usage in usages) == Counter(tokens)
    assert convo("lint", "mine").exit == lint_exit
    assert [convo(command, "mine").exit for command in ("next", "why", "cost")] == [0, 0, 0]
    assert convo("import", str(tmp_path / "t.jsonl"), "--as", "mine").out.endswith("already imported\n")


@pytest.mark.parametrize("name", ["codex-interrupted", "claude-interrupted"])
def test_an_answer_that_the_user_interrupted_is_incomplete(name: str) -> None:
    second = parse_conversation_document(TRANSCRIPTS[name]).links[1]
    assert (second["status"], second["error"]["code"]) == ("incomplete", "interrupted")


def test_thinking_is_sent_back_as_the_vendor_made_it() -> None:
    lines = map(json.loads, TRANSCRIPTS["claude-tools"].splitlines())
    contents = (line["message"]["content"] for line in lines if line["type"] == "assistant")
    thinking = [block for content in contents for block in content if block["type"] == "thinking"]

    items = parse_conversation_document(TRANSCRIPTS["claude-tools"]).items
    issuer = make_issuer_tag("anthropic", "claude-opus-5", "https://api.anthropic.com")
    messages = build_anthropic_messages(items, CLAUDE, issuer)

    sent = [block for message in messages for block in message["content"] if block["type"] == "thinking"]
    assert sent == thinking
    assert len(sent) == 2


def all_items(document: ConversationDocument) -> Counter[str]:
    """The items of all branches, by their JSON."""
    items = [*document.items, *(other.item for other in document.other_items)]
    return Counter(json.dumps(item) for item in items)


def parse_leniently(text: str) -> Counter[str]:
    """The items of a text; none if it has no messages."""
    try:
        return all_items(parse_conversation_document(text))
    except InputFault:
        return Counter()


GARBLINGS: dict[str, Callable[[str], str]] = {
    "deleted": lambda line: "",
    "cut": lambda line: line[: len(line) // 2],
    "unknown type": lambda line: json.dumps({**json.loads(line), "type": "hologram"}),
    "no text": lambda line: json.dumps(dict.fromkeys(json.loads(line), 5)),
    "empty members": lambda line: json.dumps({name: {} for name in json.loads(line)}),
    "a list": lambda line: f"[{line}]",
}


@given(st.data(), st.sampled_from(sorted(TRANSCRIPTS)), st.sampled_from(sorted(GARBLINGS)))
def test_a_missing_or_garbled_line_changes_no_other_item(data: st.DataObject, name: str, garbling: str) -> None:
    lines = TRANSCRIPTS[name].splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    garbled = GARBLINGS[garbling](lines[number])
    before = parse_conversation_document(TRANSCRIPTS[name])

    after = parse_conversation_document("\n".join([*lines[:number], garbled, *lines[number + 1 :]]))

    # Compared as a set: messages that a compaction kept are in two branches.
    lost = set(all_items(before)) - set(all_items(after))
    assert len(lost) <= parse_leniently(lines[number]).total()
    assert abs(len(before.links) - len(after.links)) <= 1
    if garbling in ("cut", "a list"):
        assert "not imported: 1 line without a JSON object" in after.notes
    if garbling == "unknown type" and (name.startswith("codex") or '"uuid"' in lines[number]):
        assert "not imported: 1 line of the type 'hologram'" in after.notes


def change_records(name: str, change: Callable[[Any], Any]) -> ConversationDocument:
    """Import a transcript with its records changed; None leaves one out."""
    records = (change(json.loads(line)) for line in TRANSCRIPTS[name].splitlines())
    return parse_conversation_document("\n".join(json.dumps(record) for record in records if record is not None))


def test_a_note_names_at_most_five_unknown_types() -> None:
    unknown = "".join(f'\n{{"type": "hologram-{number % 50}"}}' for number in range(99))
    (note,) = parse_conversation_document(TRANSCRIPTS["codex-plain"] + unknown).notes
    assert note.startswith("not imported: 2 lines of the type 'hologram-0', 2 lines of the type 'hologram-1', ")
    assert note.endswith("2 lines of the type 'hologram-4', and 89 others")


def test_a_time_that_is_no_date_in_utc_is_left_out(convo: Convo, tmp_path: Path) -> None:
    late = json.dumps("9999-12-31T23:59:59-14:00")
    text = re.sub(r'(?<="timestamp":)\s*"[^"]*"', late, TRANSCRIPTS["claude-plain"])
    assert text.count(late) > 5
    (tmp_path / "t.jsonl").write_text(text, encoding="utf-8")
    assert convo("import", str(tmp_path / "t.jsonl"), "--as", "mine").exit == 0
    assert convo("cost", "mine", "--by", "day").exit == 0


def test_the_token_counts_of_older_codex_are_read_from_its_events() -> None:
    for name in ("codex-plain", "codex-tools", "codex-interrupted"):
        older = change_records(name, lambda record: None if record["type"] == "token_usage_record" else record)
        usages = [link["usage"] for link in older.links]
        assert usages == [link["usage"] for link in parse_conversation_document(TRANSCRIPTS[name]).links]


def test_a_summary_of_older_codex_is_a_message() -> None:
    def change(record: Any) -> Any:
        return {**record, "payload": {"message": "Twelve was said."}} if record["type"] == "compacted" else record

    assert item_text(change_records("codex-compacted", change).items[0]) == "Twelve was said."


def test_a_rollback_of_codex_begins_a_branch() -> None:
    rollback = {"type": "event_msg", "payload": {"type": "thread_rolled_back", "num_turns": 1}}
    document = parse_conversation_document(TRANSCRIPTS["codex-plain"] + json.dumps(rollback))
    assert describe_items(document.items).endswith("reasoning assistant")
    assert describe_items(other.item for other in document.other_items) == "user assistant"


def test_the_texts_that_older_claude_code_does_not_keep_are_reported() -> None:
    def change(record: Any) -> Any:
        names = ("rendered", "renderedRole", "requestRef", "requestedModel")
        kept = {name: value for name, value in record.items() if name not in names}
        return None if record["type"].startswith("api-request") else kept

    document = change_records("claude-plain", change)
    assert (document.model, describe_items(document.items)) == (CLAUDE, "user reasoning assistant user assistant")
    assert document.notes == ("not imported: 9 lines of the type 'attachment'",)


def test_a_subagent_is_a_branch_of_its_session_and_in_a_file_of_its_own_a_conversation() -> None:
    lines = TRANSCRIPTS["claude-edited"].splitlines()
    start = next(number for number, line in enumerate(lines) if "A smaller one." in line and '"uuid"' in line)
    subagent = [json.dumps({**json.loads(line), "isSidechain": True}) for line in lines[start:]]

    whole = parse_conversation_document("\n".join([*lines[:start], *subagent]))
    alone = parse_conversation_document("\n".join(subagent))

    assert item_text(whole.items[-1]) == "Thirteen."
    assert item_text(whole.other_items[-1].item) == item_text(alone.items[-1]) == "Two."
    assert alone.model == CLAUDE
