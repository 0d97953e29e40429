"""Typed sections of the settings: providers, prices, context limits, rate limits.

NamedTuples without input or output; a field that is a setting is declared with `setting`. A provider whose API stores
conversations (`STATEFUL_APIS`) gets a remote endpoint, every other provider convo's own (`Provider.endpoint`).
"""

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

from convo.config.values import (
    REQUIRED,
    SECTION_SCHEMAS,
    AtomicTable,
    ChoiceCheck,
    ChoicesCheck,
    IntegerCheck,
    InvalidValue,
    SettingKey,
    SettingRow,
    check_base_url,
    check_boolean,
    check_price,
    check_seconds,
    check_tenant,
    check_text,
    check_texts,
    check_variable_name,
    keyed_table,
    setting,
    settings_section,
)
from convo.secrets import is_secret_name

ProviderApi = Literal["responses", "azure", "chat", "anthropic", "local", "scripted"]
StateOwner: TypeAlias = Literal["provider", "convo"]
HostedTools: TypeAlias = Literal["auto", "refuse", "omit"]
CustomTools: TypeAlias = Literal["auto", "native", "function"]
PrefixMismatchBehavior: TypeAlias = Literal["drop_block", "error", "provider_default"]
EndpointKind: TypeAlias = Literal["remote", "embedded"]

STATE_OWNERS: tuple[StateOwner, ...] = get_args(StateOwner)
HOSTED_TOOLS: tuple[HostedTools, ...] = get_args(HostedTools)
CUSTOM_TOOLS: tuple[CustomTools, ...] = get_args(CustomTools)
PREFIX_MISMATCH_BEHAVIORS: tuple[PrefixMismatchBehavior, ...] = get_args(PrefixMismatchBehavior)
CONFIGURABLE_APIS: tuple[ProviderApi, ...] = ("chat", "responses", "anthropic", "azure")
"""The values of `api` in a file; the other APIs are built in."""

STATEFUL_APIS: frozenset[ProviderApi] = frozenset({"responses", "azure"})
PROVIDER_EXTRA_FIELDS = (
    *("service_tier", "prompt_cache_key", "prompt_cache_retention", "prompt_cache_options"),
    *("safety_identifier", "user", "top_k", "seed", "stop", "chat_template_kwargs"),
)
"""Parameters that only some servers of an API support; `extra_fields` of a provider lists those to send."""

APIS_WITHOUT_URL: frozenset[ProviderApi] = frozenset({"local", "scripted"})


@settings_section
class Provider(NamedTuple):
    """One provider.

    base_url:      without a final slash; None for local models
    organisation, project:  the account of the request, if the key has access to several
    key_file:      an absolute path
    """

    name: str
    api: ProviderApi = setting(
        REQUIRED,
        ChoiceCheck(*CONFIGURABLE_APIS),
        "The API of the server; `chat` is chat completions.",
        "chat",
        "none; required if the provider is not built in",
    )
    base_url: str | None = setting(
        None,
        check_base_url,
        "The URL of the API, up to and without `/responses`, `/chat/completions` or `/messages`.",
        "http://127.0.0.1:8000/v1",
        "see built-in providers",
    )
    key_env: str | None = setting(
        None,
        check_variable_name,
        "The environment variable with the key; never the key itself. A provider without it needs no key.",
        "MINE_API_KEY",
    )
    token_env: str | None = setting(
        None,
        check_variable_name,
        "Azure: the environment variable with an Entra ID token, which takes precedence over the key.",
        "MINE_AD_TOKEN",
    )
    owner: StateOwner = setting(
        "provider",
        ChoiceCheck(*STATE_OWNERS),
        "The owner of stored responses and conversations: the provider, or convo's own store in front of it.",
        "convo",
        "`provider` with the API `responses` or `azure`; others store nothing",
    )
    organisation: str | None = setting(None, check_text, "OpenAI: the organization of the requests.", "org-123")
    project: str | None = setting(None, check_text, "OpenAI: the project of the requests.", "proj_123")
    api_version: str | None = setting(None, check_text, "Azure: the version of the API.", "2025-04-01-preview")
    deployment: str | None = setting(
        None,
        check_text,
        "Azure: the deployment that receives every request, if it is not named as the model is.",
        "my-gpt-6",
    )
    key_file: Path | None = setting(
        None,
        check_text,
        "A file with the key, used if the variable is not set. `convo config key set NAME --file` writes both.",
        "mine.key",
    )
    keyring: bool = setting(
        False,
        check_boolean,
        "The keyring has the key, used if there is no other. `convo config key set NAME` writes both.",
        "true",
    )
    extra_fields: tuple[str, ...] = setting(
        (),
        ChoicesCheck(*PROVIDER_EXTRA_FIELDS),
        "Request fields that the server supports although its API does not require them. The others of these"
        " fields are left out of a request and reported as ignored, or refused.",
        '["top_k", "seed"]',
        "none",
    )
    hosted_tools: HostedTools = setting(
        "auto",
        ChoiceCheck(*HOSTED_TOOLS),
        "Tools that only OpenAI's servers run (`web_search`, `file_search`, `mcp`, ...), for a provider whose API"
        " is `chat` or `anthropic`: `refuse` the request, or `omit` them and report them as ignored. `auto` omits"
        " a web search, which Codex offers in every request, and refuses the others, a request without other"
        " tools, and a `tool_choice` that names one.",
        "omit",
    )
    custom_tools: CustomTools = setting(
        "auto",
        ChoiceCheck(*CUSTOM_TOOLS),
        "Custom tools, for a provider whose API is `chat`: `native` sends them as such, with their grammar,"
        " `function` as functions with one string. `auto` is `native` for GPT-5 and later models of OpenAI and"
        " Azure, else `function`.",
        "native",
    )
    resend_fields: bool = setting(
        True,
        check_boolean,
        "For a provider whose API is `chat`: what its server sent for its own use and needs in the next request"
        " goes back to it, and to no other: `reasoning_content` of a turn with calls (DeepSeek, Kimi),"
        " `reasoning_details` (OpenRouter), the signatures of Gemini in `extra_content`.",
        "false",
    )
    prefix_mismatch_behavior: PrefixMismatchBehavior = setting(
        "drop_block",
        ChoiceCheck(*PREFIX_MISMATCH_BEHAVIORS),
        "Claude's thinking is bound to the request that produced it. If instructions, tools or earlier messages"
        " have changed, newer models drop it (`drop_block`; each removal is in `input_transformations` of the"
        " response) or refuse the request (`error`). `provider_default` sends neither: accounts created since"
        " 2026-08-31 refuse, older ones do not check. Only for a provider whose API is `anthropic`.",
        "error",
    )

    @property
    def is_openai(self) -> bool:
        """Whether its models are OpenAI's, by the Responses API: at OpenAI, behind a proxy of it, or on Azure."""
        return self.api == "azure" or (self.api == "responses" and is_openai_server(self.name, self.base_url or ""))

    @property
    def is_anthropic(self) -> bool:
        """Whether its models are Anthropic's, at Anthropic or behind a proxy of it."""
        is_own = self.name == "anthropic" or urlsplit(self.base_url or "").hostname == "api.anthropic.com"
        return self.api == "anthropic" and is_own

    @property
    def endpoint(self) -> EndpointKind:
        return "remote" if self.api in STATEFUL_APIS and self.owner == "provider" else "embedded"


def check_provider_name(name: str) -> None:
    if not name or "/" in name or name != name.strip():
        raise InvalidValue("is not a provider name: use one word without '/'")


def check_model_name(name: str) -> None:
    provider, slash, model = name.partition("/")
    if not (provider and slash and model):
        raise InvalidValue("is not a full model name, provider/model", hint='quote the whole name: "provider/model"')


def is_openai_server(provider: str, base_url: str) -> bool:
    """Whether a provider is OpenAI, or a proxy of it: the provider of that name with another URL."""
    return provider == "openai" or urlsplit(base_url).hostname == "api.openai.com"


def is_keyless(provider: Provider) -> bool:
    """Whether the settings name neither a key nor a token of the provider."""
    return not (provider.key_env or provider.token_env or provider.key_file or provider.keyring)


KNOWN_PROVIDERS: dict[str, dict[str, str]] = {
    "openai": {"api": "responses", "base_url": "https://api.openai.com/v1", "key_env": "OPENAI_API_KEY"},
    "azure": {"api": "azure", "key_env": "AZURE_OPENAI_API_KEY", "token_env": "AZURE_OPENAI_AD_TOKEN"},
    "anthropic": {"api": "anthropic", "base_url": "https://api.anthropic.com", "key_env": "ANTHROPIC_API_KEY"},
    "deepseek": {"api": "chat", "base_url": "https://api.deepseek.com", "key_env": "DEEPSEEK_API_KEY"},
    "ollama": {"api": "chat", "base_url": "http://127.0.0.1:11434/v1"},
    "local": {"api": "local"},
    "scripted": {"api": "scripted"},
}
"""Default fields by provider, as in a settings file; a file can override each of them."""

PROVIDER_VARIABLES: dict[str, SettingKey] = {
    "OPENAI_BASE_URL": ("providers", "openai", "base_url"),
    "OPENAI_ORG_ID": ("providers", "openai", "organisation"),
    "OPENAI_PROJECT_ID": ("providers", "openai", "project"),
    "AZURE_OPENAI_ENDPOINT": ("providers", "azure", "base_url"),
    "OPENAI_API_VERSION": ("providers", "azure", "api_version"),
    "ANTHROPIC_BASE_URL": ("providers", "anthropic", "base_url"),
    "OLLAMA_HOST": ("providers", "ollama", "base_url"),
}
"""Variables that the providers' own programs read, too, and their settings."""


_OLLAMA_PORT = 11_434
_CLIENT_HOSTS = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104  # listen address -> client address


def parse_ollama_host(host: str) -> str:
    """Convert `OLLAMA_HOST` to a base URL: [scheme://]host[:port][/path], each part optional."""
    scheme, separated, rest = host.strip().rpartition("://")
    try:
        parts = urlsplit(f"//{_bracket_ipv6(rest)}")
        # As in Ollama: an address with a scheme has the port of the scheme.
        port = parts.port or (None if separated else _OLLAMA_PORT)
    except ValueError:
        raise InvalidValue("must be a host, host:port or URL") from None
    name = _CLIENT_HOSTS.get(parts.hostname or "", parts.hostname)
    address = f"[{name}]" if name and ":" in name else name
    return f"{scheme or 'http'}://{address}{f':{port}' if port else ''}{parts.path.rstrip('/')}/v1"


def _bracket_ipv6(host: str) -> str:
    return f"[{host}]" if host.count(":") > 1 and not host.startswith("[") else host


LATEST_TAG = ":latest"

Entry = TypeVar("Entry")


def list_model_names(model: str) -> tuple[str, ...]:
    """Return all names of a model, its own first: a name without a tag means the tag `latest`, as in Ollama."""
    untagged = model.removesuffix(LATEST_TAG)
    if ":" in untagged.rpartition("/")[2]:
        return (model,)
    return (model, untagged if untagged != model else model + LATEST_TAG)


def find_model_entry(entries: Mapping[str, Entry], model: str) -> Entry | None:
    """Return the entry of a model, under any of its names, in a table by provider/model."""
    return next((entries[name] for name in list_model_names(model) if name in entries), None)


class ContextLimits(NamedTuple):
    """Limits of a model in tokens.

    source:  where they are from, if not from the settings
    """

    context_tokens: int
    output_tokens: int | None = None
    source: str = ""

    def __str__(self) -> str:
        return f"{self.context_tokens:,} tokens" + (
            f", output up to {self.output_tokens:,}" if self.output_tokens else ""
        )


def parse_context_limits_table(table: Mapping[str, int]) -> ContextLimits:
    if "context" not in table:
        raise InvalidValue("needs context, in tokens", hint="add context = 128000, or the limit of the model")
    return ContextLimits(table["context"], table.get("output"))


CONTEXT_LIMITS_TABLE = AtomicTable(
    {
        "context": SettingRow(
            None, IntegerCheck(1), "Tokens of the context window, input and output together.", "128000", "required"
        ),
        "output": SettingRow(None, IntegerCheck(1), "Output tokens of one response at most.", "16000", "unknown"),
    },
    parse_context_limits_table,
    "{ context = 128000, output = 16000 }",
)

STANDARD_TIERS = (None, "auto", "default", "standard")
"""The service tiers at the standard price; None: the response reports none. Anthropic's name is "standard"."""


class Price(NamedTuple):
    """USD per million tokens. `cached` equals `input` unless it is set.

    written:             input that the provider writes to its cache; None: that costs what other input costs
    written_1h:          input that Claude writes to its cache for an hour instead of 5 minutes; None: twice the input
    max_input_tokens:    input tokens up to which the prices apply
    long_input_factors:  factors on the input and output price of a whole longer call
    source:              the URL of the price; "" for one from the settings
    tier_factors:        factors on the price of a whole call, by the service tier that its response reports
    is_secondary:        whether the source is not the vendor's own
    """

    input: float
    output: float
    cached: float
    written: float | None = None
    max_input_tokens: int | None = None
    source: str = ""
    long_input_factors: tuple[float, float] = (1.0, 1.0)
    written_1h: float | None = None
    tier_factors: Mapping[str, float] = MappingProxyType({})
    is_secondary: bool = False

    def __str__(self) -> str:
        about = "about " if self.is_secondary else ""
        return f"{about}input {self.input:g}, cached {self.cached:g}, output {self.output:g} USD per million tokens"

    def at_tier(self, tier: str | None) -> "Price | None":
        """Return the price of a call at a service tier; None if it is unknown.

        A price from the settings is what the user pays, at any tier.
        """
        if not self.source or tier in STANDARD_TIERS:
            return self
        factor = self.tier_factors.get(tier or "")
        return None if factor is None else self._scale(factor, factor)

    def is_long(self, input_tokens: float) -> bool:
        """Return whether a call with this input has the factors for a long one."""
        return self.max_input_tokens is not None and input_tokens > self.max_input_tokens

    def at_length(self, input_tokens: float) -> "Price":
        """Return the price of a call with this input; the factors of a long one are in the prices."""
        return self._scale(*self.long_input_factors) if self.is_long(input_tokens) else self

    def write_prices(self) -> tuple[float, float]:
        """Return the prices of input written to the cache: as usual, and for an hour."""
        # Models before GPT-5.6 have no price of their own for a write; an hour is Claude's, at twice the input price.
        # Source of both: the vendors' pages on prompt caching, November 2026
        return (
            self.input if self.written is None else self.written,
            2 * self.input if self.written_1h is None else self.written_1h,
        )

    def _scale(self, input_factor: float, output_factor: float) -> "Price":
        written, written_1h = self.write_prices()
        return self._replace(
            input=input_factor * self.input,
            cached=input_factor * self.cached,
            written=input_factor * written,
            written_1h=input_factor * written_1h,
            output=output_factor * self.output,
        )


def parse_price_table(table: Mapping[str, Any]) -> Price:
    if missing := [name for name in ("input", "output") if name not in table]:
        raise InvalidValue(
            f"needs {' and '.join(missing)}, in USD per million tokens",
            hint=f"add {' and '.join(f'{name} = 0.25' for name in missing)}, or the prices of the model",
        )
    return Price(**{"cached": table["input"], "written": table["input"], **table})


PRICE_ROWS = {
    "input": SettingRow(None, check_price, "USD per million input tokens.", "2", "required"),
    "cached": SettingRow(
        None, check_price, "The same for tokens read from the prompt cache.", "0.2", "the input price"
    ),
    "written": SettingRow(None, check_price, "The same for tokens written to the cache.", "2.5", "the input price"),
    "written_1h": SettingRow(
        None,
        check_price,
        "The same for tokens that Claude writes to the cache for an hour.",
        "4",
        "twice the input price",
    ),
    "output": SettingRow(None, check_price, "USD per million output tokens, with reasoning.", "10", "required"),
}

PRICE_TABLE = AtomicTable(PRICE_ROWS, parse_price_table, "{ input = 0.25, output = 2 }")

_RATE_CHECK = IntegerCheck(0, maximum=100_000)


@settings_section
class KeyLimits(NamedTuple):
    """Limits on one key's requests in one process; 0: no limit; None: the limit of all keys."""

    concurrent: int | None = setting(None, _RATE_CHECK, "As above, for this key.", "5", "`serve.limits.concurrent`")
    per_minute: int | None = setting(None, _RATE_CHECK, "As above, for this key.", "60", "`serve.limits.per_minute`")

    def __str__(self) -> str:
        parts = [f"{name} {limit}" for name, limit in self._asdict().items() if limit is not None]
        return ", ".join(parts) or "the limits of all keys"


KEY_LIMITS_TABLE = AtomicTable(
    SECTION_SCHEMAS[KeyLimits], lambda table: KeyLimits(**table), "{ concurrent = 5, per_minute = 60 }"
)

MAX_FILE_BYTES = 512 * 1024 * 1024
"""The largest file that a setting may allow: a file is in memory while it is stored and sent."""


@settings_section
class FileSettings(NamedTuple):
    """`[serve.files]`: the files that clients upload, and those that they name by URL."""

    max_file_bytes: int = setting(
        32 * 1024 * 1024,
        IntegerCheck(1024, maximum=MAX_FILE_BYTES),
        f"Bytes of one uploaded or fetched file, up to {MAX_FILE_BYTES}.",
        "67108864",
    )
    max_files: int = setting(1_000, IntegerCheck(0), "Uploaded files of one key.", "100")
    max_total_bytes: int = setting(
        1024 * 1024 * 1024, IntegerCheck(0), "Bytes of one key's uploaded files together.", "268435456"
    )
    fetch_urls: bool = setting(
        False,
        check_boolean,
        "Fetch the `http` and `https` URLs of images and files in requests, from public addresses only, and send"
        " the content to the model. `false`: pass the URLs on to the model.",
        "true",
    )
    fetch_s: float = setting(20.0, check_seconds, "Seconds to fetch one file.", "10")


@settings_section
class McpServer(NamedTuple):
    """`[mcp.NAME]`: an MCP server whose tools `convo chat --mcp NAME` and requests to `convo serve` may use."""

    url: str | None = setting(
        None,
        check_base_url,
        "The URL of the server, over streamable HTTP.",
        "http://127.0.0.1:9000/mcp",
        "none; url or command is set",
    )
    command: tuple[str, ...] = setting(
        (), check_texts, "The program of the server and its arguments.", None, "none; url or command is set"
    )
    key_env: str | None = setting(
        None,
        check_variable_name,
        "The environment variable with the key: sent to the URL as a bearer token, or passed on to the program.",
        "TICKETS_KEY",
    )
    keyring: bool = setting(
        False, check_boolean, "Use the keyring's key of that name if the variable is not set.", "true"
    )
    env: tuple[str, ...] = setting(
        (),
        check_texts,
        "Variables for the program: `NAME` passes one on, `NAME=VALUE` sets one; variables in VALUE (`$NAME`) are"
        " replaced.",
        None,
        "none",
    )
    headers: tuple[str, ...] = setting(
        (),
        check_texts,
        "Headers for the URL, as `NAME: VALUE`; variables in VALUE (`$NAME`) are replaced.",
        '["X-Api-Key: $TICKETS_KEY"]',
        "none",
    )
    allowed_tools: tuple[str, ...] | None = setting(
        None,
        check_texts,
        "The names of the tools that may be called, without `mcp__NAME__`.",
        '["search"]',
        "all tools",
    )
    blocked_tools: tuple[str, ...] = setting(
        (), check_texts, "The names of tools that may not be called.", '["delete"]', "none"
    )
    approval: Literal["always", "never"] = setting(
        "always",
        ChoiceCheck("always", "never"),
        "Whether calls in a chat need approval. `convo serve` uses `require_approval` of the request.",
        "never",
    )
    approved_tools: tuple[str, ...] = setting(
        (), check_texts, "The names of tools whose calls need no approval in a chat.", '["search"]', "none"
    )
    timeout_s: float = setting(60.0, check_seconds, "Seconds to connect, and for each call.", "30")


_MCP_NAME_PATTERN = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def check_mcp_name(name: str) -> None:
    if not _MCP_NAME_PATTERN.fullmatch(name):
        raise InvalidValue("is not a name of an MCP server: use a letter, then letters, digits, _ or -")


def split_mcp_reference(reference: str) -> tuple[str, str]:
    """Split `NAME=COMMAND` or `NAME=URL` of --mcp; the name is "" if there is none."""
    name, separator, address = reference.partition("=")
    return (name, address) if separator and _MCP_NAME_PATTERN.fullmatch(name) else ("", reference)


def parse_mcp_table(table: Mapping[str, Any]) -> McpServer:
    server = McpServer(**table)
    if (server.url is None) == (not server.command):
        raise InvalidValue("needs either url or command", hint='add url = "https://.../mcp" or command = ["program"]')
    if server.keyring and server.key_env is None:
        raise InvalidValue("needs key_env: it names the key in the keyring", hint='add key_env = "NAME"')
    if server.url is None and server.headers:
        raise InvalidValue("has headers, which need a url", hint="remove headers, or use env")
    if not server.command and server.env:
        raise InvalidValue("has env, which needs a command", hint="remove env, or use headers")
    if not all(":" in header for header in server.headers):
        raise InvalidValue("has a header without a value", hint='headers = ["X-Api-Key: $NAME"]')
    for text in (*server.env, *server.headers):
        name, _, value = re.sub("[:=]", "\0", text, count=1).partition("\0")
        if is_secret_name(name.strip()) and value and "$" not in value:
            raise InvalidValue(
                f"has the value of {name.strip()} in it", hint=f'"{name.strip()}{text[len(name)]} $NAME"'
            )
    return server


MCP_TABLE = AtomicTable(SECTION_SCHEMAS[McpServer], parse_mcp_table, '{ url = "http://127.0.0.1:9000/mcp" }')


@settings_section
class ServeLimits(NamedTuple):
    """`[serve.limits]`: limits on the requests of each key and of one process; 0: no limit.

    keys:  limits of single keys, by the key's name
    """

    concurrent: int = setting(
        500, _RATE_CHECK, "Requests of one key at once; WebSocket turns count. 0: no limit.", "20"
    )
    per_minute: int = setting(0, _RATE_CHECK, "Requests of one key in any 60 seconds. 0: no limit.", "600")
    process_per_minute: int = setting(0, _RATE_CHECK, "Requests of all keys in any 60 seconds. 0: no limit.", "6000")
    process_body_bytes: int = setting(
        128 * 1024 * 1024,
        IntegerCheck(0),
        "Bytes of the bodies of all running requests together; past it, a body above 64 KB gets 503. 0: no limit.",
        "67108864",
    )
    keys: Mapping[str, KeyLimits] = keyed_table(check_tenant, KEY_LIMITS_TABLE)

    def for_key(self, name: str) -> tuple[int, int]:
        """Return the limits of the key `name`: concurrent requests and requests per minute."""
        concurrent, per_minute = self.keys.get(name, KeyLimits())
        return (
            self.concurrent if concurrent is None else concurrent,
            self.per_minute if per_minute is None else per_minute,
        )
