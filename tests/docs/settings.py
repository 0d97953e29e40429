"""The page of settings: key, values, default, meaning and example of every setting.

    python -m tests.docs.settings > .github/SETTINGS.md

All of it comes from the rows in `convo.config.schema`, except the purpose of a table. The TOML below each list of
commands is the text that these commands write.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from shlex import quote

import tomlkit

from convo.config.editor import parse_setting_key, parse_setting_value, set_toml_value
from convo.config.request_settings import check_parameter_value
from convo.config.schema import SETTINGS_SCHEMA, UNTRUSTED_SETTINGS
from convo.config.sections import KNOWN_PROVIDERS, PROVIDER_VARIABLES
from convo.config.values import (
    AtomicTable,
    ChoiceCheck,
    ChoicesCheck,
    IntegerCheck,
    KeyedTable,
    NumberCheck,
    SettingRow,
    SettingSchema,
    ValueCheck,
    check_base_url,
    check_boolean,
    check_folders,
    check_fraction_or_tokens,
    check_networks,
    check_origins,
    check_patterns,
    check_port,
    check_price,
    check_seconds,
    check_tenant,
    check_tenants,
    check_text,
    check_texts,
    check_variable_name,
    format_setting_key,
    parse_duration,
    parse_durations,
)
from tests.command_runner import ROOT
from tests.docs.prose import wrap_prose

PAGE = ROOT / ".github" / "SETTINGS.md"

HEAD = """\
# Settings

Every setting of convo, from its schema. `tests/test_settings_page.py` keeps this page up to date and
runs every command on it; `python -m tests.docs.settings > .github/SETTINGS.md` writes it.

`convo config` lists the present values with their sources. `convo config set KEY VALUE` writes one to
your settings file, with `--project` to the project's `.convo.toml`. `convo config unset KEY` removes
it, `convo config path` prints the path of the file. In a shell, a key or value with quotation marks,
spaces or brackets needs single quotes around it.

Of several sources the first one counts: flags, environment variables, the session's record, the
profile, the project's `.convo.toml`, your own settings file, the default.

The `.convo.toml` of a project is searched from the working folder up to the root of the repository
or your home folder. Until you trust it, only these of its settings apply: {allowed}; and `model`
only for a model of openai, anthropic, azure or deepseek. One line on stderr names the others.
`convo config trust` shows the file and trusts its present content, so a changed file has to be
trusted again. `trusted = ["~/work"]` in your own settings trusts every file below a folder. A file of
another user, or one that everyone may write, is never read.
"""


NAMES = {
    "providers": ("NAME", "mine"),
    "aliases": ("ALIAS", "fast"),
    "prices": ('"PROVIDER/MODEL"', '"mine/some-model"'),
    "windows": ('"PROVIDER/MODEL"', '"mine/some-model"'),
    "serve.limits.keys": ("KEY", "alice"),
    "mcp": ("NAME", "tickets"),
    "profiles": ("PROFILE", "work"),
    "request.param": ("FIELD", "service_tier"),
    "models": ('"PROVIDER/MODEL"', '"openai/gpt-6.1-sol"'),
    'models."PROVIDER/MODEL".param': ("FIELD", '"reasoning.summary"'),
}
"""The placeholder of a name that you choose, and the name in the examples."""

EXAMPLE_KEYS = {"providers.NAME.prefix_mismatch_behavior": "providers.anthropic.prefix_mismatch_behavior"}
"""Settings that the provider of the example does not have."""

VALUES: dict[ValueCheck, str] = {
    check_text: "text",
    check_texts: "array of texts",
    check_tenant: "text: up to 64 letters, digits and `. _ @ -`, a letter or digit first",
    check_variable_name: "text: the name of an environment variable",
    check_base_url: "text: a URL with `http://` or `https://`, without user, password and query",
    check_tenants: "array of key names",
    check_boolean: "`true` or `false`",
    check_price: "number, 0 to 1000000000",
    check_fraction_or_tokens: "number from 0 to 1, or a whole number above 1",
    check_networks: "array of networks, such as `203.0.113.0/24`",
    check_origins: "array of origins, such as `https://app.example`, or `*`",
    check_patterns: "array of regular expressions; none may match the empty text",
    check_parameter_value: "any value of JSON except an object",
    check_folders: "array of paths that begin with `/` or `~`",
    check_port: "whole number, 0 to 65535",
    check_seconds: "number above 0, at most 86400",
    parse_duration: 'text: a whole number with `s`, `m`, `h`, `d` or `w`, such as `"30d"`; at most 100 years',
    parse_durations: 'table with such a text, or `"never"`, for each tenant',
}

TITLES = {
    "": ("general", "Top-level settings; in the file they stand above the first table."),
    "providers": (
        "[providers.NAME]",
        "A model server. The names of its models begin with the name of the provider. The fields of a built-in\n"
        "provider can be changed one by one.",
    ),
    "aliases": ("[aliases]", "Other names of models."),
    "request": (
        "[request]",
        "Fields of the requests for all models. An option of `convo chat` (`--temperature`, `--param`, ...) precedes\n"
        "the profile, the profile the settings of the model, and those precede the ones here.",
    ),
    "models": (
        '[models."PROVIDER/MODEL"]',
        "The same fields for the requests for one model. An alias is resolved first. The name needs quotation marks.",
    ),
    "state_storage": (
        "[state_storage]",
        "The store of conversations. The table is one value: a source that has it sets all of it.",
    ),
    "serve": ("[serve]", "The server `convo serve`: its address, its keys and its limits."),
    "serve.limits": ("[serve.limits]", "Limits of requests to one process; a request past a limit gets status 429."),
    "serve.files": (
        "[serve.files]",
        "Files that clients of `convo serve` upload with `POST /v1/files`, or name by URL.",
    ),
    "serve.limits.keys": ("[serve.limits.keys.KEY]", "Other limits for single keys, by the name of the key."),
    "mcp": (
        "[mcp.NAME]",
        "An MCP server. Its tools are used by `convo chat --mcp NAME`, and by requests to `convo serve`:\n"
        '`{"type": "mcp", "server_label": "NAME"}`.',
    ),
    "limits": (
        "[limits]",
        "Limits of each response of a model server, in `convo chat` and `convo serve`. Past a limit the output so far\n"
        "is kept, and the limit is reported.",
    ),
    "prices": (
        '[prices."PROVIDER/MODEL"]',
        "The price of a model; it takes precedence over the known price (`convo models known`). The name needs\n"
        "quotation marks.",
    ),
    "windows": (
        '[windows."PROVIDER/MODEL"]',
        "The context window of a model; it takes precedence over the known window (`convo models known`). The name\n"
        "needs quotation marks.",
    ),
}
"""Title and purpose of each table, in the order of the page."""

PROFILES = """\
## [profiles.PROFILE]

Settings that apply together, with `--profile PROFILE`, `CONVO_PROFILE` or the setting `profile`. A profile can have
every setting of this page except {excluded}. `convo --profile PROFILE config set` writes into it:

{examples}"""


def page() -> str:
    """Return the page. Raises KeyError for a setting in a table without a title."""
    rows = dict(walk_schema())
    if untitled := [key for key in rows if "." in key and not table_of(key)]:
        raise KeyError(f"no title for the tables of {untitled}")
    allowed = ", ".join(f"`{name}`" for name in UNTRUSTED_SETTINGS)
    titles = [*(title for title, _ in TITLES.values()), "[profiles.PROFILE]"]
    parts = [HEAD.format(allowed=allowed), "".join(f"* [`{title}`](#{anchor(title)})\n" for title in titles)]
    for table, (title, text) in TITLES.items():
        section = {key: row for key, row in rows.items() if table_of(key) == table}
        parts.append(f"## {title}\n\n{text}\n\n{settings_table(section)}")
        parts.append(example_blocks(examples_of(section)))
        if table == "providers":
            parts.append(providers_table())
    parts.append(profiles_section())
    return wrap_prose("\n".join(parts))


def anchor(title: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return "".join(char for char in title.lower().replace(" ", "-") if char.isalnum() or char in "-_")


def walk_schema() -> Iterator[tuple[str, SettingRow | AtomicTable]]:
    """Yield the key and the row of every setting, and every table that is one value; profiles are left out."""
    for name, schema in SETTINGS_SCHEMA.items():
        if name != "profiles":
            yield from _walk(name, schema)


def _walk(key: str, schema: SettingSchema) -> Iterator[tuple[str, SettingRow | AtomicTable]]:
    if isinstance(schema, KeyedTable):
        yield from _walk(f"{key}.{NAMES[key][0]}", schema.schema)
    elif isinstance(schema, Mapping):
        for name, inner in schema.items():
            yield from _walk(f"{key}.{name}", inner)
    else:
        yield key, schema
        if isinstance(schema, AtomicTable):
            yield from _walk(key, schema.schema)


def table_of(key: str) -> str:
    """The key of the longest table of the page that contains a setting; "" for a top-level setting."""
    return max((table for table in TITLES if not table or f"{key}.".startswith(f"{table}.")), key=len)


def settings_table(section: Mapping[str, SettingRow | AtomicTable]) -> str:
    lines = ["| setting | value | default | meaning |", "|---|---|---|---|"]
    for key, row in section.items():
        if isinstance(row, SettingRow):
            table, _, name = key.partition('."PROVIDER/MODEL".')
            default, meaning = describe_default(key, row), row.help
            if table == "models":
                default, meaning = f"`request.{name}`", "As in `[request]`, for this model."
            names = [f"`{name}`" for name in (row.variable, row.flag) if name]
            ways = f" Also: {', '.join(names)}." if names else ""
            cells = (f"`{key}`", describe_values(row.check), default, f"{meaning}{ways}")
            lines.append(f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def describe_values(check: ValueCheck) -> str:
    """The type and the allowed values of a setting."""
    if isinstance(check, IntegerCheck):
        return (
            f"whole number, {check.minimum} or more"
            if check.maximum is None
            else (f"whole number, {check.minimum} to {check.maximum}")
        )
    if isinstance(check, NumberCheck):
        return f"number, {check.minimum:g} to {check.maximum:g}"
    if isinstance(check, ChoiceCheck):
        return "text: " + ", ".join(f"`{word}`" for word in check.choices)
    if isinstance(check, ChoicesCheck):
        return "array of " + ", ".join(f"`{word}`" for word in check.choices)
    return VALUES[check]


def describe_default(key: str, row: SettingRow) -> str:
    if row.default_text or row.default is None:
        return row.default_text or "none"
    text = f"{row.default:g}" if isinstance(row.default, float) else tomlkit.item(row.default).as_string()
    return f"`{text}`{in_larger_unit(key, row.default)}"


def in_larger_unit(key: str, value: object) -> str:
    """Repeat bytes and seconds in a larger unit: " (32 MB)", " (7 days)"; empty if the number is small."""
    for suffix, units in (
        ("_bytes", {"GB": 1 << 30, "MB": 1 << 20, "KB": 1 << 10}),
        ("_s", {"days": 86400, "hours": 3600}),
    ):
        for unit, size in units.items():
            if key.endswith(suffix) and isinstance(value, int | float) and value >= size:
                return f" ({value / size:g} {unit})"
    return ""


def providers_table() -> str:
    lines = [
        "Built-in providers:\n",
        "| provider | api | base_url | key_env | other variables |",
        "|---|---|---|---|---|",
    ]
    for name, fields in KNOWN_PROVIDERS.items():
        if name != "scripted":
            variables = [f"`{fields['token_env']}`"] if "token_env" in fields else []
            variables += [f"`{variable}` ({key[2]})" for variable, key in PROVIDER_VARIABLES.items() if key[1] == name]
            cells = [f"`{fields[field]}`" if field in fields else "" for field in ("api", "base_url", "key_env")]
            lines.append(f"| {' | '.join([f'`{name}`', *cells, ', '.join(variables)])} |")
    return "\n".join(lines) + "\n"


def example_key(key: str) -> str:
    """`key` with the names of the examples in place of the placeholders."""
    if key in EXAMPLE_KEYS:
        return EXAMPLE_KEYS[key]
    for table, (placeholder, name) in sorted(NAMES.items(), key=lambda row: -len(row[0])):
        if key.startswith(f"{table}.{placeholder}"):
            key = f"{table}.{name}{key.removeprefix(f'{table}.{placeholder}')}"
    return key


def examples_of(section: Mapping[str, SettingRow | AtomicTable]) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of the examples; a table that is one value consists of those of its rows."""
    for key, row in section.items():
        if isinstance(row, AtomicTable):
            fields = [
                inline_field(example_key(key), name, one.example) for name, one in row.schema.items() if one.example
            ]
            yield example_key(key), f"{{ {', '.join(fields)} }}"
        elif row.example and not isinstance(section.get(key.rpartition(".")[0]), AtomicTable):
            yield example_key(key), row.example


def inline_field(table: str, name: str, example: str) -> str:
    value = parse_setting_value(example, (*parse_setting_key(table), name), "")
    return f"{name} = {tomlkit.item(value).as_string() if isinstance(value, str) else example}"


def example_blocks(examples: Iterable[tuple[str, str]]) -> str:
    """The commands that set these values, by key, and the TOML that the commands write."""
    commands, text = [], ""
    for key, value in examples:
        name = parse_setting_key(key)
        table, profile, *rest = name if name[0] == "profiles" else ("", "", *name)
        option = f"--profile {profile} " if table else ""
        commands.append(f"convo {option}config set {quote(format_setting_key(tuple(rest)))} {quote(value)}")
        text = set_toml_value(text, name, parse_setting_value(value, name, "config set"), "config.toml")
    return "```sh\n" + "\n".join(commands) + f"\n```\n\n```toml\n{text}```\n"


def profiles_section() -> str:
    schema = SETTINGS_SCHEMA["profiles"]
    assert isinstance(schema, KeyedTable)
    assert isinstance(schema.schema, Mapping)
    *others, last = [f"`{name}`" for name in SETTINGS_SCHEMA if name not in schema.schema]
    examples = [("profiles.work.model", "mine/some-model"), ("profiles.work.editing", "vi"), ("profile", "work")]
    return PROFILES.format(excluded=f"{', '.join(others)} and {last}", examples=example_blocks(examples))


if __name__ == "__main__":
    sys.stdout.write(page())
