"""A store that ends with its process: the shortest one that keeps the whole contract.

Read it to learn what a store does: `tree` for places and items and who needs them, `tenant` for the
records that stand on them and for what a change does, `running` for background runs and their
events, `agents` for runs of agents, `pruning` for what is old enough to go, `upkeep` for what is
done across tenants. `store` is the contract over these.
"""

from convo.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
