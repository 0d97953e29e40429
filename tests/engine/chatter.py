"""A process that talks to itself until it is killed: `python -m tests.engine.chatter DB STRATEGY FILE`.

It says turns as fast as it can and prints the id of every link once it is confirmed.
"""

import asyncio
import sys
from pathlib import Path

from convo.clock import SystemClock
from convo.engine.edges import Edges
from convo.engine.lease import writing
from convo.engine.opening import open_chat, recorded
from convo.engine.turn import Asking
from convo.history import Strategy
from convo.ids import random_id
from convo.items import user
from convo.stores.open import open_store
from convo.strategies import Wanted
from tests.embedding import embedded

MODEL = "scripted/echo"
NAME = "chatter"


async def chatter(database: str, strategy: Strategy, file: Path) -> None:
    store = open_store(f"sqlite:{database}")
    edges = Edges(store, embedded(store), SystemClock(), random_id)
    known = await store.session(NAME)
    want = Wanted(strategy, NAME if known else str(file) if strategy is Strategy.REPLAY else None)
    session = await recorded(store, Wanted(None, NAME)) if known else None
    chat = await open_chat(want, session, Asking(MODEL, MODEL), edges, name=NAME)
    await writing(store, chat.session)
    print("ready", flush=True)
    while True:
        async for _ in chat.say([user(f"message {len(chat.held.path)}")]):
            pass
        assert chat.turn
        assert chat.turn.link
        print(chat.turn.link.id, flush=True)


if __name__ == "__main__":
    asyncio.run(chatter(sys.argv[1], Strategy(sys.argv[2]), Path(sys.argv[3])))
