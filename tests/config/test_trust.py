"""Settings that an untrusted project file may set, and hosts that are loopback."""

import tomllib
from collections.abc import Sequence
from pathlib import Path

import pytest

from convo.config.schema import filter_untrusted
from convo.config.trust import ProjectNotice, is_loopback, is_remote_url
from convo.config.values import Layer, SettingSource, format_setting_key
from convo.errors import InvalidSettings
from tests.config.settings_inputs import WORK, make_settings

FILE = SettingSource(Layer.PROJECT, ".convo.toml", WORK)


def ignored(text: str) -> list[str]:
    """Return the keys that are ignored in an untrusted file."""
    return [format_setting_key(one.key) for one in filter_untrusted(tomllib.loads(text), FILE).ignored]


@pytest.mark.parametrize(
    "model",
    [
        "openai/gpt-5-mini",
        "openai/ft:gpt-4o-mini:acme:suffix:7p4lURel",
        "anthropic/claude-opus-4-1@20250805",
        "azure/my.deployment_1",
        "deepseek/deepseek-chat",
        " openai/gpt-5 ",
    ],
)
def test_the_model_of_a_well_known_provider_is_allowed_by_name(model: str) -> None:
    document = {"model": model}
    assert filter_untrusted(document, FILE) == (document, ())


@pytest.mark.parametrize(
    "model",
    [
        "local",
        "local/x.gguf",
        "local//home/me/x.gguf",
        "local/./x.gguf",
        "/home/me/x.gguf",
        "gpt-5",
        "fast",
        "ollama/llama3",
        "scripted/echo",
        "groq/llama",
        "openai/",
        "openai/../../v1/files",
        "azure/x/y",
        "azure/..",
        "openai/gpt-5?x=1",
        "openai/gpt 5",
        "openai/gpt-5\nx",
        "OpenAI/gpt-5",
        "openai//x",
        "",
    ],
)
def test_no_other_model_is_allowed(model: str) -> None:
    got = filter_untrusted({"model": model, "profiles": {"p": {"model": model}}}, FILE)
    assert got.allowed == {"profiles": {}}
    assert [one.key for one in got.ignored] == [("model",), ("profiles", "p", "model")]


@pytest.mark.parametrize(
    "text",
    [
        'model = "openai/gpt-5"\n[providers.openai]\nbase_url = "https://elsewhere.example/v1"',
        'model = "openai/gpt-5"\n[providers.openai]',
        'model = "openai/gpt-5"\n[profiles.p.providers.openai]\nbase_url = "https://elsewhere.example/v1"',
        'model = "openai/gpt-5"\n[aliases]\n"openai/gpt-5" = "local//x.gguf"',
        'model = "openai/gpt-5"\n[aliases]\nopenai = "local//x.gguf"',
        '[profiles.p]\nmodel = "openai/gpt-5"\n[providers.openai]\nkey_env = "X"',
        '[profiles.p]\nmodel = "openai/gpt-5"\n[profiles.q.aliases]\n"openai/gpt-5" = "x/y"',
    ],
)
def test_a_provider_that_the_file_defines_is_not_well_known(text: str) -> None:
    assert any(key.endswith("model") for key in ignored(text))


def test_every_other_setting_is_ignored_by_its_own_key() -> None:
    text = """
        tenant = "alice"
        compact_at = 0.1
        redact = ["x"]
        trusted = ["/"]
        profile = "p"
        unknown = 1
        [serve]
        host = "0.0.0.0"
        unknown = { below = 3 }
        [providers.groq]
        base_url = "https://elsewhere.example"
        [limits]
        answer_s = 5
        [aliases]
        fast = "groq/x"
        [state_storage]
        type = "memory"
        [prices."openai/x"]
        input = 0
        output = 0
        [windows."openai/x"]
        context = 1
        [profiles.p]
        serve.port = 1
        profiles = {}
        trusted = ["/"]
    """
    assert ignored(text) == [
        "tenant", "compact_at", "redact", "trusted", "profile", "unknown", "serve.host", "serve.unknown",
        "providers.groq.base_url", "limits.answer_s", "aliases.fast", "state_storage",
        'prices."openai/x"', 'windows."openai/x"',
        "profiles.p.serve.port", "profiles.p.profiles", "profiles.p.trusted",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "model = 5",
        'editing = "notepad"',
        "answers = []",
        "serve = 5",
        "profiles = 5",
        "[profiles]\nw = 5",
        '[profiles." "]\nediting = "vi"',
        '[profiles." "]\n[profiles.ok]',
        'providers = ["x"]',
        "aliases = 1",
        "[[serve]]\nport = 1",
        "state_storage = 1",
        'redact = ["("]',
        "trusted = 1979-05-27",
    ],
)
def test_an_invalid_value_is_ignored_without_an_error(text: str) -> None:
    got = filter_untrusted(tomllib.loads(text), FILE)
    assert len(got.ignored) == 1
    assert got.ignored[0].value is None
    assert not any(got.allowed.values())


def test_an_ignored_value_is_shown_only_if_it_is_valid() -> None:
    text = """
        api_key = "sk-1"
        [serve]
        port = 9000
        [providers.x]
        key_env = "sk-aaaaaaaaaaaaaaaaaaaaaaaaaaaa1"
        [state_storage]
        type = "postgres"
        connection_string = "postgresql://me:hush@elsewhere.example/x?password=hush"
    """
    got = {format_setting_key(one.key): str(one.value) for one in filter_untrusted(tomllib.loads(text), FILE).ignored}
    assert got == {
        "api_key": "None",
        "serve.port": "9000",
        "providers.x.key_env": "None",
        "state_storage": "postgresql://me:***@elsewhere.example/x",
    }


@pytest.mark.parametrize(
    "connection", ["sqlite", "postgresql://me:hu/sh@host/x", "postgresql://me:hush@ho st", "hush", "mysql://me:hush@x"]
)
def test_an_invalid_connection_string_is_not_shown(connection: str) -> None:
    for kind in ("postgres", "sqlite"):
        document = {"state_storage": {"type": kind, "connection_string": connection}}
        (one,) = filter_untrusted(document, FILE).ignored
        assert "hush" not in str(one.value) or "://" not in connection


def test_a_notice_is_one_bounded_line_without_control_characters() -> None:
    hostile = {f"k{number}\n\x1b[2J\u202e": 1 for number in range(1000)} | {"x" * 5000: 1}
    notice = ProjectNotice(
        WORK / ".convo.toml", f"{WORK}/.convo.toml is not trusted", filter_untrusted(hostile, FILE).ignored
    )
    assert notice.line.isprintable()
    assert '"k0\\n\\x1b[2J\\u202e"' in notice.line
    assert "and 993 more" in notice.line
    assert len(notice.line) < 1000


@pytest.mark.parametrize(
    ("keys", "keys_text"),
    [
        ("abcdefgh", "a, b, c, d, e, f, g, h"),
        ("abcdefghi", "a, b, c, d, e, f, g, h and 1 more"),
        (["x" * 60], "x" * 60),
        (["x" * 61], f"{'x' * 60}…"),
    ],
)
def test_a_notice_lists_eight_keys_and_sixty_characters_of_each(keys: Sequence[str], keys_text: str) -> None:
    notice = ProjectNotice(WORK, "it is not trusted", filter_untrusted(dict.fromkeys(keys, 1), FILE).ignored)
    assert notice.summary == f"it is not trusted, so these settings are ignored: {keys_text}"
    assert notice.line == f"{notice.summary}; try: convo config trust"


def test_a_trusted_file_cannot_trust_folders() -> None:
    with pytest.raises(
        InvalidSettings, match=r"\.convo\.toml: 'trusted' can only be set in your own settings"
    ) as caught:
        make_settings(project=f'trusted = ["{WORK}"]')
    assert caught.value.hint == "convo config path"


def test_trusted_folders_must_be_absolute() -> None:
    for value in ('"/home/me"', '["work"]', "[1]"):
        with pytest.raises(InvalidSettings, match="must be an array of absolute folder paths"):
            make_settings(user=f"trusted = {value}")


# -- hosts ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "host", ["localhost", "LocalHost", "127.0.0.1", "127.255.0.9", "::1", "[::1]", "::ffff:127.0.0.1", "0:0::1"]
)
def test_localhost_and_literal_loopback_addresses_are_loopback(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize(
    "host",
    [
        "", "x.localhost", "localhost.", "localhost.localdomain", "127.1", "127.0.0.1.", "0x7f000001", "2130706433",
        "127.0.0.01", "0.0.0.0", "::", "::2", "::1%lo", "[::1%lo]", "[127.0.0.1]", "[localhost]", "::ffff:10.0.0.1",
        "127.0.0.1.example", "10.0.0.1", "ip6-localhost", "\u0661\u0662\u0667.0.0.1", "\uff4cocalhost", " localhost",
    ],
)  # fmt: skip
def test_no_other_host_is_loopback(host: str) -> None:
    assert not is_loopback(host)


@pytest.mark.parametrize(
    ("url", "leaves"),
    [
        ("http://localhost:1/v1", False),
        ("http://[::1]:1", False),
        ("http://me:pw@127.0.0.1/v1", False),
        ("http://api.localhost", True),
        ("http://127.1/", True),
        ("http://localhost./", True),
        ("https://127.0.0.1@db.example/", True),
        ("https://127.0.0.1\\@db.example/", True),
        ("https://127.0.0.1.example/", True),
        ("https://10.0.0.1", True),
        ("http://", True),
        ("http://[::1", True),
        ("postgresql:///x", False),
        ("postgresql://me:pw@/x", False),
        ("postgresql://me:127.0.0.1@db.example/x", True),
        ("postgresql://me@127.0.0.1:5432/x", False),
        ("postgresql://[::1]:5432,localhost/x", False),
        ("postgresql://%2Fvar%2Frun%2Fpostgresql/x", False),
        ("postgresql://%40abstract/x", False),
        ("postgresql://me@127.0.0.1,db.example/x", True),
        ("postgresql://me@,db.example/x", True),
        ("postgresql://127.0.0.1/x?host=db.example", True),
        ("postgresql://127.0.0.1/x?host=/var/run,127.0.0.1", False),
        ("postgresql://127.0.0.1/x?host=/var/run,db.example", True),
        ("postgresql://127.0.0.1/x?%68ost=db.example", True),
        ("postgresql://localhost/x?hostaddr=10.0.0.1", True),
        ("postgresql://localhost/x?hostaddr=127.0.0.1", False),
        ("postgres:///x?service=theirs", True),
        ("postgres:///x?servicefile=theirs", True),
        ("postgresql:///x?dbname=host%3Ddb.example", True),
        ("postgresql:///x?dbname=postgresql://db.example", True),
        ("postgresql:///x?dbname=chats", False),
        ("postgresql://localhost/x?host=", False),
        ("postgresql:///x?require_auth=password&passfile=/home/me/.pgpass&sslkey=/home/me/key", False),
        ("postgresql://db.example/x?require_auth=none", True),
    ],
)
def test_a_url_is_parsed_as_its_client_parses_it(url: str, leaves: bool) -> None:
    assert is_remote_url(url) is leaves


def test_a_relative_path_setting_starts_at_its_file() -> None:
    assert make_settings(project='[serve]\nkeys_file = "keys"').serve.keys_file == Path("/home/me/work/keys")
