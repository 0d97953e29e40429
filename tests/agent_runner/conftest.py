"""The fixtures of chats, for runs of agents over them."""

from tests.chat.conftest import harness, read_mode, store, tool_log

__all__ = ["harness", "read_mode", "store", "tool_log"]
