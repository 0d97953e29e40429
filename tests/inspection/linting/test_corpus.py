"""Each broken history is found, mended, and then taken by a server that refuses what the real one refuses."""

from contextlib import aclosing
from dataclasses import replace
from typing import Any

import pytest

from convo.clock import FixedClock
from convo.endpoints.embedded import Manner
from convo.errors import Refused
from convo.history import HERE, Path, Strategy, root
from convo.inspection.linting import RULES, View, for_a_file, for_a_session, lint
from convo.items import Item, user
from convo.stores.contract import Change, Conversation, Growth, Store
from convo.stores.memory import MemoryStore
from convo.strategies import Held, send
from tests.embedding import embedded
from tests.inspection.linting.corpus import CORPUS, Broken

MODEL = "scripted/echo"

ALL = pytest.mark.parametrize("broken", CORPUS, ids=lambda broken: broken.title)


async def ask(view: View) -> str:
    """Say something more in `view`, whose owner is a strict endpoint; returns how that ended. raises: Refused"""
    store = MemoryStore()
    items, state = await sent(view, store)
    endpoint = embedded(store, FixedClock(), manner=Manner(strict=True))
    async with aclosing(endpoint.create({"model": MODEL, "input": [*items, user("go on")], **state})) as events:
        return str([event async for event in events][-1]["type"])


async def sent(view: View, store: Store) -> tuple[tuple[Item, ...], dict[str, Any]]:
    """What travels of `view`, and the fields that name the rest; what an endpoint owns stands in `store`."""
    if view.strategy is Strategy.REPLAY:  # sent by anybody, as it stands
        return view.items, {"store": False}
    path = Path(root(store.tenant)).grow(view.items)
    mark = path.first(view.owned)
    handle = None
    growth = (Growth(path.root, mark.items),)
    if view.strategy is Strategy.CHAIN:
        assert view.anchor
        link = replace(view.anchor, saw=path.root, head=mark.head, scope=HERE, parent=None, session=None, stored=True)
        handle = link.id
        await store.commit(Change(growth, (link,)))
    elif view.strategy is Strategy.CONVERSATION:
        handle, ids = "conv_1", tuple(f"item_{at}" for at in range(view.owned))
        await store.commit(Change(growth, conversation=Conversation(handle, mark.head, 0, ids)))
    turn = send(Held(view.strategy, path, mark.head, handle))
    return tuple(turn.items), dict(turn.state)


@ALL
def test_a_broken_history_is_found_with_exactly_these_codes(broken: Broken) -> None:
    assert tuple((one.code, one.fault.at) for one in lint(broken.view)) == broken.found


@ALL
async def test_what_a_strict_server_refuses_is_in_the_corpus_as_such(broken: Broken) -> None:
    if broken.refused:
        with pytest.raises(Refused):
            await ask(broken.view)
    else:
        assert await ask(broken.view) == "response.completed"


@ALL
async def test_a_mended_history_is_clean_and_a_strict_server_takes_it(broken: Broken) -> None:
    before = broken.view.items
    mended = for_a_session(broken.view)
    assert lint(mended.view) == ()
    assert await ask(mended.view) == "response.completed"
    assert broken.view.items == before
    assert {one.code for one in mended.changes} - {""} <= {code for code, _ in broken.found} | LEFT_BEHIND


@ALL
async def test_a_history_mended_into_a_file_can_be_sent_by_anybody(broken: Broken) -> None:
    mended = for_a_file(broken.view)
    assert lint(mended.view) == ()
    assert mended.view.strategy is Strategy.REPLAY
    assert await ask(mended.view) == "response.completed"


@ALL
def test_mending_twice_gives_the_same(broken: Broken) -> None:
    assert for_a_session(broken.view) == for_a_session(broken.view)
    assert for_a_file(broken.view) == for_a_file(broken.view)


def test_every_rule_is_in_the_corpus() -> None:
    assert {code for broken in CORPUS for code, _ in broken.found} == {rule.code for rule in RULES}


LEFT_BEHIND = {"call-without-output", "output-without-call"}
"""What another mend may leave to be mended: half of a pair whose other half went."""
