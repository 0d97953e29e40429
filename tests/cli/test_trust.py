"""A project's `.convo.toml` is untrusted input: attacks with such a file, and the commands that trust it."""

import json
import os
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from convo.cli.config import trust_project_file
from tests.cli.serve_process import run_serve
from tests.command_runner import Convo, Launch, write_project_file
from tests.models import chat_server
from tests.models.chat_server import ChatServer, delta, finish

ANSWER = (delta(content="yes"), finish("stop"))


@pytest.fixture
def user_config(home: Path) -> Path:
    """The user's own settings: the model repeats its input."""
    path = home / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    path.write_text('model = "scripted/echo"\n')
    return path


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server that an untrusted file names; it never responds."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def write_untrusted_file(text: str, folder: Path = Path()) -> Path:
    """Write a project file, as in a cloned repository."""
    path = folder.absolute() / ".convo.toml"
    path.write_text(text)
    return path


def notice(path: Path, *keys: str, reason: str = "is not trusted") -> str:
    return f"convo: {path} {reason}, so these settings are ignored: {', '.join(keys)}; try: convo config trust\n"


def effective_values(convo: Convo) -> dict[str, Any]:
    """The effective values, by key."""
    rows = convo("config", "--json").json()
    return {row["key"]: row["value"] for row in rows if not row["ignored"]}


def change_owner(path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Make another user the owner of `path`; returns the id of that user."""
    if os.geteuid() == 0:
        os.lchown(path, 54321, -1)
        return 54321
    owner = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    return owner


# -- attacks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["serve", "profiles.p.serve"])
def test_an_untrusted_file_cannot_open_the_store_to_a_key_or_an_address(user_config: Path, table: str) -> None:
    Path("keys").write_text(f"local {'0' * 64}\n")
    path = write_untrusted_file(f'[{table}]\nhost = "0.0.0.0"\nport = 1\nkeys_file = "keys"\n')
    before = ("--profile", "mine")
    user_config.write_text('[profiles.mine]\nmodel = "scripted/echo"\n')
    with run_serve("--store", "memory", before=before) as server:
        assert "http://127.0.0.1:" in server.ready_line
        assert server.http.get("/v1/models").status_code == 200  # it would be 401 with the keys file of the project
        server.stop(15)
    assert server.err == notice(path, *(f"{table}.{name}" for name in ("host", "port", "keys_file")))


def test_an_untrusted_file_gets_no_password_for_its_database(
    convo: Convo, user_config: Path, listener: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hush")
    url = f"postgresql://me@127.0.0.1:{listener.getsockname()[1]}/x?require_auth=password&connect_timeout=2"
    path = write_untrusted_file(f'[state_storage]\ntype = "postgres"\nconnection_string = "{url}"\n')
    got = convo("sessions")
    assert (got.exit, got.err.splitlines(keepends=True)[0]) == (0, notice(path, "state_storage"))
    with pytest.raises(BlockingIOError):
        listener.accept()


def test_an_untrusted_file_cannot_redirect_a_conversation_of_a_provider_without_a_key(
    convo: Convo, user_config: Path
) -> None:
    with chat_server.run_chat_server() as mine, chat_server.run_chat_server() as other:
        user_config.write_text(f'model = "mine/m"\n[providers.mine]\napi = "chat"\nbase_url = "{mine.url}"\n')
        mine.stream(*ANSWER)
        mine.stream(*ANSWER)
        assert convo("chat", "-q", "a private matter").exit == 0
        path = write_untrusted_file(f'[providers.mine]\nbase_url = "{other.url}"\n')
        got = convo("chat", "-q", "-c", "and more")
        assert (got.exit, got.out, got.err) == (0, "yes\n", notice(path, "providers.mine.base_url"))
        assert (len(mine.requests), other.requests) == (2, [])


def test_an_untrusted_file_gets_no_key_for_its_server(
    convo: Convo, user_config: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    provider = f'base_url = "{server.url}"\napi = "chat"\nkey_env = "OPENAI_API_KEY"\n'
    write_untrusted_file(f'model = "theirs/m"\n[providers.theirs]\n{provider}')
    assert convo("chat", "-q", "hello").out == "hello\n"
    assert convo("chat", "-m", "theirs/m", "hello").exit == 2
    assert server.requests == []


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with chat_server.run_chat_server() as upstream:
        yield upstream


def test_an_untrusted_file_cannot_change_the_store(convo: Convo, user_config: Path, home: Path) -> None:
    path = write_untrusted_file('[state_storage]\ntype = "sqlite"\nconnection_string = "theirs.db"\nttl = "1s"\n')
    got = convo("chat", "-q", "hello")
    assert (got.exit, got.out, got.err) == (0, "hello\n", notice(path, "state_storage"))
    assert not Path("theirs.db").exists()
    assert (home / "data" / "convo.db").exists()


@pytest.mark.parametrize("model", ["local/./evil.gguf", "local/{folder}/evil.gguf", "fast"])
@pytest.mark.parametrize("profile", ["", "[profiles.p]\n"])
def test_an_untrusted_file_cannot_choose_model_weights(
    convo: Convo, user_config: Path, tmp_path: Path, model: str, profile: str
) -> None:
    Path("evil.gguf").write_bytes(b"GGUF" + bytes(100))
    path = write_untrusted_file(
        f'{profile}model = "{model.format(folder=tmp_path)}"\n[aliases]\nfast = "local/./evil.gguf"\n'
    )
    got = convo("chat", "-q", "hello")
    assert (got.exit, got.out) == (0, "hello\n")
    key = "profiles.p.model" if profile else "model"
    assert got.err == notice(path, *sorted([key, "aliases.fast"], reverse=not profile or key < "b"))


def test_a_profile_of_an_untrusted_file_sets_nothing_either(convo: Convo, user_config: Path) -> None:
    write_untrusted_file('[profiles.p]\nmodel = "openai/gpt-5"\ntenant = "other"\n[profiles.p.serve]\nport = 1\n')
    got = convo("--profile", "p", "config", "--json").json()
    values = {row["key"]: row["value"] for row in got if not row["ignored"]}
    assert (values["model"], values["tenant"], values["serve.port"]) == ("openai/gpt-5", "local", 8788)


def test_a_profile_of_ignored_settings_alone_is_refused_with_the_reason(convo: Convo, user_config: Path) -> None:
    write_untrusted_file("[profiles.p]\ntenant = 'other'\n")
    got = convo("--profile", "p", "chat", "hello")
    assert (got.exit, got.out) == (2, "")
    assert got.err.endswith(
        "convo: --profile: profile 'p' is in a file that is not trusted\n  try: convo config trust\n"
    )


def test_a_redact_pattern_of_an_untrusted_file_is_never_executed(convo: Convo, user_config: Path) -> None:
    """This pattern does not finish, even on an empty text."""
    path = write_untrusted_file("redact = ['(?:(?:(?:(?:){60000}){60000}){60000})']\n")
    got = convo("chat", "-q", "hello")
    assert (got.out, got.err) == ("hello\n", notice(path, "redact"))


def test_harmless_settings_apply_without_trust_and_without_a_notice(convo: Convo, user_config: Path) -> None:
    write_untrusted_file('model = "openai/gpt-5"\nediting = "vi"\n[profiles.p]\nanswers = "plain"\n')
    assert convo("config", "list", "editing").err == ""
    got = effective_values(convo)
    assert (got["model"], got["editing"], got["answers"]) == ("openai/gpt-5", "vi", "markdown")
    rows = convo("--profile", "p", "config", "--json").json()
    assert {row["key"]: row["value"] for row in rows}["answers"] == "plain"


# -- the notice -------------------------------------------------------------------------------------


def test_the_notice_is_one_line_on_stderr_even_in_a_pipe(launch: Launch, user_config: Path) -> None:
    path = write_untrusted_file('tenant = "other"\n"a\\u001b[31m\\nconvo: fine" = 1\n')
    got = launch("chat", "--json", "hello")
    assert got.json()["output_text"] == "hello"
    assert got.err.count("not trusted") == 1
    assert got.err.startswith(notice(path, "tenant", '"a\\x1b[31m\\nconvo: fine"'))
    assert "\x1b" not in got.out + got.err


def test_completion_prints_nothing_about_an_untrusted_file(launch: Launch, user_config: Path) -> None:
    write_untrusted_file("[serve]\nport = 1\n")
    environ = {"_CONVO_COMPLETE": "complete_bash", "COMP_WORDS": "convo chat -m ", "COMP_CWORD": "3"}
    assert launch(env=environ).err == ""


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"model = ", "{place}, line 1: is not TOML: invalid value; it is ignored"),
        (b'model = "\xff"', "{place}, line 1: is not UTF-8; it is ignored"),
        (b"x = " + b"[" * 9_000, "{place}: is nested too deeply; it is ignored"),
        (b".".join([b"a"] * 30_000) + b" = 1", "{place}, line 1: has a key of more than 32 names; it is ignored"),
        (b"\n[" + b" . ".join([b"'a'"] * 9_000), "{place}, line 2: has a key of more than 32 names; it is ignored"),
        (b"#" * 70_000, "{place} is not trusted and larger than 64 KB: it is ignored"),
        (b"#" * 5_000_000, "{place}: is larger than 4 MB, the limit of a settings file; it is ignored"),
    ],
    ids=["syntax", "encoding", "nesting", "long key", "long table", "large", "huge"],
)  # fmt: skip
def test_an_invalid_untrusted_file_is_ignored(convo: Convo, user_config: Path, content: bytes, message: str) -> None:
    path = Path(".convo.toml").absolute()
    path.write_bytes(content)
    got = convo("chat", "-q", "hello")
    assert (got.exit, got.out) == (0, "hello\n")
    (line,) = got.err.splitlines()
    assert line.startswith(f"convo: {message.format(place=path)}; try: ")


def test_a_pipe_a_folder_and_a_dangling_link_are_ignored_without_waiting(convo: Convo, user_config: Path) -> None:
    path = Path(".convo.toml").absolute()
    os.mkfifo(path)
    got = convo("chat", "-q", "hello")
    assert (got.out, got.err) == ("hello\n", f"convo: {path} is not a regular file and is not read; try: rm {path}\n")
    path.unlink()
    path.mkdir()
    assert "is a folder, not a settings file; it is ignored" in convo("chat", "-q", "hello").err
    path.rmdir()
    path.symlink_to("/dev/zero")
    assert "is not a regular file" in convo("chat", "-q", "hello").err
    path.unlink()
    path.symlink_to("nowhere")
    assert convo("chat", "-q", "hello").err == ""


# -- the owner of the file --------------------------------------------------------------------------


def test_a_file_of_another_user_is_never_read(convo: Convo, user_config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_project_file('model = "openai/gpt-5"\n[serve]\nport = 1\n')
    user_config.write_text(f'model = "scripted/echo"\ntrusted = ["{path.parent}"]\n')
    owner = change_owner(path, monkeypatch)
    got = convo("chat", "-q", "hello")
    message = f"convo: {path} belongs to another user (id {owner}) and is not read"
    assert (got.out, got.err) == ("hello\n", f"{message}; try: replace it with a copy of your own\n")
    refused = convo("config", "trust")
    assert (refused.exit, refused.err.splitlines()[0]) == (2, message)
    assert convo("config", "set", "--project", "tenant", "me").exit == 2
    assert effective_values(convo)["serve.port"] == 8788


def test_a_link_of_another_user_is_not_followed(
    convo: Convo, user_config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("real.toml").write_text('editing = "vi"\n')
    Path(".convo.toml").symlink_to("real.toml")
    assert effective_values(convo)["editing"] == "vi"
    change_owner(Path(".convo.toml"), monkeypatch)
    got = convo("config", "list", "editing")
    assert "belongs to another user" in got.err
    assert effective_values(convo)["editing"] == "emacs"


def test_a_world_writable_file_is_never_read(convo: Convo, user_config: Path) -> None:
    path = write_project_file('model = "openai/gpt-5"\n')
    path.chmod(0o666)
    got = convo("chat", "-q", "hello")
    message = f"convo: {path} can be written by every user and is not read"
    assert (got.out, got.err) == ("hello\n", f"{message}; try: chmod o-w {path}\n")
    assert convo("config", "trust").exit == 2
    path.chmod(0o664)  # the mode with a umask of 002
    assert effective_values(convo)["model"] == "openai/gpt-5"


# -- trust ------------------------------------------------------------------------------------------


def test_a_file_is_shown_and_trusted_in_its_current_form(convo: Convo, user_config: Path) -> None:
    path = write_untrusted_file(
        '[serve]\nport = 1\n[providers.groq]\napi = "chat"\nbase_url = "https://groq.example/v1"\n'
    )
    got = convo("config", "trust")
    assert got.exit == 0
    assert [line.split()[:2] for line in got.out.splitlines()] == [
        ["setting", "value"],
        ["serve.port", "1"],
        ["providers.groq.api", "chat"],
        ["providers.groq.base_url", "https://groq.example/v1"],
    ]
    assert got.err == (
        "providers.groq.base_url sends conversations to another machine: https://groq.example/v1\n"
        f"{path} is trusted with its current content, until it changes or is untrusted (convo config untrust)\n"
    )
    assert (effective_values(convo)["serve.port"], convo("config", "list", "serve.port").err) == (1, "")


def test_a_change_revokes_the_trust_and_the_notice_says_so(convo: Convo, user_config: Path) -> None:
    path = write_project_file("[serve]\nport = 1\n")
    write_untrusted_file("[serve]\nport = 2\n")
    got = convo("config", "list", "serve.port")
    assert got.err == notice(path, "serve.port", reason="changed since it was trusted")
    assert effective_values(convo)["serve.port"] == 8788
    write_untrusted_file("[serve]\nport = 1\n")
    assert effective_values(convo)["serve.port"] == 1


def test_trust_can_be_revoked(convo: Convo, user_config: Path) -> None:
    path = write_project_file("[serve]\nport = 1\n")
    assert convo("config", "trust", "--list").out == f"{path}  trusted\n"
    assert convo("config", "untrust").err == f"{path} is no longer trusted\n"
    assert effective_values(convo)["serve.port"] == 8788
    listing = convo("config", "trust", "--list")
    assert (listing.exit, listing.out, listing.err) == (0, "", "no file is trusted with convo config trust\n")
    again = convo("config", "untrust")
    assert (again.exit, again.err.splitlines()[0]) == (5, f"convo: no trusted file '{path}'")


@pytest.mark.parametrize("command", ["trust", "untrust"])
def test_a_missing_path_is_named(command: str, convo: Convo, user_config: Path) -> None:
    got = convo("config", command, "nowhere/at all")
    assert (got.exit, got.err.splitlines()[0]) == (5, "convo: no file or folder 'nowhere/at all'")


def test_trust_in_a_deleted_file_can_be_revoked(convo: Convo, user_config: Path, tmp_path: Path) -> None:
    path = write_project_file("[serve]\nport = 1\n")
    path.unlink()
    assert convo("config", "trust", "--list").out == f"{path}  missing\n"
    assert convo("config", "untrust", str(tmp_path)).exit == 0
    assert convo("config", "trust", "--list").out == ""


@pytest.mark.parametrize("path", [".", ".convo.toml", "{folder}", "{folder}/.convo.toml", "link", "link/.convo.toml"])
def test_a_file_is_trusted_by_its_path_its_folder_or_a_link(
    convo: Convo, user_config: Path, tmp_path: Path, path: str
) -> None:
    Path("link").symlink_to(tmp_path)
    file = write_untrusted_file("[serve]\nport = 1\n")
    assert convo("config", "trust", path.format(folder=tmp_path)).exit == 0
    assert convo("config", "trust", "--list").out == f"{file}  trusted\n"
    assert effective_values(convo)["serve.port"] == 1


def test_a_copy_and_a_link_of_a_trusted_file_are_not_trusted(
    convo: Convo, user_config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a link of another user, relative paths in the trusted file would start in that user's folder."""
    path = write_project_file('[serve]\nkeys_file = "keys"\n')
    for folder in ("copy", "link"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        if folder == "copy":
            write_untrusted_file(path.read_text())
        else:
            Path(".convo.toml").symlink_to(path)
        assert "serve.keys_file" not in effective_values(convo)


def test_a_missing_or_invalid_file_cannot_be_trusted(convo: Convo, user_config: Path) -> None:
    assert convo("config", "trust").exit == 5
    Path("other.toml").write_text("model = 'openai/x'")
    assert convo("config", "trust", "other.toml").exit == 2
    assert convo("config", "trust", "elsewhere").exit == 5
    assert convo("config", "trust", "nowhere/.convo.toml").exit == 5
    for text in ("model = ", "modle = 1", "model = 1", 'trusted = ["/"]'):
        write_untrusted_file(text)
        assert convo("config", "trust").exit == 2
    assert convo("config", "trust", "--list").out == ""


def test_a_trust_record_is_private_and_an_invalid_one_is_ignored(convo: Convo, user_config: Path, home: Path) -> None:
    path = write_project_file("[serve]\nport = 1\n")
    (record,) = (home / "config" / "trust").iterdir()
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    valid = json.loads(record.read_text())
    for broken in ("", "[]", "{", "[" * 100_000, '{"path": 1}', json.dumps(valid | {"path": "/elsewhere"})):
        record.write_text(broken)
        assert effective_values(convo)["serve.port"] == 8788
    assert convo("config", "trust", str(path)).exit == 0
    assert effective_values(convo)["serve.port"] == 1


def test_concurrent_trust_commands_are_all_recorded(convo: Convo, user_config: Path, tmp_path: Path) -> None:
    folders = [tmp_path / f"p{number}" for number in range(8)]
    for folder in folders:
        folder.mkdir()
        write_untrusted_file('editing = "vi"\n', folder)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda folder: trust_project_file(None, folder), [*folders, *folders]))
    assert convo("config", "trust", "--list").out.count("  trusted\n") == 8


# -- trusted folders --------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["{folder}", "{folder}/work/..", "{folder}/link"])
def test_files_in_a_trusted_folder_apply_with_any_content(
    convo: Convo, user_config: Path, tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("work").mkdir()
    Path("link").symlink_to("work")
    monkeypatch.chdir("work")
    write_untrusted_file("[serve]\nport = 1\n")
    user_config.write_text(f'trusted = ["/opt", "{folder.format(folder=tmp_path)}"]\n')
    assert effective_values(convo)["serve.port"] == 1
    refused = convo("config", "untrust")
    assert (refused.exit, "is still trusted because of 'trusted'" in refused.err) == (2, True)


@pytest.mark.parametrize("folder", ["{folder}/below", "{folder}x", "/opt", "~"])
def test_a_folder_beside_or_below_a_trusted_one_is_not_trusted(
    convo: Convo, user_config: Path, tmp_path: Path, folder: str
) -> None:
    write_untrusted_file("[serve]\nport = 1\n")
    user_config.write_text(f'trusted = ["{folder.format(folder=tmp_path)}"]\n')
    assert effective_values(convo)["serve.port"] == 8788


def test_an_invalid_file_in_a_trusted_folder_is_an_error(convo: Convo, user_config: Path, tmp_path: Path) -> None:
    user_config.write_text(f'trusted = ["{tmp_path}"]\n')
    write_untrusted_file("model = \n")
    assert convo("sessions").exit == 2


def test_a_file_named_with_the_config_option_is_trusted(convo: Convo, user_config: Path) -> None:
    path = write_untrusted_file("[serve]\nport = 1\n")
    got = convo("--config", str(path), "config", "list", "serve.port", "--json")
    assert ([row["value"] for row in got.json()], got.err) == ([1], "")


# -- config set --project ---------------------------------------------------------------------------


def test_convo_trusts_a_new_project_file_that_it_writes_and_a_trusted_one_that_it_changes(
    convo: Convo, user_config: Path
) -> None:
    for value in (1, 2):
        got = convo("config", "set", "--project", "serve.port", str(value))
        assert got.err == f"set serve.port to {value} in {Path('.convo.toml').absolute()}\n"
        assert effective_values(convo)["serve.port"] == value
    assert convo("config", "unset", "--project", "serve.port").exit == 0
    assert convo("config", "set", "--project", "serve.port", "3").exit == 0
    assert effective_values(convo)["serve.port"] == 3


@pytest.mark.parametrize("text", ['[providers.openai]\nbase_url = "https://theirs.example"\n', 'editing = "vi"\n'])
def test_writing_to_an_untrusted_file_does_not_trust_it(convo: Convo, user_config: Path, text: str) -> None:
    path = write_untrusted_file(text)
    got = convo("config", "set", "--project", "serve.port", "1")
    assert got.exit == 0
    assert got.err.endswith(f"{path} is still not trusted; to trust it: convo config trust\n")
    assert effective_values(convo)["serve.port"] == 8788
    assert convo("config", "trust", "--list").out == ""


def test_writing_to_a_trusted_file_that_was_changed_does_not_trust_it(convo: Convo, user_config: Path) -> None:
    path = write_project_file("[serve]\nport = 1\n")
    path.write_text("[serve]\nport = 2\n")
    assert convo("config", "set", "--project", "tenant", "me").exit == 0
    assert effective_values(convo)["tenant"] == "local"


# -- output of config and doctor --------------------------------------------------------------------


def test_config_shows_ignored_values_with_their_file(convo: Convo, user_config: Path) -> None:
    path = write_untrusted_file('[serve]\nport = 1\n[providers.x]\nkey = "sk-1"\n')
    same = {"key": "serve.port", "profile": None}
    assert convo("config", "list", "serve.port", "--json").json() == [
        {**same, "value": 1, "layer": "project", "place": str(path), "ignored": True},
        {**same, "value": 8788, "layer": "default", "place": "built in", "ignored": False},
    ]
    lines = convo("config", "list", "serve.port").out.splitlines()
    assert lines[-1].split(maxsplit=2) == ["serve.port", "1", f"ignored, from .convo.toml, {path.parent}"]
    got = convo("config", "list", "providers.x")
    assert "(not shown)" in got.out
    assert "sk-1" not in got.out + got.err


def test_doctor_warns_of_an_untrusted_file(convo: Convo, user_config: Path) -> None:
    path = write_untrusted_file("[serve]\nport = 1\n")
    (check,) = convo("doctor", "settings", "--json").json()["checks"]
    assert (check["level"], check["next"]) == ("warning", "convo config trust")
    assert check["found"] == f"{path} is not trusted, so these settings are ignored: serve.port"
