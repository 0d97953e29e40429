"""Fixtures of the chat tests, for agent runs."""

from tests.chat.conftest import harness, read_mode, store, tool_log

__all__ = ["harness", "read_mode", "store", "tool_log"]
