"""Single values of settings: rows, checks, durations and sources.

A `SettingRow` declares a setting. A check converts a raw value or raises `InvalidValue` with the end of a sentence; the
caller adds the file and the key. No message repeats the rejected value: it may be a key in the wrong place.
"""

import re
from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from pathlib import Path
from sys import float_info
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar
from urllib.parse import urlsplit

from convo.secrets import is_variable_name

ValueCheck: TypeAlias = Callable[[object], object]
_T = TypeVar("_T")

_PORT_COUNT = 65_536
_DAY_S = 86_400


class InvalidValue(ValueError):
    """An invalid value; the message continues "FILE: 'key'", as in "must be a string".

    hint:  advice, if it is more than to correct the value
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.hint = hint


_TOML_TYPES: dict[type, str] = {
    bool: "a boolean",
    int: "a whole number",
    float: "a number",
    str: "a string",
    list: "an array",
    dict: "a table",
}


def toml_type_name(value: object) -> str:
    """Return TOML's name for the type of `value`."""
    return _TOML_TYPES.get(type(value), "a date or time")


def check_text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidValue(f"must be a string, not {toml_type_name(value)}")
    if not value.strip():
        raise InvalidValue("must not be empty")
    return value.strip()


def check_texts(value: object) -> tuple[str, ...]:
    """Check an array of strings; it may be empty."""
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) and text for text in value):
        raise InvalidValue("must be an array of strings that are not empty")
    return tuple(value)


TENANT_PATTERN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")
"""A tenant's name, which is the name of a key."""


def check_tenant(value: object) -> str:
    name = check_text(value)
    if not TENANT_PATTERN.fullmatch(name):
        raise InvalidValue("must be a key name: up to 64 letters, digits and . _ @ -, a letter or digit first")
    return name


def check_tenants(value: object) -> tuple[str, ...]:
    """Check the names of keys."""
    if not isinstance(value, list | tuple):
        raise InvalidValue("must be an array of key names")
    return tuple(map(check_tenant, value))


def check_variable_name(value: object) -> str:
    """Check the name of an environment variable; the variable is not read."""
    name = check_text(value)
    if not is_variable_name(name):
        raise InvalidValue("must be the name of an environment variable; the value may be a key and is not shown")
    return name


def check_base_url(value: object) -> str:
    """Check a base URL and remove its final slash. It is stored with every handle, so it must contain no secret."""
    base = check_text(value).rstrip("/")
    try:
        parts = urlsplit(base)
        usable = parts.scheme in ("http", "https") and parts.hostname and (parts.port or 1)
    except ValueError:
        usable = False
    if not usable:
        raise InvalidValue("must be a URL: http:// or https://, a host, and an optional path")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise InvalidValue("must be a URL without user, password or query; set a key in a variable")
    return base


def check_port(value: object) -> int:
    if type(value) is not int:
        raise InvalidValue(f"must be a whole number, not {toml_type_name(value)}")
    if not 0 <= value < _PORT_COUNT:
        raise InvalidValue(
            f"must be a port from 0 (any free one) to {_PORT_COUNT - 1}", hint="choose a port, such as 8788"
        )
    return value


def check_boolean(value: object) -> bool:
    if not isinstance(value, bool):
        raise InvalidValue(f"must be true or false, not {toml_type_name(value)}")
    return value


def check_amount(value: object) -> float:
    """Check a finite amount, 0 or more."""
    if type(value) not in (int, float):
        raise InvalidValue(f"must be a number, not {toml_type_name(value)}")
    assert isinstance(value, int | float)
    if not 0 <= value <= float_info.max:  # also for a whole number that no float can hold
        raise InvalidValue("must be a finite number that is not negative")
    return float(value)


MAX_PRICE_USD = 1_000_000_000
"""The highest price of a million tokens; the cost of a request with a much higher one is no number in JSON."""


def check_price(value: object) -> float:
    """Check a price in USD for a million tokens."""
    price = check_amount(value)
    if price > MAX_PRICE_USD:
        raise InvalidValue(f"must be at most {MAX_PRICE_USD} USD per million tokens")
    return price


FRACTION_OR_TOKENS_HINT = "write 0.8 for 80 % of the context window, or 100000 for that number of tokens"


def check_fraction_or_tokens(value: object) -> float | int:
    """Check a fraction up to 1, or a whole number of tokens above 1; 0: never."""
    try:
        amount = check_amount(value)
    except InvalidValue as error:
        raise InvalidValue(str(error), hint=FRACTION_OR_TOKENS_HINT) from error
    if amount > 1 and type(value) is not int:
        raise InvalidValue("must be a fraction up to 1, or a whole number of tokens", hint=FRACTION_OR_TOKENS_HINT)
    return int(amount) if amount > 1 else amount


def describe_percent_as_tokens(threshold: float) -> str | None:
    """Return a warning if `compact_at` is a number of tokens that was probably meant as a percentage; else None."""
    if not 1 < threshold <= 100:
        return None
    return (
        f"compact_at = {threshold:g} is {threshold:g} tokens and not {threshold:g} %, "
        "so that a chat is compacted before nearly every request"
    )


def suggest_fraction_command(threshold: float, name: str = "compact_at") -> str:
    """Return the command that sets `compact_at` to the percentage that was meant; `name` may be that of a profile."""
    return f"convo config set {name} {threshold / 100:g}"


def check_patterns(value: object) -> tuple[str, ...]:
    """Check regular expressions; none may match the empty string."""
    if not isinstance(value, list | tuple) or not all(isinstance(pattern, str) for pattern in value):
        raise InvalidValue("must be an array of regular expressions")
    for pattern in value:
        try:
            matches_empty = re.compile(pattern).match("")
        except (re.error, OverflowError, RecursionError) as error:
            raise InvalidValue(f"contains {pattern!r}, which is not a regular expression: {error}") from error
        if matches_empty:
            raise InvalidValue(f"contains {pattern!r}, which matches the empty string")
    return tuple(value)


def check_folders(value: object) -> tuple[str, ...]:
    """Check folders with absolute paths, or paths that begin with ~."""
    if not isinstance(value, list | tuple) or not all(
        isinstance(folder, str) and folder[:1] in ("/", "~") for folder in value
    ):
        hint = """convo config set trusted '["/home/you/work"]'"""
        raise InvalidValue("must be an array of absolute folder paths", hint=hint)
    return tuple(value)


_ORIGIN = r"[a-z][a-z0-9+.-]*://(?:[a-z0-9._-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?"
"""An origin as browsers send it: scheme, host and a port that is not the scheme's own."""

_DEFAULT_PORTS = ((r"http://", ":80"), (r"https://", ":443"))


def check_origins(value: object) -> tuple[str, ...]:
    """Check origins of web pages, such as https://app.example, or "*" for any."""
    hint = """convo config set serve.cors_origins '["https://app.example"]'"""
    if not isinstance(value, list | tuple) or not all(isinstance(origin, str) for origin in value):
        raise InvalidValue("must be an array of origins", hint=hint)
    for origin in value:
        has_default_port = any(origin.startswith(scheme) and origin.endswith(port) for scheme, port in _DEFAULT_PORTS)
        if origin != "*" and (has_default_port or not re.fullmatch(_ORIGIN, origin)):
            raise InvalidValue(
                f"contains {origin!r}, which is not an origin as browsers send it: scheme and host in lower case, a "
                "port if it is not the default one, and no path",
                hint=hint,
            )
    return tuple(dict.fromkeys(value))


def check_networks(value: object) -> tuple[str, ...]:
    """Check networks, such as 203.0.113.0/24."""
    from ipaddress import ip_network

    hint = """convo config set serve.blocked_networks '["203.0.113.0/24"]'"""
    if not isinstance(value, list | tuple) or not all(isinstance(network, str) for network in value):
        raise InvalidValue("must be an array of networks", hint=hint)
    try:
        return tuple(str(ip_network(network)) for network in value)
    except ValueError as error:
        raise InvalidValue(f"must be an array of networks: {error}", hint=hint) from error


class IntegerCheck:
    """Check a whole number from `minimum` to `maximum`; None: no maximum."""

    def __init__(self, minimum: int, maximum: int | None = None) -> None:
        self.minimum, self.maximum = minimum, maximum

    def __call__(self, value: object) -> int:
        if type(value) is not int:
            raise InvalidValue(f"must be a whole number, not {toml_type_name(value)}")
        if value < self.minimum or (self.maximum is not None and value > self.maximum):
            bounds = f"at least {self.minimum}" if self.maximum is None else f"from {self.minimum} to {self.maximum}"
            raise InvalidValue(f"must be {bounds}")
        return value


class NumberCheck:
    """Check a number from `minimum` to `maximum`; whole numbers stay whole."""

    def __init__(self, minimum: float, maximum: float) -> None:
        self.minimum, self.maximum = minimum, maximum

    def __call__(self, value: object) -> int | float:
        if type(value) not in (int, float):
            raise InvalidValue(f"must be a number, not {toml_type_name(value)}")
        assert isinstance(value, int | float)
        if not self.minimum <= value <= self.maximum:
            raise InvalidValue(f"must be from {self.minimum:g} to {self.maximum:g}")
        return value


def check_seconds(value: object) -> float:
    """Check a duration above 0 s and up to one day."""
    if type(value) not in (int, float):
        raise InvalidValue(f"must be a number of seconds, not {toml_type_name(value)}")
    assert isinstance(value, int | float)
    if not 0 < value <= _DAY_S:
        raise InvalidValue(f"must be more than 0 and at most {_DAY_S} seconds")
    return float(value)


class ChoiceCheck:
    """Check one word of `choices`."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, value: object) -> str:
        word = check_text(value)
        if word not in self.choices:
            raise InvalidValue(f"must be one of {', '.join(self.choices)}")
        return word


class ChoicesCheck:
    """Check an array of words in `choices`; duplicates are dropped."""

    def __init__(self, *choices: str) -> None:
        self.choices = choices

    def __call__(self, value: object) -> tuple[str, ...]:
        if not isinstance(value, list | tuple) or not all(
            isinstance(word, str) and word in self.choices for word in value
        ):
            raise InvalidValue(f"must be an array with values among {', '.join(self.choices)}")
        return tuple(dict.fromkeys(value))


def find_closest_word(word: str, candidates: Collection[str], cutoff: float = 0.6) -> str | None:
    """Return the candidate that is most similar to `word`, or None.

    cutoff:  part of the characters of both that must be equal
    """
    from difflib import get_close_matches

    if len(word) > max(map(len, candidates), default=0) * (2 / cutoff - 1):
        return None  # without the comparison, which takes a second for a megabyte
    return next(iter(get_close_matches(word, candidates, n=1, cutoff=cutoff)), None)


_UNIT_S = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
"""Seconds by unit."""

_DURATION = r"(?a)(?P<number>[0-9]{1,9})(?P<unit>[smhdw])"

_MAX_DURATION_S = 100 * 366 * 86_400
"""100 years."""

_NEVER = "never"


def parse_duration(value: object) -> float:
    """Parse a duration such as "30d" to seconds. Raises InvalidValue."""
    match = re.fullmatch(_DURATION, check_text(value))
    if match is None:
        raise InvalidValue("must be a whole number followed by s, m, h, d or w, as in 30d")
    seconds = int(match["number"]) * _UNIT_S[match["unit"]]
    if not 0 < seconds <= _MAX_DURATION_S:
        raise InvalidValue("must be more than 0, and at most 100 years")
    return float(seconds)


def format_duration_setting(seconds: float) -> str:
    """Format a duration so that `parse_duration` accepts it, in the largest unit up to days that divides it: "90m"."""
    for unit in ("d", "h", "m"):
        if seconds % _UNIT_S[unit] == 0:
            return f"{seconds / _UNIT_S[unit]:.0f}{unit}"
    return f"{seconds:.0f}s"


def parse_durations(value: object) -> dict[str, float | None]:
    """Parse a table of durations by name to seconds; "never" is None. Raises InvalidValue."""
    if not isinstance(value, dict):
        raise InvalidValue(f"must be a table, not {toml_type_name(value)}")
    return {name: _parse_duration_or_never(name, duration) for name, duration in value.items()}


def _parse_duration_or_never(name: str, value: object) -> float | None:
    if value == _NEVER:
        return None
    try:
        return parse_duration(value)
    except InvalidValue as error:
        raise InvalidValue(f"has a value for {name!r} that {error}, or {_NEVER}") from None


SettingKey: TypeAlias = tuple[str, ...]
"""The path of a value in a settings file: ("providers", "groq", "base_url")."""

_BARE_KEY_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


class Layer(IntEnum):
    """The layers of settings; the smallest number takes precedence."""

    FLAG = 0
    ENVIRONMENT = 1
    RECORD = 2
    PROFILE = 3
    PROJECT = 4
    USER = 5
    DEFAULT = 6


LayerName: TypeAlias = Literal["flag", "environment", "record", "profile", "project", "user", "default"]

LAYER_NAMES: Mapping[Layer, LayerName] = {
    Layer.FLAG: "flag",
    Layer.ENVIRONMENT: "environment",
    Layer.RECORD: "record",
    Layer.PROFILE: "profile",
    Layer.PROJECT: "project",
    Layer.USER: "user",
    Layer.DEFAULT: "default",
}
"""The name of each layer in JSON."""


class SettingSource(NamedTuple):
    """The place where a value was set.

    name:     its name for users: "-m", "CONVO_MODEL", "session 'x'", ".convo.toml", "built in"
    folder:   the folder of a file, the base of the relative paths in it
    profile:  the profile in the file; "" outside of profiles
    """

    layer: Layer
    name: str
    folder: Path | None = None
    profile: str = ""

    @property
    def location(self) -> str:
        """The full name, with which errors begin."""
        return str(self.folder / self.name) if self.folder else self.name

    def in_profile(self, name: str) -> "SettingSource":
        """Return the source for a profile of the same file."""
        return SettingSource(Layer.PROFILE, self.name, self.folder, name)

    @property
    def is_explicit(self) -> bool:
        """Whether it was set for this run, by a flag or variable, so that it must not be ignored silently."""
        return self.layer <= Layer.ENVIRONMENT

    def __str__(self) -> str:
        if self.layer is Layer.DEFAULT:
            return self.name
        if self.profile:
            return f"from profile {self.profile} in {self.name}, {self.folder}"
        return f"from {self.name}, {self.folder}" if self.folder else f"from {self.name}"


BUILT_IN_SOURCE = SettingSource(Layer.DEFAULT, "built in")


class Setting(NamedTuple):
    """A value with its source. `str` is a line for users, without secrets."""

    key: SettingKey
    value: object
    source: SettingSource

    def __str__(self) -> str:
        return f"{format_setting_key(self.key)} = {self.value}  ({self.source})"


def format_setting_key(key: SettingKey) -> str:
    """Format a key as in TOML; names with other characters than letters, digits, _ and - are quoted."""
    return ".".join(name if name and _BARE_KEY_CHARS.issuperset(name) else f'"{name}"' for name in key)


class SettingRow(NamedTuple):
    """A setting. The schema of settings files, defaults, variables, options and the page of settings follow from it.

    help:            the meaning, in Markdown
    example:         the VALUE of `convo config set`; None if another example sets it
    default_text:    the default in words; `convo config` does not list it
    variable, flag:  the environment variable and the option that set it, too
    """

    default: object
    check: ValueCheck
    help: str
    example: str | None = None
    default_text: str = ""
    variable: str = ""
    flag: str = ""


class KeyedTable(NamedTuple):
    """A table with free names; `check_name` validates a name."""

    check_name: Callable[[str], object]
    schema: "SettingSchema"
    default: Mapping[str, Any] = MappingProxyType({})


class AtomicTable(NamedTuple):
    """A table that is one value: layers override it as a whole.

    example:  the shortest valid table, for hints
    """

    schema: "Mapping[str, SettingRow]"
    parse: Callable[[Mapping[str, Any]], object]
    example: str


SettingSchema: TypeAlias = SettingRow | Mapping[str, "SettingSchema"] | KeyedTable | AtomicTable


if TYPE_CHECKING:

    def setting(
        default: _T,
        check: ValueCheck,
        help: str,  # noqa: A002  # the name in every library of this kind
        example: str | None = None,
        default_text: str = "",
        *,
        variable: str = "",
        flag: str = "",
    ) -> _T:
        """Declare a setting in place of the default of a field: `port: int = setting(8788, check_port, ...)`."""

    def keyed_table(check_name: Callable[[str], object], schema: SettingSchema) -> Any:
        """Declare a table with free names in place of the default of a field, which is an empty mapping."""
else:  # a function would be called 70 times at each start
    setting, keyed_table = SettingRow, KeyedTable

REQUIRED: Any = None
"""The default of a field that is always given."""

SECTION_SCHEMAS: dict[type, dict[str, Any]] = {}
"""The schema of each section, by the names of its fields."""


def settings_section(section: type[_T]) -> type[_T]:
    """Register the settings that the fields of a NamedTuple declare, and give the fields their defaults.

    A row as the annotation, `Annotated[int, SettingRow(...)]`, needs 12 us a field when the module is imported.
    """
    fields: Any = section
    schema = SECTION_SCHEMAS[section] = {}
    for name, declared in fields._field_defaults.items():
        if isinstance(declared, SettingRow | KeyedTable):
            schema[name] = declared
            fields._field_defaults[name] = declared.default
        elif type(declared) in SECTION_SCHEMAS:
            schema[name] = SECTION_SCHEMAS[type(declared)]
    fields.__new__.__defaults__ = tuple(fields._field_defaults.values())
    return section


_VARIABLE_REFERENCE = r"(?a)\$(?:(?P<dollar>\$)|(?P<bare>[A-Za-z_]\w*)|\{(?P<braced>[A-Za-z_]\w*)\}|(?P<broken>\{))"


def expand_variables(text: str, environ: Mapping[str, str]) -> str:
    """Replace every variable in `text` once, from left to right.

    Raises InvalidValue if a variable is not set, or a brace has no name or no end.
    """

    def replace(match: re.Match[str]) -> str:
        if match["dollar"]:
            return "$"
        if match["broken"]:
            raise InvalidValue("has a '${' that is not followed by a variable name and '}'")
        name = match["bare"] or match["braced"]
        if name not in environ:
            raise InvalidValue(f"refers to the variable {name}, which is not set", hint=f"export {name}=...")
        return environ[name]

    return re.sub(_VARIABLE_REFERENCE, replace, text)
