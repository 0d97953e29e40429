"""Files of paused runs in convo's data folder.

run_....json is the state of a paused run, run_....base.json the state that an imported run continued
from, named/run_... the list of files that the user named for the run. All of them are deleted with the
session; the files that the user named stay and are reported.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from convo.chat.files import PRIVATE_MODE, format_os_error, write_atomic
from convo.chat.state_file import load_state_file
from convo.config.paths import make_private_folder
from convo.errors import InputFault, NotFound, StoreFault
from convo.runstate.state import RunState
from convo.stores.base import Store

RUN_MARK_KEY = "convo"
"""The member of a document that says which kept run it is of; every reader passes over it."""


def get_marked_run_id(state: RunState) -> str | None:
    """The id of the run that a document of convo's own is of, which only the store that has it knows."""
    said = state.document.get(RUN_MARK_KEY)
    run = said.get("run") if isinstance(said, dict) else None
    return run if isinstance(run, str) else None


def state_file_path(folder: Path, run: str) -> Path:
    """Where a paused run lies that nobody named a file for."""
    return folder / f"{run}.json"


def base_state_file_path(folder: Path, run: str) -> Path:
    """Where the state lies that a run from elsewhere went on from."""
    return folder / f"{run}.base.json"


def _named_files_list_path(folder: Path, run: str) -> Path:
    return folder.with_name("named") / run


def delete_state_files(folder: Path, run: str) -> None:
    """Take the states of a run that has ended; which files were named for it is still known. raises: OSError"""
    for place in (state_file_path(folder, run), base_state_file_path(folder, run)):
        place.unlink(missing_ok=True)


def record_named_file(folder: Path, run: str, place: str) -> None:
    """Remember a file that a person named for a run, before it is written. raises: StoreFault"""
    there = _read_named_files(folder, run)
    if place not in there:
        make_private_folder(folder.with_name("named"))
        write_atomic(_named_files_list_path(folder, run), json.dumps([*there, place]), mode=PRIVATE_MODE)


def list_named_files(folder: Path, runs: Iterable[str]) -> list[str]:
    """The files that a person named for runs, as far as they are there and still of them."""
    places = {place: None for run in runs for place in _read_named_files(folder, run) if _is_state_of_run(place, run)}
    return list(places)


def delete_run_files(folder: Path, runs: Iterable[str]) -> None:
    """Take all that convo has of runs which the store has no more.

    raises:  StoreFault  a file could not be taken, after all others were
    """
    left: list[StoreFault] = []
    ways = (state_file_path, base_state_file_path, _named_files_list_path)
    for place in [way(folder, run) for run in runs for way in ways]:
        try:
            place.unlink(missing_ok=True)
        except OSError as wrong:
            said = f"{place} is of a run that was removed, and cannot be removed itself: {format_os_error(wrong)}"
            left.append(StoreFault(said, hint="remove it yourself"))
    if left:
        raise left[0]


async def list_runs_with_files(store: Store, folder: Path) -> list[str]:
    """The runs of a store that have files here."""
    return [run for run in _list_run_ids(folder) if await store.agent_run(run)]


def _list_run_ids(folder: Path) -> list[str]:
    there = [place for place in (folder, folder.with_name("named")) if place.is_dir()]
    return sorted({name.partition(".")[0] for place in there for name in os.listdir(place)} - {""})


def _read_named_files(folder: Path, run: str) -> Sequence[str]:
    try:
        said = json.loads(_named_files_list_path(folder, run).read_bytes())
    except (OSError, ValueError):
        return ()
    return [place for place in said if isinstance(place, str)] if isinstance(said, list) else ()


def _is_state_of_run(place: str, run: str) -> bool:
    """Whether a file is there and still has that run; one place may have been named for several."""
    try:
        return os.path.isfile(place) and get_marked_run_id(load_state_file(place)) == run
    except (InputFault, NotFound):
        return False
