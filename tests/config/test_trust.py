"""A settings file that came with a clone gets no secret to a server that it names, until a person says so."""

from pathlib import Path

import pytest

from convo.config import Secret, key_of, token_of
from convo.config.trust import leaves_here
from convo.errors import BadSettings
from tests.config.given import WORK, settings

KEYS = {"OPENAI_API_KEY": "sk-1", "MINE": "sk-2", "AZURE_OPENAI_AD_TOKEN": "eyJ"}
THEIRS = 'base_url = "https://elsewhere.example/v1"\n'
HINT = f"""convo config set trusted '["{WORK}"]'"""


@pytest.mark.parametrize(
    ("name", "project"),
    [
        ("openai", f"[providers.openai]\n{THEIRS}"),
        ("mine", f'[providers.mine]\napi = "chat"\nkey_env = "MINE"\n{THEIRS}'),
        ("mine", f'[providers.mine]\napi = "chat"\nkey_file = "sec"\n{THEIRS}'),
        ("openai", f'profile = "p"\n[profiles.p.providers.openai]\n{THEIRS}'),
    ],
    ids=["a known provider", "a variable", "a file", "a profile"],
)
def test_a_server_that_a_projects_file_names_gets_no_key(name: str, project: str) -> None:
    with pytest.raises(BadSettings) as refused:
        key_of(settings(project=project).providers[name], KEYS)
    assert refused.value.message == (
        f"{WORK}/.convo.toml is not trusted to name the server that gets the key of {name},"
        " https://elsewhere.example/v1"
    )
    assert refused.value.hint == HINT


def test_nor_does_it_get_a_token() -> None:
    azure = settings(project=f"[providers.azure]\n{THEIRS}").providers["azure"]
    with pytest.raises(BadSettings):
        token_of(azure, KEYS)


@pytest.mark.parametrize("folder", [str(WORK), str(WORK.parent), "~", "~/work"])
def test_in_a_folder_that_is_trusted_it_does(folder: str) -> None:
    got = settings(project=f"[providers.openai]\n{THEIRS}", user=f'trusted = ["/opt", "{folder}"]')
    assert key_of(got.providers["openai"], KEYS) == Secret("sk-1")


@pytest.mark.parametrize("folder", ["/home/me/work/below", "/home/me/wor", "/opt"])
def test_a_folder_is_trusted_with_what_is_below_it_and_nothing_beside(folder: str) -> None:
    got = settings(project=f"[providers.openai]\n{THEIRS}", user=f'trusted = ["{folder}"]')
    with pytest.raises(BadSettings):
        key_of(got.providers["openai"], KEYS)


@pytest.mark.parametrize(
    "project",
    [
        '[providers.openai]\nbase_url = "http://127.0.0.1:9/v1"',
        '[providers.openai]\norganisation = "org-1"',
        'model = "openai/gpt-5"',
    ],
    ids=["on this machine", "no server named", "a model alone"],
)
def test_what_sends_a_key_nowhere_new_needs_no_trust(project: str) -> None:
    assert key_of(settings(project=project).providers["openai"], KEYS) == Secret("sk-1")


def test_a_server_that_the_person_names_gets_its_key() -> None:
    got = settings(project=f"[providers.openai]\n{THEIRS}", environ={"OPENAI_BASE_URL": "https://mine.example/v1"})
    assert key_of(got.providers["openai"], KEYS) == Secret("sk-1")
    got = settings(user=f"[providers.openai]\n{THEIRS}")
    assert key_of(got.providers["openai"], KEYS) == Secret("sk-1")


def test_a_provider_without_a_key_needs_no_trust() -> None:
    assert key_of(settings(project=f"[providers.openai]\n{THEIRS}").providers["openai"], {}) is None


def test_a_projects_file_cannot_trust_itself() -> None:
    with pytest.raises(BadSettings, match=r"\.convo\.toml: 'trusted' is said in a file of your own"):
        settings(project=f'trusted = ["{WORK}"]')


def test_a_variable_goes_to_no_database_that_a_projects_file_names() -> None:
    text = '[state_storage]\ntype = "postgres"\nconnection_string = "postgresql://me:$MINE@elsewhere.example/x"'
    with pytest.raises(BadSettings) as refused:
        settings(project=text, environ=KEYS)
    assert refused.value.message == (
        f"{WORK}/.convo.toml: 'state_storage.connection_string' would send variables to another machine,"
        " and this file is not trusted"
    )
    assert refused.value.hint == HINT
    assert settings(project=text.replace("elsewhere.example", "127.0.0.1"), environ=KEYS).storage.type == "postgres"
    assert settings(project=text, environ=KEYS, user=f'trusted = ["{WORK}"]').storage.type == "postgres"


def test_folders_are_written_whole() -> None:
    for value in ('"/home/me"', '["work"]', "[1]"):
        with pytest.raises(BadSettings, match="must be an array of folders with their whole paths"):
            settings(user=f"trusted = {value}")


@pytest.mark.parametrize(
    ("url", "leaves"),
    [
        ("http://localhost:1/v1", False),
        ("http://[::1]:1", False),
        ("http://api.localhost", False),
        ("postgresql:///x", False),
        ("postgresql://me@127.0.0.1,db.example/x", True),
        ("postgresql://127.0.0.1/x?host=db.example", True),
        ("postgresql://127.0.0.1/x?hostaddr=10.0.0.1", True),
        ("https://127.0.0.1@db.example/", True),
        ("https://127.0.0.1.example/", True),
        ("https://10.0.0.1", True),
    ],
)
def test_what_stays_on_this_machine_is_told_from_what_leaves_it(url: str, leaves: bool) -> None:
    assert leaves_here(url) is leaves


def test_the_path_of_the_file_is_kept_with_the_provider() -> None:
    got = settings(project=f"[providers.openai]\n{THEIRS}")
    assert got.providers["openai"].unasked == Path("/home/me/work/.convo.toml")
