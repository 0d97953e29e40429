"""Tables of providers, models, prices, context windows and settings.

The reports have the same data for programs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple, TypeAlias

from convo.config.sections import Price, Provider
from convo.config.settings import CHEAP_MODEL, DEFAULT_MODELS, Settings, resolve_model
from convo.config.storage import Storage
from convo.config.trust import escape_unprintable
from convo.config.values import LAYER_NAMES, Layer, LayerName, Setting, format_duration_setting, format_setting_key
from convo.errors import ConvoError, InvalidSettings, KeyRefused, ModelMissing
from convo.history.items import Json
from convo.report import OPTIONAL, Wire
from convo.terminal.statuses import DONE, UNAVAILABLE, Status, status_column
from convo.terminal.tables import MIN_LAST_COLUMN_WIDTH, Column, render_table
from convo.terminal.terminal import DisplayOptions, KeyValue, escape_control_chars, key_value_lines, truncate_text
from convo.usage.model_info import (
    SETTINGS_SOURCE,
    ModelWindow,
    Shutdown,
    find_known_model,
    find_listed_shutdown,
    find_model_window,
    find_price,
    find_shutdown,
    load_known_models,
)

if TYPE_CHECKING:
    from convo.models.server_search import LocalServer


KeyStatus: TypeAlias = Literal["set", "not set", "none needed"]


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """A provider and its status.

    variable:      the environment variable of the key
    setup_error:   why none of its models can be used
    list_error:    why the server did not list its models
    models:        the shutdown dates of its models by name; None when the server was not asked or did not list them
    key_location:  where the key is: a variable, a file or the keyring; None without a key
    """

    provider: Provider
    key_status: KeyStatus
    variable: str | None
    setup_error: ConvoError | None = None
    list_error: ConvoError | None = None
    models: Mapping[str, str | None] | None = None
    key_location: str | None = None


@dataclass(frozen=True, slots=True)
class BuiltInModel:
    """The built-in model: its full name, its size in bytes, and its file, or the command that installs it."""

    model: str
    size_bytes: int
    path: Path | None
    install_command: str = ""


def render_models(
    settings: Settings, built_in: BuiltInModel, providers: Sequence[ProviderStatus], display: DisplayOptions, now: float
) -> str:
    """Render the settings of models and the table of providers, then one line for each model that a server listed.

    A terminal shows the providers that are set up first. A model that ends soon has its date; `now` is seconds since
    1970.
    """
    if display.width is not None:
        providers = sorted(providers, key=lambda entry: entry.setup_error is not None)
    head = [
        *_default_model_rows(settings),
        *_model_data_rows(settings, display, now),
        *_built_in_rows(built_in, display),
        *_alias_rows(settings),
        *_settings_file_rows(settings),
    ]
    model_lines = [
        _format_listed_model(f"{entry.provider.name}/{model}", date, now)
        for entry in providers
        for model, date in (entry.models or {}).items()
    ]
    head_text = display.translate_box_chars("\n".join(key_value_lines(head, display, bold_labels={"default"})))
    table = render_table(_provider_columns(providers, display), display)
    return "\n".join([head_text, "", table, *([""] if model_lines else []), *model_lines])


def _format_listed_model(full_name: str, listed_date: str | None, now: float) -> str:
    shutdown = find_shutdown(full_name, listed_date)
    mark = f"  shutdown {shutdown}" if shutdown and shutdown.is_near(now) else ""
    return escape_control_chars(full_name + mark)


def render_local_servers(servers: "Sequence[LocalServer]", display: DisplayOptions) -> str:
    """Render one line for each model of the servers, or one for a server without models."""
    rows = [
        (server, model, "-" if window is None else f"{window:,}")
        for server in servers
        for model, window in server.windows.items() or [("no models", None)]
    ]
    columns = [
        Column("server", [server.kind.name for server, _, _ in rows]),
        Column(
            "base_url",
            [server.base_url for server, _, _ in rows],
            drop_order=0,
            links=[server.base_url for server, _, _ in rows],
        ),
        Column("context", [window for _, _, window in rows], align_right=True, drop_order=1),
        Column("model", [_format_model_name(model) for _, model, _ in rows], style="id"),
    ]
    return render_table(columns, display)


MAX_MODEL_NAME_CHARS = 200
"""Characters of a model's name that are shown; a path to a file of weights may be long."""


def _format_model_name(name: str) -> str:
    """Format a name in one line: a server may send any text."""
    # The second line of a name looked like advice of convo.
    return truncate_text(escape_control_chars(name[: MAX_MODEL_NAME_CHARS + 1]), MAX_MODEL_NAME_CHARS).translate(
        {ord("\n"): r"\n", ord("\t"): r"\t"}
    )


def is_typable_model_name(name: str) -> bool:
    """Return whether a name can be shown in one line and typed as it is shown."""
    return name.isprintable() and name == name.strip() and 0 < len(name) <= MAX_MODEL_NAME_CHARS


def format_megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.0f} MB"


def _default_model_rows(settings: Settings) -> Iterator[KeyValue]:
    """Yield the default model, or why there is none."""
    source = settings.get_source("model")
    try:
        full_name = str(resolve_model(settings, None, "model").name)
    except InvalidSettings as error:
        yield "default", f"{settings.model} ({source})"
        yield "", error.message
    else:
        alias = f"{settings.model} = " if settings.model != full_name else ""
        yield "default", f"{alias}{full_name} ({source})"


def _model_data_rows(settings: Settings, display: DisplayOptions, now: float) -> Iterator[KeyValue]:
    """Yield what is known of the default model: a shutdown that is near, its window, its price, a cheaper choice."""
    try:
        name = resolve_model(settings, None, "model").name
    except InvalidSettings:
        return
    full_name, shutdown = str(name), find_listed_shutdown(name, settings)
    window, price = find_model_window(full_name, settings.windows), find_price(full_name, settings.prices)
    if shutdown and shutdown.is_near(now):
        yield "shutdown", str(shutdown)
    if window:
        yield "window", f"{format_window(window)} tokens"
    if price:
        yield "price", str(price) if display.width is None else _format_price(price)
    cheap_price = find_price(CHEAP_MODEL, settings.prices)
    if full_name == DEFAULT_MODELS["openai"] and cheap_price:
        yield "cheaper", f"{CHEAP_MODEL}, ${cheap_price.input:g} input, ${cheap_price.output:g} output"


def _format_price(price: Price) -> str:
    figures = f"${price.input:g} input, ${price.cached:g} cached, ${price.output:g} output per million tokens"
    return f"{ABOUT}{figures}" if price.is_secondary else figures


def _format_built_in(built_in: BuiltInModel) -> str:
    if built_in.path is None:
        return f"{built_in.model}, not installed; to install it: {built_in.install_command}"
    return f"{built_in.model}, {built_in.path} ({format_megabytes(built_in.size_bytes)})"


MIN_PATH_TERMINAL_COLUMNS = 120
"""Columns of a terminal from which on the path of the built-in model is shown."""


def _built_in_rows(built_in: BuiltInModel, display: DisplayOptions) -> Iterator[KeyValue]:
    """Yield the built-in model; a wide terminal has its path in another line, a narrower one not."""
    if display.width is None or built_in.path is None:
        yield "built in", _format_built_in(built_in)
        return
    yield "built in", f"{built_in.model}, installed ({format_megabytes(built_in.size_bytes)})"
    if display.width >= MIN_PATH_TERMINAL_COLUMNS:
        yield "", str(built_in.path)


def _alias_rows(settings: Settings) -> Iterator[KeyValue]:
    """Yield the model of each alias, and the reason where one cannot be resolved."""
    for index, (alias, target) in enumerate(sorted(settings.aliases.items())):
        yield "" if index else "aliases", f"{alias} = {target}"
        try:
            resolve_model(settings, alias, f"[aliases] {alias}")
        except InvalidSettings as error:
            yield "", error.message


def _settings_file_rows(settings: Settings) -> Iterator[KeyValue]:
    """Yield the settings files with values, highest precedence first, or the file that would be read."""
    layers = (Layer.PROFILE, Layer.PROJECT, Layer.USER)
    sources = dict.fromkeys(entry.source for entry in settings.entries if entry.source.layer in layers)
    locations = list(dict.fromkeys(source.location for source in sorted(sources)))
    for index, location in enumerate(locations or [f"{settings.paths.settings_file} (no settings yet)"]):
        yield "" if index else "settings", location


BASE_URL_TEXT_BY_API = {"scripted": "for tests: scripted/echo, scripted/FILE.json"}
"""The cell of an API without a base URL, if it is not "-"."""


def _provider_columns(entries: Sequence[ProviderStatus], display: DisplayOptions) -> list[Column]:
    providers = [entry.provider for entry in entries]
    return [
        Column("provider", [provider.name for provider in providers], style="id"),
        Column("api", [provider.api for provider in providers], drop_order=1),
        Column("endpoint", [provider.endpoint for provider in providers], drop_order=0),
        status_column("set up", [_setup_status(entry) for entry in entries], display),
        Column("key", [_key_cell(entry, display) for entry in entries], drop_order=3),
        Column(
            "base URL",
            [provider.base_url or BASE_URL_TEXT_BY_API.get(provider.api, "-") for provider in providers],
            drop_order=2,
            min_width=MIN_URL_COLUMNS,
            links=[provider.base_url for provider in providers],
        ),
    ]


MIN_URL_COLUMNS = 24
"""Columns to which a base URL is cut; below that the column is dropped."""


def _setup_status(entry: ProviderStatus) -> Status:
    """Name the missing part in two words. A provider that is not set up is not a failure."""
    match entry.setup_error:
        case None:
            return Status("yes", DONE)
        case KeyRefused():
            return Status("no key", UNAVAILABLE)
        case ModelMissing():
            return Status("not installed", UNAVAILABLE)
    return Status("no base URL", UNAVAILABLE)


def _key_cell(entry: ProviderStatus, display: DisplayOptions) -> str:
    """Return the variable or file of the key and whether it is set; on a terminal the status says that."""
    if display.width is not None:
        return entry.key_location or entry.variable or UNKNOWN_VALUE
    if entry.key_location and entry.key_location != entry.variable:
        return f"{entry.key_location} {entry.key_status}"
    return f"{entry.variable} {entry.key_status}" if entry.variable else entry.key_status


UNKNOWN_VALUE = "-"

MIN_MODEL_COLUMNS = 16
MIN_SETTING_COLUMNS, MIN_VALUE_COLUMNS = 24, 12
"""Columns to which names and values are cut where they do not fit."""


def list_known_models(settings: Settings) -> list[str]:
    """List the models with a known price or context window, by provider/model."""
    known = [name for name, model in load_known_models().items() if model.window or model.price]
    return list(dict.fromkeys([*settings.prices, *settings.windows, *known]))


ABOUT, SHORT_ABOUT = "about ", "~"
"""Before figures whose source is not the model's vendor, and the same where there are few columns."""


def format_window(window: ModelWindow, about: str = ABOUT) -> str:
    return f"{about if window.is_secondary else ''}{window.context:,}"


def format_price_figure(price: Price | None, figure: str, about: str = ABOUT) -> str:
    """Format `input`, `cached` or `output` of a price."""
    return f"{about if price.is_secondary else ''}{getattr(price, figure):g}" if price else UNKNOWN_VALUE


def render_known_models(settings: Settings, display: DisplayOptions) -> str:
    """Render one line for each model; prices in USD per million tokens."""
    names = list_known_models(settings)
    prices, windows = (
        [find_price(name, settings.prices) for name in names],
        [find_model_window(name, settings.windows) for name in names],
    )
    sources = [
        (price.source or SETTINGS_SOURCE) if price else (window.source if window else "")
        for price, window in zip(prices, windows, strict=True)
    ]
    shutdowns = [find_shutdown(name) for name in names]
    columns = [
        Column("model", names, style="id", min_width=MIN_MODEL_COLUMNS),
        _number_column("window", [format_window(window) if window else UNKNOWN_VALUE for window in windows], 3),
        _number_column("input", [format_price_figure(price, "input") for price in prices], 5),
        _number_column("cached", [format_price_figure(price, "cached") for price in prices], 0),
        _number_column("output", [format_price_figure(price, "output") for price in prices], 4),
        Column("shutdown", [shutdown.date if shutdown else UNKNOWN_VALUE for shutdown in shutdowns], drop_order=2),
        Column(
            "source",
            sources,
            drop_order=1,
            links=sources,
            min_width=MIN_LAST_COLUMN_WIDTH,
        ),
    ]
    footer = f"windows in tokens, prices in USD per million tokens, as of {_newest_read()}"
    return "\n".join([render_table(columns, display), "", footer])


def _number_column(heading: str, cells: Sequence[str], drop_order: int) -> Column:
    return Column(heading, cells, align_right=True, drop_order=drop_order)


class PriceReport(NamedTuple):
    """The price of a model, in USD per million tokens.

    max_input_tokens:  number of input tokens up to which the price applies
    source:            a URL, or words
    """

    input: float
    cached: float
    output: float
    max_input_tokens: Annotated[int | None, Wire("upto")]
    source: str


class KnownModelReport(NamedTuple):
    """A model; null for unknown values.

    read:          date when the source was read, YYYY-MM-DD; null for a model of the settings
    is_secondary:  whether the source is not the model's vendor
    """

    model: str
    window: ModelWindow | None
    price: PriceReport | None
    shutdown: Annotated[Shutdown | None, OPTIONAL]
    read: Annotated[str | None, OPTIONAL]
    is_secondary: Annotated[bool, Wire("secondary"), OPTIONAL]


class KnownModelsReport(NamedTuple):
    """Known context windows and prices.

    as_of:  date of the figures
    """

    as_of: str
    models: Sequence[KnownModelReport]


def build_known_models_report(settings: Settings) -> KnownModelsReport:
    """Return the data of `render_known_models`."""
    return KnownModelsReport(
        _newest_read(), [_build_known_model_report(name, settings) for name in list_known_models(settings)]
    )


def _newest_read() -> str:
    """Return the date of the newest row of the shipped data."""
    return max(model.read for model in load_known_models().values())


def _build_known_model_report(name: str, settings: Settings) -> KnownModelReport:
    window, price = find_model_window(name, settings.windows), find_price(name, settings.prices)
    return KnownModelReport(
        name,
        window,
        price
        and PriceReport(
            price.input, price.cached, price.output, price.max_input_tokens, price.source or SETTINGS_SOURCE
        ),
        find_shutdown(name),
        find_known_model(name).read or None,
        bool((price and price.is_secondary) or (window and window.is_secondary)),
    )


IGNORED_PREFIX = "ignored, "
"""Prefix of the source of a value that an untrusted file sets."""


def render_settings(settings: Sequence[Setting], display: DisplayOptions, ignored: Sequence[Setting] = ()) -> str:
    """Render one line for each value, in TOML where that differs from the plain text; ignored values come last."""
    entries = [*settings, *ignored]
    sources = [str(setting.source) for setting in settings] + [
        f"{IGNORED_PREFIX}{setting.source}" for setting in ignored
    ]
    columns = [
        Column(
            "setting",
            [escape_unprintable(format_setting_key(setting.key)) for setting in entries],
            style="id",
            min_width=MIN_SETTING_COLUMNS,
        ),
        Column(
            "value",
            [escape_unprintable(format_setting_value(setting.value)) for setting in entries],
            min_width=MIN_VALUE_COLUMNS,
        ),
        Column(
            "source",
            [escape_unprintable(source) for source in sources],
            drop_order=0,
            min_width=MIN_LAST_COLUMN_WIDTH,
        ),
    ]
    return render_table(columns, display)


class KeyLocation(NamedTuple):
    """Where the key of a provider is.

    kind:        null if none is set or stored
    location:    variable, or path of the file; of a keyring: its file, if it keeps keys as plain text
    keyring:     module and class of the keyring
    plain_text:  whether the keyring keeps the key as plain text
    needs_key:   false if the settings name no key of the provider: requests are sent without one
    """

    provider: str
    kind: Literal["variable", "file", "keyring"] | None = None
    location: str | None = None
    keyring: str | None = None
    plain_text: bool = False
    needs_key: Annotated[bool, OPTIONAL] = True


def render_key_locations(locations: Sequence[KeyLocation], display: DisplayOptions) -> str:
    """Render one line for each provider."""
    columns = [
        Column("provider", [escape_unprintable(each.provider) for each in locations], style="id"),
        Column("key", [escape_unprintable(_format_key_location(each)) for each in locations]),
    ]
    return render_table(columns, display)


def _format_key_location(key: KeyLocation) -> str:
    if key.kind is None:
        return "not set" if key.needs_key else "needs no key"
    if key.kind == "keyring":
        name = f"the keyring {key.keyring}" if key.keyring else "the keyring, which this machine does not have"
        return f"{name}, as plain text in {key.location}" if key.plain_text else name
    return f"the {key.kind} {key.location}"


class SettingReport(NamedTuple):
    """The value of a setting.

    key:         setting name, with dots
    value:       paths, prices and the store as text, without secrets; null: an ignored value that is invalid or may be
                 a secret
    profile:     profile that sets the value
    place:       flag, variable or file that sets the value
    is_ignored:  whether the value has no effect because the user does not trust its file; such rows come first
    """

    key: str
    value: str | float | bool | Sequence[Json] | None
    layer: LayerName
    profile: str | None
    place: str
    is_ignored: Annotated[bool, Wire("ignored")]


def build_setting_reports(settings: Sequence[Setting], ignored: Sequence[Setting] = ()) -> list[SettingReport]:
    """Return the data of `render_settings`.

    Ignored values come first: a reader that indexes the list by key then keeps the effective value.
    """
    return [
        SettingReport(
            format_setting_key(setting.key),
            None if setting.value is None else _value_to_json(setting.value),
            LAYER_NAMES[setting.source.layer],
            setting.source.profile or None,
            setting.source.location,
            is_ignored,
        )
        for group, is_ignored in ((ignored, True), (settings, False))
        for setting in group
    ]


def format_setting_value(value: object) -> str:
    if value is None:
        return "(not shown)"
    if isinstance(value, bool):
        return str(value).lower()
    if type(value) is tuple:
        return f"[{', '.join(map(repr, value))}]"
    if isinstance(value, dict):
        import tomlkit

        table = tomlkit.inline_table()
        table.update(value)
        return table.as_string()
    if isinstance(value, Storage) and value.default_ttl_s is not None:
        return f"{value}, for {format_duration_setting(value.default_ttl_s)}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _value_to_json(value: object) -> Json:
    if type(value) is tuple:
        return list(value)
    return value if isinstance(value, bool | int | float | str) else format_setting_value(value)
