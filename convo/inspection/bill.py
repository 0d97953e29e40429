"""What requests used and cost: the last one, and all of them together, never one for the other.

Whoever owns the history, a model reads all of it every time. So what was the input of one request is
input of the next again, and is billed again, also on a chain, where only the new items travel.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from convo.config import Price
from convo.history import Link
from convo.tokens import Usage, price_of


class Bill(NamedTuple):
    """The figures of some requests.

    requests:  how many reported what they used
    again:     input tokens that an earlier request on the same line had been billed for
    cost_usd:  None where the price of one of them is not known
    """

    requests: int
    used: Usage
    again: int
    cost_usd: float | None


def cost_of(link: Link, own: Mapping[str, Price]) -> float | None:
    """What one request cost in USD; None where it did not say what it used, or no price is known."""
    used = Usage.read(link.usage)
    return None if used is None else used.cost_usd(price_of(link.model, own))


def bill(links: Sequence[Link], own: Mapping[str, Price]) -> Bill | None:
    """What `links` come to; None where none of them said what it used.

    own:  prices that a person gave, by full name
    """
    used = {link.id: found for link in links if (found := Usage.read(link.usage))}
    if not used:
        return None
    costs = [cost_of(link, own) for link in links if link.id in used]
    known = [cost for cost in costs if cost is not None]
    again = (
        min(used[link.id].input, used[link.parent].input) for link in links if link.id in used and link.parent in used
    )
    return Bill(len(used), sum(used.values(), Usage()), sum(again), sum(known) if len(known) == len(costs) else None)
