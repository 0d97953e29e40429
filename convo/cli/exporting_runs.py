"""A kept run of agents as a RunState, for the Agents SDK or another machine.

A run only knows its agents by their names, so the file of agents is needed again. What convo does not
model of a state that the run went on from lies in the file that was put beside it then.
"""

import sys
from pathlib import Path

from convo.cli.conduct import cast_of
from convo.cli.paused_files import MARK
from convo.cli.pauses import base_of, values_in
from convo.cli.run_flags import RunFlags
from convo.cli.wiring import store_of
from convo.config import Settings
from convo.engine.run_keeping import kept_run, read_run
from convo.engine.run_state import state_of
from convo.errors import NotFound
from convo.runstate import NEWEST, State, relabelled, text
from convo.ui.answer import safe
from convo.ui.pausing import lost


async def state_text(handle: str, flags: RunFlags, label: str | None, settings: Settings, folder: Path) -> str:
    """The newest run of a session, or the run with this id, as a RunState; what it loses goes to stderr.

    label:   of the release that is to read it; None for the newest
    folder:  where the states lie that runs went on from
    raises:  NotFound, Usage, StateFault, InputFault, BadState
    """
    state, losses = relabelled(await _state(handle, flags, settings, folder), label or NEWEST.label)
    for words in lost(losses):
        sys.stderr.write(safe(words) + "\n")
    return text(state)


async def _state(handle: str, flags: RunFlags, settings: Settings, folder: Path) -> State:
    cast = cast_of(flags)
    async with store_of(settings) as store:
        row = await kept_run(store, handle)
        session = await store.session(row.session)
        if session is None:
            raise NotFound("session", row.session)
        run = await read_run(store, row, cast.graph)
        values = cast.conduct.values if flags.context else values_in(row, folder)
        state = await state_of(store, session, row, run, values, base=base_of(row, folder))
    return State({**state.document, MARK: {"run": row.id}}, state.version)
