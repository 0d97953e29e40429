"""Export a stored run as a RunState.

The row has the state of the run; the conversation has its items, and its links have the response
ids and usage. Responses are recognized in the items alone, because after a handoff with a
summary the links are on another path than the conversation. A RunState has no instructions: its reader has
those of the agents.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from convo.agent_runner.persistence import load_run_checkpoint
from convo.agents.graph import Graph
from convo.history.items import Item, Json
from convo.history.records import AgentRun, Link, Session
from convo.runs.state import Phase, Run
from convo.runstate.export import export_run_state
from convo.runstate.import_ import import_run_state
from convo.runstate.run_items import ModelCall, RunTranscript, split_model_calls, split_responses
from convo.runstate.run_state import RunState
from convo.stores.base import Store
from convo.strategies.instructions import ENDED_INSTRUCTIONS, drop_instruction_messages
from convo.strategies.strategy import STRATEGIES


async def build_run_state(
    store: Store,
    session: Session,
    row: AgentRun,
    run: Run,
    values: Any,
    base_state: RunState | None = None,
    *,
    allow_duplicate_names: bool = False,
    unknown_as_started: bool = False,
    context_serializer: Callable[[Any], Any] | None = None,
) -> RunState:
    """Return the run as a RunState of the newest schema version.

    A failed run is exported with a model call as its next step: its calls have their outputs, so no tool runs again.

    base_state:             the RunState that the run continues, if it began elsewhere
    allow_duplicate_names:  the state is for convo alone, so agents may share a name
    unknown_as_started:     export calls with an unknown outcome as started
    context_serializer:     of `build_context_members`
    Raises the errors of `convo.runstate.export.export_run_state`, and NotFound and ItemDeleted when items of the
    history were deleted.
    """
    if run.phase is Phase.FAILED:
        run = replace(run, phase=Phase.CALLING_MODEL, turn=run.turn + 1, calls=(), has_response=False, failure=None)
    path = await store.path(session.head)
    checkpoint = await load_run_checkpoint(row.document.get("standing") or {}, path, store)
    run_items = (
        [node.item for node in path.after(checkpoint.input_head)]
        if path.contains(checkpoint.input_head)
        else list(path.items)
    )
    first_agent = import_run_state(base_state, run.graph, values).run.agent if base_state else run.graph.start
    links = [link for link in await store.links(session.id, strict=True) if link.status == "completed"]
    model_calls = _build_turns(run.graph, first_agent, run_items, links)
    instructions = {ENDED_INSTRUCTIONS, session.instructions, *(link.parameters.get("instructions") for link in links)}
    earlier_items = drop_instruction_messages(path.items[: len(path) - len(run_items)], instructions)
    transcript = RunTranscript(
        earlier_items,
        model_calls,
        session.strategy,
        session.handle if STRATEGIES[session.strategy].is_server_side else None,
        context_values=values,
        context_serializer=context_serializer,
    )
    if checkpoint.view:
        view_items = checkpoint.view.path.items
        visible_calls = len(list(split_responses(view_items[checkpoint.view.initial_count :])))
        transcript = replace(
            transcript,
            input_items=view_items[: checkpoint.view.initial_count],
            summarized_calls=max(0, len(model_calls) - visible_calls),
        )
    return export_run_state(
        run,
        replace(
            transcript, base=base_state, convo_only=allow_duplicate_names, allow_unknown_outcomes=unknown_as_started
        ),
    )


def _build_turns(graph: Graph, first_agent: str, items: Sequence[Item], links: Sequence[Link]) -> list[ModelCall]:
    """Return the model calls that produced `items`, each with its link, matched from the last call backwards."""
    model_calls = split_model_calls(graph, first_agent, items)
    call_links = [*(None for _ in model_calls), *links][len(links) :]
    return [replace(call, **_get_response_fields(link)) for call, link in zip(model_calls, call_links, strict=True)]


def _get_response_fields(link: Link | None) -> dict[str, Json]:
    response_id = link.id if link and not link.id.startswith("try_") else None
    return {"response_id": response_id, "usage": link.usage if link else None}
