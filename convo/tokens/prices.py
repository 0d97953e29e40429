"""What a model costs, where somebody has written it down.

The prices stand in `models.toml`, dated and each with its source; what a person says in the settings
goes before them. A price that is not known is none: a cost that is guessed is worse than no cost.
"""

from collections.abc import Mapping
from functools import cache

from convo.config import Price
from convo.tokens.windows import DATED, figures


def price_of(model: str, own: Mapping[str, Price]) -> Price | None:
    """The price of a model by its full name, provider/model.

    own:  what a person said, by full name
    """
    known = prices()
    plain = DATED.sub("", model)
    return own.get(model) or known.get(model) or own.get(plain) or known.get(plain)


@cache
def prices() -> Mapping[str, Price]:
    """Every price that is known, by full name."""
    rows = figures()["prices"].items()
    return {name: Price(**({**row, "above": tuple(row["above"])} if "above" in row else row)) for name, row in rows}
