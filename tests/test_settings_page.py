"""The page of settings: it is up to date, and its commands and its TOML are accepted and mean the same."""

import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest

from convo.config.editor import parse_setting_key
from convo.config.paths import AppPaths
from convo.config.values import AtomicTable, SettingRow, format_setting_key
from convo.errors import InvalidSettings
from tests.command_runner import ROOT, Convo
from tests.config.settings_inputs import make_settings
from tests.docs.settings import PAGE, example_key, page, walk_schema

EXAMPLE = re.compile(r"^```sh\n(.*?)^```\n\n^```toml\n(.*?)^```$", re.DOTALL | re.MULTILINE)

EXAMPLES = EXAMPLE.findall(PAGE.read_text(encoding="utf-8")) if PAGE.exists() else []


def test_the_page_is_up_to_date() -> None:
    """To update the page: python -m tests.docs.settings > .github/SETTINGS.md"""
    assert PAGE.read_text(encoding="utf-8") == page()
    assert ".github/SETTINGS.md" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(("commands", "toml"), EXAMPLES, ids=[toml.split("\n")[0] for _, toml in EXAMPLES])
def test_the_commands_of_the_page_write_its_toml(commands: str, toml: str, convo: Convo, home: Path) -> None:
    file = AppPaths.from_environ({"CONVO_HOME": str(home)}).settings_file
    for command in commands.splitlines():
        result = convo(*shlex.split(command)[1:])
        assert result.exit == 0, result
    assert file.read_text(encoding="utf-8") == toml


@pytest.mark.parametrize("toml", [toml for _, toml in EXAMPLES], ids=[toml.split("\n")[0] for _, toml in EXAMPLES])
def test_the_loader_uses_every_value_of_the_toml(toml: str, convo: Convo, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(toml, encoding="utf-8")
    result = convo("--config", str(file), "config", "--json")
    assert result.exit == 0, result
    used = {entry["key"] for entry in json.loads(result.out) if entry["layer"] in ("user", "profile")}
    assert used >= set(leaf_keys(tomllib.loads(toml), ""))


GUIDES = "".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", ".github/GATEWAY.md"))
GUIDE_TOML = [
    *re.findall(r"^```toml\n(.*?)^```$", GUIDES, re.DOTALL | re.MULTILINE),
    *re.findall(r"`([a-z_.]+ = [^`]+)`", GUIDES),
]


@pytest.mark.parametrize("toml", GUIDE_TOML, ids=[toml.split("\n")[0] for toml in GUIDE_TOML])
def test_the_settings_in_the_readme_and_the_gateway_page_are_accepted(toml: str, convo: Convo, tmp_path: Path) -> None:
    file = tmp_path / "settings.toml"
    file.write_text(toml, encoding="utf-8")
    result = convo("--config", str(file), "config")
    assert result.exit == 0, result


def test_every_setting_has_an_example() -> None:
    without = [key for key, row in walk_schema() if isinstance(row, SettingRow) and row.example is None]
    assert without == [
        "mcp.NAME.command",
        "mcp.NAME.env",
        "profile",
    ]  # not with a URL, which the example has; in that of profiles


def leaf_keys(table: dict[str, object], prefix: str) -> list[str]:
    """The names in a document as `convo config` prints them; a table that is one value has one name."""
    keys = []
    for name, value in table.items():
        key = f"{prefix}{format_setting_key((name,))}"
        is_one_value = key == "state_storage" or prefix in ("prices.", "windows.", "mcp.", "serve.limits.keys.")
        keys += leaf_keys(value, f"{key}.") if isinstance(value, dict) and not is_one_value else [key]
    return [key.removeprefix("profiles.work.") for key in keys]


ATOMIC_TABLES = [example_key(key) for key, schema in walk_schema() if isinstance(schema, AtomicTable)]


@pytest.mark.parametrize("key", ATOMIC_TABLES)
def test_a_number_for_a_table_is_refused_with_a_table_that_is_accepted(key: str, convo: Convo) -> None:
    refused = convo("config", "set", key, "3")
    assert refused.exit == 2
    hint = refused.err.splitlines()[1].removeprefix("  try: write an inline table: ")
    assert convo("config", "set", key, *shlex.split(hint)).exit == 0


def test_every_table_of_the_page_has_an_example() -> None:
    assert len(EXAMPLES) == PAGE.read_text(encoding="utf-8").count("\n## ")


ROWS = re.findall(r"^\| `([^`]+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def values_at_the_limits(words: str) -> tuple[list[str], list[str]]:
    """The values in TOML that the page names as limits, and the next ones, which are outside of them."""
    if match := re.match(r"whole number, (\d+)(?: to (\d+)| or more)", words):
        limits = [text for text in match.groups() if text]
        return limits, [str(int(limits[0]) - 1), *(str(int(text) + 1) for text in limits[1:]), "1.5", "true"]
    if match := re.match(r"number, 0 to (\d+)", words):
        return ["0", match[1]], ["-0.1", f"{match[1]}.1", '"1"']
    if words.startswith("number above 0"):
        return ["0.001", "86400"], ["0", "86401", "nan", "true"]
    if words == "`true` or `false`":
        return ["true", "false"], ["1", '"true"']
    choices = re.findall("`([^`]+)`", words) if words.startswith("text: `") else []
    return [f'"{word}"' for word in choices], ['"zzz"', "1"] if choices else []


LIMITS = [
    (name, *limits)
    for name, limits in ((parse_setting_key(example_key(key)), values_at_the_limits(words)) for key, words, _ in ROWS)
    if limits[0] and name[0] not in ("state_storage", "prices", "windows", "mcp")  # tables that are one value
]


@pytest.mark.parametrize(("name", "accepted", "refused"), LIMITS, ids=[".".join(name) for name, *_ in LIMITS])
def test_values_at_the_limits_of_the_page_are_accepted_and_the_next_ones_are_refused(
    name: tuple[str, ...], accepted: list[str], refused: list[str]
) -> None:
    key = format_setting_key(name)
    provider = "" if name[-1] == "api" else 'providers.mine.api = "chat"\n'
    for text in accepted:
        make_settings(user=f"{provider}{key} = {text}")
    for text in refused:
        with pytest.raises(InvalidSettings, match=re.escape(f"'{key}' must be ")):
            make_settings(user=f"{provider}{key} = {text}")


def test_the_defaults_of_the_page_are_those_of_the_program(convo: Convo) -> None:
    values = {key: match[1] for key, _, default in ROWS if (match := re.match(r"`([^`]+)`(?: \(|$)", default))}
    defaults = {key: tomllib.loads(f"value = {values[key]}")["value"] for key in values if key == key.lower()}
    found = {entry["key"]: entry["value"] for entry in convo("config", "--json").json() if entry["layer"] == "default"}
    assert {key: found[key] for key in found if not key.startswith("providers.")} == defaults | {
        key: found[key] for key in ("model", "state_storage")
    }
