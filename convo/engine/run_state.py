"""A kept run as a RunState: what the store has of it, put together.

The run's row says where it stands; the conversation says what was said, and its links by which
answers. What an answer is and what was added behind it is seen in the items alone, because a run
that was handed over with a summary has its links elsewhere than the conversation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from convo.agents import Graph
from convo.engine.standing import read
from convo.handoffs import offers
from convo.history import OWNERS, Link, Session
from convo.items import Item, Json, call_id, is_output, is_user, kind
from convo.run import Run
from convo.runstate import State
from convo.runstate.making import Account, Turn, made
from convo.runstate.taking import taken
from convo.stores.contract import AgentRun, Store

VERDICT = "mcp_approval_response"


async def state_of(
    store: Store, session: Session, row: AgentRun, run: Run, values: Mapping[str, Json], base: State | None = None
) -> State:
    """The run as a state of the newest label.

    base:    the state that it goes on from, where it did not begin here
    raises:  as `convo.runstate.making.made`; NotFound, ItemDeleted  its history is not whole any more
    """
    path = await store.path(session.head)
    standing = await read(row.document.get("standing"), path, store)
    since = [node.item for node in path.after(standing.begun)] if path.passes(standing.begun) else list(path.items)
    first = taken(base, run.graph).run.agent if base else run.graph.start
    links = [link for link in await store.links(session.id) if link.status == "completed"]
    turns = _turns(run.graph, first, since, links)
    before = path.items[: len(path) - len(since)]
    account = Account(
        before, turns, session.strategy, session.handle if OWNERS[session.strategy].remembers else None, values=values
    )
    if standing.view and not base:
        seen = standing.view.path.items
        told = len(list(_answers(seen[standing.view.history :])))
        account = replace(account, before=seen[: standing.view.history], summed=max(0, len(turns) - told))
    return made(run, replace(account, base=base))


def _turns(graph: Graph, first: str, items: Sequence[Item], links: Sequence[Link]) -> list[Turn]:
    """The model calls that `items` came of, each with its link, counted from the last one."""
    answers = list(_answers(items))
    known = [*(None for _ in answers), *links][len(links) :]
    turns, agent = [], first
    for (output, after), link in zip(answers, known, strict=True):
        response = link.id if link and not link.id.startswith("try_") else None
        turns.append(Turn(agent, output, after, response, link.usage if link else None))
        agent = _next(graph, agent, output)
    return turns


def _answers(items: Iterable[Item]) -> Iterator[tuple[list[Item], list[Item]]]:
    """Each answer, and what was added behind it: outputs, verdicts, a person's words."""
    output: list[Item] = []
    after: list[Item] = []
    for item in items:
        added = is_output(item) or is_user(item) or kind(item) == VERDICT
        if after and not added:
            yield output, after
            output, after = [], []
        (after if added else output).append(item)
    if output or after:
        yield output, after


def _next(graph: Graph, agent: str, output: Sequence[Item]) -> str:
    """Whose turn it is after an answer: the first handoff in it is the one that is taken."""
    ways = {offer.name: offer.to for offer in offers(graph, agent)}
    called = (str(item.get("name")) for item in output if call_id(item) and not item.get("namespace"))
    return next((ways[name] for name in called if name in ways), agent)
