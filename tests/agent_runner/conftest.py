"""The fixtures of chats, for runs of agents over them."""

from tests.chat.conftest import bench, both_ways, ledger, store

__all__ = ["bench", "both_ways", "ledger", "store"]
