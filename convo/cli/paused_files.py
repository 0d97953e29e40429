"""What runs have in convo's own folder, and how it goes when their session does.

A run that paused has its state there (`run_….json`), one that began elsewhere also the state that it
went on from (`run_….base.json`). Beside that folder is one with the places of files that a person
named for runs, a list for each (`named/run_…`), which outlives the run. All of that is convo's and
goes with the session; the named files are the person's and stay, so they are told.
"""

import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from convo.config import private
from convo.engine.state_file import load
from convo.engine.whole_file import PRIVATE, put, why
from convo.errors import InputFault, NotFound, StoreFault
from convo.runstate import State
from convo.stores.contract import Store

MARK = "convo"
"""The member of a document that says which kept run it is of; every reader passes over it."""


def run_in(state: State) -> str | None:
    """The id of the run that a document of convo's own is of, which only the store that has it knows."""
    said = state.document.get(MARK)
    run = said.get("run") if isinstance(said, dict) else None
    return run if isinstance(run, str) else None


def state_place(folder: Path, run: str) -> Path:
    """Where a paused run lies that nobody named a file for."""
    return folder / f"{run}.json"


def base_place(folder: Path, run: str) -> Path:
    """Where the state lies that a run from elsewhere went on from."""
    return folder / f"{run}.base.json"


def _list_place(folder: Path, run: str) -> Path:
    return folder.with_name("named") / run


def ended(folder: Path, run: str) -> None:
    """Take the states of a run that has ended; which files were named for it is still known. raises: OSError"""
    for place in (state_place(folder, run), base_place(folder, run)):
        place.unlink(missing_ok=True)


def note_place(folder: Path, run: str, place: str) -> None:
    """Remember a file that a person named for a run, before it is written. raises: StoreFault"""
    there = _places(folder, run)
    if place not in there:
        private(folder.with_name("named"))
        put(_list_place(folder, run), json.dumps([*there, place]), mode=PRIVATE)


def named(folder: Path, runs: Iterable[str]) -> list[str]:
    """The files that a person named for runs, as far as they are there and still of them."""
    places = {place: None for run in runs for place in _places(folder, run) if _is_of(place, run)}
    return list(places)


def forget(folder: Path, runs: Iterable[str]) -> None:
    """Take all that convo has of runs which the store has no more.

    raises:  StoreFault  a file could not be taken, after all others were
    """
    left: list[StoreFault] = []
    ways = (state_place, base_place, _list_place)
    for place in [way(folder, run) for run in runs for way in ways]:
        try:
            place.unlink(missing_ok=True)
        except OSError as wrong:
            said = f"{place} is of a run that was removed, and cannot be removed itself: {why(wrong)}"
            left.append(StoreFault(said, hint="remove it yourself"))
    if left:
        raise left[0]


async def with_files(store: Store, folder: Path) -> list[str]:
    """The runs of a store that have files here."""
    return [run for run in _runs_in(folder) if await store.agent_run(run)]


def _runs_in(folder: Path) -> list[str]:
    there = [place for place in (folder, folder.with_name("named")) if place.is_dir()]
    return sorted({name.partition(".")[0] for place in there for name in os.listdir(place)} - {""})


def _places(folder: Path, run: str) -> Sequence[str]:
    try:
        said = json.loads(_list_place(folder, run).read_bytes())
    except (OSError, ValueError):
        return ()
    return [place for place in said if isinstance(place, str)] if isinstance(said, list) else ()


def _is_of(place: str, run: str) -> bool:
    """Whether a file is there and still has that run; one place may have been named for several."""
    try:
        return os.path.isfile(place) and run_in(load(place)) == run
    except (InputFault, NotFound):
        return False
