"""A process that sends messages until it is killed: `python -m tests.chat.chat_process DB STRATEGY FILE`.

It sends turns as fast as it can and prints the id of each confirmed link.
"""

import asyncio
import sys
from pathlib import Path

from convo.chat.open import find_selected_session, open_chat
from convo.chat.session_record import ChatDeps, acquire_session_lease
from convo.chat.turn import RequestOptions
from convo.history.items import user_message
from convo.history.records import Strategy
from convo.runtime import SystemClock, random_id
from convo.stores.factory import open_store
from convo.strategies.selection import OwnerSelection
from tests.embedded_endpoint import make_embedded_endpoint

MODEL = "scripted/echo"
NAME = "chatter"


async def chat_until_killed(database: str, strategy: Strategy, file: Path) -> None:
    store = open_store(f"sqlite:{database}")
    deps = ChatDeps(store, make_embedded_endpoint(store), SystemClock(), random_id)
    stored = await store.session(NAME)
    selection = OwnerSelection(strategy, NAME if stored else str(file) if strategy is Strategy.REPLAY else None)
    session = await find_selected_session(store, OwnerSelection(None, NAME)) if stored else None
    chat = await open_chat(selection, session, RequestOptions(MODEL, MODEL), deps, name=NAME)
    await acquire_session_lease(store, chat.session)
    print("ready", flush=True)
    while True:
        async for _ in chat.send([user_message(f"message {len(chat.state.path)}")]):
            pass
        assert chat.turn
        assert chat.turn.link
        print(chat.turn.link.id, flush=True)


if __name__ == "__main__":
    asyncio.run(chat_until_killed(sys.argv[1], Strategy(sys.argv[2]), Path(sys.argv[3])))
