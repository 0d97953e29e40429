"""`convo config`: settings with their sources, changes of the settings file, and stored keys."""

import io
import os
import shlex
import stat
import sys
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from keyring.backends.null import Keyring as DisabledKeyring

from convo.cli.config import SettingsTarget, write_settings
from convo.config.editor import parse_setting_key
from tests.cli.agent_files import REFUND, agent_flags
from tests.cli.chat_commands import scripted_flags
from tests.command_runner import Convo, write_project_file
from tests.config.keyrings import MemoryKeyring, memory_keyring, no_keyring, use_keyring
from tests.terminal.pty_process import wait_for_end

COMMENTED = """\
# what I use
model = "openai/gpt-5"   # the good one

[providers.groq]         # fast
api = "chat"
base_url = "https://groq.example/v1"

# an odd one
[aliases]
fast = "groq/llama"
"""

KEY = "sk-abcdefghijklmnopqrstuvwxyz0123456789"


@pytest.fixture
def config_file(home: Path) -> Path:
    """The user's settings file, with comments."""
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(COMMENTED)
    return path


def value_sources(convo: Convo, *argv: str) -> dict[str, tuple[object, str, str]]:
    return {one["key"]: (one["value"], one["layer"], one["place"]) for one in list_settings(convo, *argv)}


def list_settings(convo: Convo, *argv: str) -> list[dict[str, Any]]:
    got = convo(*argv, "config", "--json")
    assert got.exit == 0, got
    rows: list[dict[str, Any]] = got.json()
    return rows


# -- listing settings ------------------------------------------------------------------------------


def test_the_limits_of_one_key_are_shown_with_their_names(convo: Convo, config_file: Path) -> None:
    config_file.write_text(
        "[serve.limits.keys]\nalice.per_minute = 600\nbob = {concurrent = 2, per_minute = 9}\ncarol = {}\n"
    )
    limits = {key: value for key, (value, _, _) in value_sources(convo).items() if key.startswith("serve.limits.keys")}
    assert limits == {
        "serve.limits.keys.alice": "per_minute 600",
        "serve.limits.keys.bob": "concurrent 2, per_minute 9",
        "serve.limits.keys.carol": "the limits of all keys",
    }


def test_every_value_is_shown_with_its_source(convo: Convo, config_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_project_file("[serve]\nport = 9000\n[profiles.work]\ncompact_at = 0\n")
    monkeypatch.setenv("CONVO_TENANT", "alice")
    sources = value_sources(convo, "--profile", "work")
    assert sources["model"] == ("openai/gpt-5", "user", str(config_file))
    assert sources["serve.port"] == (9000, "project", str(Path(".convo.toml").absolute()))
    assert sources["compact_at"] == (0.0, "profile", str(Path(".convo.toml").absolute()))
    assert sources["tenant"] == ("alice", "environment", "CONVO_TENANT")
    assert sources["profile"] == ("work", "flag", "--profile")
    assert sources["serve.host"] == ("127.0.0.1", "default", "built in")


def test_each_value_is_printed_on_a_line(convo: Convo, config_file: Path) -> None:
    got = convo("config", "list", "aliases")
    assert (
        got.out
        == f"setting       value       source\naliases.fast  groq/llama  from config.toml, {config_file.parent}\n"
    )
    assert convo("config").out.splitlines()[0].split() == ["setting", "value", "source"]
    missing = convo("config", "list", "redact")
    assert (missing.exit, missing.err) == (5, "convo: no value for 'redact'\n  try: convo config set redact VALUE\n")


def test_a_password_is_not_shown(convo: Convo, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_STORE", "postgresql://me:hunter2@db/convo")
    for argv in (["config"], ["config", "--json"]):
        got = convo(*argv)
        assert "postgresql://me" in got.out
        assert "hunter2" not in got.out + got.err


# -- changing settings -----------------------------------------------------------------------------


def test_setting_a_value_keeps_the_rest_of_the_file_unchanged(convo: Convo, config_file: Path) -> None:
    got = convo("config", "set", "model", "fast")
    assert (got.exit, got.out, got.err) == (0, "", f"set model to fast in {config_file}\n")
    assert config_file.read_text() == COMMENTED.replace("openai/gpt-5", "fast")
    assert convo("config", "unset", "model").exit == 0
    assert config_file.read_text() == COMMENTED.replace('model = "openai/gpt-5"   # the good one\n', "")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("serve.port", "9000", 9000),
        ("compact_at", "0.5", 0.5),
        ("providers.groq.keyring", "true", True),
        ("redact", '["a+", "b"]', ["a+", "b"]),
        ("tenant", "12", "12"),
        ("serve.host", "true.example", "true.example"),
        ('prices."openai/gpt-5"', "{ input = 1, output = 2.5 }", {"input": 1, "output": 2.5}),
        ('aliases."a.b"', "openai/x", "openai/x"),
    ],
)
def test_a_value_is_parsed_as_the_type_of_its_key(
    key: str, text: str, value: object, convo: Convo, config_file: Path
) -> None:
    got = convo("config", "set", key, text)
    assert got.exit == 0, got
    found: Any = tomllib.loads(config_file.read_text())
    for name in parse_setting_key(key):
        found = found[name]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "NEW"),
        ('model = "x"', 'model = "x"\nNEW'),
        ("# one\n\n# two\n[serve]\n", "# one\nNEW\n# two\n[serve]\n"),
        ("# two\n[serve]\n", "NEW\n# two\n[serve]\n"),
        ('model = "x" # one\n\n# two\n[serve]\n', 'model = "x" # one\nNEW\n# two\n[serve]\n'),
        ('redact = [\n  "a",\n]\n[serve]\n', 'redact = [\n  "a",\n]\nNEW[serve]\n'),
    ],
)
def test_a_new_value_keeps_each_comment_with_its_table(
    text: str, expected: str, convo: Convo, config_file: Path
) -> None:
    config_file.write_text(text)
    assert convo("config", "set", "tenant", "alice").exit == 0
    assert config_file.read_text() == expected.replace("NEW", 'tenant = "alice"\n')


@pytest.mark.parametrize(
    "text",
    [
        'aliases = { fast = "a/b" }\n',
        'aliases.fast = "a/b"\n',
        'providers = { groq = { api = "chat" } }\n',
        "\n\n",
        "# no\r\n",
    ],
)
def test_a_value_is_added_to_a_table_in_any_toml_notation(text: str, convo: Convo, config_file: Path) -> None:
    config_file.write_bytes(text.encode())
    before = tomllib.loads(text)
    for key, value in (("aliases.slow", "c/d"), ("providers.mine.api", "chat"), ("providers.mine.key_env", "MINE")):
        assert convo("config", "set", key, value).exit == 0
    after = tomllib.loads(config_file.read_text())
    assert after["aliases"] == before.get("aliases", {}) | {"slow": "c/d"}
    assert after["providers"] == before.get("providers", {}) | {"mine": {"api": "chat", "key_env": "MINE"}}


def test_a_setting_without_a_value_is_not_found_and_the_hint_sets_it(convo: Convo, home: Path) -> None:
    for key, hint in (
        ("prices", """convo config set 'prices."provider/model"' '{ input = 0.25, output = 2 }'"""),
        ('windows."a/b"', """convo config set 'windows."a/b"' '{ context = 128000, output = 16000 }'"""),
        ("profile", "convo config set profile VALUE"),
        ("xyzzy", "convo config"),
    ):
        got = convo("config", "list", key)
        assert (got.exit, got.err.splitlines()[1]) == (5, f"  try: {hint}")


def test_a_table_that_is_set_is_printed_as_toml(convo: Convo, config_file: Path) -> None:
    table = '{ type = "sqlite", ttls = { alice = "30d" } }'
    got = convo("config", "set", "state_storage", table)
    assert got.exit == 0, got
    assert f'set state_storage to {{type = "sqlite", ttls = {{alice = "30d"}}}} in {config_file}' in got.err


def test_a_new_settings_file_is_readable_only_by_its_owner(convo: Convo, home: Path) -> None:
    assert convo("config", "set", "tenant", "alice").exit == 0
    path = home / "config" / "config.toml"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert path.read_text() == 'tenant = "alice"\n'
    assert [one.name for one in path.parent.iterdir()] == ["config.toml"]


def test_the_projects_file_and_a_profile_can_be_written(convo: Convo, home: Path) -> None:
    assert convo("config", "set", "--project", "model", "local").exit == 0
    assert Path(".convo.toml").read_text() == 'model = "local"\n'
    assert convo("--profile", "work", "config", "set", "tenant", "office").exit == 0
    assert (home / "config" / "config.toml").read_text() == '[profiles.work]\ntenant = "office"\n'
    assert value_sources(convo, "--profile", "work")["tenant"][0] == "office"
    assert convo("config", "path", "--project").out == f"{Path('.convo.toml').absolute()}\n"
    assert convo("config", "path").out == f"{home / 'config' / 'config.toml'}\n"


def test_a_suggested_command_contains_the_profile(convo: Convo) -> None:
    write_project_file('[profiles.work]\ntenant = "office"\n')
    got = convo("--profile", "work", "chat", *agent_flags(), *scripted_flags(REFUND), "-n", "mine", "pay A1 back")
    assert "to decide and resume: convo --profile work resume mine --agent bot.py:desk --approve c1" in got.err
    assert [one["name"] for one in convo("--profile", "work", "sessions", "--json").json()] == ["mine"]
    assert convo("sessions", "--json").json() == []


def test_set_names_the_source_that_overrides_the_new_value(
    convo: Convo, config_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CONVO_MODEL", "openai/other")
    got = convo("config", "set", "model", "fast")
    assert got.err.splitlines()[1] == "CONVO_MODEL overrides this value"


@pytest.mark.parametrize(
    ("argv", "exit_code", "message"),
    [
        (
            ["set", "modle", "x"],
            2,
            "config set: no setting 'modle'; did you mean 'model'?\n  try: convo config set model VALUE\n",
        ),
        (
            ["set", "serve.prot", "1"],
            2,
            "config set: no setting 'serve.prot'; did you mean 'port'?\n  try: convo config set serve.port VALUE\n",
        ),
        (
            ["set", "nosuch", "1"],
            2,
            "config set: no setting 'nosuch'; known settings: model, tenant, compact_at, editing",
        ),
        (
            ["set", "serve.port", "many"],
            2,
            "config set: 'serve.port' must be a whole number, not a string\n  try: convo config list serve.port\n",
        ),
        (
            ["set", "editing", "vim"],
            2,
            "config set: 'editing' must be one of emacs, vi, plain\n  try: convo config list editing\n",
        ),
        (["set", "providers.groq.kee", KEY], 2, "config set: no setting 'providers.groq.kee'; "),
        (["list", "modle"], 5, "no value for 'modle'; did you mean 'model'?\n  try: convo config\n"),
        (["set", "serve.port", "99999"], 2, "config set: 'serve.port' must be a port from 0"),
        (["set", "serve", "x"], 2, "'serve' is a table of several settings"),
        (["set", "model.x", "y"], 2, "config set: 'model' is one value, not a table"),
        (["set", "a b", "x"], 2, "'a b' is not the name of a setting"),
        (["set", "aliases.slow", "\udc80"], 2, "{own}, line 11: is not UTF-8"),
        (["set", 'model = "x"\ntenant', "x"], 2, "'model = "),
        (["set", 'prices."a/b"', "3"], 2, "config set: 'prices.\"a/b\"' has several fields"),
        (["set", "providers.mine.base_url", "http://x"], 2, "{own}: 'mine' is not a known provider"),
        (["set", "providers.groq.key_env", KEY], 2, "config set: 'providers.groq.key_env' must be the name of"),
        (["set", "providers.groq.api_key", KEY], 2, "config set: no setting 'providers.groq.api_key'; did you mean"),
        (["unset", "providers.groq.api"], 2, "{own}: 'groq' is not a known provider"),
        (["unset", "tenant"], 5, "no value in {own} for 'tenant'"),
        (["unset", "aliases.slow.x"], 5, "no value in {own} for 'aliases.slow.x'"),
    ],
)
def test_an_invalid_change_is_refused_and_the_file_stays_unchanged(
    argv: list[str], exit_code: int, message: str, convo: Convo, config_file: Path
) -> None:
    got = convo("config", *argv)
    assert (got.exit, got.out) == (exit_code, "")
    assert got.err.startswith(f"convo: {message.format(own=config_file)}"), got.err
    assert KEY not in got.err
    assert config_file.read_text() == COMMENTED


def test_the_suggested_folder_setting_works(convo: Convo, config_file: Path) -> None:
    refused = convo("config", "set", "trusted", "work")
    assert refused.err.startswith("convo: config set: 'trusted' must be an array of absolute folder paths")
    argv = shlex.split(refused.err.partition("  try: convo ")[2])
    assert convo(*argv).exit == 0
    assert 'trusted = ["/home/you/work"]' in config_file.read_text()


def test_an_unknown_setting_without_a_similar_name_is_refused_with_all_names(convo: Convo, config_file: Path) -> None:
    assert convo("config", "set", "nosuch", "1").err.endswith(
        "trusted, profile, profiles\n  try: convo config set model VALUE, or another of these settings\n"
    )


def test_an_invalid_settings_file_can_be_fixed_with_config_set(convo: Convo, config_file: Path) -> None:
    config_file.write_text('modle = "x"\ntenant = "/"\n')
    assert convo("config").exit == 2
    assert convo("config", "unset", "modle").exit == 0
    assert convo("config", "set", "tenant", "alice").exit == 0
    assert config_file.read_text() == 'tenant = "alice"\n'
    config_file.write_text("no toml")
    assert convo("config", "set", "tenant", "bob").exit == 2
    assert config_file.read_text() == "no toml"


def test_concurrent_writers_of_settings_do_not_overwrite_each_other(config_file: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(
            pool.map(
                lambda number: write_settings(SettingsTarget(config_file), {f"aliases.a{number}": "a/b"}), range(8)
            )
        )
    assert {f"a{number}" for number in range(8)} < set(tomllib.loads(config_file.read_text())["aliases"])


def test_an_endless_file_or_a_pipe_is_refused_as_settings_and_as_a_key(convo: Convo, home: Path) -> None:
    got = convo("--config", "/dev/zero", "config")
    assert (got.exit, got.err.partition("\n")[0]) == (
        2,
        "convo: /dev/zero: is larger than 4 MB, the limit of a settings file",
    )
    os.mkfifo("key")
    Path("mine.toml").write_text('[providers.openai]\nkey_file = "key"\n')
    got = convo("--config", "mine.toml", "chat", "-m", "openai/gpt-5", "hi")
    assert got.exit == 2
    assert got.err.startswith("convo: the key of openai cannot be read: ")
    assert "key is not a file\n" in got.err


# -- keys ------------------------------------------------------------------------------------------


@pytest.fixture
def keyring() -> Iterator[MemoryKeyring]:
    with memory_keyring() as one:
        yield one


def test_a_key_is_stored_in_the_keyring_and_removed_from_it(
    convo: Convo, keyring: MemoryKeyring, config_file: Path
) -> None:
    got = convo("config", "key", "set", "openai", stdin=f"{KEY}\n")
    assert (got.exit, got.out, got.err) == (0, "", "stored the key of openai in the keyring\n")
    assert keyring.passwords == {("convo", "OPENAI_API_KEY"): KEY}
    assert config_file.read_text() == COMMENTED + "\n[providers.openai]\nkeyring = true\n"
    provider = next(one for one in convo("models", "--json").json()["providers"] if one["name"] == "openai")
    assert (provider["key"], provider["set_up"]) == ("set", True)
    assert KEY not in convo("config").out + convo("models").out + convo("doctor", "keys").out
    assert convo("config", "key", "unset", "openai").exit == 0
    assert (keyring.passwords, config_file.read_text().strip()) == ({}, COMMENTED.strip())


def test_the_location_of_each_key_is_shown_without_the_key(
    convo: Convo, keyring: MemoryKeyring, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    convo("config", "key", "set", "openai", stdin=KEY)
    convo("config", "key", "set", "anthropic", "--file", stdin=KEY)
    monkeypatch.setenv("DEEPSEEK_API_KEY", KEY)
    rows = dict(line.split(maxsplit=1) for line in convo("config", "key", "show").out.splitlines())
    assert (rows["openai"], rows["anthropic"], rows["deepseek"], rows["azure"]) == (
        "the keyring tests.config.keyrings.MemoryKeyring",
        f"the file {home / 'config' / 'provider-keys' / 'ANTHROPIC_API_KEY.key'}",
        "the variable DEEPSEEK_API_KEY",
        "not set",
    )
    assert {rows[name] for name in ("local", "ollama", "scripted")} == {"needs no key"}
    keys = {key["provider"]: key["needs_key"] for key in convo("config", "key", "show", "--json").json()}
    assert (keys["azure"], keys["openai"], keys["ollama"]) == (True, True, False)
    one = convo("config", "key", "show", "opnai")
    assert (one.exit, one.err) == (5, "convo: no provider 'opnai'\n  try: convo config key show openai\n")
    assert keyring.reads == 0


def test_a_disabled_keyring_is_refused_before_the_key_is_asked(convo: Convo) -> None:
    with use_keyring(DisabledKeyring()):  # type: ignore[no-untyped-call]
        got = convo("config", "key", "set", "openai", stdin=KEY)
    assert (got.exit, got.err.splitlines()[0]) == (2, "convo: this machine has no keyring")


def test_a_key_file_is_readable_only_by_its_owner_and_is_used(convo: Convo, home: Path) -> None:
    got = convo("config", "key", "set", "openai", "--file", stdin=KEY)
    path = home / "config" / "provider-keys" / "OPENAI_API_KEY.key"
    assert (got.exit, got.err) == (0, f"stored the key of openai in {path}\n")
    assert (path.read_text(), stat.S_IMODE(path.stat().st_mode)) == (f"{KEY}\n", 0o600)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert value_sources(convo)["model"][0] == "openai/gpt-6.1-terra"
    assert convo("config", "key", "unset", "openai").exit == 0
    assert not path.exists()
    assert value_sources(convo)["model"][0] != "openai/gpt-6.1-terra"


@pytest.mark.parametrize(
    ("argv", "stdin", "exit_code", "message"),
    [
        (["set", "opnai"], KEY, 5, "no provider 'opnai'\n  try: convo config key set openai"),
        (
            ["set", "openai"],
            "",
            2,
            "no key was entered\n  try: convo config key set openai < FILE, with the key in its first line\n",
        ),
        (["set", "openai"], "sk-1 sk-2", 2, "the key contains a space or a character that is not printable ASCII"),
        (["unset", "openai"], "", 5, "no stored key for 'openai'\n  try: convo config key show\n"),
    ],
)
def test_an_invalid_key_is_refused(
    argv: list[str], stdin: str, exit_code: int, message: str, convo: Convo, keyring: MemoryKeyring, home: Path
) -> None:
    got = convo("config", "key", *argv, stdin=stdin)
    assert got.exit == exit_code
    assert got.err.startswith(f"convo: {message}"), got.err
    assert (keyring.passwords, home.exists()) == ({}, False)


@pytest.mark.parametrize("stdin", [KEY, ""])
def test_without_a_keyring_a_key_file_is_suggested_before_a_key_is_read(stdin: str, convo: Convo, home: Path) -> None:
    with no_keyring():
        got = convo("config", "key", "set", "openai", stdin=stdin)
    assert got.exit == 2
    assert got.err.splitlines()[0] == "convo: this machine has no keyring"
    assert "pass --file to store it in a file that only you can read" in got.err
    assert KEY not in got.err
    assert not home.exists()


@pytest.mark.needs("terminal")
def test_a_typed_key_is_not_shown(home: Path) -> None:
    import pexpect

    terminal: Any = pexpect.spawn(
        sys.executable, ["-m", "convo", "config", "key", "set", "openai", "--file"], encoding="utf-8", timeout=30
    )
    screen = io.StringIO()
    terminal.logfile_read = screen
    terminal.expect_exact("key of openai (input hidden): ")
    terminal.sendline(KEY)
    terminal.expect(pexpect.EOF)
    assert wait_for_end(terminal) == 0
    assert KEY not in screen.getvalue()
    assert (home / "config" / "provider-keys" / "OPENAI_API_KEY.key").read_text() == f"{KEY}\n"


@pytest.mark.parametrize(
    ("key", "value", "hint"),
    [
        ('windows."a/b"', "3", "write an inline table: '{ context = 128000, output = 16000 }'"),
        ('prices."a/b"', "3", "write an inline table: '{ input = 0.25, output = 2 }'"),
        ("serve.limits.keys.bob", "3", "write an inline table: '{ concurrent = 5, per_minute = 60 }'"),
        ("prices", "3", "convo config set 'prices.\"provider/model\"' '{ input = 0.25, output = 2 }'"),
        ("windows", "3", "convo config set 'windows.\"provider/model\"' '{ context = 128000, output = 16000 }'"),
        ("serve.limits.keys", "3", "convo config set serve.limits.keys.alice '{ concurrent = 5, per_minute = 60 }'"),
        ("serve", "3", "convo config set serve.host VALUE, or another of its settings"),
        ("aliases", "3", "convo config set aliases.NAME VALUE"),
        ("providers", "3", "convo config set providers.NAME.api VALUE"),
        ("windows.a/b.context", "3", "convo config set 'windows.\"a/b\"' '{ context = 128000, output = 16000 }'"),
        ("prices.a/b3.2", "3", "convo config set 'prices.\"a/b3.2\"' '{ input = 0.25, output = 2 }'"),
        ("reasoning_effort", "low", "convo config set request.reasoning_effort VALUE"),
        ("effort", "low", "convo config set request.reasoning_effort VALUE"),
        ("aliases.a b", "c/d", "quote a name that has special characters: 'aliases.\"a b\"'"),
        ("providers.groq.api_key", KEY, "convo config key set groq"),
        ("api_key", KEY, "convo config key set PROVIDER"),
        ("no such thing", "3", "quote a name that has special characters: 'prices.\"openai/gpt-6.1-terra\"'"),
    ],
)
def test_a_suggestion_names_the_intended_table(key: str, value: str, hint: str, convo: Convo, home: Path) -> None:
    got = convo("config", "set", key, value)
    assert (got.exit, got.err.splitlines()[1]) == (2, f"  try: {hint}")


@pytest.mark.parametrize(
    ("name", "value", "problem"),
    [
        ('prices."ollama/llama3.2"', "{ inptu = 0.25, output = 2 }", "did you mean 'input'?"),
        ('windows."ollama/llama3.2"', '{ context = "8k" }', "must be"),
    ],
)
def test_an_invalid_field_of_a_table_is_an_error_of_the_command_and_not_of_the_file(
    convo: Convo, name: str, value: str, problem: str
) -> None:
    got = convo("config", "set", name, value)
    assert got.exit != 0
    assert ("config set: " in got.err, problem in got.err, "config.toml" in got.err) == (True, True, False)
    assert f"try: convo config set '{name}' '{{ " in got.err


def test_a_mistyped_provider_keeps_the_option_of_the_command_in_the_hint(convo: Convo) -> None:
    assert "try: convo config key set openai --file\n" in convo("config", "key", "set", "opnai", "--file").err
    assert "try: convo config key unset openai\n" in convo("config", "key", "unset", "opnai").err


def test_without_a_stored_key_a_variable_is_named_only_if_it_has_the_key(
    convo: Convo, keyring: MemoryKeyring, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    got = convo("config", "key", "unset", "openai")
    assert (got.exit, got.err) == (5, "convo: no stored key for 'openai'\n  try: unset OPENAI_API_KEY\n")


def test_an_empty_input_is_no_key_and_the_hint_keeps_the_option(convo: Convo, home: Path) -> None:
    got = convo("config", "key", "set", "openai", "--file", stdin="")
    hint = "convo config key set openai --file < FILE, with the key in its first line"
    assert (got.exit, got.err) == (2, f"convo: no key was entered\n  try: {hint}\n")
    assert not home.exists()


@pytest.mark.parametrize(
    ("name", "similar", "hint"),
    [
        ("modl", "model", "convo config"),
        ("limits.answer", "limits.answer_s", "convo config"),
        ("model", None, "convo config list model"),
        ("xyzzy", None, "convo config"),
        ("model.x", None, "convo config"),
    ],
)
def test_the_removal_of_a_value_that_is_not_set_names_a_similar_setting(
    name: str, similar: str | None, hint: str, convo: Convo
) -> None:
    got = convo("config", "unset", name)
    note = f"; did you mean {similar!r}?" if similar else ""
    assert got.exit == 5
    assert got.err.endswith(f"for {name!r}{note}\n  try: {hint}\n")
