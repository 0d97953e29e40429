"""Names for sessions: the first words that were said, with a number when they are taken.

A name is typed again and again, so it is short and can be told from everything else that a handle
may be: an id, a file, an option.
"""

import re

from convo.errors import Usage
from convo.history import Strategy
from convo.items import Item, first_words
from convo.stores.contract import Store
from convo.strategies import kind_of

SCRATCH = "@"
"""How the names of sessions begin that only last as long as a command; no other name does, see `fit`."""

WORDS = 4
LONGEST = 40

TAKEN = (SCRATCH, "-", "ses_", "try_")
"""How handles and options begin that are no names; `kind_of` knows those of the endpoints and files."""

NAMED_LIKE = "words with dashes: monads-in-haskell"


def name_for(item: Item) -> str:
    """A name for people: "what-is-a-monad". No id and no file looks like it, whatever was said."""
    words = re.findall(r"[^\W_]+", first_words(item, 200).lower())
    return "-".join(words[:WORDS])[:LONGEST].rstrip("-") or "chat"


def fit(name: str) -> str:
    """`name`, when no other handle can be meant by it. raises: Usage"""
    if not name.strip():
        raise Usage("a name has at least one letter", hint=NAMED_LIKE)
    if name != name.strip() or not name.isprintable():
        raise Usage(f"{name!r} is no name: it begins or ends with a space, or cannot be printed", hint=NAMED_LIKE)
    if name.startswith(TAKEN) or kind_of(name) is not Strategy.SESSION:
        raise Usage(f"{name!r} is no name: it looks like an option, an id or a file", hint=NAMED_LIKE)
    return name


async def free_name(store: Store, wish: str) -> str:
    """`wish`, or `wish-2`, `wish-3`, ... when it is taken."""
    stem = re.sub(r"-\d+$", "", wish)
    taken = {session.name for session in await store.sessions()}
    numbered = (f"{stem}-{number}" for number in range(2, len(taken) + 3))
    return next(name for name in (wish, *numbered) if name not in taken)
