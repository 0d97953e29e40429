"""A process that compacts a conversation and dies before one step, by a kill that nothing can catch.

python -m tests.transfer.compactor FOLDER OWNER AT KEEP
"""

import asyncio
import os
import signal
import sys
from itertools import count
from pathlib import Path
from typing import NoReturn

from convo.compaction.planning import CompactionOptions
from convo.history.records import Strategy
from convo.stores.factory import open_store
from tests.transfer.faults import Strikes
from tests.transfer.talks import Talk, compact


def die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


async def compactor(folder: Path, strategy: Strategy, at: int, keep: int) -> None:
    store = open_store(f"sqlite:{folder / 'convo.db'}")
    talk = Talk(store, folder, Strikes(die, at))
    chat = await talk.begun(strategy)
    talk.strikes.armed = True
    await compact(chat, CompactionOptions(keep_turns=keep))
    await store.aclose()


def killed(folder: Path, strategy: Strategy, at: int, keep: int) -> bool:
    """Let a process compact in `folder`, and die before step `at`; whether there was such a step."""
    folder.mkdir()
    child = os.fork()
    if not child:
        asyncio.run(compactor(folder, strategy, at, keep))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
    return status != 0


if __name__ == "__main__":
    _, place, owner, kept = sys.argv
    deaths = next(at for at in count() if not killed(Path(place, str(at)), Strategy(owner), at, int(kept)))
    print(deaths)
