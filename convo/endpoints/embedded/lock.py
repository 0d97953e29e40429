"""One writer a conversation, whichever process or replica it runs in.

The right to write is a lease on the store's clock, renewed while the writer lives. One that a
process on another machine left behind runs out sooner than a client loses patience. A lease that
was lost nevertheless cannot lose items: every change says where the conversation's head must stand.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from convo.endpoints.embedded import refusals
from convo.endpoints.embedded.runs import unbroken
from convo.errors import Busy, StoreFault
from convo.processes import this_process
from convo.stores.contract import Store
from convo.stores.leasing import Hold

TTL_S = 6.0


@asynccontextmanager
async def writing(store: Store, conversation_id: str, holder: str) -> AsyncIterator[None]:
    """Hold the right to write this conversation while the block runs.

    holder:  a name that nobody else in this process has
    raises:  TryLater  `conversation_locked`: somebody else holds it
    """
    try:
        hold = await _acquire(store, f"writing {conversation_id}", f"{this_process()}:{holder}")
    except Busy as busy:
        raise refusals.locked() from busy
    try:
        yield
    finally:
        await unbroken(hold.release())


async def _acquire(store: Store, name: str, holder: str) -> Hold:
    """Acquire the lease; a cancellation meanwhile releases it. raises: Busy"""
    taking = asyncio.create_task(Hold.take(store, name, holder, TTL_S))
    try:
        return await asyncio.shield(taking)
    except asyncio.CancelledError:
        await unbroken(_release(taking))
        raise


async def _release(taking: asyncio.Task[Hold]) -> None:
    with suppress(Busy, StoreFault):
        await (await taking).release()
