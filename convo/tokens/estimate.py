"""How many tokens an item takes, roughly, where nobody has counted them.

An endpoint reports what a whole request took; what one item of it took is not reported. The
estimate counts four bytes of text as a token and a few tokens for the item around it. Whoever
shows it shows that it is one.
"""

from convo.items import Item, searchable

BYTES_A_TOKEN = 4
AROUND_AN_ITEM = 4
"""Tokens that a chat template spends on a message's role and its bounds."""


def estimate(item: Item) -> int:
    """Tokens of `item`, within a third for English prose; images and sealed reasoning count as nothing."""
    size = len(searchable(item).encode("utf-8", "replace"))
    return AROUND_AN_ITEM + -(-size // BYTES_A_TOKEN)
