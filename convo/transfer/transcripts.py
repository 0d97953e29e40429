"""Import of transcripts of coding agents, JSON Lines: rollouts of Codex, and session files of Claude Code.

    Codex          ~/.codex/sessions/YYYY/MM/DD/rollout-*.jsonl
    Claude Code    ~/.claude/projects/PROJECT/SESSION.jsonl, and of a subagent SESSION/subagents/agent-*.jsonl

Only what a request contained becomes an item. All other lines give requests, models, dates and token counts, or
nothing. A line that is not JSON or has an unknown form is left out and counted in the notes of the document. History
that was compacted, rewound or edited becomes a branch.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256

from convo.config.sections import KNOWN_PROVIDERS
from convo.errors import InputFault
from convo.history.canonical import is_utf8_encodable
from convo.history.items import (
    ENCRYPTED_FIELD,
    Item,
    Json,
    is_client_call,
    is_item,
    is_model_item,
    is_valid_id,
    item_text,
    typed_text,
    user_message,
)
from convo.history.records import (
    COMPACTION_CONTEXT_MANAGEMENT,
    EMBEDDED_SCOPE,
    UPSTREAM_ID,
    LinkStatus,
    Scope,
    Strategy,
)
from convo.inspect.serialize import BranchItem, ConversationDocument
from convo.models.base import make_issuer_tag
from convo.models.readers.messages import encode_thinking_block, read_messages_usage
from convo.models.stream import make_usage, read_token_count
from convo.recording.decoder import UNKNOWN_MODEL, decode_message, decode_messages_parameters

Record = Mapping[str, Json]

ROOT = 0

ANTHROPIC = "anthropic"

SYNTHETIC = "<synthetic>"
"""The model of a message that Claude Code wrote without a request."""

INTERRUPTED = {"code": "interrupted", "message": "the turn was interrupted"}
"""The error of an answer that the user interrupted."""

MAX_TIME_S = 221_845_392_000
"""The year 9000 in seconds since 1970: no later time is a date in every time zone."""

MAX_NAMED_KINDS = 5
"""Kinds of lines that a note names."""

FIRST_LINES = 20
"""Lines at the start of a file that are searched for a known record."""


def is_transcript(text: str) -> bool:
    """Return whether one of the first lines is a record of a known agent."""
    return _find_reader(text) is not None


def parse_transcript(text: str) -> ConversationDocument:
    """Parse a text for which `is_transcript` holds. Raises InputFault if it has no messages."""
    reader = (_find_reader(text) or CodexReader)()
    for line in text.split("\n"):  # not splitlines: JSON may contain U+2028
        if not line.strip():
            continue
        record = _load_record(line)
        if record is None:
            reader.unread["without a JSON object"] += 1
            continue
        # Caught for each line: another program wrote the file, and any value may have any type.
        try:
            is_known = reader.read(record)
        except (TypeError, ValueError, LookupError, AttributeError, RecursionError):
            is_known = False
        if not is_known:
            reader.unread[f"of the type {str(record.get('type'))[:40]!r}"] += 1
    document = reader.build_document()
    if not document.items:
        raise InputFault("the transcript has no messages", hint="choose another file")
    return document


def _find_reader(text: str) -> "type[CodexReader | ClaudeCodeReader] | None":
    records = filter(None, map(_load_record, text.split("\n", FIRST_LINES)[:FIRST_LINES]))
    for record in records:
        if isinstance(record.get("payload"), dict) and record.get("type") in CodexReader.TYPES:
            return CodexReader
        if "type" in record and isinstance(record.get("sessionId", record.get("leafUuid")), str):
            return ClaudeCodeReader
    return None


def _load_record(line: str) -> Record | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


@dataclass
class TranscriptReader:
    """The history and the requests read so far. `read` of a subclass returns whether it knows the type of a line.

    nodes:         item, parent and depth of each node, numbered from 1; ROOT is the parent of the first
    links:         requests as in a `ConversationDocument`, but with the numbers of these nodes
    link_by_node:  the last request whose output ends at a node
    unread:        lines that were not imported, by description
    """

    nodes: list[tuple[Item, int, int]] = field(default_factory=list)
    links: list[dict[str, Json]] = field(default_factory=list)
    link_by_node: dict[int, str] = field(default_factory=dict)
    link_ids: set[str] = field(default_factory=set)
    unread: Counter[str] = field(default_factory=Counter)
    created_at: float | None = None
    name: str | None = None
    model: str | None = None
    instructions: str | None = None

    def add_items(self, parent: int, items: Sequence[Item]) -> int:
        """Append items to the node `parent`, and return the last node."""
        for item in items:
            self.nodes.append((item, parent, self.depth(parent) + 1))
            parent = len(self.nodes)
        return parent

    def depth(self, node: int) -> int:
        return self.nodes[node - 1][2] if node else 0

    def ancestors(self, node: int) -> Iterator[int]:
        """Yield `node` and the nodes before it, the last first, without the root."""
        while node != ROOT:
            yield node
            node = self.nodes[node - 1][1]

    def add_link(
        self,
        link_id: str,
        saw: int,
        head: int,
        *,
        model: str,
        created_at: float,
        ended_at: float,
        status: LinkStatus = "completed",
        **fields: Json,
    ) -> None:
        """Add a request; its parent is the last request on the path of its input."""
        if link_id in self.link_ids:  # some servers use an id again
            link_id = _make_link_id(link_id, len(self.links))
        self.link_ids.add(link_id)
        parent = next(filter(None, map(self.link_by_node.get, self.ancestors(saw))), None)
        provider = model.partition("/")[0]
        is_remote = KNOWN_PROVIDERS.get(provider, {}).get("api") == "responses"
        self.links.append(
            {
                "id": link_id,
                "saw": saw,
                "head": head,
                "sent": self.depth(saw),
                "strategy": str(Strategy.SESSION),
                "endpoint": list(Scope(KNOWN_PROVIDERS[provider]["base_url"]) if is_remote else EMBEDDED_SCOPE),
                "model": model,
                "status": status,
                "created_at": created_at,
                "seconds": max(0.0, ended_at - created_at),
                "parent": parent,
                "stored": False,
                **fields,
            }
        )
        self.link_by_node[head] = link_id

    def to_document(self, head: int) -> ConversationDocument:
        """Return the conversation whose last node is `head`; all other nodes are branches."""
        path = [*self.ancestors(head)][::-1]
        numbers = {node: position for position, node in enumerate(path, 1)} | {ROOT: 0}
        branches = []
        for node, (item, parent, _) in enumerate(self.nodes, 1):
            if node not in numbers:
                branches.append(BranchItem(numbers[parent], item))
                numbers[node] = -len(branches)
        links = tuple({**link, "saw": numbers[link["saw"]], "head": numbers[link["head"]]} for link in self.links)
        items = tuple(self.nodes[node - 1][0] for node in path)
        notes = []
        if self.unread:
            named = self.unread.most_common(MAX_NAMED_KINDS)
            counts = [f"{count} line{'s' * (count > 1)} {kind}" for kind, count in named]
            if other_count := self.unread.total() - sum(count for _, count in named):
                counts.append(f"and {other_count} other{'s' * (other_count > 1)}")
            notes.append(f"not imported: {', '.join(counts)}")
        has_tools = any("tools" in link["parameters"] for link in links) or any("tools" in item for item in items)
        if not has_tools and any(map(is_client_call, items)):
            notes.append("the file has no definitions of the tools that were called")
        return ConversationDocument(
            items=items,
            confirmed_count=len(path),
            name=self.name,
            model=self.model,
            instructions=self.instructions,
            created_at=self.created_at,
            links=links,
            link_id=next(filter(None, map(self.link_by_node.get, reversed(path))), None),
            other_items=tuple(branches),
            notes=tuple(notes),
        )


def _parse_time(value: Json) -> float | None:
    """Parse a time in ISO 8601 as seconds since 1970; None if invalid or too late. A time without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    seconds = (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
    return seconds if 0 <= seconds < MAX_TIME_S else None


def _make_link_id(*parts: Json) -> str:
    """Make the id of a request that has none in the file. Each import makes the same id."""
    return f"resp_{sha256(json.dumps(parts).encode()).hexdigest()[:32]}"


def _read_text(value: Json) -> str | None:
    """Return a text; None if it is empty, not a text, or has surrogates."""
    return value if isinstance(value, str) and value and is_utf8_encodable(value) else None


# -- Codex ----------------------------------------------------------------------------------------


@dataclass
class CodexReader(TranscriptReader):
    """Reader of rollouts. Their items are those of the API; a response is the model's items up to its token counts.

    head:          the last node
    output_start:  the node before the output of the response that is being read; None if none is
    input_at:      time of the last input item or the start of the turn, when the request was made
    total_tokens:  of the thread, at the last token counts
    """

    TYPES = ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "token_usage_record")
    OTHER_TYPES = ("world_state",)

    thread_id: str | None = None
    provider: str = "openai"
    parameters: dict[str, Json] = field(default_factory=dict)
    head: int = ROOT
    output_start: int | None = None
    input_at: float = 0.0
    read_at: float = 0.0
    total_tokens: Json = None

    def read(self, record: Record) -> bool:
        self.read_at = _parse_time(record.get("timestamp")) or self.read_at
        if record.get("type") in self.OTHER_TYPES:
            return True
        payload = record["payload"]
        match record.get("type"):
            case "session_meta":
                self._read_session(payload)
            case "turn_context":
                self.model = _read_text(payload.get("model")) or self.model
                reasoning = {"effort": payload.get("effort"), "summary": payload.get("summary")}
                self.parameters = {"reasoning": {name: text for name, text in reasoning.items() if _read_text(text)}}
            case "response_item":
                return self._read_item(payload)
            case "token_usage_record":
                response_id = payload.get("response_id")
                self._end_response(payload["usage"], response_id if is_valid_id(response_id) else None)
            case "compacted":
                self._read_compaction(payload)
            case "event_msg":
                self._read_event(payload)
            case _:
                return False
        return True

    def build_document(self) -> ConversationDocument:
        if self.output_start is not None:
            self._end_response(None)
        self.model = self.model and f"{self.provider}/{self.model}"
        return self.to_document(self.head)

    def _read_session(self, meta: Record) -> None:
        if self.thread_id is not None:
            return  # of the thread that this one was forked from
        self.thread_id = _read_text(meta.get("id"))
        self.provider = _read_text(meta.get("model_provider")) or self.provider
        instructions = meta.get("base_instructions") or meta.get("instructions")  # a text in older versions
        self.instructions = _read_text(instructions.get("text") if isinstance(instructions, dict) else instructions)
        self.created_at = _parse_time(meta.get("timestamp"))

    def _read_item(self, payload: Json) -> bool:
        item = _strip_codex_fields(payload)
        if not is_item(item) or item["type"] in ("ghost_snapshot", "other"):  # notes of Codex, not of the API
            return False
        if self.instructions and item.get("role") == "developer" and self.instructions in item_text(item):
            self.instructions = None  # newer models get them as an item
        if is_model_item(item):
            self.output_start = self.head if self.output_start is None else self.output_start
        else:
            if self.output_start is not None:
                self._end_response(None)
            self.input_at = self.read_at
        self.head = self.add_items(self.head, [item])
        return True

    def _end_response(self, counts: Json, response_id: str | None = None) -> None:
        """Add the request whose output ends at the head, or has no items: a compaction by the server."""
        saw = self.head if self.output_start is None else self.output_start
        self.output_start = None
        self.add_link(
            response_id or _make_link_id(self.thread_id, len(self.links)),
            saw,
            self.head,
            model=f"{self.provider}/{self.model or UNKNOWN_MODEL}",
            created_at=self.input_at or self.read_at,
            ended_at=self.read_at,
            parameters={**self.parameters, **({"instructions": self.instructions} if self.instructions else {})},
            usage=None if counts is None else _read_codex_usage(counts),
        )

    def _read_compaction(self, payload: Record) -> None:
        """Begin a new path with the items that replace the history."""
        replacement = payload.get("replacement_history") or [user_message(payload["message"])]
        items = [item for item in map(_strip_codex_fields, replacement) if is_item(item)]
        end, self.head = self.head, self.add_items(ROOT, items)
        if not self.links:
            return
        last = self.links[-1]
        self.link_by_node[self.head] = last["id"]
        if last["saw"] == last["head"] == end:  # its request, in convo's form: without input and output
            context_management = {"context_management": COMPACTION_CONTEXT_MANAGEMENT}
            last |= {"saw": self.head, "head": self.head, "sent": 0, "parameters": context_management}

    def _read_event(self, payload: Record) -> None:
        match payload.get("type"):
            case "task_started":
                self.input_at = self.read_at
            case "token_count":
                self._read_token_count(payload.get("info") or {})
            case "turn_aborted":
                if self.output_start is not None:
                    self._end_response(None)
                if self.links and self.links[-1]["usage"] is None:
                    self.links[-1] |= {"status": "incomplete", "error": INTERRUPTED}
            case "thread_rolled_back":
                for _ in range(payload["num_turns"]):
                    turn = next(
                        (node for node in self.ancestors(self.head) if typed_text(self.nodes[node - 1][0])), None
                    )
                    if turn is None:
                        break
                    self.head = self.nodes[turn - 1][1]

    def _read_token_count(self, info: Record) -> None:
        """Read the counts of versions without `token_usage_record`. They may be repeated, or follow tool outputs."""
        if info.get("total_token_usage") in (None, self.total_tokens):
            return
        self.total_tokens = info["total_token_usage"]
        if self.output_start is not None:
            self._end_response(info["last_token_usage"])
        elif self.links and self.links[-1]["usage"] is None:
            self.links[-1]["usage"] = _read_codex_usage(info["last_token_usage"])


def _strip_codex_fields(item: Json) -> Item:
    """Return an item without the fields of Codex, which the API refuses, and without empty fields."""
    return {name: value for name, value in item.items() if value is not None and not name.startswith("internal_")}


def _read_codex_usage(counts: Record) -> Json:
    return make_usage(
        read_token_count(counts, "input_tokens"),
        read_token_count(counts, "output_tokens"),
        cached=read_token_count(counts, "cached_input_tokens"),
        written=read_token_count(counts, "cache_write_input_tokens"),
        reasoning=read_token_count(counts, "reasoning_output_tokens"),
    )


# -- Claude Code ----------------------------------------------------------------------------------


@dataclass(eq=False)
class _Message:
    """An answer of the model, the outputs of its calls, or another message.

    parent:      the message before it; None for the first of a path
    link:        the request of an answer
    results:     the message with the outputs of its calls
    is_summary:  it replaces the history before it
    node:        its last node, once it is in the tree
    """

    parent: "_Message | None"
    items: list[Item] = field(default_factory=list)
    link: dict[str, Json] | None = None
    results: "_Message | None" = None
    is_summary: bool = False
    node: int = ROOT


@dataclass
class ClaudeCodeReader(TranscriptReader):
    """Reader of session files. Their lines are a tree by `parentUuid`.

    Each block of an answer is a line, and outputs of its calls may be between them: the reader puts them in the order
    of a request. The texts that Claude Code adds are imported as far as the file has them ("rendered").

    answers:   by the id of the answer, and of each of its calls
    last:      the message of the last line
    main:      the last message that is not of a subagent
    requests:  by id; older versions write neither requests nor shapes
    shapes:    instructions and tools by hash
    preserved: the messages that the last compaction kept, as "headUuid" and "tailUuid", after "anchorUuid"
    rendered:  the number of attachments with and without their text
    """

    TYPES = ("assistant", "attachment", "progress", "system", "user")
    """Types of lines with a uuid; a line without one is no message."""

    messages: list[_Message] = field(default_factory=list)
    message_by_uuid: dict[str, _Message | None] = field(default_factory=dict)
    answers: dict[str, _Message] = field(default_factory=dict)
    last: _Message | None = None
    main: _Message | None = None
    requests: dict[str, Record] = field(default_factory=dict)
    shapes: dict[str, Record] = field(default_factory=dict)
    preserved: Record = field(default_factory=dict)
    read_at: float = 0.0
    rendered: Counter[bool] = field(default_factory=Counter)

    def read(self, record: Record) -> bool:
        kind, uuid, parent_uuid = record.get("type"), record.get("uuid"), record.get("parentUuid")
        match kind:
            case "ai-title" | "custom-title":
                self.name = _read_text(record.get("customTitle") or record.get("aiTitle"))
            case "api-request":
                self.requests[record["id"]] = record
            case "api-request-shape":
                self.shapes[record["shapeHash"]] = record["shape"]
        if isinstance(uuid, str) and uuid not in self.message_by_uuid:
            # A line whose parent is lost follows the line before it, and a summary always begins a path.
            default = None if parent_uuid is None or record.get("isCompactSummary") else self.last
            self.last = self._read_message(record, self.message_by_uuid.get(str(parent_uuid), default))
            if uuid == self.preserved.get("anchorUuid"):
                self.last = self._copy_preserved(self.last)
            self.message_by_uuid[uuid] = self.last
            if not record.get("isSidechain"):
                self.main = self.last
            self.read_at = _parse_time(record.get("timestamp")) or self.read_at
            self.created_at = self.created_at or self.read_at or None
        return kind in self.TYPES or not isinstance(uuid, str)

    def build_document(self) -> ConversationDocument:
        # Older versions keep no text; newer ones keep it for each attachment that they send.
        if not self.rendered[True] and self.rendered[False]:
            self.unread["of the type 'attachment'"] = self.rendered[False]
        for message in self.messages:
            saw = message.parent.node if message.parent else ROOT
            message.node = self.add_items(saw, message.items)
            if message.is_summary and self.links:
                self.link_by_node[message.node] = self.links[-1]["id"]
            if message.link:
                self.add_link(saw=saw, head=message.node, **message.link)
        head = self.main or self.last
        return self.to_document(head.node if head else ROOT)

    def _read_message(self, record: Record, parent: _Message | None) -> _Message | None:
        """Return the message of a line, or `parent` if the line has no items."""
        items: Sequence[Item] = ()
        match record.get("type"):
            case "assistant":
                return self._read_answer(record, parent)
            case "user":
                items = decode_message({"role": "user", "content": record["message"]["content"]})
            case "attachment":
                texts = [part["content"] for part in record.get("rendered") or ()]
                self.rendered[bool(texts)] += 1
                role = record.get("renderedRole") or "user"
                items = decode_message({"role": role, "content": "\n\n".join(texts)}) if texts else ()
            case "system" if record.get("subtype") == "local_command":
                items = decode_message({"role": "user", "content": record["content"]})
            case "system" if record.get("subtype") == "compact_boundary":
                self.preserved = record["compactMetadata"].get("preservedSegment") or {}
        answer = next((self.answers[call] for item in items if (call := item.get("call_id")) in self.answers), None)
        if answer is None:
            message = self._add_message(parent, items) if items else parent
            if message and record.get("isCompactSummary"):
                message.is_summary = True
            return message
        if answer.results is None:
            answer.results = self._add_message(answer, ())
        answer.results.items += items
        return answer.results

    def _read_answer(self, record: Record, parent: _Message | None) -> _Message:
        """Read a block of an answer, or the message that Claude Code wrote instead of an answer."""
        message, is_error = record["message"], bool(record.get("isApiErrorMessage"))
        model = (
            f"{ANTHROPIC}/{_read_text(record.get('requestedModel')) or _read_text(message['model']) or UNKNOWN_MODEL}"
        )
        items = [_decode_block(block, model) for block in message["content"]]
        if message["model"] == SYNTHETIC and not is_error:
            return self._add_message(parent, items)
        ended_at = _parse_time(record.get("timestamp")) or self.read_at
        if is_error:
            # Claude Code never sends it, so it is no item.
            failure = {"code": _read_text(record.get("error")) or "upstream_error", "message": item_text(items[0])}
            failed = self._add_message(parent, ())
            failed.link = self._make_link(
                record, self.model or model, status="failed", error=failure, ended_at=ended_at
            )
            return failed
        answer = self.answers.get(message["id"])
        if answer is None or (parent is not answer and parent is not answer.results):  # some servers use an id again
            answer = self.answers[message["id"]] = self._add_message(parent, ())
        error: Record | None = None
        if record.get("isAbortedMidStream"):
            error = INTERRUPTED
        elif message.get("stop_reason") == "max_tokens":
            error = {"code": "max_output_tokens", "message": "the response is incomplete"}
        answer.link = {
            **(answer.link or self._make_link(record, model, reported={UPSTREAM_ID: message["id"]})),
            "ended_at": ended_at,
            "usage": read_messages_usage(message.get("usage") or {}),
            "status": "incomplete" if error else "completed",
            "error": error,
        }
        answer.items += items
        self.answers |= {item["call_id"]: answer for item in items if item["type"] == "function_call"}
        if self.model is None or not record.get("isSidechain"):  # the file of a subagent has no other lines
            self.model = model
            self.instructions = answer.link["parameters"].get("instructions", self.instructions)
        return answer

    def _make_link(self, record: Record, model: str, **fields: Json) -> dict[str, Json]:
        request = self.requests.get(str(record.get("requestRef")), {})
        shape = self.shapes.get(str(request.get("shapeHash")), {})
        parameters = {name: value for name, value in request.get("params", {}).items() if name != "betas"}  # a header
        return {
            "link_id": _make_link_id(record["message"]["id"], record.get("timestamp")),
            "model": model,
            "created_at": self.read_at or fields.get("ended_at", 0.0),
            "parameters": decode_messages_parameters({**shape, **parameters}),
            "usage": None,
            "error": None,
            **fields,
        }

    def _copy_preserved(self, after: _Message | None) -> _Message | None:
        """Copy the messages that a compaction kept behind its summary."""
        message, head = (self.message_by_uuid.get(str(self.preserved.get(name))) for name in ("tailUuid", "headUuid"))
        kept = []
        while message and head and message is not head.parent:
            kept.append(message)
            message = message.parent
        for message in reversed(kept):
            after = self._add_message(after, message.items)
        return after

    def _add_message(self, parent: _Message | None, items: Sequence[Item]) -> _Message:
        message = _Message(parent, [*items])
        self.messages.append(message)
        return message


def _decode_block(block: Json, model: str) -> Item:
    """Decode a block of an answer; thinking as the adapter of the Messages API stores and sends it."""
    (item,) = decode_message({"role": "assistant", "content": [block]})
    if item["type"] != "reasoning":
        return item
    issuer = make_issuer_tag(ANTHROPIC, model.removeprefix(f"{ANTHROPIC}/"), KNOWN_PROVIDERS[ANTHROPIC]["base_url"])
    return {**item, ENCRYPTED_FIELD: issuer + encode_thinking_block(block)}
