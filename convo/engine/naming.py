"""Names for sessions: the first words that were said, with a number when they are taken."""

import re

from convo.items import Item, first_words
from convo.stores.contract import Store

WORDS = 4
LONGEST = 40


def name_for(item: Item) -> str:
    """A name for people: "what-is-a-monad"."""
    words = re.findall(r"\w+", first_words(item, 200).lower())
    return "-".join(words[:WORDS])[:LONGEST] or "chat"


async def free_name(store: Store, wish: str) -> str:
    """`wish`, or `wish-2`, `wish-3`, ... when it is taken."""
    stem = re.sub(r"-\d+$", "", wish)
    taken = {session.name for session in await store.sessions()}
    numbered = (f"{stem}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (wish, *numbered) if name not in taken)
