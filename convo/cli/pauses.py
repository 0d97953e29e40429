"""The files that paused runs are written to, for whoever goes on with them elsewhere.

A run is in the store as well and goes on from there. The file is for another machine, for the
Agents SDK, for a person who wants to read it. One that was put into convo's own folder goes when its
run has ended, because it would only be refused then; one that the person named stays.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from convo.config import private
from convo.engine.chat import Chat
from convo.engine.finding import absolute
from convo.engine.run_state import state_of
from convo.engine.running import Running
from convo.engine.state_file import load, save
from convo.errors import InputFault, StateFault, Unsupported, Usage
from convo.items import Json
from convo.runstate import State
from convo.runstate.values import values_of
from convo.stores.contract import AgentRun

MARK = "convo"
"""The member of a document that says which kept run it is of; every reader passes over it."""


def run_in(state: State) -> str | None:
    """The id of the run that a document of convo's own is of, which only the store that has it knows."""
    said = state.document.get(MARK)
    run = said.get("run") if isinstance(said, dict) else None
    return run if isinstance(run, str) else None


def base_of(row: AgentRun, folder: Path) -> State | None:
    """The state that a run went on from; None where it began here.

    folder:  where such states lie
    raises:  StateFault  it is not here any more
    """
    place = folder / f"{row.id}.base.json"
    if row.state is None:
        return None
    if not place.exists():
        raise StateFault(
            f"{row.id} went on from a state that is not here, and what only that said would be lost",
            hint="export it where it was resumed, as long as it waits",
        )
    return load(str(place))


def values_in(row: AgentRun, folder: Path, state: State | None = None) -> Mapping[str, Json]:
    """The application's own values of a run, which lie in its state alone and not in the store.

    state:   the one that is gone on with, where it is a file; else the one in `folder`, if there is one
    raises:  InputFault  they were something else than a mapping
    """
    there = folder / f"{row.id}.json"
    state = state or (load(str(there)) if there.exists() else None)
    return values_of(state.document) if state else {}


class Pauses:
    """Writes the state of one chat's runs, and takes it away again."""

    def __init__(self, folder: Path, place: str | None, values: dict[str, Json], note: Callable[[str], None]) -> None:
        """Write into `place`, or where none was named into `folder`, one file a run."""
        self._folder, self._place, self._values, self._note = folder, place, values, note

    def base(self, run: str, state: State) -> None:
        """Remember the state that a run goes on from: what convo does not model is in it alone."""
        save(state, str(private(self._folder) / f"{run}.base.json"))

    async def keep(self, chat: Chat, running: Running) -> str | None:
        """Write the run's state if it is paused, take it away if it has ended; where it lies now."""
        row = running.kept
        if row is None or not running.unfinished:
            self._remove(row.id if row else "")
            return None
        if row.status != "paused":
            return None
        try:
            state = await state_of(
                chat.edges.store, chat.session, row, running.run, self._values, base=base_of(row, self._folder)
            )
        except (InputFault, StateFault, Unsupported, Usage) as wrong:
            self._note(f"no state file was written: {wrong.message}")
            return None
        place = self._place or str(private(self._folder) / f"{row.id}.json")
        save(State({**state.document, MARK: {"run": row.id}}, state.version), place)
        return absolute(place)

    def _remove(self, run: str) -> None:
        for name in (f"{run}.json", f"{run}.base.json"):
            with suppress(OSError):
                (self._folder / name).unlink(missing_ok=True)
