"""One writer a conversation, whichever process or replica it runs in.

The right to write is a lease on the store's clock, renewed while the writer lives. A process that
dies leaves it to run out, sooner than a client loses patience. A lease that was lost nevertheless
cannot lose items: every change says where the conversation's head must stand.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from convo.endpoints.embedded import refusals
from convo.errors import Busy, StoreFault
from convo.stores.contract import Lease, Store

TTL_S = 6.0
RENEW_S = 2.0


@asynccontextmanager
async def writing(store: Store, conversation_id: str, holder: str) -> AsyncIterator[None]:
    """Hold the right to write this conversation while the block runs.

    holder:  a name that nobody else has
    raises:  TryLater  `conversation_locked`: somebody else holds it
    """
    try:
        lease = await store.lease(f"writing {conversation_id}", holder, TTL_S)
    except Busy as busy:
        raise refusals.locked() from busy
    renewing = asyncio.create_task(_renew(store, lease))
    try:
        yield
    finally:
        renewing.cancel()
        with suppress(asyncio.CancelledError):
            await renewing
        with suppress(StoreFault):
            await asyncio.shield(store.release(lease))


async def _renew(store: Store, lease: Lease) -> None:
    while True:
        await asyncio.sleep(RENEW_S)
        with suppress(Busy, StoreFault):
            await store.lease(lease.name, lease.holder, TTL_S)
