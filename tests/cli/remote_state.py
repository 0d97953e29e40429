"""Chains and conversations that another client created at a server, and a server that is unreachable."""

import pytest

from tests.loopback_server import LoopbackServer


def create_response(server: LoopbackServer, text: str, **state: str) -> str:
    """Create a response; return its id."""

    async def create() -> str:
        events = server.endpoint().create({"model": "gpt-5-mini", "input": text, **state})
        return str([event async for event in events][-1]["response"]["id"])

    return server.run(create())


def create_chain(server: LoopbackServer, *texts: str) -> list[str]:
    """Create a chain of responses; return their ids, oldest first."""
    ids: list[str] = []
    for text in texts:
        state = {"previous_response_id": ids[-1]} if ids else {}
        ids.append(create_response(server, text, **state))
    return ids


def create_conversation(server: LoopbackServer, *texts: str) -> str:
    """Create a conversation with a response to each text; return its id."""
    conversation_id = str(server.run(server.endpoint().create_conversation())["id"])
    for text in texts:
        create_response(server, text, conversation=conversation_id)
    return conversation_id


def set_unreachable_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
