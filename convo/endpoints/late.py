"""An endpoint that is made by whoever asks it first.

Convo's own endpoint is thirty modules, and none of them is needed before something is asked. A chat
draws its prompt without them, and they are loaded while the first message is typed.
"""

from collections.abc import Callable
from typing import Any

from convo.endpoints.contract import Endpoint
from convo.history import Scope


class Late:
    """Stands for an endpoint whose `scope` is known before it is there; everything else makes it."""

    def __init__(self, scope: Scope, make: Callable[[], Endpoint]) -> None:
        self.scope, self._make = scope, make
        self._made: Endpoint | None = None

    def __getattr__(self, name: str) -> Any:
        self._made = self._made or self._make()
        return getattr(self._made, name)

    async def aclose(self) -> None:
        """Close it, if anybody asked."""
        if self._made is not None:
            await self._made.aclose()
