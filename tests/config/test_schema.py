"""Validation of settings files, and its error messages."""

import pytest

from convo.config.schema import SETTINGS_SCHEMA
from convo.config.sections import Provider
from convo.config.values import SECTION_SCHEMAS, toml_type_name
from convo.errors import InvalidSettings
from convo.usage.cost import Usage
from tests.config.settings_inputs import make_settings

NOT_A_VARIABLE = "must be the name of an environment variable; the value may be a key and is not shown"
PROVIDER_KEYS = ", ".join(SECTION_SCHEMAS[Provider])
NOT_EXTRA_FIELDS = (
    "must be an array with values among service_tier, prompt_cache_key, prompt_cache_retention, prompt_cache_options,"
    " safety_identifier, user, top_k, seed, stop, chat_template_kwargs"
)
NOT_AN_AMOUNT = "must be a finite number that is not negative"
NOT_A_URL = "must be a URL: http:// or https://, a host, and an optional path"

REFUSED = [
    # unknown names
    ('modle = "x"', "no setting 'modle'; did you mean 'model'?"),
    ("xyzzy = 1", f"no setting 'xyzzy'; known settings: {', '.join(SETTINGS_SCHEMA)}"),
    ('[provider.groq]\napi = "chat"', "no setting 'provider'; did you mean 'providers'?"),
    ('[providers.groq]\nbase_ulr = "https://x"', "no setting 'providers.groq.base_ulr'; did you mean 'base_url'?"),
    ('[providers.groq]\napi_key = "sk-secret"', "no setting 'providers.groq.api_key'; did you mean 'key_env'?"),
    ('[providers.groq]\nkey = "sk-secret"', "no setting 'providers.groq.key'; did you mean 'key_env'?"),
    ('[providers."a b"]\nzzz = 1', f"no setting 'providers.\"a b\".zzz'; known settings: {PROVIDER_KEYS}"),
    (
        '[providers.openai]\norganization = "org_1"',
        "no setting 'providers.openai.organization'; did you mean 'organisation'?",
    ),
    ("[serve]\nprot = 1", "no setting 'serve.prot'; did you mean 'port'?"),
    ('[prices]\n"a/b" = {inputs = 1}', "no setting 'prices.\"a/b\".inputs'; did you mean 'input'?"),
    (
        'redact = ["("]',
        "'redact' contains '(', which is not a regular expression: missing ), unterminated subpattern at position 0",
    ),
    ('redact = ["a*"]', "'redact' contains 'a*', which matches the empty string"),
    # wrong types
    ('redact = "a"', "'redact' must be an array of regular expressions"),
    ("redact = [1]", "'redact' must be an array of regular expressions"),
    ("model = 5", "'model' must be a string, not a whole number"),
    ("model = true", "'model' must be a string, not a boolean"),
    ("model = 1.5", "'model' must be a string, not a number"),
    ("model = []", "'model' must be a string, not an array"),
    ("model = 2026-01-01", "'model' must be a string, not a date or time"),
    ("[model]", "'model' must be a string, not a table"),
    ('model = " "', "'model' must not be empty"),
    ('providers = "groq"', "'providers' must be a table, not a string"),
    ("[[providers]]", "'providers' must be a table, not an array"),
    ('[providers]\ngroq = "chat"', "'providers.groq' must be a table, not a string"),
    ("[aliases]\nfast = 1", "'aliases.fast' must be a string, not a whole number"),
    ('state_storage = "sqlite"', "'state_storage' must be a table, not a string"),
    ('[serve]\nport = "8788"', "'serve.port' must be a whole number, not a string"),
    ("[serve]\nport = true", "'serve.port' must be a whole number, not a boolean"),
    ('[prices]\n"a/b" = {input = "1", output = 2}', "'prices.\"a/b\".input' must be a number, not a string"),
    # values out of range
    ("[serve]\nport = 65536", "'serve.port' must be a port from 0 (any free one) to 65535"),
    ("[serve]\nport = -1", "'serve.port' must be a port from 0 (any free one) to 65535"),
    ("[serve]\nmax_body_bytes = 10", "'serve.max_body_bytes' must be at least 1024"),
    ("[serve]\nmax_depth = 1000", "'serve.max_depth' must be from 10 to 500"),
    ("[serve]\nmax_items = 0", "'serve.max_items' must be at least 1"),
    ("[serve]\nmax_requests = 1.5", "'serve.max_requests' must be a whole number, not a number"),
    ("[serve]\nread_s = 0", "'serve.read_s' must be more than 0 and at most 86400 seconds"),
    ("[serve]\ngrace_s = nan", "'serve.grace_s' must be more than 0 and at most 86400 seconds"),
    ("[serve]\nkeepalive_s = true", "'serve.keepalive_s' must be a number of seconds, not a boolean"),
    (
        '[providers.groq]\napi = "openai"',
        "'providers.groq.api' must be one of chat, responses, anthropic, azure",
    ),
    ('[providers.openai]\nowner = "me"', "'providers.openai.owner' must be one of provider, convo"),
    ('[providers.openai]\nbase_url = "api.openai.com/v1"', f"'providers.openai.base_url' {NOT_A_URL}"),
    ('[providers.openai]\nbase_url = "https://"', f"'providers.openai.base_url' {NOT_A_URL}"),
    ('[providers.openai]\nbase_url = "ftp://host"', f"'providers.openai.base_url' {NOT_A_URL}"),
    ('[providers.openai]\nbase_url = "https://host:99999"', f"'providers.openai.base_url' {NOT_A_URL}"),
    ('[providers.openai]\nbase_url = "https://[::1/v1"', f"'providers.openai.base_url' {NOT_A_URL}"),
    (
        '[providers.openai]\nbase_url = "https://me:sk-secret@host/v1"',
        "'providers.openai.base_url' must be a URL without user, password or query; set a key in a variable",
    ),
    (
        '[providers.openai]\nbase_url = "https://host/v1?key=sk-secret"',
        "'providers.openai.base_url' must be a URL without user, password or query; set a key in a variable",
    ),
    (
        '[prices]\n"a/b" = {input = -1, output = 2}',
        f"'prices.\"a/b\".input' {NOT_AN_AMOUNT}",
    ),
    (
        '[prices]\n"a/b" = {input = inf, output = 2}',
        f"'prices.\"a/b\".input' {NOT_AN_AMOUNT}",
    ),
    (
        '[prices]\n"a/b" = {input = nan, output = 2}',
        f"'prices.\"a/b\".input' {NOT_AN_AMOUNT}",
    ),
    (
        '[prices]\n"a/b" = {input = 1e308, output = 2}',
        "'prices.\"a/b\".input' must be at most 1000000000 USD per million tokens",
    ),
    (f"compact_at = 1{'0' * 400}", f"'compact_at' {NOT_AN_AMOUNT}"),
    ('[windows]\n"a/b" = {output = 1}', "'windows.\"a/b\"' needs context, in tokens"),
    ('[prices]\n"a/b" = {cached = 1}', "'prices.\"a/b\"' needs input and output, in USD per million tokens"),
    ('[prices]\n"gpt-5" = {input = 1, output = 2}', "'prices.gpt-5' is not a full model name, provider/model"),
    ('[aliases]\n"a//b" = "groq/x"', "'aliases.\"a//b\"' is not an alias: use one word, or a name like provider/model"),
    ('[aliases]\n"a/" = "groq/x"', "'aliases.\"a/\"' is not an alias: use one word, or a name like provider/model"),
    ('[aliases]\n"" = "groq/x"', "'aliases.\"\"' is not an alias: use one word, or a name like provider/model"),
    ('[providers."a/b"]\napi = "chat"', "'providers.\"a/b\"' is not a provider name: use one word without '/'"),
    ('[state_storage]\ntype = "redis"', "'state_storage.type' must be one of none, memory, sqlite, postgres"),
    ("[state_storage]", "'state_storage' needs a type: none, memory, sqlite, postgres"),
    (
        '[state_storage]\nconnection_string = "x.db"',
        "'state_storage' needs a type: none, memory, sqlite, postgres",
    ),
    ('[prices]\n"a/b" = {input = 1}', "'prices.\"a/b\"' needs output, in USD per million tokens"),
    ('[prices]\n"/b" = {input = 1, output = 2}', "'prices.\"/b\"' is not a full model name, provider/model"),
    ('[windows]\n"a/" = {context = 1}', "'windows.\"a/\"' is not a full model name, provider/model"),
    ('[aliases]\n" x" = "groq/x"', "'aliases.\" x\"' is not an alias: use one word, or a name like provider/model"),
    ('[providers."x "]\napi = "chat"', "'providers.\"x \"' is not a provider name: use one word without '/'"),
    ('[providers.""]\napi = "chat"', "'providers.\"\"' is not a provider name: use one word without '/'"),
    ('[profiles." x"]\nediting = "vi"', "'profiles.\" x\"' is not a profile name: use one word"),
    ('[profiles.""]\nediting = "vi"', "'profiles.\"\"' is not a profile name: use one word"),
    ("[providers.groq]\nkeyring = 1", "'providers.groq.keyring' must be true or false, not a whole number"),
    ('[providers.groq]\nextra_fields = ["top_k", "api"]', f"'providers.groq.extra_fields' {NOT_EXTRA_FIELDS}"),
    ('[providers.groq]\nextra_fields = "top_k"', f"'providers.groq.extra_fields' {NOT_EXTRA_FIELDS}"),
    ("[providers.groq]\nextra_fields = [1]", f"'providers.groq.extra_fields' {NOT_EXTRA_FIELDS}"),
    ('[providers.groq]\nurl = "x"', "no setting 'providers.groq.url'; did you mean 'base_url'?"),
    ('[providers.groq]\ntoken = "x"', "no setting 'providers.groq.token'; did you mean 'token_env'?"),
    ('[state_storage]\nconnection = "x"', "no setting 'state_storage.connection'; did you mean 'connection_string'?"),
    ('compact_at = "x"', "'compact_at' must be a number, not a string"),
    ("compact_at = 1.5", "'compact_at' must be a fraction up to 1, or a whole number of tokens"),
    ("trusted = 1", "'trusted' must be an array of absolute folder paths"),
    # a key instead of the name of a variable
    ('[providers.groq]\nkey_env = "sk-secret"', f"'providers.groq.key_env' {NOT_A_VARIABLE}"),
    ('[providers.groq]\nkey_env = "gsk_Secret0Secret1Secret2"', f"'providers.groq.key_env' {NOT_A_VARIABLE}"),
    ('[providers.azure]\ntoken_env = "eyJsecret.x.y"', f"'providers.azure.token_env' {NOT_A_VARIABLE}"),
    ('[serve]\nseal_key_env = "c2VjcmV0Cg=="', f"'serve.seal_key_env' {NOT_A_VARIABLE}"),
]


@pytest.mark.parametrize(("text", "message"), REFUSED)
def test_an_invalid_setting_is_refused_with_its_file_and_key(text: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(project=text)

    assert error.value.message == f"/home/me/work/.convo.toml: {message}"
    assert (error.value.exit, error.value.code) == (2, "bad_settings")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ('[prices]\n"a/b" = {cached = 1}', "add input = 0.25 and output = 0.25, or the prices of the model"),
        ('[prices]\n"a/b" = {input = 1}', "add output = 0.25, or the prices of the model"),
        ('[windows]\n"a/b" = {output = 1}', "add context = 128000, or the limit of the model"),
        ('[prices]\n"gpt-5" = {input = 1, output = 2}', 'quote the whole name: "provider/model"'),
        ("[serve]\nport = 65536", "choose a port, such as 8788"),
        ('compact_at = "60%"', "write 0.8 for 80 % of the context window, or 100000 for that number of tokens"),
        ("compact_at = 1.5", "write 0.8 for 80 % of the context window, or 100000 for that number of tokens"),
        ("[serve]\nport = true", "correct the value where it is set"),
        ('trusted = ["work"]', """convo config set trusted '["/home/you/work"]'"""),
    ],
)
def test_a_refusal_has_a_hint_that_shows_a_valid_value(text: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(user=text)
    assert error.value.hint == hint


def test_extra_fields_are_listed_once() -> None:
    text = '[providers.groq]\napi = "chat"\nextra_fields = ["top_k", "seed", "top_k"]'
    assert make_settings(user=text).providers["groq"].extra_fields == ("top_k", "seed")


@pytest.mark.parametrize("text", [text for text, _ in REFUSED if "ecret" in text])
def test_no_error_repeats_a_possible_secret(text: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(user=text)
    assert "ecret" not in error.value.message + error.value.hint


def test_an_overridden_file_is_validated_too() -> None:
    with pytest.raises(InvalidSettings, match=r"^/home/me/\.config/convo/config\.toml: 'model' must be a string"):
        make_settings(project='model = "fine"', user="model = 5")


def test_the_documented_file_is_accepted() -> None:
    got = make_settings(
        environ={"DB_PASSWORD": "pw"},
        user='trusted = ["/home/me/work"]',
        project="""
            model = "openai/gpt-5-mini"
            [providers.groq]
            api = "chat"
            base_url = "https://api.groq.com/openai/v1"
            key_env = "GROQ_API_KEY"
            [aliases]
            "fast" = "groq/some-model"
            [state_storage]
            type = "postgres"
            connection_string = "postgresql://user:$DB_PASSWORD@host:5432/db"
            [serve]
            host = "127.0.0.1"
            port = 8788
            keys_file = "~/.config/convo/keys"
            seal_key_env = "CONVO_SEAL_KEY"
            [prices]
            "groq/some-model" = {input = 0.25, cached = 0.025, output = 2}
        """,
    )

    assert (got.model, got.aliases, got.providers["groq"].api) == (
        "openai/gpt-5-mini",
        {"fast": "groq/some-model"},
        "chat",
    )
    assert got.storage.url is not None
    assert got.storage.url.reveal() == "postgresql://user:pw@host:5432/db"


@pytest.mark.parametrize(("value", "text"), [(None, "a date or time"), ({}, "a table"), (False, "a boolean")])
def test_an_error_uses_the_type_names_of_toml(value: object, text: str) -> None:
    assert toml_type_name(value) == text


def test_prices_distinguish_cached_tokens() -> None:
    price = make_settings(user='[prices]\n"a/b" = {input = 2, cached = 0.5, output = 10}').prices["a/b"]

    cost = Usage(input_tokens=1_000_000, cached_tokens=400_000, output_tokens=100_000).cost_usd(price)
    assert cost == pytest.approx(0.6 * 2 + 0.4 * 0.5 + 0.1 * 10)


def test_cached_tokens_cost_the_same_as_others_by_default() -> None:
    price = make_settings(user='[prices]\n"a/b" = {input = 2, output = 10}').prices["a/b"]
    assert Usage(input_tokens=1_000_000, cached_tokens=400_000).cost_usd(price) == pytest.approx(2)


def test_server_limits_apply_to_every_key_and_a_name_may_have_its_own() -> None:
    text = "[serve.limits]\nper_minute = 60\nkeys.alice.per_minute = 600\nkeys.bob.concurrent = 2"
    limits = make_settings(user=text).serve.limits
    assert [limits.for_key(name) for name in ("alice", "bob", "carol")] == [(500, 600), (2, 60), (500, 60)]
    assert limits.process_per_minute == 0
    assert make_settings().serve.limits.for_key("alice") == (500, 0)


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("concurent = 1", "no setting 'serve.limits.concurent'; did you mean 'concurrent'?"),
        ("per_minute = -1", "'serve.limits.per_minute' must be from 0 to 100000"),
        ("per_minute = 1.5", "'serve.limits.per_minute' must be a whole number, not a number"),
        ("[serve.limits.keys.'a b']\nper_minute = 1", "must be a key name"),
        ("[serve.limits.keys.a]\nprocess_per_minute = 1", "no setting 'serve.limits.keys.a.process_per_minute'"),
    ],
)
def test_an_invalid_server_limit_is_refused(line: str, text: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(user=f"[serve.limits]\n{line}")
    assert text in error.value.message


LIMITS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "serve.record_keys": (("[]", '["alice"]'), ('"alice"', '["a b"]', "[1]")),
    "compact_at": (("0", "0.5", "1", "2"), ("-0.1", "1.5", "2.0")),
    "tenant": (('"a"', '"9"', f'"{"a" * 64}"', '"a.b_c@d-e"'), ('""', '".a"', f'"{"a" * 65}"', '"a b"')),
    "serve.blocked_networks": (
        ("[]", '["203.0.113.0/24", "2001:db8::1"]'),
        ('"203.0.113.0/24"', "[1]", '["203.0.113.1/24"]', '["example.com"]'),
    ),
    "serve.cors_origins": (
        ("[]", '["*"]', '["https://app.example", "http://localhost:5173", "http://[::1]:8080"]', '["app://x"]'),
        ('"*"', "[1]", '["https://a.example/"]', '["https://A.example"]', '["https://a.example:443"]', '["null"]'),
    ),
    "windows": (
        ('{"a/b" = {context = 1, output = 1}}',),
        ('{"a/b" = {context = 0}}', '{"a/b" = {context = 1, output = 0}}'),
    ),
    "prices": (
        ('{"a/b" = {input = 0, output = 0, cached = 0, written = 0}}',),
        ('{"a/b" = {input = 0, output = 0, written = -1}}',),
    ),
    "state_storage": (
        ('{type = "memory", ttl = "36600d"}', '{type = "memory", ttl = "1s"}'),
        ('{type = "memory", ttl = "36601d"}', '{type = "memory", ttl = "0s"}'),
    ),
}


@pytest.mark.parametrize(("key", "accepted", "refused"), [(key, *values) for key, values in LIMITS.items()], ids=LIMITS)
def test_a_value_at_its_limit_is_accepted_and_the_next_one_is_refused(
    key: str, accepted: tuple[str, ...], refused: tuple[str, ...]
) -> None:
    for value in accepted:
        make_settings(user=f"{key} = {value}")
    for value in refused:
        with pytest.raises(InvalidSettings, match=key):
            make_settings(user=f"{key} = {value}")
