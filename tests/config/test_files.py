"""Loading of settings files from a real disk."""

import gc
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from convo.config.loader import SettingFlags, load_settings, parse_settings_toml, read_settings_inputs
from convo.config.values import Layer
from convo.errors import InvalidSettings
from tests.config.permissions import without_root


@pytest.fixture(autouse=True)
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Set `tmp_path` as the home folder. Returns the path of the user's settings file, which does not exist yet."""
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "home" / "config"
    folder.mkdir(parents=True)
    return folder / "config.toml"


@pytest.fixture
def work_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder, three levels below the home folder."""
    folder = tmp_path / "project" / "src" / "deep"
    folder.mkdir(parents=True)
    monkeypatch.chdir(folder)
    return folder


def settings_error(config: Path | None = None) -> str:
    with pytest.raises(InvalidSettings) as error:
        load_settings(config)
    assert error.value.exit == 2
    return error.value.message


# -- files that are read ----------------------------------------------------------------------------


def test_without_any_file_everything_is_built_in_or_from_the_environment(work_folder: Path) -> None:
    assert {setting.source.layer for setting in load_settings().entries} == {Layer.DEFAULT}


def test_the_user_file_is_in_the_config_folder(work_folder: Path, user: Path) -> None:
    user.write_text('model = "mine"')

    got = load_settings()
    assert (got.model, got.get_source("model").location) == ("mine", str(user))


@pytest.mark.parametrize("up", [0, 1, 2, 3])
def test_the_project_file_is_found_from_the_working_folder_upwards(work_folder: Path, up: int) -> None:
    folder = (work_folder, *work_folder.parents)[up]
    (folder / ".convo.toml").write_text('model = "openai/project"')

    got = load_settings()
    assert (got.model, got.get_source("model").folder) == ("openai/project", folder)


def test_only_the_nearest_project_file_is_read(work_folder: Path) -> None:
    (work_folder.parent / ".convo.toml").write_text('model = "openai/near"')
    (work_folder.parent.parent / ".convo.toml").write_text('model = "openai/far"\nediting = "vi"')

    got = load_settings()
    assert (got.model, got.editing) == ("openai/near", "emacs")


def test_the_search_ends_at_the_home_folder(work_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(work_folder.parent))
    (work_folder.parent.parent / ".convo.toml").write_text('model = "openai/other"')

    assert load_settings().get_source("model").layer is Layer.DEFAULT


def test_a_linked_home_folder_still_ends_the_search(
    work_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "linked").symlink_to(work_folder.parent)
    monkeypatch.setenv("HOME", str(tmp_path / "linked"))
    (work_folder.parent.parent / ".convo.toml").write_text('model = "openai/other"')

    assert load_settings().get_source("model").layer is Layer.DEFAULT


def test_the_search_ends_at_the_root_of_the_repository(work_folder: Path, tmp_path: Path) -> None:
    (work_folder.parent / ".git").mkdir()
    (work_folder.parent.parent / ".convo.toml").write_text('model = "openai/outside"')
    assert load_settings().get_source("model").layer is Layer.DEFAULT
    (work_folder.parent / ".convo.toml").write_text('model = "openai/root"')
    assert load_settings().model == "openai/root"


def test_the_git_file_of_a_worktree_ends_the_search(work_folder: Path) -> None:
    (work_folder / ".git").write_text("gitdir: elsewhere")
    (work_folder.parent / ".convo.toml").write_text('model = "openai/outside"')
    assert read_settings_inputs().files == ()


def test_outside_home_and_repositories_only_the_working_folder_is_searched(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(work_folder / "elsewhere"))
    (work_folder.parent / ".convo.toml").write_text('model = "openai/above"')
    assert read_settings_inputs().files == ()
    (work_folder / ".convo.toml").write_text('model = "openai/here"')
    assert load_settings().model == "openai/here"


def test_outside_home_the_search_ends_at_the_root_of_the_repository(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(work_folder / "elsewhere"))
    (work_folder.parent / ".git").mkdir()
    (work_folder.parent / ".convo.toml").write_text('model = "openai/root"')
    assert load_settings().model == "openai/root"


def test_a_home_folder_at_the_root_of_the_file_system_does_not_widen_the_search(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/")
    (work_folder.parent / ".convo.toml").write_text('model = "openai/above"')
    assert read_settings_inputs().files == ()


def test_a_named_file_replaces_the_user_file(work_folder: Path, user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    user.write_text('model = "mine"\n[aliases]\nfast = "groq/x"')
    (work_folder / "by-flag.toml").write_text('model = "by-flag"')
    (work_folder / "by-variable.toml").write_text('model = "by-variable"')

    monkeypatch.setenv("CONVO_CONFIG", "by-variable.toml")
    assert (load_settings().model, dict(load_settings().aliases)) == ("by-variable", {})
    got = load_settings(Path("by-flag.toml"))
    assert (got.model, got.get_source("model").location) == ("by-flag", str(work_folder / "by-flag.toml"))


def test_a_project_file_overrides_the_named_file(work_folder: Path) -> None:
    (work_folder / ".convo.toml").write_text('model = "openai/project"')
    (work_folder / "named.toml").write_text('model = "named"')

    assert load_settings(Path("named.toml")).model == "openai/project"


@pytest.mark.parametrize("path_text", ["~/settings.toml", "../settings.toml"])
def test_a_named_file_may_start_with_a_tilde(path_text: str, work_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text('model = "named"')
    (work_folder.parent / "settings.toml").write_text('model = "named"')

    assert load_settings(Path(path_text)).model == "named"


def test_a_named_file_must_exist(work_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert settings_error(Path("gone.toml")) == f"{work_folder}/gone.toml: no such settings file"
    monkeypatch.setenv("CONVO_CONFIG", "/gone/too.toml")
    assert settings_error() == "/gone/too.toml: no such settings file"


def test_the_hint_about_a_missing_file_names_its_source(work_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_CONFIG", "gone.toml")
    for config, path in ((None, "CONVO_CONFIG"), (Path("gone.toml"), "--config")):
        with pytest.raises(InvalidSettings) as error:
            load_settings(config)
        assert error.value.hint == f"set another file with {path}"


def test_options_and_environment_variables_are_read(work_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVO_MODEL", "by-variable")

    assert load_settings().model == "by-variable"
    assert load_settings(flags=SettingFlags(model="by-flag")).model == "by-flag"


# -- files that cannot be read ----------------------------------------------------------------------


def test_a_folder_in_place_of_a_file_is_named(user: Path) -> None:
    user.mkdir()
    assert settings_error() == f"{user}: is a folder, not a settings file"


def test_an_unreadable_file_is_named(user: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    user.write_text('model = "mine"')
    user.chmod(0)

    with without_root():
        assert settings_error() == f"{user}: cannot be read (permission denied)"


def test_a_link_to_itself_is_named(work_folder: Path, user: Path) -> None:
    user.symlink_to(user)
    assert settings_error() == f"{user}: cannot be read (Too many levels of symbolic links)"


def test_a_path_that_is_too_long_is_named(work_folder: Path) -> None:
    assert settings_error(Path("x" * 300)) == f"{work_folder}/{'x' * 300}: cannot be read (File name too long)"


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"a = 1\nb = ?", ", line 2: is not TOML: invalid value"),
        (b"model", ", line 1: is not TOML: expected '=' after a key in a key/value pair"),
        (b'\n\nmodel = """x', ", line 3: is not TOML: unterminated string"),
        (b'model = "a"\nmodel = "b"', ", line 2: is not TOML: cannot overwrite a value"),
        (b'ok = 1\nmodel = "\xff"', ", line 2: is not UTF-8"),
        (b"\xff\xfem\x00", ", line 1: is not UTF-8"),
        (b"x = " + b"[" * 100_000, ": is nested too deeply"),
    ],
)
def test_an_invalid_toml_file_is_named_with_its_line(raw: bytes, message: str, work_folder: Path, user: Path) -> None:
    user.write_bytes(raw)
    assert settings_error() == f"{user}{message}"


def comment(size_bytes: int) -> bytes:
    """Return a settings file of this size that sets the model."""
    return b'model = "mine"\n#'.ljust(size_bytes, b"x")


def test_a_file_of_four_megabytes_is_read_and_a_larger_one_is_refused(work_folder: Path, user: Path) -> None:
    user.write_bytes(comment(4 * 2**20))
    assert load_settings().model == "mine"
    user.write_bytes(comment(4 * 2**20 + 1))
    assert settings_error() == f"{user}: is larger than 4 MB, the limit of a settings file"


def test_a_project_file_that_is_not_trusted_is_read_up_to_64_kilobytes(work_folder: Path) -> None:
    file = work_folder / ".convo.toml"
    text = b'editing = "vi"\n#'
    file.write_bytes(text.ljust(2**16, b"x"))
    assert load_settings().editing == "vi"
    file.write_bytes(text.ljust(2**16 + 1, b"x"))
    got = load_settings()
    assert got.editing == "emacs"
    assert got.project_notice is not None
    assert got.project_notice.line == (
        f"{file} is not trusted and larger than 64 KB: it is ignored; try: convo config trust"
    )


def test_a_key_of_32_names_is_read_and_a_longer_one_is_refused() -> None:
    for table in ("{}", "[{}]"):
        key = ".".join(["a"] * 32)
        text = table.format(key) if table != "{}" else f"{key} = 1"
        assert list(parse_settings_toml(text.encode(), "x.toml")) == ["a"]
        longer = text.replace("a.", "a.a.", 1)
        with pytest.raises(InvalidSettings, match=r"^x\.toml, line 2: has a key of more than 32 names$"):
            parse_settings_toml(f"\n{longer}".encode(), "x.toml")


def test_a_number_that_python_cannot_parse_is_refused_like_other_syntax_errors(work_folder: Path, user: Path) -> None:
    user.write_text(f"x = {'9' * 5000}")
    assert settings_error().startswith(f"{user}: is not TOML: ")


def test_a_byte_order_mark_is_ignored() -> None:
    assert parse_settings_toml(b'\xef\xbb\xbfmodel = "x"\r\n', "x.toml") == {"model": "x"}


def test_a_deleted_working_folder_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    try:
        assert settings_error() == "the working folder no longer exists"
    finally:
        os.chdir(tmp_path)


# -- imports at startup -----------------------------------------------------------------------------

LOADED = "import sys; before = set(sys.modules); {}; print(*sorted(set(sys.modules) - before))"


def modules_after(code: str) -> set[str]:
    result = subprocess.run([sys.executable, "-c", LOADED.format(code)], capture_output=True, text=True, check=True)
    return set(result.stdout.split())


def test_loading_settings_imports_no_unneeded_modules(work_folder: Path) -> None:
    loaded = modules_after("from convo.config.loader import load_settings; load_settings()")

    assert "convo.config.loader" in loaded
    assert loaded & {"tomllib", "platformdirs", "difflib", "dataclasses", "openai", "pydantic", "typer"} == set()


def test_the_platform_folders_are_resolved_only_without_convo_home(
    work_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CONVO_HOME")
    assert "platformdirs" not in modules_after("import convo.config.loader")
    assert "platformdirs" in modules_after("from convo.config.loader import load_settings; load_settings()")


@pytest.mark.parametrize("content", ['model = "openai/project"', "x" * 5_000_000, None], ids=["read", "long", "folder"])
def test_no_file_stays_open(work_folder: Path, content: str | None) -> None:
    path = work_folder / ".convo.toml"
    if content is None:
        path.mkdir()
    else:
        path.write_text(content)
    gc.collect()  # closes the files that other tests have left
    descriptors = os.listdir("/dev/fd")
    with suppress(InvalidSettings):
        load_settings()
    assert os.listdir("/dev/fd") == descriptors
