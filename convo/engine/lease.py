"""One writer a conversation, across processes.

A process that chats holds a lease in the store and renews it while it lives. A killed one leaves
its lease behind; on the same machine its holder can be seen to be dead and is taken over at once,
anywhere else the lease runs out.
"""

import asyncio
import os
import socket
from contextlib import suppress
from pathlib import Path

from convo.errors import Busy, StoreFault
from convo.stores.contract import Lease, Store

TTL_S = 30.0
RENEW_S = 10.0


class Hold:
    """A lease that renews itself in the background until it is released."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store, self._lease = store, lease
        self._renewing = asyncio.create_task(self._renew())

    @classmethod
    async def take(cls, store: Store, name: str, *, title: str) -> "Hold":
        """Take the lease `name`. raises: Busy  a living process holds it; `title` is for people"""
        try:
            lease = await store.lease(name, me(), TTL_S)
        except Busy as busy:
            if not dead(busy.holder):
                raise Busy(title, spoken(busy.holder), hint=f"convo chat --fork {title}") from busy
            lease = await store.lease(name, me(), TTL_S, instead_of=busy.holder)
        return cls(store, lease)

    async def release(self) -> None:
        self._renewing.cancel()
        with suppress(asyncio.CancelledError):
            await self._renewing
        await self._store.release(self._lease)

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            with suppress(Busy, StoreFault):
                self._lease = await self._store.lease(self._lease.name, self._lease.holder, TTL_S)


def me() -> str:
    """This process, so that another one can tell whether it lives: host, pid, start, instance."""
    return f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid())}"


def dead(holder: str) -> bool:
    """Whether the holder ran on this machine and is gone; False when that cannot be known."""
    host, _, rest = holder.rpartition(":")[0].rpartition(":")
    pid, started = rest, holder.rpartition(":")[2]
    if host != socket.gethostname() or not pid.isdigit():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return bool(started) and _started(int(pid)) != started


def spoken(holder: str) -> str:
    """The holder in words."""
    parts = holder.split(":")
    return f"process {parts[-2]} on {parts[0]}" if len(parts) >= 3 else holder


def _started(pid: int) -> str:
    """When a process began, in the kernel's ticks, where that can be read; "" elsewhere."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]
