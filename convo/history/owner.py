"""Who holds the head of a conversation, and where its handle means something.

The four owners are the whole point of the program, so what distinguishes them stands here once,
as a table: the words for people, the handle, and whether the owner is the client (it holds the
history and sends all of it) or the endpoint (it holds the history and is sent what it lacks).
"""

from enum import StrEnum
from typing import NamedTuple


class Strategy(StrEnum):
    """The owner's name on the command line and in every record."""

    REPLAY = "replay"
    SESSION = "session"
    CONVERSATION = "conversation"
    CHAIN = "chain"


class Owner(NamedTuple):
    """What one owner is.

    words:    who it is, for people
    handle:   what names the conversation there
    prefix:   how a handle of the endpoint begins; "" for owners at the client
    remembers:  whether the endpoint holds the history, so that a turn sends only what is new
    """

    words: str
    handle: str
    prefix: str = ""
    remembers: bool = False


OWNERS: dict[Strategy, Owner] = {
    Strategy.REPLAY: Owner("the application: a JSON file", "a file"),
    Strategy.SESSION: Owner("the local store", "a session's name or id"),
    Strategy.CONVERSATION: Owner("the endpoint's Conversations API", "conv_...", "conv_", remembers=True),
    Strategy.CHAIN: Owner("the endpoint's Responses API", "resp_...", "resp_", remembers=True),
}


EMBEDDED = "embedded"
"""The URL of the endpoint that lives in this store."""


class Scope(NamedTuple):
    """Where a handle means something: the same id elsewhere is another conversation.

    url:  the base URL, or "embedded" for convo's own endpoint over this store
    """

    url: str = EMBEDDED
    organisation: str | None = None
    project: str | None = None

    def __str__(self) -> str:
        more = [part for part in (self.organisation, self.project) if part]
        return self.url + (f" ({', '.join(more)})" if more else "")


HERE = Scope()
"""Convo's own endpoint over this store."""
