"""Files of paused runs in convo's data folder.

run_....json is the state of a paused run, run_....base.json the state that an imported run continued
from, named/run_... the list of files that the user named for the run. All of them are deleted with the
session; the files that the user named stay and are reported.
"""

import json
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from convo.chat.files import PRIVATE_MODE, format_os_error, write_atomic
from convo.chat.state_file import load_state_file
from convo.config.paths import make_private_folder
from convo.errors import DamagedRow, InputFault, NotFound, StoreFault
from convo.runstate.run_state import RunState
from convo.stores.base import Store

RUN_MARK_KEY = "convo"
"""The member of a document with the id of its stored run; other readers ignore it."""

RUN_ID_PATTERN = re.compile(r"run_[0-9A-Za-z_-]{1,64}")


def get_marked_run_id(state: RunState) -> str | None:
    """Return the id of the run that a document of convo's own is of; only the store with the run has this id."""
    mark = state.document.get(RUN_MARK_KEY)
    run_id = mark.get("run") if isinstance(mark, dict) else None
    return run_id if isinstance(run_id, str) else None


def state_file_path(folder: Path, run_id: str) -> Path:
    """Return the path of a paused run without a named file. Raises StoreFault for an id that is not convo's."""
    return folder / f"{_check_run_id(run_id)}.json"


def base_state_file_path(folder: Path, run_id: str) -> Path:
    """Return the path of the state that an imported run continued from. Raises StoreFault as `state_file_path`."""
    return folder / f"{_check_run_id(run_id)}.base.json"


def _named_files_list_path(folder: Path, run_id: str) -> Path:
    return folder.with_name("named") / _check_run_id(run_id)


def _check_run_id(run_id: str) -> str:
    """Return `run_id`, a part of a path. A store that another program wrote may contain any text as an id."""
    if not RUN_ID_PATTERN.fullmatch(run_id):
        raise StoreFault(f"{run_id!r}, the id of a stored run, is not one of convo's", hint="convo store check")
    return run_id


def delete_state_files(folder: Path, run_id: str) -> None:
    """Delete the states of an ended run, but not the list of its named files. Raises OSError."""
    for path in (state_file_path(folder, run_id), base_state_file_path(folder, run_id)):
        path.unlink(missing_ok=True)


def record_named_file(folder: Path, run_id: str, path: str) -> None:
    """Record a file that the user named for a run, before it is written. Raises StoreFault."""
    recorded = _read_named_files(folder, run_id)
    if path not in recorded:
        make_private_folder(folder.with_name("named"))
        write_atomic(_named_files_list_path(folder, run_id), json.dumps([*recorded, path]), mode=PRIVATE_MODE)


def list_named_files(folder: Path, runs: Iterable[str]) -> list[str]:
    """Return the files that the user named for runs, if they exist and still contain that run."""
    paths = {path: None for run in runs for path in _read_named_files(folder, run) if _is_state_of_run(path, run)}
    return list(paths)


def delete_run_files(folder: Path, runs: Iterable[str]) -> None:
    """Delete all files of runs that the store no longer has, except those that the user named.

    Raises StoreFault for a file that could not be deleted, after all others were.
    """
    failures: list[StoreFault] = []
    path_functions = (state_file_path, base_state_file_path, _named_files_list_path)
    valid_runs = [run for run in runs if RUN_ID_PATTERN.fullmatch(run)]
    for path in [make_path(folder, run) for run in valid_runs for make_path in path_functions]:
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            message = f"{path} belongs to a removed run and cannot be deleted: {format_os_error(error)}"
            failures.append(StoreFault(message, hint="delete the file yourself"))
    if failures:
        raise failures[0]


async def list_runs_with_files(store: Store, folder: Path) -> list[str]:
    """Return the runs of a store that have files in `folder`."""
    return [run for run in _list_run_ids(folder) if await is_run_stored(store, run)]


async def is_run_stored(store: Store, run_id: str) -> bool:
    """Return whether the store has this run, also if its row is damaged."""
    try:
        return await store.agent_run(run_id) is not None
    except DamagedRow:
        return True


def _list_run_ids(folder: Path) -> list[str]:
    folders = [directory for directory in (folder, folder.with_name("named")) if directory.is_dir()]
    names = {name.partition(".")[0] for directory in folders for name in os.listdir(directory)}
    return sorted(name for name in names if RUN_ID_PATTERN.fullmatch(name))


def _read_named_files(folder: Path, run_id: str) -> Sequence[str]:
    try:
        document = json.loads(_named_files_list_path(folder, run_id).read_bytes())
    except (OSError, ValueError):
        return ()
    return [path for path in document if isinstance(path, str)] if isinstance(document, list) else ()


def _is_state_of_run(path: str, run_id: str) -> bool:
    """Return whether a file exists and still contains that run; one path may be named for several."""
    try:
        return os.path.isfile(path) and get_marked_run_id(load_state_file(path)) == run_id
    except (InputFault, NotFound):
        return False
