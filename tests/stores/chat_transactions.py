"""Transactions of chats, as the engine commits them turn by turn for each owner of the state."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from convo.history.items import Item, user_message
from convo.history.records import Link, Session, Strategy
from convo.history.tree import Key, Path, root_key
from convo.stores.base import AppendItems, Conversation, Transaction

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


@dataclass(frozen=True, slots=True)
class StoredTurn:
    """The transactions of one turn, in order, and its new items."""

    changes: Sequence[Transaction]
    new: Sequence[Item]


def session(tenant: str = "local", **fields: object) -> Session:
    """Build the record of a new session at the root of `tenant`. `fields` override its fields."""
    top = root_key(tenant)
    fresh = Session("ses_1", "one", Strategy.SESSION, "local/model", top, top, NOW, NOW)
    return replace(fresh, **fields)  # type: ignore[arg-type]


def link(link_id: str, saw: Key, head: Key | None = None, **fields: object) -> Link:
    """Build the record of a completed model call. `fields` override its fields."""
    made = Link(link_id, saw, head or saw, 1, "local/model", Strategy.SESSION, "completed", NOW)
    return replace(made, **fields)  # type: ignore[arg-type]


def prose(dice: random.Random, characters: int) -> str:
    """Return text of this length with random words, so that it neither repeats nor compresses."""
    words: list[str] = []
    length = 0
    while length < characters:
        words.append(dice.choice(WORDS) if dice.random() < 0.7 else f"{dice.getrandbits(40):x}")
        length += len(words[-1]) + 1
    return " ".join(words)[:characters]


def answer(dice: random.Random, characters: int) -> Item:
    """Build an output message as a server returns it."""
    part = {"type": "output_text", "text": prose(dice, characters), "annotations": [], "logprobs": []}
    name = f"msg_{dice.getrandbits(192):048x}"
    return {"id": name, "type": "message", "status": "completed", "role": "assistant", "content": [part]}


def json_bytes(items: Sequence[Item]) -> int:
    return sum(len(json.dumps(item, ensure_ascii=False, separators=(",", ":")).encode()) for item in items)


def long_chat(strategy: Strategy, turns: int, *, seed: int = 1, characters: int = 1024) -> Iterator[StoredTurn]:
    """Yield the turns of a chat as its owner stores them through the embedded endpoint.

    The message and the answer of a turn have `characters` characters each, 1 KB by default.
    """
    dice = random.Random(seed)
    record = session(strategy=strategy, handle=HANDLES[strategy])
    conversation = Conversation("conv_" + "1" * 32, record.head, NOW)
    path, expect = Path(record.head), None
    for turn in range(turns):
        said, answered = user_message(prose(dice, characters)), answer(dice, characters)
        asked = path.append([said])
        path = asked.append([answered])
        now = NOW + turn + dice.random()
        ask = replace(record, head=asked.head, used_at=now)
        made = replace(
            link(f"resp_{dice.getrandbits(128):032x}", asked.head, path.head, sent_count=len(asked), usage=USAGE),
            strategy=strategy,
            created_at=now,
            parent_id=record.link_id,
            session_id=record.id,
            duration_s=dice.random(),
            first_token_s=dice.random(),
            parameters=PARAMETERS,
            is_stored=strategy in (Strategy.CHAIN, Strategy.CONVERSATION),
        )
        record = replace(ask, head=path.head, confirmed_head=path.head, link_id=made.id)
        changes = [
            Transaction(
                (AppendItems(asked.first(len(asked) - 1).head, (said,)),), session=ask, expected_session_head=expect
            )
        ]
        after = Transaction((AppendItems(asked.head, (answered,)),), (made,), record, ask.head)
        expect = path.head
        if strategy is Strategy.REPLAY:
            record = replace(record, file_head=path.head)
            changes += [after, Transaction(session=record)]
        elif strategy is Strategy.SESSION:
            changes.append(after)
        else:
            if strategy is Strategy.CHAIN:
                record = replace(record, handle=made.id)
                kept = replace(made, session_id=None, first_token_s=None, previous_response_id=made.parent_id)
                own = Transaction(after.appends, (kept,))
            else:
                ids = (*conversation.item_ids, f"msg_{dice.getrandbits(128):032x}", str(answered["id"]))
                before = None if not conversation.item_ids else conversation.head
                conversation = replace(conversation, head=path.head, item_ids=ids)
                kept = replace(made, session_id=None, first_token_s=None, conversation_id=conversation.id)
                own = Transaction(after.appends, (kept,), conversation=conversation, expected_conversation_head=before)
            claimed = replace(kept, session_id=record.id, first_token_s=made.first_token_s)
            changes += [own, Transaction((), (claimed,), record, ask.head)]
        yield StoredTurn(changes, (said, answered))


HANDLES = {
    Strategy.REPLAY: "/home/somebody/conversation.json",
    Strategy.SESSION: None,
    Strategy.CONVERSATION: "conv_" + "1" * 32,
    Strategy.CHAIN: None,
}
