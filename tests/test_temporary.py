"""Temporary files and folders: those of a killed process are removed by the next process that uses the folder."""

import os
import signal
import time
from pathlib import Path

import pytest

from convo.runtime import make_temporary_folder, open_temporary_file, temporary_folder

pytestmark = pytest.mark.needs("linux")


def make_file_and_exit(folder: Path) -> None:
    """Create a temporary file and folder in another process, which kills itself."""
    child = os.fork()
    if not child:
        open_temporary_file(folder)
        Path(make_temporary_folder("convo-test-", str(folder)), "inside").write_text("private")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_what_a_killed_process_left_is_removed(tmp_path: Path) -> None:
    make_file_and_exit(tmp_path)
    assert len(names(tmp_path)) == 2
    handle, path = open_temporary_file(tmp_path)
    os.close(handle)
    folder = Path(make_temporary_folder("convo-test-", str(tmp_path)))
    assert names(tmp_path) == {path.name, folder.name}
    assert (path.stat().st_mode & 0o777, folder.stat().st_mode & 0o777) == (0o600, 0o700)


def test_a_block_that_ends_removes_its_folder(scratch_root: Path) -> None:
    make_file_and_exit(scratch_root)
    with temporary_folder("convo-test-") as folder:
        (folder / "inside").write_text("private")
        assert names(scratch_root) >= {folder.name}
    assert not any(name.startswith("convo-test-") for name in names(scratch_root))


def test_files_of_living_processes_and_of_people_stay(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    handle, other = open_temporary_file(tmp_path)
    os.close(handle)
    foreign_names = {".convo-notes", ".convo.toml", other.name.rpartition("-")[0], "convo-test-mine"}
    for name in foreign_names:
        (folder / name).touch()
    first, _ = open_temporary_file(folder)
    second, _ = open_temporary_file(folder)
    os.close(first)
    os.close(second)
    make_temporary_folder("convo-test-", str(folder))
    assert len(names(folder)) == len(foreign_names) + 3


def test_a_file_of_another_machine_is_removed_after_a_day(tmp_path: Path) -> None:
    new, old = tmp_path / ".convo-00000000-1-1-00000001", tmp_path / ".convo-00000000-1-1-00000002"
    for path, age_s in ((new, 86_300), (old, 86_500)):
        path.touch()
        os.utime(path, (0, time.time() - age_s))
    os.close(open_temporary_file(tmp_path)[0])
    assert new.exists()
    assert not old.exists()


@pytest.fixture
def scratch_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    import tempfile

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path
