"""What is written down of models: the room they have, and what they cost, each with its source."""

from convo.config import Settings
from convo.items import Json
from convo.tokens import price_of, window_of
from convo.tokens.prices import prices
from convo.tokens.windows import YOURS, figures, windows
from convo.ui.medium import Medium
from convo.ui.table import Column, fitted, lines

UNKNOWN = "-"


def names(settings: Settings) -> list[str]:
    """Every model of which something is known: with its provider where a price is, else by its own name."""
    priced = list(dict.fromkeys([*settings.prices, *settings.windows, *prices()]))
    plain = {name.partition("/")[2] for name in priced}
    return [*priced, *(name for name in windows() if name not in plain)]


def table(settings: Settings, medium: Medium) -> str:
    """A line for each model; prices in USD per million tokens."""
    rows = names(settings)
    costs, rooms = (
        [price_of(name, settings.prices) for name in rows],
        [window_of(name, settings.windows) for name in rows],
    )
    columns = [
        Column("model", rows, style="id"),
        Column("window", [f"{room.context:,}" if room else UNKNOWN for room in rooms], right=True),
        Column("input", [_usd(price and price.input) for price in costs], right=True),
        Column("cached", [_usd(price and price.cached) for price in costs], right=True),
        Column("output", [_usd(price and price.output) for price in costs], right=True),
        Column(
            "source",
            [
                (price.source or YOURS) if price else (room.source if room else "")
                for price, room in zip(costs, rooms, strict=True)
            ],
        ),
    ]
    read = f"windows in tokens, prices in USD per million tokens, as read on {figures()['as_of']}"
    return medium.drawn("\n".join([*lines(fitted(columns, medium), medium), "", read]))


def as_rows(settings: Settings) -> dict[str, Json]:
    """The same for programs; null where nothing is known."""
    return {"as_of": str(figures()["as_of"]), "models": [_row(name, settings) for name in names(settings)]}


def _row(name: str, settings: Settings) -> dict[str, Json]:
    room, price = window_of(name, settings.windows), price_of(name, settings.prices)
    return {
        "model": name,
        "window": room and {"context": room.context, "output": room.output, "source": room.source},
        "price": price
        and {
            "input": price.input,
            "cached": price.cached,
            "output": price.output,
            "upto": price.upto,
            "source": price.source or YOURS,
        },
    }


def _usd(figure: float | None) -> str:
    return UNKNOWN if figure is None else f"{figure:g}"
