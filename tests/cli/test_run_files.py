"""State files of runs: convo removes its own files with their session and keeps the files that the user named."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from tests.cli.agent_files import PAID_BACK, REFUND, agent_flags, paused_files
from tests.cli.chat_commands import scripted_flags
from tests.cli.stored_chats import DATABASE
from tests.command_runner import Convo, Launch

SECRET = "xylophonic"


def pause_run(convo: Convo, name: str, *flags: str) -> str:
    """Create a session with a paused run and a secret word; returns the id of the run."""
    got = convo(
        "chat",
        *agent_flags(),
        *scripted_flags(REFUND, PAID_BACK),
        "-n",
        name,
        *flags,
        "--json",
        f"pay {SECRET} back, {name}",
    )
    assert got.exit == 3, got.err
    return str(got.json()["run"])


def stored_files(home: Path) -> list[str]:
    """The names of the files that convo stores for runs in its data folder."""
    return sorted(file.name for folder in ("paused", "named") for file in (home / "data" / folder).glob("*"))


def files_with_secret(folder: Path) -> list[str]:
    """The names of the files that contain the secret word."""
    files = [file for file in folder.rglob("*") if file.is_file()]
    return sorted(file.name for file in files if SECRET.encode() in file.read_bytes())


def test_removing_a_session_removes_the_state_files_of_its_runs(convo: Convo, home: Path) -> None:
    removed_id, kept_id = pause_run(convo, "u"), pause_run(convo, "v")
    assert stored_files(home) == sorted([f"{removed_id}.json", f"{kept_id}.json"])
    got = convo("sessions", "rm", "u", "--yes")
    assert (got.exit, got.err) == (0, "removed u: 1 response and 2 items\n")
    assert stored_files(home) == [f"{kept_id}.json"]
    assert convo("sessions", "rm", "v", "--yes").exit == 0
    assert (stored_files(home), files_with_secret(home)) == ([], [])


def test_removing_a_session_removes_the_state_files_of_an_imported_run(
    convo: Convo, launch: Launch, home: Path, tmp_path: Path
) -> None:
    run = pause_run(convo, "u", "--state", "u.json")
    other = tmp_path / "other"
    resumed = launch(
        "resume", "u.json", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), "--json", env={"CONVO_HOME": str(other)}
    )
    assert resumed.exit == 3, resumed.err
    imported_id = resumed.json()["run"]
    assert stored_files(other) == [f"{imported_id}.base.json", f"{imported_id}.json"]
    removed = launch("sessions", "rm", resumed.json()["session"], "--yes", env={"CONVO_HOME": str(other)})
    assert removed.exit == 0, removed.err
    assert (stored_files(other), files_with_secret(other), stored_files(home)) == ([], [], [run])


def test_the_id_of_a_stored_run_is_never_used_as_a_path(convo: Convo, home: Path, tmp_path: Path) -> None:
    """A store that somebody else wrote has a run whose id leads to another folder."""
    run_id = pause_run(convo, "u")
    other_file = tmp_path / "other.json"
    other_file.write_text("{}")
    with closing(sqlite3.connect(home / DATABASE)) as database, database:
        database.execute("UPDATE agent_runs SET id = ? WHERE id = ?", (str(tmp_path / "other"), run_id))
    got = convo("sessions", "rm", "u", "--yes")
    assert other_file.exists(), got.err


def test_a_named_state_file_is_kept_and_reported(convo: Convo, home: Path, tmp_path: Path) -> None:
    (tmp_path / "here").mkdir()
    pause_run(convo, "u", "--state", "here/s.json")
    got = convo("sessions", "rm", "u", "--yes")
    assert got.err == f"removed u: 1 response and 2 items; the file {tmp_path / 'here' / 's.json'} is kept\n"
    assert (stored_files(home), files_with_secret(home), files_with_secret(tmp_path / "here")) == ([], [], ["s.json"])


def test_named_state_files_of_all_runs_are_reported_even_of_finished_ones(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    pause_run(convo, "u", "--state", "a.json")
    assert convo("resume", "a.json", *agent_flags(), *scripted_flags(REFUND, PAID_BACK), "--approve", "all").exit == 0
    again = convo(
        "chat", "--from", "u", *agent_flags(), *scripted_flags(PAID_BACK, REFUND), "--state", "b.json", "again"
    )
    assert again.exit == 3, again.err
    assert len(stored_files(home)) == 2
    notes = "; ".join(f"the file {tmp_path / name} is kept" for name in ("b.json", "a.json"))
    assert convo("sessions", "rm", "u", "--yes").err.endswith(f" items; {notes}\n")
    assert stored_files(home) == []


def test_a_named_state_file_that_is_missing_or_has_another_run_is_not_reported(
    convo: Convo, home: Path, tmp_path: Path
) -> None:
    for name in ("u", "v"):
        pause_run(convo, name, "--state", "s.json")
    assert convo("sessions", "rm", "u", "--yes").err == "removed u: 1 response and 2 items\n"
    (tmp_path / "s.json").unlink()
    os.mkfifo(tmp_path / "s.json")
    assert convo("sessions", "rm", "v", "--yes").err == "removed v: 1 response and 2 items\n"
    assert stored_files(home) == []


def test_a_state_file_that_cannot_be_removed_is_an_error_and_the_others_are_removed(convo: Convo, home: Path) -> None:
    pause_run(convo, "u", "--state", "s.json")
    pause_run(convo, "v")
    (path,) = paused_files(home)
    path.unlink()
    (path / "in the way").mkdir(parents=True)
    got = convo("sessions", "rm", "v", "u", "--yes")
    assert got.exit == 1
    assert got.err.startswith("removed v: 1 response and 2 items\nremoved u: 1 response and 2 items; the file ")
    assert f"convo: {path} belongs to a removed run and cannot be deleted: is a directory\n" in got.err
    assert stored_files(home) == [path.name]


def test_pruning_removes_the_state_files_of_the_removed_sessions(convo: Convo, home: Path, tmp_path: Path) -> None:
    pause_run(convo, "u", "--state", "s.json")
    pause_run(convo, "v")
    with closing(sqlite3.connect(home / DATABASE)) as database, database:
        database.execute("UPDATE sessions SET used_at = 1")
    new_id = pause_run(convo, "w")
    prune = ("store", "prune", "--older-than", "1w", "--json")
    dry_run = convo(*prune)
    assert (dry_run.json()["removed"], dry_run.err, len(stored_files(home))) == (
        False,
        "dry run, nothing removed; pass --yes to remove this data\n",
        3,
    )
    done = convo(*prune, "--yes")
    assert done.json() == {**dry_run.json(), "before": done.json()["before"], "removed": True}
    assert done.err == f"removed\nthe file {tmp_path / 's.json'} is kept\n"
    assert stored_files(home) == [f"{new_id}.json"]
