"""The files that paused runs are written to, for whoever goes on with them elsewhere.

A run is in the store as well and goes on from there. The file is for another machine, for the
Agents SDK, for a person who wants to read it. One that was put into convo's own folder goes when its
run has ended, because it would only be refused then; one that the person named stays. What both are
called there, and how they go with their session, is `convo.cli.paused_files`' to say.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from convo.cli.paused_files import MARK, base_place, ended, note_place, state_place
from convo.config import private
from convo.engine.chat import Chat
from convo.engine.finding import absolute
from convo.engine.run_state import state_of
from convo.engine.running import Running
from convo.engine.state_file import load, save
from convo.errors import InputFault, StateFault, StoreFault, Unreadable, Unsupported, Usage
from convo.items import Json
from convo.runstate import State
from convo.runstate.values import values_of
from convo.stores.contract import AgentRun


def base_of(row: AgentRun, folder: Path) -> State | None:
    """The state that a run went on from; None where it began here.

    folder:  where such states lie
    raises:  StateFault  it is not here any more
    """
    place = base_place(folder, row.id)
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
    there = state_place(folder, row.id)
    state = state or (load(str(there)) if there.exists() else None)
    return values_of(state.document) if state else {}


class Pauses:
    """Writes the state of one chat's runs, and takes it away again."""

    def __init__(self, folder: Path, place: str | None, values: dict[str, Json], note: Callable[[str], None]) -> None:
        """Write into `place`, or where none was named into `folder`, one file a run."""
        self._folder, self._place, self._values, self._note = folder, place, values, note

    def base(self, run: str, state: State) -> None:
        """Remember the state that a run goes on from: what convo does not model is in it alone."""
        save(state, str(base_place(private(self._folder), run)))

    async def keep(self, chat: Chat, running: Running) -> str | None:
        """Write the run's state if it is paused, take it away if it has ended; where it lies now.

        raises:  StoreFault, Unreadable  it could not be written; the run waits all the same
        """
        row = running.kept
        if row is None or not running.unfinished:
            with suppress(OSError):
                ended(self._folder, row.id if row else "")
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
        try:
            return self._write(State({**state.document, MARK: {"run": row.id}}, state.version), row.id)
        except (StoreFault, Unreadable) as wrong:
            wrong.args = (f"{wrong.message}; the run is paused all the same, and waits in the inbox",)
            wrong.hint = "convo approvals"
            raise

    def _write(self, state: State, run: str) -> str:
        if self._place is None:
            place = str(state_place(private(self._folder), run))
        else:
            place = absolute(self._place)
            note_place(self._folder, run, place)
        save(state, place)
        return absolute(place)
