"""Tables of providers, models, prices, context windows and settings.

The functions named *_to_json return the same data for programs.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from convo.config.sections import Provider
from convo.config.settings import Settings, resolve_model
from convo.config.storage import Storage
from convo.config.trust import escape_unprintable
from convo.config.values import LAYER_NAMES, Layer, Setting, format_setting_key
from convo.errors import ConvoError, InvalidSettings, KeyRefused, ModelMissing
from convo.history.items import Json
from convo.terminal.terminal import (
    Column,
    DisplayOptions,
    KeyValue,
    escape_control_chars,
    fit_columns,
    key_value_lines,
    render_table,
    table_lines,
)
from convo.usage.models import (
    SETTINGS_SOURCE,
    find_model_window,
    find_price,
    load_model_data,
    load_model_windows,
    load_prices,
)


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """A provider and its status.

    key_status:    "set", "not set" or "none needed"
    variable:      the environment variable of the key
    setup_error:   why none of its models can be used
    list_error:    why the server did not list its models
    models:        their names; None when the server was not asked or did not list them
    key_location:  where the key is: a variable, a file or the keyring; None without a key
    """

    provider: Provider
    key_status: str
    variable: str | None
    setup_error: ConvoError | None = None
    list_error: ConvoError | None = None
    models: Sequence[str] | None = None
    key_location: str | None = None


@dataclass(frozen=True, slots=True)
class BuiltInModel:
    """The built-in model: its full name, its size in bytes, and its file if installed."""

    model: str
    size_bytes: int
    path: Path | None


def render_models(
    settings: Settings, built_in: BuiltInModel, providers: Sequence[ProviderStatus], display: DisplayOptions
) -> str:
    """Render the settings of models and the table of providers, then one line for each model that a server listed."""
    head = [
        *_default_model_rows(settings),
        *_model_data_rows(settings),
        ("built in", _format_built_in(built_in)),
        *_alias_rows(settings),
        *_settings_file_rows(settings),
    ]
    told = [
        escape_control_chars(f"{entry.provider.name}/{model}") for entry in providers for model in entry.models or ()
    ]
    table = table_lines(fit_columns(_provider_columns(providers), display), display)
    return display.translate_box_chars(
        "\n".join([*key_value_lines(head, display), "", *table, *([""] if told else []), *told])
    )


def format_megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f} MB"


def _default_model_rows(settings: Settings) -> Iterator[KeyValue]:
    """Yield the default model, or why there is none."""
    origin = settings.get_source("model")
    try:
        full = str(resolve_model(settings, None, "model").name)
    except InvalidSettings as wrong:
        yield "default", f"{settings.model} ({origin})"
        yield "", wrong.message
    else:
        written = f"{settings.model} = " if settings.model != full else ""
        yield "default", f"{written}{full} ({origin})"


def _model_data_rows(settings: Settings) -> Iterator[KeyValue]:
    """Yield the context window and the price of the default model, where known."""
    try:
        full = str(resolve_model(settings, None, "model").name)
    except InvalidSettings:
        return
    window, price = find_model_window(full, settings.windows), find_price(full, settings.prices)
    if window:
        yield "window", f"{window.context:,} tokens"
    if price:
        yield "price", str(price)


def _format_built_in(built_in: BuiltInModel) -> str:
    if built_in.path is None:
        return (
            f"{built_in.model}, not installed; convo models pull downloads it ({format_megabytes(built_in.size_bytes)})"
        )
    return f"{built_in.model}, {built_in.path} ({format_megabytes(built_in.size_bytes)})"


def _alias_rows(settings: Settings) -> Iterator[KeyValue]:
    """Yield the model of each alias, and the reason where one cannot be resolved."""
    for at, (alias, stands_for) in enumerate(sorted(settings.aliases.items())):
        yield "" if at else "aliases", f"{alias} = {stands_for}"
        try:
            resolve_model(settings, alias, f"[aliases] {alias}")
        except InvalidSettings as wrong:
            yield "", wrong.message


def _settings_file_rows(settings: Settings) -> Iterator[KeyValue]:
    """Yield the settings files with values, highest precedence first, or the file that would be read."""
    files = (Layer.PROFILE, Layer.PROJECT, Layer.USER)
    said = dict.fromkeys(one.source for one in settings.entries if one.source.layer in files)
    places = list(dict.fromkeys(origin.location for origin in sorted(said)))
    for at, place in enumerate(places or [f"{settings.paths.settings_file} (no settings yet)"]):
        yield "" if at else "settings", place


def _provider_columns(entries: Sequence[ProviderStatus]) -> list[Column]:
    providers = [entry.provider for entry in entries]
    return [
        Column("provider", [one.name for one in providers], style="id"),
        Column("api", [one.api for one in providers]),
        Column("endpoint", [one.endpoint for one in providers], drop_order=0),
        Column("set up", [_setup_cell(entry) for entry in entries]),
        Column("key", [_key_cell(entry) for entry in entries]),
        Column("base URL", [one.base_url or "-" for one in providers]),
    ]


def _setup_cell(entry: ProviderStatus) -> str:
    """Name the missing part in two words."""
    match entry.setup_error:
        case None:
            return "yes"
        case KeyRefused():
            return "no key"
        case ModelMissing():
            return "no weights" if entry.provider.api == "local" else "no package"
    return "no base URL"


def _key_cell(entry: ProviderStatus) -> str:
    if entry.key_location and entry.key_location != entry.variable:
        return f"{entry.key_location} {entry.key_status}"
    return f"{entry.variable} {entry.key_status}" if entry.variable else entry.key_status


UNKNOWN_VALUE = "-"


def list_known_models(settings: Settings) -> list[str]:
    """List the models with a known price or context window.

    The name is provider/model, or the model's own name where only the shipped data has its window.
    """
    priced = list(dict.fromkeys([*settings.prices, *settings.windows, *load_prices()]))
    plain = {name.partition("/")[2] for name in priced}
    return [*priced, *(name for name in load_model_windows() if name not in plain)]


def render_known_models(settings: Settings, display: DisplayOptions) -> str:
    """Render one line for each model; prices in USD per million tokens."""
    rows = list_known_models(settings)
    costs, rooms = (
        [find_price(name, settings.prices) for name in rows],
        [find_model_window(name, settings.windows) for name in rows],
    )
    columns = [
        Column("model", rows, style="id"),
        Column("window", [f"{room.context:,}" if room else UNKNOWN_VALUE for room in rooms], align_right=True),
        Column("input", [_price_cell(price and price.input) for price in costs], align_right=True),
        Column("cached", [_price_cell(price and price.cached) for price in costs], align_right=True),
        Column("output", [_price_cell(price and price.output) for price in costs], align_right=True),
        Column(
            "source",
            [
                (price.source or SETTINGS_SOURCE) if price else (room.source if room else "")
                for price, room in zip(costs, rooms, strict=True)
            ],
        ),
    ]
    read = f"windows in tokens, prices in USD per million tokens, as of {load_model_data()['as_of']}"
    return display.translate_box_chars("\n".join([*table_lines(fit_columns(columns, display), display), "", read]))


def known_models_to_json(settings: Settings) -> dict[str, Json]:
    """Return the data of `render_known_models`; null for unknown values."""
    return {
        "as_of": str(load_model_data()["as_of"]),
        "models": [_known_model_to_json(name, settings) for name in list_known_models(settings)],
    }


def _known_model_to_json(name: str, settings: Settings) -> dict[str, Json]:
    room, price = find_model_window(name, settings.windows), find_price(name, settings.prices)
    return {
        "model": name,
        "window": room and {"context": room.context, "output": room.output, "source": room.source},
        "price": price
        and {
            "input": price.input,
            "cached": price.cached,
            "output": price.output,
            "upto": price.max_input_tokens,
            "source": price.source or SETTINGS_SOURCE,
        },
    }


def _price_cell(figure: float | None) -> str:
    return UNKNOWN_VALUE if figure is None else f"{figure:g}"


IGNORED_PREFIX = "ignored, "
"""Prefix of the source of a value that an untrusted file sets."""


def render_settings(settings: Sequence[Setting], display: DisplayOptions, ignored: Sequence[Setting] = ()) -> str:
    """Render one line for each value, in TOML where that differs from the plain text; ignored values come last."""
    every = [*settings, *ignored]
    origins = [str(one.source) for one in settings] + [f"{IGNORED_PREFIX}{one.source}" for one in ignored]
    columns = [
        Column("setting", [escape_unprintable(format_setting_key(one.key)) for one in every], style="id"),
        Column("value", [escape_unprintable(format_setting_value(one.value)) for one in every]),
        Column("source", [escape_unprintable(origin) for origin in origins]),
    ]
    return render_table(columns, display)


def settings_to_json(settings: Sequence[Setting], ignored: Sequence[Setting] = ()) -> list[Json]:
    """Return the data of `render_settings`.

    Ignored values come first: a reader that indexes the list by key then keeps the effective value.
    """
    return [_setting_to_json(one, ignored=True) for one in ignored] + [
        _setting_to_json(one, ignored=False) for one in settings
    ]


def _setting_to_json(one: Setting, *, ignored: bool) -> Json:
    return {
        "key": format_setting_key(one.key),
        "value": None if one.value is None else _value_to_json(one.value),
        "layer": LAYER_NAMES[one.source.layer],
        "profile": one.source.profile or None,
        "place": one.source.location,
        "ignored": ignored,
    }


def format_setting_value(value: object) -> str:
    if value is None:
        return "(not shown)"
    if isinstance(value, bool):
        return str(value).lower()
    if type(value) is tuple:
        return f"[{', '.join(map(repr, value))}]"
    if isinstance(value, Storage) and value.default_ttl_s is not None:
        return f"{value}, for {value.default_ttl_s:g} s"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _value_to_json(value: object) -> Json:
    if type(value) is tuple:
        return list(value)
    return value if isinstance(value, bool | int | float | str) else format_setting_value(value)
