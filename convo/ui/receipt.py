"""One line a turn: what went in, what came out, what it cost, and who holds it now.

It goes to stderr behind each answer. It ends with the handle, because that is what goes on from
here, in this program or in another one.
"""

from collections.abc import Sequence
from dataclasses import replace

from convo.config import Price
from convo.history import Link, Session, Strategy
from convo.tokens import Usage

LEAST_USD = 0.0001


def receipt(link: Link, session: Session, price: Price | None = None, calls: Sequence[Link] = ()) -> str:
    """The line for a turn that ended, however it ended; `calls` are those of which `link` is the total."""
    used = Usage.read(link.usage)
    why = f" ({link.error.get('limit') or link.error['code']})" if link.status == "incomplete" and link.error else ""
    ended = [] if link.status == "completed" else [link.status + why]
    parts = [
        *ended,
        *([*tokens(used), *spent(_cost(calls or [link], price))] if used else []),
        *_time(link),
        _id(link),
        owner(session),
    ]
    return " · ".join(part for part in parts if part)


def total(links: Sequence[Link]) -> Link:
    """The links of one run as one: the last, with the tokens and the seconds of all."""
    used = [found for found in (Usage.read(link.usage) for link in links) if found]
    seconds = [link.seconds for link in links if link.seconds is not None]
    added = {
        "input_tokens": sum(one.input for one in used),
        "input_tokens_details": {
            "cached_tokens": sum(one.cached for one in used),
            "cache_write_tokens": sum(one.written for one in used),
        },
        "output_tokens": sum(one.output for one in used),
        "output_tokens_details": {"reasoning_tokens": sum(one.reasoning for one in used)},
        "total_tokens": sum(one.input + one.output for one in used),
    }
    return replace(links[-1], usage=added if used else None, seconds=sum(seconds) if seconds else None)


def owner(session: Session) -> str:
    """The owner and the handle to come back by: "chain resp_...", "session what-is-a-monad"."""
    if session.strategy is Strategy.SESSION or not session.handle:
        return f"{session.strategy} {session.name}"
    return f"{session.strategy} {session.handle}"


def _cost(links: Sequence[Link], price: Price | None) -> float | None:
    """USD, call by call: a price may depend on the length of one."""
    costs = [found.cost_usd(price) for link in links if (found := Usage.read(link.usage))]
    known = [cost for cost in costs if cost is not None]
    return sum(known) if known and len(known) == len(costs) else None


def tokens(used: Usage) -> list[str]:
    """What went in and what came out, cached and reasoning tokens told apart."""
    cached = f" ({used.cached:,} cached)" if used.cached else ""
    thought = f" ({used.reasoning:,} reasoning)" if used.reasoning else ""
    return [f"{used.input:,} in{cached}", f"{used.output:,} out{thought}"]


def spent(cost_usd: float | None) -> list[str]:
    """A cost that is known, and never as nothing when it is something."""
    if cost_usd is None:
        return []
    if 0 < cost_usd < LEAST_USD:
        return [f"<${LEAST_USD}"]
    return [f"${cost_usd:,.4f}" if cost_usd < 1 else f"${cost_usd:,.2f}"]


def _time(link: Link) -> list[str]:
    return [] if link.seconds is None else [f"{link.seconds:.1f} s"]


def _id(link: Link) -> str:
    return "" if link.id.startswith("try_") else link.id
