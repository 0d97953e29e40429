"""A store that cannot keep anything for a while."""

from collections.abc import Callable
from typing import Any

from convo.errors import ConvoError
from convo.stores.base import Transaction


class Refusing:
    """Refuses changes with `wrong` while it is `down`; what is read is the store's own.

    which:  the changes that it refuses
    """

    def __init__(
        self, store: Any, wrong: ConvoError, *, down: bool, which: Callable[[Transaction], object] = lambda change: True
    ) -> None:
        self.store, self.wrong, self.down, self.which = store, wrong, down, which

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, change: Transaction) -> None:
        if self.down and self.which(change):
            raise self.wrong
        await self.store.commit(change)
