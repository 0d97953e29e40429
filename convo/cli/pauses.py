"""The files that paused runs are written to, for whoever goes on with them elsewhere.

A run is in the store as well and goes on from there. The file is for another machine, for the
Agents SDK, for a person who wants to read it. One that was put into convo's own folder goes when its
run has ended, because it would only be refused then; one that the person named stays. A file that was
written is written again once a tool has run, however the run ends: an older one would let the tool run
again elsewhere. What both are called, and how they go with their session, is `convo.cli.paused_files`' to say.
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
from convo.run import Run, Stage
from convo.runstate import State
from convo.runstate.values import values_of
from convo.stores.contract import AgentRun
from convo.tools import NO_VALUES


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
    return values_of(state.document) if state else NO_VALUES


class Pauses:
    """Writes the state of one chat's runs, and takes it away again."""

    def __init__(
        self,
        folder: Path,
        place: str | None,
        values: Mapping[str, Json],
        note: Callable[[str], None],
        *,
        resumed: bool = False,
    ) -> None:
        """Write into `place`, or where none was named into `folder`, one file a run.

        resumed:  the run was paused before, so `place` is written however it ends
        """
        self._folder, self._place, self._values, self._note = folder, place, values, note
        self._resumed, self._written = resumed, set[str]()

    def base(self, run: str, state: State) -> None:
        """Remember the state that a run goes on from: what convo does not model is in it alone."""
        save(state, str(base_place(private(self._folder), run)))

    async def keep(self, chat: Chat, running: Running) -> str | None:
        """Write the run's state if it is paused, or if a file of it is older than it; where the file lies now.

        A run that has ended has no file in convo's own folder any more.

        raises:  StoreFault, Unreadable  it could not be written; the run waits all the same
        """
        row = running.kept
        if row is None:
            with suppress(OSError):
                ended(self._folder, "")
            return None
        named = self._place is not None and (self._resumed or row.id in self._written)
        over = not running.unfinished
        if row.status == "paused" or (row.status != "stopped" and (named or (not over and self._is_there(row.id)))):
            written = await self._state(chat, running, row, named=named)
            if not over:
                return written
        else:
            written = None
        if over:
            with suppress(OSError):
                ended(self._folder, row.id)
        return written

    def _is_there(self, run: str) -> bool:
        """Whether convo's own folder has a state of a run."""
        return state_place(self._folder, run).exists()

    async def _state(self, chat: Chat, running: Running, row: AgentRun, *, named: bool) -> str | None:
        """Write the state of the run as it stands; `named`: the person named the file, which may be older."""
        try:
            run = await running.at_rest()
            state = await state_of(
                chat.edges.store,
                chat.session,
                row,
                run,
                self._values,
                base_of(row, self._folder),
                own=True,
                unknown=named,
            )
        except (InputFault, StateFault, Unsupported, Usage) as wrong:
            self._note(f"no state file was written: {wrong.message}")
            return None
        try:
            place = self._write(State({**state.document, MARK: {"run": row.id}}, state.version), row.id)
        except (StoreFault, Unreadable) as wrong:
            waits = "the run is still paused" if row.status == "paused" else "the run is saved"
            wrong.args = (f"{wrong.message}; {waits}",)
            wrong.hint = "convo approvals"
            raise
        for call in run.at(Stage.UNKNOWN):
            self._note(
                f"{call.id} was started and its outcome is unknown; the state records this, and resume asks for it"
            )
        shared = _shared_names(running.run)
        if shared:
            names = ", ".join(map(repr, shared))
            self._note(f"several agents are called {names}: convo resumes this state, the Agents SDK cannot read it")
        return place

    def _write(self, state: State, run: str) -> str:
        if self._place is None:
            place = str(state_place(private(self._folder), run))
        else:
            place = absolute(self._place)
            note_place(self._folder, run, place)
        save(state, place)
        self._written.add(run)
        return absolute(place)


def _shared_names(run: Run) -> tuple[str, ...]:
    """Names that several agents of a run share, or of one that waits inside it."""
    inner = (name for call in run.batch if call.inner for name in _shared_names(call.inner.run))
    return tuple(dict.fromkeys((*run.graph.duplicates, *inner)))
