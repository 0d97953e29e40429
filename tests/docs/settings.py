"""The page of settings: key, values, default, meaning and example of every setting.

    python -m tests.docs.settings > .github/SETTINGS.md

Keys, values, defaults, variables and options come from the schema in `convo.config.schema`; `NOTES` adds the meaning
and the example. A setting without a note, and a note without a setting, are errors. The TOML below each list of
commands is the text that these commands write.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping
from shlex import quote
from typing import NamedTuple

import tomlkit

from convo.config.editor import parse_setting_key, parse_setting_value, set_toml_value
from convo.config.loader import FLAG_SETTINGS, VARIABLE_SETTINGS
from convo.config.request_settings import REASONING_EFFORTS, check_parameter_value
from convo.config.schema import SETTINGS_SCHEMA, AtomicTable, KeyedTable, SettingSchema
from convo.config.sections import KNOWN_PROVIDERS
from convo.config.settings import get_default_settings
from convo.config.trust import UNTRUSTED_RULES
from convo.config.values import (
    ChoiceCheck,
    ChoicesCheck,
    IntegerCheck,
    NumberCheck,
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

PAGE = ROOT / ".github" / "SETTINGS.md"

HEAD = """\
# Settings

Every setting of convo, from its schema. `tests/test_settings_page.py` keeps this page up to date and runs every command
on it; `python -m tests.docs.settings > .github/SETTINGS.md` writes it.

`convo config` lists the present values with their sources. `convo config set KEY VALUE` writes one to your settings
file, with `--project` to the project's `.convo.toml`; `convo config unset KEY` removes it, `convo config path` prints
the path of the file. In a shell, a key or value with quotation marks, spaces or brackets needs single quotes around it.

Of several sources the first one counts: flags, environment variables, the session's record, the profile, the project's
`.convo.toml`, your own settings file, the default. A project's file that is not trusted may set only these settings:
{allowed}; `model` only if its provider is openai, anthropic, azure or deepseek.
"""


class Note(NamedTuple):
    """The part of a row that the schema does not have.

    example:  the VALUE of `convo config set`; None if another example sets it
    default:  the default, if it is not one fixed value
    """

    meaning: str
    example: str | None = None
    default: str = ""


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

NO_REQUEST_FIELD = "not sent: the model's own"

NOTES = {
    "model": Note(
        "The model of every command without `-m`: provider/model, an alias, or the name of a model alone.",
        "openai/gpt-6.1-sol",
        "the model of the first provider with a key, else the built-in model",
    ),
    "tenant": Note("The tenant whose data the commands use: the name of a key of `convo serve`.", "alice"),
    "compact_at": Note(
        "Compact a chat at this fraction of the model's context window, or above this number of tokens. 0: never.",
        "0.6",
    ),
    "editing": Note(
        "The keys of the prompt. `plain`, for screen readers, draws nothing twice and formats no Markdown.",
        "vi",
    ),
    "answers": Note("The layout of responses in a terminal; `plain` is the unchanged text.", "plain"),
    "cache_diagnostics": Note(
        "Ask OpenAI (GPT-5.6 and later), Azure and Anthropic in chats why their cache missed, which is free, and show"
        " the reason and the number of removed reasoning items after the answer.",
        "false",
    ),
    "redact": Note("What `--redact` of `export` and `convert` redacts in addition.", '["PROJ-[0-9]+"]'),
    "trusted": Note(
        "Folders whose `.convo.toml` files are trusted. Only in your own settings file.", '["~/work"]', "none"
    ),
    "profile": Note("The profile to use without `--profile`."),
    "providers.NAME.api": Note(
        "The API of the server; `chat` is chat completions.", "chat", "none; required if the provider is not built in"
    ),
    "providers.NAME.base_url": Note(
        "The URL of the API, up to and without `/responses`, `/chat/completions` or `/messages`.",
        "http://127.0.0.1:8000/v1",
        "see built-in providers",
    ),
    "providers.NAME.key_env": Note(
        "The environment variable with the key; never the key itself. A provider without it needs no key.",
        "MINE_API_KEY",
    ),
    "providers.NAME.token_env": Note(
        "Azure: the environment variable with an Entra ID token, which takes precedence over the key.", "MINE_AD_TOKEN"
    ),
    "providers.NAME.owner": Note(
        "The owner of stored responses and conversations: the provider, or convo's own store in front of it.",
        "convo",
        "`provider` with the API `responses` or `azure`; others store nothing",
    ),
    "providers.NAME.organisation": Note("OpenAI: the organization of the requests.", "org-123"),
    "providers.NAME.project": Note("OpenAI: the project of the requests.", "proj_123"),
    "providers.NAME.api_version": Note("Azure: the version of the API.", "2025-04-01-preview"),
    "providers.NAME.deployment": Note(
        "Azure: the deployment that receives every request, if it is not named as the model is.", "my-gpt-6"
    ),
    "providers.NAME.key_file": Note(
        "A file with the key, used if the variable is not set. `convo config key set NAME --file` writes both.",
        "mine.key",
    ),
    "providers.NAME.keyring": Note(
        "The keyring has the key, used if there is no other. `convo config key set NAME` writes both.",
        "true",
        "`false`",
    ),
    "providers.NAME.extra_fields": Note(
        "Request fields that the server supports although its API does not require them. The others of these fields"
        " are left out of a request and reported as ignored, or refused.",
        '["top_k", "seed"]',
        "none",
    ),
    "providers.NAME.hosted_tools": Note(
        "Tools that only OpenAI's servers run (`web_search`, `file_search`, `mcp`, ...), for a provider whose API is"
        " `chat` or `anthropic`: `refuse` the request, or `omit` them and report them as ignored. `auto` omits a web"
        " search, which Codex offers in every request, and refuses the others, a request without other tools, and a"
        " `tool_choice` that names one.",
        "omit",
        "`auto`",
    ),
    "providers.NAME.resend_fields": Note(
        "For a provider whose API is `chat`: what its server sent for its own use and needs in the next request goes"
        " back to it, and to no other: `reasoning_content` of a turn with calls (DeepSeek, Kimi), `reasoning_details`"
        " (OpenRouter), the signatures of Gemini in `extra_content`.",
        "false",
        "`true`",
    ),
    "providers.NAME.custom_tools": Note(
        "Custom tools, for a provider whose API is `chat`: `native` sends them as such, with their grammar, `function`"
        " as functions with one string. `auto` is `native` for GPT-5 and later models of OpenAI and Azure, else"
        " `function`.",
        "native",
        "`auto`",
    ),
    "providers.NAME.prefix_mismatch_behavior": Note(
        "Claude's thinking is bound to the request that produced it. If instructions, tools or earlier messages have"
        " changed, newer models drop it (`drop_block`; each removal is in `input_transformations` of the response) or"
        " refuse the request (`error`). `provider_default` sends neither: accounts created since 2026-08-31 refuse,"
        " older ones do not check. Only for a provider whose API is `anthropic`.",
        "error",
        "`drop_block`",
    ),
    "aliases.ALIAS": Note(
        "The model that this name stands for, in commands and in requests to `convo serve`. The name may be a full "
        'one, such as `"openai/gpt-6.1-sol"`.',
        "local",
    ),
    "state_storage": Note(
        "", '{ type = "sqlite", connection_string = "convo.db", ttl = "30d", ttls = { alice = "1w", audit = "never" } }'
    ),
    "state_storage.type": Note(
        "The kind of store. `none` keeps nothing, `memory` until the command ends.",
        default="required; without the table `sqlite`",
    ),
    "state_storage.connection_string": Note(
        "SQLite: the path of the database, relative to the settings file. PostgreSQL: a URL with `postgresql://`."
        " `$NAME` is replaced by a variable.",
        None,
        "`convo.db` in the data folder",
    ),
    "state_storage.ttl": Note("`convo serve` deletes data that was not used for this time.", default="never"),
    "state_storage.ttls": Note("The same for single tenants.", default="none"),
    "serve.host": Note("The address to listen on. Addresses of other machines need `keys_file`.", "0.0.0.0"),
    "serve.port": Note("The port to listen on; 0 for any free port.", "8080"),
    "serve.keys_file": Note(
        "The file with names and hashes of the keys, relative to the settings file; `convo serve --new-key` adds one.",
        "keys",
        "none: only this machine can connect, without a key",
    ),
    "serve.seal_key_env": Note(
        "The environment variable with the key that encrypts compaction items.",
        "MY_SEAL_KEY",
    ),
    "serve.cors_origins": Note(
        "The origins of web pages whose scripts may call the API below `/v1/`, exactly as browsers send them; the"
        " inspector page stays closed to them. `*` allows every page and requires `keys_file`.",
        '["https://app.example"]',
        "none",
    ),
    "serve.max_body_bytes": Note("Bytes of the body of one request.", "1048576"),
    "serve.max_header_bytes": Note("Bytes of all headers of one request.", "16384"),
    "serve.max_depth": Note("Nested objects and arrays in a body.", "50"),
    "serve.max_items": Note("Items in the input of one request.", "2000"),
    "serve.max_requests": Note("Requests that run at once.", "200"),
    "serve.read_s": Note("Seconds in which the headers of a request must arrive, and then its body.", "10"),
    "serve.write_s": Note("Seconds during which a client may read nothing of its response.", "30"),
    "serve.keepalive_s": Note(
        "Seconds without an event before a stream sends a keep-alive comment. A stream that is passed through to a"
        " provider, as `/v1/chat/completions` is, gets none.",
        "5",
    ),
    "serve.grace_s": Note("Seconds that open requests get when the server stops.", "60"),
    "serve.reasoning_events": Note(
        "The names of the events of reasoning text in a stream: those of OpenAI, or of the Open Responses"
        " specification.",
        "specification",
    ),
    "serve.record": Note(
        "Whether requests with `store: false` are recorded for `convo inspect` and the page. Clients see it in the"
        " header `x-convo-recorded`.",
        "true",
    ),
    "serve.record_keys": Note("The keys whose requests are recorded, by name; empty: those of all keys.", '["alice"]'),
    "serve.record_ttl_s": Note("Seconds after the last request of a recorded session before it is deleted.", "86400"),
    "serve.limits.concurrent": Note("Requests of one key at once; WebSocket turns count. 0: no limit.", "20"),
    "serve.limits.per_minute": Note("Requests of one key in any 60 seconds. 0: no limit.", "600"),
    "serve.limits.process_per_minute": Note("Requests of all keys in any 60 seconds. 0: no limit.", "6000"),
    "serve.limits.process_body_bytes": Note(
        "Bytes of the bodies of all running requests together; past it, a body above 64 KB gets 503. 0: no limit.",
        "67108864",
    ),
    "serve.blocked_networks": Note(
        "Networks to which no URL of a client may lead, of an `mcp` tool or a file, besides those that are not public.",
        '["203.0.113.0/24"]',
    ),
    "serve.mcp_urls": Note(
        "Connect to the `server_url` of `mcp` tools in requests, at public addresses only. `false`: only to the "
        "servers under `[mcp.NAME]`.",
        "true",
    ),
    "mcp.NAME": Note(
        "",
        '{ url = "http://127.0.0.1:9000/mcp", key_env = "TICKETS_KEY", keyring = true, '
        'allowed_tools = ["search"], timeout_s = 30 }',
    ),
    "mcp.NAME.url": Note("The URL of the server, over streamable HTTP.", default="none; url or command is set"),
    "mcp.NAME.command": Note("The program of the server and its arguments.", default="none; url or command is set"),
    "mcp.NAME.key_env": Note(
        "The environment variable with the key: sent to the URL as a bearer token, or passed on to the program.",
        default="none",
    ),
    "mcp.NAME.keyring": Note("Use the keyring's key of that name if the variable is not set.", default="`false`"),
    "mcp.NAME.allowed_tools": Note("The names of the tools that may be called.", default="all tools"),
    "mcp.NAME.timeout_s": Note("Seconds to connect, and for each call.", default="60"),
    "serve.files.max_file_bytes": Note("Bytes of one uploaded or fetched file, up to 536870912.", "67108864"),
    "serve.files.max_files": Note("Uploaded files of one key.", "100"),
    "serve.files.max_total_bytes": Note("Bytes of one key's uploaded files together.", "268435456"),
    "serve.files.fetch_urls": Note(
        "Fetch the `http` and `https` URLs of images and files in requests, from public addresses only, and send the "
        "content to the model. `false`: pass the URLs on to the model.",
        "true",
    ),
    "serve.files.fetch_s": Note("Seconds to fetch one file.", "10"),
    "serve.limits.keys.KEY": Note("", "{ concurrent = 5, per_minute = 60 }"),
    "serve.limits.keys.KEY.concurrent": Note("As above, for this key.", default="`serve.limits.concurrent`"),
    "serve.limits.keys.KEY.per_minute": Note("As above, for this key.", default="`serve.limits.per_minute`"),
    "request.temperature": Note("Sampling temperature.", "0.7", NO_REQUEST_FIELD),
    "request.top_p": Note("Share of the probability to sample from.", "0.9", NO_REQUEST_FIELD),
    "request.max_output_tokens": Note("Maximum number of output tokens of a response.", "4000", NO_REQUEST_FIELD),
    "request.reasoning_effort": Note(
        f"Reasoning effort: {', '.join(f'`{effort}`' for effort in REASONING_EFFORTS)}. Not sent to a model that is "
        "known to have none, such as the built-in one; a line on stderr says so.",
        "low",
        NO_REQUEST_FIELD,
    ),
    "request.verbosity": Note("Length of the text: `low`, `medium` or `high`.", "low", NO_REQUEST_FIELD),
    "request.param.FIELD": Note(
        "Any other field of a request. A name with a dot, in quotation marks, is a member of an object.",
        "flex",
        NO_REQUEST_FIELD,
    ),
    **{
        f'models."PROVIDER/MODEL".{name}': Note("As in `[request]`, for this model.", example, f"`request.{name}`")
        for name, example in (
            ("temperature", "1"),
            ("top_p", "1"),
            ("max_output_tokens", "16000"),
            ("reasoning_effort", "high"),
            ("verbosity", "medium"),
            ("param.FIELD", "auto"),
        )
    },
    "limits.answer_bytes": Note("Bytes of one stream as received, with comments and keep-alives.", "67108864"),
    "limits.answer_events": Note("Events of one stream.", "200000"),
    "limits.answer_s": Note("Seconds from the request to the end of the stream.", "1800"),
    "limits.idle_s": Note("Seconds without an event that adds to the response; keep-alives do not count.", "600"),
    "limits.event_bytes": Note("Bytes of one event; the last event repeats the whole response.", "4194304"),
    "limits.output_bytes": Note(
        "Bytes of the items of one response: text, reasoning, arguments, images. For responses that are passed through"
        " only the other limits count.",
        "1048576",
    ),
    "limits.body_bytes": Note("Bytes of a response that is not a stream: a stored response, a list.", "16777216"),
    'prices."PROVIDER/MODEL"': Note("", "{ input = 2, cached = 0.2, written = 2.5, written_1h = 4, output = 10 }"),
    'prices."PROVIDER/MODEL".input': Note("USD per million input tokens.", default="required"),
    'prices."PROVIDER/MODEL".cached': Note(
        "The same for tokens read from the prompt cache.", default="the input price"
    ),
    'prices."PROVIDER/MODEL".written': Note("The same for tokens written to the cache.", default="the input price"),
    'prices."PROVIDER/MODEL".written_1h': Note(
        "The same for tokens that Claude writes to the cache for an hour.",
        default="unknown, and so is the cost of such a call",
    ),
    'prices."PROVIDER/MODEL".output': Note("USD per million output tokens, with reasoning.", default="required"),
    'windows."PROVIDER/MODEL"': Note("", "{ context = 128000, output = 16000 }"),
    'windows."PROVIDER/MODEL".context': Note(
        "Tokens of the context window, input and output together.", default="required"
    ),
    'windows."PROVIDER/MODEL".output': Note("Output tokens of one response at most.", default="unknown"),
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
        'An MCP server whose tools requests to `convo serve` may use: `{"type": "mcp", "server_label": "NAME"}`.',
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
    """Return the page. Raises KeyError for a setting without a note or a note without a setting."""
    rows = dict(walk_schema())
    if set(rows) != set(NOTES):
        raise KeyError(f"settings and notes differ: {sorted(set(rows) ^ set(NOTES))}")
    if untitled := [key for key in rows if "." in key and not table_of(key)]:
        raise KeyError(f"no title for the tables of {untitled}")
    sections = {title: [key for key in rows if table_of(key) == title] for title in TITLES}
    allowed = ", ".join(f"`{name}`" for name, rule in UNTRUSTED_RULES.items() if rule.allowed)
    titles = [*(title for title, _ in TITLES.values()), "[profiles.PROFILE]"]
    parts = [HEAD.format(allowed=allowed), "".join(f"* [`{title}`](#{anchor(title)})\n" for title in titles)]
    for table, keys in sections.items():
        title, text = TITLES[table]
        parts.append(f"## {title}\n\n{text}\n\n{settings_table(keys, rows)}")
        examples = [(example_key(key), NOTES[key].example) for key in keys]
        parts.append(example_blocks((key, value) for key, value in examples if value is not None))
        if table == "providers":
            parts.append(providers_table())
    parts.append(profiles_section())
    return "\n".join(parts)


def anchor(title: str) -> str:
    """The anchor that GitHub gives to a heading."""
    return "".join(char for char in title.lower().replace(" ", "-") if char.isalnum() or char in "-_")


def walk_schema() -> Iterator[tuple[str, SettingSchema]]:
    """Yield the key and the schema of every setting, and of every table that is one value; profiles are left out."""
    for name, schema in SETTINGS_SCHEMA.items():
        if name != "profiles":
            yield from _walk(name, schema)


def _walk(key: str, schema: SettingSchema) -> Iterator[tuple[str, SettingSchema]]:
    if isinstance(schema, KeyedTable):
        yield from _walk(f"{key}.{NAMES[key][0]}", schema.schema)
    elif isinstance(schema, AtomicTable):
        yield key, schema
        yield from _walk(key, schema.schema)
    elif isinstance(schema, Mapping):
        for name, inner in schema.items():
            yield from _walk(f"{key}.{name}", inner)
    else:
        yield key, schema


def table_of(key: str) -> str:
    """The key of the longest table of the page that contains a setting; "" for a top-level setting."""
    return max((table for table in TITLES if not table or f"{key}.".startswith(f"{table}.")), key=len)


def settings_table(keys: list[str], rows: Mapping[str, SettingSchema]) -> str:
    lines = ["| setting | value | default | meaning |", "|---|---|---|---|"]
    for key in keys:
        schema = rows[key]
        if not isinstance(schema, AtomicTable):
            assert callable(schema)
            cells = (
                f"`{key}`",
                describe_values(schema),
                describe_default(key),
                f"{NOTES[key].meaning}{other_ways(key)}",
            )
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


def describe_default(key: str) -> str:
    defaults = {format_setting_key(name): value for name, value in get_default_settings({}).items()}
    if key not in defaults:
        return NOTES[key].default or "none"
    assert not NOTES[key].default
    value = defaults[key]
    text = f"{value:g}" if isinstance(value, float) else tomlkit.item(value).as_string()
    return f"`{text}`{in_larger_unit(key, value)}"


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


def other_ways(key: str) -> str:
    """The variable and the option that set the same value."""
    names = [f"`{name}`" for name, setting in VARIABLE_SETTINGS.items() if format_setting_key(setting) == key]
    names += [f"`{flag}`" for flag, setting in FLAG_SETTINGS.values() if format_setting_key(setting) == key]
    if key == "state_storage.connection_string":
        names = ["`CONVO_STORE`", "`--store`"]
    return f" Also: {', '.join(names)}." if names else ""


def providers_table() -> str:
    lines = [
        "Built-in providers:\n",
        "| provider | api | base_url | key_env | other variables |",
        "|---|---|---|---|---|",
    ]
    for name, fields in KNOWN_PROVIDERS.items():
        if name != "scripted":
            variables = [f"`{fields['token_env']}`"] if "token_env" in fields else []
            variables += [
                f"`{variable}` ({key[2]})"
                for variable, key in VARIABLE_SETTINGS.items()
                if key[:2] == ("providers", name)
            ]
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
