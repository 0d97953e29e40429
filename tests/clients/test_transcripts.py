"""Codex and Claude Code, run again on the script of each stored transcript: what they write is imported alike, and the
imported input of the last request is the one that the vendor received."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from convo.history.items import developer_message
from convo.inspect.serialize import ConversationDocument
from convo.models.anthropic_messages import build_anthropic_messages
from convo.models.base import make_issuer_tag
from convo.transfer.import_ import parse_conversation_document
from tests.clients.transcripts import CODEX, TURNS, make_transcript, replace_folder, run_vendor
from tests.transfer.test_import_transcripts import TRANSCRIPTS, describe_items

PROGRAMS = [pytest.param(name, marks=pytest.mark.needs(name.partition("-")[0])) for name in TURNS]


def describe(document: ConversationDocument) -> Mapping[str, Any]:
    links = [(link["status"], link["usage"], link["saw"], link["head"]) for link in document.links]
    return {"items": describe_items(document.items), "links": links, "model": document.model, "notes": document.notes}


def without_codex_fields(item: Mapping[str, Any]) -> Mapping[str, Any]:
    names = ("id", "internal_chat_message_metadata_passthrough")
    return {name: value for name, value in item.items() if name not in names and value is not None}


def conversation_blocks(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The blocks of the conversation, without reminders and marks of the cache, and texts as Claude Code joins them."""
    for message in messages:
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        # Results are in the order of their calls; Claude Code sends them as they arrived.
        for block in sorted(blocks, key=lambda block: str(block.get("tool_use_id", ""))):
            fields = {name: value for name, value in block.items() if name != "cache_control" and value is not False}
            if fields["type"] == "tool_result" and isinstance(fields["content"], str):
                fields["content"] = [{"type": "text", "text": fields["content"]}]
            elif fields["type"] == "text":
                fields["text"] = fields["text"].rstrip("\n")
            if message["role"] != "system" and not str(fields.get("text")).startswith("<system-reminder>"):
                yield message["role"], fields


@pytest.mark.full
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_writes_what_its_stored_transcript_has(name: str, tmp_path: Path) -> None:
    with run_vendor() as (vendor, url):
        written = parse_conversation_document(make_transcript(name, tmp_path, vendor, url))
    assert describe(written) == describe(parse_conversation_document(TRANSCRIPTS[name]))

    received = json.loads(replace_folder(json.dumps(vendor.requests[-1]), tmp_path))
    saw = written.items[: written.links[-1]["saw"]]
    if name in CODEX:
        # Codex sends its instructions as a message.
        head = [developer_message(written.instructions)] if written.instructions else []
        assert [*head, *map(without_codex_fields, saw)] == [*map(without_codex_fields, received["input"])]
    else:
        issuer = make_issuer_tag("anthropic", "claude-opus-5", "https://api.anthropic.com")
        sent = build_anthropic_messages(saw, "claude-opus-5", issuer)
        assert [*conversation_blocks(sent)] == [*conversation_blocks(received["messages"])]
