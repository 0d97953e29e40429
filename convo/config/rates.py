"""How many requests a server takes: `[serve.limits]`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple


class KeyLimits(NamedTuple):
    """The requests that one key may make of one process; 0: no limit; None: as for every key.

    concurrent:  at once
    per_minute:  in any sixty seconds
    """

    concurrent: int | None = None
    per_minute: int | None = None

    def __str__(self) -> str:
        every = (("concurrent", self.concurrent), ("per_minute", self.per_minute))
        said = [f"{name} {limit}" for name, limit in every if limit is not None]
        return ", ".join(said) or "as for every key"


class ServeLimits(NamedTuple):
    """`[serve.limits]`: the requests of each key, and of all keys together, in one process; 0: no limit.

    concurrent:          requests of one key at once; `max_requests` is the limit of all keys together
    per_minute:          requests of one key in any sixty seconds
    process_per_minute:  requests of all keys together in any sixty seconds
    keys:                other limits for the key of this name
    """

    concurrent: int = 500
    per_minute: int = 0
    process_per_minute: int = 0
    keys: Mapping[str, KeyLimits] = MappingProxyType({})

    def of(self, name: str) -> tuple[int, int]:
        """The concurrent requests and the requests a minute of the key `name`."""
        concurrent, per_minute = self.keys.get(name, KeyLimits())
        return (
            self.concurrent if concurrent is None else concurrent,
            self.per_minute if per_minute is None else per_minute,
        )
