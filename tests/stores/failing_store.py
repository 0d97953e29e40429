"""A store whose commits can be made to fail."""

from collections.abc import Callable
from typing import Any

from convo.errors import ConvoError
from convo.stores.base import Transaction


class FailingStore:
    """Delegates to `store`. While `failing` is true, `commit` raises `error`.

    which:  selects the transactions that fail
    """

    def __init__(
        self,
        store: Any,
        error: ConvoError,
        *,
        failing: bool,
        which: Callable[[Transaction], object] = lambda change: True,
    ) -> None:
        self.store, self.error, self.failing, self.which = store, error, failing, which

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)

    async def commit(self, change: Transaction) -> None:
        if self.failing and self.which(change):
            raise self.error
        await self.store.commit(change)
