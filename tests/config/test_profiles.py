"""Profiles: the chosen [profiles.NAME] overrides the other settings of the files."""

import pytest

from convo.config.loader import SettingFlags
from convo.config.values import Layer
from convo.errors import InvalidSettings
from tests.config.settings_inputs import USER, WORK, make_settings

TWO = """
model = "openai/plain"
profile = "home"
[profiles.work]
model = "openai/at-work"
tenant = "office"
[profiles.work.providers.groq]
api = "chat"
base_url = "https://work/v1"
[profiles.home]
model = "openai/at-home"
"""


@pytest.mark.parametrize(
    ("flags", "environ", "model"),
    [
        (SettingFlags(profile="work"), {"CONVO_PROFILE": "home"}, "openai/at-work"),
        (SettingFlags(), {"CONVO_PROFILE": "work"}, "openai/at-work"),
        (SettingFlags(), {}, "openai/at-home"),
        (SettingFlags(profile="work", model="openai/said"), {}, "openai/said"),
        (SettingFlags(profile="work"), {"CONVO_MODEL": "openai/said"}, "openai/said"),
    ],
    ids=["flag", "variable", "file", "a-flag-wins", "a-variable-wins"],
)
def test_the_chosen_profile_overrides_the_files(flags: SettingFlags, environ: dict[str, str], model: str) -> None:
    assert make_settings(flags, environ, user=TWO).model == model


def test_settings_that_a_profile_lacks_come_from_the_files() -> None:
    got = make_settings(SettingFlags(profile="home"), project='tenant = "all"', user=TWO)
    assert (got.model, got.tenant) == ("openai/at-home", "all")
    assert "groq" not in got.providers


def test_the_source_of_a_profile_value_is_the_profile() -> None:
    origin = make_settings(SettingFlags(profile="work"), user=TWO).get_source("model")
    assert (origin.layer, origin.location) == (Layer.PROFILE, str(USER / "config.toml"))
    assert str(origin) == f"from profile work in config.toml, {USER}"


def test_a_profile_may_be_in_both_files_and_the_project_wins() -> None:
    project = '[profiles.work]\nmodel = "openai/here"\n'
    got = make_settings(SettingFlags(profile="work"), project=project, user=TWO)
    assert (got.model, got.tenant) == ("openai/here", "office")
    assert got.get_source("model").folder == WORK


def test_an_unknown_profile_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(SettingFlags(profile="wrok"), user=TWO)
    assert error.value.message == "--profile: no profile 'wrok'; did you mean 'work'?"
    assert error.value.hint == "add [profiles.wrok] to config.toml"
    with pytest.raises(InvalidSettings) as error_without_match:
        make_settings(SettingFlags(profile="zzz"), user=TWO)
    assert error_without_match.value.message == "--profile: no profile 'zzz'; known profiles: home, work"
    with pytest.raises(InvalidSettings) as error_without_profiles:
        make_settings(environ={"CONVO_PROFILE": "work"})
    assert error_without_profiles.value.message == "CONVO_PROFILE: no profile 'work'; known profiles: none"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[profiles.work]\nmodl = "x"', "no setting 'profiles.work.modl'; did you mean 'model'?"),
        ('[profiles.work]\ntenant = "/"', "'profiles.work.tenant' must be a key name"),
        ('[profiles.work]\nprofile = "home"', "no setting 'profiles.work.profile'"),
        ("[profiles]\nwork = 1", "'profiles.work' must be a table, not a whole number"),
    ],
)
def test_a_profile_is_validated_whether_chosen_or_not(text: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(user=text)
    assert message in error.value.message
