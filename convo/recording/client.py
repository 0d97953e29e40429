"""The client of a recorded request: its name and version, and its own id of the conversation.

Headers are untrusted and may contain secrets: only a name and a version in their usual forms are kept, and the id of a
conversation is only used hashed.
"""

import json
import re
from collections.abc import Mapping
from typing import NamedTuple

from convo.history.items import Json

SESSION_HEADERS = (
    "session-id",  # Codex; the same for its subagents, which have thread ids of their own
    "session_id",  # Codex before 0.150
    "x-claude-code-session-id",
    "x-session-id",  # opencode
    "x-session-affinity",
    "x-opencode-session",
    "conversation_id",
    "x-conversation-id",
)
"""Headers with a client's id of a conversation, most reliable first."""

RECORDED_HEADERS = ("user-agent", *SESSION_HEADERS)
"""The headers that a recorder reads."""

PRODUCT = re.compile(
    r"(?P<name>[A-Za-z][A-Za-z0-9_.@-]{0,40}(?:/(?:Python|JS|Go|Java|Ruby))?)[/ ]v?(?P<version>\d[\w.+-]{0,30})"
)
"""The first product of a User-Agent: `codex_exec/0.169.0`, `claude-cli/2.1.330`, `OpenAI/Python 3.54.0`."""

CLIENT_NAMES = {
    "codex_exec": "codex",
    "codex_cli_rs": "codex",
    "codex-tui": "codex",
    "claude-cli": "claude-code",
    "python-requests": "requests",
}
"""Product names, by the name in the User-Agent."""


class ClientIdentity(NamedTuple):
    """The name and version of a client; None if unknown."""

    name: str | None = None
    version: str | None = None

    @property
    def slug(self) -> str:
        """The name in the characters of a session's name."""
        return re.sub(r"[^a-z0-9]+", "-", (self.name or "client").lower()).strip("-")


def identify_client(headers: Mapping[str, str]) -> ClientIdentity:
    """Return the client that sent `headers`, whose names are in lower case."""
    match = PRODUCT.match(headers.get("user-agent", ""))
    if match is None:
        return ClientIdentity()
    name = match["name"].replace("/", "-").lower().removeprefix("async")
    return ClientIdentity(CLIENT_NAMES.get(name, name), match["version"])


def find_session_key(headers: Mapping[str, str], parameters: Mapping[str, Json]) -> str | None:
    """Return the client's own id of the conversation; None if it sends none.

    Claude Code also sends it in `metadata.user_id`: as JSON, or after `_session_`. `prompt_cache_key` is none: an
    application may send the same one in all conversations.
    """
    for name in SESSION_HEADERS:
        if headers.get(name):
            return headers[name]
    metadata = parameters.get("metadata")
    user_id = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    if not isinstance(user_id, str):
        return None
    if "_session_" in user_id:
        return user_id.rpartition("_session_")[2] or None
    try:
        document = json.loads(user_id)
    except (ValueError, RecursionError):
        return None
    session_id = document.get("session_id") if isinstance(document, dict) else None
    return session_id if isinstance(session_id, str) and session_id else None
