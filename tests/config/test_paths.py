"""Folders of the application, and their permissions."""

import os
import stat
from pathlib import Path

import pytest

from convo.config.paths import AppPaths, check_folder_writable, make_private_folder
from convo.errors import InvalidSettings, StoreReadOnly, StoreUnavailable
from tests.config.permissions import without_root


def mode(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


def test_convo_home_contains_all_three_folders(tmp_path: Path) -> None:
    places = AppPaths.from_environ({"CONVO_HOME": str(tmp_path)})

    assert places == AppPaths(tmp_path / "data", tmp_path / "state", tmp_path / "config")
    assert (places.database, places.settings_file) == (tmp_path / "data/convo.db", tmp_path / "config/config.toml")
    assert (places.weights, places.prompt_history) == (tmp_path / "data/models", tmp_path / "state/prompts")
    assert (places.paused_runs, places.trust) == (tmp_path / "data/paused", tmp_path / "config/trust")


def test_a_relative_convo_home_starts_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert AppPaths.from_environ({"CONVO_HOME": "here/../there"}).data == tmp_path / "there/data"


def test_convo_home_may_start_with_a_tilde(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert AppPaths.from_environ({"CONVO_HOME": "~/convo"}).state == tmp_path / "convo/state"


@pytest.mark.parametrize("environ", [{}, {"CONVO_HOME": ""}])
def test_without_convo_home_the_platform_decides(
    environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)

    places = AppPaths.from_environ(environ)

    assert {path.name for path in places} == {"convo"}
    assert all(path.is_relative_to(tmp_path) for path in places)


def test_without_a_home_folder_the_error_suggests_convo_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "nowhere")
    with pytest.raises(InvalidSettings) as error:
        AppPaths.from_environ({})
    assert error.value.message == "this user has no home folder"
    assert error.value.hint == "set CONVO_HOME to a writable folder"


def test_resolving_a_path_creates_nothing(tmp_path: Path) -> None:
    assert AppPaths.from_environ({"CONVO_HOME": str(tmp_path / "home")}).database.name == "convo.db"
    assert list(tmp_path.iterdir()) == []


def test_every_created_folder_is_private(tmp_path: Path) -> None:
    created = make_private_folder(tmp_path / "home/data/models")

    assert created == tmp_path / "home/data/models"
    assert [mode(folder) for folder in (created, created.parent, created.parent.parent)] == [0o700] * 3


def test_an_existing_folder_keeps_its_mode(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o755)

    make_private_folder(shared / "data")

    assert (mode(shared), mode(shared / "data")) == (0o755, 0o700)
    assert make_private_folder(shared) == shared


def test_a_file_in_place_of_a_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")

    with pytest.raises(StoreUnavailable, match=r"^the folder .*/home cannot be made: not a folder$"):
        make_private_folder(tmp_path / "home")
    with pytest.raises(StoreUnavailable, match=r"^the folder .*/home/data cannot be made: Not a directory$"):
        make_private_folder(tmp_path / "home/data")


def test_a_broken_link_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "home").symlink_to(tmp_path / "gone")
    with pytest.raises(StoreUnavailable, match=r"/home cannot be made: not a folder$"):
        make_private_folder(tmp_path / "home")


def test_an_unwritable_folder_is_reported_as_read_only(tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    os.chmod(tmp_path / "locked", 0o500)

    with without_root(), pytest.raises(StoreReadOnly, match=r"/locked/data cannot be made: Permission denied$"):
        make_private_folder(tmp_path / "locked/data")


def test_a_folder_that_can_be_made_is_checked_where_it_would_be(tmp_path: Path) -> None:
    assert check_folder_writable(tmp_path) == tmp_path
    assert check_folder_writable(tmp_path / "not/yet") == tmp_path
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    locked = tmp_path / "locked"
    locked.mkdir()
    locked.chmod(0o500)

    with without_root(), pytest.raises(StoreReadOnly) as error:
        check_folder_writable(locked)
    assert error.value.message == f"the folder {locked} cannot be written to: Permission denied"
