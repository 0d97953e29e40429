"""A session's record overrides settings files, and an option or variable that contradicts it is refused."""

from typing import Any

import pytest

from convo.config.loader import RecordedEndpoint, SettingFlags, choose_model
from convo.config.sections import Provider
from convo.config.settings import ModelChoice
from convo.errors import WrongOwner
from tests.config.settings_inputs import make_settings

KNOWN = make_settings().providers
OPENAI = "https://api.openai.com/v1"
REMOTE = RecordedEndpoint("tuesday", "openai/gpt-5", OPENAI)
SCOPED = RecordedEndpoint("tuesday", "openai/gpt-5", OPENAI, "org_1", "proj_1")
EMBEDDED = RecordedEndpoint("tuesday", "deepseek/chat")


def choose_recorded(record: RecordedEndpoint, **settings: Any) -> ModelChoice:
    return choose_model(make_settings(record=record, **settings), record=record)


@pytest.mark.parametrize("record", [REMOTE, EMBEDDED])
def test_settings_that_agree_with_the_record_change_nothing(record: RecordedEndpoint) -> None:
    settings = make_settings(record=record)
    assert choose_model(settings, record=record) == choose_model(settings)


@pytest.mark.parametrize(
    ("record", "files", "provider"),
    [
        (
            REMOTE,
            {"project": '[providers.openai]\nbase_url = "https://proxy/v1"'},
            KNOWN["openai"],
        ),
        (
            REMOTE,
            {"user": '[providers.openai]\norganisation = "org_2"\nproject = "proj_2"'},
            KNOWN["openai"],
        ),
        (
            SCOPED,
            {},
            KNOWN["openai"]._replace(organisation="org_1", project="proj_1"),
        ),
        (
            REMOTE,
            {"user": '[providers.openai]\nowner = "convo"'},
            KNOWN["openai"],
        ),
        (
            RecordedEndpoint("tuesday", "openai/gpt-5", "embedded"),
            {},
            KNOWN["openai"]._replace(owner="convo"),
        ),
        (
            RecordedEndpoint("tuesday", "azure/gpt-5", "https://mine.openai.azure.com"),
            {},
            KNOWN["azure"]._replace(base_url="https://mine.openai.azure.com"),
        ),
        (
            REMOTE,
            {"project": 'model = "ollama/llama3"', "user": 'model = "deepseek/chat"'},
            KNOWN["openai"],
        ),
    ],
)
def test_the_record_overrides_settings_files(
    record: RecordedEndpoint, files: dict[str, str], provider: Provider
) -> None:
    assert choose_recorded(record, **files).provider == provider


def test_another_model_of_the_same_endpoint_is_no_contradiction() -> None:
    """The embedded endpoint serves the models of all providers that it can reach."""
    assert str(choose_recorded(EMBEDDED, flags=SettingFlags(model="ollama/llama3")).name) == "ollama/llama3"
    assert str(choose_recorded(REMOTE, flags=SettingFlags(model="openai/gpt-5-nano")).name) == "openai/gpt-5-nano"


def test_another_provider_at_the_same_url_is_no_contradiction() -> None:
    work = f'[providers.work]\napi = "responses"\nbase_url = "{OPENAI}/"\nkey_env = "WORK_KEY"'
    assert choose_recorded(REMOTE, flags=SettingFlags(model="work/gpt-5"), user=work).provider.name == "work"


def test_a_variable_does_not_move_a_provider_behind_the_embedded_endpoint() -> None:
    assert (
        choose_recorded(RecordedEndpoint("tuesday", "ollama/llama3"), environ={"OLLAMA_HOST": "box"}).provider.endpoint
        == "embedded"
    )


def test_a_variable_that_moves_the_provider_is_no_contradiction_behind_the_embedded_endpoint() -> None:
    """A record of the embedded endpoint does not contain the base URL of the provider."""
    provider = choose_recorded(
        RecordedEndpoint("tuesday", "openai/gpt-5"), environ={"OPENAI_BASE_URL": "https://proxy/v1"}
    ).provider
    assert (provider.endpoint, provider.base_url) == ("embedded", "https://proxy/v1")


def test_a_trailing_slash_of_the_recorded_url_is_ignored() -> None:
    slashed = REMOTE._replace(url=OPENAI + "/")
    assert choose_recorded(slashed, environ={"OPENAI_BASE_URL": OPENAI}).provider.base_url == OPENAI


REFUSED: list[tuple[RecordedEndpoint, dict[str, Any], str, str]] = [
    (
        REMOTE,
        {"environ": {"OPENAI_BASE_URL": "https://proxy/v1"}},
        f"session 'tuesday' is stored at {OPENAI}, but OPENAI_BASE_URL sets https://proxy/v1 for openai/gpt-5",
        "leave it out, or convo convert tuesday --to session",
    ),
    (
        REMOTE,
        {"environ": {"OPENAI_ORG_ID": "org_2"}},
        f"session 'tuesday' is stored at {OPENAI}, but OPENAI_ORG_ID sets {OPENAI} (org_2) for openai/gpt-5",
        "leave it out, or convo convert tuesday --to session",
    ),
    (
        SCOPED,
        {"environ": {"OPENAI_ORG_ID": "org_1", "OPENAI_PROJECT_ID": "proj_2"}},
        f"session 'tuesday' is stored at {OPENAI} (org_1, proj_1), "
        f"but OPENAI_PROJECT_ID sets {OPENAI} (org_1, proj_2) for openai/gpt-5",
        "leave it out, or convo convert tuesday --to session",
    ),
    (
        REMOTE,
        {"flags": SettingFlags(model="ollama/llama3")},
        f"session 'tuesday' is stored at {OPENAI}, but -m sets convo's own endpoint for ollama/llama3",
        "leave it out, or convo convert tuesday --to session",
    ),
    (
        REMOTE,
        {"environ": {"CONVO_MODEL": "deepseek/chat"}},
        f"session 'tuesday' is stored at {OPENAI}, but CONVO_MODEL sets convo's own endpoint for deepseek/chat",
        "leave it out, or convo convert tuesday --to session",
    ),
    (
        EMBEDDED,
        {"flags": SettingFlags(model="openai/gpt-5")},
        f"session 'tuesday' is stored at convo's own endpoint, but -m sets {OPENAI} for openai/gpt-5",
        "leave it out, or convo convert tuesday --to session",
    ),
    (
        RecordedEndpoint("tuesday", "groq/x", "https://groq/v1"),
        {"user": '[providers.groq]\napi = "chat"\nbase_url = "https://groq/v1"'},
        "session 'tuesday' is stored at https://groq/v1, "
        "but /home/me/.config/convo/config.toml sets convo's own endpoint for groq/x",
        "change it there, or convo convert tuesday --to session",
    ),
]


@pytest.mark.parametrize(("record", "settings", "message", "hint"), REFUSED)
def test_an_option_that_contradicts_the_record_is_refused(
    record: RecordedEndpoint, settings: dict[str, Any], message: str, hint: str
) -> None:
    with pytest.raises(WrongOwner) as error:
        choose_recorded(record, **settings)
    assert (error.value.message, error.value.hint, error.value.exit) == (message, hint, 2)


def test_a_model_typed_in_the_chat_must_stay_at_the_endpoint() -> None:
    with pytest.raises(WrongOwner) as error:
        choose_model(make_settings(record=REMOTE), "local", source="/model", record=REMOTE)
    assert error.value.message == (
        f"session 'tuesday' is stored at {OPENAI}, but /model sets convo's own endpoint for local/smollm2-135m-instruct"
    )


def test_an_error_about_a_moved_provider_names_the_file_and_not_the_model_variable() -> None:
    choice = choose_recorded(
        REMOTE,
        environ={"CONVO_MODEL": "openai/gpt-5"},
        project='[providers.openai]\nbase_url = "https://proxy/v1"',
    )
    assert choice.provider.base_url == OPENAI
