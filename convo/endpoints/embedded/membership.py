"""What happens to a conversation when items join or leave it; plain functions over its record.

The items are a path in the tree, and the conversation names each of them. An item that leaves
takes its body with it: what stood behind it grows again without it, under the same ids.
"""

from collections.abc import Sequence
from dataclasses import replace

from convo.endpoints.embedded.listing import own_id, prefix
from convo.history import Path
from convo.ids import NewId
from convo.items import Item, Json
from convo.stores.contract import Change, Conversation, Growth


def joined(conversation: Conversation, path: Path, items: Sequence[Item], new_id: NewId) -> Change:
    """The change after which `items` stand at the end of the conversation, whose items are `path`."""
    return Change(
        grow=(Growth(path.head, tuple(items)),) if items else (),
        conversation=replace(
            conversation,
            head=path.grow(items).head,
            ids=(*conversation.ids, *names_for(items, conversation.ids, new_id)),
        ),
        conversation_expect=conversation.head,
    )


def left(conversation: Conversation, path: Path, at: int) -> Change:
    """The change after which the item at `at`, counted from 0, is gone from the conversation and from the store.

    Where the item before it says exactly the same, its place is the conversation's still, and only
    the last of the two places goes.
    """
    before, rest = path.first(at), path.items[at + 1 :]
    grown = before.grow(rest)
    gone = next((key for key in path.keys[at:] if not grown.passes(key)), None)
    kept = replace(conversation, head=grown.head, ids=(*conversation.ids[:at], *conversation.ids[at + 1 :]))
    return Change(
        grow=(Growth(before.head, rest),) if rest else (),
        conversation=kept,
        conversation_expect=conversation.head,
        erase=(gone,) if gone else (),
    )


def names_for(items: Sequence[Item], taken: Sequence[str], new_id: NewId) -> tuple[str, ...]:
    """The ids that `items` have in a conversation: their own where they have one that is free."""
    used, names = set(taken), []
    for item in items:
        own = own_id(item)
        name = own if own and own not in used else new_id(prefix(item))
        used.add(name)
        names.append(name)
    return tuple(names)


def resource(conversation: Conversation) -> dict[str, Json]:
    """The conversation as the API shows it."""
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": dict(conversation.metadata),
    }
