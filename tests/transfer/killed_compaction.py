"""Processes that compact a conversation and are killed with SIGKILL before one step.

python -m tests.transfer.killed_compaction FOLDER STRATEGY KEEP

The program prints the number of killed processes.
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
from tests.transfer.compaction_cases import CompactionCase, compact
from tests.transfer.faults import StepFault


def kill_self() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


async def run_compaction(folder: Path, strategy: Strategy, step: int, keep: int) -> None:
    store = open_store(f"sqlite:{folder / 'convo.db'}")
    case = CompactionCase(store, folder, StepFault(kill_self, step))
    chat = await case.start_chat(strategy)
    case.fault.armed = True
    await compact(chat, CompactionOptions(keep_turns=keep))
    await store.aclose()


def run_and_kill(folder: Path, strategy: Strategy, step: int, keep: int) -> bool:
    """Compact in `folder` in a child process that is killed before step `at`. Returns whether there was such a step."""
    folder.mkdir()
    child = os.fork()
    if not child:
        asyncio.run(run_compaction(folder, strategy, step, keep))
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status == 0 or os.WTERMSIG(status) == signal.SIGKILL
    return status != 0


if __name__ == "__main__":
    _, place, owner, kept = sys.argv
    deaths = next(at for at in count() if not run_and_kill(Path(place, str(at)), Strategy(owner), at, int(kept)))
    print(deaths)
