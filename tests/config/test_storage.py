"""The store that `--store` or [state_storage] selects, and its retention."""

from pathlib import Path
from urllib.parse import quote

import pytest

from convo.config.loader import SettingFlags
from convo.config.storage import Storage, parse_storage_option, redact_postgres_url, strip_postgres_passwords
from convo.errors import InvalidSettings
from convo.secrets import Secret
from tests.command_runner import Convo
from tests.config.settings_inputs import HOME, PATHS, WORK, make_settings

TRUST = f'trusted = ["{WORK}"]'


def table(kind: str, connection: str | None = None) -> str:
    toml = f"[state_storage]\ntype = '{kind}'\n"
    return toml if connection is None else toml + f"connection_string = '{connection}'\n"


@pytest.mark.parametrize(
    ("word", "storage"),
    [
        ("none", Storage("none")),
        ("memory", Storage("memory")),
        ("sqlite", Storage("sqlite", path=PATHS.database)),
        ("sqlite:", Storage("sqlite", path=PATHS.database)),
        ("sqlite:chat.db", Storage("sqlite", path=WORK / "chat.db")),
        ("sqlite:/srv/chat.db", Storage("sqlite", path=Path("/srv/chat.db"))),
        ("sqlite:///srv/chat.db", Storage("sqlite", path=Path("/srv/chat.db"))),
        ("sqlite:~/chat.db", Storage("sqlite", path=HOME / "chat.db")),
        ("postgresql://me@db/convo", Storage("postgres", url=Secret("postgresql://me@db/convo"))),
        ("postgres://me@db/convo", Storage("postgres", url=Secret("postgres://me@db/convo"))),
    ],
)
def test_a_word_selects_a_store(word: str, storage: Storage) -> None:
    assert make_settings(SettingFlags(store=word)).storage == storage
    assert make_settings(environ={"CONVO_STORE": word}).storage == storage


@pytest.mark.parametrize(
    ("text", "storage"),
    [
        (table("none"), Storage("none")),
        (table("memory"), Storage("memory")),
        (table("memory", "postgresql://$MISSING@db"), Storage("memory")),
        (table("sqlite"), Storage("sqlite", path=PATHS.database)),
        (table("sqlite", "chat.db"), Storage("sqlite", path=WORK / "chat.db")),
        (table("sqlite", "$FOLDER/chat.db"), Storage("sqlite", path=Path("/srv/chat.db"))),
        (table("sqlite", "sqlite:chat.db"), Storage("sqlite", path=WORK / "chat.db")),
        (table("postgres", "postgresql://me:$PW@db/x"), Storage("postgres", url=Secret("postgresql://me:p$w@db/x"))),
        (table("postgres", "${URL}"), Storage("postgres", url=Secret("postgresql://db/x"))),
    ],
)
def test_a_table_selects_a_store(text: str, storage: Storage) -> None:
    environ = {"FOLDER": "/srv", "PW": "p$w", "URL": "postgresql://db/x"}
    assert make_settings(environ=environ, user=TRUST, project=text).storage == storage


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (table("postgres", "postgresql://me:$DB_PASSWORD@db"), "refers to the variable DB_PASSWORD, which is not set"),
        (table("postgres", "postgresql://${DB"), "has a '${' that is not followed by a variable name and '}'"),
        (table("postgres"), "must be a URL that begins with postgresql:// when the type is postgres"),
        (table("postgres", "host=db"), "must be a URL that begins with postgresql:// when the type is postgres"),
        (table("sqlite", "postgresql://me:pw@db"), "must be a path when the type is sqlite"),
    ],
)
def test_a_connection_string_that_cannot_be_used_is_refused(text: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(user=TRUST, project=text)
    assert error.value.message == f"/home/me/work/.convo.toml: 'state_storage.connection_string' {message}"


def test_a_missing_variable_in_an_overridden_file_is_ignored() -> None:
    got = make_settings(SettingFlags(store="memory"), project=table("postgres", "postgresql://$MISSING@db"))
    assert got.storage == Storage("memory")


def test_a_dollar_sign_on_the_command_line_is_not_expanded() -> None:
    storage = make_settings(environ={"CONVO_STORE": "postgresql://me:a$b@db"}).storage
    assert storage.url == Secret("postgresql://me:a$b@db")


PLAIN = {
    "postgresql://db/convo": "postgresql://db/convo",
    "postgresql://me@db:5432/convo": "postgresql://me@db:5432/convo",
    "postgresql://me:pw@db:5432/convo": "postgresql://me:***@db:5432/convo",
    "postgresql://me:p:w@db/convo": "postgresql://me:***@db/convo",
    "postgresql://me:p%40%2Fw%25@db/convo": "postgresql://me:***@db/convo",
    "postgresql://me@db/convo?password=pw": "postgresql://me@db/convo",
    "postgresql://me@db?password=pw": "postgresql://me@db",
    "postgres://postgres.abcd:pw@aws-0-eu.pooler.supabase.com:6543/postgres?pgbouncer=true&sslmode=require": (
        "postgres://postgres.abcd:***@aws-0-eu.pooler.supabase.com:6543/postgres"
    ),
    "postgresql://db/convo?user=me@tenant&options=-c%20search_path%3Dx": "postgresql://db/convo",
    "postgresql://me:pw@one:5432,two:5433,[::1]:5434/convo": "postgresql://me:***@one:5432,two:5433,[::1]:5434/convo",
    "postgresql:///convo?host=/run/postgresql": "postgresql:///convo",
    "postgresql://%2Frun%2Fpostgresql/convo": "postgresql://%2Frun%2Fpostgresql/convo",
}


@pytest.mark.parametrize(("url", "displayed"), PLAIN.items(), ids=PLAIN)
def test_a_url_is_used_unchanged_and_shown_without_its_password(url: str, displayed: str) -> None:
    got = make_settings(SettingFlags(store=url))

    assert got.storage.url == Secret(url)
    assert str(got.storage) == displayed
    assert f"state_storage = {displayed}  (from --store)" in map(str, got.entries)
    assert url == displayed or url not in repr(got)


EXPLANATION = (
    "cannot be parsed as a URL; in a user name or password these characters must be percent-encoded: @ as %40,"
    " : as %3A, / as %2F, ? as %3F, # as %23, % as %25, [ as %5B, ] as %5D; the form is"
    " postgresql://user@host:port/database, with an optional :password after the user name"
)


@pytest.mark.parametrize(
    "word", ["p@w", "p/w", "p?w", "p#w", "p%w", "p%4", "p[w", "p]w", "p[w]", "12/w", "12?w", "12#w"]
)
@pytest.mark.parametrize("host", ["db", "db:5432", "one,two", "[::1]"])
def test_an_unencoded_password_is_explained_and_not_shown(word: str, host: str) -> None:
    text = table("postgres", f"postgresql://me:${{PW}}@{host}/convo?sslmode=require")
    with pytest.raises(InvalidSettings) as error:
        make_settings(environ={"PW": word}, user=TRUST, project=text)

    assert error.value.message == f"/home/me/work/.convo.toml: 'state_storage.connection_string' {EXPLANATION}"
    assert word not in error.value.message
    quoted = f"postgresql://me:{quote(word, safe='')}@{host}/convo?sslmode=require"
    assert make_settings(environ={"PW": quote(word, safe="")}, user=TRUST, project=text).storage.url == Secret(quoted)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://[USER]:pw@[HOST]:5432/postgres", "[USER] and [HOST]"),
        ("postgresql://me:[YOUR-PASSWORD]@db.example.com/postgres", "[YOUR-PASSWORD]"),
        ("postgresql://<user>@{{HOST}}/x", "<user> and {{HOST}}"),
    ],
)
def test_an_unfilled_template_is_named(url: str, expected: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(SettingFlags(store=url))
    assert f"still contains {expected} from a template" in error.value.message


@pytest.mark.parametrize("word", ["<abc>?", "[x]", "{{abc}}/"])
def test_a_password_that_looks_like_a_template_is_not_shown(word: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(SettingFlags(store=f"postgresql://me:{word}@db/convo"))
    assert word.strip("?/") not in error.value.message


@pytest.mark.parametrize("url", ["postgresql://me:p:w@d:b:5/x", "postgresql://me@[::1/x", "postgresql://me@db:port/x"])
def test_a_url_with_an_odd_host_is_explained_too(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"^--store: 'state_storage.connection_string' cannot be parsed as a URL"):
        make_settings(SettingFlags(store=url))


@pytest.mark.parametrize("word", ["pw\n", " pw", "p w", "p\tw", "\x00"])
def test_a_password_with_a_newline_is_explained(word: str) -> None:
    """A password that a shell reads from a file may contain a newline, and no driver explains that error."""
    with pytest.raises(
        InvalidSettings, match=r"contains a space or a line break, which a URL cannot contain; write a space as %20$"
    ):
        make_settings(environ={"PW": word}, user=TRUST, project=table("postgres", "postgresql://me:$PW@db/convo"))


def test_two_dollar_signs_are_one() -> None:
    got = make_settings(environ={"PW": "no"}, user=TRUST, project=table("postgres", "postgresql://me:a$$PW@db/convo"))
    assert got.storage.url == Secret("postgresql://me:a$PW@db/convo")


def test_a_storage_without_a_server_is_shown_as_it_is_written() -> None:
    assert str(make_settings(SettingFlags(store="sqlite:chat.db")).storage) == "sqlite:/home/me/work/chat.db"
    assert str(make_settings(SettingFlags(store="memory")).storage) == "memory"


# -- retention ---------------------------------------------------------------------------------------


def test_by_default_nothing_expires() -> None:
    for got in (
        make_settings(),
        make_settings(project=table("sqlite")),
        make_settings(SettingFlags(store="postgresql://db/x")),
    ):
        assert got.storage.get_ttl_s("local") is None


def test_a_retention_applies_to_every_tenant_without_its_own() -> None:
    text = table("memory") + "ttl = '30d'\n[state_storage.ttls]\nalice = '12h'\narchive = 'never'\n"
    storage = make_settings(project=text).storage

    assert storage.get_ttl_s("local") == 30 * 86_400
    assert storage.get_ttl_s("alice") == 12 * 3_600
    assert storage.get_ttl_s("archive") is None


def test_the_retention_of_one_tenant_does_not_apply_to_others() -> None:
    storage = make_settings(project=table("memory") + "ttls = { alice = '1w' }\n").storage

    assert (storage.get_ttl_s("alice"), storage.get_ttl_s("local")) == (7 * 86_400, None)


def test_a_retention_belongs_to_the_store_of_its_file() -> None:
    """The retention does not apply to another store that an option selects."""
    got = make_settings(SettingFlags(store="memory"), project=table("sqlite") + "ttl = '30d'\n")
    assert got.storage.get_ttl_s("local") is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("ttl = 30", "'state_storage.ttl' must be a string, not a whole number"),
        ("ttl = '30'", "'state_storage.ttl' must be a whole number followed by s, m, h, d or w, as in 30d"),
        ("ttl = 'never'", "'state_storage.ttl' must be a whole number followed by s, m, h, d or w, as in 30d"),
        ("ttl = '0d'", "'state_storage.ttl' must be more than 0, and at most 100 years"),
        ("ttls = '30d'", "'state_storage.ttls' must be a table, not a string"),
        (
            "ttls = { alice = '5 d' }",
            "'state_storage.ttls' has a value for 'alice' that must be a whole number followed by s, m, h, d or w,"
            " as in 30d, or never",
        ),
    ],
)
def test_an_invalid_retention_is_refused(line: str, message: str) -> None:
    with pytest.raises(InvalidSettings) as error:
        make_settings(project=table("memory") + line)
    assert error.value.message == f"/home/me/work/.convo.toml: {message}"


@pytest.mark.parametrize(
    ("word", "displayed"),
    [
        ("none", "none"),
        ("memory", "memory"),
        ("sqlite", "sqlite"),
        ("sqlite:chat.db", "sqlite:chat.db"),
        ("sqlite:sqlite:chat.db", "sqlite:chat.db"),
        ("sqlite:postgresql://me:pw@db/x", "sqlite"),
        ("postgresql://me:pw@db/x", "postgresql://me:***@db/x"),
        ("postgresql://me:p/w@db/x", "postgres"),
    ],
)
def test_an_option_is_shown_without_a_password(word: str, displayed: str) -> None:
    """A URL that cannot be parsed is not shown, since the position of its password is unknown."""
    assert str(parse_storage_option(word)) == displayed


@pytest.mark.parametrize(
    ("url", "redacted", "stripped"),
    [
        ("postgresql://me:pw@db:1/x?a=1", "postgresql://me:***@db:1/x", "postgresql://me@db:1/x?a=1"),
        ("postgresql://me@db", "postgresql://me@db", "postgresql://me@db"),
        ("postgres:///x?password=a&sslpassword=b", "postgres:///x", "postgres:///x"),
        ("postgres://db,db2:5/x?password=a&b=c&&d=e", "postgres://db,db2:5/x", "postgres://db,db2:5/x?b=c&d=e"),
    ],
)
def test_a_url_is_shown_and_passed_on_without_its_passwords(url: str, redacted: str, stripped: str) -> None:
    assert (redact_postgres_url(url), strip_postgres_passwords(url)) == (redacted, stripped)


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("postgre://h/db", "'postgre://' is not the scheme of a store; did you mean postgresql://...?"),
        ("postgress://me:pw@h/db", "'postgress://' is not the scheme of a store; did you mean postgresql://...?"),
        (
            "postgresql+psycopg://me:pw@h",
            "'postgresql+psycopg://' is not the scheme of a store; did you mean postgresql://...?",
        ),
        ("POSTGRES://h/db", "'POSTGRES://' is not the scheme of a store; did you mean postgresql://...?"),
        ("postgresql:h/db", "'postgresql:' is not the scheme of a store; did you mean postgresql://...?"),
        ("sqlit:chat.db", "'sqlit:' is not the scheme of a store; did you mean sqlite:PATH?"),
        ("mysql://me:pw@h/db", "'mysql://' is not the scheme of a store"),
        ("chat.db", "sqlite:chat.db"),
        ("/srv/chats", "sqlite:/srv/chats"),
        ("me:pw@h/db", "give --store another value, or omit it"),
        ("nonsense", "give --store another value, or omit it"),
    ],
)
def test_the_hint_for_an_unknown_store_names_its_scheme_and_the_nearest_one(text: str, hint: str) -> None:
    with pytest.raises(InvalidSettings) as option:
        make_settings(SettingFlags(store=text))
    assert option.value.hint == hint
    if "did you mean postgresql" in hint:
        with pytest.raises(InvalidSettings) as setting:
            make_settings(project=table("postgres", text))
        assert setting.value.hint == hint


@pytest.mark.parametrize("command", ["serve", "store stats", "store check", "store prune --older-than 1d", "tap"])
def test_every_command_with_a_store_names_a_misspelt_scheme(
    convo: Convo, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    hint = "try: 'postgre://' is not the scheme of a store; did you mean postgresql://...?\n"
    got = convo(*command.split(), "--store", "postgre://h/db")
    assert (got.exit, got.err.endswith(hint)) == (2, True)
    monkeypatch.setenv("CONVO_STORE", "postgre://h/db")
    got = convo("sessions")
    assert (got.exit, got.err.endswith(hint)) == (2, True)
