"""Transactions of chats, as the engine commits them turn by turn for each owner of the state."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from convo.history.items import Item, user_message
from convo.history.records import Link, Session, Strategy
from convo.history.tree import Key, Path, root_key
from convo.stores.base import AppendItems, Conversation, Store, Transaction

WORDS = ["the", "of", "state", "history", "model", "owner", "answer", "chain", "turn", "path", "store", "token"]
USAGE = {
    "input_tokens": 123456,
    "input_tokens_details": {"cached_tokens": 120000, "cache_write_tokens": 0},
    "output_tokens": 256,
    "output_tokens_details": {"reasoning_tokens": 128},
    "total_tokens": 123712,
}
PARAMETERS = {"instructions": "Answer in short sentences. " * 20, "tools": [{"type": "function", "name": "look"}] * 5}
NOW = 1_700_000_000.0


class Hit(NamedTuple):
    """One item that a search found, and one of its owners: the name of a session, or the id of another one."""

    owner: str
    key: Key
    item: Item


async def search_hits(store: Store, query: str, limit: int = 20) -> list[Hit]:
    """Return what a search found, as one hit for each owner of an item; the sessions of an item last used first."""
    order = {session.id: (place, session.name) for place, session in enumerate(await store.sessions())}
    hits: list[Hit] = []
    for item, places in (await store.search_items(query, limit=limit)).matches:
        owners = sorted((*order.get(owner, (len(order), owner)), key) for owner, key in places.items())
        hits += [Hit(owner, key, item) for _, owner, key in owners]
    return hits


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The transactions of one turn, in order, and its new items."""

    changes: Sequence[Transaction]
    new: Sequence[Item]


def session(tenant: str = "local", **fields: object) -> Session:
    """Build the record of a new session at the root of `tenant`. `fields` override its fields."""
    root = root_key(tenant)
    record = Session("ses_1", "one", Strategy.SESSION, "local/model", root, root, NOW, NOW)
    return replace(record, **fields)  # type: ignore[arg-type]


def link(link_id: str, input_head: Key, head: Key | None = None, **fields: object) -> Link:
    """Build the record of a completed model call. `fields` override its fields."""
    record = Link(link_id, input_head, head or input_head, 1, "local/model", Strategy.SESSION, "completed", NOW)
    return replace(record, **fields)  # type: ignore[arg-type]


def prose(rng: random.Random, characters: int) -> str:
    """Return text of this length with random words, so that it neither repeats nor compresses."""
    words: list[str] = []
    length = 0
    while length < characters:
        words.append(rng.choice(WORDS) if rng.random() < 0.7 else f"{rng.getrandbits(40):x}")
        length += len(words[-1]) + 1
    return " ".join(words)[:characters]


def answer(rng: random.Random, characters: int) -> Item:
    """Build an output message as a server returns it."""
    part = {"type": "output_text", "text": prose(rng, characters), "annotations": [], "logprobs": []}
    name = f"msg_{rng.getrandbits(192):048x}"
    return {"id": name, "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def json_bytes(items: Sequence[Item]) -> int:
    return sum(len(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()) for item in items)


def long_chat(strategy: Strategy, turns: int, *, seed: int = 1, characters: int = 1024) -> Iterator[StoredTurn]:
    """Yield the turns of a chat as its owner stores them through the embedded endpoint.

    The message and the answer of a turn have `characters` characters each, 1 KB by default.
    """
    rng = random.Random(seed)
    record = session(strategy=strategy, handle=HANDLES[strategy])
    conversation = Conversation("conv_" + "1" * 32, record.head, NOW)
    path, expected_head = Path(record.head), None
    for turn in range(turns):
        message, output = user_message(prose(rng, characters)), answer(rng, characters)
        input_path = path.append([message])
        path = input_path.append([output])
        now = NOW + turn + rng.random()
        input_record = replace(record, head=input_path.head, used_at=now)
        response = replace(
            link(
                f"resp_{rng.getrandbits(128):032x}", input_path.head, path.head, sent_count=len(input_path), usage=USAGE
            ),
            strategy=strategy,
            created_at=now,
            parent_id=record.link_id,
            session_id=record.id,
            duration_s=rng.random(),
            first_token_s=rng.random(),
            parameters=PARAMETERS,
            is_stored=strategy in (Strategy.CHAIN, Strategy.CONVERSATION),
        )
        record = replace(input_record, head=path.head, confirmed_head=path.head, link_id=response.id)
        changes = [
            Transaction(
                (AppendItems(input_path.first(len(input_path) - 1).head, (message,)),),
                session=input_record,
                expected_session_head=expected_head,
            )
        ]
        completion = Transaction((AppendItems(input_path.head, (output,)),), (response,), record, input_record.head)
        expected_head = path.head
        if strategy is Strategy.REPLAY:
            record = replace(record, file_head=path.head)
            changes += [completion, Transaction(session=record)]
        elif strategy is Strategy.SESSION:
            changes.append(completion)
        else:
            if strategy is Strategy.CHAIN:
                record = replace(record, handle=response.id)
                stored = replace(response, session_id=None, first_token_s=None, previous_response_id=response.parent_id)
                owner_change = Transaction(completion.appends, (stored,))
            else:
                ids = (*conversation.item_ids, f"msg_{rng.getrandbits(128):032x}", str(output["id"]))
                previous_head = None if not conversation.item_ids else conversation.head
                conversation = replace(conversation, head=path.head, item_ids=ids)
                stored = replace(response, session_id=None, first_token_s=None, conversation_id=conversation.id)
                owner_change = Transaction(
                    completion.appends, (stored,), conversation=conversation, expected_conversation_head=previous_head
                )
            session_link = replace(stored, session_id=record.id, first_token_s=response.first_token_s)
            changes += [owner_change, Transaction((), (session_link,), record, input_record.head)]
        yield StoredTurn(changes, (message, output))


HANDLES = {
    Strategy.REPLAY: "/home/somebody/conversation.json",
    Strategy.SESSION: None,
    Strategy.CONVERSATION: "conv_" + "1" * 32,
    Strategy.CHAIN: None,
}
