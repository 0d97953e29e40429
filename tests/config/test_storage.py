"""Where conversations are kept, in both ways of writing it."""

from pathlib import Path

import pytest

from convo.config import Flags, Secret, Storage
from convo.errors import BadSettings
from tests.config.given import HOME, PLACES, WORK, settings


def table(kind: str, connection: str | None = None) -> str:
    written = f"[state_storage]\ntype = '{kind}'\n"
    return written if connection is None else written + f"connection_string = '{connection}'\n"


@pytest.mark.parametrize(
    ("word", "storage"),
    [
        ("none", Storage("none")),
        ("memory", Storage("memory")),
        ("sqlite", Storage("sqlite", path=PLACES.database)),
        ("sqlite:", Storage("sqlite", path=PLACES.database)),
        ("sqlite:chat.db", Storage("sqlite", path=WORK / "chat.db")),
        ("sqlite:/srv/chat.db", Storage("sqlite", path=Path("/srv/chat.db"))),
        ("sqlite:///srv/chat.db", Storage("sqlite", path=Path("/srv/chat.db"))),
        ("sqlite:~/chat.db", Storage("sqlite", path=HOME / "chat.db")),
        ("postgresql://me@db/convo", Storage("postgres", url=Secret("postgresql://me@db/convo"))),
        ("postgres://me@db/convo", Storage("postgres", url=Secret("postgres://me@db/convo"))),
    ],
)
def test_one_word_says_what_to_open(word: str, storage: Storage) -> None:
    assert settings(Flags(store=word)).storage == storage
    assert settings(environ={"CONVO_STORE": word}).storage == storage


@pytest.mark.parametrize(
    ("text", "storage"),
    [
        (table("none"), Storage("none")),
        (table("memory"), Storage("memory")),
        (table("memory", "postgresql://$MISSING@db"), Storage("memory")),
        (table("sqlite"), Storage("sqlite", path=PLACES.database)),
        (table("sqlite", "chat.db"), Storage("sqlite", path=WORK / "chat.db")),
        (table("sqlite", "$FOLDER/chat.db"), Storage("sqlite", path=Path("/srv/chat.db"))),
        (table("sqlite", "sqlite:chat.db"), Storage("sqlite", path=WORK / "chat.db")),
        (table("postgres", "postgresql://me:$PW@db/x"), Storage("postgres", url=Secret("postgresql://me:p$w@db/x"))),
        (table("postgres", "${URL}"), Storage("postgres", url=Secret("postgresql://db/x"))),
    ],
)
def test_a_table_says_what_to_open(text: str, storage: Storage) -> None:
    environ = {"FOLDER": "/srv", "PW": "p$w", "URL": "postgresql://db/x"}
    assert settings(environ=environ, project=text).storage == storage


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (table("postgres", "postgresql://me:$DB_PASSWORD@db"), "names the variable DB_PASSWORD, which is not set"),
        (table("postgres", "postgresql://${DB"), "has a '${' without a variable's name and '}' behind it"),
        (table("postgres"), "must be a URL that begins with postgresql:// when the type is postgres"),
        (table("postgres", "host=db"), "must be a URL that begins with postgresql:// when the type is postgres"),
        (table("sqlite", "postgresql://me:pw@db"), "must be a path when the type is sqlite"),
    ],
)
def test_a_connection_string_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(BadSettings) as refused:
        settings(project=text)
    assert refused.value.message == f"/home/me/work/.convo.toml: 'state_storage.connection_string' {message}"


def test_a_missing_variable_of_a_file_that_lost_harms_nobody() -> None:
    got = settings(Flags(store="memory"), project=table("postgres", "postgresql://$MISSING@db"))
    assert got.storage == Storage("memory")


def test_a_dollar_in_a_word_is_left_to_the_shell() -> None:
    storage = settings(environ={"CONVO_STORE": "postgresql://me:a$b@db"}).storage
    assert storage.url == Secret("postgresql://me:a$b@db")


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://db/convo", "postgresql://db/convo"),
        ("postgresql://me@db:5432/convo", "postgresql://me@db:5432/convo"),
        ("postgresql://me:pw@db:5432/convo", "postgresql://me:***@db:5432/convo"),
        ("postgresql://me:p:w@x@db/convo", "postgresql://me:***@db/convo"),
        ("postgresql://me:p/w@db/convo", "postgresql://***"),
        ("postgresql://me:p?w@db/convo", "postgresql://***"),
        ("postgresql://me:p#w@db/convo", "postgresql://***"),
        ("postgresql://me@db/convo?password=pw", "postgresql://me@db/convo"),
        ("postgresql://me@db?password=pw", "postgresql://me@db"),
    ],
)
def test_a_storage_is_shown_without_its_password(url: str, shown: str) -> None:
    got = settings(Flags(store=url))

    assert str(got.storage) == shown
    assert f"state_storage = {shown}  (from --store)" in map(str, got.listed)
    assert url == "postgresql://db/convo" or url not in repr(got)


def test_a_storage_without_a_server_is_shown_as_it_is_written() -> None:
    assert str(settings(Flags(store="sqlite:chat.db")).storage) == "sqlite:/home/me/work/chat.db"
    assert str(settings(Flags(store="memory")).storage) == "memory"
