"""A kept run as a RunState: what the store has of it, put together.

The run's row says where it stands; the conversation says what was said, and its links by which
answers. What an answer is and what was added behind it is seen in the items alone, because a run
that was handed over with a summary has its links elsewhere than the conversation.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from convo.agents import Graph
from convo.engine.standing import read
from convo.history import OWNERS, Link, Session
from convo.items import Item, Json
from convo.run import Phase, Run
from convo.runstate import State
from convo.runstate.account import Account, Turn, answers, turns
from convo.runstate.making import made
from convo.runstate.taking import taken
from convo.stores.contract import AgentRun, Store


async def state_of(
    store: Store,
    session: Session,
    row: AgentRun,
    run: Run,
    values: Mapping[str, Json],
    base: State | None = None,
    *,
    own: bool = False,
    unknown: bool = False,
) -> State:
    """The run as a state of the newest label.

    One that failed is written as one that asks its model next: its calls have their outputs, so no tool runs again.

    base:    the state that it goes on from, where it did not begin here
    own:     it is for convo alone, so agents may share a name
    unknown: calls whose outcome is unknown are written as begun
    raises:  as `convo.runstate.making.made`; NotFound, ItemDeleted  its history is not whole any more
    """
    if run.phase is Phase.FAILED:
        run = replace(run, phase=Phase.ASKING, turn=run.turn + 1, batch=(), answered=False, failure=None)
    path = await store.path(session.head)
    standing = await read(row.document.get("standing"), path, store)
    since = [node.item for node in path.after(standing.begun)] if path.passes(standing.begun) else list(path.items)
    first = taken(base, run.graph, values).run.agent if base else run.graph.start
    links = [link for link in await store.links(session.id) if link.status == "completed"]
    told = _turns(run.graph, first, since, links)
    before = path.items[: len(path) - len(since)]
    account = Account(
        before, told, session.strategy, session.handle if OWNERS[session.strategy].remembers else None, values=values
    )
    if standing.view:
        seen = standing.view.path.items
        shown = len(list(answers(seen[standing.view.history :])))
        account = replace(account, before=seen[: standing.view.history], summed=max(0, len(told) - shown))
    return made(run, replace(account, base=base, own=own, unknown=unknown))


def _turns(graph: Graph, first: str, items: Sequence[Item], links: Sequence[Link]) -> list[Turn]:
    """The model calls that `items` came of, each with its link, counted from the last one."""
    told = turns(graph, first, items)
    known = [*(None for _ in told), *links][len(links) :]
    return [replace(turn, **_of_link(link)) for turn, link in zip(told, known, strict=True)]


def _of_link(link: Link | None) -> dict[str, Json]:
    response = link.id if link and not link.id.startswith("try_") else None
    return {"response_id": response, "usage": link.usage if link else None}
