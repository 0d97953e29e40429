"""`convo export --format runstate`: an agent run as RunState JSON.

A stored run has only the names of its agents, so --agent is needed. Members of an imported state that
convo does not model are read from the state file that was saved with the run.
"""

import sys
from contextlib import AsyncExitStack
from pathlib import Path

from convo.agent_runner.persistence import load_run, load_run_row
from convo.agent_runner.run_state import build_run_state
from convo.cli.agent_options import load_agent_setup
from convo.cli.agent_run import load_base_state, load_saved_state, with_run_context
from convo.cli.deps import open_configured_store
from convo.cli.paused_files import RUN_MARK_KEY
from convo.cli.run_options import RunFlags
from convo.config.settings import Settings
from convo.errors import NotFound
from convo.runstate.relabel import relabel_state
from convo.runstate.run_state import RunState
from convo.runstate.versions import NEWEST_VERSION
from convo.runstate.writer import serialize_run_state
from convo.terminal.run_state_view import loss_lines
from convo.terminal.terminal import escape_control_chars


async def render_session_run_state(
    handle: str, flags: RunFlags, label: str | None, settings: Settings, folder: Path
) -> str:
    """Render a session's newest run, or the run with this id, as a RunState; its losses go to stderr.

    label:   that of the release that reads the state; None for the newest
    folder:  the folder of the states that runs continued from

    Raises NotFound, InvalidUsage, StateFault, InputFault or InvalidRunState.
    """
    state, losses = relabel_state(
        await _build_session_run_state(handle, flags, settings, folder), label or NEWEST_VERSION.label
    )
    for line in loss_lines(losses):
        sys.stderr.write(escape_control_chars(line) + "\n")
    return serialize_run_state(state)


async def _build_session_run_state(handle: str, flags: RunFlags, settings: Settings, folder: Path) -> RunState:
    setup = await load_agent_setup(flags, with_context=False)
    async with open_configured_store(settings) as store, AsyncExitStack() as exit_stack:
        row = await load_run_row(store, handle)
        session = await store.session(row.session_id)
        if session is None:
            raise NotFound("session", row.session_id)
        setup = with_run_context(setup, flags.context, load_saved_state(row, folder), row)
        setup = await setup.connect(settings, exit_stack)
        run = await load_run(store, row, setup.graph)
        state = await build_run_state(
            store,
            session,
            row,
            run,
            setup.run_config.values,
            load_base_state(row, folder),
            context_serializer=setup.run_config.context_serializer,
        )
    return RunState({**state.document, RUN_MARK_KEY: {"run": row.id}}, state.version)
