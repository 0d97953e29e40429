"""What a state needs to be told beside the run: what was said, answer by answer, and who holds it.

A history is items in a row. Which of them one answer of a model was, and what was added behind it,
is seen in the items: outputs, verdicts and a person's words are never a model's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from convo.agents import Graph
from convo.handoffs import offers
from convo.history import Strategy
from convo.items import Item, Json, call_id, is_output, is_user, kind
from convo.runstate.state import State

VERDICT = "mcp_approval_response"


@dataclass(frozen=True, slots=True)
class Turn:
    """One model call of a run.

    agent:   the identity of the agent that was asked
    output:  the items of its answer
    after:   what was added before the next call: outputs in the order of their calls, a person's words
    usage:   as the endpoint gave it, in tokens
    """

    agent: str
    output: Sequence[Item]
    after: Sequence[Item] = ()
    response_id: str | None = None
    usage: Mapping[str, Json] | None = None


@dataclass(frozen=True, slots=True)
class Account:
    """What a run does not know of itself.

    before:    what the model is told before anything of `turns`: the history with this run's input at its
               end, or what a summary or filter made of it
    turns:     the run's model calls, the oldest first
    summed:    how many of `turns` are a part of `before` already, because a handoff summed them up
    handle:    `conv_...` or the newest `resp_...`, where the endpoint owns the history
    values:    the application's own
    own:       the state is for convo alone, so agents may share a name
    unknown:   calls whose outcome is unknown are written as begun; the Agents SDK asks for them as for others
    base:      the state that the run goes on from; of `turns` only what came after its last answer is new, and
               `before` counts only where something was summed up since
    """

    before: Sequence[Item]
    turns: Sequence[Turn] = ()
    strategy: Strategy = Strategy.SESSION
    handle: str | None = None
    summed: int = 0
    values: Mapping[str, Json] = field(default_factory=dict)
    base: State | None = None
    own: bool = False
    unknown: bool = False


def turns(graph: Graph, first: str, items: Iterable[Item]) -> list[Turn]:
    """The model calls that `items` came of; `first` is the identity of the agent that was asked first."""
    told: list[Turn] = []
    agent = first
    for output, after in answers(items):
        told.append(Turn(agent, output, after))
        agent = _next(graph, agent, output)
    return told


def answers(items: Iterable[Item]) -> Iterator[tuple[list[Item], list[Item]]]:
    """Each answer, and what was added behind it."""
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
