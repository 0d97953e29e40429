"""What a chat has used and what it cost: the last request, and the whole session, one beside the other."""

from collections.abc import Iterator, Mapping, Sequence

from convo.config import Price
from convo.history import Link
from convo.inspection.bill import Bill, bill
from convo.ui.labelled import counted
from convo.ui.receipt import spent, tokens

NOTHING = "nothing was asked yet"


def usage(links: Sequence[Link], own: Mapping[str, Price]) -> str:
    """The lines of /usage; `links` are the session's, oldest first."""
    return "\n".join(_lines(links, own)) or f"  {NOTHING}"


def _lines(links: Sequence[Link], own: Mapping[str, Price]) -> Iterator[str]:
    last, all_ = bill(links[-1:], own), bill(links, own)
    if last:
        yield f"  last     {_figures(last)}"
    if all_:
        again = [f"{all_.again:,} of the input billed again"] if all_.again else []
        yield f"  session  {' · '.join([counted(all_.requests, 'request'), _figures(all_), *again])}"


def _figures(one: Bill) -> str:
    return " · ".join([*tokens(one.used), *spent(one.cost_usd)])


def cost(links: Sequence[Link], own: Mapping[str, Price]) -> str:
    """The line of /cost."""
    all_, last = bill(links, own), bill(links[-1:], own)
    if all_ is None:
        return f"  {NOTHING}"
    if all_.cost_usd is None:
        unpriced = dict.fromkeys(link.model for link in links if (one := bill([link], own)) and one.cost_usd is None)
        return f"  no price is known of {', '.join(unpriced)}; [prices] in config.toml takes them"
    of_last = f"; the last one {''.join(spent(last.cost_usd))}" if last and last.cost_usd is not None else ""
    return f"  {''.join(spent(all_.cost_usd))} for {counted(all_.requests, 'request')}{of_last}"
