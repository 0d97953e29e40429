"""Threads for what may take long, used again and waited for by nobody.

To start a thread costs more than most tools do, so one that is done takes the next call. There is
no bound here: a call never waits behind another one, and one that never returns keeps its thread and
nobody from leaving. A few threads stay idle, the others end. A forked child has none of its parent's.
"""

import os
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeAlias

Call: TypeAlias = tuple[Callable[[], Any], Callable[[Any], None]]
"""What to do, and who is told what came of it; neither may raise."""

KEPT = 8
"""Threads that stay when nothing is to do."""

_idle: "deque[SimpleQueue[Call]]" = deque()
"""Where each idle thread is listening, the one that was idle last at the end."""

os.register_at_fork(after_in_child=_idle.clear)


def take(work: Callable[[], Any], told: Callable[[Any], None]) -> None:
    """Do `work` on a thread, and tell `told` on that thread what came of it."""
    try:
        listening = _idle.pop()
    except IndexError:
        listening = SimpleQueue()
        Thread(target=_serve, args=(listening,), daemon=True, name="convo-hand").start()
    listening.put((work, told))


def _serve(listening: "SimpleQueue[Call]") -> None:
    """Do one call after the other. Who is told may have the next one at once, so the thread is idle before."""
    staying = True
    while staying:
        work, told = listening.get()
        came = work()
        staying = len(_idle) < KEPT
        if staying:
            _idle.append(listening)
        told(came)
        del work, told, came
